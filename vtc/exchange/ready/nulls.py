"""Contents that are null, as clients write them beside calls, where a template reads a text."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked
from vtc.exchange.ready.given import Given, counted


def nulls(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Write an empty text for each."""
    messages = tuple(replace(one, content=("",)) if given.request.is_null(one) else one for one in asked.messages)
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(changed, 'null content')} written as an empty text"
