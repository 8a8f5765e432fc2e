"""Metadata of a server's reply that the client's API lacks: each kind is reported once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat, messages, pairs, responses
from tests.exchange.crossings import PAIR, open_bridge
from tests.exchanges import feed_stream

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
SEARCHED = [
    {"type": "response.output_item.added", "output_index": 0, "item": SEARCH},
    {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
    {"type": "response.output_item.done", "output_index": 0, "item": SEARCH},
]
USED = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
BLOCKS = [
    *(messages.make_block_start(0, USED), messages.delta(0, "input_json_delta", partial_json='{"query": "q"}')),
    *(messages.make_block_stop(0), messages.make_block_start(1, FOUND), messages.make_block_stop(1)),
]
CITED = [
    messages.make_block_start(0, {"type": "text", "text": ""}),
    messages.delta(0, "citations_delta", citation={"type": "char_location", "cited_text": "c"}),
    *(*messages.make_text_deltas(0, "Hi"), messages.make_block_stop(0)),
]
DELTA = {"role": "assistant", "content": "Hi", "annotations": [{"type": "url_citation"}], "odd": 1}
CHOICES = [
    chat.ROLE,
    *chat.make_text_chunks("Hi"),
    *chat.make_text_chunks("Ho", index=1),
    chat.chunk({}, "stop"),
    chat.chunk({}, "stop", index=1),
]
TWICE = [*map(chat.chunk, [DELTA, DELTA]), chat.chunk({}, "stop"), chat.DONE]
REPLIES = [
    (
        "anthropic-messages",
        messages.make_stream(BLOCKS, messages.text_block(2, "Hi")),
        f"{USED['type']}, {FOUND['type']}",
    ),
    ("anthropic-messages", messages.make_stream(CITED), "citations"),
    ("openai-responses", responses.make_stream(SEARCHED, responses.text_events("Hi")), "web_search_call"),
    (
        "openai-chat",
        TWICE,
        "annotations, delta.odd",
    ),
]


@pytest.mark.parametrize(
    ("client", "server", "frames", "named"),
    [(client, *reply) for reply in REPLIES for client in pairs.NAMES if client != reply[0]],
)
def test_metadata_without_an_equivalent_is_reported(client: str, server: str, frames: list[bytes], named: str) -> None:
    exchange = open_bridge(client, server, stream=True)
    assert pairs.read(client, feed_stream(exchange.stream(), *frames), stream=True).text in ("Hi", "HiHi")
    assert exchange.report.notes[-1].endswith(
        f"left out of the reply, because the client's API has no such field: {named}"
    )


COMPACTED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}
WHOLE = [
    ("anthropic-messages", messages.message(USED, FOUND, messages.text("Hi")), f"{USED['type']}, {FOUND['type']}"),
    ("anthropic-messages", messages.message({"type": "compaction", "content": "s"}, messages.text("Hi")), "compaction"),
    ("openai-responses", responses.response(SEARCH, COMPACTED, responses.message("Hi")), "web_search_call, compaction"),
    ("openai-chat", chat.completion("Hi", message={"annotations": [{"type": "url_citation"}]}), "annotations"),
]


@pytest.mark.parametrize(
    ("client", "server", "reply", "named"),
    [(client, *reply) for reply in WHOLE for client in pairs.NAMES if client != reply[0]],
)
def test_metadata_without_an_equivalent_in_a_whole_reply_is_reported(
    client: str, server: str, reply: dict[str, Any], named: str
) -> None:
    exchange = open_bridge(client, server, stream=False)
    assert pairs.read(client, exchange.whole.rewrite(chat.encode_json(reply)), stream=False).text == "Hi"
    assert exchange.report.notes[-1].endswith(
        f"left out of the reply, because the client's API has no such field: {named}"
    )


@PAIR
def test_of_a_plain_reply_nothing_is_named(client: str, server: str) -> None:
    exchange = open_bridge(client, server, stream=True)
    feed_stream(exchange.stream(), pairs.make_stream(server, ["Hi"], pairs.READ, reasoning="Hm."))
    assert not any("left out" in line for line in [*exchange.report.request, *exchange.report.notes])
