"""The contract of an API: with `request.py`, its half for requests, all that its author writes.

    request body -> Api.request -> Request           what is asked, in canonical form
    CanonicalRequest -> Api.ask -> request body      the same for a server of this API, whoever asks
    frame -> Decoder.decode -> deltas, and what else the frame says
    deltas, events -> Encoder.write -> JSON values   what the client is told
    whole body -> Api.unfold -> JSON values -> Api.fold -> whole body

The decoder belongs to the server's API and the encoder to the client's; neither knows the other. Which frames wait,
which leave as their own bytes and which are written anew is up to the relay (`relay/`), once for all APIs. To it a
frame says, in this order: starts, reasoning, all else that stands beside its deltas, text, calls, the end of a block
or of the choice, the usage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from vtc.apis.layout import BodyLayout
from vtc.apis.place import PathMatch, Place, make_suffix_place
from vtc.apis.request import Request
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    CanonicalRequest,
    Delta,
    Failure,
    Finish,
    FrameMetadata,
    Message,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Rewritten,
    Text,
    Usage,
)
from vtc.wire.framing import Frame, Framing

type Json = Mapping[str, Any]
type ReplyEvent = (
    Text
    | Reasoning
    | ReasoningDelta
    | RefusalDelta
    | Rewritten
    | Call
    | CallDelta
    | BlockEnd
    | Finish
    | Failure
    | FrameMetadata
)
"""An event that a client can be told. After a `BlockEnd` the next block of the reply begins."""


CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The kind of a `Failure` of a prompt that is too long: each API has its own error for it, which agents know."""


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """The content of one frame: its deltas in order, and all else beside them."""

    deltas: tuple[Delta, ...] = ()
    metadata: tuple[FrameMetadata, ...] = ()
    """Parts of the frame that need no reading; a field that the decoder does not know is an `Origin`."""
    frame: Frame | None = None
    """Stands for the frame that came, where a part of that is not passed on."""
    keep_alive: bool = False
    """True for a frame that tells the client nothing (a ping): it need not take its turn."""
    clean: bool = True
    """False if clients of the API may read more in the frame than it says, or fail at it: it is written anew. Pieces of
    calls tell that themselves."""
    ends: bool = False
    """True for a frame that says nothing but that the reply ends: choices that were not finished are now. One that says
    more ends no reply, but a choice, by a `Finish`; the relay refuses what does both."""


class Decoder(Protocol):
    """One reply in the form of the server's API. Made anew for each reply.

    The relay hands each frame to a copy (`copy.copy`), and keeps the copy if all went well: a field may be given a
    new value, but a list or dict in it must not be changed in place. Decoders that will read alike are equal
    (`msgspec.Struct` sees to that): only then can frames like the last one pass unread. Both hold for an `Encoder`.

    Each choice of a reply begins with a `Start`. Of an API with blocks, a `BlockStart` stands beside the first delta of
    its block, an empty `TextDelta` if it has no other: without a delta the block before it would not end there, nor
    keep its place before the text that still waits. A `BlockEnd` ends a block of text; what else ends needs no word.
    A call is told by pieces, the name in the first one; pieces without an `index` go by their order.

    Whatever the decoder does not know leaves it as an `Origin` that is not harmless, and nothing is dropped: so
    policies hold, and a person is told what a client of another API lacks.
    """

    @property
    def framing(self) -> Framing:
        """The framing that cuts frames."""
        ...

    def decode(self, frame: Frame) -> Decoded | None:
        """Read one frame; None for one that is nothing of this API. May raise where a value has a wrong type."""
        ...


class Encoder(Protocol):
    """One reply in the form of the client's API, made of what is said and of nothing else. Made anew for each reply.

    It keeps the numbers and the open blocks of the client, and opens what a thing needs before it (the message, a
    block) when that is said. A server of another API may tell the tokens used before the finish, after it or never, and
    the end only by `end`: what goes into one last frame has to wait for both. Kinds of `Origin` that are its own API's
    it writes as they are; those of another API reach no encoder.

    Where both APIs are the same, a frame of which nothing changed leaves as it came, and the encoder is told that by
    `follow` instead of `write`. It takes the same note of it, by upstream's numbers: the next thing may be written by
    it. `in_step` says whether the client counts as upstream did up to here. If not, the relay takes the encoder as it
    was before and has the frame written. `follow` returns False for what says nothing yet, such as the start of a
    block: that frame waits for the next one that does, and never leaves if what it begins never comes.
    """

    @property
    def framing(self) -> Framing:
        """The framing that makes frames."""
        ...

    @property
    def counts(self) -> bool:
        """True if frames are numbered, so that one more or less gives all after it other numbers."""
        ...

    @property
    def in_step(self) -> bool:
        """True if what was told last has the number that upstream gave it."""
        ...

    @property
    def call_fields(self) -> Collection[str]:
        """The fields of a call's own object in which no client finds another call: under a strict policy only these
        leave besides what VTC has read."""
        ...

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        """Write something as the data of frames; without any it is told with what follows (the start of a block)."""
        ...

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        """Take note of what is about to leave in a frame of the same API; return False if that says nothing yet."""
        ...

    def end(self) -> list[Json]:
        """End the reply: write what is still open, and the last event, if the API has one (idempotent)."""
        ...

    def keep_alive(self) -> bytes | None:
        """Make a frame that tells a client nothing, for one that waits; None while none may be sent."""
        ...


