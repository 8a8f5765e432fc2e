"""How much to think, for a model that cannot."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked
from vtc.exchange.ready.given import Given


def thinking(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Say nothing of it to a server of another API."""
    if asked.effort is None:
        return asked, ""
    return replace(asked, effort=None), f"not told how much to think ({asked.effort}), which the server refuses"
