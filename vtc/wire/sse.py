r"""Server-sent events at byte level (WHATWG HTML, section 9.2 "Server-sent events").

A frame consists of the lines up to and including a blank one; LF, CRLF and CR end lines. Some servers omit the blank
lines, so a data line with a complete JSON object before more data is a separate frame, and its blank line is added.

    event: ping\n                  b"event: ping\ndata: {\"a\":1}\n\n"   is `raw`
    data: {"a":1}\n                b'{"a":1}'                            is `data`
    \n
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vtc.json_text import decode_json, encode_line
from vtc.wire.framing import MAX_FRAME_BYTES, Frame, FrameTooLong

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_EVENT = b"event:"
_LF = 10
_CR = 13  # searching for the number is ten times faster than for b"\r"

_LINES_BEFORE_DATA = rb"(?:(?!data:)[^\r\n]+(?:\r\n?|\n))*+data:"
_DATA_LINE = rb"%b([^\r\n]*+)(\r\n?|\n)" % _LINES_BEFORE_DATA
_DATA_BEFORE_DATA = re.compile(rb"%b(?=%b)" % (_DATA_LINE, _LINES_BEFORE_DATA))  # used with match
"""Matches the first data line and the lines before it, if another data line follows without a blank line."""
_NEXT_DATA = b"\ndata:"
_LINE_END = re.compile(rb"\r\n?|\n")
# The last byte of one line end and all of the next; CR LF alone is a single line end.
_FRAME_END = re.compile(rb"\n\n|\n\r\n?|\r\r\n?")


def select_other_lines(raw: bytes) -> bytes:
    """Return the lines of a frame except data and blank ones (`event:`, `id:`, comments …), with their line ends."""
    lines = (line for line in raw.splitlines(keepends=True) if line.strip(b"\r\n") and not _is_data(line))
    return b"".join(line if line.endswith((b"\r", b"\n")) else line + b"\n" for line in lines)


def select_event_lines(lines: bytes) -> bytes:
    """Return only the `event:` lines."""
    return b"".join(line for line in lines.splitlines(keepends=True) if _split_field(line)[0] == b"event")


class EventReader:
    """Splits a body into frames as it arrives.

    A frame is returned by the `feed` that adds its last byte, except if its blank line is a CR: the next byte may be
    the LF of a CRLF. A byte order mark at the start is a separate frame.
    """

    def __init__(self) -> None:
        self.buffered = bytearray()
        """The bytes of the incomplete frame."""
        self._searched = 0  # `buffered` has no frame end before this position
        # True if a data line after the first one in `buffered` continues it, because it is not a complete object.
        self._rest_is_one_frame = False
        self._at_start = True
        self._omits_blank_lines = False  # the server omits blank lines between frames

    def feed(self, chunk: bytes) -> list[Frame]:
        """Add the next bytes of the body; return the frames that they complete.

        Raises `FrameTooLong` after `MAX_FRAME_BYTES` of one frame, without adding the chunk.
        """
        # Fast path: most servers send exactly one event per chunk.
        is_one_frame = chunk.find(b"\n\n") == len(chunk) - 2 > 0 and chunk[0] != _LF and _CR not in chunk
        if is_one_frame and not (self.buffered or self._at_start):
            cut = [chunk]
        else:
            cut = self._cut_frames(chunk)
        frames: list[Frame] = []
        for raw in cut:
            # Nearly all frames are one data line, optionally after an `event:` line.
            start = raw.find(b"\n") + 1 if raw[:6] == _EVENT else 0
            end = raw.find(b"\n", start)
            if raw[start : start + 6] == _DATA and end == len(raw) - 2 and _CR not in raw:
                frames.append(Frame(raw, raw[start + 6 : end]))
            else:
                frames += _split_frames(raw)
        return frames

    def _cut_frames(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes; return the bytes of the frames that they complete."""
        if len(self.buffered) > MAX_FRAME_BYTES:
            raise FrameTooLong(f"a frame is longer than {MAX_FRAME_BYTES >> 20} MiB")
        # Step 1: Add the chunk, and split off a byte order mark at the start of the body.
        buffer = self.buffered
        buffer += chunk
        frames: list[bytes] = []
        start = 0
        if self._at_start:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                return frames
            self._at_start = False
            if buffer.startswith(_BOM):
                frames.append(_BOM)
                start = len(_BOM)
        # Step 2: Cut at blank lines. A CR at the end may be half a CRLF, so it does not end a frame yet.
        searched, has_cr = max(start, self._searched), _CR in buffer
        while True:
            if has_cr:
                match = _LINE_END.match(buffer, start) or _FRAME_END.search(buffer, searched)
                end = match.end() if match else 0
            elif buffer.startswith(b"\n", start):
                end = start + 1
            else:  # for a frame of megabytes ten times faster than the expression
                end = buffer.find(b"\n\n", searched) + 2
                if end < 2:
                    end = 0
            if not end or (end == len(buffer) and buffer.endswith(b"\r")):
                break
            frames.append(bytes(buffer[start:end]))
            start = searched = end
        # Step 3: In the incomplete rest, cut between data lines if the server omits blank lines.
        self._rest_is_one_frame = self._rest_is_one_frame and not start
        has_second_data = buffer.find(_NEXT_DATA, max(start, self._searched - len(_NEXT_DATA))) >= 0
        if has_second_data and not self._rest_is_one_frame:  # rare, because nearly all frames have one data line
            while run_on := _match_run_on(buffer, start):
                self._omits_blank_lines = True
                frames.append(run_on.frame)
                start = run_on.end
            self._rest_is_one_frame = _DATA_BEFORE_DATA.match(buffer, start) is not None
        # Step 4: Keep the rest. A frame end may begin in its last two bytes; the others need not be searched again.
        del buffer[:start]
        self._searched = max(0, len(buffer) - 2)
        return frames

    def finish(self) -> list[Frame]:
        """End the body; return the remaining bytes as the last frame, if there are any (idempotent)."""
        raw = bytes(self.buffered)
        self.buffered.clear()
        self._searched = 0
        self._at_start = False
        if self._omits_blank_lines and raw:
            raw = _close_event(raw)
        return _split_frames(raw) if raw else []


