"""The request side of an API's contract: a decoded request that keeps its original bytes.

For all APIs, each unchanged field of the body and each unchanged entry of the conversation keeps its bytes. An API
describes its fields by a `BodyLayout`, and renders messages by the methods of its `Request`, tools by its `ToolFields`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import compress, takewhile
from operator import is_, not_
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis import content, generation
from vtc.apis.fields import (
    INVALID_BODY_ERRORS,
    REPLACED_SURROGATES,
    describe_body_fault,
    split_body,
    split_items,
)
from vtc.apis.json_path import edit_fields
from vtc.apis.layout import BodyLayout, ShapedBody, apply_shapes
from vtc.apis.tool_fields import ToolFields
from vtc.events import GenerationConfig, Media, Message, Opaque, Seal, Thought, Tool, ToolCall, ToolOffer

STREAM_ONLY_FIELDS = ("stream_options",)
"""Fields that servers reject without a stream."""

type MessageGroup = tuple[Sequence[Message], Sequence[int]]
"""Messages, and the indices of their entries in the conversation."""


class BadRequest(ValueError):
    """The body is no request of this API; it is forwarded unchanged."""


class PromptField(msgspec.Struct, frozen=True):
    """The `source` of a message that is a field, for example the system prompt of some APIs."""

    content: Any


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The changes to a request; everything else keeps its bytes."""

    messages: Sequence[Message] | None = None
    """Replace the received messages; None to keep these."""
    tools: Sequence[Tool] | None = None
    """Replace the declared tools; an empty list also removes all other fields about tools. None to keep them."""
    withheld: Collection[str] = ()
    """Names of declared tools to remove, if `tools` is None."""
    redeclared: Mapping[str, Tool] = {}
    """By declared name, the tools whose name and parameters replace those of the declaration; it keeps all other
    fields."""
    undemanded: bool = False
    """True to let the model choose whether to call a tool."""
    model: str = ""
    """The name of another model; empty to keep it."""
    unstreamed: bool = False
    """True to ask for a whole reply."""
    streamed: bool = False
    """True to ask for a stream."""
    limits: Mapping[str, Any] = {}
    """By the names of `BodyLayout.limits`."""
    drop: Sequence[str] = ()
    """Dotted paths to remove, `*` being any key or index."""
    set: Mapping[str, Any] = {}
    """Fields to set, with priority over all other changes."""


NO_CHANGES = Changes()


