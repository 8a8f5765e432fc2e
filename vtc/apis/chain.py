"""A text that comes in pieces, each with those before it, so that adding one copies none."""

from __future__ import annotations

from typing import Any

type Chain = tuple[Any, str] | None


def joined(chain: Chain) -> str:
    """Join the pieces of a text."""
    pieces: list[str] = []
    while chain:
        chain, piece = chain
        pieces.append(piece)
    return "".join(reversed(pieces))
