"""Whole replies converted to streams, and replies that VTC makes without a model."""

from __future__ import annotations

import json

import pytest

from tests.apis import messages
from tests.apis.named_events import Json, events
from vtc.apis import convert_to_stream as streamed_of
from vtc.apis import render_text_reply
from vtc.apis.anthropic_messages import API
from vtc.wire import EventReader

ASKED = API.request(json.dumps(messages.request(stream=True)).encode())


def stream_body(body: bytes) -> bytes:
    return streamed_of(API, body, ASKED)


REPLY = messages.message(
    messages.thinking("Hm.", "sig"),
    {**messages.text("Look."), "citations": [{"type": "char_location", "cited_text": "x"}]},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
    messages.call("read", filePath="/é"),
    messages.call("list_files", "toolu_2"),
    stop_reason="tool_use",
)


def test_stream_equals_whole_reply() -> None:
    found = messages.read(stream_body(json.dumps(REPLY).encode()))
    assert found.blocks == REPLY["content"]
    assert (found.stop_reason, found.usage) == ("tool_use", messages.USAGE)


def test_deltas_of_an_unknown_kind_are_added_to_their_block() -> None:
    block, piece = {"type": "compaction", "content": "a"}, {"type": "compaction_delta", "content": "b"}
    start, *stop = (json.loads(event.raw.partition(b"data: ")[2]) for event in EventReader().feed(whole_of(block)))
    delta = {"type": "content_block_delta", "index": 0, "delta": piece}
    assert API.fold([start, stop[0], delta, *stop[1:]])["content"] == [{"type": "compaction", "content": "ab"}]


def whole_of(block: Json) -> bytes:
    return stream_body(json.dumps(messages.message(block)).encode())


def test_stream_of_an_incomplete_reply_has_all_required_fields() -> None:
    reply = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": []}
    assert messages.read(stream_body(json.dumps(reply).encode())).stop_reason == "end_turn"


@pytest.mark.parametrize("body", [b"[]", b"{}", b"x", b'{"type": "error"}', b'{"content": "x"}'])
def test_invalid_message_is_reported(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a reply of anthropic-messages|Expecting"):
        stream_body(body)


def test_a_reply_of_our_own() -> None:
    body = render_text_reply(API, API.request(json.dumps(messages.request()).encode()), "Stopped.", "ab" * 32, 5)
    assert messages.read(body) == messages.Read([messages.text("Stopped.")], "end_turn")
    kinds = [event.name for event in events(stream_body(body))]
    block = [f"content_block_{what}" for what in ("start", "delta", "stop")]
    assert kinds == ["message_start", *block, "message_delta", "message_stop"]
