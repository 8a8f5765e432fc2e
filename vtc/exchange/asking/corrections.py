"""Correct fields of a request that a server rejected, for example drop, rename or clamp one; drop flags of headers.

    body, flags in headers -> Correction, Correction, … -> corrected body and flags

Corrections are learned from rejections (`named_fields.py`). They apply to the encoded request, so that a path is the
server's own, whatever API the client speaks. None touches content: text, calls, results, tools, schemas, the model and
the format of the answer. None touches a field that protects the user or limits the server (`CorrectionScope`).
`corrections.yaml` holds the closed lists: fields that are never touched, and names between which a field is renamed. In
headers that list flags of features (`apis.FLAGS`) a flag may be dropped; nothing else in a header is touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from vtc.apis import FLAGS
from vtc.apis.fields import get_at, split_raw_list, split_raw_object
from vtc.apis.json_path import DROPPED, edit_at
from vtc.apis.layout import BodyLayout
from vtc.json_text import decode_json, encode_json
from vtc.profiles.document import load_table

type CorrectionKind = Literal["leave_out", "rename", "keep_within", "spell", "give", "set"]
"""The change to a field: drop it, rename it, clamp it to bounds, replace it by the nearest accepted word, add it if it
is missing or empty, or set it."""
type RequestPart = Literal["body", "headers"]
type Speaker = Literal["", "server", "provider"]
"""Who wrote an error: the server itself, or the provider whose error a gateway quotes; empty for neither."""
type Fields = Mapping[str, Any]
"""An object of the body: fields as plain data or, if unchanged, as their original bytes."""
EVERY = "*"
"""Any index, in a path."""
LAST = "-1"
"""The index of the model's last message, in a path."""


class RequestParts(NamedTuple):
    """The parts of a request that corrections change."""

    body: Fields
    headers: Fields
    """Headers that list flags, by name: each flag as spelled, by its name."""


