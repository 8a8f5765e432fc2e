"""Requests of Ollama's chat API: those of chat completions, with limits in `options` and images next to the text."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.apis import shapes
from vtc.apis.content import describe_omitted_media, describe_omitted_part, list_parts
from vtc.apis.contract import Json, Question
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.apis.openai_chat import request as openai_chat
from vtc.events import (
    CanonicalRequest,
    Failure,
    ListedModel,
    Media,
    Message,
    ToolCall,
)

NAME = "ollama-chat"
SHOW_PATH = "/api/show"
LAYOUT = BodyLayout(
    name="chat request of Ollama",
    full=FullError("prompt too long; exceeded max context length by {over} tokens", sign="max context length"),
    choice=None,
    parallel=None,
    limits={
        "context": ("options.num_ctx",),
        "truncate": ("truncate",),
        "max_tokens": ("options.num_predict",),
        **{name: (f"options.{name}",) for name in openai_chat.SAMPLING},
    },
    carried=("format", "think", "keep_alive"),
)
_EFFORT_ALIASES = {"minimal": "low", "xhigh": "high", "max": "high"}
"""Effort levels that this API does not have, with the closest ones that it has."""

_FOREIGN_IMAGE_TYPES = ("input_image", "image")
"""Types of image parts of other APIs than chat completions."""


def _split_images(message: Any) -> Any:
    """Replace a list of parts by a text, and move its images to the field next to it."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    texts, images = _separate_images(map(_interpret_part, message["content"]))
    text = ("\n\n" if message.get("role") == "system" else "\n").join(filter(None, texts))
    image_field = {"images": [*(message.get("images") or ()), *images]} if images else {}
    return {**message, "content": text, **image_field}


def _interpret_part(part: Any) -> str | Media:
    """Interpret a part; one without equivalent in this API becomes a note in the text."""
    meaning = shapes.read_foreign_part(part, _FOREIGN_IMAGE_TYPES) or openai_chat.interpret_part(part)
    kind = str(part.get("type") or "part") if isinstance(part, dict) else "part"
    return describe_omitted_part(kind) if meaning is None else meaning


def _separate_images(parts: Iterable[str | Media]) -> tuple[list[str], list[str]]:
    """Separate texts from images, as base64; other media become notes in the text."""
    texts: list[str] = []
    images: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif part.kind == "image" and part.data:
            images.append(part.data)
        else:
            texts.append(describe_omitted_media(part))
    return texts, images


def _strip_data_url(image: Any) -> Any:
    """Strip the prefix of a data URL from an image's base64."""
    head, comma, data = image.partition(",") if isinstance(image, str) else ("", "", "")
    return data if comma and head.startswith("data:") and head.endswith(";base64") else image


class Request(openai_chat.Request):
    """A chat request; tools are declared as in chat completions. `form` is True if calls have ids."""

    LAYOUT = replace(
        LAYOUT,
        shapes=(
            *openai_chat.CONTENT_SHAPES,
            Shape("messages.*", _split_images, "lists of parts joined into one text, their images moved next to it"),
            Shape("messages.*.images.*", _strip_data_url, "data URLs of images converted to base64"),
            Shape(
                "messages.*.tool_calls.*.function.arguments",
                shapes.arguments_object,
                shapes.ARGUMENTS_ARE_OBJECTS,
            ),
            *openai_chat.TOOL_SHAPES,
            Shape("options", shapes.object_for_list, "an empty list in options converted to an object"),
        ),
    )
    TRANSLATED_FIELDS = ("images", "tool_name")

    def _decode(self, path: str) -> None:
        super()._decode(path)
        if "messages" not in self.fields or not self.model:
            raise ValueError("it needs `model` and `messages`")
        self.stream = self.fields.get("stream") is not False
        self.idle = not self._conversation
        self.form = bool(self.call_ids)

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        super()._add(entries, message, called)
        entry = entries[-1]
        entry["content"] = entry["content"] or ""
        if message.calls:
            entry["tool_calls"] = [entry_of(call, ids=self.form) for call in message.calls]
        if message.role == "tool":
            entry["tool_name"] = message.name

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.name) and not (result.source.get("tool_name") or result.source.get("name"))

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        return super().as_text(message)  # this API has no null content

    def with_reasoning(self, message: Message, field: str) -> Message:
        return super().with_reasoning(message, "thinking")

    def get_attached_media(self, message: Message) -> Sequence[Media]:
        source = message.source if isinstance(message.source, dict) else {}
        return [Media("image", "image/png", image) for image in source.get("images") or () if isinstance(image, str)]

    def without_attached_media(self, message: Message) -> Message:
        if not self.get_attached_media(message):
            return message
        return replace(message, source={key: value for key, value in message.source.items() if key != "images"})


