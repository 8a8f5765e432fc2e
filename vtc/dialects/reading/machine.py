"""The crank of the reader: a buffer that is read forward, one token after the other.

Everything before `_at` is consumed. What lies between `_at` and the end of the buffer is held back, and that is only
what the current state's expression says may still become a token.
"""

from __future__ import annotations

import re
from functools import lru_cache

from vtc.dialects.reading.states import ANCHORED, MOVES, OTHERWISE, State
from vtc.dialects.syntax.pattern import INDENT, Scan

CONTEXT = INDENT + 2
"""Characters that are kept behind the reading position, for what must start a line."""

type Found = re.Match[str]


@lru_cache(maxsize=1024)
def _move(state: State, token: str) -> str:
    """The method for a token, which has a number where several of a kind are looked for."""
    return f"_{MOVES[state, token.rstrip('0123456789')]}"


class Machine:
    """Runs the table of `states.py`; the moves are methods of the class derived from it."""

    def __init__(self, state: State, scan: Scan) -> None:
        self._state = state
        self._scan = scan
        self._buffer = ""
        self._at = 0
        self._from = 0  # where the search for the next token goes on
        self._final = False

    def _append(self, text: str) -> None:
        keep = self._at - CONTEXT
        if keep > 0:
            self._buffer = self._buffer[keep:]
            self._at -= keep
            self._from -= keep
        self._buffer += text

    def _read(self) -> None:
        """Read as far as can be told by now."""
        while True:
            if self._state == "json":
                if not self._read_without_tokens():
                    return
                continue
            scan = self._scan.final if self._final else self._scan.streaming
            anchored = self._state in ANCHORED
            found = (scan.match if anchored else scan.search)(self._buffer, self._from)
            token = found.lastgroup or "" if found else ""
            if found and not token.startswith("hold"):
                getattr(self, _move(self._state, token))(found)
            elif not found and self._state in OTHERWISE and (anchored or self._final):
                getattr(self, f"_{OTHERWISE[self._state]}")()
            else:
                state = self._state
                if not anchored:
                    self._sink(found.start() if found else len(self._buffer))
                if self._state == state:
                    return

    def _go(self, state: State, scan: Scan, at: int | None = None) -> None:
        """To another state, with everything before `at` consumed."""
        self._state, self._scan = state, scan
        if at is not None:
            self._at = at
        self._from = self._at

    def _skip(self, found: Found) -> None:
        """What looked like a token is content."""
        self._from = found.start() + 1

    def _sink(self, end: int) -> None:
        """The text up to `end` is content of the current state, which may be left by that."""
        raise NotImplementedError

    def _read_without_tokens(self) -> bool:
        """Read on in a state that finds its own end; False when it needs more text."""
        raise NotImplementedError
