"""Lists and objects as tags with the type of each value, in the format of Cohere's Command 4.

<cofl:value name="filters" type="dict">
  <cofl:value name="fresh" type="json">true</cofl:value>
  <cofl:value name="tags" type="list"><cofl:value type="raw">music</cofl:value></cofl:value>
</cofl:value>

The values of an object have names, those of a list have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import MAX_JSON_DEPTH

_NAME = re.compile(r'\sname="([^"]*)"')
_TYPE = re.compile(r'\stype="(\w*)"')

type Unescape = Callable[[str], str]
"""Unescapes a key."""


class _OpenTag:
    """A tag that is not closed yet."""

    def __init__(self, name: str | None, kind: str, start: int) -> None:
        self.name = name
        self.kind = kind
        self.start = start
        self.children: list[tuple[str | None, Any]] = []


def get_tag_name(param: str) -> str:
    """Return the name of the tag in a parameter's pattern."""
    match = re.match(r"<([\w:.-]+)", param)
    assert match is not None
    return match[1]


def read(text: str, tag: str, unescape: Unescape) -> Any:
    """Return the list or the object inside the tags of a `dict` or a `list`.

    Raises ValueError if there is any text between the tags, or if the value is ambiguous.
    """
    token = re.compile(rf"<(/?)\s*{re.escape(tag)}((?:\s+[\w:.-]+=\"[^\"]*\")*)\s*>")
    root = _OpenTag(None, "", 0)
    open_: list[_OpenTag] = [root]
    at = 0
    for match in token.finditer(text):
        inside = open_[-1]
        is_leaf = inside.kind in ("raw", "json")
        if not is_leaf and text[at : match.start()].strip():
            raise ValueError("text between the tags")
        if not match[1]:
            if is_leaf or len(open_) > MAX_JSON_DEPTH:
                raise ValueError("a tag within text, or too deep")
            name, kind = _NAME.search(match[2]), _TYPE.search(match[2])
            open_.append(_OpenTag(unescape(name[1]) if name else None, kind[1] if kind else "raw", match.end()))
        elif len(open_) == 1:
            raise ValueError("a closing tag that nothing opened")
        else:
            open_.pop()
            open_[-1].children.append((inside.name, _parse_tag(inside, text[inside.start : match.start()])))
        at = match.end()
    if len(open_) > 1 or text[at:].strip():
        raise ValueError("a tag that is not closed, or text after it")
    return _collect_children(root, "list" if all(name is None for name, _ in root.children) else "dict")


def _parse_tag(node: _OpenTag, text: str) -> Any:
    if node.kind == "raw":
        return text
    if node.kind == "json":
        value, is_value = values.parse_unquoted(text)
        if not is_value:
            raise ValueError("no JSON")
        return value
    return _collect_children(node, node.kind)


def _collect_children(node: _OpenTag, kind: str) -> Any:
    names = [name for name, _ in node.children]
    if kind == "list" and all(name is None for name in names):
        return [value for _, value in node.children]
    if kind == "dict" and None not in names and len({*names}) == len(names):
        return dict(node.children)
    raise ValueError("neither a list nor an object")


def get_tag_type(value: Any) -> str:
    """Return the type for the tag of a value."""
    kinds: dict[type, str] = {str: "raw", dict: "dict", list: "list"}
    return kinds.get(type(value), "json")
