"""Correct a request: leave a field out, rename it, move it to a bound, drop one of two; leave a flag out of a header.

    body, flags in headers -> Correction, Correction, … -> those that are sent

A refusal teaches them (`named_fields.py`). They work on the request as its server is sent it, so that a path is what
the server calls it, whatever the client speaks. None touches what is said: no text, call, result, tool, schema, model,
or form of the answer, nor what protects the user or limits the server (`CorrectionScope`). `corrections.yaml` has the
closed lists: what is never touched, and the names along which a field is renamed. Of headers that list flags of
features (`apis.FLAGS`) a flag may be left out, and nothing else of any header.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from vtc.apis import FLAGS
from vtc.apis.fields import at, raw_fields, raw_items
from vtc.apis.layout import BodyLayout
from vtc.json_text import decode, encode
from vtc.profiles.document import table

type Deed = Literal["leave_out", "rename", "keep_within", "spell", "give", "set"]
type RequestPart = Literal["body", "headers"]
type Speaker = Literal["", "server", "provider"]
type Fields = Mapping[str, Any]
"""An object of the body: its fields, each as plain data or, where nobody changed it, as the bytes in which it came."""
EVERY = "*"
"""Stands in a path for any index."""
LAST = "-1"
"""Stands in a path for the index of the model's last message."""


