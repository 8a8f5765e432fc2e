"""The relay: pairs the frames of a reply with what became of their deltas, once for all APIs.

    frame -> decoder (server's API) -> deltas -> reader and stages -> events -> encoder (client's API) -> frames

A frame waits as long as something of its text is undecided, and those after it wait with it. What is decided of it
leaves before, unless only white space is left: then it waits whole, so that it can leave as it came (`leaving.py`).

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

from vtc.apis.base import Decoded, Decoder, Encoder, Said
from vtc.apis.leaving import Leaving
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.apis.waiting import Made, Waiting, shared
from vtc.events import (
    CUT_OFF,
    Beside,
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Delta,
    End,
    Event,
    Failure,
    Finish,
    Origin,
    Reason,
    ReasoningDelta,
    Rewritten,
    Start,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from vtc.json_text import decode
from vtc.wire.framing import Frame

MOST_CHOICES = 256
"""Choices of one reply that are told apart: twice as many as any server makes."""
MOST_CALLS = 512
"""Calls of upstream's own in one message: they are dealt with at its end, while all other streams wait."""


class Unread(ValueError):
    """A frame that is not passed on, where nothing may leave that was not read."""


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

    def piece(self, delta: CallDelta) -> CallDelta | None:
        """Take a piece of a call of upstream's; return what may leave of it now, None if its call waits."""
        ...

    def upstream(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Take calls of upstream's that waited and are whole; the message goes on."""
        ...

    def pause(self) -> list[Event]:
        """End one block of text; the message goes on with another."""
        ...

    def release(self) -> list[Event]:
        """Upstream makes calls itself: give back what is held; text that follows is text."""
        ...

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        """End the calls of upstream's that left as they came; return what is missing of each, by its number."""
        ...

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        """End the message; `calls` are those of upstream's that waited."""
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
    kept: bool = False
    """True once calls of upstream's have left in their frames."""
    stuck: bool = False
    """True once a call that waits was not whole as another one began: all that wait do so until the end."""
    lifted: bool = False
    """True once the client was given calls that it would not have been given otherwise."""
    ended: bool = False
    strict: bool = False
    """True if calls leave in frames of our own only."""


type Fate = Literal["none", "kept", "written"]
"""What became of upstream's own calls: there are none, they leave in their frames, or they are written anew."""


class Relay[P: Pipeline]:
    """Frames in, bytes out, for one reply."""

    def __init__(
        self,
        decoder: Decoder,
        encoder: Encoder,
        pipeline: Callable[[], P],
        *,
        passes: bool = True,
        strict: bool = False,
    ) -> None:
        """`passes` says that both are of one API, `strict` that nothing may leave that was not read."""
        self.decoder = decoder
        self.leaving = Leaving(encoder, passes, strict)
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
        decoder = copy.copy(self.decoder)
        decoded = self._decoded(decoder, frame)
        if decoded is None or decoded.at_once:
            return self._at_once(frame, decoded)
        self.plain = None
        frame, deltas, leaving = decoded.frame or frame, decoded.deltas, self.leaving.copy()
        last = deltas[-1] if deltas else None
        failure = last if isinstance(last, Failure) else None
        if failure:
            self.error, deltas = frame.data or b"", deltas[:-1]
            last = deltas[-1] if deltas else failure
        if isinstance(last, End | Failure):
            out, after = self._end(leaving, complete=isinstance(last, End), breaks=isinstance(last, Failure))
            if isinstance(last, End):
                out += leaving.end(frame)
            else:
                out += _leave(leaving, last.choice, _waiting(frame, decoded.beside, failure))
        elif len(choices := {one.choice for one in (*deltas, *decoded.beside)}) > 1:
            out, after = self._several(leaving, frame, decoded, sorted(choices))
        else:
            index = min(choices, default=0)
            choice = self._choices.get(index) or self._choice(index)
            waiting = choice.waiting
            choice, entry, events = _read(choice, _waiting(frame, decoded.beside), deltas)
            after = [choice]
            is_undecided = not (events or choice.ended) and choice.waiting is waiting
            if is_undecided and (choice.waiting or entry.text or entry.calls):
                choice.waiting.append(entry)  # as for each frame of a long call; nothing can fail any more
                out = []
            elif choice.waiting or not _is_unchanged(choice, entry, events) or not leaving.may_pass(entry):
                after[0], out = _settle(leaving, choice, entry, events)
            else:
                said = [Text(entry.text)] if entry.text else []
                out = leaving.whole(frame, [(index, [*entry.before, *said, *entry.after])])
                if last and len(deltas) == 1 and out and out[0] is frame.raw:
                    self.plain = frame, last
        self.decoder, self.leaving = decoder, leaving
        self._choices.update((choice.index, choice) for choice in after)
        self._last = frame if deltas else self._last
        return out

    def _decoded(self, decoder: Decoder, frame: Frame) -> Decoded | None:
        if not self.leaving.strict:
            return decoder.decode(frame)
        try:
            return decoder.decode(frame)
        except Exception as error:
            raise Unread(type(error).__name__) from error

    def _at_once(self, frame: Frame, decoded: Decoded | None) -> list[bytes]:
        """Let a frame leave that tells nothing, or nothing of this API."""
        leaving = self.leaving
        if not leaving.passes:
            made = leaving.encoder.keep_alive()
            return [made] if made else []
        if leaving.strict and not leaving.encoder.framing.shows_all(frame):
            raise Unread("data stand in a comment")
        if leaving.strict and decoded is None and b"{" in (frame.data or b""):
            raise Unread("it is nothing of this API")
        return leaving.at_once(frame) if decoded else [frame.raw]

    def finish(self, *, breaks: bool = False) -> list[bytes]:
        """End the reply: return what the choices that upstream did not finish still have.

        Where it `breaks` off, nothing says to the client that this is the end.
        """
        leaving = self.leaving.copy()
        out, after = self._end(leaving, complete=False, breaks=breaks)
        out += [*([] if breaks else leaving.end()), *leaving.close()]
        self.leaving = leaving
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
                    entry = replace(entry, said=(Text(rest),) if rest else (), intact=False)
                    out += self.leaving.written(entry.all_said, choice.index, entry.frame, first=not entry.written)
                else:
                    said = [*entry.before, Text(entry.text), *entry.calls, *entry.after]
                    out += self.leaving.whole(entry.frame, [(choice.index, said)])
        return [*out, *self.leaving.close()]

    def passed(self, frame: Frame) -> list[bytes]:
        """Let a frame leave after a failure: as it came, unless those before it got other numbers."""
        if self.leaving.in_step:
            return [*self.leaving.close(), frame.raw]
        decoded = self.decoder.decode(frame)
        if decoded is None or decoded.at_once:
            return [frame.raw]
        said: list[Said] = [*_before(decoded.beside), *_as_said(decoded.deltas), *_after(decoded.beside)]
        if decoded.deltas and isinstance(decoded.deltas[-1], End):
            return self.leaving.end(frame)
        return self.leaving.written(said, 0, frame)

    def _choice(self, index: int) -> Choice:
        """Begin a choice."""
        if len(self._choices) >= MOST_CHOICES:
            raise ValueError(f"the reply has more than {MOST_CHOICES} choices")
        pipeline = self.pipelines[index] = self._pipeline()
        choice = self._choices[index] = Choice(index, pipeline, deque(), strict=self.leaving.strict)
        return choice

    def _several(
        self, leaving: Leaving, frame: Frame, decoded: Decoded, choices: Sequence[int]
    ) -> tuple[list[bytes], list[Choice]]:
        """Take a frame of several choices: whole if nothing changes, else by choice."""
        parts = []
        for index in choices:
            deltas = [delta for delta in decoded.deltas if delta.choice == index]
            entry = _waiting(frame, [one for one in decoded.beside if one.choice == index])
            choice = self._choices.get(index) or self._choice(index)
            parts.append(_read(choice, replace(entry, shared=True), deltas))
        if all(
            not choice.waiting and leaving.may_pass(entry) and _is_unchanged(choice, entry, events)
            for choice, entry, events in parts
        ):
            said = [(choice.index, [*entry.before, Text(entry.text), *entry.after]) for choice, entry, _ in parts]
            return leaving.whole(frame, said), [choice for choice, _, _ in parts]
        out: list[bytes] = []
        after: list[Choice] = []
        for choice, entry, events in parts:
            settled, left = _settle(leaving, choice, replace(entry, intact=False), events)
            after.append(settled)
            out += left
        return out, after

    def _end(self, leaving: Leaving, *, complete: bool, breaks: bool = False) -> tuple[list[bytes], list[Choice]]:
        """End the choices that upstream did not finish; one that got calls gets a reason, unless it breaks off."""
        out: list[bytes] = []
        after: list[Choice] = []
        for choice in self._choices.values():
            if choice.ended:
                continue
            choice, events, pieces, fate = _finish(choice, [], complete=complete)
            entry = Waiting(self._last, after=(*pieces,), intact=False, written=True)
            if (choice.lifted or fate == "written") and not breaks:
                entry = replace(entry, after=(*pieces, Finish(_reason("stop", choice, fate), choice.index)))
            settled, left = _settle(leaving, choice, entry, events)
            after.append(settled)
            out += left
        return out, after


def _waiting(frame: Frame, beside: Iterable[Beside], failure: Failure | None = None) -> Waiting:
    origins = [one if isinstance(one, Origin) else getattr(one, "own", None) for one in (*beside, failure)]
    unknown = any(own is not None and not own.harmless for own in origins)
    last = (failure,) if failure else ()
    return Waiting(frame, before=_before(beside), after=(*_after(beside), *last), unknown=unknown)


def _before(beside: Iterable[Beside]) -> tuple[Beside, ...]:
    """What is told before the text, the starts first."""
    found = [one for one in beside if not _comes_last(one)]
    return tuple(sorted(found, key=lambda one: not isinstance(one, Start | BlockStart)))


def _after(beside: Iterable[Beside]) -> tuple[Beside, ...]:
    return tuple(one for one in beside if _comes_last(one))


def _comes_last(one: Beside) -> bool:
    return isinstance(one, Usage) or (isinstance(one, Origin) and one.ends)


def _as_said(deltas: Iterable[Delta]) -> list[Said]:
    """Turn deltas into what is said where no stage looks at them."""
    said: list[Said] = []
    for delta in deltas:
        match delta:
            case TextDelta(text):
                said.append(Text(text))
            case ReasoningDelta() | CallDelta() | BlockEnd() | Finish() | Failure():
                said.append(delta)
    return said


# Deltas -> events


def _read(choice: Choice, entry: Waiting, deltas: Iterable[Delta]) -> tuple[Choice, Waiting, Made]:
    """Put the deltas that a frame has for one choice through its pipeline."""
    pipeline = choice.pipeline
    events: Made = []
    calls: list[CallDelta] = []
    thoughts: list[Said] = []
    after: list[Said] = []
    text, intact = "", True
    for delta in deltas:
        if choice.ended:
            if pipeline.guarded and not (pipeline.structured and isinstance(delta, TextDelta)):
                pipeline.late()
                intact = False
            elif isinstance(delta, TextDelta):
                text += delta.text
                events += [Text(delta.text)] if delta.text else []
            else:
                after += _as_said([delta])
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
                thoughts.append(delta)
            case CallDelta():
                if pipeline.structured and not choice.native:
                    choice = replace(choice, native=True)
                    events += pipeline.release()
                if delta.name:
                    choice, made, calls, kept = _ended_calls(choice, calls, delta)
                    events += made
                    after += kept
                waits = choice.stuck and bool(delta.name)  # calls keep their order
                left = delta if not pipeline.takes_calls else None if waits else pipeline.piece(delta)
                if left is None:
                    calls.append(delta)
                    continue
                choice = replace(choice, kept=True)
                if any(one.calls for one in choice.waiting):
                    choice = replace(choice, waiting=deque(_begun(one, delta) for one in choice.waiting))
                after += [one for one in calls if one.index == delta.index]
                calls = [one for one in calls if one.index != delta.index]
                after += [left] if left.name or left.arguments or left is delta else []
                intact = intact and left is delta
            case BlockEnd():
                choice = replace(choice, paused=True)
                after.append(delta)
            case Finish(reason=reason):
                lifted = Call in map(type, events)
                choice, made, pieces, fate = _finish(choice, calls, complete=reason not in CUT_OFF, lifted=lifted)
                told = _reason(reason, choice, fate)
                events += made
                after += pieces
                intact = intact and not pieces
                after.append(delta if told == reason else replace(delta, reason=told))
                intact = intact and told == reason and not (calls and fate == "written") and not choice.strict
                calls = [] if fate == "written" else calls
    if not choice.lifted and Call in map(type, events):
        choice = replace(choice, lifted=True)
    before = entry.before
    if thoughts:
        starts = sum(isinstance(one, Start | BlockStart) for one in before)
        before = (*before[:starts], *thoughts, *before[starts:])
    entry = replace(entry, before=before, text=text, calls=(*calls,), after=(*after, *entry.after), intact=intact)
    return choice, entry, events


def _finish(
    choice: Choice, calls: Sequence[CallDelta], *, complete: bool, lifted: bool = False
) -> tuple[Choice, Made, list[CallDelta], Fate]:
    """End a choice; return also the last pieces of calls that have left."""
    ended = choice.pipeline.end_calls(complete=complete)
    if any(one.calls for one in choice.waiting):
        numbers = frozenset(ended)
        choice = replace(choice, waiting=deque(_with_end(one, numbers, ended) for one in choice.waiting))
    pieces = [piece for piece in ended.values() if piece]
    gathered, clean = _gathered(choice, calls)
    made = choice.pipeline.finish(complete=complete, calls=gathered)
    choice = replace(choice, ended=True, lifted=choice.lifted or lifted)
    choice, left, fate = _decided(choice, gathered, made, clean=clean)
    return choice, left, pieces, fate


def _with_end(
    entry: Waiting, numbers: frozenset[int | None], missing_of: dict[int | None, CallDelta | None]
) -> Waiting:
    """Let the last pieces of these calls leave, which waited for the end of the message, with what is missing."""
    held = [one for one in entry.calls if one.last and not one.name and one.index in numbers]
    if not held:
        return entry
    missing = [missing_of.pop(one.index, None) for one in held]
    last = [piece or one for one, piece in zip(held, missing, strict=True)]
    calls = tuple(one for one in entry.calls if one not in held)
    return replace(entry, calls=calls, after=(*last, *entry.after), intact=entry.intact and not any(missing))


def _ended_calls(
    choice: Choice, calls: list[CallDelta], begins: CallDelta
) -> tuple[Choice, Made, list[CallDelta], list[CallDelta]]:
    """Deal with the calls that waited for their end, as another one `begins`.

    Of `calls`, the pieces in the frame that is read, return those that still wait, and those that leave with it.
    """
    pieces = [*(piece for entry in choice.waiting for piece in entry.calls), *calls]
    if not pieces or choice.stuck or pieces[0].index in (None, begins.index):
        return choice, [], calls, []
    said: dict[int | None, str] = {}
    for piece in pieces:
        said[piece.index] = said.get(piece.index, "") + piece.arguments
    if {None, begins.index} & said.keys() or not all(map(_is_object, said.values())):
        return replace(choice, stuck=True), [], calls, []
    gathered, clean = _gathered(choice, calls)
    choice, made, fate = _decided(choice, gathered, choice.pipeline.upstream(gathered), clean=clean)
    if fate == "kept":
        waiting = deque(replace(one, calls=(), after=(*one.calls, *one.after)) for one in choice.waiting)
        return replace(choice, waiting=waiting, kept=True), made, [], calls
    return choice, made, [], []


def _gathered(choice: Choice, calls: Sequence[CallDelta]) -> tuple[list[ToolCall], bool]:
    """Put together the calls that wait; also tell whether their pieces are clean."""
    accumulated = ToolCallAccumulator([*[piece for entry in choice.waiting for piece in entry.calls], *calls])
    gathered = accumulated.calls()
    if len(gathered) > MOST_CALLS and choice.pipeline.takes_calls:
        raise ValueError(f"the reply has more than {MOST_CALLS} calls")
    return gathered, accumulated.clean


def _decided(
    choice: Choice, gathered: Sequence[ToolCall], made: list[Event], *, clean: bool
) -> tuple[Choice, Made, Fate]:
    """Decide how upstream's own calls leave: those that are clean, and that no stage changed, in their frames.

    Where no frame may leave that was not read, calls are written anew: what else a frame of one says may be another.
    """
    if not gathered:
        return replace(choice, lifted=choice.lifted or Call in map(type, made)), [*made], "none"
    left = [event.call for event in made if isinstance(event, Call)]
    rewritten = any(isinstance(event, Rewritten) for event in made)
    if clean and not rewritten and not choice.strict and _is_same(left, gathered):
        return choice, [event for event in made if not isinstance(event, Call)], "kept"
    waiting = deque(map(_without_calls, choice.waiting))
    return replace(choice, waiting=waiting, lifted=choice.lifted or Call in map(type, made)), [*made], "written"


def _is_object(arguments: str) -> bool:
    """True if the arguments of a call are whole."""
    try:
        return isinstance(decode(arguments.encode()), dict)
    except ValueError:
        return False


def _begun(entry: Waiting, piece: CallDelta) -> Waiting:
    """Let the pieces of a call leave that waited for its beginning."""
    if not entry.calls:
        return entry
    begun = tuple(one for one in entry.calls if one.index == piece.index)
    rest = tuple(one for one in entry.calls if one.index != piece.index)
    return replace(entry, calls=rest, after=(*begun, *entry.after))


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
    if choice.lifted or choice.kept or fate == "kept":
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


def _settle(leaving: Leaving, choice: Choice, entry: Waiting, events: Made) -> tuple[Choice, list[bytes]]:
    """Give the frames that wait, and `entry`, what became of their text; return what leaves of them."""
    shares = shared([*choice.waiting, entry], events)
    out: list[bytes] = []
    done = 0
    for here in shares:
        if here.taken < len(here.text) or (here.calls and not choice.ended):
            break
        out += _leave(leaving, choice.index, here)
        done += 1
    waiting = deque(shares[done:])
    if waiting and not waiting[0].calls and waiting[0].said:
        here = waiting[0]
        rest = here.text[here.taken :]
        if not (here.intact and rest.isspace() and not here.written):
            out += _leave(leaving, choice.index, replace(here, after=(), intact=False))
            waiting[0] = replace(here, before=(), text=rest, taken=0, said=(), intact=False, written=True)
    return replace(choice, waiting=waiting), out


def _leave(leaving: Leaving, choice: int, entry: Waiting) -> list[bytes]:
    """Let a frame leave, or a part of it; as it came if nothing of it changed."""
    if entry.says_nothing:
        if not entry.written:
            leaving.left()
        return []
    if entry.intact and not (entry.written or entry.shared) and leaving.may_pass(entry):
        return leaving.whole(entry.frame, [(choice, entry.all_said)])
    return leaving.written(entry.all_said, choice, entry.frame, first=not entry.written)
