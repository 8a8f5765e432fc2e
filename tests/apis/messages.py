"""Handwritten requests and replies of Anthropic Messages, and a parser as strict as the strictest clients.

This module does not use VTC, because the tests need an independent witness of the format of requests, replies and
calls. The parser fails if anthropic-python, the AI SDK or Claude Code would fail or lose something; a
comment at each check names the client.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat
from tests.apis.named_events import DONE, Json, StreamError, events, frame, frames, is_integer

MODEL = chat.MODEL
PATH = "/v1/messages"
USAGE = {"input_tokens": 3, "output_tokens": 5}
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "sk-none"}


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """Make a tool; a property is the name of a type or a schema."""
    function = chat.tool(name, required, **properties)["function"]
    return {"name": name, "description": function["description"], "input_schema": function["parameters"]}


READ = tool("read", filePath="string")
LIST = tool("list_files", path="string")
WRITE = tool("write", filePath="string", content="string")
TOOLS = [READ, LIST, WRITE]


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def assistant(*content: Json) -> Json:
    return {"role": "assistant", "content": list(content)}


def text(text: str) -> Json:
    return {"type": "text", "text": text}


def thinking(thinking: str, signature: str = "") -> Json:
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def call(name: str, id: str = "toolu_1", **arguments: Any) -> Json:
    """Make a call, as in an assistant message or a whole reply."""
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def result(content: Any, id: str = "toolu_1", **fields: Any) -> Json:
    """Make a tool result, which belongs into a user message, before its text."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


def request(content: Any = "hello", *, stream: bool = False, **fields: Any) -> Json:
    """Make a request with one user message and, by default, `TOOLS`; None removes a field."""
    body = {"model": MODEL, "max_tokens": 1024, "messages": [user(content)], "stream": stream, "tools": TOOLS}
    return {key: value for key, value in {**body, **fields}.items() if value is not None}


def check_request(body: Json) -> None:
    """Fail on a history that Anthropic's server rejects with status 400.

    Every call needs its result in the next message, results precede any text there, and no text block is empty or
    blank. Clients send replies back, so a bad reply breaks the next request.
    """
    waiting: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [text(content)] if isinstance(content, str) else content
        assert content, f"an empty message: {message}"
        if message["role"] == "system":  # Claude Code puts one behind the first user message
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting), f"calls {waiting} are answered by {results}"
        kinds = [block["type"] == "tool_result" for block in blocks]
        assert kinds == sorted(kinds, reverse=True), f"something stands ahead of a result: {message}"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text"), f"blank text: {message}"
        assert message["role"] == "assistant" or not any(block["type"] == "tool_use" for block in blocks)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting), f"two calls of one id: {message}"
    assert not waiting, f"no result for {waiting}"


def message(*content: Json, stop_reason: str | None = "end_turn", **fields: Any) -> Json:
    """Make a whole reply."""
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL}
    return {
        **head,
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }


def error(message: str = "Overloaded", type: str = "overloaded_error") -> Json:
    """Make the body of an error, for an HTTP status or as an event inside a stream."""
    return {"type": "error", "error": {"type": type, "message": message}}


