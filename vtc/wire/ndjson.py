r"""Newline-delimited JSON: every line is one JSON value (`application/x-ndjson`).

    {"message": {"content": "Hi"}, "done": false}\n        is `raw`; without its line end it is `data`

A blank line is a frame without data. The last line may lack its line end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vtc.json_text import decode_json, encode_line
from vtc.wire.framing import MAX_FRAME_BYTES, Frame, FrameTooLong


class LineReader:
    """Splits a body into lines as it arrives; a line ends with LF or CRLF."""

    def __init__(self) -> None:
        self.buffered: list[bytes] = []
        """The pieces of the incomplete line."""
        self._size = 0

    def feed(self, chunk: bytes) -> list[Frame]:
        """Add the next bytes; return the lines that they complete. Raises `FrameTooLong`."""
        if self._size > MAX_FRAME_BYTES:
            raise FrameTooLong(f"a line is longer than {MAX_FRAME_BYTES >> 20} MiB")
        *whole, rest = chunk.split(b"\n")
        if not whole:
            if rest:
                self.buffered.append(rest)
                self._size += len(rest)
            return []
        whole[0] = b"".join([*self.buffered, whole[0]])
        self.buffered, self._size = [rest] if rest else [], len(rest)
        return [Frame(line + b"\n", line.strip() or None) for line in whole]

    def finish(self) -> list[Frame]:
        """Return a last line that lacks its line end, if there is one (idempotent)."""
        line, self.buffered, self._size = b"".join(self.buffered), [], 0
        return [Frame(line, line.strip() or None)] if line else []


class Lines:
    """The framing of newline-delimited JSON."""

    media_type = "application/x-ndjson"
    end = b"\n"
    last = b""

    def make_reader(self) -> LineReader:
        return LineReader()

    def matches(self, body: bytes) -> bool:
        """True if a body has more than one line of JSON, because one line may be a reply that is not streamed."""
        return body.strip().find(b"\n") >= 0 and body.lstrip().startswith(b"{")

    def is_unambiguous(self, frame: Frame) -> bool:
        """True if no client finds a line end inside this line."""
        return len(frame.raw.decode(errors="replace").splitlines()) <= 1

    def is_cut_off(self, frame: Frame) -> bool:
        """True if the last line has no line end and is not valid JSON."""
        if frame.raw.endswith(b"\n"):
            return False
        try:
            decode_json(frame.data or b"null")
        except ValueError:
            return True
        return False

    def encode(
        self, values: Iterable[Mapping[str, Any]], like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        return [encode_line(value) + b"\n" for value in values]
