"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vtc.apis import base
from vtc.apis.openai_chat.answer import completion, streamed
from vtc.apis.openai_chat.reply import BodyCodec, ChunkCodec
from vtc.apis.openai_chat.request import Request


class OpenAIChat:
    """The row of the registry; see `base.Api`."""

    name = "openai-chat"
    path = "/chat/completions"

    def request(self, body: bytes, cache: base.Cache | None = None) -> Request:
        return Request(body, cache)

    def codec(self, form: Any = None, drop: Collection[str] = (), *, whole: bool = False) -> ChunkCodec | BodyCodec:
        return (BodyCodec if whole else ChunkCodec)(bool(form), frozenset(drop))

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        return {"stream": False}, ("stream_options",)

    def streamed(self, body: bytes, request: base.Request) -> bytes:
        asked = request.fields.get("stream_options")
        return streamed(body, usage=isinstance(asked, dict) and bool(asked.get("include_usage")))

    def reply(self, request: base.Request, text: str, *, digest: str, created: int) -> bytes:
        return completion(text, id_=f"chatcmpl-{digest[:24]}", model=request.model, created=created)

    def call_id(self, digest: str) -> str:
        return f"call_{digest[:24]}"