class Request(ABC):
    """A decoded request."""

    LAYOUT: ClassVar[BodyLayout]

    model: str
    stream: bool
    offer: ToolOffer
    generation: GenerationConfig
    body: ShapedBody
    """The bytes of each field, and the lines about repaired shapes."""
    fields: Mapping[str, Any]
    """The whole decoded body, for profiles that match on it."""
    call_ids: Collection[str]
    """The ids of all calls in the conversation."""
    form: Any = None
    """The settings of the request that the reply's decoder and encoder need; `forget` keeps them."""
    refers: str = ""
    """The field that refers to a conversation that only the server has; empty if the request contains all of it."""
    unread: str = ""
    """The field that declares tools in an unsupported form; empty if there is none."""
    idle: bool = False
    """True if it asks only for loading the model."""
    unliftable: str = ""
    """The reason why text tool calls in the reply must stay text; empty if they may become calls."""

    def __init__(self, body: bytes, path: str = "", *, unrepaired: bool = False) -> None:
        """Decode a body and, for some APIs, its path. Raises `BadRequest`.

        Values out of shape are repaired, unless `unrepaired` is set.
        """
        with self._convert_errors():
            raw, fields, has_halves = self._split(body, repair=not unrepaired)
            lines = (REPLACED_SURROGATES,) if has_halves else ()
            self.body = apply_shapes(raw, fields, () if unrepaired else self.LAYOUT.shapes, lines)
            self.fields = self.body.fields
            if not isinstance(self._conversation, list):
                raise TypeError(f"`{self.LAYOUT.entries}` is not a list")
            self.model = str(self.fields.get("model") or "")
            self.stream = self.fields.get("stream") is True
            self.generation = generation.read(self.fields, self.LAYOUT)
            self.offer = self._tool_fields.read_offer()
            self._decode(path)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Raise `BadRequest` for any error that decoding an invalid body raises."""
        try:
            yield
        except INVALID_BODY_ERRORS as error:
            raise BadRequest(f"the body is not a valid {self.LAYOUT.name}: {describe_body_fault(error)}") from None

    def forget(self) -> None:
        """Free the conversation and all other data that only sending the request needs."""
        self.body, self.fields, self.messages, self._groups = ShapedBody({}, {}), {}, [], []

    @property
    @abstractmethod
    def _tool_fields(self) -> ToolFields:
        """Return the fields about tools."""

    # Messages of one API in the terms of all

    @abstractmethod
    def interpret_part(self, part: Any) -> str | Media | Seal | None:
        """Interpret an opaque part of a message for other APIs; None if they have no equivalent.

        Past reasoning is interpreted as its seal.
        """

    def name_part(self, part: Any) -> str:
        """Name a part without equivalent, for the report; empty if it need not be reported."""
        return str(part.get("type") or "part") if isinstance(part, Mapping) else "part"

    def get_loaded_tool(self, part: Any) -> str:
        """Return the name of the tool that an opaque part makes available; empty for any other part."""
        return ""

    def get_attached_media(self, message: Message) -> Sequence[Media]:
        """Return the media of a message that are not part of its content."""
        return ()

    def without_attached_media(self, message: Message) -> Message:
        """Remove the media that are not part of the content."""
        return message

    def get_refusal(self, message: Message) -> str:
        """Return the refusal of a message, if it is not part of its content."""
        return ""

    def is_failed_result(self, message: Message) -> bool:
        """True for a result that is an error."""
        return False

    def list_untranslated(self, message: Message) -> Iterable[str]:
        """List the fields of a message that have no equivalent in other APIs."""
        return ()

    def get_call_seals(self, call: ToolCall) -> Sequence[str]:
        """Return the seals on a call."""
        return ()

    def list_seals(self, message: Message) -> Iterator[str]:
        """List the seals of the reasoning in a past message."""
        for part in message.sequence:
            if isinstance(part, ToolCall):
                yield from self.get_call_seals(part)
            elif isinstance(part, Opaque) and part.part is not None:
                seal = self.interpret_part(part.part)
                if isinstance(seal, Seal) and seal.value:
                    yield seal.value

    def without_reasoning(self, message: Message) -> Message:
        """Remove all reasoning from a past message."""

        def stays(part: str | Opaque) -> bool:
            return isinstance(part, str) or not self._is_reasoning(part.part)

        return replace(message.filter_parts(stays), reasoning="")

    @abstractmethod
    def _is_reasoning(self, part: Any) -> bool:
        """Return True if an opaque part is reasoning."""

    def with_reasoning(self, message: Message, field: str) -> Message:
        """Add the stored reasoning to the source of a past message, which lacks it.

        Sealed reasoning is already among its parts. `field` is the field in which servers of chat completions expect
        the text.
        """
        thought = (Opaque(thought=Thought(message.recalled_reasoning)),) if message.recalled_reasoning else ()
        return replace(message, content=(*thought, *message.content))

    def form_with(self, reasoning_fields: tuple[str, ...]) -> Any:
        """Return the `form` for a client that gets reasoning in these fields, if its API has several."""
        return self.form

    # Forms that only some servers accept

    def with_usual_role(self, message: Message) -> Message:
        """Replace the role of a message by its usual name (`developer`)."""
        return message

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        """Return a message whose content is text instead of a list of texts, or null if it is empty and `or_null`."""
        return message

    def lacks_call_id(self, message: Message) -> bool:
        """Return True if a result lacks a known reference to its call."""
        return message.role == "tool" and isinstance(message.source, dict) and self._lacks_call(message)

    def _lacks_call(self, result: Message) -> bool:
        """Return True if the source of a result lacks a known reference to its call."""
        return False

    def has_null_content(self, message: Message) -> bool:
        """Return True if the content is null in chat completions."""
        return message.source is None and bool(message.calls) and not message.content

    # The codec of an API

    @staticmethod
    def _split(body: bytes, *, repair: bool) -> tuple[dict[str, msgspec.Raw], dict[str, Any], bool]:
        """Split a body into the bytes of each field and the decoded fields (`split_body`). Raises ValueError."""
        return split_body(body, repair=repair)

    @abstractmethod
    def _decode(self, path: str) -> None:
        """Decode everything except the messages. Raises `INVALID_BODY_ERRORS`."""

    @abstractmethod
    def _read(self) -> Iterable[MessageGroup]:
        """Decode the messages; results need no names if they have ids of calls. Raises `INVALID_BODY_ERRORS`."""

    @abstractmethod
    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Render a changed or new message into `entries`; `called` are the ids of all rendered calls."""

    def _read_system_prompt(self, prompt: Any) -> tuple[str | Opaque, ...]:
        """Decode the system prompt."""
        return content.read(prompt)

    def _prompt(self, messages: Sequence[Message]) -> Any:
        """Render the system prompt."""
        return "\n\n".join(message.text for message in messages)

    # Messages

    @cached_property
    def messages(self) -> Sequence[Message]:
        """Decode the conversation on first use, because most requests are forwarded unchanged. Raises `BadRequest`."""
        return [message for group, _ in self._groups for message in group]

    @cached_property
    def _groups(self) -> Sequence[MessageGroup]:
        known: dict[str | None, ToolCall] = {}
        unanswered: list[ToolCall] = []  # calls without a result, the oldest first
        groups: list[MessageGroup] = []
        with self._convert_errors():
            if self.LAYOUT.prompt and (prompt := self.fields.get(self.LAYOUT.prompt)):
                groups.append(([Message("system", self._read_system_prompt(prompt), source=PromptField(prompt))], ()))
            for group, places in self._read():
                groups.append(([_match_result(message, known, unanswered) for message in group], places))
        return groups

    @property
    def _conversation(self) -> Any:
        """Return the entries of the conversation."""
        return self.fields.get(self.LAYOUT.entries, [])

    def _write_messages(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Render the messages into the fields `kept`; new ones at the beginning join the system prompt."""
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
        """Render messages as entries of the conversation; unchanged messages keep their entries."""
        entries: Sequence[msgspec.Raw] = ()  # the original bytes, split once one is needed
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

    # Encoding

    @staticmethod
    def _stream_fields() -> dict[str, Any]:
        """Return the fields that ask for a stream with as much content as a whole reply."""
        return {"stream": True}

    def apply_changes(self, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        """Apply changes to the request; return its fields, unchanged ones with their original bytes."""
        # Step 1: complete the fields to drop and to set.
        drop, set_ = changes.drop, changes.set
        if changes.unstreamed and not self.LAYOUT.in_path:
            drop = (*drop, *STREAM_ONLY_FIELDS)
            set_ = {key: value for key, value in set_.items() if key not in STREAM_ONLY_FIELDS} | {"stream": False}
        if changes.streamed and not self.LAYOUT.in_path:
            set_ = {**self._stream_fields(), **set_}
        # Step 2: keep the bytes of all other fields, then replace the changed ones.
        kept: dict[str, Any] = {key: raw for key, raw in self.body.raw.items() if key not in drop}
        if changes.model and not self.LAYOUT.in_path:
            kept["model"] = changes.model
        if changes.tools is not None:
            self._tool_fields.forget(kept)
            self._tool_fields.declare(kept, changes.tools)
        elif changes.withheld:
            self._tool_fields.withhold(kept, changes.withheld, self.offer)
        if changes.redeclared:
            self._tool_fields.redeclare(kept, changes.redeclared)
        kept |= self.LAYOUT.rewrite_limits(self.fields, changes.limits)
        if changes.undemanded and self.LAYOUT.choice:
            kept.pop(self.LAYOUT.choice, None)
        if changes.messages is not None:
            self._write_messages(kept, changes.messages)
        # Step 3: drop and set fields last, so that they override all other changes.
        return edit_fields(kept, drop, set_)


def _are_identical(messages: Sequence[Message], others: Sequence[Message]) -> bool:
    """Return True if the messages are identical, not only equal."""
    return len(messages) == len(others) and all(map(is_, messages, others))


def _match_result(message: Message, known: dict[str | None, ToolCall], unanswered: list[ToolCall]) -> Message:
    """Complete a result with the name and id of its call: the `known` call with its id, or else by name and order."""
    if message.role != "tool":
        known.update((call.id, call) for call in message.calls if call.id)
        unanswered += message.calls
        return message
    id_, name = message.call_id or None, message.name or None
    fits = (call for call in unanswered if name in (None, call.name) and None in (id_, call.id))
    call = known.get(id_) or next(fits, None)
    if call in unanswered:
        unanswered.remove(call)
    return replace(message, name=call.name, call_id=id_ or call.id) if call else message
