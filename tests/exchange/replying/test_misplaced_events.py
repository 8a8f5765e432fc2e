"""Events of Anthropic Messages that its clients cannot parse: moved to their own block, or dropped and reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import messages, pairs
from tests.apis.messages import START, call_block, delta, end, make_block_start, make_block_stop, make_text_deltas
from tests.apis.pairs import READ, make_content
from tests.apis.shapes import THINKING
from tests.exchange.crossings import open_bridge, read_client_reply
from tests.exchanges import feed_stream
from vtc.exchange import Session

CLIENTS = pytest.mark.parametrize("client", pairs.NAMES)
THOUGHT = delta(0, "thinking_delta", thinking="Hm.")
TEXT = make_block_start(0, messages.text(""))
STOP = make_block_stop(0)
HI = messages.text_block(0, "Hi")
CALL = call_block(1, "read", '{"filePath": "/a"}')
CUTS = pytest.mark.parametrize("cuts", [0, 1, 7])


def open_client(client: str, **fields: Any) -> Session:
    return open_bridge(client, "anthropic-messages", stream=True, **THINKING.get(client, {}), **fields)


@CLIENTS
@CUTS
@pytest.mark.parametrize(
    "block",
    [
        [TEXT, THOUGHT, *make_text_deltas(0, "Hi"), STOP],
        [TEXT, THOUGHT, delta(0, "signature_delta", signature="sig"), *make_text_deltas(0, "H", "i"), STOP],
        [THOUGHT, TEXT, *make_text_deltas(0, "Hi"), STOP],
        [*messages.thinking_block(0, "H", signature=""), delta(0, "thinking_delta", thinking="m."), *HI],
    ],
    ids=["in a text block", "signed", "outside of blocks", "after its block"],
)
def test_type_of_a_delta_decides_over_the_type_of_its_block(client: str, cuts: int, block: list[bytes]) -> None:
    body = b"".join([START, *block, *CALL, *end("tool_use")])
    found = read_client_reply(open_client(client), client, body, stream=True, cuts=cuts)
    assert found == make_content("Hi", READ, reasoning="Hm.")


@pytest.mark.parametrize("text", ["", "Hi"])
def test_thinking_after_text_gets_a_block_of_its_own(text: str) -> None:
    body = b"".join([START, TEXT, *make_text_deltas(0, text), THOUGHT, *make_text_deltas(0, "Ho"), STOP, *end()])
    out = feed_stream(open_client("anthropic-messages").stream(), body)
    assert messages.read(out).kinds == [*["text"] * bool(text), "thinking", "text"]


@CLIENTS
@CUTS
@pytest.mark.parametrize(
    ("place", "event", "name"),
    [
        (1, START, "message_start"),
        (3, START, "message_start"),
        (2, delta(0, "input_json_delta", partial_json="{}"), "input_json_delta"),
        (3, delta(0, "citations_delta", citation={}), "citations_delta"),
        (3, delta(5, "signature_delta", signature="x"), "signature_delta"),
        (3, delta(5, "other_delta", x=1), "other_delta"),
        (5, delta(1, "signature_delta", signature="x"), "signature_delta"),
    ],
)
def test_other_events_are_dropped_and_reported(client: str, cuts: int, place: int, event: bytes, name: str) -> None:
    frames = [START, *messages.text_block(0, "Hi"), *CALL, *end("tool_use")]
    frames.insert(place if place < 3 else place + 1, event)
    exchange = open_client(client)
    found = read_client_reply(exchange, client, b"".join(frames), stream=True, cuts=cuts)
    assert found == make_content("Hi", READ)
    assert [line for line in exchange.report.notes if line.startswith("dropped") and name in line]
