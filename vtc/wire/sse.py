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
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "

_LINE_END = re.compile(rb"\r\n?|\n")
# The last byte of one line end and the whole of the next; CR LF alone is one line end.
_FRAME_END = re.compile(rb"\n\n|\n\r\n?|\r\r\n?")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, or what stands in its place: comments, a lone blank line, a byte order mark."""

    raw: bytes
    """Every byte, terminator included."""
    data: bytes | None
    """The data lines joined with LF, one leading space removed from each; None if there is no data line."""

    def with_data(self, data: bytes) -> bytes:
        """This frame's bytes with `data` in place of its data lines; other lines and line endings are kept.

        `data` becomes one `data: ` line, or one for each of its lines. Raises ValueError if the frame has no
        data line to replace.
        """
        lines = self.raw.splitlines(keepends=True)
        is_data = [_field(line)[0] == b"data" for line in lines]
        if True not in is_data:
            raise ValueError("this frame has no data line to replace; check `data is not None` first")
        place = is_data.index(True)
        ending = lines[place][len(lines[place].rstrip(b"\r\n")) :]
        lines[place] = b"data: " + ((ending or b"\n") + b"data: ").join(_LINE_END.split(data)) + ending
        return b"".join(line for i, line in enumerate(lines) if i == place or not is_data[i])


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
        """Take the next bytes of the body; return the frames that they complete."""
        # Most servers send one whole event a chunk.
        if not self._held and not self._at_start and _is_one_line(chunk):
            return [Frame(chunk, chunk[len(_DATA) : -2])]
        self._held += chunk
        return self._cut_held()

    def finish(self) -> list[Frame]:
        """End the body: return what is left as the last frame, if anything is. May be called again."""
        raw = bytes(self._held)
        self._held.clear()
        self._searched = 0
        self._at_start = False
        return [Frame(raw, _data(raw))] if raw else []

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
            frames.append(Frame(raw, _data(raw)))
            start = searched = found.end()
        del held[:start]
        # A frame's end may have begun in the last two bytes; the rest was searched in vain.
        self._searched = max(0, len(held) - 2)
        return frames


def _is_one_line(raw: bytes) -> bool:
    return raw.startswith(_DATA) and raw.endswith(b"\n\n") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw


def _data(raw: bytes) -> bytes | None:
    if _is_one_line(raw):
        return raw[len(_DATA) : -2]
    values = [value for name, value in map(_field, raw.splitlines()) if name == b"data"]
    return b"\n".join(values) if values else None


def _field(line: bytes) -> tuple[bytes, bytes]:
    """The name and the value of a line; a comment's name is empty."""
    name, _, value = line.partition(b":")
    return name.rstrip(b"\r\n"), value.removeprefix(b" ")
