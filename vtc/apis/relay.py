"""The relay: pairs the frames of a reply with what became of their deltas, once for all APIs.

A frame whose deltas came back unchanged leaves as its own bytes; any other is written by the codec. A frame waits as
long as something of its text is undecided, and those after it wait with it. What is decided of it leaves before that,
unless only white space is left: then it waits whole, so that it can leave as it came.

A frame is read and written on copies of the relay's values, which replace them if that went well: `release` gives back
just what has not left.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from vtc.apis import unseen
from vtc.apis.base import Codec
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.apis.waiting import Made, Waiting, shared
from vtc.events import (
    CUT_OFF,
    BlockEnd,
    Call,
    CallDelta,
    Delta,
    End,
    Event,
    Finish,
    Reason,
    ReasoningDelta,
    Rewritten,
    ServerError,
    Text,
    TextDelta,
    ToolCall,
)
from vtc.wire.framing import Frame

MOST_CHOICES = 256
"""Choices of one reply that are told apart: twice as many as any server makes."""
MOST_CALLS = 512
"""Calls of upstream's own in one message: they are dealt with at its end, while all other streams wait."""


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
    def reasoned(self, text: str) -> None:
        """Take reasoning that upstream parted off itself: none is to be looked for in the text."""

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
        """Upstream went on after the end of its message, and that is dropped."""


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
    strict: bool = False
    """True if calls leave in frames of our own only."""


type Fate = Literal["none", "kept", "written"]
"""What became of upstream's own calls: there are none, they leave in their frames, or they are written anew."""


