"""A call that comes in pieces, as an encoder must know it that writes one call after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.openai_responses.items import CALLS, Chain, is_call, joined
from vtc.events import CallDelta

_TOKEN = re.compile(r'["\\{}\[\]]')


class Pieces(msgspec.Struct, frozen=True, gc=False):
    """All that came of one call."""

    number: int
    """By which its pieces are known."""
    id: str = ""
    name: str = ""
    source: Mapping[str, Any] = {}
    said: Chain = None
    """Its arguments."""
    length: int = 0
    depth: int = 0
    """Of the braces that are open."""
    in_string: bool = False
    escaped: bool = False
    ended: bool = False
    """True if the server said so."""

    @property
    def is_whole(self) -> bool:
        """True if nothing of it is to come: its arguments are a whole value."""
        return self.ended or (self.length > 0 and not self.depth and not self.in_string)

    @property
    def may_begin(self) -> bool:
        """True if all is there that its beginning says."""
        return bool(self.name and (self.id or self.length or self.ended))

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
        return pieces._with(piece.arguments) if piece.arguments else pieces

    def _with(self, text: str) -> Pieces:
        depth, in_string, escaped, end = self.depth, self.in_string, self.escaped, -1
        for found in _TOKEN.finditer(text):
            token, is_escaped = found[0], escaped and found.start() == end + 1
            escaped, end = False, found.start()
            if is_escaped:
                continue
            if token == "\\":
                escaped = in_string
            elif token == '"':
                in_string = not in_string
            elif not in_string:
                depth += 1 if token in "{[" else -1
        escaped = escaped and end == len(text) - 1
        length = self.length + len(text.strip() if not self.length else text)
        return replace(self, said=(self.said, text), length=length, depth=depth, in_string=in_string, escaped=escaped)

    @property
    def is_hosted(self) -> bool:
        """True for a call of a tool that has a kind of its own."""
        kind = str(self.source.get("type"))
        return is_call(kind) and kind not in CALLS and kind == f"{self.name}_call"