class RequestParts(NamedTuple):
    """The parts of a request that are corrected."""

    body: Fields
    headers: Fields
    """Those that list flags, by name: each flag as it is spelled, by its name."""


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to one field of a request, wherever its path leads."""

    do: Deed
    path: tuple[str, ...]
    to: Any = None
    """The new name; the least and the most, None for no bound; the words that are taken; the value that is given."""
    beside: str = ""
    """Only where this field stands beside it."""
    where: Mapping[str, Sequence[Any]] = {}
    """Change only objects whose fields, by dotted path, have one of these values; None stands for no field."""
    kept: bool = True
    """False for what lies in the conversation: another one is sent as it comes."""
    values: tuple[Any, ...] = ()
    """Only where the field has one of these, if there are any."""
    of: RequestPart = "body"
    """The part of the request in which the path leads."""
    unknown_to: Speaker = ""
    """Who said that it does not know the field: the server, or a provider whose error a gateway quotes."""

    def __str__(self) -> str:
        path = ".".join(self.path) if self.of == "body" else f"header {': '.join(self.path)}"
        match self.do:
            case "leave_out":
                which = (
                    f" beside {self.beside}" if self.beside else f" where it is {self.values[0]}" if self.values else ""
                )
                return f"{path} left out{which}"
            case "rename":
                return f"{path} sent as {self.to}"
            case "keep_within":
                least, most = self.to
                bounds = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
                return f"{path} {' and '.join(bounds)}"
            case "spell":
                return f"{path} one of {', '.join(self.to)}"
            case "give":
                return f"{path} {self.to!r} where there is none"
            case "set":
                return f"{path} set to {encode(self.to).decode()}"

    def apply(self, parts: RequestParts, scope: CorrectionScope) -> RequestParts:
        """Correct a request; the very object if it changes nothing."""
        if not self._may_change(scope):
            return parts
        before = getattr(parts, self.of)
        to_objects = self.path if self.path[-1] == EVERY else self.path[:-1]
        after = _edit_at(to_objects, partial(self._change, scope, parts.body))(before)
        return parts if after is before else parts._replace(**{self.of: after or {}})

    def _may_change(self, scope: CorrectionScope) -> bool:
        """False if nothing that stands at its path may be changed so, whatever it is."""
        if self.of == "headers":
            return self.do == "leave_out"
        if any(map(limits().protects, self.path)):
            return False
        match self.do:
            case "leave_out":
                return self.path[-1] == EVERY or scope.may_leave_out(self.path)
            case "rename":
                return scope.may_leave_out(self.path) and not scope.is_set_by_policy((*self.path[:-1], self.to))
            case "give" | "set":  # where rows of the table say so alone
                return not scope.is_set_by_policy(self.path)
        return scope.may_set(self.path)

    def _change(self, scope: CorrectionScope, top: Fields, fields: Fields) -> Fields | None:
        """Change an object that the path leads to; return the very one if nothing changes, None to leave it out."""
        key = self.path[-1]
        if (key not in fields and key != EVERY and self.do not in ("give", "set")) or not self._matches(fields):
            return fields
        if key == EVERY:
            return None if self.where else fields
        value = _value(fields, key)
        if self.values and value not in self.values:
            return fields
        match self.do:
            case "give":
                return {**fields, key: self.to} if _is_nothing(value) and value != self.to else fields
            case "set":
                return {**fields, key: self.to} if value != self.to else fields
            case "leave_out" | "rename":
                if self.of == "body" and not (self.where or scope.is_metadata(self.path, value, top)):
                    return fields
                if holds_protected(value) or (self.do == "leave_out" and self._lifts_a_limit(value)):
                    return fields
                if self.do == "leave_out" or self.to in fields:
                    rest = {**fields}
                    del rest[key]
                    return rest
                return {self.to if name == key else name: field for name, field in fields.items()}
        if self.do == "keep_within":
            new = _clamp(value, *self.to, shortens=fold_name(key) in limits().shortened_names)
        else:
            new = value if scope.is_limiting_choice(self.path, value) else _find_nearest_word(value, self.to)
        return fields if new == value else {**fields, key: new}

    def _lifts_a_limit(self, value: Any) -> bool:
        """True if leaving out a value has the server store a conversation, or reply without a limit, unless it must."""
        name = fold_name(self.path[-1])
        if self.path == ("store",):
            return value is False and self.unknown_to != "server"
        names, objects = limits().names_unless_unknown, ("generationConfig", "options")
        if name not in names or fold_name(self.beside) in names or not (len(self.path) == 1 or self.path[0] in objects):
            return False
        return isinstance(value, int) and value > 0 and not self.unknown_to

    def _matches(self, fields: Fields) -> bool:
        """True for an object of which the field is to be changed."""
        if self.beside and self.beside not in fields:
            return False
        return not self.where or all(_at(fields, path) in values for path, values in self.where.items())


class CorrectionScope(NamedTuple):
    """Tells what of a body no correction may touch."""

    layout: BodyLayout
    policies: Collection[str] = ()
    """The dotted paths that policies set or leave out."""

    def may_leave_out(self, path: Sequence[str]) -> bool:
        """True if what stands at a path may be left out, or have another name, where it is beside what is said."""
        if self.is_set_by_policy(path) or (len(path) == 1 and path[0] in (self.layout.entries, "model", "stream")):
            return False
        if ".".join(path) in limits().required:
            return False
        return not self._leads_to_content(path) or limits().free_names.isdisjoint(path[1:])

    def is_metadata(self, path: Sequence[str], value: Any, top: Fields) -> bool:
        """True if a value at a path that a server named is beside what is said."""
        if _is_nothing(value):
            return True
        if path[0] == self.layout.choice:
            return not _demands_tool(value) or _is_nothing(_value(top, "tools"))
        if path[0] == "tools":
            return any(map(limits().tool_names.__contains__, map(fold_name, path)))
        if self._leads_to_content(path):
            return len(path) > 1 and (".".join(path) in limits().beside_paths or _is_metadata(path[-1], value))
        dotted = ".".join(path)
        return not any(_affects(never, dotted, value) for never in limits().never if never.startswith(path[0]))

    def _leads_to_content(self, path: Sequence[str]) -> bool:
        """True if a path leads into what messages and tools say."""
        return path[0] in (self.layout.entries, self.layout.prompt, "tools")

    def may_set(self, path: Sequence[str]) -> bool:
        """True if what stands at a path may get another value: a number, or a word."""
        layout, dotted = self.layout, f"{'.'.join(path)}."
        if any(dotted.startswith(f"{never}.") for never in limits().never):
            return False
        return not self.is_set_by_policy(path) and path[0] not in (layout.entries, layout.prompt, "tools", "model")

    def is_limiting_choice(self, path: Sequence[str], value: Any) -> bool:
        """True for a choice of a tool that has no other word for the same."""
        return path[0] == self.layout.choice and value not in ("required", "any")

    def is_set_by_policy(self, path: Sequence[str]) -> bool:
        """True if a policy sets or leaves out what stands at a path."""
        dotted = ".".join(path)
        return any(f"{name}.".startswith(f"{dotted}.") or dotted.startswith(f"{name}.") for name in self.policies)


def apply_corrections(
    parts: RequestParts, corrections: Iterable[Correction], scope: CorrectionScope
) -> tuple[RequestParts, dict[str, str]]:
    """Correct a request; return the very parts that do not change, and a line about each correction that did."""
    lines: dict[str, str] = {}
    for correction in corrections:
        if (new := correction.apply(parts, scope)) is not parts:
            is_stored = _value(parts.body, "store") is False and "store" not in new.body
            why = (
                "as the server does not know it; it may store the conversation"
                if is_stored
                else "as the server wants it"
            )
            lines[str(correction)] = f"{correction}, {why}"
        parts = new
    return parts, lines


# The headers that list flags


def read_flags(headers: Mapping[str, str | None]) -> Fields:
    """Read the headers that list flags, by name in lower case; of a flag with a version (`x=v1`) `x` is the name."""
    listed = {name: value.split(",") for name in FLAGS if (value := headers.get(name)) is not None}
    return {
        name: {flag.partition("=")[0].strip(): flag.strip() for flag in flags if flag.strip()}
        for name, flags in listed.items()
    }


def render_headers(before: Fields, after: Fields) -> dict[str, str | None]:
    """Write the headers whose flags changed; None for a header that is left out."""
    changed = {name: after.get(name) for name, flags in before.items() if after.get(name) is not flags}
    return {name: ",".join(flags.values()) if flags else None for name, flags in changed.items()}


# What is beside the meaning


class CorrectionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """`corrections.yaml`."""

    renames: tuple[tuple[str, ...], ...]
    """Names of the same thing."""
    shortened: tuple[str, ...]
    """Names of lists that a bound may shorten."""
    protected: tuple[str, ...]
    """Names of what no correction touches, with `*` for any ending."""
    unless_unknown: tuple[str, ...]
    """Names of numbers that are left out only if the server does not know the field."""
    of_tools: tuple[str, ...]
    """Names of what may be left out of a tool."""
    scales: tuple[tuple[str, ...], ...]
    """Words in order of how much they ask for."""
    never: tuple[str, ...]
    """Dotted paths of what is never left out."""
    meaning: str
    """Names of fields that hold what messages and tools say."""
    free: str
    """Names of those of them that hold JSON in any form, of a user, a model or a tool."""
    beside: str
    """Names of fields that may hold text, and stand beside that."""
    required: tuple[str, ...]
    """Dotted paths of what is never left out, even where it says nothing."""
    beside_paths: tuple[str, ...]
    """Dotted paths of fields that hold nothing of it, though others of their name do."""

    def may_rename(self, name: str, to: str) -> bool:
        """True if two names are of the same thing, in any spelling."""
        name, to = fold_name(name), fold_name(to)
        return name == to or any({name, to} <= {*map(fold_name, names)} for names in self.renames)

    def protects(self, name: str) -> bool:
        """True for the name of what no correction touches."""
        return self._protected.fullmatch(fold_name(name).lower()) is not None

    def is_on_a_scale(self, value: object) -> bool:
        """True for a word that says how much."""
        return any(value in scale for scale in self.scales)

    @cached_property
    def _protected(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(fold_name(name)).replace(r"\*", ".*") for name in self.protected), re.S)

    @cached_property
    def shortened_names(self) -> frozenset[str]:
        """The names of `shortened`, folded."""
        return frozenset(map(fold_name, self.shortened))

    @cached_property
    def names_unless_unknown(self) -> frozenset[str]:
        """The names of `unless_unknown`, folded."""
        return frozenset(map(fold_name, self.unless_unknown))

    @cached_property
    def tool_names(self) -> frozenset[str]:
        """The names of `of_tools`, folded."""
        return frozenset(map(fold_name, self.of_tools))

    @cached_property
    def meaning_names(self) -> frozenset[str]:
        """The names of `meaning`."""
        return frozenset(self.meaning.split())

    @cached_property
    def free_names(self) -> frozenset[str]:
        """The names of `free`: in what stands there nothing is a field of the request."""
        return frozenset(self.free.split())

    @cached_property
    def beside_names(self) -> frozenset[str]:
        """The names of `beside`."""
        return frozenset(self.beside.split())


@cache
def limits() -> CorrectionLimits:
    """Read `corrections.yaml`: few requests need it."""
    return table(Path(__file__).with_suffix(".yaml"), CorrectionLimits)


def _affects(never: str, path: str, value: Any) -> bool:
    """True if what stands at a path is, holds, or is a part of, what is `never` left out, and that says something."""
    if never.startswith(f"{path}."):
        value = at(value, never[len(path) + 1 :])
    elif not f"{path}.".startswith(f"{never}."):
        return False
    return not _is_nothing(value) and value != {"type": "text"}


def holds_protected(value: Any) -> bool:
    """True if an object, at any depth, has a field that no correction touches."""
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if any(map(limits().protects, node)):
                return True
            rest += node.values()
        elif isinstance(node, list):
            rest += node
    return False


@lru_cache(1024)
def fold_name(name: str) -> str:
    """Fold a name to the form that its spellings share: `top_k`, `topK`."""
    return name[:1] + name[1:].replace("_", "").lower()


def _is_metadata(name: str, value: Any) -> bool:
    """True for a field of a message or a tool that holds no text, call, result or schema."""
    if name in limits().meaning_names:
        return False
    return name in limits().beside_names or not any(map(_is_content, _leaves(value)))


def _is_content(leaf: Any) -> bool:
    """True for a text, and for the name of what holds one; what has no space in it is none."""
    return isinstance(leaf, str) and (leaf in limits().meaning_names or len(leaf.split()) > 1 or len(leaf) > 64)


def _leaves(value: Any) -> Iterator[Any]:
    """List the names and the values that stand in a value."""
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            rest += [*node, *node.values()]
        elif isinstance(node, list):
            rest += node
        else:
            yield node


def _demands_tool(choice: Any) -> bool:
    """True if a choice of a tool is not left to the model."""
    words = (leaf for leaf in _leaves(choice) if isinstance(leaf, str))
    return any(word.lower() not in ("auto", "type", "mode", "functioncallingconfig") for word in words)


def _is_nothing(value: Any) -> bool:
    return value in (None, "", [], {})


# The values that are set


def _clamp(value: Any, least: int | float | None, most: int | float | None, *, shortens: bool) -> Any:
    """Move a number to the bound beyond which it lies; of a list that it `shortens` the first entries remain."""
    if isinstance(value, list):
        return value[: max(most, 0)] if shortens and isinstance(most, int) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return least if least is not None and value < least else most if most is not None and value > most else value


def _find_nearest_word(value: Any, words: Sequence[str]) -> Any:
    """Return the word that is taken and nearest to a value in a scale; the value itself if there is none."""
    scale = next((scale for scale in limits().scales if value in scale), ())
    taken = [word for word in scale if word in words and (word != "none" or value == word)]  # which asks for nothing
    if not taken or value in words:
        return value
    place = scale.index(value)
    return min(taken, key=lambda word: (abs(scale.index(word) - place), -scale.index(word)))


# The fields of the body


type Edit = Callable[[Any], Any]
"""Changes a value; returns the very one if nothing changes, None if it is left out itself.

