"""YAML read for people: plain data, and for every value the line it came from.

PyYAML composes the nodes; here they become dicts, lists and scalars, strictly: no tags but
those of JSON's types, no duplicate keys, no keys but texts, and aliases only as far as they stay small.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from yaml.constructor import SafeConstructor

type KeyPath = tuple[str | int, ...]

_MAX_BYTES = 256 * 1024
_MAX_VALUES = 10_000
"""Values in a document, those behind an alias counted each time: a few lines of aliases can stand for millions."""
_MAX_DEPTH = 32
_MAX_RECURSION = 1000
"""Levels for which any thread has stack enough."""

_TAG = "tag:yaml.org,2002:"
_COLLECTIONS = {f"{_TAG}map", f"{_TAG}seq"}
_SCALARS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")}
# What looks like a date, a merge key or YAML's "value" is text here.
_TEXTS = {f"{_TAG}{name}" for name in ("timestamp", "merge", "value")}
_SURROGATE = re.compile("[\ud800-\udfff]")


class Problem(msgspec.Struct, frozen=True, order=True):
    """What is wrong with a profile file, as `FILE:LINE: key.path: what is wrong; what to do`."""

    file: str
    line: int
    """From 1; 0 where there is no file."""
    key: str
    message: str

    def __str__(self) -> str:
        key = f"{self.key}: " if self.key else ""
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}: {key}{self.message}"


class ProfileError(ValueError):
    """Profile files that cannot be used; its text has one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(map(str, self.problems)))


class Document(msgspec.Struct, frozen=True):
    """One YAML document: its data, made of JSON's types, and the line (from 1) of each key and item."""

    file: Path
    value: Any
    lines: dict[KeyPath, int]

    def problem(self, path: KeyPath, message: str, line: int | None = None) -> Problem:
        """A problem with what stands at `path`, or with its absence."""
        known = path
        while known not in self.lines:
            known = known[:-1]
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        return Problem(str(self.file), line or self.lines[known], key.removeprefix("."), message)


def read(file: Path) -> tuple[list[Document], list[Problem]]:
    """The documents of a file and what is wrong with it as YAML; empty documents are left out."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            return [], [Problem(str(file), 1, "", f"over {_MAX_BYTES >> 10} KiB; split it into several files")]
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return [], [Problem(str(file), line, "", "not UTF-8; save the file as UTF-8")]
    except OSError as error:
        return [], [Problem(str(file), 1, "", f"cannot be read: {error.strerror}; check that it exists and its rights")]

    documents, problems = _parsed(file, text)
    return [*documents], [*problems]


@lru_cache(maxsize=1024)
def _parsed(file: Path, text: str) -> tuple[list[Document], list[Problem]]:
    """Kept, as profiles are read again whenever an option changes and YAML is slow to read."""
    documents: list[Document] = []
    problems: list[Problem] = []
    try:
        for node in _nodes(text):
            builder = _Builder(file, problems)
            value = builder.build(node, ())
            if value is not None:
                documents.append(Document(file, value, builder.lines))
    except yaml.MarkedYAMLError as error:
        problems.append(_syntax_problem(file, error))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.append(Problem(str(file), line, "", f"not valid YAML: {error.reason}; remove them or write \\x…"))
    except RecursionError:
        problems.append(Problem(str(file), 1, "", "nested too deeply; flatten it"))
    except _TooLarge:
        pass
    return documents, problems


def _nodes(text: str) -> Iterable[yaml.Node]:
    """The documents of a text, by libyaml where PyYAML was built with it: that takes a tenth of the time.

    It recurses without a limit, so it is kept from what may be nested deeply; and what it does not take is for the
    other to explain.
    """
    fast = getattr(yaml, "CSafeLoader", None)
    # Each level of a block is indented further, or is a sequence right below its key; each in a line has its bracket.
    deepest = 2 * max(map(len, text.splitlines()), default=0) + text.count("[") + text.count("{")
    if fast and deepest < _MAX_RECURSION:
        try:
            return [*yaml.compose_all(text, Loader=fast)]
        except yaml.YAMLError:
            pass
    return yaml.compose_all(text, Loader=yaml.SafeLoader)


def _syntax_problem(file: Path, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    where = f" {error.context}" if error.context else ""
    if where and error.context_mark and error.context_mark.line + 1 != line:
        where += f" that begins on line {error.context_mark.line + 1}"
    return Problem(
        str(file),
        line,
        "",
        f"not valid YAML: {error.problem}{where}; check the indentation, and put texts with any of "
        "* & ! % @ ` { } [ ] # : in quotes",
    )


class _TooLarge(Exception):
    """The file is given up; the problem has been noted."""


class _Builder:
    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._file = file
        self._problems = problems
        self._scalars = SafeConstructor()
        self._left = _MAX_VALUES

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._left -= 1
        if len(path) > _MAX_DEPTH:
            self._complain(path[:1], f"nested over {_MAX_DEPTH} levels deep; flatten it")
            raise _TooLarge
        if self._left < 0:
            self._complain(path[:1], f"over {_MAX_VALUES} values, aliases written out; use fewer aliases")
            raise _TooLarge
        if isinstance(node, yaml.MappingNode):
            self._refuse_tag(node, path)
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._refuse_tag(node, path)
            return [self.build(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._scalar(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                shown = key_node.value if isinstance(key_node, yaml.ScalarNode) else "what stands before the colon"
                self._complain(path, f"{shown} is a key but no text; put it in quotes", line)
            elif key in mapping:
                first = self.lines[*path, key]
                self._complain((*path, key), f"written twice, first on line {first}; remove one of the two", line)
            else:
                self.lines[*path, key] = line
                mapping[key] = self.build(value_node, (*path, key))
        return mapping

    def _scalar(self, node: yaml.Node, path: KeyPath) -> Any:
        value: Any = node.value
        if node.tag in _SCALARS:
            try:
                value = self._scalars.construct_object(node)
            except (ValueError, KeyError):
                kind = node.tag.removeprefix(_TAG)
                self._complain(path, f"{node.value[:40]!r} is no {kind}; put it in quotes")
        elif node.tag not in _TEXTS:
            self._refuse_tag(node, path)
        if isinstance(value, float) and not math.isfinite(value):
            self._complain(path, f"JSON has no {node.value}; write a number")
        if isinstance(value, str) and _SURROGATE.search(value):
            self._complain(path, r"\uD800 to \uDFFF are halves of characters; write the character itself")
            value = _SURROGATE.sub("?", value)  # such a text is none that can be checked any further
        return value

    def _refuse_tag(self, node: yaml.Node, path: KeyPath) -> None:
        if node.tag not in _COLLECTIONS:
            tag = node.tag.replace(_TAG, "!!")
            self._complain(path, f"the YAML tag {tag} is not allowed; remove it, or put the text in quotes")

    def _complain(self, path: KeyPath, message: str, line: int | None = None) -> None:
        self._problems.append(Document(self._file, None, self.lines).problem(path, message, line))