class Relay[P: Pipeline]:
    """Frames in, bytes out, for one reply."""

    def __init__(self, codec: Codec, pipeline: Callable[[], P], *, strict: bool = False) -> None:
        self.codec = codec
        self.strict = strict
        """True if no frame may leave that could not be read."""
        self.error = b""
        """The error that the server sent in place of the rest of the reply, as JSON."""
        self.pipelines: dict[int, P] = {}
        """By choice."""
        self._pipeline = pipeline
        self._choices: dict[int, Choice] = {}
        self._last = Frame(b"", None)  # the last one with deltas
        self.plain: tuple[Frame, Delta] | None = None
        """The last frame and its one delta, if it left as it came and none of the choice waits."""

    def feed(self, frame: Frame) -> list[bytes]:
        """Take a frame; return what may leave now. Raises `Unread` if it is strict, and then nothing has changed."""
        codec = copy.copy(self.codec)
        decoded = unseen.decoded(codec, frame) if self.strict else codec.decode(frame)
        if decoded is None:
            return [frame.raw]
        self.plain = None
        frame, deltas = decoded.frame or frame, decoded.deltas
        last = deltas[-1] if deltas else None
        if isinstance(last, ServerError):
            self.error, deltas = last.data, deltas[:-1]
            last = deltas[-1] if deltas else last
        if isinstance(last, End | ServerError):
            out, after = self._end(codec, complete=isinstance(last, End), breaks=isinstance(last, ServerError))
            out.append(codec.forward(frame))
        elif len(deltas) > 1 and len({delta.choice for delta in deltas}) > 1:
            out, after = self._several(codec, frame, deltas)
        else:
            index = last.choice if last else 0
            choice = self._choices.get(index) or self._choice(index)
            choice, entry, events = _read(choice, Waiting(frame, alone=decoded.alone), deltas)
            after = [choice]
            if not events and not choice.ended and (choice.waiting or entry.text or entry.calls):
                choice.waiting.append(entry)  # as for each frame of a long call; nothing can fail any more
                out = []
            elif choice.waiting or not _is_unchanged(choice, entry, events):
                after[0], out = _settle(codec, choice, entry, events)
            else:
                out = [codec.forward(frame)]
                if last and len(deltas) == 1 and out[0] is frame.raw:
                    self.plain = frame, last
        self.codec = codec
        self._choices.update((choice.index, choice) for choice in after)
        self._last = frame if deltas else self._last
        return out

    def finish(self, *, breaks: bool = False) -> list[bytes]:
        """End the reply: return what the choices that upstream did not finish still have.

        Where it `breaks` off, nothing says to the client that this is the end.
        """
        codec = copy.copy(self.codec)
        out, after = self._end(codec, complete=False, breaks=breaks)
        out = [piece for piece in [*out, codec.close()] if piece]
        self.codec = codec
        self._choices.update((choice.index, choice) for choice in after)
        return out

    def release(self) -> list[bytes]:
        """Give back all that waits, as it came; for after a failure."""
        out: list[bytes] = []
        for choice in self._choices.values():
            while choice.waiting:
                entry = choice.waiting.popleft()
                if entry.written or entry.shared:
                    rest = entry.text[entry.taken if entry.written else 0 :]
                    said = [Text(rest)] if rest else []
                    out += _leave(self.codec, choice.index, replace(entry, said=tuple(said), intact=False))
                else:
                    out.append(self.codec.forward(entry.frame))
        return [piece for piece in [*out, self.codec.close()] if piece]

    def _choice(self, index: int) -> Choice:
        """Begin a choice."""
        if len(self._choices) >= MOST_CHOICES:
            raise ValueError(f"the reply has more than {MOST_CHOICES} choices")
        pipeline = self.pipelines[index] = self._pipeline()
        choice = self._choices[index] = Choice(index, pipeline, deque(), strict=self.strict)
        return choice

    def _several(self, codec: Codec, frame: Frame, deltas: Sequence[Delta]) -> tuple[list[bytes], list[Choice]]:
        """Take a frame of several choices: whole if nothing changes, else by choice."""
        parts = []
        for index in dict.fromkeys(delta.choice for delta in deltas):
            own = [delta for delta in deltas if delta.choice == index]
            choice = self._choices.get(index) or self._choice(index)
            parts.append(_read(choice, Waiting(frame, shared=True), own))
        if all(not choice.waiting and _is_unchanged(choice, entry, events) for choice, entry, events in parts):
            return [codec.forward(frame)], [choice for choice, _, _ in parts]
        out: list[bytes] = []
        after: list[Choice] = []
        for choice, entry, events in parts:
            settled, left = _settle(codec, choice, replace(entry, intact=False), events)
            after.append(settled)
            out += left
        return out, after

    def _end(self, codec: Codec, *, complete: bool, breaks: bool = False) -> tuple[list[bytes], list[Choice]]:
        """End the choices that upstream did not finish; one that was given calls gets a finish reason."""
        out: list[bytes] = []
        after: list[Choice] = []
        for choice in self._choices.values():
            if choice.ended:
                continue
            choice, events, fate = _finish(choice, [], complete=complete)
            entry = Waiting(self._last, alone=True, intact=False, written=True)
            if (choice.lifted or fate == "written") and not breaks:
                entry = replace(entry, own=(Finish(_reason("stop", choice, fate), choice.index),))
            settled, left = _settle(codec, choice, entry, events)
            after.append(settled)
            out += left
        return out, after


# Deltas -> events


def _read(choice: Choice, entry: Waiting, deltas: Iterable[Delta]) -> tuple[Choice, Waiting, Made]:
    """Put the deltas that a frame has for one choice through its pipeline."""
    pipeline = choice.pipeline
    events: Made = []
    calls: list[CallDelta] = []
    own: list[CallDelta | Finish] = []
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
                own.append(delta)
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
                pipeline.reasoned(delta.text)
            case CallDelta():
                if pipeline.structured and not choice.native:
                    choice = replace(choice, native=True)
                    events += pipeline.release()
                if pipeline.takes_calls:
                    calls.append(delta)
                else:
                    own.append(delta)
            case BlockEnd():
                choice = replace(choice, paused=True)
            case Finish(reason=reason):
                lifted = Call in map(type, events)
                choice, made, fate = _finish(choice, calls, complete=reason not in CUT_OFF, lifted=lifted)
                told = _reason(reason, choice, fate)
                events += made
                own.append(delta if told == reason else replace(delta, reason=told))
                intact = intact and told == reason and not (calls and fate == "written") and not choice.strict
                calls = [] if fate == "written" else calls
    if not choice.lifted and Call in map(type, events):
        choice = replace(choice, lifted=True)
    return choice, replace(entry, text=text, own=tuple(own), calls=tuple(calls), intact=intact), events


