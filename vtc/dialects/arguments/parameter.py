"""The value of one parameter between tags, from the text that stands there.

The schema decides which type it has. The markup of some dialects says whether it is a string (`string="true"`), and
that decides what the schema leaves open. Text that fits no type is looked at once more where the schema allows no text:
the value may stand in a CDATA section, or be escaped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.repair import Repair

_ATTRIBUTE = re.compile(r"""([\w.:-]+)\s*=\s*(\\?["'])(.*?)\2(?=\s*/?>\s*\Z|\s+[\w.:-]+\s*=\s*\\?["'])\s*""", re.DOTALL)
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)
_CDATA_GOES_ON = "]]]]><![CDATA[>"
"""How `]]>` is written in a CDATA section."""


def read(
    text: str,
    key: str,
    declared: Schema | None,
    root: Schema,
    *,
    is_string: bool | None = None,
    mark: str = "",
    lenient: bool = True,
) -> tuple[Any, str]:
    """Return the value that `text` stands for, and the repair that it took; that is empty if it took none.

    `declared` is the schema of the parameter `key`, None if the tool has no such parameter. `is_string` says what the
    markup says of the value, None if it says nothing.
    """
    value, fits = _typed(text, declared, root, is_string, mark)
    if declared is None or values.takes_text(declared, root):
        return value, "" if fits else Repair.UNTYPED.of(key)
    for repair, inner in _inner(text) if lenient and not fits and value is not None else ():
        found, fits = values.read(inner, declared, root, mark=mark)
        if fits:
            return found, repair.of(key) if repair == Repair.TYPED else repair
    if not fits:
        return value, Repair.UNTYPED.of(key)
    return value, Repair.TYPED.of(key) if is_string else ""


def _typed(text: str, declared: Schema | None, root: Schema, is_string: bool | None, mark: str) -> tuple[Any, bool]:
    """Return the value of text as it stands, and whether it fits."""
    schema = declared or {}
    if is_string is None or not values.takes_text(schema, root):
        return values.read(text, schema, root, mark=mark)
    if is_string:
        return text, True
    value, is_value = values.unquoted(text)
    if values.takes_all(schema, root):
        return value, is_value
    if isinstance(value, str) and text.lstrip().startswith('"'):
        return value, True  # a string of JSON
    return values.read(text, schema, root, mark=mark)


def _inner(text: str) -> Iterator[tuple[Repair, str]]:
    """Find the texts that may be meant where the schema allows none."""
    if (inner := in_cdata(text)) is not None:
        yield Repair.CDATA, inner
    bare = text.strip()
    is_quoted = bare.startswith('"')
    inner = _unescaped(bare[1:-1] if is_quoted and bare.endswith('"') else bare)
    if inner is not None and inner != bare:
        yield Repair.TYPED if is_quoted else Repair.ESCAPED_TEXT, inner


def in_cdata(text: str) -> str | None:
    """Return the text in a CDATA section; None if the text is no section."""
    found = _CDATA.fullmatch(text)
    return found[1].replace(_CDATA_GOES_ON, "]]>") if found else None


def in_attributes(tag: str, declared: Mapping[str, Schema], root: Schema) -> dict[str, Any] | None:
    """Return the parameters in the rest of an opening tag; None if it is not whole yet, or they do not fit the tool."""
    found = list(_ATTRIBUTE.finditer(tag))
    keys = {one[1] for one in found}
    rest = _ATTRIBUTE.sub("", tag).strip()
    fits = keys <= declared.keys() and set(values.required(root)) <= keys
    fits = fits and not any(one[2][-1] in one[3] for one in found)  # where would that value end?
    if rest not in (">", "/>") or len(keys) < len(found) or not fits:
        return None
    return {one[1]: values.read(one[3], declared[one[1]], root)[0] for one in found}


def _unescaped(text: str) -> str | None:
    r"""Return the string that the inside of a JSON string means (`[\"a\"]`); None if it is no such inside."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return None
