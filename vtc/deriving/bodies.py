"""Find the arguments of a known call in a text, and their form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vtc.deriving.conversations import KnownCall
from vtc.deriving.differences import get_common_end, get_common_start, split_repeated
from vtc.deriving.slots import KEY, STRING, TYPE, VALUE, make_pattern
from vtc.dialects.arguments.python import PythonBody

MAX_OBJECT_CHARS = 400
"""Maximum length of an object that is parsed as Python."""

MAX_PARAMETER_FORMS = 2
"""Maximum number of forms of parameters that are tried."""


@dataclass(frozen=True, slots=True)
class Body:
    """The place of a call's arguments in a text, and the form of a call."""

    start: int
    end: int
    slot: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the dialect that describe the form."""


type FindBody = Callable[[str, int, KnownCall], Body | None]
"""Finds the body of a call after a position of a text."""


def list_finders(text: str, call: KnownCall) -> Iterator[FindBody]:
    """List functions that find the body of any call in the form of this one, the likeliest first."""
    finders: list[FindBody] = [_find_envelope, _find_object, _find_keywords, _find_marked_object]
    yield from (find for find in finders if find(text, 0, call))
    yield from _list_parameter_finders(text, call)


def _find_envelope(text: str, at: int, call: KnownCall) -> Body | None:
    """Find an object that contains the name and the arguments."""
    for value, start, end, style in _iterate_objects(text, at):
        inner = next((one for one in (value, *value.values()) if _holds_call(one, call)), None)
        if inner is None:
            continue
        roles = {role: key for key, member in inner.items() if (role := _find_role(member, call))}
        named: dict[str, Any] = {"name": [roles["name"]], "arguments": [roles["arguments"]]}
        if "id" in roles:
            named |= {"id": roles["id"], "order": [*roles]}
            if inner[roles["id"]] != call.id:
                style["id"] = "{index}"
        return Body(start, end, "{json}", {"json": named, **style})
    return None


def _holds_call(value: Any, call: KnownCall) -> bool:
    return isinstance(value, dict) and {"name", "arguments"} <= {_find_role(member, call) for member in value.values()}


def _find_role(member: Any, call: KnownCall) -> str:
    """Return the role of a member of a call's object; empty if it has none. An id may be the call's index."""
    if isinstance(member, str) and member.startswith("{"):
        try:
            member = json.loads(member)
        except ValueError:
            return ""
    if isinstance(member, dict):
        return "arguments" if member == call.arguments else ""
    return "name" if member == call.name else "id" if member in (call.id, "0", "1") else ""


def _find_object(text: str, at: int, call: KnownCall) -> Body | None:
    """Find an object of the arguments after the name."""
    name = text.find(call.name, at)
    for value, start, end, style in _iterate_objects(text, name) if name >= 0 else ():
        if value == call.arguments:
            return Body(start, end, "{args}", style)
    return None


def _iterate_objects(text: str, at: int) -> Iterator[tuple[dict[str, Any], int, int, dict[str, Any]]]:
    """Iterate over all objects, with their places and keys of their style."""
    for opened in re.finditer(r"\{", text[at:]):
        if found := parse_object(text, at + opened.start()):
            value, end, style = found
            yield value, at + opened.start(), end, dict(style)


def parse_object(text: str, start: int) -> tuple[dict[str, Any], int, Mapping[str, Any]] | None:
    """Parse an object, in JSON or as Python prints it; return it with its end and keys of its style."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        pass
    else:
        return value, end, {}
    python = PythonBody("value", lenient=False)
    end = python.feed(text[: start + MAX_OBJECT_CHARS], start, final=True)
    if not python.done or python.error:
        return None
    value = json.loads(python.text())
    return (value, end, {"values": "repr"}) if isinstance(value, dict) else None


