"""Calls in their structured form, put together from the pieces that a reply has them in.

Pieces of several calls may be mixed, some servers number nothing, and one piece may be all of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from vtc.events import CallDelta, ToolCall


class _Pieces:
    """One call so far. Its arguments are joined only at the end, since those of a long call come in thousands."""

    __slots__ = ("arguments", "id", "name", "source")

    def __init__(self) -> None:
        self.id: str | None = None
        self.name = ""
        self.arguments: list[str] = []
        self.source: dict[str, Any] = {}


class ToolCallAccumulator:
    """The calls of one message."""

    def __init__(self, pieces: Iterable[CallDelta] = ()) -> None:
        self._calls: dict[int, _Pieces] = {}
        for piece in pieces:
            self.add(piece)

    def add(self, piece: CallDelta) -> None:
        """Add a piece to the call that it belongs to."""
        call = self._calls.setdefault(self._index(piece), _Pieces())
        if isinstance(piece.source, Mapping):
            call.source.update(piece.source)
        call.id = call.id or piece.id
        if piece.name != call.name:  # some servers repeat it with every piece
            call.name += piece.name
        call.arguments.append(piece.arguments)

    def _index(self, piece: CallDelta) -> int:
        """Find the call of a piece: without a number, a new id or a second name begins another one."""
        if piece.index is not None:
            return piece.index
        if not self._calls:
            return 0
        last = max(self._calls)
        call = self._calls[last]
        return last + bool((piece.name and call.name) or (piece.id and piece.id != call.id))

    def calls(self) -> list[ToolCall]:
        """Return the calls in the order of their numbers; no arguments at all are `{}`."""
        return [
            ToolCall(call.name, "".join(call.arguments) or "{}", call.id, call.source)
            for _, call in sorted(self._calls.items())
        ]

    def numbered(self) -> list[ToolCall]:
        """Return the calls; one without an id gets `call_<place>`."""
        return [replace(call, id=call.id or f"call_{place}") for place, call in enumerate(self.calls())]
