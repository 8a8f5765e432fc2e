"""Replies without a finish reason: reported once, between all pairs of APIs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis.chat import encode_json
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import agent, planner
from vtc.apis import find_api
from vtc.exchange import Session

REASON = re.compile(rb'finish_?reason"\s*:\s*"|message_delta', re.I)
END = re.compile(REASON.pattern + rb'|\[DONE\]|message_stop|response\.completed|"done"\s*:\s*true', re.I)
REASONS = ("finish_reason", "stop_reason", "finishReason")
WORDS = "the reply ended without a reason"
BROKEN = "the server broke off: its stream ended without a reason and without an end mark"


def open_pair(client: str, server: str, *, stream: bool) -> Session:
    api = find_api(client)
    assert api
    plans = planner(upstream_api=(server,))
    exchange = Session.open(api, make_request_body(client, stream=stream), agent(client, stream=stream), plans, "seed")
    exchange.encode_request()
    return exchange


def stream_frames(client: str, server: str, frames: Sequence[bytes]) -> list[str]:
    exchange = open_pair(client, server, stream=True)
    stream = exchange.stream()
    out = b"".join([*(piece for frame in frames for piece in stream.feed(frame)), *stream.finish()])
    assert b"Hello" in out
    return exchange.report.errors


def reasonless(value: Any) -> Any:
    """Copy a whole reply, with null for each reason."""
    if isinstance(value, list):
        return [*map(reasonless, value)]
    if isinstance(value, dict):
        return {key: None if key in REASONS else reasonless(entry) for key, entry in value.items()}
    return value


@pytest.mark.parametrize("server", SHAPES)
@pytest.mark.parametrize("client", SHAPES)
def test_stream_without_a_finish_reason_is_reported(client: str, server: str) -> None:
    frames = SHAPES[server].streamed("Hello ", "there")
    assert stream_frames(client, server, frames) == []
    assert stream_frames(client, server, [frame for frame in frames if not END.search(frame)]) == [
        WORDS if client == server else BROKEN
    ]


@pytest.mark.parametrize("server", ["openai-chat", "anthropic-messages"])
@pytest.mark.parametrize("client", SHAPES)
def test_so_is_one_that_the_server_ended(client: str, server: str) -> None:
    frames = SHAPES[server].streamed("Hello ", "there")
    assert stream_frames(client, server, [frame for frame in frames if not REASON.search(frame)]) == [WORDS]


@pytest.mark.parametrize("server", ["openai-chat", "anthropic-messages", "gemini-generate"])
@pytest.mark.parametrize("client", SHAPES)
def test_so_is_a_whole_reply(client: str, server: str) -> None:
    reply = SHAPES[server].whole("Hello there")
    for body, errors in ((reply, []), (reasonless(reply), [WORDS])):
        exchange = open_pair(client, server, stream=False)
        out = exchange.whole.rewrite(encode_json(body))
        assert b"Hello there" in out
        assert (out == encode_json(body)) == (client == server)
        assert exchange.report.errors == errors
