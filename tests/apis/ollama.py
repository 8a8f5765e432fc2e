"""Handwritten requests and replies of Ollama's chat API, and a parser as strict as the strictest clients.

This module does not use VTC, because the tests need an independent witness of the format of requests, replies and
calls. The parser fails if ollama-python, ollama-js, Zed or the AI SDK's provider would fail or lose something; a
comment at each check names the client.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat
from tests.apis.named_events import Json, StreamError, is_integer

MODEL = chat.MODEL
PATH = "/api/chat"
NDJSON = {"content-type": "application/x-ndjson"}
HEAD = {"model": MODEL, "created_at": "2026-01-02T03:04:05.678901Z"}
COUNTS = {
    "total_duration": 900,
    "load_duration": 100,
    "prompt_eval_count": 3,
    "prompt_eval_duration": 200,
    "eval_count": 5,
    "eval_duration": 600,
}

# Requests


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """Declare a tool in the form of chat completions; a property is the name of a type or a schema."""
    return chat.tool(name, required, **properties)


READ, LIST, WRITE = chat.TOOLS
TOOLS = chat.TOOLS


def user(content: str) -> Json:
    return {"role": "user", "content": content}


def call(name: str, id: str | None = None, **arguments: Any) -> Json:
    """Make a call of a message; most servers send it without an id."""
    function = {"name": name, "arguments": arguments}
    return {"id": id, "function": function} if id else {"function": function}


def assistant(content: str = "", *calls: Json, thinking: str | None = None) -> Json:
    """Make a message of the model, in a reply or a history."""
    fields = {"thinking": thinking, "tool_calls": list(calls) or None}
    return {"role": "assistant", "content": content, **{key: value for key, value in fields.items() if value}}


def result(content: str, name: str | None = "read", id: str | None = None) -> Json:
    """Make the result of a call; it names the tool, and often has no id."""
    names = {"tool_name": name, "tool_call_id": id}
    return {"role": "tool", "content": content, **{key: value for key, value in names.items() if value}}


def request(content: str = "hello", *, stream: bool | None = None, **fields: Any) -> Json:
    """Make a request with one user message and, by default, `TOOLS`; None removes a field.

    Without `stream` the reply is streamed, which is the default only in this API.
    """
    body = {"model": MODEL, "messages": [user(content)], "stream": stream, "tools": TOOLS}
    return {key: value for key, value in {**body, **fields}.items() if value is not None}


def check_request(body: Json) -> None:
    """Fail on a history that Ollama cannot parse, or whose results answer no call."""
    waiting: list[Json] = []
    for message in body["messages"]:
        assert message["role"] in ("system", "user", "assistant", "tool"), f"no such role: {message}"
        assert isinstance(message["content"], str), f"content must be text: {message}"
        if message["role"] == "tool":
            names = [one["function"]["name"] for one in waiting]
            assert waiting, f"the result of no call: {message}"
            assert message.get("tool_name", names[0]) in names, f"the result of another tool than {names}: {message}"
            waiting.pop(names.index(message.get("tool_name", names[0])))
        else:
            assert not waiting, f"no result for {waiting}"
            for one in message.get("tool_calls") or ():
                assert isinstance(one["function"]["arguments"], dict), f"arguments must be an object: {one}"
                waiting.append(one)
    assert not waiting, f"no result for {waiting}"


# Replies


def line(**fields: Any) -> bytes:
    """Make one line of a stream, with the model and the time."""
    return json.dumps({**HEAD, **fields}).encode() + b"\n"


def piece(content: str = "", *calls: Json, thinking: str | None = None) -> bytes:
    """Make a line with a piece of text or reasoning, or with whole calls."""
    return line(message=assistant(content, *calls, thinking=thinking), done=False)


def make_text_lines(*pieces: str) -> list[bytes]:
    """Make a line for each piece of text."""
    return [piece(content) for content in pieces]


def make_thinking_lines(*pieces: str) -> list[bytes]:
    """Make a line for each piece of reasoning."""
    return [piece(thinking=one) for one in pieces]


def end(done_reason: str = "stop", content: str = "") -> bytes:
    """Make the last line."""
    return line(message=assistant(content), done=True, done_reason=done_reason, **COUNTS)


def make_stream(*lines: bytes, done_reason: str = "stop") -> list[bytes]:
    """Make a whole streamed reply."""
    return [*lines, end(done_reason)]


def make_text_stream(*pieces: str, done_reason: str = "stop") -> list[bytes]:
    """Make a streamed reply of text."""
    return make_stream(*make_text_lines(*pieces), done_reason=done_reason)


def message(
    content: str = "", *calls: Json, thinking: str | None = None, done_reason: str = "stop", **fields: Any
) -> Json:
    """Make a whole reply."""
    entry = assistant(content, *calls, thinking=thinking)
    return {**HEAD, "message": entry, "done": True, "done_reason": done_reason, **COUNTS, **fields}


def error(message: str = "model requires more system memory") -> bytes:
    """Make a line with an error under status 200, or the body of an error."""
    return json.dumps({"error": message}).encode() + b"\n"


# Reading


@dataclass(slots=True)
class Read:
    """A reply as a client understands it; calls as name and arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list, compare=False)
    """Ids, which differ in each exchange."""
    done_reason: str | None = None


