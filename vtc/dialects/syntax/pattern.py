"""Pattern strings, such as `<function={name}>\n{params}</function>`, parsed into literals and slots.

For reading, their markup becomes sequences of `Part`s, which a state looks for (`scan.py`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

# The parts that markup is made of as it is read, and the expressions for a sequence of them.
#
# A sequence gives an expression for the whole of it; `scan.py` finds its beginnings. Grammars hold them by the ten
# thousand: as they never refer to themselves, Python's collector need not go through them.


MAX_SPACE = 256
LOOSE_SPACE = rf"(?:\s|\\n){{0,{MAX_SPACE}}}+"
"""Loose white space, also as the two characters `\\n` that some models write between tags: bounded, so that holding it
back is; possessive, so that no run of it is tried twice."""


class Lit(msgspec.Struct, frozen=True, gc=False):
    """Exactly this text, of at least one character."""

    text: str


class Space(msgspec.Struct, frozen=True, gc=False):
    """Any run of white space, also none."""


class Chars(msgspec.Struct, frozen=True, gc=False):
    """A bounded run of characters of a class, e.g. a tool's name."""

    allowed: str
    most: int
    group: str = ""


class OneOf(msgspec.Struct, frozen=True, gc=False):
    """One of some words."""

    words: tuple[str, ...]
    group: str = ""
    any_case: bool = False


class Maybe(msgspec.Struct, frozen=True, gc=False):
    """A sequence that may be missing."""

    parts: tuple[Part, ...]


class AnyOf(msgspec.Struct, frozen=True, gc=False):
    """One of some sequences."""

    choices: tuple[tuple[Part, ...], ...]


class Group(msgspec.Struct, frozen=True, gc=False):
    """A sequence whose place in the text is asked for by name."""

    parts: tuple[Part, ...]
    group: str


Part = Lit | Space | Chars | OneOf | Maybe | AnyOf | Group


def expression_of(parts: Sequence[Part], token: str = "") -> str:
    """Return the expression for a complete sequence; with the name of a `token`, its groups are `GROUP_TOKEN`."""
    return "".join(_part_expression(part, token) for part in parts)


def _part_expression(part: Part, token: str = "") -> str:
    match part:
        case Lit(text):
            return re.escape(text)
        case Space():
            return LOOSE_SPACE
        case Chars(allowed, most, group):
            return _group(rf"[{allowed}]{{1,{most}}}", group, token)
        case OneOf(words, group, any_case):
            # Longest first: of `read` and `read_file` the longer one is tried first.
            choice = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
            return _group(_ignore_case(choice, any_case), group, token)
        case Maybe(parts):
            return f"(?:{expression_of(parts, token)})?"
        case AnyOf(choices):
            return f"(?:{'|'.join(expression_of(parts, token) for parts in choices)})"
        case Group(parts, group):
            return _group(expression_of(parts, token), group, token)


def _group(expression: str, group: str, token: str) -> str:
    return f"(?P<{group}_{token}>{expression})" if group and token else f"(?:{expression})"


def has_group(parts: Sequence[Part], group: str) -> bool:
    """Tell whether a sequence has a group of this name."""
    return any(
        (isinstance(part, Group) and part.group == group)
        or (isinstance(part, Group | Maybe) and has_group(part.parts, group))
        for part in parts
    )


def _ignore_case(expression: str, any_case: bool) -> str:
    return f"(?i:{expression})" if any_case and expression else expression


BODIES = ("json", "args", "params", "kwargs")
SLOTS = {
    "call": {"name", "id", "index", "number", "noise", *BODIES},
    "param": {"key", "value", "string", "type"},
    "section": {"calls"},
    "result": {"name", "id", "result"},
    "markers": {"name"},
}


class PatternError(ValueError):
    """A pattern makes no sense; `key` is the key of the description that holds it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Slot(msgspec.Struct, frozen=True):
    name: str


def parse(text: str, key: str) -> list[str | Slot]:
    """Literals and slots of a pattern, in order; raises `PatternError`."""
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
            raise PatternError(key, f"{text!r}: {{{name}}} is no placeholder here; there are {known}")
        parts.append(Slot(name))
    needed = {"param": ("key", "value"), "section": ("calls",), "result": ("result",)}.get(key, ())
    for name in needed:
        if Slot(name) not in parts:
            raise PatternError(key, f"{text!r}: {{{name}}} is missing")
    if key == "call":
        find_body_slot(text)
    return tuple(parts)


def check_findable(text: str, key: str, *, enclosed: bool) -> None:
    """Markup is found by its literal text: it must open with some, unless something else that does encloses it, and
    what has an end that only literal text can tell must be followed by some. Raises `PatternError`.
    """
    parts = parse(text, key)
    holder, before, behind = _split_slots(parts)
    for slot in before:
        if before.count(slot) > 1:
            raise PatternError(
                key, f"{text!r}: {{{slot}}} stands there twice before {{{holder}}}; remove one of the two"
            )
    first = "key" if key == "param" else "name" if holder in ("args", "params", "kwargs") else holder
    if first not in (*before, holder):
        raise PatternError(key, f"{text!r}: {{{first}}} must stand before {{{holder}}}")
    for slot in behind:
        if slot == holder or (key == "param" and slot != "key"):
            raise PatternError(key, f"{text!r}: {{{slot}}} cannot stand behind {{{holder}}}; remove it")
    if not enclosed and isinstance(parts[0], Slot) and parts[0].name != "json":
        raise PatternError(key, f"{text!r} must begin with literal text, so that it can be found in a reply")
    for at, part in enumerate(parts):
        if isinstance(part, Slot) and part.name in ("params", "value", "kwargs"):
            after = parts[at + 1] if at + 1 < len(parts) else ""
            if isinstance(after, Slot) or not after.strip():
                message = f"literal text must follow {{{part.name}}}, so that its end can be found"
                raise PatternError(key, f"{text!r}: {message}")


def _split_slots(parts: Sequence[str | Slot]) -> tuple[str, list[str], list[str]]:
    """Return the slot that a pattern is there for, and those before and after it."""
    slots = [part.name for part in parts if isinstance(part, Slot)]
    at = next(i for i, slot in enumerate(slots) if slot in (*BODIES, "value", "calls"))
    return slots[at], slots[:at], slots[at + 1 :]


@lru_cache(maxsize=1024)
def find_body_slot(call: str) -> str:
    """Return the slot of a call pattern that holds the arguments: `json`, `args` or `params`."""
    slots = [field for _, field, _, _ in string.Formatter().parse(call) if field in BODIES]
    if len(slots) != 1:
        raise PatternError("call", f"{call!r}: exactly one of {{json}}, {{args}}, {{params}}, {{kwargs}} is needed")
    if slots[0] != "json" and "{name}" not in call:
        raise PatternError("call", f"{call!r}: {{name}} is missing")
    return slots[0]


def fill_pattern(text: str, key: str, slots: Mapping[str, str]) -> str:
    """Return a pattern with something in each of its slots; raises `PatternError`."""
    parse(text, key)
    return text.format_map(slots)


def split_at_slot(parts: Sequence[str | Slot], slots: Iterable[str]) -> tuple[list[str | Slot], list[str | Slot]]:
    """Part a pattern at the first of `slots`."""
    at = next(i for i, part in enumerate(parts) if isinstance(part, Slot) and part.name in slots)
    return list(parts[:at]), list(parts[at + 1 :])
