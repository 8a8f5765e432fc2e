"""A request that keeps the bytes in which it came, as far as nothing of it is changed: the same for all APIs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import compress, takewhile
from operator import not_
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis import asking, content, contract
from vtc.apis.contract import BadRequest
from vtc.apis.fields import UNFIT, changed, items, raws, told
from vtc.events import Message, Opaque, Tool, ToolCall

CHOSEN = ("tool", "function", "custom", "namespace")
"""The types of a choice of one tool; any other is of none, or of what the server runs."""
ABOUT_STREAMS = ("stream_options",)
"""The fields that servers refuse where no stream is asked for."""

type Group = tuple[Sequence[Message], Sequence[int]]
"""Messages, and the places of the entries of the conversation that they are."""


class PromptField(msgspec.Struct, frozen=True):
    """The `source` of a message that is a field of its own, as the system prompt of some APIs is."""

    content: Any


class Request(contract.Request):
    """A request that keeps the bytes of each field of its body, and of each entry of its conversation.

    An API says how messages and tools are read and written.
    """

    NAME: ClassVar[str]
    """What the body is, for the error where it is none."""
    ENTRIES: ClassVar[str] = "messages"
    """The field of the conversation."""
    PROMPT: ClassVar[str] = ""
    """The field of the system prompt, if it has one of its own."""
    CHOICE: ClassVar[str] = "tool_choice"
    """The field that demands a tool, or forbids all."""
    IN_PATH: ClassVar[bool] = False
    """True if the path says the model, and whether to stream, instead of the body."""

    def __init__(self, body: bytes, path: str = "") -> None:
        self.path = path
        with self._fit():
            self._raw, self.fields = self._split(body)
            self.tools = self._tools(self.fields)
            self.model = str(self.fields.get("model") or "")
            self.stream = self.fields.get("stream") is True
            self.parallel = self.fields.get("parallel_tool_calls") is not False
            self.thinks, self.effort = asking.thinks(self.fields), asking.effort(self.fields)
            self.answer = asking.answer(self.fields)
            self.constrained = asking.constrained(self.fields)
            self.several = self.fields.get("n") not in (None, 1)
            self.declared = [name for one in self._declarations() for name in self._names(one)]
            choice, self._allowed = self._demand(self.fields.get(self.CHOICE) or "auto")
            self.tool_choice = "required" if choice == "any" else choice
            if self._allowed is not None:
                self.tools = [one for one in self.tools if one.name in self._allowed]
            if not isinstance(self._conversation, list):
                raise TypeError(f"`{self.ENTRIES}` is no list")
            self._decode()

    @staticmethod
    def _split(body: bytes) -> tuple[dict[str, msgspec.Raw], dict[str, Any]]:
        """Split a body into the bytes of every field and what the fields say. Raises ValueError."""
        return raws(body)

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
                groups.append(([Message("system", self._prompted(prompt), source=PromptField(prompt))], ()))
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
            isinstance(one.source, PromptField) or (one.source is None and place < opening)
            for place, one in enumerate(messages)
        ]
        prompt, rest = [*compress(messages, is_prompt)], [*compress(messages, map(not_, is_prompt))]
        if [*map(id, prompt)] != [id(one) for one in self.messages if isinstance(one.source, PromptField)]:
            kept[self.PROMPT] = self._prompt(prompt)
            if not prompt:
                del kept[self.PROMPT]
        if [*map(id, rest)] != [id(one) for one in self.messages if not isinstance(one.source, PromptField)]:
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
        if isinstance(entries := self.fields.get("tools"), list) and "tools" in kept:
            kept["tools"] = [*self._offered(entries, names)]
        if not kept.get("tools"):
            self._forget_tools(kept)
        elif self.tool_choice in names or self._allowed is not None:
            kept.pop(self.CHOICE, None)

    def _forget_tools(self, kept: dict[str, Any]) -> None:
        """Leave out all that is about tools."""
        for key in ("tools", self.CHOICE, "parallel_tool_calls"):
            kept.pop(key, None)

    def _redeclare(self, kept: dict[str, Any], tools: Mapping[str, Tool]) -> None:
        """Write the declarations of some tools anew, by their names so far, and what demands one of these."""
        if isinstance(entries := self.fields.get("tools"), list) and (raw := kept.get("tools")) is not None:
            came = items(raw, entries) if isinstance(raw, msgspec.Raw) else [*raw]
            entries = entries if isinstance(raw, msgspec.Raw) else raw
            kept["tools"] = [
                self._redeclared(entry, tools) or as_it_came for entry, as_it_came in zip(entries, came, strict=True)
            ]
        names = {name: tool.name for name, tool in tools.items() if name != tool.name}
        if names and self.CHOICE in kept:
            kept[self.CHOICE] = self._renamed(self.fields[self.CHOICE], names)

    def _declarations(self) -> Iterator[list[Any]]:
        """Find the lists that declare tools."""
        return (entries for entries in (self.fields.get("tools"),) if isinstance(entries, list))

    def _names(self, entries: Sequence[Any]) -> Iterator[str]:
        """Tell the names of all that is declared."""
        return (name for one in entries if (name := self._name(one)))

    def _offered(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        """Leave out declarations of the tools named."""
        return (one for one in entries if self._name(one) not in names)

    def _renamed(self, choice: Any, names: Mapping[str, str]) -> Any:
        """Write the choice of a tool with other names."""
        if isinstance(choice, list):
            return [self._renamed(one, names) for one in choice]
        if not isinstance(choice, dict):
            return choice
        return {
            key: names.get(one, one) if key == "name" and isinstance(one, str) else self._renamed(one, names)
            for key, one in choice.items()
        }

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

    def _prompted(self, prompt: Any) -> tuple[str | Opaque, ...]:
        """Read the system prompt."""
        return content.read(prompt)

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

    @abstractmethod
    def _redeclared(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        """Write a declaration anew with the name and the parameters of the tool of its name; None if none is given."""

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
        unstreamed: bool = False,
        model: str = "",
        redeclared: Mapping[str, Tool] | None = None,
        undemanded: bool = False,
        limits: Mapping[str, Any] | None = None,
    ) -> bytes:
        if unstreamed and not self.IN_PATH:
            drop, set_ = (*drop, *ABOUT_STREAMS), {**(set_ or {}), "stream": False}
            set_ = {key: value for key, value in set_.items() if key not in ABOUT_STREAMS}
        kept: dict[str, Any] = {key: raw for key, raw in self._raw.items() if key not in drop}
        if model and not self.IN_PATH:
            kept["model"] = model
        if tools is not None:
            self._forget_tools(kept)
            self._declare(kept, tools)
        elif withheld:
            self._withhold(kept, withheld)
        if redeclared:
            self._redeclare(kept, redeclared)
        if limits:
            kept.update(asking.replaced(self.fields, limits, self.LIMITS))
        if undemanded:
            kept.pop(self.CHOICE, None)
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