class ReasoningFollower(Protocol):
    """A decoder that must know of reasoning in frames that were not decoded, since it tells their text later."""

    def record_reasoning(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Take note of texts, as JSON has them, and of the frames written for them; may change the decoder in place."""
        ...


class FrameFollower(Protocol):
    """An encoder that must know which frames left without it, since it repeats their text later or counts them."""

    def record_passed(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Take note of whole frames that left unread, and of their texts, as JSON has them.

        May change the encoder in place.
        """
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of a reply as the message it adds up to, for people to read."""

    message: Message
    finish_reason: str | None = None
    """The API's own word."""
    complete: bool = True
    """False if the model was cut off."""
    usage: Usage | None = None
    in_order: bool = True
    """False if a piece of a call breaks a rule of the API."""
    thoughts: str = ""
    """The name under which the reasoning came, where it is not the API's usual one."""


class Question(NamedTuple):
    """A question that clients of an API ask besides replies."""

    kind: Literal["alive", "models", "model", "count", "version"]
    method: str
    path: str
    """How its path ends, with `{model}` for the name of a model; `/` is all of it."""
    write: Callable[[Any], Json]
    """Writes the answer: of models, of one, or of a number of tokens; to any other question it is always this."""
    sign: Callable[[str, Mapping[str, str]], bool] | None = None
    """Tells clients of this API, by query and headers, from those of others that ask the same; None for all others."""

    def match_path(self, path: str) -> PathMatch | None:
        """Read a path that ends in this way; None if it does not."""
        if self.path == "/":
            return PathMatch("", "", False) if path == "/" else None
        return make_suffix_place(self.path).match_path(path)


class UnreadPath(NamedTuple):
    """Why requests to a path are left alone."""

    why: str
    may_call: bool
    """True if a reply may hold a call, so that none leaves where a policy refuses calls."""

    def __str__(self) -> str:
        return self.why


TOKEN_COUNT_UNREAD = UnreadPath("tokens are counted without what VTC would write into the request", may_call=False)
TEXT_COMPLETIONS_UNREAD = UnreadPath("text completions have no tools, and are not read", may_call=False)


@dataclass(frozen=True, slots=True)
class Api:
    """One HTTP shape; a row of the registry (`apis/__init__.py`)."""

    name: str
    place: Place
    """Where its requests are sent."""
    request: type[Request]
    """Decodes a request: its body, and its path for APIs that say something there."""
    make_decoder: Callable[[Any, frozenset[str]], Decoder]
    """Makes the decoder of one reply, from the `form` of its request and names of fields not to send to the client."""
    make_encoder: Callable[[Any, frozenset[str]], Encoder]
    """Makes the encoder of one reply, from the same."""
    unfold: Callable[[Any, Request | None], Iterable[Mapping[str, Any]]]
    """Tells a whole reply by the events of a stream: all that it says, or what the request asks to be told.

    Raises `UNFIT` (`fields.py`) if it is none.
    """
    fold: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
    """Adds up the events of a stream to a whole reply."""
    ask: Callable[[CanonicalRequest], Mapping[str, Any]]
    """Writes a request of this API."""
    error: Callable[[Failure, int], Mapping[str, Any]]
    """Writes the body of an error with its HTTP status."""
    constrain: Callable[[str, Any], Mapping[str, Any]] = lambda _, __: {}
    """Writes the fields that tell the grammar of a reply, from its form and its value; none if there are none."""
    call_ids: str = "call_"
    """How ids of calls begin; 24 hex digits follow."""
    in_pieces: bool = True
    """True if its streams tell a call piece by piece."""
    seals: Literal["beside", "amid", "signed"] = "beside"
    """Where what it seals of reasoning stands: beside the text of a message, or amid that; `signed`: there, and for the
    text of the reasoning alone."""
    questions: Sequence[Question] = ()
    """Questions of its clients besides replies."""
    unread: Mapping[str, UnreadPath] = field(default_factory=dict)
    """Paths close to its own, and why requests to them, or below, are left alone; the first that fits counts.

    `{model}` is any name.
    """

    @property
    def layout(self) -> BodyLayout:
        """Where in a body its requests have what."""
        return self.request.LAYOUT

    @property
    def signs_reasoning(self) -> bool:
        """True if what it seals of reasoning is for the text of that alone."""
        return self.seals == "signed"

    @property
    def framing(self) -> Framing:
        """How a streamed reply is cut into frames."""
        return self.decoder().framing

    def decoder(self, form: Any = None, drop: Collection[str] = ()) -> Decoder:
        """Make the decoder of one reply."""
        return self.make_decoder(form, frozenset(drop))

    def encoder(self, form: Any = None, drop: Collection[str] = ()) -> Encoder:
        """Make the encoder of one reply."""
        return self.make_encoder(form, frozenset(drop))


# A text that comes in pieces, each with those before it, so that adding one copies none.


type TextChain = tuple[Any, str] | None


def join_chain(chain: TextChain) -> str:
    """Join the pieces of a text."""
    return "".join(list_chain(chain))


def list_chain(chain: tuple[Any, Any] | None) -> list[Any]:
    """List what a chain holds, the first first."""
    links: list[Any] = []
    while chain:
        chain, link = chain
        links.append(link)
    return links[::-1]
