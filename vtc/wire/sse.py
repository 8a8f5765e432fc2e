r"""Server-sent events at byte level (WHATWG HTML, section 9.2 "Server-sent events").

A frame is the lines up to and including a blank one; LF, CRLF and CR end lines. Some servers leave the blank lines out:
a line of data that is a whole JSON value, with more data after it, is a frame of its own, and gets its blank line.

    event: ping\n                  b"event: ping\ndata: {\"a\":1}\n\n"   is `raw`
    data: {"a":1}\n                b'{"a":1}'                            is `data`
    \n
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vtc.json_text import decode, encode_line
from vtc.wire.framing import MAX_FRAME_BYTES, Frame, FrameTooLong

_BOM = b"\xef\xbb\xbf"
_DATA = b"data: "
_EVENT = b"event:"
_LF = 10
_CR = 13  # as a number it is found ten times as fast as b"\r"

_OTHERS = rb"(?:(?!data:)[^\r\n]+(?:\r\n?|\n))*+data:"
_RUN_ON = re.compile(rb"%b([^\r\n]*+)(\r\n?|\n)(?=%b)" % (_OTHERS, _OTHERS))  # used with match
"""Matches the lines of a frame that more data follow without a blank line."""
_NEXT_DATA = b"\ndata:"
_LINE_END = re.compile(rb"\r\n?|\n")
# The last byte of one line end and the whole of the next; CR LF alone is one line end.
_FRAME_END = re.compile(rb"\n\n|\n\r\n?|\r\r\n?")


def select_other_lines(raw: bytes) -> bytes:
    """Return the lines of a frame but data and the blank one (`event:`, `id:`, comments …), each with its end."""
    lines = (line for line in raw.splitlines(keepends=True) if line.strip(b"\r\n") and not _is_data(line))
    return b"".join(line if line.endswith((b"\r", b"\n")) else line + b"\n" for line in lines)


def select_event_lines(lines: bytes) -> bytes:
    """Keep the lines that name the kind of event."""
    return b"".join(line for line in lines.splitlines(keepends=True) if _split_field(line)[0] == b"event")


class EventReader:
    """Cuts a body into frames as it arrives.

    A frame is delivered by the `feed` that brings its last byte. Only a blank line written as CR waits for
    the byte after it, which may be the LF of a CRLF. A byte order mark at the start is a frame of its own.
    """

    def __init__(self) -> None:
        self.buffered = bytearray()
        """The bytes of a frame that has only begun."""
        self._searched = 0  # no frame ends in the part of `held` before this
        self._is_one = False  # the lines of `held` are of one frame: the first data are no object
        self._at_start = True
        self._runs_on = False  # no blank lines stand between frames

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes of the body; return the frames that they complete.

        Raises `FrameTooLong` after `MOST_HELD` bytes of a frame, and then has not taken the chunk.
        """
        is_one = chunk.find(b"\n\n") == len(chunk) - 2 > 0 and chunk[0] != _LF and _CR not in chunk
        frames: list[Frame] = []
        # Most servers send one whole event a chunk.
        for raw in [chunk] if is_one and not (self.buffered or self._at_start) else self._cut_frames(chunk):
            # Nearly all are one data line, after one that names the event or none.
            start = raw.find(b"\n") + 1 if raw[:6] == _EVENT else 0
            end = raw.find(b"\n", start)
            if raw[start : start + 6] == _DATA and end == len(raw) - 2 and _CR not in raw:
                frames.append(Frame(raw, raw[start + 6 : end]))
            else:
                frames += _split_frames(raw)
        return frames

    def _cut_frames(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the frames that they complete, each with all its bytes."""
        if len(self.buffered) > MAX_FRAME_BYTES:
            raise FrameTooLong(f"a frame is longer than {MAX_FRAME_BYTES >> 20} MiB")
        held = self.buffered
        held += chunk
        frames: list[bytes] = []
        start = 0
        if self._at_start:
            if len(held) < len(_BOM) and _BOM.startswith(held):
                return frames
            self._at_start = False
            if held.startswith(_BOM):
                frames.append(_BOM)
                start = len(_BOM)
        searched, has_cr = max(start, self._searched), _CR in held
        while True:
            if has_cr:
                match = _LINE_END.match(held, start) or _FRAME_END.search(held, searched)
                end = match.end() if match else 0
            else:  # of a frame of megabytes in a tenth of the time
                at = held.find(b"\n\n", searched)
                end = start + 1 if held.startswith(b"\n", start) else at + 2 if at >= 0 else 0
            if not end or (end == len(held) and held.endswith(b"\r")):
                break
            frames.append(bytes(held[start:end]))
            start = searched = end
        self._is_one = self._is_one and not start
        follows = held.find(_NEXT_DATA, max(start, self._searched - len(_NEXT_DATA))) >= 0
        if follows and not self._is_one:  # seldom: all others are one line
            while begun := _match_run_on(held, start):
                self._runs_on = True
                frames.append(begun.frame)
                start = begun.end
            self._is_one = _RUN_ON.match(held, start) is not None
        del held[:start]
        # A frame's end may have begun in the last two bytes; the rest was searched in vain.
        self._searched = max(0, len(held) - 2)
        return frames

    def finish(self) -> list[Frame]:
        """End the body: return what is left as the last frame, if anything is. May be called again."""
        raw = bytes(self.buffered)
        self.buffered.clear()
        self._searched = 0
        self._at_start = False
        if self._runs_on and raw:
            raw = _close_event(raw)
        return _split_frames(raw) if raw else []


class _RunOn(NamedTuple):
    """A frame with its blank line, which it came without, and where its lines end."""

    frame: bytes
    end: int


def _match_run_on(lines: bytes | bytearray, start: int) -> _RunOn | None:
    """Return the first frame of some lines if more data follow without a blank line."""
    match = _RUN_ON.match(lines, start)
    if not match:
        return None
    try:
        whole = isinstance(decode(bytes(match[1]).replace(b"[DONE]", b"{}")), dict)
    except ValueError:
        return None
    return _RunOn(bytes(match[0] + match[2]), match.end()) if whole else None


def _split_frames(raw: bytes) -> list[Frame]:
    """Part lines into the frames that they are."""
    frames: list[Frame] = []
    start = 0
    while begun := _match_run_on(raw, start):
        frames.append(Frame(begun.frame, _read_data(begun.frame)))
        start = begun.end
    rest = raw[start:]
    return [*frames, Frame(rest, _read_data(rest))]


def _close_event(raw: bytes) -> bytes:
    """End the last lines by a blank one, if they are whole."""
    end = b"\r\n" if raw.endswith(b"\r\n") else b"\n"
    begun = _match_run_on(raw.rstrip(b"\r\n") + end + b"data:", 0)
    return raw.rstrip(b"\r\n") + end + end if begun else raw


def _read_data(raw: bytes) -> bytes | None:
    """Return the data of a whole frame; None if it has no data line."""
    values = [_split_field(line)[1] for line in raw.splitlines() if _is_data(line)]
    return b"\n".join(values) if values else None


def _is_data(line: bytes) -> bool:
    return _split_field(line)[0] == b"data"


def _split_field(line: bytes) -> tuple[bytes, bytes]:
    """Split a line into its name and its value; a comment's name is empty."""
    name, _, value = line.partition(b":")
    return name.rstrip(b"\r\n"), value.removeprefix(b" ")


_HIDDEN = re.compile(rb"data:|\{")
_ODD_LINE_END = re.compile("[\u2028\u2029\x85]\\s*data:".encode())
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")  # used with match
"""How a stream of server-sent events begins, and no JSON does."""


class EventStream:
    """The framing of server-sent events.

    `named_by` is the key of the data that also names the event (`event: message_stop`), for APIs that name each one;
    without it a new frame has the event line of the frame that it stands for. `last` is a frame that ends a stream.
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
        """True if no client can find data in lines that are none: some end lines where others do not."""
        return _HIDDEN.search(select_other_lines(frame.raw)) is None and _ODD_LINE_END.search(frame.raw) is None

    def is_cut_off(self, frame: Frame) -> bool:
        """True if the body ended without a blank line, in data that are neither JSON nor `[DONE]`.

        Some servers leave out the last blank line.
        """
        if not frame.raw.splitlines()[-1]:
            return False
        try:
            decode((frame.data or b"").replace(b"[DONE]", b"0"))
        except ValueError:
            return True
        return False

    def encode(
        self, values: Iterable[Mapping[str, Any]], like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Make events; the first one made in place of another has its `id:`, `retry:` and comments, too."""
        lines = select_other_lines(like.raw) if like is not None and not like.raw.startswith(_DATA) else b""
        kept = select_event_lines(lines) if lines else b""
        if self._named_by:
            lines, kept = lines.replace(kept, b""), b""
        out: list[bytes] = []
        for value in values:
            name = b"event: %b\n" % str(value[self._named_by]).encode() if self._named_by else b""
            out.append((kept if out or not first else lines) + name + b"data: " + encode_line(value) + b"\n\n")
        return out
