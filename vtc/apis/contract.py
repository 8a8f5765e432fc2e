"""The contract of an API: with the modules about requests below, all that an author of an API implements.

    request body -> Api.request -> Request           the request in canonical form (`request.py`, `tool_fields.py`)
    Request, Changes -> Api.writer -> request body   the same with changes (`request_writer.py`, `tool_writer.py`)
    CanonicalRequest -> Api.writer -> request body   a request for a server of this API, from any client
    frame -> Decoder.decode -> deltas and metadata
    deltas, events -> Encoder.write -> JSON values   the frames for the client
    whole body -> Api.unfold -> JSON values -> Api.fold -> whole body

The decoder belongs to the server's API and the encoder to the client's; neither knows the other. The relay (`relay/`)
decides for all APIs which frames are buffered, forwarded as their own bytes, or re-encoded. To the relay the content of
a frame has this order: starts, reasoning, all other metadata, text, calls, the end of a block or of the choice, usage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from vtc.apis.layout import BodyLayout
from vtc.apis.place import PathMatch, Place, make_suffix_place
from vtc.apis.request import Request
from vtc.apis.request_writer import RequestWriter
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    Citations,
    Delta,
    Failure,
    Finish,
    FrameMetadata,
    Message,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Start,
    Text,
    Usage,
)
from vtc.wire.framing import Frame, Framing

type Json = Mapping[str, Any]
type ReplyEvent = (
    Text
    | Reasoning
    | ReasoningDelta
    | RefusalText
    | Rewritten
    | Call
    | CallDelta
    | BlockEnd
    | Finish
    | Failure
    | Citations
    | FrameMetadata
)
"""An event that can be sent to a client. After a `BlockEnd` the next block of the reply begins."""
CONTENT_EVENTS = (Text, Rewritten, RefusalText, Reasoning, ReasoningDelta, Call, CallDelta)
"""The events that show a client content: a reply that the server did not start starts with the first of them."""
WRONG_TYPE = "wrong type"
"""Prefix of the kind of an `Origin` that holds a value of a wrong JSON type. No encoder renders it."""
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The kind of a `Failure` for a prompt that is too long: each API has its own error for it, which agents recognise."""


def find_missing_start(events: Sequence[ReplyEvent]) -> Start | None:
    """Return the start for content that none preceded; None if the events have no content.

    The start may follow the content in the same frame. Some servers send none, and then it is empty.
    """
    if not any(isinstance(event, CONTENT_EVENTS) for event in events):
        return None
    return next((event for event in events if isinstance(event, Start)), Start())


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """The content of one frame: its deltas in order, and its metadata."""

    deltas: tuple[Delta, ...] = ()
    metadata: tuple[FrameMetadata, ...] = ()
    """The other parts of the frame; a field that is unknown to the decoder is an `Origin`."""
    frame: Frame | None = None
    """Replaces the received frame if a part of it is not forwarded."""
    keep_alive: bool = False
    """True for a frame without content (a ping): it may overtake buffered frames."""
    clean: bool = True
    """False if clients of the API could misread the frame or fail at it: it is re-encoded. Pieces of calls have
    their own flag."""
    ends: bool = False
    """True for a frame that only ends the reply, so that unfinished choices end here. A frame with more content ends
    a choice, by a `Finish`; the relay rejects a frame that does both."""
    dropped: str = ""
    """For a frame that no client of the API can parse, and that has no content for it: its kind, for the report."""