class Correction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to one field of a request, at every place to which its path leads."""

    do: CorrectionKind
    path: tuple[str, ...]
    to: Any = None
    """The operand of `do`: the new name (`rename`), lower and upper bound or None (`keep_within`), the accepted words
    (`spell`), or the value (`give`, `set`)."""
    beside: str = ""
    """Require this field in the same object."""
    where: Mapping[str, Sequence[Any]] = {}
    """Require one of these values at each dotted path in the object; None stands for a missing field."""
    is_general: bool = True
    """True if later requests of any conversation are corrected, too; False if the cause lies in this conversation."""
    values: tuple[Any, ...] = ()
    """Require one of these values in the field, if there are any."""
    of: RequestPart = "body"
    """The part of the request to which the path belongs."""
    unknown_to: Speaker = ""
    """Who does not know the field: the server, or a provider whose error a gateway quotes."""

    def __str__(self) -> str:
        path = ".".join(self.path) if self.of == "body" else f"header {': '.join(self.path)}"
        match self.do:
            case "leave_out":
                if self.beside:
                    return f"{path} left out beside {self.beside}"
                return f"{path} left out where it is {self.values[0]}" if self.values else f"{path} left out"
            case "rename":
                return f"{path} sent as {self.to}"
            case "keep_within":
                least, most = self.to
                bounds: list[str] = []
                if least is not None:
                    bounds.append(f"at least {least}")
                if most is not None:
                    bounds.append(f"at most {most}")
                return f"{path} {' and '.join(bounds)}"
            case "spell":
                return f"{path} one of {', '.join(self.to)}"
            case "give":
                return f"{path} {self.to!r} where there is none"
            case "set":
                return f"{path} set to {encode_json(self.to).decode()}"

    def apply(self, parts: RequestParts, scope: CorrectionScope) -> RequestParts:
        """Correct a request; return the same object if nothing changes."""
        if not self._is_permitted(scope):
            return parts
        before = getattr(parts, self.of)
        path = _find_last_message(before, self.path) if LAST in self.path else self.path
        to_objects = path if path[-1] == EVERY else path[:-1]
        after = edit_at(before, to_objects, partial(self._change_object, scope, parts.body))
        return parts if after is before else parts._replace(**{self.of: after})

    def _is_permitted(self, scope: CorrectionScope) -> bool:
        """Return False if its path is protected from this kind of change, for any value there."""
        if self.of == "headers":
            return self.do == "leave_out"
        if any(map(load_limits().protects, self.path)):
            return False
        match self.do:
            case "leave_out":
                return self.path[-1] == EVERY or scope.may_leave_out(self.path)
            case "rename":
                return scope.may_leave_out(self.path) and not scope.is_set_by_policy((*self.path[:-1], self.to))
            case "give" | "set":  # only rows of the table name such paths
                return not scope.is_set_by_policy(self.path)
        return scope.may_set(self.path)

    def _change_object(self, scope: CorrectionScope, top: Fields, value: Any) -> Any:
        """Change the object that holds the field, or drop it; `top` is the whole body."""
        fields = split_raw_object(value) if isinstance(value, msgspec.Raw) else value
        if not (fields and isinstance(fields, dict)):
            return value
        new = self._change_fields(scope, top, fields)
        return value if new is fields else new

    def _change_fields(self, scope: CorrectionScope, top: Fields, fields: Fields) -> Any:
        """Change the fields of the object that holds the field."""
        # Step 1: check that the object has the field, and meets the conditions of the correction.
        key = self.path[-1]
        if (key not in fields and key != EVERY and self.do not in ("give", "set")) or not self._matches(fields):
            return fields
        if key == EVERY:
            return DROPPED if self.where else fields
        value = _get_plain(fields, key)
        if self.values and value not in self.values:
            return fields
        # Step 2: change it. A field is dropped or renamed only if its value is no content and protects nobody.
        match self.do:
            case "give":
                return {**fields, key: self.to} if _is_empty(value) and value != self.to else fields
            case "set":
                return {**fields, key: self.to} if value != self.to else fields
            case "leave_out" | "rename":
                if self.of == "body" and not (self.where or scope.is_metadata(self.path, value, top)):
                    return fields
                if holds_protected(value) or (self.do == "leave_out" and self._lifts_a_limit(value)):
                    return fields
                if self.do == "leave_out" or self.to in fields:
                    return {name: field for name, field in fields.items() if name != key}
                return {self.to if name == key else name: field for name, field in fields.items()}
        if self.do == "keep_within":
            new = _clamp(value, *self.to, shortens=fold_name(key) in load_limits().shortened_names)
        else:
            new = value if scope.is_limiting_choice(self.path, value) else _find_nearest_word(value, self.to)
        return fields if new == value else {**fields, key: new}

    def _lifts_a_limit(self, value: Any) -> bool:
        """Return True if dropping a value enables storage or removes a limit of a server that knows the field."""
        name = fold_name(self.path[-1])
        if self.path == ("store",):
            return value is False and self.unknown_to != "server"
        names, objects = load_limits().names_unless_unknown, ("generationConfig", "options")
        if name not in names or fold_name(self.beside) in names or not (len(self.path) == 1 or self.path[0] in objects):
            return False
        return isinstance(value, int) and value > 0 and not self.unknown_to

    def _matches(self, fields: Fields) -> bool:
        """Return True if an object meets the conditions `beside` and `where`."""
        if self.beside and self.beside not in fields:
            return False
        return not self.where or all(_get_at(fields, path) in values for path, values in self.where.items())


class CorrectionScope(NamedTuple):
    """The limits of corrections for one body: its API's layout, and the fields that policies set."""

    layout: BodyLayout
    """Names of the fields for the conversation, the choice of a tool and so on."""
    policies: Collection[str] = ()
    """Dotted paths that policies set or drop."""

    def may_leave_out(self, path: Sequence[str]) -> bool:
        """Return True if the field at a path may be dropped or renamed, provided that it is metadata."""
        if self.is_set_by_policy(path) or (len(path) == 1 and path[0] in (self.layout.entries, "model", "stream")):
            return False
        if ".".join(path) in load_limits().required:
            return False
        return not self._leads_to_content(path) or load_limits().free_names.isdisjoint(path[1:])

    def is_metadata(self, path: Sequence[str], value: Any, top: Fields) -> bool:
        """Return True if the value at a path that a server named is metadata and not content."""
        if _is_empty(value):
            return True
        if path[0] == self.layout.choice:
            return not _demands_tool(value) or _is_empty(_get_plain(top, "tools"))
        if path[0] == "tools":
            return any(map(load_limits().tool_names.__contains__, map(fold_name, path)))
        if self._leads_to_content(path):
            return len(path) > 1 and (".".join(path) in load_limits().beside_paths or _is_metadata(path[-1], value))
        dotted = ".".join(path)
        return not any(
            _overlaps_protected(never, dotted, value) for never in load_limits().never if never.startswith(path[0])
        )

    def _leads_to_content(self, path: Sequence[str]) -> bool:
        """Return True if a path leads into the content of messages and tools."""
        return path[0] in (self.layout.entries, self.layout.prompt, "tools")

    def may_set(self, path: Sequence[str]) -> bool:
        """Return True if the field at a path may get another number or word."""
        layout, dotted = self.layout, f"{'.'.join(path)}."
        if any(dotted.startswith(f"{never}.") for never in load_limits().never):
            return False
        return not self.is_set_by_policy(path) and path[0] not in (layout.entries, layout.prompt, "tools", "model")

    def is_limiting_choice(self, path: Sequence[str], value: Any) -> bool:
        """Return True for a value that limits which tools may be called, so that no other word replaces it."""
        return path[0] == self.layout.choice and value not in ("required", "any")

    def is_set_by_policy(self, path: Sequence[str]) -> bool:
        """Return True if a policy sets or drops the field at a path."""
        dotted = ".".join(path)
        return any(f"{name}.".startswith(f"{dotted}.") or dotted.startswith(f"{name}.") for name in self.policies)


