"""Anthropic Messages (`POST …/v1/messages`), as Claude Code and the Anthropic SDKs speak it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from vtc.apis import base
from vtc.apis.anthropic_messages.answer import folded, message, unfolded
from vtc.apis.anthropic_messages.reply import StreamCodec
from vtc.apis.anthropic_messages.request import Request


class AnthropicMessages:
    """The row of the registry; see `base.Api`."""

    name = "anthropic-messages"
    path = "/v1/messages"

    def request(self, body: bytes, cache: base.Cache | None = None) -> Request:
        return Request(body, cache)

    def codec(self, form: Any = None, drop: Collection[str] = ()) -> StreamCodec:
        return StreamCodec(thinks=bool(form), drop=frozenset(drop))

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        return {"stream": False}, ()

    def unfold(self, reply: Any, request: base.Request | None) -> Iterable[Mapping[str, Any]]:
        return unfolded(reply)

    def fold(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return folded(events)

    def reply(self, request: base.Request, text: str, *, digest: str, created: int) -> bytes:
        return message(text, id_=f"msg_{digest[:24]}", model=request.model)

    def call_id(self, digest: str) -> str:
        return f"toolu_{digest[:24]}"
