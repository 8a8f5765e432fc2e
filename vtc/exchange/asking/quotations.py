"""Remove from a server's error what it repeats of the conversation: such text may say anything.

Both are compared without escapes, in quotes of one kind and with single spaces, as servers quote them in JSON or in
Python's words. Names of fields, tools and models, for which VTC looks in errors, do not count as repeated text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Any

MIN_REPEATED_CHARACTERS = 24
QUOTED_TEXT = "\n(quoted)\n"
"""Replaces repeated text: a word, so that the words around it are no neighbours."""
_STEP = MIN_REPEATED_CHARACTERS // 2
"""Every run of `MIN_REPEATED_CHARACTERS` contains a whole block of so many that begins at a multiple of it."""
_QUOTES = "`'\"“”‘’"
_SAME_QUOTE = str.maketrans(dict.fromkeys(_QUOTES, "'") | {"\\": None} | dict.fromkeys("\t\r\n\v\f\u00a0", " "))
_NAME = re.compile(r"[\w$./:-]{1,128}")


class SentText:
    """The texts of a request that was sent."""

    def __init__(self, body: Any, names: Collection[str] = ()) -> None:
        """`names` are those that are not in the body: of the model, of headers and their flags."""
        self._body = body
        self._other_names = names

    def remove_from(self, text: str) -> str:
        """Replace each run of `MIN_REPEATED_CHARACTERS` or more that the request has, too, by `QUOTED`."""
        if len(text) < MIN_REPEATED_CHARACTERS:
            return text
        squeezed, places = _drop_whitespace(text)
        kept, at = [], 0
        for begin, end in self._runs(squeezed):
            kept += [text[at : places[begin]], QUOTED_TEXT]
            at = places[end]
        return "".join([*kept, text[at:]])

    def _runs(self, text: str) -> Iterator[tuple[int, int]]:
        """List where runs of the conversation begin and end."""
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
        """Return those of an error's windows that the conversation has."""
        blocks = {window[:_STEP] for window in windows} | {window[-_STEP:] for window in windows}
        text = self._text
        places = (at for at in range(0, len(text), _STEP) if text[at : at + _STEP] in blocks)
        around = {text[max(at - _STEP, 0) : at + MIN_REPEATED_CHARACTERS] for at in places}
        found = (part[at : at + MIN_REPEATED_CHARACTERS] for part in around for at in range(_STEP + 1))
        return windows.intersection(found)

    def _says_more_than_names(self, run: str) -> bool:
        """True if enough of a run remains without the names in it."""
        names = sum(len(word) for word in _NAME.findall(run) if word.strip(".:/-") in self._names)
        return len(run) - names >= MIN_REPEATED_CHARACTERS

    @cached_property
    def _leaves(self) -> tuple[list[str], set[str]]:
        """List the texts of the body, and the names in it."""
        texts, names, rest = list[str](), {*self._other_names}, [self._body]
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
        return self._leaves[1]

    @cached_property
    def _text(self) -> str:
        """All texts, as they are compared."""
        joined = "\0".join(self._leaves[0])
        for escape in ("\\n", "\\r", "\\t"):
            joined = joined.replace(escape, " ")
        return re.sub("'{2,}", "'", re.sub(" {2,}", " ", joined.translate(_SAME_QUOTE)))


def _drop_whitespace(text: str) -> tuple[str, list[int]]:
    """Write a text as it is compared; return, too, where each character begins in it, and where the last one ends."""
    out: list[str] = []
    places: list[int] = []
    at = 0
    while at < len(text):
        begin, char = at, text[at]
        at += 1
        if char == "\\" and text[at : at + 1] in ("n", "r", "t"):
            char, at = " ", at + 1
        char = char.translate(_SAME_QUOTE)
        if char and not (char in " '" and out and out[-1] == char):
            out.append(char)
            places.append(begin)
    return "".join(out), [*places, len(text)]
