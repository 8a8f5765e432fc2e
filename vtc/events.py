"""The canonical vocabulary: what every layer of VTC speaks.

Readers turn text or API JSON into these, writers turn these into text or API JSON, and policies see
nothing else. Every event that a text reader emits carries `raw`, the characters of the reply that it
stands for; joined in order they are the reply, so nothing can be lost without a test seeing it.

All are structs, which are made and changed many times as fast as dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from vtc.json_schema import ObjectSchema


class Tool(msgspec.Struct, frozen=True, dict=True, weakref=True):
    """A tool that the client offers; `parameters` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    strict: bool = False  # the server is to decode its calls by a grammar

    @cached_property
    def schema(self) -> ObjectSchema:
        """What its JSON Schema says of its parameters."""
        return ObjectSchema(self.parameters)

    def as_openai(self) -> dict[str, Any]:
        """`{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`."""
        data = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": {**data, "strict": True} if self.strict else data}


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call in its structured form; `arguments` is the text of a JSON object.

    `source` is the API's own object, for the fields unknown to VTC (Gemini's thought signatures). Two calls are equal
    whatever it is, and whatever was thought around them.
    """

    name: str
    arguments: str
    id: str | None = None
    source: Any = None
    before: tuple[Opaque, ...] = ()
    """The reasoning that stands between it and what its message said before, or on it."""
    after: tuple[Opaque, ...] = ()
    """The same at the end of its message, after the last call."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, str, str | None]:
        return self.name, self.arguments, self.id

    @property
    def is_custom(self) -> bool:
        """True for a call of a custom tool, whose input is text and no JSON."""
        source = self.source if isinstance(self.source, Mapping) else {}
        return "custom" in source or str(source.get("type")).startswith("custom")

    def as_openai(self) -> dict[str, Any]:
        """`{"id": …, "type": "function", "function": {"name": …, "arguments": …}}`."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


class Media(msgspec.Struct, frozen=True):
    """An image or a document in a message: `data` in base64 with its media type, or the `url` of it."""

    kind: Literal["image", "document"]
    media_type: str = ""
    data: str = ""
    url: str = ""
    name: str = ""
    detail: str = ""  # how closely to look, in OpenAI's words


type SealPlace = Literal["", "call", "text"]
"""The thing that a seal stands on, in APIs that have it there: the call after it, the text before it, or nothing."""


class Thought(msgspec.Struct, frozen=True, array_like=True):
    """A part of a past turn's reasoning, as only its own server takes it: a signed text, or encrypted content."""

    text: str = ""
    signature: str = ""
    encrypted: str = ""
    on: SealPlace = ""


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """A part of a message's content that is no text: the API's own object, or on the way to another API what it is."""

    part: Any = None
    media: Media | None = None
    thought: Thought | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation.

    `role` is `system`, `user`, `assistant` or `tool`; `content` holds text and opaque parts in order. A message
    of role `tool` is the result of the call `call_id`, made to the tool `name`. `reasoning` is what the model thought
    before it, where the API keeps that apart; it is `recalled` if this very server told it, and not the client. What
    the server sealed of it is among the content, and beside the calls. `source` is the API's own object.
    """

    role: str
    content: tuple[str | Opaque, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    name: str | None = None
    source: Any = None
    reasoning: str = ""
    recalled: bool = False

    @property
    def sequence(self) -> list[str | Opaque | ToolCall]:
        """All that it says, in order."""
        parts: list[str | Opaque | ToolCall] = [*self.content]
        for call in self.calls:
            parts += (*call.before, call, *call.after)
        return parts

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join([part for part in self.content if isinstance(part, str)])

    def filter_parts(self, stays: Callable[[str | Opaque], bool]) -> Message:
        """Leave out the parts that do not stay, of the content and beside the calls; the very message if all do."""
        if all(isinstance(part, ToolCall) or stays(part) for part in self.sequence):
            return self
        calls = [
            replace(call, before=tuple(filter(stays, call.before)), after=tuple(filter(stays, call.after)))
            for call in self.calls
        ]
        return replace(self, content=tuple(filter(stays, self.content)), calls=tuple(calls))

    @property
    def recalled_reasoning(self) -> str:
        """The reasoning that its server told, and does not have in what it sealed."""
        is_sealed = any(isinstance(part, Opaque) and part.thought for part in self.sequence)
        return self.reasoning if self.recalled and not is_sealed else ""


class Answer(msgspec.Struct, frozen=True):
    """The form of the answer that a request asks for: JSON, by a JSON Schema if there is one."""

    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    strict: bool | None = None


class ToolOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request, and which calls of them it allows."""

    tools: Sequence[Tool] = ()
    """The functions that may be called."""
    declared: Sequence[str] = ()
    """Names of all that is declared: of functions that may not be called, and of tools that are none, too."""
    deferred: Collection[str] = ()
    """Names of tools of which the model is told nothing before a result loads them."""
    choice: str = "auto"
    """`auto`, `none`, `required`, or the name of a tool."""
    restricted: bool = False
    """True if only some of the functions declared may be called."""
    parallel: bool = True
    """True if the reply may hold more than one call."""


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of how a reply is to be generated."""

    limits: Mapping[str, Any] = {}
    """Limits and sampling, by their names in chat completions; `stop` is a list."""
    thinks: bool | None = None
    """True or False if the reasoning is turned on or off, None if nothing is said of that."""
    effort: str | None = None
    """How much to think: a word, `none`, `auto` for what the model wants, or None where nothing is said of it."""
    answer: Answer | None = None
    """The form that the answer must have; None if it is free."""
    constrained: bool = False
    """True if the form of the answer, or a grammar of it, is said in any of the ways that servers know."""
    several: bool = False
    """True if more than one choice is asked for."""


class ListedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of a server's, with what that tells of it."""

    name: str
    created: int = 0
    """In seconds since 1970; 0 if it is not told."""
    window: int = 0
    """Tokens of its context; 0 if that is not told."""
    longest: int = 0
    """Tokens of the longest reply; 0 if that is not told."""
    abilities: Mapping[str, bool] = {}
    """Whether it takes `tools`, has `thinking` and `vision`, as far as that is told."""

    @property
    def date(self) -> str:
        """Write when it was made, as RFC 3339 has it."""
        return datetime.fromtimestamp(self.created, UTC).isoformat().replace("+00:00", "Z")


