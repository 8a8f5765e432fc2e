"""Gemini's generateContent written by hand, and read as the strictest clients read it.

Nothing here uses VTC: the tests need a witness of their own for what a request, a reply and a call look like.
What the reader demands is what google-genai (the SDK of Google) or gemini-cli fail at, or lose something at; a comment
beside each check names who.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat
from tests.apis.named_events import Json, StreamError, number

MODEL = chat.MODEL
PATH = f"/v1beta/models/{MODEL}:generateContent"
STREAMED = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
HEAD = {"modelVersion": MODEL, "responseId": "r1"}
COUNTS = {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8}

# Requests


def _declaration(tool: Json) -> Json:
    function = tool["function"]
    rest = {key: value for key, value in function.items() if key != "parameters"}
    return {**rest, "parametersJsonSchema": function["parameters"]}


TOOLS = [{"functionDeclarations": [_declaration(one) for one in chat.TOOLS]}]


def tool(name: str, required: Sequence[str] = (), **properties: str | Json) -> Json:
    """An entry of `tools` that declares one function."""
    return {"functionDeclarations": [_declaration(chat.tool(name, required, **properties))]}


def call(name: str, id: str | None = None, **arguments: Any) -> Json:
    """A part that is a call; without an id, as most servers write it."""
    return {"functionCall": {**({"id": id} if id else {}), "name": name, "args": arguments}}


def result(content: str, name: str = "read", id: str | None = None) -> Json:
    """A part that is the result of a call."""
    return {"functionResponse": {**({"id": id} if id else {}), "name": name, "response": {"output": content}}}


def user(*parts: str | Json) -> Json:
    return {"role": "user", "parts": [_part(one) for one in parts]}


def model(*parts: str | Json) -> Json:
    return {"role": "model", "parts": [_part(one) for one in parts]}


def _part(one: str | Json) -> Json:
    return {"text": one} if isinstance(one, str) else one


def request(content: str = "hello", *, stream: bool | None = None, **fields: Any) -> Json:
    """A request with one content of the user and, unless `tools` says otherwise, `TOOLS`; None leaves a field out.

    Which model is asked, and whether for a stream, stands in the path.
    """
    body = {"contents": [user(content)], "tools": TOOLS, **fields}
    return {key: value for key, value in body.items() if value is not None and key != "model"}


def check_request(body: Json) -> None:
    """Fail on a conversation that Google's servers refuse: results right after their calls, one for each."""
    assert not {"model", "stream", "messages"} & body.keys(), f"unknown fields: {body.keys()}"
    waiting: list[str] = []
    last = ""
    for entry in body["contents"]:
        role, parts = entry["role"], entry["parts"]
        assert role in ("user", "model"), f"no such role: {entry}"
        assert parts, f"no parts: {entry}"
        assert role != last, f"two contents of one role: {entry}"
        last = role
        for part in parts:
            kinds = part.keys() & {"text", "functionCall", "functionResponse", "inlineData", "fileData"}
            assert len(kinds) == 1, f"a part has one kind: {part}"
            assert part.get("text") != "", "a text is empty"
        results = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        # "Please ensure that the number of function response parts is equal to the number of function call parts".
        assert sorted(results) == sorted(waiting), f"{results} answer {waiting}"
        assert all(
            isinstance(part["functionResponse"]["response"], dict) for part in parts if "functionResponse" in part
        )
        made = [part["functionCall"] for part in parts if "functionCall" in part]
        assert not made or role == "model"
        assert all(isinstance(one["args"], dict) for one in made)
        waiting = [one["name"] for one in made]
    assert not waiting, f"no result for {waiting}"


# Replies


def chunk(*parts: str | Json, reason: str | None = None, **fields: Any) -> Json:
    """The data of a chunk, or a whole reply."""
    content = {"content": model(*parts)} if parts else {}
    end = {"finishReason": reason} if reason else {}
    return {"candidates": [{**content, **end, "index": 0}], **HEAD, **fields}


