"""The fate of a reply after a fault of VTC: it is forwarded, withheld, or replaced by an error of the client's API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.apis import chat
from tests.attacks.lab import actions, open_under
from tests.exchange.asking.test_retries import open_client, open_long_name
from tests.exchange.crossings import open_bridge
from tests.exchanges import feed_stream
from vtc.apis.relay import UNREADABLE_REST
from vtc.dialects import Reader
from vtc.exchange import WITHHELD, Session

WHOLE = chat.encode_json(chat.completion("Let me look."))
BEGUN, REST = (
    [chat.ROLE, *chat.make_text_chunks("Let ")],
    [*chat.make_text_chunks("me look."), chat.chunk({}, "stop"), chat.DONE],
)
OPENED: dict[str, Callable[[bool], Session]] = {
    "open": lambda stream: open_client(stream=stream),
    "strict": lambda stream: open_under({"denied_tools": ["bash"]}, stream=stream),
    "bridged": lambda stream: open_bridge("anthropic-messages", "openai-chat", stream=stream),
    "renamed": lambda stream: open_long_name(stream=stream)[0],
}


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make each reader of text fail from now on."""

    def fails(*_: Any) -> None:
        raise RuntimeError("planted")

    return lambda: monkeypatch.setattr(Reader, "feed", fails)


def test_a_whole_reply_passes_if_the_client_can_read_it_and_no_policy_refuses_calls(breaks: Callable[[], None]) -> None:
    breaks()
    for fate, failure in (("open", "RuntimeError: planted"), ("renamed", "it could not be read")):
        exchange = OPENED[fate](False)
        assert exchange.whole.rewrite(WHOLE) == WHOLE
        assert exchange.report.failures == [failure]


def test_whole_reply_is_withheld_if_a_policy_denies_calls(breaks: Callable[[], None]) -> None:
    exchange = OPENED["strict"](False)
    breaks()
    assert chat.read(exchange.whole.rewrite(WHOLE)).content == WITHHELD
    assert actions(exchange) == [("unread_calls", "refused")]


def test_a_whole_reply_for_a_client_of_another_api_is_an_error_of_that(breaks: Callable[[], None]) -> None:
    exchange = OPENED["bridged"](False)
    breaks()
    error = json.loads(exchange.whole.rewrite(WHOLE))
    assert (error["type"], error["error"]["message"]) == ("error", "The reply of the server could not be read")
    assert exchange.report.failures == ["it could not be read"]


@pytest.mark.parametrize("fate", OPENED)
def test_rest_of_a_stream_is_sent_only_if_it_fails_open(fate: str, breaks: Callable[[], None]) -> None:
    exchange = OPENED[fate](True)
    stream = exchange.stream()
    before = b"".join(out for frame in BEGUN for out in stream.feed(frame))
    breaks()
    after = feed_stream(stream, *REST)
    if fate == "open":
        assert before + after == b"".join([*BEGUN, *REST])
        assert (stream.failed, stream.broken, exchange.report.failures) == (True, False, ["RuntimeError: planted"])
    else:
        errors = [event["error"]["message"] for event in chat.events(after)]
        assert errors == ([] if fate == "strict" else [UNREADABLE_REST]), "nothing but an error is sent"
        assert (stream.failed, stream.broken, actions(exchange)) == (False, True, [("unread_calls", "refused")])
