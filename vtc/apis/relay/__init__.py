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
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis.contract import Decoded, Decoder, Encoder, Said
from vtc.apis.relay.choice import Choice, Pipeline, as_said, finish, read, told_reason
from vtc.apis.relay.pending import Made, Waiting, shared
from vtc.apis.relay.writer import Leaving
from vtc.events import (
    Beside,
    BlockEnd,
    BlockStart,
    CallDelta,
    Delta,
    End,
    Failure,
    Finish,
    Origin,
    Start,
    Text,
    Usage,
)
from vtc.wire.framing import Frame

MOST_CHOICES = 256
"""Choices of one reply that are told apart: twice as many as any server makes."""


class Plain(NamedTuple):
    """A frame with one delta, and what leaves for such a frame."""

    frame: Frame
    delta: Delta
    left: bytes
    """The bytes of the frame if it leaves as it came; else what left for the last one of its kind."""
    waits: bool = False
    """True if it waits with the white space at its end; all that waited before it has left."""


class Unread(ValueError):
    """A frame that is not passed on, where nothing may leave that was not read."""


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
        self.plain: Plain | None = None
        """The last frame, if it says one thing, and nothing of the choice waits but white space at its end."""
        self.counted: Callable[[int], None] | None = None
        """Takes the tokens that the server counted of the prompt."""
        self.refused: Callable[[bytes], None] | None = None
        """Takes an error of the server's amid the reply."""

    def feed(self, frame: Frame) -> list[bytes]:
        """Take a frame; return what may leave now. Raises `Unread` if it is strict, and then nothing has changed."""
        decoder = copy.copy(self.decoder)
        decoded = self._decoded(decoder, frame)
        if decoded is None or decoded.at_once:
            return self._at_once(frame, decoded)
        self.plain = None
        for one in decoded.beside if self.counted else ():
            if isinstance(one, Usage) and one.prompt and self.counted:
                self.counted(one.prompt)
        frame, deltas = decoded.frame or frame, decoded.deltas
        if len(deltas) + len(decoded.beside) > 1 and any(type(one) is End for one in deltas):
            raise ValueError("the decoder tells the end of the reply and more in one frame: an `End` stands alone")
        last = deltas[-1] if deltas else None
        failure = last if isinstance(last, Failure) else None
        if failure:
            self.error, deltas = frame.data or b"", deltas[:-1]
            if self.refused:
                self.refused(self.error)
            last = deltas[-1] if deltas else failure
        if isinstance(last, End | Failure):
            leaving = self.leaving.copy()
            out, after = self._end(leaving, complete=isinstance(last, End), breaks=isinstance(last, Failure))
            if isinstance(last, End):
                out += leaving.end(frame)
            else:
                out += _leave(leaving, last.choice, _waiting(frame, decoded.beside, failure))
        elif len(choices := _choices_of(decoded)) > 1:
            leaving = self.leaving.copy()
            out, after = self._several(leaving, frame, decoded, sorted(choices))
        else:
            index = min(choices, default=0)
            choice = self._choices.get(index) or self._choice(index)
            waiting = choice.waiting
            choice, entry, events = read(choice, _waiting(frame, decoded.beside), deltas)
            is_undecided = not (events or choice.ended) and choice.waiting is waiting
            if is_undecided and (choice.waiting or entry.text or entry.calls):
                waiting.append(entry)  # as for each frame of a long call; nothing can fail any more
                self.decoder, self._choices[index] = decoder, choice
                self._last = frame if deltas else self._last
                return []
            after, leaving = [choice], self.leaving.copy()
            if choice.waiting or not _is_unchanged(choice, entry, events):
                after[0], out = _settle(leaving, choice, entry, events)
                if last and len(deltas) == 1 and not any(type(one) is not Text for one in events):
                    self.plain = _plain(last, [*waiting, entry], after[0].waiting, out)
            else:
                said = [*entry.before, *_unchanged(entry, events), *entry.after]
                passes = leaving.may_pass(entry)
                out = leaving.whole(frame, [(index, said)]) if passes else leaving.written(said, index, frame)
                if last and len(deltas) == len(out) == 1 and (out[0] is frame.raw or not decoded.beside):
                    self.plain = Plain(frame, last, out[0])
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
        if not leaving.passes or (leaving.strict and decoded and frame.data is not None):
            made = leaving.encoder.keep_alive()
            return [made] if made else []
        if leaving.strict and not leaving.encoder.framing.shows_all(frame):
            raise Unread("data stand in a comment")
        if leaving.strict and decoded is None and b"{" in (frame.data or b""):
            raise Unread("it is nothing of this API")
        return leaving.at_once(frame) if decoded else [frame.raw]

    def finish(self, *, breaks: bool = False) -> list[bytes]:
        """End the reply: return what the choices that upstream did not finish still have.

        Where it `breaks` off, nothing says to the client that this is the end, and one of another API gets an error.
        """
        leaving = self.leaving.copy()
        out, after = self._end(leaving, complete=False, breaks=breaks)
        if breaks and not leaving.passes and not leaving.ended:
            out += leaving.written((Failure("The model server broke off."),), 0)
        out += [*([] if breaks else leaving.end()), *leaving.close()]
        self.leaving = leaving
        self._choices.update((choice.index, choice) for choice in after)
        return out

    def went(self) -> None:
        """Take note that the frame in `plain`, which waited, has left by another way."""
        if self.plain:
            self._choices[self.plain.delta.choice].waiting.clear()

    def release(self) -> list[bytes]:
        """Give back all that waits, as it came; for after a failure."""
        out: list[bytes] = []
        for choice in self._choices.values():
            while choice.waiting:
                entry = choice.waiting.popleft()
                if entry.written or entry.shared:
                    start = entry.taken if entry.written else 0
                    entry = replace(entry, said=tuple(entry.as_came(start)), intact=False)
                    out += self.leaving.written(entry.all_said, choice.index, entry.frame, first=not entry.written)
                else:
                    said = [*entry.before, *entry.as_came(), *entry.calls, *entry.after]
                    out += self.leaving.whole(entry.frame, [(choice.index, said)])
        return [*out, *self.leaving.close()]

    def passed(self, frame: Frame) -> list[bytes]:
        """Let a frame leave after a failure: as it came, unless those before it got other numbers."""
        if self.leaving.in_step:
            return [*self.leaving.close(), frame.raw]
        decoded = self.decoder.decode(frame)
        if decoded is None or decoded.at_once:
            return [frame.raw]
        said: list[Said] = [*_before(decoded.beside), *as_said(decoded.deltas), *_after(decoded.beside)]
        if not any(isinstance(one, End) for one in decoded.deltas):
            return self.leaving.written(said, 0, frame)
        return [*(self.leaving.written(said, 0, frame) if said else ()), *self.leaving.end(frame)]

    def _choice(self, index: int) -> Choice:
        """Begin a choice."""
        if len(self._choices) >= MOST_CHOICES:
            raise ValueError(f"the reply has more than {MOST_CHOICES} choices")
        pipeline = self.pipelines[index] = self._pipeline()
        anew = self.leaving.strict or not self.leaving.passes
        choice = self._choices[index] = Choice(index, pipeline, deque(), anew=anew)
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
            parts.append(read(choice, replace(entry, shared=True), deltas))
        if all(
            not choice.waiting and leaving.may_pass(entry) and _is_unchanged(choice, entry, events)
            for choice, entry, events in parts
        ):
            said = [
                (choice.index, [*entry.before, *_unchanged(entry, events), *entry.after])
                for choice, entry, events in parts
            ]
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
        leaving.breaks = breaks
        for choice in self._choices.values():
            if choice.ended:
                continue
            choice, events, pieces, _, fate = finish(choice, [], complete=complete)
            entry = Waiting(self._last, after=(*pieces,), intact=False, written=True)
            is_called = choice.lifted or fate == "written"
            if (is_called or not leaving.passes) and not breaks:
                reason = told_reason("stop", choice, fate) if is_called or complete else "length"
                entry = replace(entry, after=(*pieces, Finish(reason, choice.index)))
            settled, left = _settle(leaving, choice, entry, events)
            after.append(settled)
            out += left
        return out, after