MAX_TOKENS = "max_tokens"
"""The limit on a reply, by its name in chat completions, and the step that lowers it."""


class CanonicalRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for servers of any API. Its messages have no `source`, but `media` and a `thought`."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    parallel: bool = True
    limits: Mapping[str, Any] = {}
    """Limits and sampling, by their names in chat completions; `stop` is a list."""
    effort: str | None = None
    """Effort of reasoning: a word, `none`, `auto` for what the model wants, or None where nothing is said of it."""
    answer: Answer | None = None
    constraint: tuple[str, Any] | None = None
    """A grammar of the reply: the form in which it is told (`profiles/schema.py`), and its text or data."""
    thoughts: str = ""
    """The field of a past message in which its reasoning is wanted, by servers of an API that has several; empty for
    the usual one."""
    left_out: tuple[str, ...] = ()
    """Parts that cannot be told to another API, for people to read."""
    foreign_seals: int = 0
    """Seals that were left out: of another server, model, credential or conversation, or of unknown origin."""

    def split_system_prompt(self) -> tuple[str | None, Sequence[Message]]:
        """Part the system prompt from the conversation; None if it has none."""
        if self.messages and self.messages[0].role == "system":
            return self.messages[0].text, self.messages[1:]
        return None, self.messages


# Deltas: what one frame of a reply says, before its text was read


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Data that only one API knows: it reaches an encoder of the same API, and no other.

    `kind` says for people what it is. `harmless` is True only for kinds of which the decoder knows that no client can
    find a call in them (citations); under a strict policy the others do not leave. One that `ends` comes after all
    else that its frame says. `lost` is for people what a client of another API lacks without it, if not `kind`.
    """

    api: str
    kind: str
    value: Any
    choice: int = 0
    harmless: bool = False
    ends: bool = False
    lost: str = ""


type Reason = Literal["stop", "length", "tool_calls", "halted", "failed", "other"]
"""Why a reply ended: `length`, `halted` (a filter) and `failed` (a fault, or a word that is on no list) cut it off.
Calls change none of these, nor `other`."""
CUT_OFF: frozenset[Reason] = frozenset(("length", "halted", "failed"))
"""The reasons that cut a message off: a call that is open then is none."""


type Silence = Literal["empty", "thought", "announced"]
"""How a turn ends without a word: with nothing, with a thought alone, with what the model does next."""


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the visible text of one choice."""

    text: str
    choice: int = 0
    refusal: bool = False
    """True for the text by which the model declines to answer, where an API keeps that apart."""


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of reasoning that the server parted off itself; `own` is how its API says it, if it has several ways."""

    text: str
    choice: int = 0
    own: Origin | None = None


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a call that upstream made in the API's structured form.

    `index` numbers the calls of a message; None where the server numbers nothing. The pieces of `arguments` join to
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
    """True if no more can come of the call: of some APIs only the end of the message shows that."""
    complete: bool | None = None
    """True if the server said that the call is complete, False if it is known to be cut; None if the end of the message
    decides. A complete call without arguments has the arguments `{}`."""


class BlockEnd(msgspec.Struct, frozen=True, gc=False):
    """One block of text is complete; the message may go on with another."""

    choice: int = 0


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The end of one choice; `said` is the API's own word for the reason."""

    reason: Reason
    choice: int = 0
    said: str = ""
    early: bool = False
    """True if it tells of calls that have not come: the choice may go on."""
    assumed: bool = False
    """True if the server gave no reason, only the end of its stream."""


