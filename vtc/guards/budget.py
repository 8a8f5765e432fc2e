"""A bound on the work that a reply may cause by its arguments: what is beyond it cannot be looked at and does not pass.

A schema or an expression of a few bytes can take years for a value of a few bytes, and all clients share one process.
Steps are counted, so that what ends is the same on every machine; only expressions, of which no one knows how long they
take, have a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import regex

MOST_STEPS = 40_000
"""About 0.1 s: a step is the check of one keyword of a schema, or a look at one value."""
MOST_SECONDS = 0.05
"""For all expressions together."""
MOST_PATTERN = 2_000
"""Characters of an expression in a schema: to compile it takes time, too."""


class TakesTooLongError(Exception):
    """The work was given up."""

    def __init__(self, what: str = "looking through its arguments") -> None:
        super().__init__(f"{what} takes too long")


_NAMED_ARGUMENTS: dict[object, object] = getattr(sys.modules[regex.compile.__module__], "_named_args", {})
"""What `regex.purge` forgets to clear."""


class Budget:
    """The steps and the time that are left."""

    def __init__(self, steps: int = MOST_STEPS, seconds: float = MOST_SECONDS) -> None:
        self._steps = steps
        self._seconds = seconds
        self._compiled: dict[str, regex.Pattern[str]] = {}  # the module must keep none: they are a client's text

    def spend(self, steps: int = 1) -> None:
        """Take steps; raises TakesTooLongError if no more are left."""
        self._steps -= steps
        if self._steps < 0:
            raise TakesTooLongError

    def search(self, pattern: str, text: str) -> bool:
        """Tell if an expression finds anything in a text."""
        if pattern not in self._compiled:
            self._compiled[pattern] = regex.compile(pattern)
            regex.purge()
            _NAMED_ARGUMENTS.clear()
        return self.run(self._compiled[pattern].search, text) is not None

    def run[Found](self, method: Callable[..., Found], *arguments: Any) -> Found:
        """Call a method of a compiled expression within the time."""
        self.spend()
        if self._seconds <= 0:
            raise TakesTooLongError
        started = time.perf_counter()
        try:
            return method(*arguments, timeout=self._seconds)
        except TimeoutError:
            raise TakesTooLongError from None
        finally:
            self._seconds -= time.perf_counter() - started