def make_block_start(index: int, block: Json) -> bytes:
    return frame({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, type: str, **fields: Any) -> bytes:
    return frame({"type": "content_block_delta", "index": index, "delta": {"type": type, **fields}})


def make_block_stop(index: int) -> bytes:
    return frame({"type": "content_block_stop", "index": index})


def make_text_deltas(index: int, *pieces: str) -> list[bytes]:
    """Make a delta for each piece of text."""
    return [delta(index, "text_delta", text=piece) for piece in pieces]


def text_block(index: int, *pieces: str) -> list[bytes]:
    return [make_block_start(index, text("")), *make_text_deltas(index, *pieces), make_block_stop(index)]


def thinking_block(index: int, *pieces: str, signature: str = "sig") -> list[bytes]:
    deltas = [delta(index, "thinking_delta", thinking=piece) for piece in pieces]
    if signature:
        deltas.append(delta(index, "signature_delta", signature=signature))
    return [make_block_start(index, thinking("")), *deltas, make_block_stop(index)]


def call_block(index: int, name: str, *pieces: str, id: str = "toolu_1") -> list[bytes]:
    """Make the events of a call; `pieces` are its arguments as JSON, cut anywhere."""
    deltas = [delta(index, "input_json_delta", partial_json=piece) for piece in ("", *pieces)]
    return [make_block_start(index, call(name, id)), *deltas, make_block_stop(index)]


PING = frame({"type": "ping"})
START = frame({"type": "message_start", "message": message(stop_reason=None, usage={**USAGE, "output_tokens": 1})})


def end(stop_reason: str = "end_turn", stop_sequence: str | None = None) -> list[bytes]:
    how = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
    usage = {"output_tokens": USAGE["output_tokens"]}
    return frames({"type": "message_delta", "delta": how, "usage": usage}, {"type": "message_stop"})


def make_stream(*blocks: Iterable[bytes], stop_reason: str = "end_turn") -> list[bytes]:
    """Make a whole streamed reply as Anthropic sends it: start, ping, blocks, reason, stop."""
    return [START, PING, *(frame for block in blocks for frame in block), *end(stop_reason)]


def make_text_stream(*pieces: str, stop_reason: str = "end_turn") -> list[bytes]:
    """Make a streamed reply of one text block."""
    return make_stream(text_block(0, *pieces), stop_reason=stop_reason)


STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    "compaction",
}
DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
    "compaction": {"compaction_delta"},
}
"""The deltas of each type of block; a block of any other type is complete in its start."""
WHOLE = {"redacted_thinking", "container_upload", "mcp_tool_result", "fallback", "advisor_tool_result"}
"""Blocks without deltas whose name does not end in `_tool_result`."""


@dataclass(slots=True)
class Read:
    """A reply as a client understands it: its blocks in order, with their deltas added."""

    blocks: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Json = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        """Compare without usage, and without ids and signatures, which differ in each exchange."""
        return isinstance(other, Read) and self._said == other._said

    @property
    def content(self) -> str:
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    @property
    def reasoning(self) -> str:
        return "".join(block["thinking"] for block in self.blocks if block["type"] == "thinking")

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(block["name"], block["input"]) for block in self.blocks if block["type"] == "tool_use"]

    @property
    def ids(self) -> list[str]:
        return [block["id"] for block in self.blocks if block["type"] == "tool_use"]

    @property
    def kinds(self) -> list[str]:
        return [block["type"] for block in self.blocks]

    @property
    def _said(self) -> tuple[Any, ...]:
        own = ("id", "signature", "tool_use_id")
        blocks = [{key: value for key, value in block.items() if key not in own} for block in self.blocks]
        return blocks, self.stop_reason, self.stop_sequence


def read(body: bytes, *, overlapping: bool = False) -> Read:
    """Parse a reply, JSON or server-sent events, as the strictest clients do, and fail if they would.

    `overlapping` allows blocks to stay open while others start, as in llama.cpp. Raises `StreamError` if the server
    reports an error.
    """
    if body.lstrip().startswith(b"{"):
        return _read_message(json.loads(body))
    return _StreamReader(overlapping).read(body)


def _read_message(body: Json) -> Read:
    if body["type"] == "error":
        raise StreamError(body["error"])
    assert (body["type"], body["role"]) == ("message", "assistant")
    assert isinstance(body["id"], str)
    assert isinstance(body["model"], str)
    assert all(is_integer(body["usage"][count]) for count in ("input_tokens", "output_tokens"))
    return _check_reply(Read(body["content"], body["stop_reason"], body.get("stop_sequence"), body["usage"]))


