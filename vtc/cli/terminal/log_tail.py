"""Follow a log of exchanges (`vtc_log`) as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from vtc.json_text import decode
from vtc.proxy.stats import Stats
from vtc.reporting import LEFT_ALONE, OUTCOMES, Look, summarize_report
from vtc.scrub import escape_invisible

MAX_READ_BYTES = 4 << 20
"""Bytes at the end of a log that are read at once: a log of months is not."""
PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The errors that reading any JSON as a line of a log may raise."""
NOTHING_CHANGED = "nothing was changed"


@dataclass(frozen=True, slots=True)
class LoggedExchange:
    """One line of a log."""

    entry: Mapping[str, Any]
    at: datetime
    """In local time."""
    outcome: str
    happened: str

    @classmethod
    def parse(cls, line: bytes) -> LoggedExchange:
        """Read a line; raises one of FAULTS if it is none of a log."""
        entry = escape_invisible(decode(line))  # because a name may contain control sequences of a terminal
        at = datetime.fromisoformat(entry["time"]).astimezone()
        outcome = entry["outcome"] if entry["outcome"] in OUTCOMES else ""
        return cls(entry, at, outcome, summarize_report(entry).removeprefix(f"{LEFT_ALONE}: ") or NOTHING_CHANGED)

    def get_text(self, key: str) -> str:
        """Return a text of the entry; empty if it has none."""
        return str(self.entry.get(key) or "")

    @property
    def look(self) -> Look:
        return OUTCOMES[self.outcome]


class LogTail:
    """Reads what is new in a log, also where it was moved away and begun anew, or emptied."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stats, self.left_alone = Stats(), 0
        """The figures of all that was read."""
        self.faulty = 0
        """Lines that are none of a log."""
        self._file: BinaryIO | None = None
        self._rest = b""
        """The beginning of a line that is not whole yet."""

    def read(self) -> list[LoggedExchange]:
        """Read the exchanges that ended since it was asked last; raises OSError.

        Where more was written than is read at once, those at its end.
        """
        exchanges = [*self._read_lines()]
        if self._has_new_file():
            self.close()
            self._file = self.path.open("rb")
            exchanges += self._read_lines()
        return exchanges

    def _count_exchange(self, exchange: LoggedExchange) -> LoggedExchange:
        if exchange.outcome == LEFT_ALONE:
            self.left_alone += 1
        else:
            self.stats.add(exchange.entry)
        return exchange

    def close(self) -> None:
        if self._file:
            self._file.close()
        self._file, self._rest = None, b""

    def _has_new_file(self) -> bool:
        """True if the file of this name is not the one that is read."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False  # moved away: the next exchange begins a new one
        if self._file is None:
            return True
        here = os.fstat(self._file.fileno())
        return (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino) or there.st_size < self._file.tell()

    def _read_lines(self) -> Iterator[LoggedExchange]:
        if self._file is None:
            return
        size, at = os.fstat(self._file.fileno()).st_size, self._file.tell()
        skipped = size - at > MAX_READ_BYTES
        if skipped:
            self._file.seek(size - MAX_READ_BYTES)
            self._rest = b""
        *lines, self._rest = (self._rest + self._file.read(MAX_READ_BYTES)).split(b"\n")
        for line in lines[skipped:]:  # it begins in the middle of one
            if not line.strip():
                continue
            try:
                yield self._count_exchange(LoggedExchange.parse(line))
            except PARSE_ERRORS:
                self.faulty += 1
        if len(self._rest) > MAX_READ_BYTES:
            self.faulty, self._rest = self.faulty + 1, b""
