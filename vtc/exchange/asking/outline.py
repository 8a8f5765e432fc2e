"""Index the fields of a request, to look up the names that a server's error contains.

Messages (all entries of a list) are merged, so each path occurs once:

messages: [{role, content}, {role, content, name}] -> messages, messages.*.role, messages.*.content, messages.*.name
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from vtc.exchange.asking.corrections import EVERY, RequestPart, fold_name, load_limits

MAX_NAMES_PER_ERROR = 20
"""Names that are looked up per error; further names find nothing."""
MAX_KEYS_PER_NAME = 32
MAX_DEPTH_BY_PATH = 32
"""Levels of a body to which a complete path is followed."""
MAX_DEPTH_BY_NAME = 12
"""Levels of a body at which a single name is found."""

type FieldTree = dict[str, "FieldTree"]
"""The fields of an object, with their own fields; all entries of a list are merged under `EVERY`."""
type FieldPath = tuple[str, ...]


class RequestOutline:
    """Finds the fields of one request by their names in one error."""

    def __init__(self, sent: Mapping[RequestPart, Any]) -> None:
        self._trees: dict[RequestPart, FieldTree] = {part: {} for part in sent}
        for part, value in sent.items():
            _add_fields(value, self._trees[part], 0)
        self._found: dict[FieldPath, tuple[RequestPart, Sequence[FieldPath]]] = {}
        self._keys_by_folded_name: dict[int, dict[str, str]] = {}

    @cached_property
    def paths(self) -> Mapping[RequestPart, Sequence[FieldPath]]:
        """All paths in the body and in the headers, except inside free-form data of users and models."""
        return {part: [*_list_paths(tree, ())] for part, tree in self._trees.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """All names, folded."""
        return frozenset(name for paths in self.paths.values() for path in paths for name in list_names(path))

    @cached_property
    def _by_name(self) -> Mapping[RequestPart, Mapping[str, Sequence[FieldPath]]]:
        """The paths of each folded name."""
        index: dict[RequestPart, dict[str, list[FieldPath]]] = {part: {} for part in self._trees}
        for part, paths in self.paths.items():
            for path in paths:
                for name in dict.fromkeys(list_names(path)):
                    index[part].setdefault(name, []).append(path)
        return index

    @cached_property
    def _last_names(self) -> Mapping[RequestPart, frozenset[str]]:
        """The folded last keys of all paths."""
        return {part: frozenset(fold_name(path[-1]) for path in paths) for part, paths in self.paths.items()}

    def find(self, names: FieldPath) -> tuple[RequestPart, Sequence[FieldPath]]:
        """Find the paths of a field by the keys that the server wrote, in the body first, then in the headers.

        Finds nothing for an empty path, and after `MAX_NAMES_PER_ERROR` names.
        """
        if names not in self._found:
            if not 0 < len(names) <= MAX_KEYS_PER_NAME or len(self._found) >= MAX_NAMES_PER_ERROR:
                return "body", ()
            found = {part: self._find_in(part, names) for part in self._trees}
            self._found[names] = ("body", found["body"]) if found["body"] else ("headers", found["headers"])
        return self._found[names]

    def find_sibling_spelling(self, path: FieldPath, name: str) -> str:
        """Return the spelling of a sibling of the body's field at a path; the name itself if there is none."""
        sibling = self._follow(self._trees["body"], (*path[:-1], name), set())
        return sibling[-1] if sibling and sibling[:-1] == path[:-1] else name

    def _find_in(self, part: RequestPart, names: FieldPath) -> Sequence[FieldPath]:
        path = self._follow(self._trees[part], names, set())
        if path:
            return [path]
        # A server behind the gateway may use a path of its own body, so match the end of the path.
        *above, last = map(fold_name, names)
        first = next(filter(self._last_names[part].__contains__, above), None)
        ends = self._by_name[part].get(last, ())
        return [path for path in ends if first is None or first in map(fold_name, path[:-1])]

    def _follow(self, tree: FieldTree, names: FieldPath, failed: set[tuple[int, int]]) -> FieldPath | None:
        """Find the path in a tree that has these keys in order; None if there is none.

        Keys without a field are skipped, because errors name things that are no fields (`body`, a kind of message). Any
        index means all entries. `failed` holds the nodes that were tried in vain, by the number of remaining names.
        """
        if not names:
            return ()
        here = id(tree), len(names)
        if here in failed:
            return None
        head, rest = names[0], names[1:]
        if EVERY in tree:
            is_index = head == EVERY or head.isdigit()
            rest_path = self._follow(tree[EVERY], rest if is_index else names, failed)
            if rest_path is not None:
                return (EVERY, *rest_path)
        key = self._find_key(tree, head)
        rest_path = self._follow(tree[key], rest, failed) if key is not None else None
        if key is not None and rest_path is not None:
            return (key, *rest_path)
        rest_path = self._follow(tree, rest, failed) if rest else None
        if rest_path is None:
            failed.add(here)
        return rest_path

    def _find_key(self, tree: FieldTree, name: str) -> str | None:
        """Find a field by name, in any spelling (`top_k`, `topK`)."""
        if name in tree:
            return name
        if id(tree) not in self._keys_by_folded_name:
            self._keys_by_folded_name[id(tree)] = {fold_name(key): key for key in reversed(tree)}
        return self._keys_by_folded_name[id(tree)].get(fold_name(name))


def _add_fields(value: Any, tree: FieldTree, depth: int) -> None:
    """Add the fields of a value to a tree."""
    if depth >= MAX_DEPTH_BY_PATH:
        return
    if isinstance(value, dict):
        for key, part in value.items():
            _add_fields(part, tree.setdefault(key, {}), depth + 1)
    elif isinstance(value, list) and value:
        entries = tree.setdefault(EVERY, {})
        for part in value:
            if isinstance(part, dict | list):
                _add_fields(part, entries, depth + 1)


def _list_paths(tree: FieldTree, above: FieldPath) -> Iterator[FieldPath]:
    """Yield the paths of all fields in a tree."""
    if len(above) >= MAX_DEPTH_BY_NAME:
        return
    for key, below in tree.items():
        path = (*above, key)
        if key != EVERY:
            yield path
        if not (above and key in load_limits().free_names):
            yield from _list_paths(below, path)


def list_names(path: FieldPath) -> Iterator[str]:
    """Yield the names for the field at a path: its own, or joined with that of its object (`reasoningEffort`)."""
    yield fold_name(path[-1])
    if len(path) > 1:
        yield fold_name("_".join(path[-2:]))


def split_path(path: str) -> FieldPath:
    """Split a path into its keys."""
    return tuple(re.findall(r"[\w$*-]+", path))
