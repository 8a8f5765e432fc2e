"""The characters of a call while it is read: it is given back as this text if it does not complete."""

from __future__ import annotations


class HeldText:
    """A text in pieces: a head, and the body after it."""

    __slots__ = ("_body", "_pieces", "_told", "size", "spilled", "told")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._body = 0  # of these, the first of the body
        self._told = 0  # of these, how many have left
        self.size = 0
        """In bytes."""
        self.spilled = False
        """True if it is too long to hold: the call is read to its end, but as text."""
        self.told = 0
        """Characters that have left, of a call that leaves in pieces."""

    @property
    def raw(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def body(self) -> str:
        return "".join(self._pieces[self._body :])

    @property
    def untold(self) -> str:
        """The text that has not left."""
        return self.raw[self.told :]

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.size += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

    def ends_with(self, text: str) -> bool:
        """Tell if it ends with a text, white space aside."""
        end = ""
        for piece in reversed(self._pieces):
            end = (piece + end).rstrip()
            if len(end) >= len(text):
                break
        return end.endswith(text)

    def begin_body(self) -> None:
        """Begin the body: the text so far is the head."""
        self._body = len(self._pieces)

    def end_head(self, text: str) -> None:
        """Take a text off the end of the head, which is all so far."""
        self._pieces[:] = [self.raw.removesuffix(text)]

    def replace_body(self, body: str) -> None:
        self._pieces[self._body :] = [body]

    def tell(self, but: str = "") -> str:
        """Return the text since the last time, which leaves now, `but` for this at its end."""
        until = len(self._pieces)
        if but and (last := self._pieces[-1]).endswith(but):
            self._pieces[-1:] = [last.removesuffix(but), but]
        text = "".join(self._pieces[self._told : until])
        self._told = until
        self.told += len(text)
        return text

    def spill(self) -> None:
        """Keep none of it, and none of what follows: it is given back."""
        self.spilled = True
        self._pieces.clear()
