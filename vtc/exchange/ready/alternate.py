"""Neighbours of one role, which templates that count turns refuse."""

from __future__ import annotations

from typing import Any

from vtc.events import Asked
from vtc.exchange.ready.given import Given
from vtc.exchange.ready.turns import joined_where


def alternate(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Join them; results stay apart, as each answers a call."""
    return joined_where(asked, lambda role: role in ("user", "assistant"))
