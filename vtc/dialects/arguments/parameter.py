"""Parse the value of one parameter from the text between its tags, and fit arguments to a tool's schema.

The schema determines the type. The markup of some dialects declares whether the value is a string (`string="true"`),
which decides if the schema does not. If the text fits no type and the schema allows no text, two more forms are tried:
a CDATA section, and escaped text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from vtc import json_schema
from vtc.dialects.arguments import broken_json, values
from vtc.dialects.arguments.json_object import dump_json, escape_surrogates, render_members, split_members
from vtc.dialects.repair import Repair
from vtc.events import Tool
from vtc.json_schema import ObjectSchema, Schema

_INDENTS = re.compile(r"\n[ \t]+\Z")
_TWO_BREAKS = re.compile(r"\n\r?\n\Z")


def strip_frame(text: str, frame: str, param: str) -> str:
    """Remove the newlines that only separate a value from its tags: at most one on either side.

    If there is one before the value, blanks after the last newline indent the closing tag; blanks before that newline
    belong to the value.
    """
    before, _, after = param.partition("{value}")
    starts_line = text.startswith(("\n", "\r\n"))
    if starts_line and (frame == "multiline" or (before.endswith("\n") and after.startswith("\n"))):
        bare = text.rstrip(" \t")
        text = bare if bare.endswith("\n") else text
    if frame == "multiline":
        if not starts_line:
            return text
        newline = "\n" if text[0] == "\n" else "\r\n"
        return text.removeprefix(newline).removesuffix(newline)
    if before.endswith("\n"):
        text = text[2:] if text.startswith("\r\n") else text.removeprefix("\n")
    if after.startswith("\n"):
        text = text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
    return text


def read_unclosed_value(text: str, frame: str, param: str, more: str = "") -> str | None:
    """Return a value without a closing tag, up to the next tag; its frame is not removed yet.

    If the dialect writes the next tag on a separate line, one newline is not part of the value; `more` is the white
    space that the dialect writes after a parameter. Return None if the end of the value is ambiguous: the next tag may
    be indented, or both newlines may be the dialect's, before and after the closing tag.
    """
    after = param.partition("{value}")[2]
    own_line = after.startswith("\n") or (frame == "multiline" and text.startswith(("\n", "\r\n")))
    follows = after.rstrip() + "\n" in after + more
    if not (own_line or follows):
        return text
    if _INDENTS.search(text) or (own_line and follows and _TWO_BREAKS.search(text)):
        return None
    if own_line:
        return text  # that newline belongs to the frame
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


_ATTRIBUTE = re.compile(
    r"""(?<![\w.:-])([\w.:-]++)\s*=\s*(\\?["'])(.*?)"""
    r"""(?:\2(?=\s*/?>\s*\Z|\s+[\w.:-]+\s*=\s*\\?["'])\s*|(?P<unclosed>\Z))""",
    re.DOTALL,
)
_CDATA = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL)  # used with match
_CDATA_SPLIT = "]]]]><![CDATA[>"
"""Escape of `]]>` in a CDATA section."""


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
    """Return the value of `text`, and the repair that was needed, empty if none.

    `declared` is the schema of the parameter `key`, None if the tool has no such parameter. `is_string` is the type
    that the markup declares, None if it declares none.
    """
    value, fits = _parse_value(text, declared, root, is_string, mark)
    if declared is None or json_schema.accepts_text(declared, root):
        return value, "" if fits else Repair.UNTYPED.of(key)
    for repair, inner in _list_alternatives(text) if lenient and not fits and value is not None else ():
        inner_value, fits = values.read(inner, declared, root, mark=mark)
        if fits:
            return inner_value, repair.of(key) if repair == Repair.TYPED else repair
    if fits:
        return value, Repair.TYPED.of(key) if is_string else ""
    if (
        lenient
        and (whole := broken_json.read_value(text.strip(), json_schema.resolve_schema(declared, root))) is not None
    ):
        mended, fits = values.read(whole, declared, root)
        if fits:
            return mended, Repair.BROKEN_VALUE.of(key)
    return value, Repair.UNTYPED.of(key)


def _parse_value(
    text: str, declared: Schema | None, root: Schema, is_string: bool | None, mark: str
) -> tuple[Any, bool]:
    """Return the value of text as it stands, and whether it fits."""
    schema = declared or {}
    if is_string is None or not json_schema.accepts_text(schema, root):
        return values.read(text, schema, root, mark=mark)
    if is_string:
        return text, True
    value, is_value = values.parse_unquoted(text)
    if json_schema.accepts_all(schema, root):
        return value, is_value
    if isinstance(value, str) and text.lstrip().startswith('"'):
        return value, True  # a JSON string
    return values.read(text, schema, root, mark=mark)


def _list_alternatives(text: str) -> Iterator[tuple[Repair, str]]:
    """List the other texts that a value may stand for if its schema allows no text: unwrapped or unescaped."""
    if (inner := unwrap_cdata(text)) is not None:
        yield Repair.CDATA, inner
    bare = text.strip()
    is_quoted = bare.startswith('"')
    inner = unescape_json_text(bare[1:-1] if is_quoted and bare.endswith('"') else bare)
    if inner is not None and inner != bare:
        yield Repair.TYPED if is_quoted else Repair.ESCAPED_TEXT, inner


