"""The crank: what was read is forgotten, what may still become a token is not."""

from __future__ import annotations

import pytest

from vtc.dialects.reading.machine import CONTEXT, Found, Machine
from vtc.dialects.syntax.pattern import Lit, Scan, Token, searching


class Words(Machine):
    """Cuts text at ticks, by two of the reader's own states: what a tick does in `text` and in `span`."""

    def __init__(self) -> None:
        self.scans = searching([Token("ticks", (Lit("``"),))])
        super().__init__("text", self.scans)
        self.out: list[str] = []

    def read(self, text: str, *, final: bool = False) -> list[str]:
        self._append(text)
        self._final = final
        self._read()
        out, self.out = self.out, []
        return out

    @property
    def kept(self) -> str:
        return self._buffer

    def _sink(self, end: int) -> None:
        if end > self._at:
            self.out.append(self._buffer[self._at : end])
        self._at = self._from = end

    def _ticks(self, found: Found) -> None:
        self._sink(found.start())
        self.out.append("open")
        self._go("span", self.scans, found.end())

    def _span_ticks(self, found: Found) -> None:
        if self._buffer.startswith("!", found.end()):
            self._skip(found)
            return
        self._sink(found.start())
        self.out.append("close")
        self._go("text", self.scans, found.end())


def test_a_token_moves_and_what_may_become_one_waits() -> None:
    words = Words()
    assert words.read("a b`") == ["a b"]
    assert words.read("c``d") == ["`c", "open", "d"]
    assert words.read("e`") == ["e"]
    assert words.read("`") == ["close"]
    assert words.read("`", final=True) == ["`"]


def test_what_is_skipped_is_content() -> None:
    assert Words().read("a``b``!c``d", final=True) == ["a", "open", "b``!c", "close", "d"]


def test_what_was_read_is_forgotten() -> None:
    words = Words()
    for _ in range(100):
        words.read("some text that is long enough ``")
    assert len(words.kept) <= CONTEXT + len("some text that is long enough ``")


def test_a_token_without_a_move_is_an_error_of_ours() -> None:
    words = Words()
    words._go("text", Scan("(?P<unheard>x)", "(?P<unheard>x)"))
    with pytest.raises(KeyError, match="unheard"):
        words.read("x")
