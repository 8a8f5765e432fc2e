"""The canonical types that all layers of VTC exchange: requests, deltas, frame metadata and events.

Readers and decoders turn text or API JSON into these types, writers and encoders do the reverse, and policies see
nothing else. Each event of a text reader carries `raw`, the characters of the reply that it denotes; joined in order
they are the reply, so a test notices any loss.

All are msgspec structs because these are created and copied many times faster than dataclasses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from vtc.json_schema import ObjectSchema

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


class Tool(msgspec.Struct, frozen=True, dict=True, weakref=True):
    """A tool that the client offers; `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    strict: bool = False  # ask the server to decode its calls by a grammar

    @cached_property
    def schema(self) -> ObjectSchema:
        """The parsed JSON Schema of its parameters."""
        return ObjectSchema(self.parameters)

    def as_openai(self) -> dict[str, Any]:
        """Render as `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`."""
        data = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": {**data, "strict": True} if self.strict else data}


def flatten_name(name: str) -> str:
    """Return the name of a tool in a namespace as servers without namespaces write it: `mcp__fs.read`, `mcp__fs__read`.

    Codex also has namespaces that end in `__`.
    """
    return name.replace("__.", ".").replace(".", "__")


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call in its structured form; `arguments` is the text of a JSON object.

    `source` is the API's own object, which keeps fields unknown to VTC (Gemini's thought signatures). Equality ignores
    it, and ignores the reasoning around the call.
    """

    name: str
    arguments: str
    id: str | None = None
    source: Any = None
    before: tuple[Opaque, ...] = ()
    """The reasoning directly before the call in its message, or attached to it."""
    after: tuple[Opaque, ...] = ()
    """The reasoning at the end of its message, after the last call."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, str | None]:
        return self.name, self.arguments, self.id

    @property
    def is_custom(self) -> bool:
        """True for a call of a custom tool, whose input is plain text, not JSON."""
        source = self.source if isinstance(self.source, Mapping) else {}
        return "custom" in source or str(source.get("type")).startswith("custom")

    @property
    def sorted_arguments(self) -> str:
        """The arguments as compact JSON with sorted keys, because clients re-encode them; as they are if not JSON."""
        try:
            return _encode_sorted(msgspec.json.decode(self.arguments)).decode()
        except (ValueError, RecursionError):
            return self.arguments

    def as_openai(self) -> dict[str, Any]:
        """Render as `{"id": …, "type": "function", "function": {"name": …, "arguments": …}}`."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Media(msgspec.Struct, frozen=True):
    """An image or a document in a message: base64 `data` with its media type, or a `url`."""

    kind: Literal["image", "document"]
    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""
    detail: str = ""  # OpenAI's level of detail for images


type SealPlace = Literal["", "call", "text"]
"""The item that carries a seal, in APIs that have no item for the seal itself (Gemini): the next call, the text before
it, or none."""


class Thought(msgspec.Struct, frozen=True, array_like=True):
    """Reasoning of a past turn that its server sealed: signed text, or encrypted content. Other servers reject it."""

    text: str = ""
    signature: str = ""
    encrypted: str = ""
    on: SealPlace = ""


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """Message content other than text: the API's own object or, when bridged to another API, its canonical form."""

    part: Any = None
    media: Media | None = None
    thought: Thought | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation.

    `role` is `system`, `user`, `assistant` or `tool`; `content` holds text and opaque parts in order. A message
    of role `tool` is the result of the call `call_id` of the tool `name`. `reasoning` precedes the message, if the API
    separates it; it is `recalled` if VTC restored it from its record of this server's earlier reply, because the client
    did not send it. Seals of the reasoning are in `content` and next to the calls. `source` is the API's own object.
    """

    role: str
    content: tuple[str | Opaque, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None
    source: Any = None
    reasoning: str = ""
    recalled: bool = False
    cache_mark: Any = None
    """The value of `cache_control` at its end, in a canonical request."""

    @property
    def sequence(self) -> list[str | Opaque | ToolCall]:
        """Its text, opaque parts and calls in order."""
        parts: list[str | Opaque | ToolCall] = [*self.content]
        for call in self.calls:
            parts += (*call.before, call, *call.after)
        return parts

    @property
    def text(self) -> str:
        """The joined text parts."""
        return "".join([part for part in self.content if isinstance(part, str)])

    def filter_parts(self, keeps: Callable[[str | Opaque], bool]) -> Message:
        """Keep the parts for which `keeps` is true, in the content and next to calls; return `self` if that is all."""
        if all(isinstance(part, ToolCall) or keeps(part) for part in self.sequence):
            return self
        calls = [
            replace(call, before=tuple(filter(keeps, call.before)), after=tuple(filter(keeps, call.after)))
            for call in self.calls
        ]
        return replace(self, content=tuple(filter(keeps, self.content)), calls=tuple(calls))

    @property
    def recalled_reasoning(self) -> str:
        """The reasoning, if it is `recalled` and no seal contains it; else empty."""
        is_sealed = any(isinstance(part, Opaque) and part.thought for part in self.sequence)
        return self.reasoning if self.recalled and not is_sealed else ""


class Answer(msgspec.Struct, frozen=True):
    """The output format that a request asks for: JSON, optionally constrained by a JSON Schema."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None
    description: str | None = None


class ToolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request, and which of them may be called."""

    tools: Sequence[Tool] = ()
    """The functions that may be called."""
    declared: Sequence[str] = ()
    """Names of all declared tools, including functions that may not be called and tools other than functions."""
    redeclared: Collection[str] = ()
    """Names of functions that are declared again, in another way; the first declaration counts."""
    deferred: Collection[str] = ()
    """Names of tools that stay hidden from the model until a tool result loads them."""
    choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool."""
    restricted: bool = False
    """True if only some of the functions declared may be called."""
    parallel: bool = True
    """True if the reply may hold more than one call."""


class ThinkingForm(msgspec.Struct, frozen=True):
    """The demands of a request on its reasoning, in addition to the effort."""

    budget: int | None = None
    """Maximum tokens; None if the request sets no number."""
    shown: bool = False
    """True if the request asks for the text of the reasoning."""


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Generation settings of a request."""

    limits: Mapping[str, Any] = {}
    """Limits and sampling, by their names in chat completions; `stop` is a list."""
    thinks: bool | None = None
    """True or False if reasoning is turned on or off, None if the request does not specify it."""
    effort: str | None = None
    """Reasoning effort: a level, `none`, `auto` to let the model decide, or None if unspecified."""
    thinking: ThinkingForm = ThinkingForm()
    answer: Answer | None = None
    """The required output format; None if the output is unconstrained."""
    constrained: bool = False
    """True if the request constrains the output by a format or a grammar, in any of the fields that servers accept."""
    wants_choices: bool = False
    """True if the request asks for more than one choice."""


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a server's model list describes it."""

    name: str
    created: int = 0
    """Seconds since 1970; 0 if unknown."""
    window: int = 0
    """Context length in tokens; 0 if unknown."""
    max_reply_tokens: int = 0
    """Maximum length of a reply in tokens; 0 if unknown."""
    abilities: Mapping[str, bool] = {}
    """Support for `tools`, `thinking` and `vision`, as far as the server reports it."""
    real_names: tuple[str, ...] = ()
    """The names of the model behind this one, the most reliable first, with `name` in its place; empty if the server
    states no other one."""
    template: str = ""
    """The chat template (Jinja; Ollama's are Go templates); empty if the server does not state it."""

    @property
    def date(self) -> str:
        """The creation time in RFC 3339 format."""
        return datetime.fromtimestamp(self.created, UTC).isoformat().replace("+00:00", "Z")


class CanonicalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An API-independent request. Its messages carry `media` and `thought` instead of `source`."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    parallel: bool = True
    limits: Mapping[str, Any] = {}
    """Limits and sampling, by their names in chat completions; `stop` is a list."""
    effort: str | None = None
    """Reasoning effort: a level, `none`, `auto` to let the model decide, or None if unspecified."""
    thinking: ThinkingForm = ThinkingForm()
    answer: Answer | None = None
    constraint: tuple[str, Any] | None = None
    """A grammar of the reply: the form in which the server accepts it (`profiles/schema.py`), and its text or data."""
    reasoning_field: str = ""
    """Name of the field for the reasoning of past messages, in an API that has more than one; empty for its default."""
    tools_mark: Any = None
    """The value of `cache_control` after the tools."""
    untranslated: tuple[str, ...] = ()
    """Descriptions, for people, of parts that the server's API cannot express."""
    foreign_seals: int = 0
    """Number of seals that were dropped because they belong to another server, model, credential or conversation, or
    their origin is unknown."""

    def split_system_prompt(self) -> tuple[str | None, Sequence[Message]]:
        """Split off the system prompt from the conversation; None if there is none."""
        if self.messages and self.messages[0].role == "system":
            return self.messages[0].text, self.messages[1:]
        return None, self.messages


# Deltas: the content of a frame before its text is parsed.


class Citation(msgspec.Struct, frozen=True, gc=False):
    """A web page that a reply cites, with the `quote` from it.

    `start` and `end` are the characters of the reply that it supports: in an `Origin` from the beginning of their
    block, the whole of which it supports by default, and in `Citations` from the beginning of the choice.
    """

    url: str
    title: str = ""
    quote: str = ""
    start: int = 0
    end: int = sys.maxsize


class Origin(msgspec.Struct, frozen=True, gc=False):
    """An item that only one API knows. It reaches encoders of that API and no others.

    `kind` describes it to people. `harmless` is True only for kinds in which no client can find a call (citations);
    under a strict policy all others are withheld. `ends` puts it after everything else in its frame. `lost` describes
    to people the part that a client of another API does not get, if `kind` does not.
    """

    api: str
    kind: str
    value: Any
    choice: int = 0
    harmless: bool = False
    ends: bool = False
    lost: str = ""
    citations: tuple[Citation, ...] = ()
    """The citations in it, for clients of other APIs."""


type Reason = Literal["stop", "length", "tool_calls", "halted", "failed", "other"]
"""Why a reply ended. `length`, `halted` (by a filter) and `failed` (a fault, or an unknown finish reason) cut it off.
Calls in the reply never change these or `other`."""
CUT_OFF: frozenset[Reason] = frozenset(("length", "halted", "failed"))
"""Reasons that cut a message off, so that a call still open is incomplete and not delivered."""


type Silence = Literal["empty", "thought", "announced"]
"""How a turn ends without an answer: with nothing, with reasoning alone, or with an announcement of the next action."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the visible text of one choice."""

    text: str
    choice: int = 0
    refusal: bool = False
    """True for the model's refusal, in APIs that separate it from other text."""


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of reasoning that the server separated from the text.

    `own` is the API's own form of it, in APIs that have more than one form or field for reasoning.
    """

    text: str
    choice: int = 0
    own: Origin | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a native tool call.

    `index` numbers the calls of a message; None if the server does not number them. The pieces of `arguments` join to
    JSON. `source` is the API's own object.
    """

    index: int | None = None
    id: str | None = None
    name: str = ""
    arguments: str = ""
    source: Any = None
    choice: int = 0
    clean: bool = True
    """False if the piece breaks a rule of its API that clients rely on."""
    last: bool = False
    """True if this piece completes the call. In APIs without such a mark the end of the message completes it."""
    complete: bool | None = None
    """With the last piece: True if the server marked the call as complete, False if it is known to be cut off, None if
    the end of the message decides. A complete call without arguments has the arguments `{}`."""


class BlockEnd(msgspec.Struct, frozen=True, gc=False):
    """The end of a block of text; the message may continue with another."""

    choice: int = 0


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The end of one choice; `native_reason` is the finish reason in the API's words."""

    reason: Reason
    choice: int = 0
    native_reason: str = ""
    is_early: bool = False
    """True if the finish reason announces calls that have not arrived, so that the choice may continue."""
    is_assumed: bool = False
    """True if the stream ended without a finish reason."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """A server error that ends the reply; `kind` is the error type in the API's words."""

    message: str
    kind: str = ""
    choice: int = 0
    own: Origin | None = None


type Delta = TextDelta | ReasoningDelta | CallDelta | BlockEnd | Finish | Failure
"""Frame content that passes the reader and the stages because it determines the text and the calls of a reply."""


# Metadata: the rest of a frame, which bypasses the reader on its way from a decoder to an encoder.


class Start(msgspec.Struct, frozen=True, gc=False):
    """The start of the reply or of one of its choices; `created` is in seconds since 1970, 0 if unknown."""

    id: str = ""
    model: str = ""
    created: int = 0
    choice: int = 0
    own: Origin | None = None
    """Other fields of every frame, or of the first one."""


class BlockStart(msgspec.Struct, frozen=True, gc=False):
    """The start of a block of text or reasoning. Encoders may send nothing for it until its first text.

    `number` is the server's index of the block.
    """

    kind: Literal["text", "reasoning"]
    number: int = 0
    id: str = ""
    choice: int = 0
    own: Origin | None = None


class Seal(msgspec.Struct, frozen=True, gc=False):
    """A signature or encrypted content of the preceding reasoning, which clients must send back at the same place.

    `calls` is the number of calls of the choice that began before it, without the call that carries it (`on`).
    """

    signature: str = ""
    encrypted: str = ""
    choice: int = 0
    calls: int = 0
    on: SealPlace = ""

    @property
    def value(self) -> str:
        """The signature, or else the encrypted content."""
        return self.signature or self.encrypted


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Token counts. `prompt` includes tokens `cached` earlier and those `written` to the cache, `completion` the
    `reasoning` tokens."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    written: int = 0
    choice: int = 0
    own: Origin | None = None
    """The API's own usage object, which may hold further counts."""


type FrameMetadata = Origin | Start | BlockStart | Seal | Usage


class Citations(msgspec.Struct, frozen=True, gc=False):
    """The citations of the latest text, for a client of another API; `length` is that of all text of the choice."""

    entries: tuple[Citation, ...]
    length: int


class RefusalText(msgspec.Struct, frozen=True, gc=False):
    """Text of a model's refusal (`TextDelta.refusal`), for the encoder; plain text in APIs that do not separate it."""

    text: str


# Stream events


class Text(msgspec.Struct, frozen=True, gc=False):
    """Visible text."""

    raw: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """Reasoning of the model, which is not part of its answer."""

    raw: str


class Markup(msgspec.Struct, frozen=True, gc=False):
    """Characters outside the message: white space around a call, closers, reasoning tags."""

    raw: str


NATIVE = "tool_calls"
"""The dialect name of native tool calls."""


NOT_COMPARED = "not compared with the results of the request, which hold too much that is like it"
"""The reason, in reports, why a call was not checked for being an echo."""


class Evidence(msgspec.Struct, frozen=True):
    """The text that calls were read from, and all of these calls in order (`vtc.proof`)."""

    text: str
    calls: tuple[Call, ...]


class Call(msgspec.Struct, frozen=True):
    """A complete call, its characters in the reply, and the repairs that parsing it required.

    `changed` is True if a policy changed the call, so that `raw` no longer matches it.
    """

    raw: str
    call: ToolCall
    dialect: str
    repairs: tuple[str, ...] = ()
    changed: bool = False
    compared: bool = True
    """False if it was not compared with the tool results, so that it may be an echo (`NOT_COMPARED`)."""
    rest: str | None = None
    """The rest of its arguments, and `raw` the rest of its text, if `CallPiece`s with their beginning were sent; else
    None."""
    spelled: ToolCall | None = None
    """The native call before VTC normalized it; it is forwarded in this form unless a policy changes the call."""
    read_from: Evidence | None = None
    """Its evidence, if that is not `raw` and this call."""

    @property
    def evidence(self) -> Evidence:
        """The text that it was read from, with all calls in that text."""
        return self.read_from or Evidence(self.raw, (self,))

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def arguments(self) -> str:
        """The arguments as the text of a JSON object."""
        return self.call.arguments

    @property
    def id(self) -> str | None:
        """The id of the call."""
        return self.call.id


class CallPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a call that is still being parsed. The first has the name; a `Call` with a `rest` completes it."""

    raw: str
    name: str = ""
    id: str | None = None
    arguments: str = ""
    number: int = 0
    """Index of the call among those of the message that are sent in pieces."""


type Manner = Literal["steer", "text", "drop"]
"""Replacement of a call that a policy denies: a message with the reason, the original text, or nothing."""

type OnFailure = Literal["refuse", "pass"]
"""Fate of a call if its policy fails."""


class Denied(msgspec.Struct, frozen=True):
    """A call that a policy denied."""

    raw: str
    call: ToolCall
    manner: Manner
    message: str


class Rewritten(msgspec.Struct, frozen=True, gc=False):
    """Characters that are sent as other text, e.g. a call in the client's dialect."""

    raw: str
    text: str


class CallText(msgspec.Struct, frozen=True, gc=False):
    """A text tool call that was checked, for a client that parses calls from text: it will execute this one."""

    raw: str
    text: str

    def as_plain_text(self) -> Text | Rewritten:
        """Return the event for consumers that treat text tool calls as ordinary text."""
        return Text(self.raw) if self.raw == self.text else Rewritten(self.raw, self.text)


class UnreadCall(msgspec.Struct, frozen=True):
    """Notice that text which began like a call was not read as one. It denotes no characters itself (`raw` is empty).

    `malformed` is False for a well-formed call that is not permitted. The text stays text, or is dropped if `left_out`.
    """

    reason: str
    dialect: str
    name: str = ""
    excerpt: str = ""
    malformed: bool = True
    left_out: bool = False
    raw: Literal[""] = ""


class Intervention(msgspec.Struct, frozen=True):
    """An action of a policy, for the report. It denotes no characters itself (`raw` is empty).

    `policy` is the policy's key in a profile, `action` a past participle: `refused`, `changed`, `coerced`, ….
    `detail` is longer than `reason` and may quote the model's text.
    """

    policy: str
    action: str
    tool: str = ""
    reason: str = ""
    detail: str = ""
    raw: Literal[""] = ""


Event = Text | Reasoning | Markup | Call | CallPiece | CallText | Denied | Rewritten | UnreadCall | Intervention
