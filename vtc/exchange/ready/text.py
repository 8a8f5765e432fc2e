"""Contents that are lists of texts, where a template adds them to a text."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted, said_in


def text(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
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
