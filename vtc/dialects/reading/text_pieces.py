"""What of a call's text may leave while the call is read, to a client that reads calls of its dialect out of the text.

    <write_to_file><path>a.py</path>     leaves
    <content>if a                        leaves, as it is written
     < b:                                waits: what may be markup is decided where the value ends
    </content></write_to_file>           the call is complete

Whether the text proves to be a call or not, the client is sent the same characters. Only a repair would write others:
so what it could change waits. No frame is cut in two for that: one of which a part waits, waits whole.
"""

from __future__ import annotations

from typing import Any, Self

from vtc.dialects.arguments import values
from vtc.dialects.reading.held_text import HeldText
from vtc.dialects.reading.pieces import Pieces
from vtc.dialects.syntax.forms import CallSyntax
from vtc.events import CallPiece, Tool

MARKUP = "<"
"""What a tag begins with."""


class TextPieces(Pieces):
    """The text of a call whose parameters stand between tags."""

    __slots__ = ("_is_text", "_keys", "_syntax", "_value", "_waits")

    as_text = True

    def __init__(self, syntax: CallSyntax, tool: Tool) -> None:
        super().__init__(tool, None)
        self._syntax = syntax
        self._keys: set[str] = set()
        self._is_text = True
        self._value: list[str] = []  # of one that is no text
        self._waits = False  # the value holds what may be markup

    @classmethod
    def of(cls, syntax: CallSyntax, written: str, tool: Tool | None) -> Self | None:
        """Make those of a call; None if the client might not read it, or not be able to tell its end by tags."""
        closers = [*syntax.closing_tags(written), syntax.param_closer("key")]
        by_tags = syntax.body == "params" and all(closer.startswith(MARKUP) for closer in closers)
        return cls(syntax, tool) if by_tags and tool and tool.name == written else None

    def begin(self, key: str, pattern: int, *, is_string: bool | None) -> None:
        """Begin a parameter."""
        assert self.tool is not None
        schema = self.tool.parameters
        declared = values.properties(schema)
        if pattern or key not in declared or key in self._keys:
            self.halted = True
            return
        self.begun = True
        self._keys.add(key)
        self._is_text = values.is_text(declared[key], schema) and is_string is not False
        self._waits = False
        self._value.clear()

    def feed(self, text: str) -> None:
        """Take more of the value of the parameter."""
        if not self._is_text:
            self._value.append(text)
        elif MARKUP in text:
            self._waits = True

    def end(self, value: Any) -> None:
        """End the parameter; `value` is what it is."""
        if not self._is_text and values.write(value, self._syntax.dialect.values) != "".join(self._value).strip():
            self.halted = True  # what was written means another value
        self._is_text, self._waits = True, False

    def leave(self, text: HeldText) -> CallPiece | None:
        """Take what may leave now of the text of the call."""
        if self.tool is None or self._waits or not self._is_text or self.halted or not self.begun:
            return None
        begins = not text.told
        raw = text.tell()
        return CallPiece(raw, self.tool.name if begins else "") if raw else None

    def rest(self, name: str, arguments: str) -> str | None:
        """Return nothing: the arguments stand in the text."""
        return ""
