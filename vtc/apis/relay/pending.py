"""Frames that wait, and how much of them is decided once their text was read.

A frame waits as long as something of its text is undecided, and those after it wait with it. What is decided of it
leaves before, unless only white space and back-ticks are left: then it waits whole, so that it can leave as it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from vtc.apis.contract import ReplyEvent
from vtc.events import (
    Beside,
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    CallPiece,
    Event,
    Failure,
    Origin,
    Reasoning,
    RefusalDelta,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.wire.framing import Frame

type Read = list[Event | BlockEnd | CallDelta]
"""The events that text became; a `BlockEnd` stands where one block of it was ended and the next begins, and a piece of
a call of upstream's where that leaves as it came."""


class PendingFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame, or one choice's part of it, that has not left."""

    frame: Frame
    text: str = ""
    """The text of its deltas that has not left."""
    refusal: int = 0
    """Characters at the end of the text that are a refusal, where the server's API keeps that apart."""
    decided: int = 0
    """Characters of the text that are decided."""
    before: tuple[ReplyEvent, ...] = ()
    """What it says before its text: a start, reasoning, what only its API knows."""
    events: tuple[ReplyEvent, ...] = ()
    """What its text became, as far as that is decided."""
    calls: tuple[CallDelta, ...] = ()
    """Pieces of upstream's calls that are decided at the end of the choice."""
    after: tuple[ReplyEvent, ...] = ()
    """What it says after its text: pieces of calls that pass, the end of a block or of the choice, the usage."""
    intact: bool = True
    """True as long as it may leave as it came: nothing of it was changed, and no part of it has to leave alone."""
    unknown: bool = False
    """True if it holds something that the decoder does not know to be harmless."""
    odd: bool = False
    """True if clients may read more in it than it says, or fail at it: it leaves written anew."""
    shared: bool = False
    """True if the frame holds other choices, too."""
    begun: bool = False
    """True once a part of it has left."""

    def as_came(self, start: int = 0) -> list[ReplyEvent]:
        """Return its text from a place on, as it came."""
        return _parted(self, start, len(self.text))


def pending(frame: Frame, metadata: Sequence[Beside], failure: Failure | None = None) -> PendingFrame:
    """Make the pending frame of one that says more than its text."""
    origins = [item if isinstance(item, Origin) else getattr(item, "own", None) for item in (*metadata, failure)]
    unknown = any(own is not None and not own.harmless for own in origins)
    last = (failure,) if failure else ()
    return PendingFrame(frame, before=before(metadata), after=(*after(metadata), *last), unknown=unknown)


def before(metadata: Iterable[Beside]) -> tuple[Beside, ...]:
    """Return what is said before the text, the starts first."""
    first = [item for item in metadata if not _comes_last(item)]
    return tuple(sorted(first, key=lambda item: not isinstance(item, Start | BlockStart)))


def after(metadata: Iterable[Beside]) -> tuple[Beside, ...]:
    """Return what is said after the text."""
    return tuple(item for item in metadata if _comes_last(item))


def _comes_last(item: Beside) -> bool:
    if isinstance(item, Origin):
        return item.ends
    return isinstance(item, Usage) or (isinstance(item, Seal) and item.on == "text")


type Left = tuple[PendingFrame, list[ReplyEvent]]
"""A frame that leaves, or a part of one, and all that it says."""


def settle(frames: Sequence[PendingFrame], events: Read, *, ended: bool) -> tuple[list[Left], deque[PendingFrame]]:
    """Give frames, in their order, what became of their text; return what leaves of them, and those that wait.

    `ended` says that the choice is: then the pieces of its calls that waited leave, too.
    """
    if len(frames) == len(events) == 1:
        first, event = frames[0], events[0]
        if type(event) is Text and event.raw == first.text and not (first.calls or first.refusal):
            return [(first, [*first.before, event, *first.after])], deque()  # nothing waits or changes, as mostly
    shares = _shares(frames, events)
    leave: list[Left] = []
    for share in shares:
        if share.decided < len(share.text) or (share.calls and not ended):
            break
        middle = _by_call(share) if share.calls and share.intact else [*share.events, *share.calls]
        leave.append((share, [*share.before, *middle, *share.after]))
    wait = deque(shares[len(leave) :])
    if wait and wait[0].events and not wait[0].calls:
        first = wait[0]
        rest = first.text[first.decided :]
        if not (first.intact and rest.replace("`", " ").isspace()):
            leave.append((replace(first, after=(), intact=False), [*first.before, *first.events]))
            wait[0] = replace(first, before=(), text=rest, decided=0, events=(), intact=False, begun=True)
    return leave, wait


def _by_call(frame: PendingFrame) -> list[ReplyEvent]:
    """Return the text of a frame that leaves as it came, and the pieces of calls in the order of these."""
    text = [event for event in frame.events if not isinstance(event, CallDelta)]
    pieces = [piece for piece in (*frame.events, *frame.calls) if isinstance(piece, CallDelta)]
    return [*text, *sorted(pieces, key=lambda piece: piece.index or 0)]


def _shares(frames: Sequence[PendingFrame], events: Read) -> list[PendingFrame]:
    """Give each frame its share of the events, by their characters."""
    shares: list[PendingFrame] = []
    rest = iter(frames)
    here, last = next(rest), frames[-1]
    decided, share, intact = here.decided, [*here.events], here.intact
    pieces: list[ReplyEvent] = []  # of calls, which stand in the last frame, after its text
    for event in events:
        if isinstance(event, CallDelta):
            pieces.append(event)
            continue
        left = size = 0 if isinstance(event, BlockEnd) else len(event.raw)
        kind = type(event) if isinstance(event, Text | Reasoning) else None
        changes = size > 0 and kind is not Text
        intact = intact and not changes
        while True:
            end = min(decided + left, len(here.text))
            if end > decided and kind:
                if here.refusal and kind is Text:
                    share += _parted(here, decided, end)
                elif (
                    intact and share and isinstance(text := share[-1], Text)
                ):  # nothing stood between: they leave as one
                    share[-1] = Text(text.raw + here.text[decided:end])
                else:
                    share.append(kind(here.text[decided:end]))
            left -= end - decided
            decided = end
            # An event that stands for no characters belongs after all that are decided.
            if not left and (size or decided < len(here.text) or here is last):
                break
            shares.append(replace(here, decided=decided, events=tuple(share), intact=intact))
            here = next(rest)
            decided, share, intact = here.decided, [*here.events], here.intact and not changes
        if isinstance(event, Call | Rewritten):
            if here is last and not event.raw:  # it was decided at the end, after those that left in pieces
                share, pieces = [*share, *pieces], []
            intact = False
            refuses = here.refusal and decided + (not size) > len(here.text) - here.refusal
            share.append(RefusalDelta(event.text) if refuses and isinstance(event, Rewritten) else event)
        elif isinstance(event, CallPiece):
            intact = False
            if event.name or event.arguments:
                share.append(CallDelta(event.number, event.id, event.name, event.arguments))
    shares += [replace(here, decided=decided, events=tuple(share), intact=intact), *rest]
    if pieces:
        shares[-1] = replace(shares[-1], events=(*shares[-1].events, *pieces))
    return shares


def _parted(frame: PendingFrame, start: int, end: int) -> list[ReplyEvent]:
    """Return a part of a frame's text, the refusal at its end apart."""
    begun = max(start, min(end, len(frame.text) - frame.refusal))
    text, refusal = frame.text[start:begun], frame.text[begun:end]
    return [*([Text(text)] if text else []), *([RefusalDelta(refusal)] if refusal else [])]
