"""Frames that wait, and the shares that they get of what became of their text."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from vtc.apis.contract import Said
from vtc.events import BlockEnd, Call, CallDelta, CallPiece, Event, Reasoning, Refused, Rewritten, Text
from vtc.wire.framing import Frame

type Made = list[Event | BlockEnd | CallDelta]
"""What text became; a `BlockEnd` stands where one block of it was ended and the next begins, and a piece of a call of
upstream's where that leaves as it came."""


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A frame, or one choice's part of it, that has not left."""

    frame: Frame
    text: str = ""
    """The text of its deltas that has not left."""
    refusal: int = 0
    """Characters at the end of the text that are a refusal, where the server's API keeps that apart."""
    taken: int = 0
    """Characters of the text that are decided."""
    before: tuple[Said, ...] = ()
    """What it says before its text: a start, reasoning, what only its API knows."""
    said: tuple[Said, ...] = ()
    """What was decided of its text."""
    calls: tuple[CallDelta, ...] = ()
    """Pieces of upstream's calls that are decided at the end of the choice."""
    after: tuple[Said, ...] = ()
    """What it says after its text: pieces of calls that pass, the end of a block or of the choice, the usage."""
    intact: bool = True
    """True as long as it may leave as it came."""
    unknown: bool = False
    """True if it holds something that the decoder does not know to be harmless."""
    shared: bool = False
    """True if the frame holds other choices, too."""
    written: bool = False
    """True once a part of it has left."""

    @property
    def all_said(self) -> list[Said]:
        """All that it says now."""
        return [*self.before, *self.said, *self.calls, *self.after]

    def as_came(self, start: int = 0) -> list[Said]:
        """Return its text from a place on, as it came."""
        return _parted(self, start, len(self.text))

    @property
    def says_nothing(self) -> bool:
        """True if it need not leave: all that it said is gone."""
        return not (self.intact or self.before or self.said or self.calls or self.after)


def shared(waiting: Sequence[Waiting], events: Made) -> list[Waiting]:
    """Give each frame its share of the events, by their characters."""
    shares: list[Waiting] = []
    frames = iter(waiting)
    here, last = next(frames), waiting[-1]
    taken, said, intact = here.taken, [*here.said], here.intact
    pieces: list[Said] = []  # of calls, which stand in the last frame, after its text
    for event in events:
        if isinstance(event, CallDelta):
            pieces.append(event)
            continue
        left = 0 if isinstance(event, BlockEnd) else len(event.raw)
        piece = type(event) if isinstance(event, Text | Reasoning) else None
        intact = intact and not (left and piece is not Text)
        # An event that stands for no characters belongs after all that are decided.
        while left > (room := len(here.text) - taken) or not (left or room or here is last):
            if room and piece:
                _say(said, here, piece, taken, len(here.text), joins=intact)
            left -= room
            shares.append(replace(here, taken=len(here.text), said=tuple(said), intact=intact))
            here = next(frames)
            taken, said, intact = here.taken, [*here.said], here.intact and not (left and piece is not Text)
        if left and piece:
            _say(said, here, piece, taken, taken + left, joins=intact)
        taken += left
        if isinstance(event, Call | Rewritten):
            if here is last and not event.raw:  # it was decided at the end, after those that left in pieces
                said, pieces = [*said, *pieces], []
            intact = False
            refuses = here.refusal and taken + (not left) > len(here.text) - here.refusal
            said.append(Refused(event.text) if refuses and isinstance(event, Rewritten) else event)
        elif isinstance(event, CallPiece):
            intact = False
            if event.name or event.arguments:
                said.append(CallDelta(event.number, event.id, event.name, event.arguments))
    shares += [replace(here, taken=taken, said=tuple(said), intact=intact), *frames]
    if pieces:
        shares[-1] = replace(shares[-1], said=(*shares[-1].said, *pieces))
    return shares


def _say(said: list[Said], frame: Waiting, kind: type[Text | Reasoning], start: int, end: int, *, joins: bool) -> None:
    """Add a part of a frame's text. It joins the one before it where nothing stood between: both leave as one."""
    if frame.refusal and kind is Text:
        said += _parted(frame, start, end)
    elif joins and said and isinstance(before := said[-1], Text):
        said[-1] = Text(before.raw + frame.text[start:end])
    else:
        said.append(kind(frame.text[start:end]))


def _parted(frame: Waiting, start: int, end: int) -> list[Said]:
    """Return a part of a frame's text, the refusal at its end apart."""
    begun = max(start, min(end, len(frame.text) - frame.refusal))
    text, refusal = frame.text[start:begun], frame.text[begun:end]
    return [*([Text(text)] if text else []), *([Refused(refusal)] if refusal else [])]
