"""Remove text of the conversation from a server's error, because such text could resemble any error.

Both are compared without escapes, with one kind of quotes and single spaces, because servers quote them as JSON or in
Python's notation. Names of fields, tools and models, which VTC looks up in errors, do not count as repeated text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

MIN_REPEATED_CHARACTERS = 24
QUOTED_TEXT = "\n(quoted)\n"
"""Replaces repeated text; it is a word, so that the words around it do not become adjacent."""
_BLOCK_CHARS = MIN_REPEATED_CHARACTERS // 2
"""Each run of `MIN_REPEATED_CHARACTERS` contains a block of this size that begins at a multiple of it."""
_QUOTES = "`'\"“”‘’"
_NORMALIZE = str.maketrans(dict.fromkeys(_QUOTES, "'") | {"\\": None} | dict.fromkeys("\t\r\n\v\f\u00a0", " "))
_NAME = re.compile(r"[\w$./:-]{1,128}")


class SentText:
    """The texts of a sent request."""

    def __init__(self, body: Any, names: Collection[str] = ()) -> None:
        """Set up the comparison; `names` are names outside the body: of the model, of headers and their flags."""
        self.body = body
        self._other_names = names

    def remove_from(self, text: str) -> str:
        """Replace each run of at least `MIN_REPEATED_CHARACTERS` that the request contains, too, by `QUOTED_TEXT`."""
        if len(text) < MIN_REPEATED_CHARACTERS:
            return text
        squeezed, offsets = _squeeze(text)
        kept, at = [], 0
        for begin, end in self._find_runs(squeezed):
            kept += [text[at : offsets[begin]], QUOTED_TEXT]
            at = offsets[end]
        return "".join([*kept, text[at:]])

    def _find_runs(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each run of overlapping windows that the request contains."""
        windows = {text[at : at + MIN_REPEATED_CHARACTERS] for at in range(len(text) - MIN_REPEATED_CHARACTERS + 1)}
        repeated = self._find_repeated(windows)
        run: tuple[int, int] | None = None
        for at in range(len(text)) if repeated else ():
            if text[at : at + MIN_REPEATED_CHARACTERS] in repeated:
                run = run[0] if run and at <= run[1] else at, at + MIN_REPEATED_CHARACTERS
            elif run and at >= run[1]:
                if self._says_more_than_names(text[slice(*run)]):
                    yield run
                run = None
        if run and self._says_more_than_names(text[slice(*run)]):
            yield run

    def _find_repeated(self, windows: set[str]) -> set[str]:
        """Return the windows of an error that the request contains.

        A window of the request contains a block at a multiple of `_BLOCK_CHARS`, so only these positions are looked up.
        """
        blocks = {window[:_BLOCK_CHARS] for window in windows} | {window[-_BLOCK_CHARS:] for window in windows}
        text = self._text
        places = (at for at in range(0, len(text), _BLOCK_CHARS) if text[at : at + _BLOCK_CHARS] in blocks)
        around = {text[max(at - _BLOCK_CHARS, 0) : at + MIN_REPEATED_CHARACTERS] for at in places}
        found = (part[at : at + MIN_REPEATED_CHARACTERS] for part in around for at in range(_BLOCK_CHARS + 1))
        return windows.intersection(found)

    def _says_more_than_names(self, run: str) -> bool:
        """Return True if a run without the names in it is still long enough to count as repeated."""
        names = sum(len(word) for word in _NAME.findall(run) if word.strip(".:/-") in self._names)
        return len(run) - names >= MIN_REPEATED_CHARACTERS

    @cached_property
    def _texts_and_names(self) -> tuple[list[str], set[str]]:
        """The texts of the body, and the names in it."""
        texts, names, rest = list[str](), {*self._other_names}, [self.body]
        while rest:
            node = rest.pop()
            if isinstance(node, dict):
                names.update(node)
                names |= {node[key] for key in ("name", "model") if isinstance(node.get(key), str)}
                rest += node.values()
            elif isinstance(node, list):
                rest += node
            elif isinstance(node, str) and len(node) >= MIN_REPEATED_CHARACTERS:
                texts.append(node)
        return texts, names

    @property
    def _names(self) -> set[str]:
        return self._texts_and_names[1]

    @cached_property
    def _text(self) -> str:
        """All texts, normalized for comparison."""
        joined = "\0".join(self._texts_and_names[0])
        for escape in ("\\n", "\\r", "\\t"):
            joined = joined.replace(escape, " ")
        return re.sub("'{2,}", "'", re.sub(" {2,}", " ", joined.translate(_NORMALIZE)))


def _squeeze(text: str) -> tuple[str, list[int]]:
    """Normalize a text for comparison; also return the original offset of each character, and of the end."""
    out: list[str] = []
    places: list[int] = []
    at = 0
    while at < len(text):
        begin, char = at, text[at]
        at += 1
        if char == "\\" and text[at : at + 1] in ("n", "r", "t"):
            char, at = " ", at + 1
        char = char.translate(_NORMALIZE)
        if char and not (char in " '" and out and out[-1] == char):
            out.append(char)
            places.append(begin)
    return "".join(out), [*places, len(text)]
