"""Frames that are alike but for a text.

    data: {"id": …, "choices": [{"index": 0, "delta": {"content": "   word   "}, "finish_reason": null}]}
    `before` ……………………………………………………………………………………………………………………   text   …………………………………………… `after`

Nearly all chunks of a streamed reply are such frames. What one of them says, and whether it may leave as it came, can
be told without decoding the rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

_decode = msgspec.json.Decoder(str).decode


class Template(msgspec.Struct, frozen=True, gc=False):
    """What stands before and behind the characters of a JSON string, up to the frame's ends."""

    before: bytes
    after: bytes

    def text(self, frame: bytes) -> str | None:
        """What a frame of this kind says; None of any other."""
        if not (frame.startswith(self.before) and frame.endswith(self.after)):
            return None
        try:
            return _decode(frame[len(self.before) - 1 : len(frame) - len(self.after) + 1])
        except (msgspec.DecodeError, UnicodeError):
            return None

    def with_text(self, text: str) -> bytes:
        """The frame of this kind that says this."""
        return self.before + msgspec.json.encode(text)[1:-1] + self.after


type Telling = Callable[[bytes], bool]
"""Whether bytes are a frame, whole, of a certain kind."""


class Unread:
    """Frames of one kind that nobody has to read as long as they hold none of the characters watched for."""

    __slots__ = ("_before", "passes", "waits")

    def __init__(self, template: Template, watched: str) -> None:
        odd, said, white = _patterns(watched)
        self._before = template.before
        self.passes = _telling(template, odd, said)
        """Of a frame that may leave: one whose text ends in anything but white space and `>`, behind which a line may
        still begin."""
        self.waits = _telling(template, _ANY, white)
        """Of a frame that may leave as soon as one of those follows: one that says nothing but white space."""

    def begins(self, chunk: bytes) -> bool:
        """Whether bytes are the beginning of a frame of the kind, or of one of another kind that begins like it."""
        alike = chunk.startswith(self._before) or (bool(chunk) and self._before.startswith(chunk))
        return alike and b"\n\n" not in chunk and b"\r" not in chunk


def _telling(template: Template, odd: re.Pattern[bytes], text: re.Pattern[bytes]) -> Telling:
    """Of a frame whose text is written as `text` says, which is looked at only where something in it is `odd`."""
    # Asked for each chunk of a reply. Slices are compared faster than a method is called.
    before, after, search, fullmatch = template.before, template.after, odd.search, text.fullmatch
    start, behind = len(before), len(after)

    def tell(chunk: bytes) -> bool:
        end = len(chunk) - behind
        if start < end and chunk[:start] == before and chunk[end:] == after:
            plain = chunk[end - 1] not in _NO_END and search(chunk, start, end) is None
            return plain or fullmatch(chunk, start, end) is not None
        return False

    return tell


_NO_END = b" >"
_ANY = re.compile(b"")
_ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}


@lru_cache(maxsize=256)
def _patterns(watched: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Finds what needs a closer look; what the text of a frame that passes, and of one that waits, is written with."""
    # Of what is no ASCII the first byte is enough to go by.
    bytes_ = {0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in watched)}
    odd = b"".join(b"\\x%02x" % byte for byte in sorted(bytes_))
    escaped = b"|".join(re.escape(written) for one, written in _ESCAPES.items() if one not in watched) or b"(?!)"
    said = b"[^%b]*(?:(?:%b)[^%b]*)*(?<![%b])(?<!\\\\[nt])" % (odd, escaped, odd, _NO_END)
    white = b"|".join(written for one, written in ((" ", b" "), ("\n", rb"\\n"), ("\t", rb"\\t")) if one not in watched)
    return re.compile(b"[%b]" % odd), re.compile(said), re.compile(b"(?:%b)+" % (white or b"(?!)"))