def entry_of(call: ToolCall, *, ids: bool) -> dict[str, Any]:
    """Render a call; with an id only for clients that use ids, because others fail at it."""
    function = {"name": call.name, "arguments": json.loads(call.arguments)}
    return {"id": call.id, "function": function} if ids else {"function": function}


def build_request(canonical: CanonicalRequest) -> Json:
    """Render a request. Only effort levels are sent: a bare switch is an error for many models."""
    fields: dict[str, Any] = {
        "model": canonical.model,
        "messages": [_render_message(message) for message in canonical.messages],
        "stream": canonical.stream,
        **LAYOUT.write_limits(canonical.limits),
    }
    if canonical.tools:
        fields["tools"] = [tool.as_openai() for tool in canonical.tools]
    if canonical.effort not in (None, "auto"):
        fields["think"] = (
            False if canonical.effort == "none" else _EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)
        )
    if canonical.answer:
        fields["format"] = canonical.answer.schema or "json"
    return fields


def constrain(form: str, value: Any) -> Json:
    """Set the JSON Schema of a reply, the only grammar that this API has."""
    return {"format": value} if form == "json_schema" else {}


def _render_message(message: Message) -> Json:
    texts, images = _separate_images(list_parts(message))
    entry: dict[str, Any] = {"role": message.role, "content": "\n".join(texts)}
    if images:
        entry["images"] = images
    if message.reasoning:
        entry["thinking"] = message.reasoning
    if message.calls:
        entry["tool_calls"] = [entry_of(call, ids=True) for call in message.calls]
    if message.role == "tool":
        entry |= {"tool_name": message.name, "tool_call_id": message.call_id}
    return entry


def build_error(failure: Failure, _status: int) -> Json:
    """Render an error."""
    return {"error": failure.message}


_FAMILY = "vtc"
"""The architecture of a model, under which clients look for its window."""


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    entry: dict[str, Any] = {"size": 0, "digest": "", "details": {}}
    return {
        "models": [{"name": model.name, "model": model.name, "modified_at": model.date, **entry} for model in models]
    }


def render_model(model: ListedModel) -> Json:
    """Render the details of a model. It is assumed to accept tools unless the server reports otherwise."""
    abilities = {"tools": True, **model.abilities}
    info = {"general.architecture": _FAMILY, "general.basename": model.name}
    return {
        **dict.fromkeys(("modelfile", "parameters", "template"), ""),
        "details": {"family": _FAMILY},
        "model_info": {**info, **({f"{_FAMILY}.context_length": model.window} if model.window else {})},
        "capabilities": ["completion", *(name for name, able in abilities.items() if able)],
        "modified_at": model.date,
    }


QUESTIONS = (
    Question("alive", "HEAD", "/", lambda _: {}),
    Question("models", "GET", "/api/tags", render_model_list),
    # Clients want one that is not too old (Copilot 0.6.4).
    Question("version", "GET", "/api/version", lambda _: {"version": "0.15.0"}),
    Question("model", "POST", SHOW_PATH, render_model),
)