def unwrap_cdata(text: str) -> str | None:
    """Return the content of a CDATA section; None for any other text."""
    match = _CDATA.fullmatch(text)
    return match[1].replace(_CDATA_SPLIT, "]]>") if match else None


def read_attributes(tag: str, takes: ObjectSchema) -> dict[str, Any] | None:
    """Return the parameters in the rest of an opening tag; None if it is incomplete, or does not fit the tool."""
    attributes = list(_ATTRIBUTE.finditer(tag))
    keys = {attribute[1] for attribute in attributes}
    rest = _ATTRIBUTE.sub("", tag).strip()
    declared = takes.properties
    fits = keys <= declared.keys() and not takes.list_missing(keys)
    # A quote inside a value would make its end ambiguous.
    fits = fits and not any(attribute[2][-1] in attribute[3] for attribute in attributes)
    fits = fits and all(attribute["unclosed"] is None for attribute in attributes)
    if rest not in (">", "/>") or len(keys) < len(attributes) or not fits:
        return None
    return {attribute[1]: values.read(attribute[3], declared[attribute[1]], takes.root)[0] for attribute in attributes}


def unescape_json_text(text: str) -> str | None:
    r"""Unescape the inside of a JSON string (`[\"a\"]`); None if the text is not one."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return None


_NAME = re.compile(r"[\w.:-]+")
_TEXT_SCHEMA = {"type": "string"}
"""The schema that is assumed for an undeclared parameter: any value is retained."""
MAX_UNDECLARED = 1000
"""Undeclared arguments beyond which no markup is removed from their names."""


def is_complete(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Return True if the tool declares all of these arguments, and requires no others."""
    return arguments.keys() <= tool.schema.properties.keys() and not tool.schema.list_missing(arguments)


def fit_object(
    text: str, arguments: Mapping[str, Any], takes: ObjectSchema, *, lenient: bool = True
) -> tuple[str, list[str]]:
    """Fit the arguments of an object to a tool's schema, if there is only one way; return JSON text and the repairs.

    `text` is the JSON text of the `arguments`; members that fit stay as they are written.
    """
    declared = takes.properties
    notes: list[str] = []
    all_declared = arguments.keys() <= declared.keys()
    if lenient and not all_declared:
        text, arguments, notes = _rename_only_argument(text, arguments, takes)
    fitting, repairs = fit_arguments(arguments, takes, lenient=lenient)
    if repairs:
        raws = split_members(text)
        pairs = zip(arguments.items(), fitting.items(), strict=True)
        own = {name: raws[key] if new is value else dump_json(new) for (key, value), (name, new) in pairs}
        text = escape_surrogates(render_members(own))
    return text, [*notes, *repairs, *([] if all_declared else list_undeclared(arguments, takes))]


def fit_arguments(
    arguments: Mapping[str, Any], takes: ObjectSchema, *, lenient: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments and their repairs: names with markup, and text although the schema allows none."""
    declared, schema = takes.properties, takes.root
    fitted: dict[str, Any] = {}
    notes: list[str] = []
    undeclared = arguments.keys() - declared.keys()
    may_rename = declared and len(undeclared) <= MAX_UNDECLARED
    for key, value in arguments.items():
        name, stem = key, _strip_markup(key) if may_rename and key in undeclared else None
        if stem is not None and stem in declared and stem not in arguments:
            name = stem
            notes.append(Repair.PARAMETER_NAME.of(name))
        own = declared.get(name, _TEXT_SCHEMA) if isinstance(value, str) else _TEXT_SCHEMA
        if own is not _TEXT_SCHEMA and own.get("type") != "string" and not json_schema.accepts_text(own, schema):
            typed, repair = read(value, name, own, schema, is_string=True, lenient=lenient)
            if repair != Repair.UNTYPED.of(name):
                value = typed
                notes.append(repair)
        fitted[name] = value
    return fitted, notes


def _rename_only_argument(
    text: str, arguments: Mapping[str, Any], takes: ObjectSchema
) -> tuple[str, Mapping[str, Any], list[str]]:
    """Rename a single undeclared argument to the tool's only parameter if that is text; otherwise keep it.

    Return the JSON text, the arguments and the repairs.
    """
    name, ((key, value), *more) = takes.only_parameter, arguments.items()
    if name is None or more or not isinstance(value, str) or _strip_markup(key) == name:
        return text, arguments, []
    return (
        escape_surrogates(render_members({name: split_members(text)[key]})),
        {name: value},
        [Repair.ONLY_PARAMETER.of(name)],
    )


def _strip_markup(key: str) -> str | None:
    """Return the name in a key with markup around it; None if it contains none."""
    stem = _NAME.match(key.strip())
    return stem[0] if stem else None


def list_undeclared(arguments: Collection[str], takes: ObjectSchema) -> list[str]:
    """List the repairs for undeclared parameters; none if the schema allows more."""
    declared = takes.properties
    if not declared or takes.root.get("additionalProperties"):
        return []
    return [
        Repair.UNDECLARED.of(key) for key in arguments if key not in declared and _strip_markup(key) not in declared
    ]