def thought(text: str) -> Json:
    return {"text": text, "thought": True}


def said(*pieces: str) -> list[bytes]:
    """A chunk for each piece of text; each counts the tokens so far."""
    counts = [{**COUNTS, "candidatesTokenCount": at, "totalTokenCount": 3 + at} for at, _ in enumerate(pieces)]
    return [chat.frame(chunk(one, usageMetadata=count)) for one, count in zip(pieces, counts, strict=True)]


def end(reason: str = "STOP", *parts: str | Json) -> bytes:
    """The last chunk."""
    return chat.frame(chunk(*parts, reason=reason, usageMetadata=COUNTS))


def streamed(*chunks: bytes, reason: str = "STOP") -> list[bytes]:
    """A whole streamed reply."""
    return [*chunks, end(reason)]


def streamed_text(*pieces: str, reason: str = "STOP") -> list[bytes]:
    """A streamed reply of text."""
    return streamed(*said(*pieces), reason=reason)


def reply(*parts: str | Json, reason: str = "STOP", **fields: Any) -> Json:
    """A whole reply."""
    return chunk(*parts, reason=reason, usageMetadata=COUNTS, **fields)


def error(message: str = "The model is overloaded.", status: str = "UNAVAILABLE", code: int = 503) -> Json:
    return {"error": {"code": code, "message": message, "status": status}}


# Reading


@dataclass(slots=True)
class Read:
    """One reply as a client understood it; calls as name and arguments."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list, compare=False)
    """They differ from exchange to exchange."""
    finish_reason: str | None = None
    usage: Json | None = field(default=None, compare=False)


def read(body: bytes, *, stream: bool | None = None) -> Read:
    """A reply, streamed or whole, as the strictest clients take it; fails if they would.

    `stream` says which it must be. Raises `StreamError` where the server says that it failed.
    """
    assert stream in (None, not body.startswith(b"{"))
    if body.startswith(b"{"):
        return _read([json.loads(body)])
    lines = [one for one in body.decode().splitlines() if one]
    # google-genai takes every other line for JSON, a comment too.
    assert all(one.startswith("data: ") for one in lines), f"more than data in the stream: {lines}"
    return _read([json.loads(one[6:]) for one in lines])


def _read(chunks: list[Json]) -> Read:
    found = Read()
    for one in chunks:
        if "error" in one:
            assert next(iter(one)) == "error", "google-genai knows an error by its first key"
            assert isinstance(one["error"]["code"], int)
            assert one["error"]["status"].isupper()
            raise StreamError(one["error"]["message"])
        for candidate in one.get("candidates") or ():
            assert candidate.get("index", 0) == 0
            assert found.finish_reason is None or not candidate.get("content"), f"something comes after the end: {one}"
            for part in candidate.get("content", {"parts": []})["parts"]:
                _read_part(found, part)
            found.finish_reason = candidate.get("finishReason") or found.finish_reason
        found.usage = one.get("usageMetadata") or found.usage
    # gemini-cli throws.
    assert found.finish_reason is not None, "no chunk says why it ended"
    assert found.usage is None or all(map(number, found.usage.values()))
    given = [id_ for id_ in found.ids if id_ is not None]
    assert len(set(given)) == len(given), f"two calls of one id: {given}"
    return found


def _read_part(found: Read, part: Json) -> None:
    # The fields of a part exclude each other.
    assert len(part.keys() & {"text", "functionCall", "inlineData"}) == 1, f"a part has one kind: {part}"
    if "functionCall" in part:
        made = part["functionCall"]
        assert isinstance(made["name"], str)
        assert made["name"]
        # google-genai fails at a string.
        assert isinstance(made["args"], dict), f"arguments are no object: {made}"
        found.calls.append((made["name"], made["args"]))
        found.ids.append(made.get("id"))
    elif part.get("thought"):
        found.reasoning += part["text"]
    else:
        found.content += part.get("text", "")
