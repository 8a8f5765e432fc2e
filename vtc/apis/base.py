"""What an API codec is: requests as messages and tools, replies as text channels.

An API module knows the JSON and nothing of dialects; what becomes of the text of a choice is up to the `Channel`
that it is given for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtc.events import Event, Message, Tool, ToolCall
from vtc.wire.template import Unread


class BadRequest(ValueError):
    """The body is no request of this API; it is passed on untouched."""


class Channel(Protocol):
    """One message of a reply on its way through: text in, events out, `raw` of all events being that text."""

    def feed(self, text: str) -> list[Event]: ...

    @property
    def watched(self) -> str | None:
        """The characters that are watched for as things are; None if all text is to be fed.

        Text without any of them that does not end in white space or `>` need not be fed: it would come back as `Text`,
        and nothing would be different behind it.
        """
        ...

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        """The end of the message, and the calls that upstream made in their structured form, if it `takes` them."""
        ...

    def reasoned(self) -> None:
        """Upstream parted the reasoning off itself: none is to be looked for in the text."""
        ...

    def release(self) -> list[Event]:
        """Upstream makes calls itself: give back what is held; text that follows is text."""
        ...

    @property
    def structured(self) -> bool:
        """Whether the client reads calls in their structured form."""
        ...

    @property
    def guarded(self) -> bool:
        """Whether no call may reach the client that a policy has not seen."""
        ...

    def late(self) -> None:
        """Upstream went on behind the end of its message, and that is not passed on."""
        ...

    @property
    def takes_calls(self) -> bool:
        """Whether calls that upstream made in their structured form go through `finish`; if not, they pass."""
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
    """Whether the reply may hold more than one call."""
    legacy: bool
    """The client uses the API's older form of tools and expects it in the reply."""
    fields: Mapping[str, Any]
    """The whole request as plain data, for profiles that match on it."""

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
        """The request's body with these changes; what is not changed keeps its bytes.

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


class Rewriter(Protocol):
    """Rewrites the frames of one streamed reply."""

    @property
    def unread(self) -> Unread | None:
        """Frames that need not be fed as things are: they would leave as they came, behind those that wait, and nothing
        would be different behind them. None if all are to be fed."""
        ...

    def feed(self, raw: bytes, data: bytes) -> list[bytes]:
        """A frame of the stream and its data; returns the frames that may leave now."""
        ...

    def finish(self) -> list[bytes]:
        """The end of the stream, with or without a marker of its own (idempotent)."""
        ...

    def release(self) -> list[bytes]:
        """What is held back, as it came (after a failure)."""
        ...


class Api(Protocol):
    """One HTTP shape."""

    name: str

    def handles(self, method: str, path: str) -> bool: ...

    def request(self, body: bytes, cache: Cache | None = None) -> Request:
        """Decode a request; raises `BadRequest`. Declarations of tools may be kept in `cache`, nowhere else."""
        ...

    def rewriter(self, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()) -> Rewriter:
        """For a streamed reply; `channel` is called once for each choice, `drop` are names of unwanted fields."""
        ...

    def rewrite(
        self, body: bytes, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()
    ) -> bytes:
        """A whole JSON reply; returned as it came when nothing changes."""
        ...

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        """Fields to set and to drop in a streaming request so that the reply comes whole."""
        ...

    def streamed(self, body: bytes, request: Request) -> bytes:
        """A whole reply as the stream that `request` asked for; raises ValueError if it is none."""
        ...

    def reply(self, request: Request, text: str, *, id_: str, created: int) -> bytes:
        """A complete reply of our own that says `text`; `created` in seconds since 1970."""
        ...

    def reply_text(self, body: bytes) -> str:
        """What a whole reply says, and calls, as text; empty if it is none."""
        ...

    def replies(self, body: bytes) -> Sequence[Reply]:
        """A whole reply, JSON or server-sent events, as messages; raises ValueError if it is none."""
        ...

    def reasoning(self, message: Message) -> str:
        """What the model thought before a message, where the API keeps that apart from its text."""
        ...
