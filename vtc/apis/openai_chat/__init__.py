"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from vtc.apis import base
from vtc.apis.openai_chat.answer import completion, folded, unfolded
from vtc.apis.openai_chat.reply import ChunkCodec
from vtc.apis.openai_chat.request import Request


class OpenAIChat:
    """The row of the registry; see `base.Api`."""

    name = "openai-chat"
    path = "/chat/completions"

    def request(self, body: bytes, cache: base.Cache | None = None) -> Request:
        return Request(body, cache)

    def codec(self, form: Any = None, drop: Collection[str] = ()) -> ChunkCodec:
        return ChunkCodec(bool(form), frozenset(drop))

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        return {"stream": False}, ("stream_options",)

    def unfold(self, reply: Any, request: base.Request | None) -> Iterable[Mapping[str, Any]]:
        return unfolded(reply, request)

    def fold(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return folded(events)

    def reply(self, request: base.Request, text: str, *, digest: str, created: int) -> bytes:
        return completion(text, id_=f"chatcmpl-{digest[:24]}", model=request.model, created=created)

    def call_id(self, digest: str) -> str:
        return f"call_{digest[:24]}"
