"""Handwritten chat completions, and a parser as strict as the strictest clients.

This module does not use VTC, because the tests need an independent witness of the format of requests, replies and
calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MODEL = "lab-model"
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
DONE = b"data: [DONE]\n\n"

type Json = dict[str, Any]


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """Declare a tool; a property is the name of a type or a schema."""
    schemas = {key: {"type": entry} if isinstance(entry, str) else entry for key, entry in properties.items()}
    parameters = {"type": "object", "properties": schemas, "required": list(required or properties)}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


READ = tool("read", filePath="string")
LIST = tool("list_files", path="string")
WRITE = tool("write", filePath="string", content="string")
TOOLS = [READ, LIST, WRITE]


def request(content: Any = "hello", *, stream: bool = False, **fields: Any) -> Json:
    """Make a request with one user message and, by default, `TOOLS`; None removes a field."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": stream, "tools": TOOLS}
    return {key: value for key, value in {**body, **fields}.items() if value is not None}


def encode_json(value: Any) -> bytes:
    return json.dumps(value).encode()


# Calls in the models' formats, from a tool's name and string arguments.


def _hermes(name: str, arguments: Mapping[str, str]) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def _tools_tag(name: str, arguments: Mapping[str, str]) -> str:
    return f"<tools>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tools>"


def _bare_json(name: str, arguments: Mapping[str, str]) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def _qwen3_coder(name: str, arguments: Mapping[str, str]) -> str:
    params = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{params}</function>\n</tool_call>"


def _tag(name: str, arguments: Mapping[str, str]) -> str:
    return f"<{name}>\n" + "".join(f"<{key}>{value}</{key}>\n" for key, value in arguments.items()) + f"</{name}>"


def _invoke(name: str, arguments: Mapping[str, str]) -> str:
    params = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
    return f'<function_calls>\n<invoke name="{name}">\n{params}</invoke>\n</function_calls>'


DIALECTS: Mapping[str, Callable[[str, Mapping[str, str]], str]] = {
    "hermes": _hermes,
    "tools-tag": _tools_tag,
    "bare-json": _bare_json,
    "qwen3-coder": _qwen3_coder,
    "tag": _tag,
    "invoke": _invoke,
}


# Replies


def frame(value: Any) -> bytes:
    """Make a server-sent event with `value` as JSON."""
    return b"data: " + encode_json(value) + b"\n\n"


def chunk(delta: Json, finish_reason: str | None = None, *, index: int = 0, **fields: Any) -> bytes:
    """Make a chunk of one choice; `fields` are at the top of the chunk."""
    return frame({**HEAD, "choices": [{"index": index, "delta": delta, "finish_reason": finish_reason}], **fields})


def make_text_chunks(*pieces: str, index: int = 0) -> list[bytes]:
    """Make a chunk for each piece of text."""
    return [chunk({"content": piece}, index=index) for piece in pieces]


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, "stop")
USED = frame({**HEAD, "choices": [], "usage": USAGE})


def make_stream(*pieces: str, finish: str = "stop") -> list[bytes]:
    """Make a whole streamed reply in the usual form: role, text, finish reason, usage, [DONE]."""
    return [ROLE, *make_text_chunks(*pieces), chunk({}, finish), USED, DONE]


def completion(content: Any, finish_reason: str | None = "stop", *, message: Json | None = None, **fields: Any) -> Json:
    """Make a whole reply; `message` adds to the message, `fields` to the top."""
    entry = {"role": "assistant", "content": content, **(message or {})}
    choices = [{"index": 0, "message": entry, "finish_reason": finish_reason}]
    return {**HEAD, "object": "chat.completion", "choices": choices, "usage": USAGE, **fields}


def native(index: int, **function: str) -> Json:
    """Make one entry of `delta.tool_calls`; `id` belongs to the entry, the rest to its function."""
    id_ = function.pop("id", None)
    head = {"id": id_, "type": "function"} if id_ else {}
    return {"index": index, **head, "function": function}


# Reading


@dataclass(slots=True)
class Read:
    """A message as a client understands it; calls as name, decoded arguments and id."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list, compare=False)
    """Ids, which differ in each exchange."""
    finish_reason: str | None = None


def read(body: bytes, index: int = 0) -> Read:
    """Parse one choice of a reply, JSON or server-sent events, as the strictest clients do, and fail if they would."""
    if body.lstrip().startswith(b"{"):
        return _read_message(json.loads(body)["choices"][index])
    return _read_stream(events(body), index)


def events(body: bytes) -> list[Any]:
    """Return the data of every event: JSON, or "[DONE]"."""
    lines = body.replace(b"\r\n", b"\n").decode().split("\n")
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def deltas(body: bytes, index: int = 0) -> list[Json]:
    """Return the deltas of one choice."""
    chunks = [event for event in events(body) if event != "[DONE]"]
    return [choice["delta"] for one in chunks for choice in one["choices"] if choice["index"] == index]


def _read_message(choice: Json) -> Read:
    message = choice["message"]
    calls = message.get("tool_calls") or []
    assert message.get("tool_calls") != []
    assert all(set(call) == {"id", "type", "function"} and call["type"] == "function" for call in calls)
    found = Read(
        message["content"] or "",
        message.get("reasoning_content") or "",
        [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls],
        [call["id"] for call in calls],
        choice["finish_reason"],
    )
    return _check_ids(found)


def _read_stream(chunks: Iterable[Any], index: int) -> Read:
    found = Read()
    calls: list[list[str]] = []
    for one in chunks:
        choices = [] if one == "[DONE]" else one["choices"]
        for choice in choices:
            if choice["index"] != index:
                continue
            assert found.finish_reason is None, f"something comes behind the finish reason: {choice}"
            delta = choice["delta"]
            found.content += delta.get("content") or ""
            found.reasoning += delta.get("reasoning_content") or ""
            found.finish_reason = choice.get("finish_reason")
            for call in delta.get("tool_calls") or ():
                function = call["function"]
                if call["index"] == len(calls):
                    assert call["type"] == "function"
                    assert isinstance(function["name"], str)
                    calls.append([function["name"], ""])
                    found.ids.append(call["id"])
                else:
                    assert call["index"] == len(calls) - 1, f"a call is not whole before the next begins: {choice}"
                    assert not function.get("name"), "the name comes whole and once"
                calls[-1][1] += function.get("arguments") or ""
    found.calls = [(name, json.loads(arguments)) for name, arguments in calls]
    return _check_ids(found)


def _check_ids(found: Read) -> Read:
    assert all(isinstance(id_, str) and id_ for id_ in found.ids)
    assert len(set(found.ids)) == len(found.ids)
    if found.finish_reason is not None:
        assert found.finish_reason != "tool_calls" or found.calls, "tool_calls is the reason, and there are none"
        assert found.finish_reason != "stop" or not found.calls, "calls were made, and stop is the reason"
    return found
