"""Pattern strings, such as `<function={name}>\\n{params}</function>`, parsed into literals and slots.

For reading, their markup becomes sequences of `Part`s (`parts.py`), which a state looks for (`scan.py`).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import msgspec

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
    return [*_parsed(text, key)]


@lru_cache(maxsize=1024)
def _parsed(text: str, key: str) -> tuple[str | Slot, ...]:
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
        body(text)
    return tuple(parts)


def check_findable(text: str, key: str, *, enclosed: bool) -> None:
    """Markup is found by its literal text: it must open with some, unless something else that does encloses it, and
    what has an end that only literal text can tell must be followed by some. Raises `PatternError`.
    """
    parts = parse(text, key)
    holder, before, behind = _around(parts)
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


def _around(parts: Sequence[str | Slot]) -> tuple[str, list[str], list[str]]:
    """The slot that a pattern is there for, and those before and after it."""
    slots = [part.name for part in parts if isinstance(part, Slot)]
    at = next(i for i, slot in enumerate(slots) if slot in (*BODIES, "value", "calls"))
    return slots[at], slots[:at], slots[at + 1 :]


@lru_cache(maxsize=1024)
def body(call: str) -> str:
    """Which slot of a call pattern holds the arguments: `json`, `args` or `params`."""
    found = [field for _, field, _, _ in string.Formatter().parse(call) if field in BODIES]
    if len(found) != 1:
        raise PatternError("call", f"{call!r}: exactly one of {{json}}, {{args}}, {{params}}, {{kwargs}} is needed")
    if found[0] != "json" and "{name}" not in call:
        raise PatternError("call", f"{call!r}: {{name}} is missing")
    return found[0]


def filled(text: str, key: str, slots: Mapping[str, str]) -> str:
    """A pattern with something in each of its slots; raises `PatternError`."""
    parse(text, key)
    return text.format_map(slots)


def split(parts: Sequence[str | Slot], slots: Iterable[str]) -> tuple[list[str | Slot], list[str | Slot]]:
    """What stands before and after the first of `slots`."""
    at = next(i for i, part in enumerate(parts) if isinstance(part, Slot) and part.name in slots)
    return list(parts[:at]), list(parts[at + 1 :])