class Decoder(Protocol):
    """Decodes one reply of the server's API. Created for each reply.

    The relay passes each frame to a copy (`copy.copy`) and keeps the copy if nothing failed. So a field may get a new
    value, but a list or dict in it must not be changed in place. Decoders that will decode the same way must be equal
    (as `msgspec.Struct` values are): only then can a frame that resembles the last one pass unread. Both rules also
    hold for an `Encoder`.

    Each choice of a reply begins with a `Start`. If the API has blocks, a `BlockStart` accompanies the first delta of
    its block, or an empty `TextDelta` if the block has none: without a delta the previous block would not end there,
    and the block would overtake text that is still buffered. A `BlockEnd` ends a block of text; other ends need no
    event. A call is sent as pieces, the name in the first one; pieces without an `index` belong to calls by their
    order.

    Anything that is unknown to the decoder becomes an `Origin` that is not harmless; nothing is dropped. So policies
    hold, and a person can see which content a client of another API does not get.
    """

    @property
    def framing(self) -> Framing:
        """The framing that splits the stream into frames."""
        ...

    def decode(self, frame: Frame) -> Decoded | None:
        """Decode one frame; None if it does not belong to this API.

        A missing field is empty, and a value of a wrong type is an `Origin`: neither raises an exception.
        """
        ...


class Encoder(Protocol):
    """Encodes one reply for the client's API from events alone. Created for each reply.

    It keeps the client's numbers and open blocks, and opens the message or a block when an event needs one. A server of
    another API may send usage before the finish, after it or never, and the end only by `end`: a last frame that
    contains both has to be delayed. An `Origin` of the encoder's own API is written unchanged; no encoder gets those of
    another API.

    If both APIs are the same, an unchanged frame is forwarded as received, and the encoder gets its events by `follow`
    instead of `write`. It updates the same state, with the server's numbers, because it may have to write the next
    event. `in_step` tells whether the client's numbers still equal the server's. If not, the relay restores the
    previous encoder and re-encodes the frame. `follow` returns False for an event without content so far, for example
    the start of a block: that frame is deferred until the next one with content, and is never sent if its block never
    gets any.
    """

    @property
    def framing(self) -> Framing:
        """The framing that makes frames of values."""
        ...

    @property
    def counts(self) -> bool:
        """True if frames are numbered, so that adding or removing one renumbers all later frames."""
        ...

    @property
    def in_step(self) -> bool:
        """True if the last sent event has the number that the server gave it."""
        ...

    @property
    def call_fields(self) -> Collection[str]:
        """The fields of a call's object in which no client finds another call.

        Under a strict policy only these are sent, in addition to the values that VTC has read.
        """
        ...

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        """Encode events as the data of frames; an empty list if they are sent later (the start of a block)."""
        ...

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        """Record events that are about to be forwarded in a frame of the same API; False if they have no content."""
        ...

    def end(self) -> list[Json]:
        """End the reply: close what is open and write the API's last event, if it has one (idempotent)."""
        ...

    def keep_alive(self) -> bytes | None:
        """Make a frame without content for a client that is waiting; None while none may be sent."""
        ...


