"""Answer the side questions of clients (`Api.questions`) when the server speaks another API.

HEAD /                                a sign of life
GET /v1/models, GET /api/tags         the models of the server (Codex sends its version)
GET /v1/models/NAME, POST /api/show   the details of one model
POST /v1/messages/count_tokens        the length of a conversation, before it is sent
GET /api/version                      the first request of Ollama's clients
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis import APIS, Api, bridge, normalize_path, openai_chat
from vtc.apis.contract import Question
from vtc.events import CanonicalRequest, Opaque
from vtc.json_text import decode_json, encode_json

APPROXIMATE_BYTES_PER_TOKEN = 3.5
"""Approximate bytes of text per token: fewer for code, more for prose."""
TOKENS_PER_IMAGE = 1500
"""Approximate tokens per image."""
TOKENIZE_PATH = "/tokenize"
"""The path at which vLLM and llama.cpp count tokens."""


class SideQuestion(NamedTuple):
    """A side question, and the API of the client that asks it."""

    kind: str
    client: str
    model: str = ""
    """The model that the path names."""

    @property
    def api(self) -> Api:
        """Return the API of the client."""
        return next(api for api in APIS if api.name == self.client)

    @property
    def _question(self) -> Question:
        return next(question for question in self.api.questions if question.kind == self.kind)

    def render_answer(self, answer: object = None) -> bytes:
        """Render the answer in the client's API."""
        return encode_json(self._question.write(answer))

    def path_at(self, path: str, end: str) -> str:
        """Return the path for asking the server: the base of the question's path with another end."""
        plain = path.partition("?")[0]
        bases = (match.base for question in self.api.questions if (match := question.match_path(plain)))
        base = next(bases, None)
        return f"{plain if base is None else self.api.place.strip_version(base)}{end}"


def find_side_question(method: str, path: str, headers: Mapping[str, str]) -> SideQuestion | None:
    """Find the side question in a request; None if it is none. `headers` have names in lower case."""
    plain, query = f"/{normalize_path(path)}", path.partition("?")[2]
    matches = [
        (question, SideQuestion(question.kind, api.name, (question.match_path(path.partition("?")[0]) or match).model))
        for api in APIS
        for question in api.questions
        if method == question.method and (match := question.match_path(plain)) is not None
    ]
    signed = (side_question for question, side_question in matches if question.sign and question.sign(query, headers))
    return next(signed, None) or next((side_question for question, side_question in matches if not question.sign), None)


def answer_locally(side_question: SideQuestion, body: bytes, path: str = "") -> bytes | None:
    """Answer without the server; None if it has to be asked. Raises `RequestError`."""
    match side_question.kind:
        case "alive":
            return b""
        case "models" | "model":
            return None
        case "count":
            return side_question.render_answer(_estimate_tokens(_read_conversation(side_question, body, path)))
    return side_question.render_answer()


def render_tokenize_request(
    side_question: SideQuestion, body: bytes, model: Callable[[str], str], path: str = ""
) -> bytes:
    """Render a request for `TOKENIZE_PATH` that counts the tokens of a conversation. Raises `RequestError`.

    vLLM accepts messages and tools, llama.cpp text. `model` maps the client's name of a model to the server's.
    """
    canonical = _read_conversation(side_question, body, path)
    fields = openai_chat.API.writer.build_request(replace(canonical, model=model(canonical.model) or canonical.model))
    kept = {key: fields[key] for key in ("model", "messages", "tools") if key in fields}
    return encode_json({**kept, "content": _collect_text(canonical), "add_special": True})


def convert_token_count(side_question: SideQuestion, body: bytes) -> bytes | None:
    """Convert the server's token count for the client; None if the body contains none."""
    try:
        value = decode_json(body)
    except ValueError:
        return None
    fields = value if isinstance(value, dict) else {}
    tokens = fields.get("tokens")
    count = fields.get("count", len(tokens) if isinstance(tokens, list) else None)
    return side_question.render_answer(count) if isinstance(count, int) and count > 0 else None


def _read_conversation(side_question: SideQuestion, body: bytes, path: str) -> CanonicalRequest:
    request = side_question.api.request(body, path)
    return bridge.to_canonical(request, request.messages, request.offer.tools, "auto")


def _estimate_tokens(canonical: CanonicalRequest) -> int:
    """Estimate the tokens of a request, including its tools and results."""
    return max(
        1,
        round(len(_collect_text(canonical).encode(errors="replace")) / APPROXIMATE_BYTES_PER_TOKEN)
        + TOKENS_PER_IMAGE * _count_images(canonical),
    )


def _collect_text(canonical: CanonicalRequest) -> str:
    texts = [
        part
        for message in canonical.messages
        for part in (*message.content, message.reasoning)
        if isinstance(part, str)
    ]
    called = [f"{call.name}{call.arguments}" for message in canonical.messages for call in message.calls]
    return "\n".join([*texts, *called, json.dumps([tool.as_openai() for tool in canonical.tools])])


def _count_images(canonical: CanonicalRequest) -> int:
    return sum(
        isinstance(part, Opaque) and part.media is not None
        for message in canonical.messages
        for part in message.content
    )


def find_model(body: bytes) -> str:
    """Return the model that a body names; empty if it names none."""
    try:
        value = decode_json(body)
    except ValueError:
        return ""
    names = [value.get(key) for key in ("model", "name")] if isinstance(value, dict) else []
    return next((name for name in names if isinstance(name, str)), "")
