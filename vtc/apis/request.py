"""The request side of an API's contract: a decoded request, which keeps the bytes in which it came.

What is not changed keeps its bytes, for all APIs: each field of the body, and each entry of the conversation. An API
says in a `BodyLayout` where it has what, and by the methods of its `Request` how messages and tools are written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import compress, takewhile
from operator import is_, not_
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from vtc.apis import content, generation
from vtc.apis.fields import (
    INVALID_BODY_ERRORS,
    REPLACED_SURROGATES,
    describe_body_fault,
    edit_fields,
    split_body,
    split_items,
)
from vtc.apis.layout import BodyLayout, ShapedBody, apply_shapes
from vtc.events import GenerationConfig, Media, Message, Opaque, Seal, Thought, Tool, ToolCall, ToolOffer
from vtc.json_text import encode

SINGLE_TOOL_TYPES = ("tool", "function", "custom", "namespace")
"""The types of a choice of one tool; any other is of none, or of what the server runs."""
STREAM_ONLY_FIELDS = ("stream_options",)
"""The fields that servers refuse where no stream is asked for."""

type MessageGroup = tuple[Sequence[Message], Sequence[int]]
"""Messages, and the places of the entries of the conversation that they are."""


class BadRequest(ValueError):
    """The body is no request of this API; it is passed on untouched."""


class PromptField(msgspec.Struct, frozen=True):
    """The `source` of a message that is a field of its own, as the system prompt of some APIs is."""

    content: Any


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a request; all else keeps its bytes."""

    messages: Sequence[Message] | None = None
    """Stand for those that came; None if these stay."""
    tools: Sequence[Tool] | None = None
    """Are declared instead of those that were; with none at all, what is about tools is left out. None if they stay."""
    withheld: Collection[str] = ()
    """Names of declared tools that are left out, where `tools` is None."""
    redeclared: Mapping[str, Tool] = {}
    """Tools by the names under which they were declared: their declarations say the name and the parameters of these,
    and keep all else."""
    undemanded: bool = False
    """True to leave the choice of a tool to the model."""
    model: str = ""
    """The name of another model; empty if it stays."""
    unstreamed: bool = False
    """True to ask for a whole reply."""
    streamed: bool = False
    """True to ask for a stream."""
    limits: Mapping[str, Any] = {}
    """By the names of `BodyLayout.limits`."""
    drop: Sequence[str] = ()
    """Dotted paths of what is left out, `*` being any key or index."""
    set: Mapping[str, Any] = {}
    """Fields that are set, whatever the above says."""


NO_CHANGES = Changes()


