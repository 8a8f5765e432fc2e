"""The text of a frame as JSON writes it: what it may hold, and how it may end, for the frame to leave at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from vtc.dialects.reading.reader import PlainRule

ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}
_UNESCAPED = re.compile(r"\\(.)")


class Endings(NamedTuple):
    """Endings of texts, as JSON writes them, with which a frame does not leave at once."""

    white: tuple[bytes, ...]
    """It waits for the next one."""
    read: tuple[bytes, ...]
    """It must be read."""
    told: tuple[bytes, ...]
    """It leaves, and the reader must be told of it."""
    last: bytes
    """The last bytes of all of them."""
    plain: bytes
    """The last bytes of those without an escape; but for `POINTS`, which are of a number or none."""


POINTS = b".,"
"""What may part a number: most end a clause."""
DIGITS = b"0123456789"


@lru_cache(maxsize=4)
def of(rule: PlainRule) -> Endings:
    def written(endings: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(ESCAPES.get(one, one.encode()) for one in endings if one != "\r")

    white = written(one for one in rule.endings if one.isspace())
    read = written(one for one in rule.endings if not one.isspace())
    told = written(one for one in rule.told if one not in rule.endings)
    every = (*white, *read, *told)
    plain = bytes({one[-1] for one in every if one[:1] != b"\\" and one[-1] not in POINTS})
    return Endings(white, read, told, bytes({one[-1] for one in every}), plain)


def read(text: bytes) -> str:
    """Read the end of a text, as far as it is whole."""
    return _UNESCAPED.sub(_unescaped, text.decode(errors="ignore"))


def _unescaped(found: re.Match[str]) -> str:
    """Read a character that JSON escapes."""
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])


LINE = rb" {0,3}(?:\\t|>)|    "
_MIDDLE = rb'(?:(?= ?>| [ "]| ?\\t)(?P<odd>))?'


@lru_cache(maxsize=256)
def odd(stop: str) -> Callable[[bytes, int, int], re.Match[bytes] | None]:
    """Compile what finds a byte in a text that needs a closer look."""
    bytes_ = sorted({0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in stop)})
    return re.compile(b"[%b]" % b"".join(rb"\x%02x" % byte for byte in bytes_)).search


def text_without(stop: str, *, lines: bool) -> bytes:
    """Write the expression for a text without some characters, of one character at least.

    With `lines`, no line may begin in it as code or a quotation does. That may be spread over texts, so it is noted
    where one begins like the middle of such a beginning.
    """
    beginnings: dict[int, list[bytes]] = {}  # of characters in UTF-8, and what follows
    for character in stop:
        first, *rest = character.encode()
        beginnings.setdefault(first, []).append(bytes(rest))
    odd = b"".join(rb"\x%02x" % byte for byte in sorted({0x22, 0x5C, *range(0x20), *beginnings}))
    others = [re.escape(written) for one, written in ESCAPES.items() if one not in stop] if stop else [rb"\\."]
    if lines:
        others = [rb'\\n(?!%b|   ")' % LINE if one == rb"\\n" else one for one in others]
    for first, rests in beginnings.items():
        if all(rests):
            others.append(rb"\x%02x(?!%b)" % (first, b"|".join(map(re.escape, rests))))
    middle = _MIDDLE if lines else b"(?P<odd>(?!))?"
    return rb'(?!")%b[^%b]*+(?:(?:%b)[^%b]*+)*+' % (middle, odd, b"|".join(others), odd)
