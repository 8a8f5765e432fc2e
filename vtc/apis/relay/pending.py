"""Pending frames: a frame is pending as long as some of its text is undecided, and so are the frames behind it.

Its decided text is sent before the rest, unless only white space and back-ticks remain: then the whole frame is kept,
so that it can be forwarded as received.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vtc.apis.contract import ReplyEvent
from vtc.events import (
    BlockEnd,
    BlockStart,
    CallDelta,
    Event,
    Failure,
    FrameMetadata,
    Origin,
    RefusalText,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.wire.framing import Frame

type ReadEvents = list[Event | BlockEnd | CallDelta]
"""The events that resulted from text; a `BlockEnd` ends one block of it, and a `CallDelta` is a piece of a native
call that is sent as received."""


_ORIGIN_PLACES = ("", "chunk.", "choice.", "delta.", "event.", "candidate.", "content.", "part.", "line.", "message.")
TOKEN_ORIGINS = frozenset(
    at + name for at in _ORIGIN_PLACES for name in ("logprobs", "logprobsResult", "token_ids", "hidden_states")
)
"""Kinds of `Origin` that repeat the text of their frame."""
_QUOTING_FIELDS = (
    *("annotations", "annotation", "citations", "citations_delta", "citationMetadata"),
    *("groundingMetadata", "groundingAttributions"),
)
QUOTING_ORIGINS = frozenset(at + name for at in _ORIGIN_PLACES for name in _QUOTING_FIELDS)
"""Kinds of `Origin` that quote earlier text, or refer to places in it."""


class PendingFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame, or one choice's part of it, that has not been sent completely."""

    frame: Frame
    text: str = ""
    """The text of its deltas that has not been sent."""
    refusal: int = 0
    """Characters at the end of the text that are a refusal, if the server's API separates that."""
    decided: int = 0
    """Characters of the text that are decided."""
    before: tuple[ReplyEvent, ...] = ()
    """The events before its text: a start, reasoning, origins."""
    events: tuple[ReplyEvent, ...] = ()
    """The events of the decided text."""
    calls: tuple[CallDelta, ...] = ()
    """Pieces of native calls that are decided at the end of the choice."""
    after: tuple[ReplyEvent, ...] = ()
    """The events after its text: pieces of calls that pass, the end of a block or of the choice, usage."""
    intact: bool = True
    """True while it may be forwarded as received: nothing of it was changed or had to be sent on its own."""
    unknown: bool = False
    """True if it has fields that are not known to be harmless."""
    altered: bool = False
    """True if its text is not sent as it was received."""
    mirrors: bool = False
    """True if it repeats text outside its content: log probabilities, citations."""
    odd: bool = False
    """True if it must be re-encoded because a client could misread its original bytes."""
    shared: bool = False
    """True if the frame also contains other choices."""
    begun: bool = False
    """True once a part of it was sent."""

    def render_text(self, start: int = 0, end: int | None = None) -> list[ReplyEvent]:
        """Return a part of its text, as received, with the refusal at its end separate."""
        end = len(self.text) if end is None else end
        refusal = max(start, min(end, len(self.text) - self.refusal))
        events: list[ReplyEvent] = [Text(self.text[start:refusal])] if refusal > start else []
        return [*events, RefusalText(self.text[refusal:end])] if end > refusal else events


def make_pending(frame: Frame, metadata: Sequence[FrameMetadata], failure: Failure | None = None) -> PendingFrame:
    """Make the pending frame of a frame with metadata."""
    origins = [item if isinstance(item, Origin) else getattr(item, "own", None) for item in (*metadata, failure)]
    unknown = mirrors = False
    for own in origins:
        if own is not None:
            unknown = unknown or not own.harmless
            mirrors = mirrors or own.kind in TOKEN_ORIGINS or own.kind in QUOTING_ORIGINS
    last = (failure,) if failure else ()
    after = (*select_after(metadata), *last)
    return PendingFrame(frame, before=select_before(metadata), after=after, unknown=unknown, mirrors=mirrors)


def select_before(metadata: Iterable[FrameMetadata]) -> tuple[FrameMetadata, ...]:
    """Return the metadata before the text, the starts first."""
    first = [item for item in metadata if not _comes_last(item)]
    return tuple(sorted(first, key=lambda item: not isinstance(item, Start | BlockStart)))


def select_after(metadata: Iterable[FrameMetadata]) -> tuple[FrameMetadata, ...]:
    """Return the metadata after the text."""
    return tuple(item for item in metadata if _comes_last(item))


def _comes_last(item: FrameMetadata) -> bool:
    if isinstance(item, Origin):
        return item.ends
    return isinstance(item, Usage) or (isinstance(item, Seal) and item.on == "text")
