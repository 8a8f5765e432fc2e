"""Handwritten requests and replies of Gemini's API, and a parser as strict as the strictest clients.

This module does not use VTC, because the tests need an independent witness of the format of requests, replies and
calls. The parser fails if Google's SDK or Gemini CLI would fail or lose something.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat
from tests.apis.named_events import Json, StreamError, is_integer

MODEL = chat.MODEL
PATH = f"/v1beta/models/{MODEL}:generateContent"
STREAMED = f"/v1beta/models/{MODEL}:streamGenerateContent"
HEAD = {"modelVersion": MODEL, "responseId": "r1"}
USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8}
REASONS = ("STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "MALFORMED_FUNCTION_CALL")


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """Make a declaration; a property is the name of a type or a schema."""
    function = chat.tool(name, required, **properties)["function"]
    return {"name": name, "description": function["description"], "parametersJsonSchema": function["parameters"]}


TOOLS = [
    {
        "functionDeclarations": [
            tool("read", filePath="string"),
            tool("list_files", path="string"),
            tool("write", filePath="string", content="string"),
        ]
    }
]


def text(content: str) -> Json:
    return {"text": content}


def make_thought(content: str) -> Json:
    return {"text": content, "thought": True}


def call(name: str, id: str | None = None, **arguments: Any) -> Json:
    """Make a call, without an id, as Google's servers send it."""
    function = {"name": name, "args": arguments}
    return {"functionCall": {"id": id, **function} if id else function}


def result(content: str, name: str = "read", id: str | None = None) -> Json:
    response = {"name": name, "response": {"output": content}}
    return {"functionResponse": {"id": id, **response} if id else response}


def user(*parts: Json | str) -> Json:
    return {"role": "user", "parts": [text(one) if isinstance(one, str) else one for one in parts]}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": list(parts)}


def request(content: str = "hello", *, stream: bool = False, **fields: Any) -> Json:
    """Make a request with one user entry and, by default, `TOOLS`; None removes a field.

    The path contains the model, and whether the reply is streamed.
    """
    body = {"contents": [user(content)], "tools": TOOLS}
    return {key: value for key, value in {**body, **fields}.items() if value is not None and key != "model"}


def check_request(body: Json) -> None:
    """Fail on a conversation that Google's servers reject with status 400.

    Each entry of calls is followed by one with as many results, and of the same tools; no entry is empty.
    """
    waiting: list[str] = []
    for entry in body["contents"]:
        assert entry["role"] in ("user", "model"), f"no such role: {entry}"
        assert entry["parts"], f"an empty entry: {entry}"
        results = [one["functionResponse"]["name"] for one in entry["parts"] if "functionResponse" in one]
        assert results == waiting, f"calls {waiting} are answered by {results}"
        waiting = [one["functionCall"]["name"] for one in entry["parts"] if "functionCall" in one]
        assert entry["role"] == "model" or not waiting, f"the user calls: {entry}"
        for one in entry["parts"]:
            assert len(one.keys() & {"text", "functionCall", "functionResponse", "inlineData", "fileData"}) == 1, one
    assert not waiting, f"no result for {waiting}"


def event(*parts: Json, reason: str | None = None, **fields: Any) -> Json:
    """Make a reply, or an event of a stream."""
    candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    return {"candidates": [{**candidate, **({"finishReason": reason} if reason else {})}], **fields, **HEAD}


def frame(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def make_text_events(*pieces: str) -> list[bytes]:
    """Make an event for each piece of text."""
    return [frame(event(text(piece))) for piece in pieces]


def make_stream(*frames: bytes, reason: str = "STOP") -> list[bytes]:
    """Make a whole streamed reply."""
    return [*frames, frame(event(text(""), reason=reason, usageMetadata=USAGE))]


def make_text_stream(*pieces: str, reason: str = "STOP") -> list[bytes]:
    """Make a streamed reply of text."""
    return make_stream(*make_text_events(*pieces), reason=reason)


def reply(*parts: Json, reason: str = "STOP") -> Json:
    """Make a whole reply."""
    return event(*parts, reason=reason, usageMetadata=USAGE)


@dataclass(slots=True)
class Read:
    """A reply as a client understands it; calls as name and arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list, compare=False)
    """Ids, which differ in each exchange."""
    reason: str | None = None


def read(body: bytes) -> Read:
    """Parse a streamed or whole reply as the strictest clients do, and fail if they would.

    Raises `StreamError` if the server reports an error.
    """
    whole = body.startswith(b"{")
    frames = [body] if whole else [one for one in body.replace(b"\r\n", b"\n").split(b"\n\n") if one.strip()]
    # google-genai parses everything after the last event as JSON, so a comment is an error.
    data = [one if whole else one.removeprefix(b"data: ") for one in frames]
    found = Read()
    for one in map(json.loads, data):
        if "error" in one:
            assert isinstance(one["error"]["code"], int)
            raise StreamError(one["error"]["message"])
        for candidate in one.get("candidates") or ():
            assert found.reason is None, f"something comes behind the end: {one}"
            _part(found, candidate)
        assert all(
            is_integer(count) for count in (one.get("usageMetadata") or {}).values() if not isinstance(count, list)
        )
    assert found.reason in REASONS, f"it does not end: {found}"
    given = [id_ for id_ in found.ids if id_ is not None]
    assert len(set(given)) == len(given), f"two calls of one id: {given}"
    return found


def _part(found: Read, candidate: Json) -> None:
    for part in candidate.get("content", {}).get("parts") or ():
        if call := part.get("functionCall"):
            assert call["name"]
            assert isinstance(call["args"], dict), f"arguments are no object: {part}"
            found.calls.append((call["name"], call["args"]))
            found.ids.append(call.get("id"))
        elif part.get("thought"):
            found.reasoning += part["text"]
        else:
            found.content += part.get("text", "")
    found.reason = candidate.get("finishReason")