class Request(ABC):
    """A decoded request."""

    LAYOUT: ClassVar[BodyLayout]

    model: str
    stream: bool
    offer: ToolOffer
    generation: GenerationConfig
    body: ShapedBody
    """The bytes of each field, and what was put in shape."""
    fields: Mapping[str, Any]
    """The whole body as plain data, for profiles that match on it."""
    call_ids: Collection[str]
    """Of all calls in the conversation."""
    form: Any = None
    """What decoder and encoder of the reply must know of the request; it is kept by `forget`."""
    refers: str = ""
    """The field by which it refers to a conversation that only its own server has; empty if it has all of it."""
    unread: str = ""
    """The field by which it declares tools in a form that is not read; empty if there is none."""
    idle: bool = False
    """True if it asks for no reply, but to have the model loaded."""
    unliftable: str = ""
    """Why no call may be read from the text of the reply; empty if it may."""

    def __init__(self, body: bytes, path: str = "", *, as_it_came: bool = False) -> None:
        """Decode a body, and the path for APIs that say something there. Raises `BadRequest`.

        What is not in shape is put so, unless it is to be read `as_it_came`.
        """
        with self._fit():
            raw, fields, halved = self._split(body, mend=not as_it_came)
            lines = (REPLACED_SURROGATES,) if halved else ()
            self.body = apply_shapes(raw, fields, () if as_it_came else self.LAYOUT.shapes, lines)
            self.fields = self.body.fields
            if not isinstance(self._conversation, list):
                raise TypeError(f"`{self.LAYOUT.entries}` is no list")
            self.model = str(self.fields.get("model") or "")
            self.stream = self.fields.get("stream") is True
            self.generation = generation.read(self.fields, self.LAYOUT)
            self.offer = self._read_offer()
            self._decode(path)

    @contextmanager
    def _fit(self) -> Iterator[None]:
        try:
            yield
        except INVALID_BODY_ERRORS as error:
            raise BadRequest(f"the body is no {self.LAYOUT.name}: {describe_body_fault(error)}") from None

    def forget(self) -> None:
        """Let go of the conversation and of all else that only sending the request needs."""
        self.body, self.fields, self.messages, self._groups = ShapedBody({}, {}), {}, [], []

    # What an API says of its messages

    @abstractmethod
    def meaning(self, part: Any) -> str | Media | Seal | None:
        """Tell another API what an opaque part of a message is; None if it has no word for it.

        Of past reasoning that is its seal.
        """

    def kind(self, part: Any) -> str:
        """Name a part that cannot be told, for people; empty for one that need not be."""
        return str(part.get("type") or "part") if isinstance(part, Mapping) else "part"

    def get_loaded_tool(self, part: Any) -> str:
        """Name the tool that the model may call from an opaque part on; empty for any other part."""
        return ""

    def get_attached_media(self, message: Message) -> Sequence[Media]:
        """Return the media of a message that stand beside its content."""
        return ()

    def without_attached_media(self, message: Message) -> Message:
        """Leave out the media that stand beside the content."""
        return message

    def get_refusal(self, message: Message) -> str:
        """Return the text by which the model declined to answer, where it stands beside the content of a message."""
        return ""

    def is_failed_result(self, message: Message) -> bool:
        """True for a result that is an error."""
        return False

    def list_untranslated(self, message: Message) -> Iterable[str]:
        """Name the fields of a message that no other API is told."""
        return ()

    def get_call_seals(self, call: ToolCall) -> Sequence[str]:
        """Return the seals that stand on a call."""
        return ()

    def list_seals(self, message: Message) -> Iterator[str]:
        """Find what only its server reads of what the model thought, in a past message."""
        for part in message.sequence:
            if isinstance(part, ToolCall):
                yield from self.get_call_seals(part)
            elif isinstance(part, Opaque) and part.part is not None:
                seal = self.meaning(part.part)
                if isinstance(seal, Seal) and seal.value:
                    yield seal.value

    def without_reasoning(self, message: Message) -> Message:
        """Leave out all that a past message holds of what the model thought."""

        def stays(part: str | Opaque) -> bool:
            return isinstance(part, str) or not self._is_reasoning(part.part)

        return replace(message.filter_parts(stays), reasoning="")

    @abstractmethod
    def _is_reasoning(self, part: Any) -> bool:
        """True if an opaque part holds nothing but what the model thought."""

    def with_reasoning(self, message: Message, field: str) -> Message:
        """Write the recalled `reasoning` of a past message into its own object, which lacks it.

        Sealed reasoning already stands among its parts. `field` is where servers of chat completions want the text.
        """
        thought = (Opaque(thought=Thought(message.recalled_reasoning)),) if message.recalled_reasoning else ()
        return replace(message, content=(*thought, *message.content))

    def form_with(self, thoughts: tuple[str, ...]) -> Any:
        """Return the `form` for a client that is told what the model thinks in these fields, if its API has several."""
        return self.form

    # What only some servers take

    def with_usual_role(self, message: Message) -> Message:
        """Call its role by the usual name, where it is a message under another one (`developer`)."""
        return message

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        """Have a message written as a text, where its content is a list of texts alone; or as null, if it has none."""
        return message

    def lacks_call_id(self, message: Message) -> bool:
        """True for a result that does not say itself which call it answers, where that is known."""
        return message.role == "tool" and isinstance(message.source, dict) and self._lacks_call(message)

    def _lacks_call(self, result: Message) -> bool:
        """True if the object of a result lacks what its API calls the call by, and that is known."""
        return False

    def has_null_content(self, message: Message) -> bool:
        """True if a server of chat completions would get null for its content."""
        return message.source is None and bool(message.calls) and not message.content

    # What an API reads and writes

    @staticmethod
    def _split(body: bytes, *, mend: bool) -> tuple[dict[str, msgspec.Raw], dict[str, Any], bool]:
        """Split a body into the bytes of every field and what the fields say (`raws`). Raises ValueError."""
        return split_body(body, mend=mend)

    @abstractmethod
    def _decode(self, path: str) -> None:
        """Decode all but the messages. Raises `UNFIT`."""

    @abstractmethod
    def _read(self) -> Iterable[MessageGroup]:
        """Decode the messages; results need no names if they have the ids of calls. Raises `UNFIT`."""

    @abstractmethod
    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Write a message that was changed, or is new; `called` are the ids of the calls that are written."""

    def _read_system_prompt(self, prompt: Any) -> tuple[str | Opaque, ...]:
        """Read the system prompt."""
        return content.read(prompt)

    def _prompt(self, messages: Sequence[Message]) -> Any:
        """Write the system prompt."""
        return "\n\n".join(message.text for message in messages)

    @staticmethod
    @abstractmethod
    def _tools(fields: Mapping[str, Any]) -> Sequence[Tool]:
        """Read the tools that are functions."""

    @staticmethod
    def _name(entry: Any) -> str | None:
        """Return the name of what is declared."""
        name = entry.get("name")
        return name if isinstance(name, str) else None

    @staticmethod
    @abstractmethod
    def _declaration(tool: Tool) -> Mapping[str, Any]:
        """Declare a tool."""

    @abstractmethod
    def _rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        """Write a declaration anew with the name and the parameters of the tool of its name; None if none is given."""

    # Messages

    @cached_property
    def messages(self) -> Sequence[Message]:
        """Decode the conversation when it is asked for, as most are left alone. Raises `BadRequest`."""
        return [message for group, _ in self._groups for message in group]

    @cached_property
    def _groups(self) -> Sequence[MessageGroup]:
        known: dict[str | None, ToolCall] = {}
        waiting: list[ToolCall] = []  # calls without a result, the oldest first
        groups: list[MessageGroup] = []
        with self._fit():
            if self.LAYOUT.prompt and (prompt := self.fields.get(self.LAYOUT.prompt)):
                groups.append(([Message("system", self._read_system_prompt(prompt), source=PromptField(prompt))], ()))
            for group, places in self._read():
                groups.append(([_match_result(message, known, waiting) for message in group], places))
        return groups

    @property
    def _conversation(self) -> Any:
        """Return the entries of the conversation."""
        return self.fields.get(self.LAYOUT.entries, [])

    def _write_messages(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Write the messages into the fields `kept`; new ones that open the conversation join the system prompt."""
        own = self.messages
        if field := self.LAYOUT.prompt:
            opening = len([*takewhile(lambda message: message.role == "system", messages)])
            is_prompt = [
                isinstance(message.source, PromptField) or (message.source is None and place < opening)
                for place, message in enumerate(messages)
            ]
            prompt, messages = [*compress(messages, is_prompt)], [*compress(messages, map(not_, is_prompt))]
            own_prompt = [message for message in own if isinstance(message.source, PromptField)]
            own = own[len(own_prompt) :]
            if not _are_identical(prompt, own_prompt):
                kept[field] = self._prompt(prompt)
                if not prompt:
                    del kept[field]
        if not _are_identical(messages, own):
            kept[self.LAYOUT.entries] = self._render_entries(messages)

    def _render_entries(self, messages: Sequence[Message]) -> list[Any]:
        """Write messages as entries of the conversation; what is unchanged keeps its own."""
        entries: Sequence[msgspec.Raw] = ()  # as they came, where one keeps its bytes
        groups = {id(group[0]): (group, places) for group, places in self._groups if group}
        called = {call.id for message in messages for call in message.calls if call.id}
        written: list[Any] = []
        at = 0
        while at < len(messages):
            group, places = groups.get(id(messages[at]), ((), ()))
            if group and _are_identical(messages[at : at + len(group)], group):
                entries = entries or split_items(self.body.raw.get(self.LAYOUT.entries, b"[]"), self._conversation)
                written += [entries[place] for place in places]
                at += len(group)
            else:
                self._add(written, messages[at], called)
                at += 1
        return written

    # Tools

    def _read_offer(self) -> ToolOffer:
        """Read the tools, and which calls are allowed."""
        layout, tools = self.LAYOUT, [*map(_intern_tool, self._tools(self.fields))]
        declared = [name for entries in self._declarations() for name in self._names(entries)]
        choice, allowed = self._read_choice((layout.choice and self.fields.get(layout.choice)) or "auto", declared)
        return ToolOffer(
            tools=tools if allowed is None else [tool for tool in tools if tool.name in allowed],
            declared=declared,
            choice="required" if choice == "any" else choice,
            restricted=allowed is not None,
            parallel=layout.parallel is None or self.fields.get(layout.parallel) is not False,
        )

    def _read_choice(self, choice: Any, declared: Sequence[str]) -> tuple[str, Collection[str] | None]:
        """Read the choice of a tool, and the names of those that are allowed; None for all."""
        if not isinstance(choice, dict):
            return str(choice), None
        kind = choice.get("type") or "function"
        if kind == "allowed_tools":
            given = choice.get("allowed_tools", choice)
            names = (self._find_chosen_tool(entry, declared) for entry in given.get("tools") or ())
            return str(given.get("mode") or "auto"), {name or "" for name in names}
        if kind in SINGLE_TOOL_TYPES and (name := self._find_chosen_tool(choice, declared)) is not None:
            return name, None
        if kind in SINGLE_TOOL_TYPES:
            raise TypeError("`tool_choice` names no tool")
        return (str(kind) if kind in ("none", "any", "required") else "auto"), None

    def _find_chosen_tool(self, choice: Mapping[str, Any], declared: Sequence[str]) -> str | None:
        """Return the name of the tool that is chosen among those `declared`."""
        return self._name(choice)

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        """Write the declarations of tools, in place of those that were there."""
        if tools:
            kept["tools"] = [*map(self._declaration, tools)]

    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""
        if isinstance(entries := self.fields.get("tools"), list) and "tools" in kept:
            kept["tools"] = [*self._withhold_tools(entries, names)]
        if not kept.get("tools"):
            self._forget_tools(kept)
        elif self.offer.choice in names or self.offer.restricted:
            _remove(kept, self.LAYOUT.choice)

    def _forget_tools(self, kept: dict[str, Any]) -> None:
        """Leave out all that is about tools."""
        _remove(kept, "tools", self.LAYOUT.choice, self.LAYOUT.parallel)

    def _redeclare(self, kept: dict[str, Any], tools: Mapping[str, Tool]) -> None:
        """Write the declarations of some tools anew, by their names so far, and what demands one of these."""
        if isinstance(entries := self.fields.get("tools"), list) and (raw := kept.get("tools")) is not None:
            written = split_items(raw, entries) if isinstance(raw, msgspec.Raw) else [*raw]
            entries = entries if isinstance(raw, msgspec.Raw) else raw
            kept["tools"] = [
                self._rewrite_declaration(entry, tools) or as_it_is
                for entry, as_it_is in zip(entries, written, strict=True)
            ]
        names, field = {name: tool.name for name, tool in tools.items() if name != tool.name}, self.LAYOUT.choice
        if names and field and field in kept:
            kept[field] = self._rename_choice(self.fields[field], names)

    def _declarations(self) -> Iterator[list[Any]]:
        """Find the lists that declare tools."""
        return (entries for entries in (self.fields.get("tools"),) if isinstance(entries, list))

    def _names(self, entries: Sequence[Any]) -> Iterator[str]:
        """List the names of all that is declared."""
        return (name for entry in entries if (name := self._name(entry)))

    def _withhold_tools(self, entries: Sequence[Any], names: Collection[str]) -> Iterable[Any]:
        """Leave out declarations of the tools named."""
        return (entry for entry in entries if self._name(entry) not in names)

    def _rename_choice(self, choice: Any, names: Mapping[str, str]) -> Any:
        """Write the choice of a tool with other names."""
        if isinstance(choice, list):
            return [self._rename_choice(part, names) for part in choice]
        if not isinstance(choice, dict):
            return choice
        return {
            key: names.get(value, value)
            if key == "name" and isinstance(value, str)
            else self._rename_choice(value, names)
            for key, value in choice.items()
        }

    # Encoding

    @staticmethod
    def _stream_fields() -> dict[str, Any]:
        """Write the fields that ask for a stream which says as much as a whole reply."""
        return {"stream": True}

    def apply_changes(self, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        """Change the request; return its fields, of which that keeps its bytes which is not changed."""
        drop, set_ = changes.drop, changes.set
        if changes.unstreamed and not self.LAYOUT.in_path:
            drop = (*drop, *STREAM_ONLY_FIELDS)
            set_ = {key: value for key, value in set_.items() if key not in STREAM_ONLY_FIELDS} | {"stream": False}
        if changes.streamed and not self.LAYOUT.in_path:
            set_ = {**self._stream_fields(), **set_}
        kept: dict[str, Any] = {key: raw for key, raw in self.body.raw.items() if key not in drop}
        if changes.model and not self.LAYOUT.in_path:
            kept["model"] = changes.model
        if changes.tools is not None:
            self._forget_tools(kept)
            self._declare(kept, changes.tools)
        elif changes.withheld:
            self._withhold(kept, changes.withheld)
        if changes.redeclared:
            self._redeclare(kept, changes.redeclared)
        kept |= self.LAYOUT.rewrite_limits(self.fields, changes.limits)
        if changes.undemanded:
            _remove(kept, self.LAYOUT.choice)
        if changes.messages is not None:
            self._write_messages(kept, changes.messages)
        return edit_fields(kept, drop, set_)


_SHARED_TOOLS: WeakValueDictionary[bytes, Tool] = WeakValueDictionary()
"""The tools of the exchanges that go on, by all that is said of them."""


def _intern_tool(tool: Tool) -> Tool:
    """Return the tool that an exchange which goes on has like this one: agents declare the same in every turn."""
    found = _SHARED_TOOLS.setdefault(encode([tool.name, tool.description, tool.parameters, tool.strict]), tool)
    return found if found == tool else tool  # JSON has no word for what is no number


def _are_identical(messages: Sequence[Message], others: Sequence[Message]) -> bool:
    """True if they are the very same, and not only equal."""
    return len(messages) == len(others) and all(map(is_, messages, others))


def _remove(fields: dict[str, Any], *names: str | None) -> None:
    for name in names:
        if name:
            fields.pop(name, None)


def _match_result(message: Message, known: dict[str | None, ToolCall], waiting: list[ToolCall]) -> Message:
    """Give a result the name and the id of its call: the `known` one of its id, or else by name and order."""
    if message.role != "tool":
        known.update((call.id, call) for call in message.calls if call.id)
        waiting += message.calls
        return message
    id_, name = message.call_id or None, message.name or None
    fits = (call for call in waiting if name in (None, call.name) and None in (id_, call.id))
    call = known.get(id_) or next(fits, None)
    if call in waiting:
        waiting.remove(call)
    return replace(message, name=call.name, call_id=id_ or call.id) if call else message
