"""The fields of JSON bodies: what they say, and the bytes in which those of a request came."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import compress, takewhile
from operator import not_
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis import content
from vtc.apis.base import BadRequest, Cache, Request
from vtc.events import Message, Tool, ToolCall
from vtc.json_text import decode, encode
from vtc.wire.framing import Frame, Framing

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


DECLARING = ("tools", "functions")
"""The fields that declare tools."""
DEMANDING = ("tool_choice", "function_call")
"""The fields that demand one of them."""
CHOSEN = ("tool", "function", "custom", "namespace")
"""The types of a choice of one tool; any other is of none, or of what the server runs."""
ABOUT_TOOLS = (*DECLARING, *DEMANDING, "parallel_tool_calls")

_PARTS = ("choices", "message", "delta", "response", "item", "part", "usage")
_CALLS = ("tool_calls", "function_call")

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


class Prompt(msgspec.Struct, frozen=True):
    """The `source` of a message that is a field of its own, as the system prompt of some APIs is."""

    content: Any


class FieldsRequest(Request):
    """A request that keeps the bytes of each field of its body, and of each entry of its conversation.

    An API says how messages and tools are read and written.
    """

    NAME: ClassVar[str]
    """What the body is, for the error where it is none."""
    ENTRIES: ClassVar[str] = "messages"
    """The field of the conversation."""
    PROMPT: ClassVar[str] = ""
    """The field of the system prompt, if it has one of its own."""

    def __init__(self, body: bytes, cache: Cache | None = None) -> None:
        with self._fit():
            self._raw, self.fields, self.tools = raws(body, DECLARING, self._tools, cache)
            self.model = str(self.fields.get("model") or "")
            self.stream = self.fields.get("stream") is True
            self.parallel = self.fields.get("parallel_tool_calls") is not False
            lists = (self.fields.get(key) for key in DECLARING)
            self.declared = [name for one in lists if isinstance(one, list) for name in self._names(one)]
            choice, allowed = self._demand(self.fields.get("tool_choice") or self.fields.get("function_call") or "auto")
            self.tool_choice = "required" if choice == "any" else choice
            self.tools = self.tools if allowed is None else [one for one in self.tools if one.name in allowed]
            if not isinstance(self._conversation, list):
                raise TypeError(f"`{self.ENTRIES}` is no list")
            self._decode()

    @contextmanager
    def _fit(self) -> Iterator[None]:
        try:
            yield
        except UNFIT as error:
            raise BadRequest(f"the body is no {self.NAME}: {told(error)}") from None

    def forget(self) -> None:
        self.fields, self.messages, self._raw, self._groups = {}, [], {}, []

    # Messages

    @cached_property
    def messages(self) -> Sequence[Message]:  # type: ignore[override]  # made when asked for, as most are left alone
        return [message for group, _ in self._groups for message in group]

    @cached_property
    def _groups(self) -> Sequence[Group]:
        known: dict[str | None, ToolCall] = {}
        waiting: list[ToolCall] = []  # calls without a result, the oldest first
        groups: list[Group] = []
        with self._fit():
            if prompt := self.fields.get(self.PROMPT):
                groups.append(([Message("system", content.read(prompt), source=Prompt(prompt))], ()))
            for group, places in self._read():
                groups.append(([_matched(one, known, waiting) for one in group], places))
        return groups

    @property
    def _conversation(self) -> Any:
        """The entries of the conversation."""
        return self.fields.get(self.ENTRIES, [])

    def _put(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Write the messages into the fields `kept`; new ones that open the conversation join the system prompt."""
        opening = len([*takewhile(lambda one: one.role == "system", messages)]) if self.PROMPT else 0
        is_prompt = [
            isinstance(one.source, Prompt) or (one.source is None and place < opening)
            for place, one in enumerate(messages)
        ]
        prompt, rest = [*compress(messages, is_prompt)], [*compress(messages, map(not_, is_prompt))]
        if [*map(id, prompt)] != [id(one) for one in self.messages if isinstance(one.source, Prompt)]:
            kept[self.PROMPT] = self._prompt(prompt)
            if not prompt:
                del kept[self.PROMPT]
        if [*map(id, rest)] != [id(one) for one in self.messages if not isinstance(one.source, Prompt)]:
            kept[self.ENTRIES] = self._entries(rest)

    def _entries(self, messages: Sequence[Message]) -> list[Any]:
        """Write messages as entries of the conversation; what is unchanged keeps its own."""
        entries = items(self._raw.get(self.ENTRIES, b"[]"), self._conversation)
        groups = {id(group[0]): (group, places) for group, places in self._groups if group}
        called = {call.id for message in messages for call in message.calls if call.id}
        written: list[Any] = []
        at = 0
        while at < len(messages):
            group, places = groups.get(id(messages[at]), ((), ()))
            if group and [*map(id, group)] == [*map(id, messages[at : at + len(group)])]:
                written += [entries[place] for place in places]
                at += len(group)
            else:
                self._add(written, messages[at], called)
                at += 1
        return written

    # Tools

    def _demand(self, choice: Any) -> tuple[str, Collection[str] | None]:
        """Read the choice of a tool, and the names of those that are allowed; None for all."""
        if not isinstance(choice, dict):
            return str(choice), None
        kind = choice.get("type") or "function"
        if kind == "allowed_tools":
            given = choice.get("allowed_tools", choice)
            return str(given.get("mode") or "auto"), {self._chosen(one) or "" for one in given.get("tools") or ()}
        if kind in CHOSEN and (name := self._chosen(choice)) is not None:
            return name, None
        if kind in CHOSEN:
            raise TypeError("`tool_choice` names no tool")
        return (str(kind) if kind in ("none", "any", "required") else "auto"), None

    def _chosen(self, choice: Mapping[str, Any]) -> str | None:
        """Tell the name of the tool that is chosen."""
        return self._name(choice)

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        """Write the declarations of tools, in place of those that were there."""
        if tools:
            kept["tools"] = [*map(self._declaration, tools)]

    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""
        for key in DECLARING:
            if isinstance(entries := self.fields.get(key), list) and key in kept:
                kept[key] = [*self._offered(entries, names)]
                if not kept[key]:
                    del kept[key]
        is_demanded = self.tool_choice in names or part_of(self.fields, "tool_choice").get("type") == "allowed_tools"
        is_left = any(key in kept for key in DECLARING)
        for key in () if is_left and not is_demanded else DEMANDING if is_left else ABOUT_TOOLS:
            kept.pop(key, None)

    def _names(self, entries: Sequence[Any]) -> Iterator[str]:
        """Tell the names of all that is declared."""
        return (name for one in entries if (name := self._name(one)))

    def _offered(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        """Leave out declarations of the tools named."""
        return (one for one in entries if self._name(one) not in names)

    # What an API says

    @abstractmethod
    def _decode(self) -> None:
        """Decode all but the messages. Raises `UNFIT`."""

    @abstractmethod
    def _read(self) -> Iterable[Group]:
        """Decode the messages; results need no names if they have the ids of calls. Raises `UNFIT`."""

    @abstractmethod
    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Write a message that was changed, or is new; `called` are the ids of the calls that are written."""

    def _prompt(self, messages: Sequence[Message]) -> Any:
        """Write the system prompt."""
        return "\n\n".join(one.text for one in messages)

    @staticmethod
    @abstractmethod
    def _tools(fields: Mapping[str, Any]) -> Sequence[Tool]:
        """Read the tools that are functions."""

    @staticmethod
    def _name(entry: Any) -> str | None:
        """Tell the name of what is declared."""
        name = entry.get("name")
        return name if isinstance(name, str) else None

    @staticmethod
    @abstractmethod
    def _declaration(tool: Tool) -> Mapping[str, Any]:
        """Declare a tool."""

    def encode(
        self,
        *,
        messages: Sequence[Message] | None = None,
        drop: Sequence[str] = (),
        set_: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
        withheld: Collection[str] = (),
    ) -> bytes:
        gone = {*drop, *(() if tools is None else ABOUT_TOOLS)}
        kept: dict[str, Any] = {key: raw for key, raw in self._raw.items() if key not in gone}
        if tools is not None:
            self._declare(kept, tools)
        elif withheld:
            self._withhold(kept, withheld)
        if messages is not None:
            self._put(kept, messages)
        return changed(kept, drop, set_)


def _matched(message: Message, known: dict[str | None, ToolCall], waiting: list[ToolCall]) -> Message:
    """Give a result the name and the id of its call: the `known` one of its id, or else by name and order."""
    if message.role != "tool":
        known.update((call.id, call) for call in message.calls if call.id)
        waiting += message.calls
        return message
    id_, name = message.call_id, message.name
    fits = (one for one in waiting if name in (None, one.name) and None in (id_, one.id))
    call = known.get(id_) or next(fits, None)
    if call in waiting:
        waiting.remove(call)
    return replace(message, name=call.name, call_id=id_ or call.id) if call else message


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


def object_of(data: bytes | None) -> dict[str, Any] | None:
    """Decode the object that a frame of a reply holds; None if it holds something else."""
    try:
        value = msgspec.json.decode(data or b"null")  # as nearly always, in one step fewer
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        try:
            value = decode(data or b"", "replace")
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def part_of(value: Any, key: str) -> Mapping[str, Any]:
    """Return the object that stands in another one under a key; empty if there is none."""
    part = value.get(key) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def without_names(value: Any, names: Collection[str]) -> Any:
    """Leave out the fields named, at the top of a reply and in the objects that are its parts.

    Calls stay; where there are none their fields go, named or not.
    """
    if isinstance(value, list):
        return [without_names(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    left = {key: one for key, one in value.items() if (one if key in _CALLS else key not in names)}
    return {key: without_names(one, names) if key in _PARTS else one for key, one in left.items()}


def cleaned(frame: Frame, value: Any, names: Collection[str], framing: Framing) -> tuple[Frame, Any]:
    """Leave fields out of what a frame says; return the frame that says the rest, the same one if nothing is gone."""
    if not names or (clean := without_names(value, names)) == value:
        return frame, value
    return Frame(framing.write(clean, frame, first=True), encode(clean)), clean


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
