"""OpenAI Responses (`POST …/responses`), the API of Codex."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from vtc.apis import base
from vtc.apis.openai_responses.body import folded, response, unfolded
from vtc.apis.openai_responses.items import Form
from vtc.apis.openai_responses.reply import EventCodec
from vtc.apis.openai_responses.request import Request


class OpenAIResponses:
    """The row of the registry; see `base.Api`."""

    name = "openai-responses"
    path = "/responses"

    def request(self, body: bytes, cache: base.Cache | None = None) -> Request:
        return Request(body, cache)

    def codec(self, form: Any = None, drop: Collection[str] = ()) -> EventCodec:
        return EventCodec(form=form or Form(), drop=frozenset(drop))

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        return {"stream": False}, ("stream_options",)

    def unfold(self, reply: Any, request: base.Request | None) -> Iterable[Mapping[str, Any]]:
        return unfolded(reply)

    def fold(self, events: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return folded(events)

    def reply(self, request: base.Request, text: str, *, digest: str, created: int) -> bytes:
        return response(text, digest=digest, model=request.model, created=created)

    def call_id(self, digest: str) -> str:
        return f"call_{digest[:24]}"
