"""A call that comes in pieces, as an encoder must know it that writes one call after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.chain import Chain, joined
from vtc.apis.openai_responses.items import CALLS, is_call
from vtc.apis.tool_calls import Nesting
from vtc.events import CallDelta


class Pieces(msgspec.Struct, frozen=True, gc=False):
    """All that came of one call."""

    number: int
    """By which its pieces are known."""
    id: str = ""
    name: str = ""
    source: Mapping[str, Any] = {}
    said: Chain = None
    """Its arguments."""
    nesting: Nesting = Nesting()
    ended: bool = False
    """True if the server said so."""

    @property
    def is_whole(self) -> bool:
        """True if nothing of it is to come: its arguments are a whole value."""
        return self.ended or self.nesting.is_whole

    @property
    def may_begin(self) -> bool:
        """True if all is there that its beginning says."""
        return bool(self.name and (self.id or self.nesting.begun or self.ended))

    @property
    def arguments(self) -> str:
        """Its arguments so far; no arguments at all are an empty object."""
        return joined(self.said) or "{}"

    def more(self, piece: CallDelta) -> Pieces:
        """Add a piece."""
        source = piece.source if isinstance(piece.source, Mapping) else {}
        pieces = replace(
            self,
            id=self.id or piece.id or "",
            name=self.name if piece.name == self.name else self.name + piece.name,
            source={**self.source, **source} if source else self.source,
            ended=self.ended or (not piece.name and is_call(str(source.get("type")))),
        )
        if not piece.arguments:
            return pieces
        return replace(pieces, said=(self.said, piece.arguments), nesting=self.nesting.after(piece.arguments))

    @property
    def is_hosted(self) -> bool:
        """True for a call of a tool that has a kind of its own."""
        kind = str(self.source.get("type"))
        return is_call(kind) and kind not in CALLS and kind == f"{self.name}_call"
