"""What clients ask besides replies, in the form of their API, where the server speaks another one.

HEAD /                                a sign of life
GET /v1/models, GET /api/tags         the models that the server has (Codex says its version)
POST /v1/messages/count_tokens        how long a conversation is, before it is sent
GET /api/version, POST /api/show      what Ollama's clients look at first
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from vtc.apis import anthropic_messages, crossing, ollama_chat, openai_chat, openai_responses, plain_path
from vtc.apis.crossing import Names
from vtc.events import Asked, Opaque
from vtc.json_text import decode, encode

PER_TOKEN = 3.5
"""Bytes of text a token, about: less for code, more for prose."""
PER_IMAGE = 1500
"""Tokens of an image, about."""
COUNT = "/v1/messages/count_tokens"
TOKENIZE = "/tokenize"
"""Where vLLM and llama.cpp count tokens."""
MODELS = "/v1/models"
"""Where servers list their models, whichever API they speak."""


class Aside(NamedTuple):
    """A question besides replies, and the API of the client that asks it."""

    kind: Literal["alive", "models", "count", "version", "show"]
    client: str


def asked(method: str, path: str, headers: Mapping[str, str]) -> Aside | None:
    """Find what a request asks; None for any other. `headers` have names in lower case."""
    plain = f"/{plain_path(path)}"
    messages, ollama = anthropic_messages.API.name, ollama_chat.API.name
    if method == "HEAD" and plain == "/":
        return Aside("alive", messages if "claude" in headers.get("user-agent", "").casefold() else ollama)
    if method == "GET" and plain.endswith(MODELS):
        others = openai_responses if "client_version=" in path.partition("?")[2] else openai_chat
        return Aside("models", messages if "anthropic-version" in headers else others.API.name)
    if method == "POST" and plain.endswith(COUNT):
        return Aside("count", messages)
    ollamas: dict[tuple[str, str], Literal["models", "version", "show"]] = {
        ("GET", "/api/tags"): "models",
        ("GET", "/api/version"): "version",
        ("POST", "/api/show"): "show",
    }
    found = next((kind for (verb, end), kind in ollamas.items() if method == verb and plain.endswith(end)), None)
    return Aside(found, ollama) if found else None


def answer(aside: Aside, body: bytes) -> bytes | None:
    """Answer what no server need be asked for; None if it must be. Raises `BadRequest`."""
    match aside.kind:
        case "alive":
            return b""
        case "count":
            return encode({"input_tokens": _count(body)})
        case "version":
            return encode({"version": "0.0.0"})
        case "show":
            return encode({"details": {}, "model_info": {}, "capabilities": ["completion", "tools"]})
    return None


def question(body: bytes, model: Callable[[str], str]) -> bytes:
    """Ask a server how long a conversation is, by `TOKENIZE`. Raises `BadRequest`.

    vLLM takes messages and tools, llama.cpp the text. `model` tells by which name the server knows one.
    """
    found = _read(body)
    fields = openai_chat.API.ask(replace(found, model=model(found.model) or found.model))
    kept = {key: fields[key] for key in ("model", "messages", "tools") if key in fields}
    return encode({**kept, "content": _text(found), "add_special": True})


def counted(body: bytes) -> bytes | None:
    """Read the server's answer to that, and write it for the client; None if it is none."""
    try:
        found = decode(body)
    except ValueError:
        return None
    fields = found if isinstance(found, dict) else {}
    tokens = fields.get("tokens")
    count = fields.get("count", len(tokens) if isinstance(tokens, list) else None)
    return encode({"input_tokens": count}) if isinstance(count, int) and count > 0 else None


def _read(body: bytes) -> Asked:
    request = anthropic_messages.API.request(body)
    return crossing.read(request, request.messages, request.tools, "auto", Names(request.declared))


def _count(body: bytes) -> int:
    """Estimate the tokens of a request, its tools and results among them."""
    found = _read(body)
    return max(1, round(len(_text(found).encode(errors="replace")) / PER_TOKEN) + PER_IMAGE * _images(found))


def _text(found: Asked) -> str:
    said = [part for one in found.messages for part in (*one.content, one.reasoning) if isinstance(part, str)]
    called = [f"{call.name}{call.arguments}" for one in found.messages for call in one.calls]
    return "\n".join([*said, *called, json.dumps([tool.as_openai() for tool in found.tools])])


def _images(found: Asked) -> int:
    return sum(isinstance(part, Opaque) and part.media is not None for one in found.messages for part in one.content)


def names_of(body: bytes) -> list[str]:
    """Read a server's list of its models, in whichever API's form; empty if it is none."""
    try:
        found = decode(body)
    except ValueError:
        return []
    entries = (found.get("data") or found.get("models")) if isinstance(found, dict) else None
    rows = entries if isinstance(entries, list) else []
    named = [one.get("id") or one.get("model") or one.get("name") for one in rows if isinstance(one, dict)]
    return [name for name in named if isinstance(name, str)]


def listed(client: str, names: Iterable[str]) -> bytes:
    """Write a list of models for the clients of an API."""
    unknown = datetime.fromtimestamp(0, UTC).isoformat().replace("+00:00", "Z")
    kept = [*dict.fromkeys(names)]
    if client == anthropic_messages.API.name:
        data = [{"type": "model", "id": one, "display_name": one, "created_at": unknown} for one in kept]
        ends: Sequence[str | None] = kept or (None,)
        return encode({"data": data, "has_more": False, "first_id": ends[0], "last_id": ends[-1]})
    if client == ollama_chat.API.name:
        entry: dict[str, Any] = {"modified_at": unknown, "size": 0, "digest": "", "details": {}}
        return encode({"models": [{"name": one, "model": one, **entry} for one in kept]})
    entries = [{"id": one, "object": "model", "created": 0, "owned_by": "vtc"} for one in kept]
    # Codex reads another list, and none of it would be right: an entry there replaces its prompt.
    own: dict[str, Any] = {"models": []} if client == openai_responses.API.name else {}
    return encode({"object": "list", "data": entries, **own})
