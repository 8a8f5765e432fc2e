"""A streamed reply with a content coding, in which a few bytes expand to many."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterable

import pytest

from tests.apis import chat
from tests.attacks.lab import open_under
from tests.exchanges import open_session
from vtc.exchange import Stream

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
FRAMES = chat.make_stream(*(f"{CALL}\nThis is line {number}.\n" for number in range(2_000)))
DENY = {"denied_tools": ["read"]}


def quick() -> Callable[[], float]:
    """Return a clock by which no slice takes time."""
    return float


def slow() -> Callable[[], float]:
    """Return a clock by which every slice takes 20 ms."""
    ticks = itertools.count()
    return lambda: next(ticks) / 50


def feed_chunks(stream: Stream, chunks: Iterable[bytes]) -> bytes:
    return b"".join([out for chunk in chunks for out in stream.feed(chunk)] + stream.finish())


@pytest.mark.rest
@pytest.mark.parametrize("guards", [None, DENY])
def test_one_read_of_much_is_read_to_its_end_if_there_is_time(guards: dict[str, list[str]] | None) -> None:
    exchange = open_under(guards, tools=[chat.READ])
    found = chat.read(feed_chunks(exchange.stream("gzip", quick()), [gzip.compress(b"".join(FRAMES))]))
    assert len(found.calls) == (0 if guards else 2_000)
    assert found.content.count("This is line") == 2_000


def test_single_read_beyond_the_limit_is_forwarded_unchanged() -> None:
    """From there on no calls are read, no byte is lost, and the report states it."""
    exchange = open_session()
    stream = exchange.stream("gzip", slow())
    packed = gzip.compress(b"".join(FRAMES[:-1])), gzip.compress(FRAMES[-1])
    body = feed_chunks(stream, packed)
    assert stream.failed
    assert not stream.broken
    lifted, content = body.count(b'"name":"read"'), "".join(delta.get("content") or "" for delta in chat.deltas(body))
    assert 0 < lifted < 2_000
    assert content.count("This is line") == 2_000
    assert content.count("<tool_call>") == 2_000 - lifted
    assert body.endswith(b"".join(FRAMES[-1_000:]))
    (failure,) = exchange.report.failures
    assert "too much work" in failure


def test_too_large_read_is_not_sent_under_a_policy() -> None:
    exchange = open_under(DENY, tools=[chat.READ])
    stream = exchange.stream("gzip", slow())
    body = feed_chunks(stream, [gzip.compress(b"".join(FRAMES))])
    assert stream.broken
    assert chat.read(body).calls == []
    assert 0 < body.count(b"This is line") < 2_000


def test_json_received_as_a_stream_is_only_stored() -> None:
    """Only its end causes work."""
    whole = chat.encode_json(chat.completion("x" * 50_000 + "\n" + CALL))
    found = chat.read(feed_chunks(open_session().stream("gzip", slow()), [gzip.compress(whole)]))
    assert found.calls == [("read", {"filePath": "/a"})]
