r"""Server-sent events at byte level (WHATWG HTML, section 9.2 "Server-sent events").

A body is cut into frames, each with every byte that it came in, so that a frame nobody changed can leave
byte-identical. A frame is the lines up to and including a blank one; LF, CRLF and CR end lines.

    event: ping\n                  b"event: ping\ndata: {\"a\":1}\n\n"   is `raw`
    data: {"a":1}\n                b'{"a":1}'                            is `data`
    \n

Joining the `raw` of all frames gives the body back, and how the body was cut makes no difference.
"""

from __future__ import annotations

import re

import msgspec

MOST_HELD = 16 * 2**20
"""Bytes without a blank line beyond which a body is no stream of events."""

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_CR = 13  # as a number it is found ten times as fast as b"\r"

_LINE_END = re.compile(rb"\r\n?|\n")
# The last byte of one line end and the whole of the next; CR LF alone is one line end.
_FRAME_END = re.compile(rb"\n\n|\n\r\n?|\r\r\n?")


class FrameTooLong(ValueError):
    """A body that goes on and on without a blank line."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One event, or what stands in its place: comments, a lone blank line, a byte order mark."""

    raw: bytes
    """Every byte, terminator included."""
    data: bytes | None
    """The data lines joined with LF, one leading space removed from each; None if there is no data line."""

    @property
    def others(self) -> bytes:
        """Its lines besides data and the blank one: `event:`, `id:`, `retry:`, comments, each with its line end."""
        lines = (line for line in self.raw.splitlines(keepends=True) if line.strip(b"\r\n") and not _is_data(line))
        return b"".join(line if line.endswith((b"\r", b"\n")) else line + b"\n" for line in lines)


def event_line(lines: bytes) -> bytes:
    """Of some lines those that name the kind of event."""
    return b"".join(line for line in lines.splitlines(keepends=True) if _field(line)[0] == b"event")


class FrameReader:
    """Cuts a body into frames as it arrives.

    A frame is delivered by the `feed` that brings its last byte. Only a blank line written as CR waits for
    the byte after it, which may be the LF of a CRLF. A byte order mark at the start is a frame of its own.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0  # no frame ends in the part of `_held` before this
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes of the body; return the frames that they complete.

        Raises `FrameTooLong` behind `MOST_HELD` bytes of a frame, and then has not taken the chunk.
        """
        # Most servers send one whole event a chunk.
        if not self._held and not self._at_start:
            line, _, rest = chunk.partition(b"\n")
            if rest == b"\n" and line[:6] == _DATA and _CR not in line:
                return [Frame(chunk, line[6:])]
        if len(self._held) > MOST_HELD:
            raise FrameTooLong(f"a frame is longer than {MOST_HELD >> 20} MiB")
        self._held += chunk
        return self._cut_held()

    @property
    def held(self) -> bool:
        """Whether the last bytes that came are no whole frame yet."""
        return bool(self._held)

    def finish(self) -> list[Frame]:
        """End the body: return what is left as the last frame, if anything is. May be called again."""
        raw = bytes(self._held)
        self._held.clear()
        self._searched = 0
        self._at_start = False
        return [Frame(raw, data_of(raw))] if raw else []

    def _cut_held(self) -> list[Frame]:
        held = self._held
        frames: list[Frame] = []
        start = 0
        if self._at_start:
            if len(held) < len(_BOM) and _BOM.startswith(held):
                return frames
            self._at_start = False
            if held.startswith(_BOM):
                frames.append(Frame(_BOM, None))
                start = len(_BOM)
        searched = max(start, self._searched)
        while found := _LINE_END.match(held, start) or _FRAME_END.search(held, searched):
            if found.end() == len(held) and held.endswith(b"\r"):
                break
            raw = bytes(held[start : found.end()])
            frames.append(Frame(raw, data_of(raw)))
            start = searched = found.end()
        del held[:start]
        # A frame's end may have begun in the last two bytes; the rest was searched in vain.
        self._searched = max(0, len(held) - 2)
        return frames


def data_of(raw: bytes) -> bytes | None:
    """The data of a whole frame; None if it has no data line."""
    line, _, rest = raw.partition(b"\n")
    if rest == b"\n" and line[:6] == _DATA and _CR not in line:
        return line[6:]
    values = [_field(line)[1] for line in raw.splitlines() if _is_data(line)]
    return b"\n".join(values) if values else None


def _is_data(line: bytes) -> bool:
    return _field(line)[0] == b"data"


def _field(line: bytes) -> tuple[bytes, bytes]:
    """The name and the value of a line; a comment's name is empty."""
    name, _, value = line.partition(b":")
    return name.rstrip(b"\r\n"), value.removeprefix(b" ")
