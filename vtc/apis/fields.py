"""The fields of JSON bodies: what they say, and the bytes in which those of a request came."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from vtc.apis.base import BadRequest, Cache, Request
from vtc.events import Message, Tool
from vtc.json_text import decode, encode

UNFIT = (ValueError, UnicodeError, AttributeError, TypeError, KeyError, RecursionError)
"""What a body raises that is no request."""


def told(error: Exception) -> str:
    """Say why a body is not what it should be, without a word of what stands in it."""
    match error:
        case UnicodeError():  # its own text may be the whole body
            return "not UTF-8"
        case json.JSONDecodeError():
            return f"not JSON ({error})"
        case KeyError():
            return f"{error} is missing"
        case AttributeError():
            return "a value in it has another type than the API says"
        case RecursionError():
            return "nested too deeply"
        case _:
            return str(error)


_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])

type Group = tuple[Sequence[Message], Sequence[int]]
"""Messages, and the places of the entries of the conversation that they are."""
type Declared = Callable[[Mapping[str, Any]], Sequence[Tool]]
"""Reads the tools that some fields declare."""


def raws(
    body: bytes, keys: Sequence[str], read: Declared, cache: Cache | None = None
) -> tuple[dict[str, msgspec.Raw], dict[str, Any], Sequence[Tool]]:
    """Split a body into the bytes of every field, what the fields say, and the tools that those of `keys` declare.

    Raises ValueError.
    """
    try:
        raw = _raw_object.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It takes Python's own decoder, so there are no bytes to keep: JavaScript cuts emoji in two when it cuts text.
        fields: dict[str, Any] = decode(body)
        return {key: msgspec.Raw(encode(value)) for key, value in fields.items()}, fields, read(fields)
    known = {key: bytes(raw[key]) for key in keys if key in raw}
    if known and cache is not None:
        of = ("declared", read.__module__, *(part for entry in known.items() for part in entry))
        declared, tools = cache.get_or_make(of, lambda: _declared(known, read))
    else:
        declared, tools = _declared(known, read)
    fields = {key: declared[key] if key in declared else decode(bytes(one)) for key, one in raw.items()}
    return raw, fields, tools


class FieldsRequest(Request):
    """A request that keeps the bytes of each field of its body, and of each entry of its conversation.

    An API says how messages and tools are read and written.
    """

    NAME: ClassVar[str]
    """What the body is, for the error where it is none."""
    TOOL_FIELDS: ClassVar[Sequence[str]]
    """The fields that are about tools."""
    _raw: Mapping[str, msgspec.Raw]

    def __init__(self, body: bytes, cache: Cache | None = None) -> None:
        with self._fit():
            self._decode(body, cache)

    @contextmanager
    def _fit(self) -> Iterator[None]:
        try:
            yield
        except UNFIT as error:
            raise BadRequest(f"the body is no {self.NAME}: {told(error)}") from None

    @cached_property
    def messages(self) -> Sequence[Message]:  # type: ignore[override]  # made when asked for, as most are left alone
        return [message for group, _ in self._groups for message in group]

    @cached_property
    def _groups(self) -> Sequence[Group]:
        with self._fit():
            return [*self._read()]

    def forget(self) -> None:
        self.fields, self.messages, self._raw, self._groups = {}, [], {}, []

    @abstractmethod
    def _decode(self, body: bytes, cache: Cache | None) -> None:
        """Decode all but the messages. Raises `UNFIT`."""

    @abstractmethod
    def _read(self) -> Iterable[Group]:
        """Decode the messages. Raises `UNFIT`."""

    def _entries(
        self, entries: Sequence[msgspec.Raw], messages: Sequence[Message], add: Callable[[list[Any], Message], None]
    ) -> list[Any]:
        """Write messages as entries of the conversation, which now has `entries`; what is unchanged keeps its own.

        `add` writes a message that was changed, or is new.
        """
        groups = {id(group[0]): (group, places) for group, places in self._groups if group}
        written: list[Any] = []
        at = 0
        while at < len(messages):
            group, places = groups.get(id(messages[at]), ((), ()))
            if group and [*map(id, group)] == [*map(id, messages[at : at + len(group)])]:
                written += [entries[place] for place in places]
                at += len(group)
            else:
                add(written, messages[at])
                at += 1
        return written

    @abstractmethod
    def _put(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Write the messages into the fields `kept`."""

    @abstractmethod
    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        """Write the declarations of tools, in place of those that were there."""

    @abstractmethod
    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""

    def encode(
        self,
        *,
        messages: Sequence[Message] | None = None,
        drop: Sequence[str] = (),
        set_: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
        withheld: Collection[str] = (),
    ) -> bytes:
        gone = {*drop, *(() if tools is None else self.TOOL_FIELDS)}
        kept: dict[str, Any] = {key: raw for key, raw in self._raw.items() if key not in gone}
        if tools is not None:
            self._declare(kept, tools)
        elif withheld:
            self._withhold(kept, withheld)
        if messages is not None:
            self._put(kept, messages)
        return changed(kept, drop, set_)


def _declared(fields: Mapping[str, bytes], read: Declared) -> tuple[dict[str, Any], Sequence[Tool]]:
    """Decode declarations of tools. Agents send the same ones with every request, and exchanges share them."""
    declared = {key: decode(raw) for key, raw in fields.items()}
    return declared, read(declared)


def items(raw: bytes, values: Sequence[Any]) -> list[msgspec.Raw]:
    """Split a list into the bytes of its items; `values` is what it says."""
    try:
        return _raw_list.decode(raw)
    except msgspec.DecodeError:
        return [msgspec.Raw(encode(value)) for value in values]


def part_of(value: Any, key: str) -> Mapping[str, Any]:
    """Return the object that stands in another one under a key; empty if there is none."""
    part = value.get(key) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def without_names(value: Mapping[str, Any], names: Collection[str], within: Sequence[str]) -> dict[str, Any]:
    """Leave out the fields named, and those of the objects that stand under the keys of `within`."""
    clean = {key: one for key, one in value.items() if key not in names}
    for key in within:
        if isinstance(clean.get(key), dict):
            clean[key] = without_names(clean[key], names, within)
    return clean


def without(value: Any, path: Sequence[str]) -> Any:
    """Leave out of JSON what stands at a path; `*` is any key or index."""
    key, *rest = path
    if isinstance(value, list):
        is_this = [key in ("*", str(index)) for index in range(len(value))]
        if rest:
            return [without(one, rest) if this else one for this, one in zip(is_this, value, strict=True)]
        return [one for this, one in zip(is_this, value, strict=True) if not this]
    if isinstance(value, dict):
        if rest:
            return {name: without(one, rest) if key in ("*", name) else one for name, one in value.items()}
        return {name: one for name, one in value.items() if key not in ("*", name)}
    return value


def changed(fields: dict[str, Any], drop: Sequence[str], set_: Mapping[str, Any] | None) -> bytes:
    """Encode fields without what stands below them at the dotted paths of `drop`, and with those of `set_`."""
    for path in drop:
        key, _, rest = path.partition(".")
        if rest and key in fields:
            fields[key] = without(decode(encode(fields[key])), rest.split("."))
    return encode({**fields, **(set_ or {})})
