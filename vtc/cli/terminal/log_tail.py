"""Read new lines of a log of exchanges (`vtc_log`) as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from vtc.json_text import decode_json
from vtc.proxy.showing.stats import Stats
from vtc.reporting import LEFT_ALONE, OUTCOMES, Look, summarize_report
from vtc.scrub import escape_invisible

MAX_READ_BYTES = 4 << 20
"""Maximum number of bytes that one read takes, from the end of the log, because a log can be very large."""
PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""Errors that `LoggedExchange.parse` can raise for a line that is not of a log."""
NOTHING_CHANGED = "nothing was changed"


@dataclass(frozen=True, slots=True)
class LoggedExchange:
    """One line of a log."""

    entry: Mapping[str, Any]
    at: datetime
    """Time of the entry, in the local time zone."""
    outcome: str
    """A key of `OUTCOMES`."""
    summary: str
    """The report in one line."""

    @classmethod
    def parse(cls, line: bytes) -> LoggedExchange:
        """Parse a line; raise one of `PARSE_ERRORS` if it is not a line of a log."""
        entry = escape_invisible(decode_json(line))  # a name can contain control sequences of a terminal
        at = datetime.fromisoformat(entry["time"]).astimezone()
        outcome = entry["outcome"] if entry["outcome"] in OUTCOMES else ""
        return cls(entry, at, outcome, summarize_report(entry).removeprefix(f"{LEFT_ALONE}: ") or NOTHING_CHANGED)

    def get_text(self, key: str) -> str:
        """Return a field of the entry as text; empty if it is missing."""
        return str(self.entry.get(key) or "")

    @property
    def look(self) -> Look:
        return OUTCOMES[self.outcome]


class LogTail:
    """Reader of the new lines of a log, even if the log was rotated or truncated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stats, self.left_alone = Stats(), 0
        """Figures of all lines so far; `left_alone` counts the exchanges that VTC did not process."""
        self.faulty = 0
        """Number of invalid lines."""
        self._file: BinaryIO | None = None
        self._partial_line = b""
        """Start of a line whose end is not written yet."""

    def read(self) -> list[LoggedExchange]:
        """Return the exchanges that ended since the last call; raise OSError.

        If more than `MAX_READ_BYTES` were written, only the exchanges at the end are returned.
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
        self._file, self._partial_line = None, b""

    def _has_new_file(self) -> bool:
        """Return True if the path is another file than the open one, or if the open file was truncated."""
        try:
            current = self.path.stat()
        except FileNotFoundError:
            return False  # renamed; the next exchange creates a new file
        if self._file is None:
            return True
        opened = os.fstat(self._file.fileno())
        is_other = (opened.st_dev, opened.st_ino) != (current.st_dev, current.st_ino)
        return is_other or current.st_size < self._file.tell()

    def _read_lines(self) -> Iterator[LoggedExchange]:
        """Read the open file to its end and parse the complete lines."""
        if self._file is None:
            return
        size, at = os.fstat(self._file.fileno()).st_size, self._file.tell()
        starts_inside_line = size - at > MAX_READ_BYTES
        if starts_inside_line:
            self._file.seek(size - MAX_READ_BYTES)
            self._partial_line = b""
        *lines, self._partial_line = (self._partial_line + self._file.read(MAX_READ_BYTES)).split(b"\n")
        for line in lines[starts_inside_line:]:  # omits the cut-off first line
            if not line.strip():
                continue
            try:
                yield self._count_exchange(LoggedExchange.parse(line))
            except PARSE_ERRORS:
                self.faulty += 1
        if len(self._partial_line) > MAX_READ_BYTES:
            self.faulty, self._partial_line = self.faulty + 1, b""