def _find_keywords(text: str, at: int, call: KnownCall) -> Body | None:
    """Find the arguments in parentheses after the name, as in a Python call."""
    opened = text.find(f"{call.name}(", at) + len(call.name) + 1
    members = _find_members(text, opened, call)
    if opened <= len(call.name) or members is None or any(text[key_end] != "=" for _, key_end, _, _ in members):
        return None
    closed = text.find(")", members[-1][3] if members else opened)
    return Body(opened, closed, "{kwargs}") if closed >= 0 else None


def _find_marked_object(text: str, at: int, call: KnownCall) -> Body | None:
    """Find an object with keys without quotes, and with strings between markers."""
    name = text.find(call.name, at)
    opened = text.find("{", name)
    members = _find_members(text, opened, call)
    if name < 0 or opened < 0 or members is None:
        return None
    closed = text.find("}", members[-1][3] if members else opened)
    tokens = {text[key_end + 1 : start] for _, key_end, start, _ in members if text[key_end] == ":"} - {""}
    if closed < 0 or len(tokens) > 1 or (members and not tokens) or not all(token.startswith("<") for token in tokens):
        return None
    return Body(opened, closed + 1, "{args}", {"codec": "gemma", "string_token": next(iter(tokens), "")})


type Member = tuple[int, int, int, int]
"""Start and end of a key, then of its value."""


def _find_members(text: str, at: int, call: KnownCall) -> list[Member] | None:
    """Find the keys and values of a call, in the order of the text; None if one is missing."""
    members: list[Member] = []
    for key, value in call.arguments.items():
        written = value if isinstance(value, str) else json.dumps(value)
        found = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)").search(text, at)
        start = text.find(written, found.end()) if found else -1
        if found is None or start < 0:
            return None
        members.append((found.start(), found.end(), start, start + len(written)))
    return sorted(members)


def _list_parameter_finders(text: str, call: KnownCall) -> Iterator[FindBody]:
    """List the possible forms of parameters between tags, of a call with a string and another value."""
    name = text.find(call.name)
    members = _find_members(text, name + len(call.name), call) if name >= 0 else None
    if members is None or len(members) != 2:
        return
    keys = [text[start:end] for start, end, _, _ in members]
    between = [text[end:start] for _, end, start, _ in members]
    first, last = members
    head = text[name + len(call.name) : first[0]]
    gap = text[first[3] : last[0]].replace(keys[0], KEY)
    tail = text[last[3] :].replace(keys[1], KEY)
    middle = _merge_types(*between)
    for split in [*split_repeated(head, gap, tail)][:MAX_PARAMETER_FORMS]:
        is_space = not split.separator.strip()
        closer = split.closer + (split.separator if is_space else "")
        keys_of = {"param": make_pattern(split.opener + KEY + middle + VALUE + closer)}
        if not is_space:
            keys_of["param_separator"] = split.separator
        yield ParameterForm(split.opener, split.closer, split.separator, keys_of).find


@dataclass(frozen=True, slots=True)
class ParameterForm:
    """The form of parameters between tags."""

    opener: str
    closer: str
    separator: str
    keys: Mapping[str, Any]

    def find(self, text: str, at: int, call: KnownCall) -> Body | None:
        """Find the parameters of a call."""
        name = text.find(call.name, at)
        members = _find_members(text, name + len(call.name), call) if name >= 0 else None
        if not members:
            return None
        key = text[members[-1][0] : members[-1][1]]
        start, end = members[0][0] - len(self.opener), members[-1][3]
        for closer in (self.closer + self.separator, self.closer):
            if text.startswith(written := closer.replace(KEY, key), end):
                return Body(start, end + len(written), "{params}", self.keys)
        return None


def _merge_types(one: str, other: str) -> str:
    """Merge the texts between key and value of a string and of another value: a word that differs is the type."""
    start, end = get_common_start(one, other), get_common_end(one, other)
    while start and start[-1].isalnum():
        start = start[:-1]
    while end and end[0].isalnum():
        end = end[1:]
    words = [text[len(start) : len(text) - len(end)] for text in (one, other)]
    if one == other or not all(re.fullmatch(r"\w+", word) for word in words):
        return one
    return f"{start}{STRING if {*words} == {'true', 'false'} else TYPE}{end}"
