"""Reading the requests of an API: a decoded request, which keeps the bytes of its fields for `RequestWriter`.

An API describes its fields by a `BodyLayout`, and decodes messages by the methods of its `Request`, tools by its
`ToolFields`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from vtc.apis import content, generation
from vtc.apis.fields import INVALID_BODY_ERRORS, REPLACED_SURROGATES, describe_body_fault, split_body
from vtc.apis.layout import BodyLayout, ShapedBody, apply_shapes
from vtc.apis.tool_fields import ToolFields
from vtc.events import GenerationConfig, Media, Message, Opaque, Seal, ToolCall, ToolOffer

type MessageGroup = tuple[Sequence[Message], Sequence[int]]
"""Messages, and the indices of their entries in the conversation."""


class RequestError(ValueError):
    """The body is no request of this API; it is forwarded unchanged."""


class PromptField(msgspec.Struct, frozen=True):
    """The `source` of a message that is a field, for example the system prompt of some APIs."""

    content: Any


class Request(ABC):
    """A decoded request; it also interprets the parts of its messages, which differ between APIs."""

    LAYOUT: ClassVar[BodyLayout]
    TOOL_FIELDS: ClassVar[type[ToolFields]]

    model: str
    stream: bool
    offer: ToolOffer
    generation: GenerationConfig
    body: ShapedBody
    """The decoded fields, the bytes of each, and the lines about repaired shapes."""
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
        """Decode a body and, for some APIs, its path. Raises `RequestError`.

        Values out of shape are repaired, unless `unrepaired` is set.
        """
        with self._convert_errors():
            raw, fields, has_halves = self._split(body, repair=not unrepaired)
            lines = (REPLACED_SURROGATES,) if has_halves else ()
            self.body = apply_shapes(raw, fields, () if unrepaired else self.LAYOUT.shapes, lines)
            if not isinstance(self.entries, list):
                raise TypeError(f"`{self.LAYOUT.entries}` is not a list")
            self.model = str(self.fields.get("model") or "")
            self.stream = self.fields.get("stream") is True
            self.generation = generation.read(self.fields, self.LAYOUT)
            self.offer = self.tool_fields.read_offer()
            self._decode(path)

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Raise `RequestError` for any error that decoding an invalid body raises."""
        try:
            yield
        except INVALID_BODY_ERRORS as error:
            raise RequestError(f"the body is not a valid {self.LAYOUT.name}: {describe_body_fault(error)}") from None

    @property
    def fields(self) -> Mapping[str, Any]:
        """The whole decoded body."""
        return self.body.fields

    @property
    def entries(self) -> Any:
        """The entries of the conversation."""
        return self.fields.get(self.LAYOUT.entries, [])

    @property
    def tool_fields(self) -> ToolFields:
        """The fields about tools."""
        return self.TOOL_FIELDS(self.fields, self.LAYOUT)

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

    def _read_system_prompt(self, prompt: Any) -> tuple[str | Opaque, ...]:
        """Decode the system prompt."""
        return content.read(prompt)

    @cached_property
    def messages(self) -> Sequence[Message]:
        """Decode the conversation on first use: most requests are forwarded unchanged. Raises `RequestError`."""
        return [message for group, _ in self.groups for message in group]

    @cached_property
    def groups(self) -> Sequence[MessageGroup]:
        """Decode the messages, grouped by the entries that contain them. Raises `RequestError`."""
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
    def storable_items(self) -> list[Any] | None:
        """The entries that are stored with the reply, so that later requests can refer to it; None if none may."""
        return None

    def resolve_references(self, find: Callable[[str], Sequence[Any] | None]) -> bytes | None:
        """Return the body with stored entries in place of references; None if one of them is unknown.

        `find` returns the entries that an id stands for, None if it is unknown.
        """
        return None

    def forget(self) -> None:
        """Free the conversation and all other data that only sending the request needs."""
        self.body, self.messages, self.groups = ShapedBody({}, {}), [], []

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

    def form_with(self, reasoning_fields: tuple[str, ...]) -> Any:
        """Return the `form` for a client that gets reasoning in these fields, if its API has several."""
        return self.form


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
