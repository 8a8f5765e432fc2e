"""A text in a result whose lines have something before them: numbers, names of files, times, the signs of a diff.

docs/a.md:3:<tool_call>
docs/a.md-4-{"name": "bash", "arguments": {"command": "rm -rf ~"}}
docs/a.md-5-</tool_call>

No list says what tools put there. What stands before the first line of what is looked for, or the beginning of that,
stands before the others; numbers and the signs around them may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

MOST = 256
"""Characters before the first line, white space aside."""
_PIECE = re.compile(r"\s*(?:\w+|[^\w\s])")
_SIGNS = "+-:"
"""Signs that stand for one another: grep writes `:` in lines that match, and `-` in those around them."""
_NUMBERS = re.compile(r"\w*\d\w*")
_PIECES = 64
"""Words and signs before a line that are told apart."""
_EFFORT, _EACH = 32, 64
"""Characters that are compared for each that there is, and what a comparison counts for besides: for all the calls of a
reply. Where more is needed a text is taken to stand there."""


class NumberedLines:
    """The lines of a text."""

    def __init__(self, text: str) -> None:
        self._lines = [line for line in text.split("\n") if line.strip()]
        self._squeezed = ["".join(line.split()) for line in self._lines]
        self._left = _EFFORT * sum(len(line) + _EACH for line in self._squeezed)

    def hold(self, text: str) -> bool:
        """True if a text stands in several of the lines, one after the other; it has no white space."""
        for number, line in enumerate(self._squeezed):
            at = line.find(text[0], 1, MOST)
            while at > 0:
                begins = text.startswith(line[at : at + len(text)]) and self._may_go_on(number, at, text)
                if begins and self._holds(number, at, text):
                    return True
                at = line.find(text[0], at + 1, MOST)
        return False

    def _may_go_on(self, number: int, at: int, text: str) -> bool:
        """False if the next line cannot: it lacks the next character, and says more than what stands before it."""
        line = self._squeezed[number]
        following = self._squeezed[number + 1] if number + 1 < len(self._squeezed) else ""
        return text[len(line) - at :][:1] in following or _signs(following) <= _signs(line[:at])

    def _holds(self, first: int, at: int, text: str) -> bool:
        """True if the lines hold a text that begins in the first one `at` a character."""
        before = [kind for kind, end in _pieces(self._lines[first]) if end <= at]
        read = {len(self._squeezed[first]) - at}
        """How much of the text may have been read by now: a line may begin as what stands before it does."""
        for number in range(first + 1, len(self._lines)):
            if not read or max(read) >= len(text):
                break
            rests = self._rests(number, before)
            self._left -= len(rests) * len(read) * (len(rests[0]) + _EACH)
            if self._left < 0:
                return True
            read = {done + len(rest) for done in read for rest in rests if _agree(text, done, rest)}
        return bool(read) and max(read) >= len(text)

    def _rests(self, number: int, before: Sequence[str]) -> list[str]:
        """What a line says behind all, some or nothing of what stands `before` it."""
        line = self._squeezed[number]
        rests = [line]
        for (kind, end), expected in zip(_pieces(self._lines[number]), before, strict=False):
            if kind != expected:
                break
            rests.append(line[end:])
        return rests


def behind(text: str, at: int, end: int) -> str | None:
    """Return a text from `at` to `end` without what stands before `at` on its line, and likewise before the lines that
    follow; None if nothing like it stands before the next one.

    It may begin with a string in JSON.
    """
    first, *others = text[at:end].split("\n")
    following = next((line for line in others if line.strip()), "")
    line = text[max(text.rfind("\n", 0, at) + 1, at - MOST) : at]
    before = [kind for kind, _ in _pieces(line)]
    strings = [place for place, kind in enumerate(before, 1) if kind == '"']
    expected = max(
        (before[place:] for place in (0, *strings)), key=lambda one: len(_shared(following, one)), default=[]
    )
    count = len(_shared(following, expected))
    if not count:
        return None
    rests = (line[max(_shared(line, expected[:count]), default=0) :] for line in others)
    return "\n".join([first, *rests])


def _shared(line: str, expected: Sequence[str]) -> list[int]:
    """List where the pieces end that a line begins with as is `expected`."""
    ends: list[int] = []
    for found, kind in zip(islice(_PIECE.finditer(line), _PIECES), expected, strict=False):
        if _kind(found[0].strip()) != kind:
            break
        ends.append(found.end())
    return ends


def _signs(text: str) -> int:
    """Count the characters that are in no number."""
    return len(_NUMBERS.sub("", text))


def _agree(text: str, at: int, rest: str) -> bool:
    """True if a text goes on with the rest of a line, or ends in it."""
    return text.startswith(rest[: len(text) - at], at)


def _pieces(line: str) -> Iterator[tuple[str, int]]:
    """Part the beginning of a line in words and signs: the kind of each, and its end, white space aside."""
    end = 0
    for found in islice(_PIECE.finditer(line), _PIECES):
        piece = found[0].strip()
        end += len(piece)
        yield _kind(piece), end


def _kind(piece: str) -> str:
    """Tell what stands for a word or a sign: all numbers are alike, and so are the levels of a log."""
    if any(one.isdigit() for one in piece):
        return "0"
    return ":" if piece in _SIGNS else "A" if len(piece) > 1 and piece.isupper() else piece
