"""Reading requests of Ollama's chat API: chat completions with limits in `options` and images next to the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.apis import shapes
from vtc.apis.content import describe_omitted_media, describe_omitted_part
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.apis.openai_chat import request as openai_chat
from vtc.events import Media, Message

_FOREIGN_IMAGE_TYPES = ("input_image", "image")
"""Types of image parts of other APIs than chat completions."""


def _split_images(message: Any) -> Any:
    """Replace a list of parts by a text, and move its images to the field next to it."""
    if not isinstance(message, dict) or not isinstance(message.get("content"), list):
        return message
    texts, images = separate_images(map(_interpret_part, message["content"]))
    text = ("\n\n" if message.get("role") == "system" else "\n").join(filter(None, texts))
    image_field = {"images": [*(message.get("images") or ()), *images]} if images else {}
    return {**message, "content": text, **image_field}


def _interpret_part(part: Any) -> str | Media:
    """Interpret a part; one without equivalent in this API becomes a note in the text."""
    meaning = shapes.read_foreign_part(part, _FOREIGN_IMAGE_TYPES) or openai_chat.Request.interpret_part(part)
    kind = str(part.get("type") or "part") if isinstance(part, dict) else "part"
    return describe_omitted_part(kind) if meaning is None else meaning


def separate_images(parts: Iterable[str | Media]) -> tuple[list[str], list[str]]:
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
        self.idle = not self.entries
        self.form = bool(self.call_ids)

    def get_attached_media(self, message: Message) -> Sequence[Media]:
        source = message.source if isinstance(message.source, dict) else {}
        return [Media("image", "image/png", image) for image in source.get("images") or () if isinstance(image, str)]

    def without_attached_media(self, message: Message) -> Message:
        if not self.get_attached_media(message):
            return message
        return replace(message, source={key: value for key, value in message.source.items() if key != "images"})
