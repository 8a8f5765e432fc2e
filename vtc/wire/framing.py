"""Cut a reply into frames on the wire, and write them: server-sent events, or lines of JSON.

A frame keeps every byte that it came in, so that an unchanged frame leaves byte-identical. Joining the `raw`
of all frames gives the body back, and how the body was cut by the network makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Protocol

import msgspec

MAX_FRAME_BYTES = 16 * 2**20
"""Bytes of one frame beyond which a body is no stream of frames."""


class FrameTooLong(ValueError):
    """A body that goes on and on without the end of a frame."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One unit of a stream on the wire, e.g. a server-sent event or a line of JSON."""

    raw: bytes
    """Every byte, terminator included."""
    data: bytes | None
    """The payload, usually JSON; None for what carries none, e.g. a comment."""


class FrameReader(Protocol):
    """Cuts a body into frames as it arrives."""

    @property
    def buffered(self) -> Sized:
        """Return what has come of a frame that has only begun."""
        ...

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take the next bytes; return the frames that they complete. Raises `FrameTooLong`."""
        ...

    def finish(self) -> list[Frame]:
        """End the body: return what is left as a last frame, if anything is (idempotent)."""
        ...


class Framing(Protocol):
    """One way of cutting a body into frames, and of making new frames."""

    media_type: str
    """The content type of such a body."""
    end: bytes
    """Ends a frame that came without its terminator, before another one follows."""
    last: bytes
    """Ends a stream; empty where its last event does."""

    def make_reader(self) -> FrameReader:
        """Start reading a body."""
        ...

    def matches(self, body: bytes) -> bool:
        """True if a whole body is cut this way, whatever its content type says."""
        ...

    def is_unambiguous(self, frame: Frame) -> bool:
        """True if every client finds the same data in a frame."""
        ...

    def is_cut_off(self, frame: Frame) -> bool:
        """True if the body ended in the middle of this frame, its last one."""
        ...

    def encode(
        self, values: Iterable[Mapping[str, Any]], like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Make a frame for each value, which carries it as JSON, in place of `like` or of a part of it.

        `first` is False if other frames were made in its place before.
        """
        ...