@dataclass(slots=True)
class _StreamReader:
    overlapping: bool
    found: Read = field(default_factory=Read)
    open: list[int] = field(default_factory=list)
    json: dict[int, str] = field(default_factory=dict)
    started: bool = False
    ended: bool = False

    def read(self, body: bytes) -> Read:
        for event in events(body):
            # Both of Anthropic's SDKs ignore an event without a name, so "[DONE]" must not appear.
            assert event.data != DONE, "[DONE] is not of this API"
            assert event.name == event.data["type"], f"event: {event.name} with {event.data}"
            assert not self.ended, f"something comes behind message_stop: {event.data}"
            self._take(event.data)
        assert self.ended, "the stream ends without message_stop"
        return _check_reply(self.found)

    def _take(self, event: Json) -> None:
        match event["type"]:
            case "error":
                raise StreamError(event["error"])
            case "ping":
                return
            case "message_start":
                self._start(event["message"])
                return
        assert self.started, f"comes ahead of message_start: {event}"
        match event["type"]:
            case "content_block_start":
                self._block(event["index"], event["content_block"])
            case "content_block_delta":
                self._delta(event["index"], event["delta"])
            case "content_block_stop":
                self._stop(event["index"])
            case "message_delta":
                self._reason(event)
            case "message_stop":
                assert self.found.stop_reason is not None, "no message_delta said why the message ended"
                self.ended = True
            case other:
                raise AssertionError(f"the AI SDK takes no event of type {other}")

    def _start(self, message: Json) -> None:
        assert not self.started, "a second message_start: anthropic-python ignores it, the TypeScript SDK fails"
        self.started = True
        assert (message["type"], message["role"], message["content"]) == ("message", "assistant", [])
        assert isinstance(message["id"], str)
        assert isinstance(message["model"], str)
        assert message.get("stop_reason") is None
        # anthropic-python needs the usage, the AI SDK its input_tokens.
        assert is_integer(message["usage"]["input_tokens"])
        self.found.usage = dict(message["usage"])

    def _block(self, index: int, block: Json) -> None:
        assert self.found.stop_reason is None, f"a block begins behind message_delta: {block}"
        # anthropic-python: IndexError; an older Claude Code: "Content block not found".
        assert index == len(self.found.blocks), f"block {index} follows {len(self.found.blocks)} blocks"
        # The TypeScript SDK reports the last block only, and the AI SDK drops a late signature.
        assert self.overlapping or not self.open, f"block {index} begins while {self.open} is open"
        kind = block["type"]
        assert kind in DELTAS or kind in WHOLE or kind.endswith("_tool_result"), f"the AI SDK takes no block {kind}"
        if kind == "text":
            assert isinstance(block["text"], str)
        elif kind == "thinking":
            assert isinstance(block["thinking"], str)
        elif kind.endswith("tool_use"):
            assert isinstance(block["id"], str)
            assert block["id"]
            assert isinstance(block["name"], str)
            assert block["name"]
            # Claude Code ignores arguments in the start, the AI SDK joins them with those of deltas.
            assert kind != "tool_use" or block.get("input", {}) == {}, f"arguments in the start of block {index}"
        self.found.blocks.append(dict(block))
        self.open.append(index)

    def _delta(self, index: int, delta: Json) -> None:
        assert index in self.open, f"a delta for block {index}; open are {self.open}"
        block, kind = self.found.blocks[index], delta["type"]
        # anthropic-python drops it; Claude Code abandons the stream and retries without `stream`.
        assert kind in DELTAS.get(block["type"], ()), f"{kind} for a block {block['type']}"
        match kind:
            case "text_delta":
                block["text"] += delta["text"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "input_json_delta":
                self.json[index] = self.json.get(index, "") + delta["partial_json"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "compaction_delta":
                block["content"] = (block.get("content") or "") + (delta["content"] or "")

    def _stop(self, index: int) -> None:
        assert index in self.open, f"block {index} stops; open are {self.open}"
        self.open.remove(index)
        block = self.found.blocks[index]
        if json_text := self.json.get(index):
            block["input"] = json.loads(json_text)
        elif block["type"].endswith("tool_use"):
            assert "input" in block, f"a call without arguments: {block}"

    def _reason(self, event: Json) -> None:
        assert not self.open, f"message_delta comes while {self.open} is open"
        assert self.found.stop_reason is None, "a second message_delta"
        assert isinstance(event["delta"]["stop_reason"], str)
        self.found.stop_reason = event["delta"]["stop_reason"]
        self.found.stop_sequence = event["delta"].get("stop_sequence")
        # anthropic-python needs the usage, the AI SDK its output_tokens.
        assert is_integer(event["usage"]["output_tokens"])
        self.found.usage |= event["usage"]


def _check_reply(found: Read) -> Read:
    assert found.stop_reason in STOP_REASONS, f"the AI SDK takes no stop_reason {found.stop_reason}"
    for block in found.blocks:
        if block["type"] == "tool_use":
            assert isinstance(block["id"], str)
            assert block["id"]
            assert isinstance(block["input"], dict), f"arguments are no object: {block}"
        elif block["type"] == "text" and not block.get("citations"):
            # The client sends it back as history, which Anthropic's server rejects.
            assert block["text"].strip(), "a text block that is empty or blank"
    assert len(set(found.ids)) == len(found.ids), f"two calls of one id: {found.ids}"
    assert found.stop_reason != "tool_use" or found.calls, "tool_use is the reason, and there are no calls"
    assert found.stop_reason not in ("end_turn", "stop_sequence") or not found.calls, (
        f"calls were made, and {found.stop_reason} is the reason"
    )
    return found