class Failure(msgspec.Struct, frozen=True, gc=False):
    """An error of the server's, which ends the reply; `kind` is the API's own word for it."""

    message: str
    kind: str = ""
    choice: int = 0
    own: Origin | None = None


type Delta = TextDelta | ReasoningDelta | CallDelta | BlockEnd | Finish | Failure
"""Events that decide about the text and the calls of a reply, and go through the reader and the stages."""


# What else a frame says: it goes beside the text, from the decoder of one API to the encoder of another


class Start(msgspec.Struct, frozen=True, gc=False):
    """The beginning of the reply, or of one of its choices; `created` is in seconds since 1970, 0 if not told."""

    id: str = ""
    model: str = ""
    created: int = 0
    choice: int = 0
    own: Origin | None = None
    """The other fields that every frame, or the first one, has."""


class BlockStart(msgspec.Struct, frozen=True, gc=False):
    """A block of text or of reasoning begins: nothing need leave before the first of its text.

    `number` is upstream's, by which its API tells blocks apart.
    """

    kind: Literal["text", "reasoning"]
    number: int = 0
    id: str = ""
    choice: int = 0
    own: Origin | None = None


class Seal(msgspec.Struct, frozen=True, gc=False):
    """Belongs to the reasoning before it and must come back with it, in its place: a signature, or encrypted content.

    `calls` of the choice have begun before it, but for that which it is `on`.
    """

    signature: str = ""
    encrypted: str = ""
    choice: int = 0
    calls: int = 0
    on: SealPlace = ""

    @property
    def value(self) -> str:
        """Return the signature, or the encrypted content where there is none."""
        return self.signature or self.encrypted


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens used: `prompt` includes those that were `cached`, `completion` those of the `reasoning`."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    choice: int = 0
    own: Origin | None = None
    """The API's own counts, which may be more."""


