"""Split a reply into frames, and encode frames: server-sent events, or lines of JSON.

A frame keeps all of its bytes, so an unchanged frame is forwarded byte for byte. Joining the `raw` of all frames
restores the body, and the chunks in which the network delivered it make no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Protocol

import msgspec

MAX_FRAME_BYTES = 16 * 2**20
"""Maximum size of a frame; a longer one means that the body is not a stream of frames."""


class FrameTooLong(ValueError):
    """A body that exceeds the maximum size without the end of a frame."""


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One unit of a stream on the wire, e.g. a server-sent event or a line of JSON."""

    raw: bytes
    """Every byte, terminator included."""
    data: bytes | None
    """The payload, usually JSON; None if there is none, as in a comment."""


class FrameReader(Protocol):
    """Splits a body into frames as it arrives."""

    @property
    def buffered(self) -> Sized:
        """Received bytes of the incomplete frame."""
        ...

    def feed(self, chunk: bytes) -> list[Frame]:
        """Add the next bytes; return the frames that they complete. Raises `FrameTooLong`."""
        ...

    def finish(self) -> list[Frame]:
        """End the body; return the remaining bytes as a last frame, if there are any (idempotent)."""
        ...


class Framing(Protocol):
    """A format that splits a body into frames, and encodes new frames."""

    media_type: str
    """The content type of such a body."""
    end: bytes
    """The terminator of a frame; it is added to a last frame that lacks it if VTC appends another."""
    last: bytes
    """The bytes of the frame that ends every stream (`data: [DONE]`); empty if an ordinary event of the API ends it."""

    def make_reader(self) -> FrameReader:
        """Make a reader for a body."""
        ...

    def matches(self, body: bytes) -> bool:
        """True if a whole body has this format, regardless of its content type."""
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
        """Encode each value as a frame of JSON. The frames replace `like`, whose other lines the first one repeats.

        `first` is False if an earlier call for the same `like` already repeated these lines.
        """
        ...
