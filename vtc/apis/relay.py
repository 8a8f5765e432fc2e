"""The relay: pairs the frames of a reply with what became of their deltas, once for all APIs.

    frame -> codec.decode -> deltas -> the choice's pipeline -> events -> the frames that these belong to

A frame whose deltas came back unchanged leaves as its own bytes; any other is written by the codec. A frame waits as
long as something of its text is undecided, and those after it wait with it. What is decided of it leaves before that,
unless only white space is left: then it waits whole, so that it can leave as it came.

A frame is read and written on copies of the relay's values, which replace them if that went well. So after a failure
`release` gives back just what has not left.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Codec, Said
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    Delta,
    End,
    Event,
    Finish,
    Reason,
    Reasoning,
    ReasoningDelta,
    Rewritten,
    Text,
    TextDelta,
    ToolCall,
)
from vtc.wire.framing import Frame


class Pipeline(Protocol):
    """One choice of a reply: text in, events out. The `raw` of all events, joined, is that text."""

    @property
    def structured(self) -> bool:
        """True if the client reads calls in their structured form."""
        ...

    @property
    def takes_calls(self) -> bool:
        """True if upstream's own calls go through `finish`; if not, they pass."""
        ...

    @property
    def guarded(self) -> bool:
        """True if no call may reach the client that a policy has not seen."""
        ...

    def feed(self, text: str) -> list[Event]: ...

    def reasoned(self) -> None:
        """Upstream parted the reasoning off itself: none is to be looked for in the text."""
        ...

    def pause(self) -> list[Event]:
        """End one block of text; the message goes on with another."""
        ...

    def release(self) -> list[Event]:
        """Upstream makes calls itself: give back what is held; text that follows is text."""
        ...

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        """End the message; `calls` are those that upstream made itself."""
        ...

    def late(self) -> None:
        """Upstream went on after the end of its message, and that is not passed on."""
        ...


class Waiting(msgspec.Struct, frozen=True, gc=False):
    """A frame, or one choice's part of it, that has not left."""

    frame: Frame
    text: str = ""
    """The text of its deltas that has not left."""
    taken: int = 0
    """Characters of the text that are decided."""
    said: tuple[Said, ...] = ()
    """What was decided."""
    calls: tuple[CallDelta, ...] = ()
    """Pieces of upstream's calls that are decided at the end of the choice."""
    alone: bool = False
    """True if the frame says nothing but its deltas."""
    intact: bool = True
    """True as long as it may leave as it came."""
    shared: bool = False
    """True if the frame holds other choices, too."""
    written: bool = False
    """True once a part of it has left."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One choice of the reply; replaced with every frame."""

    index: int
    pipeline: Pipeline
    waiting: deque[Waiting]
    native: bool = False
    """True once upstream makes calls itself."""
    paused: bool = False
    """True after the end of a block, until the message goes on."""
    lifted: bool = False
    """True once the client was given calls that it would not have been given otherwise."""
    ended: bool = False


OWN = CallDelta | BlockEnd | Finish  # deltas that stand for no text
type Outcome = list[Event | CallDelta | BlockEnd | Finish]
"""What the deltas of a frame, and text that waited, became."""