def apply_corrections(
    parts: RequestParts, corrections: Iterable[Correction], scope: CorrectionScope
) -> tuple[RequestParts, dict[str, str]]:
    """Correct a request, keeping unchanged parts as the same objects; also return a line per effective correction."""
    lines: dict[str, str] = {}
    for correction in corrections:
        if (new := correction.apply(parts, scope)) is not parts:
            is_stored = _get_plain(parts.body, "store") is False and "store" not in new.body
            why = (
                "as the server does not know it; it may store the conversation"
                if is_stored
                else "as the server requires it"
            )
            lines[str(correction)] = f"{correction}, {why}"
        parts = new
    return parts, lines


def read_flags(headers: Mapping[str, str | None]) -> Fields:
    """Parse the headers that list flags, by name in lower case; `x` is the name of the versioned flag `x=v1`."""
    listed = {name: value.split(",") for name in FLAGS if (value := headers.get(name)) is not None}
    return {
        name: {flag.partition("=")[0].strip(): flag.strip() for flag in flags if flag.strip()}
        for name, flags in listed.items()
    }


def render_headers(before: Fields, after: Fields) -> dict[str, str | None]:
    """Render the headers whose flags changed; None for a header that is dropped."""
    changed = {name: after.get(name) for name, flags in before.items() if after.get(name) is not flags}
    return {name: ",".join(flags.values()) if flags else None for name, flags in changed.items()}


class CorrectionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The contents of `corrections.yaml`."""

    renames: tuple[tuple[str, ...], ...]
    """Groups of synonymous names."""
    shortened: tuple[str, ...]
    """Names of lists that a bound may shorten."""
    protected: tuple[str, ...]
    """Names of fields that no correction touches, with `*` for any ending."""
    unless_unknown: tuple[str, ...]
    """Names of numbers that are dropped only if the server does not know the field."""
    of_tools: tuple[str, ...]
    """Names of fields that may be dropped from a tool."""
    scales: tuple[tuple[str, ...], ...]
    """Scales of words, from least to most."""
    never: tuple[str, ...]
    """Dotted paths that are never dropped."""
    meaning: str
    """Names of fields with the content of messages and tools, separated by spaces; so are the next two."""
    free: str
    """Names in `meaning` whose value is arbitrary JSON of a user, a model or a tool."""
    beside: str
    """Names of metadata fields, next to content, that may hold text."""
    required: tuple[str, ...]
    """Dotted paths that are never dropped, even if empty."""
    beside_paths: tuple[str, ...]
    """Dotted paths of metadata fields whose names elsewhere denote content."""

    def may_rename(self, name: str, to: str) -> bool:
        """Return True if two names are synonymous, in any spelling."""
        name, to = fold_name(name), fold_name(to)
        return name == to or any({name, to} <= {*map(fold_name, names)} for names in self.renames)

    def protects(self, name: str) -> bool:
        """Return True for the name of a protected field."""
        return self._protected.fullmatch(fold_name(name).lower()) is not None

    def is_on_a_scale(self, value: object) -> bool:
        """Return True for a word on a scale."""
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
        """The names of `free`, inside which nothing is a field of the request."""
        return frozenset(self.free.split())

    @cached_property
    def beside_names(self) -> frozenset[str]:
        """The names of `beside`."""
        return frozenset(self.beside.split())


@cache
def load_limits() -> CorrectionLimits:
    """Load `corrections.yaml`, which few requests need."""
    return load_table(Path(__file__).with_suffix(".yaml"), CorrectionLimits)


def _overlaps_protected(never: str, path: str, value: Any) -> bool:
    """Return True if dropping the value at a path would drop a field that is `never` dropped, and is not empty."""
    if never.startswith(f"{path}."):
        value = get_at(value, never[len(path) + 1 :])
    elif not f"{path}.".startswith(f"{never}."):
        return False
    return not _is_empty(value) and value != {"type": "text"}


def holds_protected(value: Any) -> bool:
    """Return True if an object has a protected field at any depth."""
    rest = [value]
    while rest:
        node = rest.pop()
        if isinstance(node, dict):
            if any(map(load_limits().protects, node)):
                return True
            rest += node.values()
        elif isinstance(node, list):
            rest += node
    return False


@lru_cache(1024)
def fold_name(name: str) -> str:
    """Fold the spellings of a name into one: `top_k`, `topK`."""
    return name[:1] + name[1:].replace("_", "").lower()


def _is_metadata(name: str, value: Any) -> bool:
    """Return True for a field of a message or a tool without text, call, result or schema."""
    if name in load_limits().meaning_names:
        return False
    return name in load_limits().beside_names or not any(map(_is_content, _list_leaves(value)))


def _is_content(leaf: Any) -> bool:
    """Return True for a text, or the name of a content field. A string of one short word is metadata, not text."""
    return isinstance(leaf, str) and (leaf in load_limits().meaning_names or len(leaf.split()) > 1 or len(leaf) > 64)


def _list_leaves(value: Any) -> Iterator[Any]:
    """Yield the names and scalar values in a value, at any depth."""
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
    """Return True if a choice of a tool demands a call."""
    words = (leaf for leaf in _list_leaves(choice) if isinstance(leaf, str))
    return any(word.lower() not in ("auto", "type", "mode", "functioncallingconfig") for word in words)


def _is_empty(value: Any) -> bool:
    return value in (None, "", [], {})


def _clamp(value: Any, least: int | float | None, most: int | float | None, *, shortens: bool) -> Any:
    """Clamp a number to its bounds; a list that `shortens` keeps its first entries."""
    if isinstance(value, list):
        return value[: max(most, 0)] if shortens and isinstance(most, int) else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if least is not None and value < least:
        return least
    return most if most is not None and value > most else value


def _find_nearest_word(value: Any, words: Sequence[str]) -> Any:
    """Return the accepted word nearest to a value on its scale; the value itself if there is none."""
    scale = next((scale for scale in load_limits().scales if value in scale), ())
    # `none` turns a feature off, so it is no substitute for another word.
    accepted = [word for word in scale if word in words and (word != "none" or value == word)]
    if not accepted or value in words:
        return value
    place = scale.index(value)
    return min(accepted, key=lambda word: (abs(scale.index(word) - place), -scale.index(word)))


def _find_last_message(body: Fields, path: Sequence[str]) -> Sequence[str]:
    """Replace `LAST` in a path by the index of the model's last message; the path leads nowhere without one."""
    entries = split_raw_list(encode_json(body.get(path[0]))) or []
    for place, entry in reversed([*enumerate(entries)]):
        if _get_plain(split_raw_object(entry) or {}, "role") in ("assistant", "model"):
            return [str(place) if key == LAST else key for key in path]
    return path


def _get_at(fields: Fields, path: str) -> Any:
    """Return the value at a dotted path, as plain data."""
    key, _, below = path.partition(".")
    value = _get_plain(fields, key)
    return get_at(value, below) if below else value


_PLAIN = str | int | float | None


def _get_plain(fields: Fields, key: str) -> Any:
    """Return a field as plain data, decoding raw bytes in it."""
    value = fields.get(key)
    return value if isinstance(value, _PLAIN) else decode_json(encode_json(value))
