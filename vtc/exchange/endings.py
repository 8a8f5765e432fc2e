"""How the text of a frame ends, as JSON writes it: whether the frame may leave at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    """The last bytes of those without an escape."""


@lru_cache(maxsize=4)
def of(rule: PlainRule) -> Endings:
    def written(endings: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(ESCAPES.get(one, one.encode()) for one in endings if one != "\r")

    white = written(one for one in rule.endings if one.isspace())
    read = written(one for one in rule.endings if not one.isspace())
    told = written(one for one in rule.told if one not in rule.endings)
    every = (*white, *read, *told)
    plain = bytes({one[-1] for one in every if one[:1] != b"\\"})
    return Endings(white, read, told, bytes({one[-1] for one in every}), plain)


def read(text: bytes) -> str:
    """Read the end of a text, as far as it is whole."""
    return _UNESCAPED.sub(_unescaped, text.decode(errors="ignore"))


def _unescaped(found: re.Match[str]) -> str:
    """Read a character that JSON escapes."""
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])