class Relay[P: Pipeline]:
    """Frames in, bytes out, for one reply."""

    def __init__(self, codec: Codec, pipeline: Callable[[], P]) -> None:
        self.codec = codec
        self.pipelines: dict[int, P] = {}
        """By choice."""
        self._pipeline = pipeline
        self._choices: dict[int, Choice] = {}
        self._last = Frame(b"", None)  # the last one with deltas
        self.plain: tuple[Frame, Delta] | None = None
        """The last frame and its one delta, if it left as it came and none of the choice waits."""

    def feed(self, frame: Frame) -> list[bytes]:
        """Take a frame; return what may leave now."""
        codec = copy.copy(self.codec)
        decoded = codec.decode(frame)
        if decoded is None:
            return [frame.raw]
        self.plain = None
        frame, deltas = decoded.frame or frame, decoded.deltas
        last = deltas[-1] if deltas else None
        if isinstance(last, End):
            out, after = self._end(codec, complete=True)
            out.append(codec.forward(frame))
        elif len(deltas) > 1 and len({delta.choice for delta in deltas}) > 1:
            out, after = self._several(codec, frame, deltas)
        else:
            choice = self._choice(last.choice if last else 0)
            choice, entry, events = _read(choice, Waiting(frame, alone=decoded.alone), deltas)
            after = [choice]
            if not events and (choice.waiting or entry.text or entry.calls):
                choice.waiting.append(entry)  # as for each frame of a long call; nothing can fail any more
                out = []
            elif choice.waiting or not _is_unchanged(choice, entry, events):
                after[0], out = _settle(codec, choice, entry, events)
            else:
                out = [codec.forward(frame)]
                if last and len(deltas) == 1 and out[0] is frame.raw:
                    self.plain = frame, last
        self._keep(codec, after)
        if deltas:
            self._last = frame
        return out

    def finish(self) -> list[bytes]:
        """End the reply: return what the choices that upstream did not finish still have."""
        codec = copy.copy(self.codec)
        out, after = self._end(codec, complete=False)
        out = [piece for piece in [*out, codec.close()] if piece]
        self._keep(codec, after)
        return out

    def release(self) -> list[bytes]:
        """Give back all that waits, as it came; for after a failure."""
        out: list[bytes] = []
        for choice in self._choices.values():
            while choice.waiting:
                entry = choice.waiting.popleft()
                if entry.written or entry.shared:
                    rest = entry.text[entry.taken if entry.written else 0 :]
                    said = [*([Text(rest)] if rest else ()), *entry.calls]
                    out += _leave(self.codec, choice.index, replace(entry, said=said, intact=False))
                else:
                    out.append(self.codec.forward(entry.frame))
        return [piece for piece in [*out, self.codec.close()] if piece]

    def _choice(self, index: int) -> Choice:
        if index not in self._choices:
            pipeline = self.pipelines[index] = self._pipeline()
            self._choices[index] = Choice(index, pipeline, deque())
        return self._choices[index]

    def _keep(self, codec: Codec, choices: Iterable[Choice]) -> None:
        self.codec = codec
        for choice in choices:
            self._choices[choice.index] = choice

    def _several(self, codec: Codec, frame: Frame, deltas: Sequence[Delta]) -> tuple[list[bytes], list[Choice]]:
        """Take a frame of several choices: whole if nothing changes, else by choice."""
        parts = []
        for index in dict.fromkeys(delta.choice for delta in deltas):
            own = [delta for delta in deltas if delta.choice == index]
            parts.append(_read(self._choice(index), Waiting(frame, shared=True), own))
        if all(not choice.waiting and _is_unchanged(choice, entry, events) for choice, entry, events in parts):
            return [codec.forward(frame)], [choice for choice, _, _ in parts]
        out: list[bytes] = []
        after: list[Choice] = []
        for choice, entry, events in parts:
            settled, left = _settle(codec, choice, replace(entry, intact=False), events)
            after.append(settled)
            out += left
        return out, after

    def _end(self, codec: Codec, *, complete: bool) -> tuple[list[bytes], list[Choice]]:
        """End the choices that upstream did not finish; one that was given calls gets a finish reason."""
        out: list[bytes] = []
        after: list[Choice] = []
        for choice in self._choices.values():
            if choice.ended:
                continue
            choice, events, changed = _finish(choice, [], complete=complete)
            if choice.lifted or changed:
                events.append(Finish(_reason("stop", choice, changed=changed), choice.index))
            settled, left = _settle(codec, choice, Waiting(self._last, alone=True, intact=False, written=True), events)
            after.append(settled)
            out += left
        return out, after


# Deltas -> events


def _read(choice: Choice, entry: Waiting, deltas: Iterable[Delta]) -> tuple[Choice, Waiting, Outcome]:
    """Put the deltas that a frame has for one choice through its pipeline."""
    pipeline = choice.pipeline
    events: Outcome = []
    calls: list[CallDelta] = []
    text, intact = "", True
    for delta in deltas:
        if choice.ended:
            if pipeline.guarded and not (pipeline.structured and isinstance(delta, TextDelta)):
                pipeline.late()
                intact = False
            elif isinstance(delta, TextDelta):
                text += delta.text
                events += [Text(delta.text)] if delta.text else []
            elif isinstance(delta, CallDelta | Finish):
                events.append(delta)
            continue
        if choice.paused and not isinstance(delta, BlockEnd | Finish):
            choice = replace(choice, paused=False)
            events += [*pipeline.pause(), BlockEnd(choice.index)]
        match delta:
            case TextDelta():
                text += delta.text
                if delta.text:
                    events += pipeline.feed(delta.text)
            case ReasoningDelta():
                pipeline.reasoned()
            case CallDelta():
                if pipeline.structured and not choice.native:
                    choice = replace(choice, native=True)
                    events += pipeline.release()
                if pipeline.takes_calls:
                    calls.append(delta)
                else:
                    events.append(delta)
            case BlockEnd():
                choice = replace(choice, paused=True)
            case Finish(reason=reason):
                choice, made, changed = _finish(choice, calls, complete=reason != "length", lifted=_has_calls(events))
                told = _reason(reason, choice, changed=changed)
                events += [*made, delta if told == reason else replace(delta, reason=told)]
                intact = intact and told == reason and not (changed and calls)
                calls = [] if changed else calls
    if not choice.lifted and _has_calls(events):
        choice = replace(choice, lifted=True)
    return choice, replace(entry, text=text, calls=tuple(calls), intact=intact), events


