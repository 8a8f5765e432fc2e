"""Writing the requests of an API: rendered from a canonical request, or from a decoded one with changes.

In a decoded request, unchanged fields of the body and unchanged entries of the conversation keep their bytes. An API
renders its messages by the methods of its `RequestWriter`, its tools by its `ToolWriter`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from itertools import compress, takewhile
from operator import is_, not_
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis.fields import split_items
from vtc.apis.json_path import edit_fields
from vtc.apis.request import PromptField, Request
from vtc.apis.tool_writer import ToolWriter
from vtc.events import CanonicalRequest, Message, Opaque, Thought, Tool

STREAM_ONLY_FIELDS = ("stream_options",)
"""Fields that servers reject without a stream."""


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
SHARED_FIELDS = (
    *("service_tier", "verbosity", "prompt_cache_key", "prompt_cache_retention", "metadata", "user"),
    "safety_identifier",
)
"""Fields that chat completions and Responses share; the price, the length or the cache of a reply depends on some."""


class RequestWriter(ABC):
    """Writes the requests of one API."""

    TOOL_WRITER: ClassVar[type[ToolWriter]]
    RESULT_ID: ClassVar[str] = ""
    """The field of a result with the id of its call."""
    HAS_CACHE_MARKS: ClassVar[bool] = False
    """True if requests mark the parts of the prompt that the server caches (`cache_control`)."""
    SHARED_FIELDS: ClassVar[Mapping[str, str]] = {}
    """Dotted paths of the fields that chat completions and Responses share, by their names in chat completions."""
    STREAM_FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True}
    """The fields that ask for a stream with as much content as a whole reply."""

    @abstractmethod
    def build_request(self, canonical: CanonicalRequest) -> Mapping[str, Any]:
        """Render a canonical request; reasoning is omitted unless this same server produced it."""

    def constrain(self, form: str, value: Any) -> Mapping[str, Any]:
        """Render the fields that set the grammar of a reply; none if the API has none for this form."""
        return {}

    def apply_changes(self, request: Request, changes: Changes = NO_CHANGES) -> dict[str, Any]:
        """Apply changes to a decoded request; return its fields, unchanged ones with their original bytes."""
        # Step 1: complete the fields to drop and to set.
        layout, drop, set_ = request.LAYOUT, changes.drop, changes.set
        if changes.unstreamed and not layout.in_path:
            drop = (*drop, *STREAM_ONLY_FIELDS)
            set_ = {key: value for key, value in set_.items() if key not in STREAM_ONLY_FIELDS} | {"stream": False}
        if changes.streamed and not layout.in_path:
            set_ = {**self.STREAM_FIELDS, **set_}
        # Step 2: keep the bytes of all other fields, then replace the changed ones.
        kept: dict[str, Any] = {key: raw for key, raw in request.body.raw.items() if key not in drop}
        if changes.model and not layout.in_path:
            kept["model"] = changes.model
        tools = self.TOOL_WRITER(request.tool_fields)
        if changes.tools is not None:
            tools.forget(kept)
            tools.declare(kept, changes.tools)
        elif changes.withheld:
            tools.withhold(kept, changes.withheld, request.offer)
        if changes.redeclared:
            tools.redeclare(kept, changes.redeclared)
        kept |= layout.rewrite_limits(request.fields, changes.limits)
        if changes.undemanded and layout.choice:
            kept.pop(layout.choice, None)
        if changes.messages is not None:
            self._write_messages(request, kept, changes.messages)
        # Step 3: drop and set fields last, so that they override all other changes.
        return edit_fields(kept, drop, set_)

    def _write_messages(self, request: Request, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Render the messages into the fields `kept`; new ones at the beginning join the system prompt."""
        own, layout = request.messages, request.LAYOUT
        if field := layout.prompt:
            opening = len([*takewhile(lambda message: message.role == "system", messages)])
            is_prompt = [
                isinstance(message.source, PromptField) or (message.source is None and place < opening)
                for place, message in enumerate(messages)
            ]
            prompt, messages = [*compress(messages, is_prompt)], [*compress(messages, map(not_, is_prompt))]
            own_prompt = [message for message in own if isinstance(message.source, PromptField)]
            own = own[len(own_prompt) :]
            if not _are_identical(prompt, own_prompt):
                kept[field] = self._render_system_prompt(prompt)
                if not prompt:
                    del kept[field]
        if not _are_identical(messages, own):
            kept[layout.entries] = self._render_entries(request, messages)

    def _render_entries(self, request: Request, messages: Sequence[Message]) -> list[Any]:
        """Render messages as entries of the conversation; unchanged messages keep their entries."""
        entries: Sequence[msgspec.Raw] = ()  # the original bytes, split once one is needed
        groups = {id(group[0]): (group, places) for group, places in request.groups if group}
        called = {call.id for message in messages for call in message.calls if call.id}
        written: list[Any] = []
        at = 0
        while at < len(messages):
            group, places = groups.get(id(messages[at]), ((), ()))
            if group and _are_identical(messages[at : at + len(group)], group):
                entries = entries or split_items(request.body.raw.get(request.LAYOUT.entries, b"[]"), request.entries)
                written += [entries[place] for place in places]
                at += len(group)
            else:
                self._add_message(written, messages[at], called, request.form)
                at += 1
        return written

    @abstractmethod
    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        """Render a changed or new message into `entries`.

        `called` are the ids of all rendered calls, and `form` is that of the request.
        """

    def _render_system_prompt(self, messages: Sequence[Message]) -> Any:
        """Render the system prompt."""
        return "\n\n".join(message.text for message in messages)

    def with_reasoning(self, message: Message, field: str) -> Message:
        """Add the stored reasoning to the source of a past message, which lacks it.

        Sealed reasoning is already among its parts. `field` is the field in which servers of chat completions expect
        the text.
        """
        thought = (Opaque(thought=Thought(message.recalled_reasoning)),) if message.recalled_reasoning else ()
        return replace(message, content=(*thought, *message.content))

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
        return bool(result.call_id) and not result.source.get(self.RESULT_ID)

    def has_null_content(self, message: Message) -> bool:
        """Return True if the content is null in chat completions."""
        return message.source is None and bool(message.calls) and not message.content


def _are_identical(messages: Sequence[Message], others: Sequence[Message]) -> bool:
    """Return True if the messages are identical, not only equal."""
    return len(messages) == len(others) and all(map(is_, messages, others))
