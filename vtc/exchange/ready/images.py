"""Images and documents, for a model that takes none."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.apis.media import note
from vtc.events import Asked, Media, Message, Opaque
from vtc.exchange.ready.given import Given, counted


def images(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Put a note in the place of each."""
    request, count = given.request, 0

    def noted(part: str | Opaque) -> str | Opaque:
        nonlocal count
        if isinstance(part, str):
            return part
        found = part.media or (request.meaning(part.part) if part.part is not None else None)
        count += isinstance(found, Media)
        return note(found) if isinstance(found, Media) else part

    def without(message: Message) -> Message:
        nonlocal count
        before, beside = count, request.beside(message) if message.source is not None else ()
        content = (*map(noted, message.content), *map(note, beside))
        count += len(beside)
        return message if count == before else replace(request.without_beside(message), content=content)

    messages = tuple(map(without, asked.messages))
    if not count:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(count, 'note')} in the place of images"