def _finish(
    choice: Choice, calls: Sequence[CallDelta], *, complete: bool, lifted: bool = False
) -> tuple[Choice, Outcome, bool]:
    """End a choice. The last value is True if upstream's own calls are not to leave in the frames they came in."""
    pieces = [*[piece for entry in choice.waiting for piece in entry.calls], *calls]
    gathered = ToolCallAccumulator(pieces).numbered() if pieces else []
    made: Outcome = [*choice.pipeline.finish(complete=complete, calls=gathered)]
    changed = False
    if gathered:
        left = [event.call for event in made if isinstance(event, Call)]
        changed = left != gathered or any(isinstance(event, Rewritten) for event in made)
        if changed:
            choice = replace(choice, waiting=deque(map(_without_calls, choice.waiting)))
        else:
            made = [event for event in made if not isinstance(event, Call)]
    return replace(choice, ended=True, lifted=choice.lifted or lifted or _has_calls(made)), made, changed


def _without_calls(entry: Waiting) -> Waiting:
    return replace(entry, calls=(), intact=False) if entry.calls else entry


def _has_calls(events: Outcome) -> bool:
    return Call in [type(event) for event in events]


def _reason(reason: Reason, choice: Choice, *, changed: bool) -> Reason:
    """Tell the reason that goes with the calls that the client was given."""
    if choice.lifted:
        return reason if reason in ("length", "other") else "tool_calls"
    return "stop" if changed and reason == "tool_calls" else reason


# Events -> frames


def _is_unchanged(choice: Choice, entry: Waiting, events: Outcome) -> bool:
    """True if a frame may leave as it came, given that none waits before it."""
    if not entry.intact or (entry.calls and not choice.ended):
        return False
    left = len(entry.text)
    for event in events:
        if isinstance(event, Text):
            left -= len(event.raw)
        elif not isinstance(event, OWN):
            return False
    return not left


def _settle(codec: Codec, choice: Choice, entry: Waiting, events: Outcome) -> tuple[Choice, list[bytes]]:
    """Give the frames that wait, and `entry`, what became of their text; return what leaves of them."""
    shares = _shared([*choice.waiting, entry], events)
    out: list[bytes] = []
    done = 0
    for here in shares:
        if here.taken < len(here.text) or (here.calls and not choice.ended):
            break
        out += _leave(codec, choice.index, here)
        done += 1
    waiting = deque(shares[done:])
    # The end of a block alone is no reason for a part of the next block's first frame to leave.
    if waiting and not waiting[0].calls and any(not isinstance(one, BlockEnd) for one in waiting[0].said):
        here = waiting[0]
        rest = here.text[here.taken :]
        if not (here.intact and rest.isspace() and not here.written):
            out += _leave(codec, choice.index, replace(here, intact=False))
            waiting[0] = replace(here, text=rest, taken=0, said=(), intact=False, written=True)
    return replace(choice, waiting=waiting), out


def _shared(waiting: Sequence[Waiting], events: Outcome) -> list[Waiting]:
    """Give each frame its share of the events, by their characters; a frame that says nothing any more is left out."""
    shares: list[Waiting] = []
    frames = iter(waiting)
    here, last = next(frames), waiting[-1]
    taken, said, intact = here.taken, [*here.said], here.intact
    for event in events:
        left = 0 if isinstance(event, OWN) else len(event.raw)
        piece = type(event) if isinstance(event, Text | Reasoning) else None
        intact = intact and not (left and piece is not Text)
        # An event that stands for no characters belongs after all that are decided.
        while left > (room := len(here.text) - taken) or not (left or room or here is last):
            if room and piece:
                said.append(piece(here.text[taken:]))
            left -= room
            if said or intact or here.calls or not here.alone:
                shares.append(replace(here, taken=len(here.text), said=tuple(said), intact=intact))
            here = next(frames)
            taken, said, intact = here.taken, [*here.said], here.intact and not (left and piece is not Text)
        if left and piece:
            said.append(piece(here.text[taken : taken + left]))
        taken += left
        if isinstance(event, Call | Rewritten):
            intact = False
            said.append(event)
        elif isinstance(event, OWN):
            said.append(event)
    if said or intact or here.calls or not here.alone or taken < len(here.text):
        shares.append(replace(here, taken=taken, said=tuple(said), intact=intact))
    return [*shares, *frames]


def _leave(codec: Codec, choice: int, entry: Waiting) -> list[bytes]:
    """Write a frame, or a part of it; as it came if nothing of it changed."""
    if entry.intact and not entry.written and not entry.shared:
        return [codec.forward(entry.frame)]
    values = codec.write(entry.frame, choice, [*entry.said, *entry.calls], first=not entry.written)
    first = not entry.written
    return [codec.framing.write(value, entry.frame, first=first and place == 0) for place, value in enumerate(values)]
