"""What clients ask besides replies, in the form of their API (`Api.questions`), where the server speaks another one.

HEAD /                                a sign of life
GET /v1/models, GET /api/tags         the models that the server has (Codex says its version)
POST /v1/messages/count_tokens        how long a conversation is, before it is sent
GET /api/version, POST /api/show      what Ollama's clients look at first
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis import APIS, Api, crossing, openai_chat, plain_path
from vtc.apis.contract import Question
from vtc.events import CanonicalRequest, Opaque
from vtc.json_text import decode, encode

PER_TOKEN = 3.5
"""Bytes of text a token, about: less for code, more for prose."""
PER_IMAGE = 1500
"""Tokens of an image, about."""
TOKENIZE = "/tokenize"
"""Where vLLM and llama.cpp count tokens."""
MODELS = "/v1/models"
"""Where servers list their models, whichever API they speak."""


class Aside(NamedTuple):
    """A question besides replies, and the API of the client that asks it."""

    kind: str
    client: str

    @property
    def api(self) -> Api:
        """Return the API of that client."""
        (found,) = (one for one in APIS if one.name == self.client)
        return found

    @property
    def _question(self) -> Question:
        (found,) = (one for one in self.api.questions if one.kind == self.kind)
        return found

    def written(self, answer: object = None) -> bytes:
        """Write the answer in the form of the client's API."""
        return encode(self._question.write(answer))

    def path_at(self, path: str, end: str) -> str:
        """Return the path of the question with another end, at which the server is asked."""
        asked = path.partition("?")[0]
        base = self._question.base(asked)
        return f"{asked if base is None else self.api.place.root(base)}{end}"


def asked(method: str, path: str, headers: Mapping[str, str]) -> Aside | None:
    """Find what a request asks; None for any other. `headers` have names in lower case."""
    plain, query = f"/{plain_path(path)}", path.partition("?")[2]
    found = [
        (one, api.name) for api in APIS for one in api.questions if method == one.method and one.base(plain) is not None
    ]
    signed = (Aside(one.kind, name) for one, name in found if one.sign and one.sign(query, headers))
    return next(signed, None) or next((Aside(one.kind, name) for one, name in found if not one.sign), None)


def answer(aside: Aside, body: bytes, path: str = "") -> bytes | None:
    """Answer what no server need be asked for; None if it must be. Raises `BadRequest`."""
    match aside.kind:
        case "alive":
            return b""
        case "models":
            return None
        case "count":
            return aside.written(_count(_read(aside, body, path)))
    return aside.written()


def question(aside: Aside, body: bytes, model: Callable[[str], str], path: str = "") -> bytes:
    """Ask a server how long a conversation is, by `TOKENIZE`. Raises `BadRequest`.

    vLLM takes messages and tools, llama.cpp the text. `model` tells by which name the server knows one.
    """
    found = _read(aside, body, path)
    fields = openai_chat.API.ask(replace(found, model=model(found.model) or found.model))
    kept = {key: fields[key] for key in ("model", "messages", "tools") if key in fields}
    return encode({**kept, "content": _text(found), "add_special": True})


def counted(aside: Aside, body: bytes) -> bytes | None:
    """Read the server's answer to that, and write it for the client; None if it is none."""
    try:
        found = decode(body)
    except ValueError:
        return None
    fields = found if isinstance(found, dict) else {}
    tokens = fields.get("tokens")
    count = fields.get("count", len(tokens) if isinstance(tokens, list) else None)
    return aside.written(count) if isinstance(count, int) and count > 0 else None


def _read(aside: Aside, body: bytes, path: str) -> CanonicalRequest:
    request = aside.api.request(body, path)
    return crossing.read(request, request.messages, request.offer.tools, "auto")


def _count(found: CanonicalRequest) -> int:
    """Estimate the tokens of a request, its tools and results among them."""
    return max(1, round(len(_text(found).encode(errors="replace")) / PER_TOKEN) + PER_IMAGE * _images(found))


def _text(found: CanonicalRequest) -> str:
    said = [part for one in found.messages for part in (*one.content, one.reasoning) if isinstance(part, str)]
    called = [f"{call.name}{call.arguments}" for one in found.messages for call in one.calls]
    return "\n".join([*said, *called, json.dumps([tool.as_openai() for tool in found.tools])])


def _images(found: CanonicalRequest) -> int:
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
    return Aside("models", client).written([*dict.fromkeys(names)])
