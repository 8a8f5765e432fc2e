"""Pattern strings, such as `<function={name}>\n{params}</function>`, parsed into literals and slots.

For reading, their markup becomes sequences of `Part`s, which a state looks for (`scan.py`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

# The garbage collector does not track the parts (`gc=False`): grammars hold tens of thousands of them, without cycles.

MAX_SPACE = 256
"""Maximum characters of loose white space."""
LOOSE_SPACE = rf"(?:\s|\\n){{0,{MAX_SPACE}}}+"
"""Loose white space, including the two characters `\\n` that some models write between tags. It is bounded, so that the
text held back is bounded; and possessive, so that no run is tried twice."""


class Lit(msgspec.Struct, frozen=True, gc=False):
    """Exactly this text, of at least one character."""

    text: str


class Space(msgspec.Struct, frozen=True, gc=False):
    """Any run of white space, possibly empty."""


class Chars(msgspec.Struct, frozen=True, gc=False):
    """A bounded run of characters of a class (`allowed`, as in a regular expression), for example a tool's name."""

    allowed: str
    max_count: int
    group: str = ""


class OneOf(msgspec.Struct, frozen=True, gc=False):
    """One of several words."""

    words: tuple[str, ...]
    group: str = ""
    any_case: bool = False


class Maybe(msgspec.Struct, frozen=True, gc=False):
    """An optional sequence."""

    parts: tuple[Part, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One of several sequences."""

    choices: tuple[tuple[Part, ...], ...]


class Group(msgspec.Struct, frozen=True, gc=False):
    """A sequence with a named group, for its position in the text."""

    parts: tuple[Part, ...]
    group: str


Part = Lit | Space | Chars | OneOf | Maybe | AnyOf | Group


def make_expression(parts: Sequence[Part], token: str = "") -> str:
    """Make the expression for a complete sequence; with the name of a `token`, groups are named `GROUP_TOKEN`."""
    return "".join(_make_part_expression(part, token) for part in parts)


def _make_part_expression(part: Part, token: str = "") -> str:
    match part:
        case Lit(text):
            return re.escape(text)
        case Space():
            return LOOSE_SPACE
        case Chars(allowed, most, group):
            return _make_group(rf"[{allowed}]{{1,{most}}}", group, token)
        case OneOf(words, group, any_case):
            # Longest first, so that `read_file` is tried before `read`.
            choice = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
            return _make_group(_ignore_case(choice, any_case), group, token)
        case Maybe(parts):
            return f"(?:{make_expression(parts, token)})?"
        case AnyOf(choices):
            return f"(?:{'|'.join(make_expression(parts, token) for parts in choices)})"
        case Group(parts, group):
            return _make_group(make_expression(parts, token), group, token)


def _make_group(expression: str, group: str, token: str) -> str:
    return f"(?P<{group}_{token}>{expression})" if group and token else f"(?:{expression})"


def has_group(parts: Sequence[Part], group: str) -> bool:
    """Return True if a sequence has a group of this name."""
    return any(
        (isinstance(part, Group) and part.group == group)
        or (isinstance(part, Group | Maybe) and has_group(part.parts, group))
        for part in parts
    )


def _ignore_case(expression: str, any_case: bool) -> str:
    return f"(?i:{expression})" if any_case and expression else expression


BODY_SLOTS = ("json", "args", "params", "kwargs")
SLOTS = {
    "call": {"name", "id", "index", "number", "noise", *BODY_SLOTS},
    "param": {"key", "value", "string", "type"},
    "section": {"calls"},
    "result": {"name", "id", "result"},
    "markers": {"name"},
}


class PatternError(ValueError):
    """Raised if a pattern is invalid; `key` is the key of the description that holds it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Slot(msgspec.Struct, frozen=True):
    """A placeholder in a pattern: `{name}`."""

    name: str


def parse(text: str, key: str) -> list[str | Slot]:
    """Split a pattern into literals and slots, in order. Raises `PatternError`."""
    return [*_parse_pattern(text, key)]


@lru_cache(maxsize=1024)
def _parse_pattern(text: str, key: str) -> tuple[str | Slot, ...]:
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError as error:
        raise PatternError(key, f"{text!r}: {error}; write {{{{ and }}}} for braces") from None
    parts: list[str | Slot] = []
    for literal, name, spec, conversion in fields:
        if literal:
            parts.append(literal)
        if name is None:
            continue
        if name not in SLOTS[key] or spec or conversion:
            known = ", ".join("{" + slot + "}" for slot in sorted(SLOTS[key]))
            raise PatternError(key, f"{text!r}: {{{name}}} is not a placeholder here; use {known}")
        parts.append(Slot(name))
    needed = {"param": ("key", "value"), "section": ("calls",), "result": ("result",)}.get(key, ())
    for name in needed:
        if Slot(name) not in parts:
            raise PatternError(key, f"{text!r}: {{{name}}} is missing")
    if key == "call":
        find_body_slot(text)
    return tuple(parts)


def check_findable(text: str, key: str, *, enclosed: bool) -> None:
    """Check that a pattern can be found in a reply. Raises `PatternError`.

    It must begin with literal text, unless it is `enclosed` by a pattern that does. Literal text must follow a slot
    that does not show its own end.
    """
    parts = parse(text, key)
    holder, before, behind = _split_slots(parts)
    for slot in before:
        if before.count(slot) > 1:
            raise PatternError(key, f"{text!r}: {{{slot}}} occurs twice before {{{holder}}}; remove one of the two")
    first = "key" if key == "param" else "name" if holder in ("args", "params", "kwargs") else holder
    if first not in (*before, holder):
        raise PatternError(key, f"{text!r}: {{{first}}} must come before {{{holder}}}")
    for slot in behind:
        if slot == holder or (key == "param" and slot != "key"):
            raise PatternError(key, f"{text!r}: {{{slot}}} must not come after {{{holder}}}; remove it")
    if not enclosed and isinstance(parts[0], Slot) and parts[0].name != "json":
        raise PatternError(key, f"{text!r} must begin with literal text, so that it can be found in a reply")
    for at, part in enumerate(parts):
        if isinstance(part, Slot) and part.name in ("params", "value", "kwargs"):
            after = parts[at + 1] if at + 1 < len(parts) else ""
            if isinstance(after, Slot) or not after.strip():
                message = f"literal text must follow {{{part.name}}}, so that its end can be found"
                raise PatternError(key, f"{text!r}: {message}")


def _split_slots(parts: Sequence[str | Slot]) -> tuple[str, list[str], list[str]]:
    """Return the main slot of a pattern, and the slots before and after it."""
    slots = [part.name for part in parts if isinstance(part, Slot)]
    at = next(i for i, slot in enumerate(slots) if slot in (*BODY_SLOTS, "value", "calls"))
    return slots[at], slots[:at], slots[at + 1 :]


@lru_cache(maxsize=1024)
def find_body_slot(call: str) -> str:
    """Return the slot of a call pattern that holds the arguments: `json`, `args`, `params` or `kwargs`."""
    slots = [field for _, field, _, _ in string.Formatter().parse(call) if field in BODY_SLOTS]
    if len(slots) != 1:
        raise PatternError("call", f"{call!r}: exactly one of {{json}}, {{args}}, {{params}}, {{kwargs}} is needed")
    if slots[0] != "json" and "{name}" not in call:
        raise PatternError("call", f"{call!r}: {{name}} is missing")
    return slots[0]


def fill_pattern(text: str, key: str, slots: Mapping[str, str]) -> str:
    """Fill the slots of a pattern. Raises `PatternError`."""
    parse(text, key)
    return text.format_map(slots)


def split_at_slot(parts: Sequence[str | Slot], slots: Iterable[str]) -> tuple[list[str | Slot], list[str | Slot]]:
    """Split a pattern at the first of `slots`."""
    at = next(i for i, part in enumerate(parts) if isinstance(part, Slot) and part.name in slots)
    return list(parts[:at]), list(parts[at + 1 :])