class _RunOn(NamedTuple):
    """A frame that another one follows without a blank line."""

    frame: bytes
    """Its bytes and the blank line that it lacked."""
    end: int
    """The position after its last line in the searched bytes."""


def _match_run_on(lines: bytes | bytearray, start: int) -> _RunOn | None:
    """Return the first frame if its data line is a complete object and more data follow without a blank line."""
    has_data = lines.find(b"data:", start) >= 0  # for lines of megabytes ten times faster than the expression
    match = _DATA_BEFORE_DATA.match(lines, start) if has_data else None
    if not match:
        return None
    try:
        is_object = isinstance(decode_json(bytes(match[1]).replace(b"[DONE]", b"{}")), dict)
    except ValueError:
        return None
    return _RunOn(bytes(match[0] + match[2]), match.end()) if is_object else None


def _split_frames(raw: bytes) -> list[Frame]:
    """Split lines up to a blank one into frames, usually one; several if the server omits blank lines."""
    frames: list[Frame] = []
    start = 0
    while run_on := _match_run_on(raw, start):
        frames.append(Frame(run_on.frame, _read_data(run_on.frame)))
        start = run_on.end
    rest = raw[start:]
    return [*frames, Frame(rest, _read_data(rest))]


def _close_event(raw: bytes) -> bytes:
    """Add a blank line to the last lines if they are a complete frame."""
    end = b"\r\n" if raw.endswith(b"\r\n") else b"\n"
    lines = raw.rstrip(b"\r\n") + end
    return lines + end if _match_run_on(lines + b"data:", 0) else raw


def _read_data(raw: bytes) -> bytes | None:
    """Return the data of a frame; None if it has no data line."""
    values = [_split_field(line)[1] for line in raw.splitlines() if _is_data(line)]
    return b"\n".join(values) if values else None


def _is_data(line: bytes) -> bool:
    return _split_field(line)[0] == b"data"


def _split_field(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into its field name and its value; a comment's name is empty."""
    name, _, value = line.partition(b":")
    return name.rstrip(b"\r\n"), value.removeprefix(b" ")


_DATA_OR_BRACE = re.compile(rb"data:|\{")
"""Finds possible data in lines that are no data lines."""
_ODD_LINE_END = re.compile("[\u2028\u2029\x85]\\s*data:".encode())
"""Finds a data line after a Unicode line end, which only some clients split at."""
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")  # used with match
"""Matches the beginning of a stream of server-sent events, and of no JSON."""


class EventStream:
    """The framing of server-sent events.

    `named_by` is the key of the data that also names the event (`event: message_stop`), for APIs that name each event;
    without it a new frame repeats the event line of the frame that it replaces. `last` is the frame that ends a stream.
    """

    media_type = "text/event-stream"
    end = b"\n\n"

    def __init__(self, named_by: str = "", last: bytes = b"") -> None:
        self._named_by = named_by
        self.last = last

    def make_reader(self) -> EventReader:
        return EventReader()

    def matches(self, body: bytes) -> bool:
        return _BEGINNING.match(body) is not None

    def is_unambiguous(self, frame: Frame) -> bool:
        """True if no client finds data outside the data lines; clients differ in the characters that end a line."""
        return _DATA_OR_BRACE.search(select_other_lines(frame.raw)) is None and _ODD_LINE_END.search(frame.raw) is None

    def is_cut_off(self, frame: Frame) -> bool:
        """True if the body ended without a blank line, in data that are neither JSON nor `[DONE]`.

        A missing blank line alone is no sign, because some servers omit the last one.
        """
        if not frame.raw.splitlines()[-1]:
            return False
        try:
            decode_json((frame.data or b"").replace(b"[DONE]", b"0"))
        except ValueError:
            return True
        return False

    def encode(
        self, values: Iterable[Mapping[str, Any]], like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Encode events; the first one that replaces another repeats its `id:`, `retry:` and comments."""
        lines = select_other_lines(like.raw) if like is not None and not like.raw.startswith(_DATA) else b""
        event_lines = select_event_lines(lines) if lines else b""
        if self._named_by:  # the value names its event
            lines, event_lines = lines.replace(event_lines, b""), b""
        out: list[bytes] = []
        for value in values:
            kind = value.get(self._named_by)
            name = b"event: %b\n" % str(kind).encode(errors="replace") if kind is not None else b""
            repeated = event_lines if out or not first else lines
            out.append(repeated + name + b"data: " + encode_line(value) + b"\n\n")
        return out
