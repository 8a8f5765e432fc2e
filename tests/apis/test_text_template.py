"""Text frames of the client's API on the fast path: they equal the frames that the encoder would have written."""

from __future__ import annotations

from itertools import islice
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import pairs
from tests.apis.pairs import CROSSED
from tests.apis.shapes import THINKING
from tests.exchange.crossings import PAIR, open_bridge
from tests.exchanges import FastPath
from vtc.apis.relay import Relay

PLAIN = [f" {word}" for word in ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]] * 20
TEXTS = st.lists(
    st.sampled_from(
        [*PLAIN[:9], "\n", "\n\n", "- x", " ", "`a`", "é", "\u2028", "\x85x", '"', "\\", "<", "</b>", "```\n"]
    )
    | st.text(min_size=1, max_size=4),
    max_size=30,
)


def frames(server: str, *pieces: str, thought: bool = False) -> list[bytes]:
    """Stream pieces of text, or of reasoning before it."""
    end = b"\n" if server == "ollama-chat" else b"\n\n"
    if not thought:
        body = pairs.make_stream(server, pieces)
        return [one + end for one in body.split(end)[:-1]]
    made = [one + end for one in pairs.make_stream(server, ["So"], reasoning="@").split(end)[:-1]]
    at = next(at for at, one in enumerate(made) if b'"@"' in one)
    return [*made[:at], *(made[at].replace(b"@", one.encode()) for one in pieces), *made[at + 1 :]]


def read_and_count(client: str, server: str, *chunks: bytes, fast: bool = True) -> tuple[bytes, int]:
    """Return the content that a client receives, and how many frames were decoded for it."""
    fields: dict[str, Any] = THINKING.get(client, {})
    stream = open_bridge(client, server, stream=True, **fields).stream()
    count, feed = 0, Relay.feed

    def count_frame(relay: Any, frame: Any) -> list[bytes]:
        nonlocal count
        count += 1
        return feed(relay, frame)

    slow = patch.object(FastPath, "learn", lambda *_, **__: None)
    with patch.object(Relay, "feed", count_frame):
        if not fast:
            slow.start()
        try:
            out = [piece for chunk in chunks for piece in stream.feed(chunk)] + stream.finish()
        finally:
            if not fast:
                slow.stop()
    return b"".join(out), count


@PAIR
@pytest.mark.parametrize("thought", [False, True], ids=["text", "reasoning"])
def test_plain_text_equals_the_encoders_output_and_is_hardly_parsed(client: str, server: str, thought: bool) -> None:
    chunks = frames(server, *PLAIN, thought=thought)
    out, count = read_and_count(client, server, *chunks)
    assert out == read_and_count(client, server, *chunks, fast=False)[0]
    assert count < 24


@PAIR
@pytest.mark.parametrize(
    "beside", [["word "], ["word ", "two "], ["word\n", " word"], ["word", "\n", " ", "word\t", "."]]
)
def test_text_ending_in_white_space_equals_the_encoders_output_and_is_hardly_parsed(
    client: str, server: str, beside: list[str]
) -> None:
    chunks = frames(server, *beside * 60)
    out, count = read_and_count(client, server, *chunks)
    assert out == read_and_count(client, server, *chunks, fast=False)[0]
    assert count < 30


@given(
    st.sampled_from(CROSSED),
    st.sampled_from([["It", " works"], ["It ", "works "]]),
    st.lists(
        st.lists(st.sampled_from(["a", " b", "c ", "\n", " ", "x >", ">", "<", "`d` e", "`f"]), min_size=1, max_size=4)
    ),
)
def test_frames_are_sent_at_the_same_time_as_by_the_encoder(
    pair: tuple[str, str], begins: list[str], chunks: list[list[str]]
) -> None:
    client, server = pair
    fast, slow = (open_bridge(client, server, stream=True).stream() for _ in range(2))
    slow._fast_path = None
    parts = iter(frames(server, *begins, *(text for texts in chunks for text in texts)))
    head = next(at for at, part in enumerate(frames(server, "It", "@")) if b'"@"' in part)
    for chunk in [*islice(parts, head), *(b"".join(islice(parts, len(texts))) for texts in chunks), *parts]:
        assert fast.feed(chunk) == slow.feed(chunk)
    assert fast.finish() == slow.finish()


@given(st.sampled_from(CROSSED), TEXTS, st.integers(1, 900))
def test_any_text_has_the_same_result_in_any_cut(pair: tuple[str, str], texts: list[str], cut: int) -> None:
    client, server = pair
    body = b"".join(frames(server, " So", " it", *texts, " is", "."))
    fast, _ = read_and_count(client, server, *(body[at : at + cut] for at in range(0, len(body), cut)))
    slow, _ = read_and_count(client, server, body, fast=False)
    assert pairs.read(client, fast, stream=True) == pairs.read(client, slow, stream=True)


@PAIR
@pytest.mark.parametrize("odd", [b"\xff", "\u2028".encode()])
def test_bytes_that_clients_read_in_several_ways_are_written_by_the_encoder(
    client: str, server: str, odd: bytes
) -> None:
    chunks = [frame.replace(b" lazy", b" la%bzy" % odd) for frame in frames(server, *PLAIN)]
    out, _ = read_and_count(client, server, *chunks)
    assert b" la" in out
    assert odd not in out
