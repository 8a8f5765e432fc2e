"""Streams that end without the server's word for why: told in the report, between all pairs of APIs."""

from __future__ import annotations

import re

import pytest

from tests.apis.shapes import SHAPES, asked
from tests.exchanges import agent, planner
from vtc.apis import named
from vtc.exchange import Exchange

END = re.compile(
    rb'finish_?reason"\s*:\s*"|\[DONE\]|message_delta|message_stop|response\.completed|"done"\s*:\s*true', re.I
)
WORDS = "the reply ended without a reason"


@pytest.mark.parametrize("server", SHAPES)
@pytest.mark.parametrize("client", SHAPES)
def test_a_stream_that_ends_without_a_reason_is_told_so(client: str, server: str) -> None:
    frames = SHAPES[server].streamed("Hello ", "there")
    for sent, errors in ((frames, []), ([frame for frame in frames if not END.search(frame)], [WORDS])):
        api = named(client)
        assert api
        plans = planner(upstream_api=(server,))
        exchange = Exchange.open(api, asked(client, stream=True), agent(client, stream=True), plans, "seed")
        exchange.request()
        stream = exchange.stream()
        out = b"".join([*(piece for frame in sent for piece in stream.feed(frame)), *stream.finish()])
        assert b"Hello" in out
        assert exchange.report.errors == errors