def _finish(
    choice: Choice, calls: Sequence[CallDelta], *, complete: bool, lifted: bool = False
) -> tuple[Choice, Made, Fate]:
    """End a choice; upstream's own calls that are clean, and that no stage changed, leave in their frames.

    Where no frame may leave that was not read, calls are written anew: what else a frame of one says may be another.
    """
    pieces = [*[piece for entry in choice.waiting for piece in entry.calls], *calls]
    accumulated = ToolCallAccumulator(pieces)
    gathered = accumulated.calls()
    if len(gathered) > MOST_CALLS and choice.pipeline.takes_calls:
        raise ValueError(f"the reply has more than {MOST_CALLS} calls")
    made: Made = [*choice.pipeline.finish(complete=complete, calls=gathered)]
    choice = replace(choice, ended=True, lifted=choice.lifted or lifted)
    if not gathered:
        return replace(choice, lifted=choice.lifted or Call in map(type, made)), made, "none"
    left = [event.call for event in made if isinstance(event, Call)]
    rewritten = any(isinstance(event, Rewritten) for event in made)
    if accumulated.clean and not rewritten and not choice.strict and _is_same(left, gathered):
        return choice, [event for event in made if not isinstance(event, Call)], "kept"
    waiting = deque(map(_without_calls, choice.waiting))
    return replace(choice, waiting=waiting, lifted=choice.lifted or Call in map(type, made)), made, "written"


def _is_same(left: Sequence[ToolCall], gathered: Sequence[ToolCall]) -> bool:
    """True if calls leave as upstream made them; an id for one that came without makes no difference."""
    said = [(call.name, call.arguments, call.id) for call in left]
    return len(left) == len(gathered) and all(
        one == (own.name, own.arguments, own.id or one[2]) for one, own in zip(said, gathered, strict=True)
    )


def _without_calls(entry: Waiting) -> Waiting:
    return replace(entry, calls=(), intact=False) if entry.calls else entry


def _reason(reason: Reason, choice: Choice, fate: Fate) -> Reason:
    """Tell the reason that goes with the calls that the client is given."""
    if choice.lifted or fate == "kept":
        return reason if reason in CUT_OFF or reason == "other" else "tool_calls"
    return "stop" if reason == "tool_calls" and (fate == "written" or not choice.native) else reason


# Events -> frames


def _is_unchanged(choice: Choice, entry: Waiting, events: Made) -> bool:
    """True if a frame may leave as it came, given that none waits before it."""
    if not entry.intact or (entry.calls and not choice.ended):
        return False
    left = len(entry.text)
    for event in events:
        if isinstance(event, Text):
            left -= len(event.raw)
        elif not isinstance(event, BlockEnd):
            return False
    return not left


def _settle(codec: Codec, choice: Choice, entry: Waiting, events: Made) -> tuple[Choice, list[bytes]]:
    """Give the frames that wait, and `entry`, what became of their text; return what leaves of them."""
    shares = shared([*choice.waiting, entry], events)
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
            out += _leave(codec, choice.index, replace(here, own=(), intact=False))
            waiting[0] = replace(here, text=rest, taken=0, said=(), intact=False, written=True)
    return replace(choice, waiting=waiting), out


def _leave(codec: Codec, choice: int, entry: Waiting) -> list[bytes]:
    """Write a frame, or a part of it; as it came if nothing of it changed."""
    if entry.intact and not entry.written and not entry.shared:
        return [codec.forward(entry.frame)]
    values = codec.write(entry.frame, choice, [*entry.said, *entry.calls, *entry.own], first=not entry.written)
    first = not entry.written
    return [codec.framing.write(value, entry.frame, first=first and place == 0) for place, value in enumerate(values)]
