"""The contract of an API: all that its author writes.

    request body -> Api.request -> Request          what is asked, in canonical form
    frame -> Codec.decode -> deltas                 what a reply says
    frame + events -> Codec.write -> JSON values    what leaves in a frame's place

A codec decodes and encodes, and drives nothing. Which frames wait, which leave as their own bytes and which are written
anew is up to the relay (`relay.py`), once for all APIs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    Delta,
    Finish,
    Message,
    Reasoning,
    ReasoningDelta,
    Rewritten,
    Text,
    TextDelta,
    Tool,
)
from vtc.wire.framing import Frame, Framing

type Said = Text | Reasoning | Rewritten | Call | CallDelta | BlockEnd | Finish
"""What is written in place of a frame's deltas; a `CallDelta` or `Finish` is one of the frame's own.

After a `BlockEnd` the next block of the reply begins.
"""


def as_said(deltas: Iterable[Delta]) -> list[Said]:
    """Turn deltas into what a codec writes for them."""
    said: list[Said] = []
    for delta in deltas:
        match delta:
            case TextDelta(text):
                said.append(Text(text))
            case ReasoningDelta(text):
                said.append(Reasoning(text))
            case CallDelta() | BlockEnd() | Finish():
                said.append(delta)
    return said


class BadRequest(ValueError):
    """The body is no request of this API; it is passed on untouched."""


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """The deltas of one frame, in order. Without any, the frame takes its turn after those that wait."""

    deltas: tuple[Delta, ...] = ()
    alone: bool = False
    """True if the frame says nothing else: it is not missed once its deltas are gone."""
    frame: Frame | None = None
    """Stands for the frame that came, where a part of that is not passed on, or to keep what was decoded."""


class Codec(Protocol):
    """One reply in the form of one API. Made anew for each reply.

    The relay hands each frame to a copy (`copy.copy`), and keeps the copy if all went well: a field may be given a
    new value, but a list or dict in it must not be changed in place.
    """

    @property
    def framing(self) -> Framing:
        """How frames are cut and made."""
        ...

    @property
    def renumbers(self) -> bool:
        """True once frames get other numbers than they came with, so that each must go through `forward`."""
        ...

    def decode(self, frame: Frame) -> Decoded | None:
        """Read one frame. None for one that the reader of text need not see, which passes at once (a ping)."""
        ...

    def forward(self, frame: Frame) -> bytes:
        """Pass a frame whose deltas came back unchanged: its own bytes, with new numbers if earlier ones shifted.

        A frame may stay here until it shows whether it is needed (a block that only a call stood in never begins);
        it leaves before the next one that is passed or written.
        """
        ...

    def close(self) -> bytes:
        """Return the frames that stayed in `forward`; for the end of a reply, or after a failure."""
        ...

    def write(self, frame: Frame, choice: int, said: Sequence[Said], *, first: bool) -> list[Mapping[str, Any]]:
        """Write `said` in place of the deltas that `frame` has for a choice; the result is data of new frames.

        A frame may leave in several parts, and the `first` also has all that it says besides its deltas (usage,
        fields unknown to VTC). Later parts, and what is added at the end of a reply, take from it only what
        every frame of the reply has (id, model). Of a frame with several choices all are written, in order.
        """
        ...

    def keep_alive(self) -> bytes | None:
        """Make a frame that tells a client nothing, for one that waits; None while none may be sent."""
        ...


class KeepsNothing:
    """A codec that lets every frame leave at once, and has no numbers to keep."""

    __slots__ = ()
    renumbers: ClassVar[bool] = False

    def forward(self, frame: Frame) -> bytes:
        return frame.raw

    def close(self) -> bytes:
        return b""


@runtime_checkable
class Following(Protocol):
    """A codec that must know which frames left without it, since it repeats their text later or counts them."""

    def passed(self, data: bytes) -> None:
        """Take note of whole frames that left unread; may change the codec in place."""
        ...


class Request(ABC):
    """A decoded request."""

    model: str
    stream: bool
    messages: Sequence[Message]
    """Raises `BadRequest` where they turn out to be none."""
    call_ids: Collection[str]
    """Of all calls in the conversation."""
    tools: Sequence[Tool]
    declared: Sequence[str]
    """Names of all that is declared: of `tools`, and of tools that are no functions."""
    tool_choice: str
    """`auto`, `none`, `required`, or the name of a tool."""
    parallel: bool
    """True if the reply may hold more than one call."""
    form: Any
    """What the codec of the reply must know of the request; it is kept by `forget`."""
    fields: Mapping[str, Any]
    """The whole request as plain data, for profiles that match on it."""
    unliftable: str = ""
    """Why no call may be read from the text of the reply; empty if it may."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of the conversation and of all else that only sending the request needs."""

    @abstractmethod
    def encode(
        self,
        *,
        messages: Sequence[Message] | None = None,
        drop: Sequence[str] = (),
        set_: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
        withheld: Collection[str] = (),
    ) -> bytes:
        """Encode the request with these changes; what is not changed keeps its bytes.

        `drop` holds dotted paths, `*` being any key or index. `tools` replaces the declared tools; with none at all,
        what is about tools is left out. Otherwise those named in `withheld` are left out.
        """


class Cache(Protocol):
    """Keeps values that are made of parts of a request, for later ones with the same parts."""

    def get_or_make[T](self, key: tuple[str | bytes, ...], make: Callable[[], T]) -> T:
        """Get the value for `key`, all that it depends on, or make and keep it. It must not be changed."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice of a reply as the message it adds up to, for people to read."""

    message: Message
    finish_reason: str | None = None
    """The API's own word."""
    complete: bool = True
    """False if the model was cut off."""


@dataclass(frozen=True, slots=True)
class Api:
    """One HTTP shape; a row of the registry (`apis/__init__.py`)."""

    name: str
    path: str
    """How the paths of its requests end; they are all POST."""
    make_request: Callable[[bytes, Cache | None], Request]
    make_codec: Callable[[Any, frozenset[str]], Codec]
    """Makes the codec of one reply, from the `form` of its request and names of fields that the client is not sent."""
    unfold: Callable[[Any, Request | None], Iterable[Mapping[str, Any]]]
    """Tells a whole reply by the events of a stream: all that it says, or what the request asks to be told.

    Raises `UNFIT` (`fields.py`) if it is none.
    """
    fold: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
    """Adds up the events of a stream to a whole reply."""
    answer: Callable[[Request, str, str, int], Mapping[str, Any]]
    """Makes a whole reply that says a text; for its id 64 hex digits, for its time seconds since 1970."""
    call_ids: str = "call_"
    """How ids of calls begin."""

    def request(self, body: bytes, cache: Cache | None = None) -> Request:
        """Decode a request; declarations of tools may be kept in `cache`, nowhere else. Raises `BadRequest`."""
        return self.make_request(body, cache)

    def codec(self, form: Any = None, drop: Collection[str] = ()) -> Codec:
        """Make the codec of one reply."""
        return self.make_codec(form, frozenset(drop))

    def call_id(self, digest: str) -> str:
        """Make the id of a call from 64 hex digits."""
        return f"{self.call_ids}{digest[:24]}"
