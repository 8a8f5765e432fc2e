"""The content of messages as servers take it: texts as text, images that they know, no line of billing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.apis.content import BILLING, note, without_billing
from vtc.events import CanonicalRequest, Media, Message, Opaque
from vtc.exchange.asking.steps.given import StepContext, counted, said_in

# Contents that are lists of texts, where a template adds them to a text.


def text(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
    """Write each as one text; a list with images stays one. The parts of a result are joined only where it was one."""

    def written(message: Message) -> Message:
        plain = given.request.as_text(message)
        if message.role == "tool" and plain is message:
            return message
        content = said_in(message, "\n\n" if message.role == "system" else "\n")
        return plain if content is message.content else replace(plain, content=content)

    messages = tuple(map(written, asked.messages))
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(changed, 'list')} of texts written as text"


# Images and documents, for a model that takes none.


def images(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
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


# The line with which Claude Code begins its prompt: it differs in each request, and only its own server wants it.


def billing(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
    """Leave the line out; what stands after it in the same text stays."""

    def left(part: str | Opaque) -> str | Opaque | None:
        said = part if isinstance(part, str) else given.request.meaning(part.part) if part.part is not None else None
        if not isinstance(said, str) or not said.startswith(BILLING):
            return part
        return without_billing(said) or None

    def without(message: Message) -> Message:
        if message.role != "system":
            return message
        parts = [left(part) for part in message.content]
        if all(part is came for part, came in zip(parts, message.content, strict=True)):
            return message
        return replace(message, content=tuple(part for part in parts if part is not None))

    messages = tuple(map(without, asked.messages))
    if all(one is came for one, came in zip(messages, asked.messages, strict=True)):
        return asked, ""
    return replace(asked, messages=messages), "the billing line left out"