def _choices_of(decoded: Decoded) -> Collection[int]:
    """Tell which choices a frame says something of."""
    if len(decoded.deltas) == 1 and not decoded.beside:  # as nearly always
        return (decoded.deltas[0].choice,)
    return {one.choice for one in (*decoded.deltas, *decoded.beside)}


def _waiting(frame: Frame, beside: Sequence[Beside], failure: Failure | None = None) -> Waiting:
    if not (beside or failure):  # as for nearly all
        return Waiting(frame)
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


# Events -> frames


def _unchanged(entry: Waiting, events: Made) -> list[Said]:
    """What a frame of which nothing changed says between what comes before and after."""
    pieces = [*entry.calls, *(event for event in events if isinstance(event, CallDelta))]
    return [*entry.as_came(), *sorted(pieces, key=lambda piece: piece.index or 0)]


def _is_unchanged(choice: Choice, entry: Waiting, events: Made) -> bool:
    """True if a frame may leave as it came, given that none waits before it."""
    if not entry.intact or (entry.calls and not choice.ended):
        return False
    left = len(entry.text)
    for event in events:
        if isinstance(event, Text):
            left -= len(event.raw)
        elif not isinstance(event, BlockEnd | CallDelta):
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


def _plain(last: Delta, frames: Sequence[Waiting], waits: Sequence[Waiting], out: Sequence[bytes]) -> Plain | None:
    """Tell what the last of some frames shows, which say text alone; all left whole but for the one that `waits`."""
    gone = len(frames) - len(waits)
    if not gone or gone != len(out) or len(waits) > 1 or (waits and not waits[0].text[waits[0].taken :].isspace()):
        return None
    if not all(
        one.intact and not (one.written or one.shared or one.before or one.calls or one.after) for one in frames
    ):
        return None
    frame, left = frames[-1].frame, out[-1]
    return Plain(frame, last, frame.raw if left is frames[gone - 1].frame.raw else left, bool(waits))


def _leave(leaving: Leaving, choice: int, entry: Waiting) -> list[bytes]:
    """Let a frame leave, or a part of it; as it came if nothing of it changed."""
    if entry.says_nothing:
        if not entry.written:
            leaving.left()
        return []
    if entry.intact and not (entry.written or entry.shared) and leaving.may_pass(entry):
        return leaving.whole(entry.frame, [(choice, entry.all_said)])
    return leaving.written(entry.all_said, choice, entry.frame, first=not entry.written)