type FrameMetadata = Origin | Start | BlockStart | Seal | Usage


class RefusalDelta(msgspec.Struct, frozen=True, gc=False):
    """A `TextDelta` that is a `refusal`, as the client is told it: text, for APIs that do not keep it apart."""

    text: str


# Stream events


class Text(msgspec.Struct, frozen=True, gc=False):
    """Visible text."""

    raw: str


class Reasoning(msgspec.Struct, frozen=True, gc=False):
    """Text that the model thought and did not say."""

    raw: str


class Markup(msgspec.Struct, frozen=True, gc=False):
    """Characters that belong to no message: white space beside a call, closers, reasoning tags."""

    raw: str


NATIVE = "tool_calls"
"""Stands for the dialect of calls in their structured form."""


NOT_COMPARED = "not compared with the results of the request, which hold too much that is like it"
"""Why it is not known whether a call is an echo."""


class Call(msgspec.Struct, frozen=True):
    """A complete call, the characters it was written with, and the repairs that reading it took.

    `changed` says that a policy made another call of it, so that its characters no longer say what it is.
    """

    raw: str
    call: ToolCall
    dialect: str
    repairs: tuple[str, ...] = ()
    changed: bool = False
    compared: bool = True
    """False if it is not known whether it is an echo (`NOT_COMPARED`)."""
    rest: str | None = None
    """The end of its arguments, if their beginning has left in pieces (`CallPiece`); `raw` is the rest of its text."""
    spelled: ToolCall | None = None
    """The call as upstream spelled it, which leaves so if no policy changed it."""


class CallPiece(msgspec.Struct, frozen=True, gc=False):
    """A piece of a call that is being read. The first has the name; the last is a `Call` with a `rest`, if whole."""

    raw: str
    name: str = ""
    id: str | None = None
    arguments: str = ""
    number: int = 0
    """Tells the calls of a message apart that leave in pieces."""


type Manner = Literal["steer", "text", "drop"]
"""Replacement of a call that a policy refuses: a message that says why, the text it was, or nothing."""

type OnFailure = Literal["refuse", "pass"]
"""Fate of a call on which a policy fails."""


class Denied(msgspec.Struct, frozen=True):
    """A call that a policy refused."""

    raw: str
    call: ToolCall
    manner: Manner
    message: str


class Rewritten(msgspec.Struct, frozen=True, gc=False):
    """Characters that leave as another text, e.g. a call in the client's dialect."""

    raw: str
    text: str


class CallText(msgspec.Struct, frozen=True, gc=False):
    """A call that leaves as text, for a client that reads calls out of the text and is to carry it out."""

    raw: str
    text: str

    def as_plain_text(self) -> Text | Rewritten:
        """Return the event for those who tell no calls from other text."""
        return Text(self.raw) if self.raw == self.text else Rewritten(self.raw, self.text)


class Refusal(msgspec.Struct, frozen=True):
    """Text that began like a call and is none; it stands for no characters itself (`raw` is empty).

    `malformed` is False for a call that was well written and may not be made. The text stays text, or is `left_out`.
    """

    reason: str
    dialect: str
    name: str = ""
    excerpt: str = ""
    malformed: bool = True
    left_out: bool = False
    raw: Literal[""] = ""


class Intervention(msgspec.Struct, frozen=True):
    """The act of a policy, for the report; it stands for no characters itself (`raw` is empty).

    `policy` is the key it is configured under, `action` a past participle: `refused`, `changed`, `coerced`, ….
    `detail` says more than `reason` and may quote what the model wrote.
    """

    policy: str
    action: str
    tool: str = ""
    reason: str = ""
    detail: str = ""
    raw: Literal[""] = ""


Event = Text | Reasoning | Markup | Call | CallPiece | CallText | Denied | Rewritten | Refusal | Intervention
