"""The role `developer`, which is `system` to all servers but OpenAI's."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked
from vtc.exchange.ready.given import Given, counted


def developer(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Call roles by their usual names."""
    messages = tuple(map(given.request.usual, asked.messages))
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(changed, 'message')} of the developer said by the system"