What does not change keeps its bytes.
"""


def _edit_at(path: Iterable[str], change: Callable[[Fields], Fields | None]) -> Edit:
    """Make what changes the objects that a path leads to."""
    edit: Edit = partial(_edit_object, change)
    for key in reversed([*path]):
        below = edit
        if key in (EVERY, LAST):
            edit = partial(_edit_each if key == EVERY else _edit_last, below)
        else:
            edit = partial(_edit_object, partial(_edit_field, key, below))
    return edit


def _edit_object(change: Callable[[Fields], Fields | None], value: Any) -> Any:
    """Change an object; any other value stays."""
    fields = raw_fields(value) if isinstance(value, msgspec.Raw) else value
    if not (fields and isinstance(fields, dict)):
        return value
    new = change(fields)
    return value if new is fields else new


def _edit_field(key: str, edit: Edit, fields: Fields) -> Fields:
    """Change a field of an object."""
    if key not in fields or (new := edit(fields[key])) is fields[key]:
        return fields
    return {**fields, key: new} if new is not None else fields


def _edit_each(edit: Edit, values: Any) -> Any:
    """Change each entry of a list."""
    entries = raw_items(values) if isinstance(values, msgspec.Raw) else values
    if not isinstance(entries, list):
        return values
    edited = [*map(edit, entries)]
    if all(map(operator.is_, edited, entries)):
        return values
    return [new for new, entry in zip(edited, entries, strict=True) if new is not None or entry is None]


def _edit_last(edit: Edit, values: Any) -> Any:
    """Change the model's last message in a list."""
    entries = raw_items(values) if isinstance(values, msgspec.Raw) else values
    if not isinstance(entries, list):
        return values
    for place in reversed(range(len(entries))):
        entry = entries[place]
        fields = raw_fields(entry) if isinstance(entry, msgspec.Raw) else entry
        if isinstance(fields, dict) and _value(fields, "role") in ("assistant", "model"):
            new = edit(entry)
            return values if new is entry else [*entries[:place], new, *entries[place + 1 :]]
    return values


def _at(fields: Fields, path: str) -> Any:
    """Return what stands at a dotted path, as plain data."""
    key, _, below = path.partition(".")
    value = _value(fields, key)
    return at(value, below) if below else value


_PLAIN = str | int | float | None


def _value(fields: Fields, key: str) -> Any:
    """Return a field as plain data, of which any part may be as it came."""
    value = fields.get(key)
    return value if isinstance(value, _PLAIN) else decode(encode(value))
