"""Detect a reply that repeats one block of text without end.

The text is compared with itself at fixed places, whatever the pieces in which it arrives, so every cut of a reply gives
the same result. Only a window of it is kept, and a place costs the same time in any text: one search for the last
characters in the window, and comparisons of its slices.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import NamedTuple

from vtc.events import Event, Rewritten, Text
from vtc.reporting.report import Report

MIN_BLOCK_CHARACTERS = 20
MIN_TIMES = 8
MIN_CHARACTERS = 2000
"""Characters of all repetitions together."""
MAX_BLOCK_CHARACTERS = 4096
STEP_CHARACTERS = 500
"""Distance of the places at which the text is compared."""
_WINDOW_CHARACTERS = 2 * MAX_BLOCK_CHARACTERS
_NEEDLE_CHARACTERS = 32
_MAX_CANDIDATES = 8
"""Distances that are tried at one place, because the last characters may occur in a block several times."""
MAX_UNWRITTEN_TEXTS = 128
_CODE_INDENTS = ("    ", "\t")
MAX_UNCHECKED_CHARACTERS = 1 << 13
"""Characters that may wait to be compared if nothing ends the reply."""
_MAX_LINE_BEGINNING = 24
_match_fence = re.compile(r"[ \t>]*+(`{3,}|~{3,})").match


class Repetition(NamedTuple):
    """A block of text that a reply repeats."""

    size: int
    """Characters of the block."""
    times: int

    def __str__(self) -> str:
        return f"repeats one block of {self.size} characters at least {self.times} times in a row"


class RepeatDetector(io.StringIO):
    """Buffer of a reply's text or reasoning: write to it, and call `check` once it has `max_unchecked` characters.

    A buffer, because most frames then cost no call of a function of VTC.
    """

    def __init__(self, on_found: Callable[[Repetition], None], *, stops: bool) -> None:
        """Set up the buffer; `on_found` is called once, with the repetition. `stops`: it ends the reply or the text."""
        super().__init__()
        self._on_found = on_found
        self.max_unchecked = STEP_CHARACTERS if stops else MAX_UNCHECKED_CHARACTERS
        self.max_unwritten = 0 if stops else MAX_UNWRITTEN_TEXTS
        """Maximum length of `unwritten`."""
        self.unwritten: list[bytes] = []
        """Texts that were forwarded unread, in JSON; they are written later, together."""
        self._window = ""
        self._period = self._run = 0  # the text ends with `_run` characters that repeat at this distance
        self._line = ""  # beginning of the current line
        self._fence = ""  # opener of the current code block
        self.found: Repetition | None = None
        self.excess = 0
        """Characters that were written after the place at which the repetition was found."""

    def add(self, text: str) -> None:
        """Write a text, and compare it once enough has been written."""
        self.write(text)
        if self.tell() >= self.max_unchecked:
            self.check()

    def check(self) -> None:
        """Compare the written text, except its last incomplete step."""
        text = self.getvalue()
        end = len(text) - len(text) % STEP_CHARACTERS
        for at in range(0, end, STEP_CHARACTERS):
            if self.found:
                break
            self.excess = len(text) - at - STEP_CHARACTERS
            self._advance(text[at : at + STEP_CHARACTERS])
        self.seek(0)
        self.truncate()
        self.write(text[end:])

    def _advance(self, piece: str) -> None:
        self._track_code(piece)
        window = self._window = (self._window + piece)[-_WINDOW_CHARACTERS:]
        # Step 1: continue the known repetition, or search for a new one.
        grown = len(piece) + self._period
        if self._run and window[-len(piece) :] == window[-grown : -self._period]:
            self._run += len(piece)
        else:
            self._period, self._run = self._find_period(window)
        # Step 2: compare it with the limits. A block without a letter is a ruler, a row of numbers or a dump.
        size = self._period * -(-MIN_BLOCK_CHARACTERS // self._period) if self._run else 0
        if not size or self._run < max(MIN_CHARACTERS, MIN_TIMES * size) or self._fence:
            return
        block = window[-size:]
        lines = (block * 2).split("\n")[1:-1]
        is_indented = bool(lines) and all(line.startswith(_CODE_INDENTS) or not line.strip() for line in lines)
        if any(map(str.isalpha, block)) and not is_indented:
            self.found = Repetition(size, self._run // size)
            self._on_found(self.found)

    def _find_period(self, window: str) -> tuple[int, int]:
        """Find the smallest distance at which the end of the window repeats, and for how many characters."""
        needle, end = window[-_NEEDLE_CHARACTERS:], len(window) - 1
        start = max(0, end - MAX_BLOCK_CHARACTERS - _NEEDLE_CHARACTERS)
        for _ in range(_MAX_CANDIDATES):
            at = window.rfind(needle, start, end)
            period = len(window) - _NEEDLE_CHARACTERS - at
            if at < 0 or period > MAX_BLOCK_CHARACTERS:
                break
            run = min(len(window) - period, max(MIN_CHARACTERS, MIN_TIMES * period) - period)
            if run >= _NEEDLE_CHARACTERS and window[-run:] == window[-run - period : -period]:
                return period, run + period
            end = at + _NEEDLE_CHARACTERS - 1
        return 0, 0

    def _track_code(self, piece: str) -> None:
        """Record whether the text is in a fenced code block."""
        if "`" not in self._line + piece and "~" not in self._line + piece:
            self._line = (piece[piece.rfind("\n") + 1 :] if "\n" in piece else self._line + piece)[:_MAX_LINE_BEGINNING]
            return
        *lines, last = piece.split("\n")
        for line in lines:
            beginning, self._line = (self._line + line)[:_MAX_LINE_BEGINNING], ""
            fence = _match_fence(beginning)
            if fence and not self._fence:
                self._fence = fence[1]
            elif fence and fence[1].startswith(self._fence) and not beginning[fence.end() :].strip():
                self._fence = ""
        self._line = (self._line + last)[:_MAX_LINE_BEGINNING]


class RepeatGuard:
    """Reports the first repetition in a choice of a reply, and ends the reply or the text of the choice if it may."""

    def __init__(self, report: Report, stop: Callable[[str], None] | None = None, *, cuts: bool = False) -> None:
        """`stop` ends the reply with a message to the client. `cuts`: the rest of the text is replaced with a message.

        Without both, the repetition is only reported.
        """
        self._report = report
        self._stop = stop
        self._is_reported = self._has_cut = False
        self._message = ""  # to the client, until it is sent
        self.cuts = cuts
        stops = cuts or stop is not None
        self.text, self.reasoning = (RepeatDetector(self.record, stops=stops) for _ in range(2))

    def record(self, found: Repetition) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        advice = "" if self._stop or self.cuts else "; vtc_stop_repeats=on ends such streams"
        self._report.notes.append(f"the reply {found}{advice}")
        if self._stop:
            self._stop(f"\n\n(VTC ended this reply, because it {found}.)")

    def cut(self, text: str, found: Repetition) -> list[Event]:
        """Cut a text where the repetition was found, and leave out all later ones; a message takes their place."""
        end = 0
        if not self._has_cut:
            self._has_cut, end = True, len(text) - self.text.excess
            self._message = f"\n\n(VTC left out the rest of this text, because it {found}.)"
        out: list[Event] = [Text(text[:end])] if end else []
        if end < len(text):
            if self._message:
                self._report.notes.append("VTC left out the rest of the text (vtc_stop_repeats)")
            out.append(Rewritten(text[end:], self._message))
            self._message = ""
        return out
