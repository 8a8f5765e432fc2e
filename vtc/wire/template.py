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

    __slots__ = ("passes", "waits")

    def __init__(self, template: Template, watched: str) -> None:
        said, white = _patterns(watched)
        self.passes = _telling(template, said)
        """Of a frame that may leave: one whose text ends in anything but white space and `>`, behind which a line may
        still begin."""
        self.waits = _telling(template, white)
        """Of a frame that may leave as soon as one of those follows: one that says nothing but white space."""


def _telling(template: Template, text: re.Pattern[bytes]) -> Telling:
    # Asked for each chunk of a reply: nothing is looked up here that need not be.
    before, after, fullmatch = template.before, template.after, text.fullmatch
    start, behind = len(before), len(after)

    def tell(chunk: bytes) -> bool:
        if chunk.startswith(before) and chunk.endswith(after):
            return fullmatch(chunk, start, len(chunk) - behind) is not None
        return False

    return tell


_ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}


@lru_cache(maxsize=256)
def _patterns(watched: str) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """What the text of a frame that passes, and of one that waits, is written with."""
    # Of what is no ASCII the first byte is enough to go by.
    bytes_ = {0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in watched)}
    plain = b"[^%b]*" % b"".join(b"\\x%02x" % byte for byte in sorted(bytes_))
    escaped = b"|".join(re.escape(written) for one, written in _ESCAPES.items() if one not in watched) or b"(?!)"
    said = b'(?=[^"])%b(?:(?:%b)%b)*(?<![ >])(?<!\\\\[nt])' % (plain, escaped, plain)
    white = b"|".join(written for one, written in ((" ", b" "), ("\n", rb"\\n"), ("\t", rb"\\t")) if one not in watched)
    return re.compile(said), re.compile(b"(?:%b)+" % (white or b"(?!)"))