def read(body: bytes, *, stream: bool = True, ids: bool = False) -> Read:
    """Parse a reply, a stream unless `stream` is False, as the strictest clients do, and fail if they would.

    `ids` permits calls with an id. Raises `StreamError` if the server reports an error.
    """
    if not stream:
        return _read_lines([json.loads(body)], whole=True, ids=ids)
    *lines, rest = body.replace(b"\r\n", b"\n").split(b"\n")
    if rest:
        lines.append(rest)
    # ollama-python fails at a blank line, at blanks around a line, and at a comment; JSON alone permits blanks.
    assert all(one == one.strip() and one.startswith(b"{") for one in lines), f"more than JSON in the lines: {lines}"
    return _read_lines([json.loads(one) for one in lines], whole=False, ids=ids)


def _read_lines(lines: list[Json], *, whole: bool, ids: bool) -> Read:
    found = Read()
    for one in lines:
        if "error" in one:
            raise StreamError(one["error"])
        assert found.done_reason is None, f"something comes behind the last line: {one}"
        # The AI SDK's provider drops a line without one of these, ollama-python fails without a message.
        assert isinstance(one["model"], str)
        assert isinstance(one["created_at"], str)
        message = one["message"]
        assert message["role"] == "assistant"
        assert isinstance(message["content"], str), f"Zed and the AI SDK need content: {one}"
        assert isinstance(one["done"], bool)
        found.content += message["content"]
        found.reasoning += message.get("thinking") or ""
        calls = message.get("tool_calls") or []
        # Some clients stop reading at the last line: llama-swappo #13, ai-sdk-ollama #391.
        assert whole or not (one["done"] and calls), f"calls in the last line: {one}"
        for made in calls:
            function = made["function"]
            assert isinstance(function["name"], str)
            assert function["name"]
            # ollama-python, Zed and the AI SDK fail at a string.
            assert isinstance(function["arguments"], dict), f"arguments are no object: {made}"
            # An older Zed fails at an id.
            assert ids or "id" not in made, f"an id that no one asked for: {made}"
            found.calls.append((function["name"], function["arguments"]))
            found.ids.append(made.get("id"))
        if one["done"]:
            assert isinstance(one["done_reason"], str)
            assert one["done_reason"]
            assert all(is_integer(one[count]) for count in COUNTS if count in one)
            found.done_reason = one["done_reason"]
    # ollama-js throws.
    assert found.done_reason is not None, "no line says that it is done"
    given = [id_ for id_ in found.ids if id_ is not None]
    assert len(set(given)) == len(given), f"two calls of one id: {given}"
    return found