class ReasoningFollower(Protocol):
    """A decoder that needs the reasoning of frames that were not decoded, because it uses their text later."""

    def record_reasoning(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Record the texts of such frames, as escaped in JSON. May change the decoder in place."""
        ...


class FrameFollower(Protocol):
    """An encoder that needs the frames that were forwarded without it: it repeats their text later or counts them."""

    def record_passed(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Record whole frames that were forwarded unread, and their texts, as escaped in JSON.

        May change the encoder in place.
        """
        ...


class ReferableReply(Protocol):
    """An encoder of an API in which later requests may refer to a reply."""

    on_response: Callable[[Json], None] | None
    """Called with the whole reply, with its `id` and its `output`, before its last frame is sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of a reply as a single message, for people to read."""

    message: Message
    finish_reason: str | None = None
    """The finish reason in the API's own word; None if there is none."""
    complete: bool = True
    """False if the reply is cut off."""
    usage: Usage | None = None
    in_order: bool = True
    """False if a piece of a call breaks a rule of the API."""
    thoughts: str = ""
    """The field of the reasoning, if it is not the API's usual one."""


class Question(NamedTuple):
    """A side question that clients of an API ask."""

    kind: Literal["alive", "models", "model", "count", "version"]
    method: str
    path: str
    """The end of its path, with `{model}` for the name of a model; `/` is the whole path."""
    write: Callable[[Any], Json]
    """Renders the answer from a list of models, one model or a number of tokens; a constant for other questions."""
    sign: Callable[[str, Mapping[str, str]], bool] | None = None
    """Recognises clients of this API by query and headers, if other APIs have the same path; None for all other
    clients."""

    def match_path(self, path: str) -> PathMatch | None:
        """Match a path with this end; None if it has another."""
        if self.path == "/":
            return PathMatch("", "", False) if path == "/" else None
        return make_suffix_place(self.path).match_path(path)


class UnreadPath(NamedTuple):
    """The reason why requests to a path are not processed."""

    why: str
    may_call: bool
    """True if a reply may contain a call, so that a policy against calls blocks the request."""

    def __str__(self) -> str:
        return self.why


TOKEN_COUNT_UNREAD = UnreadPath("tokens are counted without VTC's changes to the request", may_call=False)
TEXT_COMPLETIONS_UNREAD = UnreadPath("text completions have no tools, and are not read", may_call=False)


@dataclass(frozen=True, slots=True)
class Api:
    """One API; a row of the registry (`apis/__init__.py`)."""

    name: str
    place: Place
    """The paths, headers and query of its requests."""
    request: type[Request]
    """Decodes a request from its body and, for some APIs, its path."""
    writer: RequestWriter
    """Writes requests, for a server of this API."""
    make_decoder: Callable[[Any, frozenset[str]], Decoder]
    """Makes the decoder of one reply from the `form` of its request and the names of fields that are not sent to the
    client."""
    make_encoder: Callable[[Any, frozenset[str]], Encoder]
    """Makes the encoder of one reply, from the same."""
    unfold: Callable[[Any, Request | None], Iterable[Mapping[str, Any]]]
    """Converts a whole reply to the events of a stream: all its content, or the part that the request asks for.

    Raises `INVALID_BODY_ERRORS` (`fields.py`) if it is no reply.
    """
    fold: Callable[[Iterable[Mapping[str, Any]]], Mapping[str, Any]]
    """Combines the events of a stream into a whole reply."""
    build_error: Callable[[Failure, int], Mapping[str, Any]]
    """Renders the body of an error with this HTTP status."""
    call_ids: str = "call_"
    """Prefix of call ids; 24 hex digits follow."""
    in_pieces: bool = True
    """True if its streams send a call in pieces."""
    seals: Literal["field", "part", "signed"] = "field"
    """The place of its seals: in a field next to the text of a message (`field`) or among its parts (`part`); `signed`:
    among the parts, and valid only with the text of the reasoning."""
    cites: bool = True
    """True if its replies have citations of web pages."""
    questions: Sequence[Question] = ()
    """Side questions of its clients."""
    unread: Mapping[str, UnreadPath] = field(default_factory=dict)
    """Paths that resemble its own, and why requests to them or below are not processed; the first match counts.

    `{model}` is any name.
    """

    @property
    def layout(self) -> BodyLayout:
        """The layout of its request bodies."""
        return self.request.LAYOUT

    @property
    def signs_reasoning(self) -> bool:
        """True if its seals are valid only with the text of the reasoning."""
        return self.seals == "signed"

    @property
    def framing(self) -> Framing:
        """The framing of a streamed reply."""
        return self.decoder().framing

    def decoder(self, form: Any = None, drop: Collection[str] = ()) -> Decoder:
        """Make the decoder of one reply."""
        return self.make_decoder(form, frozenset(drop))

    def encoder(self, form: Any = None, drop: Collection[str] = ()) -> Encoder:
        """Make the encoder of one reply."""
        return self.make_encoder(form, frozenset(drop))


type TextChain = tuple[Any, str] | None


def join_chain(chain: TextChain) -> str:
    """Join the pieces of a text; adding a piece to a chain copies none of the pieces before it."""
    return "".join(list_chain(chain))


def list_chain(chain: tuple[Any, Any] | None) -> list[Any]:
    """List the links of a chain, the first one first."""
    links: list[Any] = []
    while chain:
        chain, link = chain
        links.append(link)
    return links[::-1]
