"""Let frames leave: as they came, or written by the encoder of the client's API.

A frame leaves as it came if both APIs are the same, nothing of it changed, no client misreads it and the client's
numbers are still the server's; where a policy is strict, only if the decoder knows all that it holds. All else is
written anew.

A client of another API is told that a reply was cut off where one of its calls was, whatever the server says of it.

A frame for which the encoder writes nothing (the start of a block) stays here until something after it leaves. It is
left out if the encoder has to write in its place.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import JsonNesting
from vtc.apis.contract import Encoder, ReplyEvent
from vtc.apis.relay.pending import Left, PendingFrame
from vtc.apis.relay.turn import TurnEncoder
from vtc.events import Call, CallDelta, Failure, Finish, Origin, Rewritten
from vtc.json_text import is_distinct, is_proper
from vtc.wire.framing import Frame

type Entry = tuple[int, PendingFrame, Sequence[ReplyEvent]]
"""One choice's part of a frame that leaves, and all that it says."""

NOTHING = "The server ended the reply before it said anything."


class FrameWriter(msgspec.Struct):
    """Lets frames leave, and knows what the client was told. Copied for each frame: fields get new values.

    So does `encoder`: one that is to be told something is copied before.
    """

    encoder: Encoder
    passes: bool = True
    """True if the server's API is the client's: frames may leave as they came."""
    strict: bool = False
    """True if nothing may leave that the decoder does not know."""
    kept: tuple[bytes, ...] = ()
    """Frames that leave with what comes after them."""
    behind: bool = False
    """True if the encoder has to write what stood in frames that were left out."""
    shifted: bool = False
    """True once frames have other numbers than they came with, for the rest of the reply."""
    ended: bool = False
    failure: Failure | None = None
    """The error by which a reply of another API ended."""
    told: bool = False
    """True once something was written."""
    calls: dict[tuple[int, int | None], JsonNesting] = {}
    """The calls that a client of another API was told in pieces, by choice and number."""
    cut: frozenset[int] = frozenset()
    """The choices in which one such was told whole, and lacks its end."""
    breaks: bool = False
    """True where the server broke off: a call that lacks its end is text then, as a client may run what it is told."""
    left_out: tuple[str, ...] = ()
    """What did not leave, as no encoder or no policy takes it, for people."""
    ending: Frame | None = None
    """How upstream ended a reply whose end waits."""
    heed: Callable[[Iterable[ReplyEvent], int], object] | None = None
    """Takes what leaves of a choice, but for frames of plain text or reasoning that need not be read."""

    @property
    def in_step(self) -> bool:
        """True if frames still leave as they came, where nothing of them changes."""
        return self.passes and not (self.shifted or self.behind) and self.encoder.in_step

    def leave(self, choice: int, left: Iterable[Left]) -> list[bytes]:
        """Let leave what is decided of a choice: each frame as it came if nothing of it changed."""
        out: list[bytes] = []
        for pending, says in left:
            if pending.intact:
                out += self.whole(pending.frame, [(choice, pending, says)])
            elif says:
                out += self.written(says, choice, pending.frame, first=not pending.begun)
            elif not pending.begun:
                if self.kept:  # without its text, a block whose start is kept may never begin
                    self.written((), 0)
                self.shifted = self.shifted or self.encoder.counts
        return out

    def whole(self, frame: Frame, entries: Sequence[Entry]) -> list[bytes]:
        """Let a frame leave of which nothing changed: as it came, if all that it holds may leave and is in step."""
        may_pass = self.passes and not (entries[0][1].odd or (self.strict and self._hides(frame, entries)))
        if may_pass and not (self.shifted or self.behind):
            before, self.encoder = self.encoder, copy.copy(self.encoder)
            tells = False
            for choice, _, says in entries:
                tells = self.encoder.follow(says, choice) or tells
            if (heed := self.heed) and (self.encoder.in_step or not tells):
                for choice, _, says in entries:
                    heed(says, choice)
            if not tells and any(says for _, _, says in entries):
                self.kept = (*self.kept, frame.raw)
                return []
            if self.encoder.in_step:
                out, self.kept = [*self.kept, frame.raw], ()
                return out
            self.encoder = before
        return [piece for choice, _, says in entries for piece in self.written(says, choice, frame)]

    def _hides(self, frame: Frame, entries: Sequence[Entry]) -> bool:
        """True if a client may find more in a frame than the decoder knows."""
        is_known = not any(pending.unknown for _, pending, _ in entries)
        return not (is_known and self.encoder.framing.shows_all(frame) and is_proper(frame.data or b"null"))

    def written(
        self, events: Iterable[ReplyEvent], choice: int, like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Let the encoder write something, in the place of the frame `like` or of a part of it.

        A client of another API is told one choice: no two APIs have several.
        """
        if choice and not self.passes:
            self._leave_out("more than one choice")
            return []
        events = [*events]
        if self.heed:
            self.heed(events, choice)
        if not self.passes or self.strict:
            events = [*self._known(events, choice)]
        self.encoder = copy.copy(self.encoder)
        values = self.encoder.write(events, choice)
        self.told = self.told or bool(values)
        if self.kept:
            self.kept, self.behind = (), not values
        elif values:
            self.behind = False
        self.shifted = self.shifted or self.encoder.counts
        like = like if self.passes and not self.strict else None
        return self.encoder.framing.write(values, like, first=first)

    def at_once(self, frame: Frame) -> list[bytes]:
        """Let a frame leave that tells nothing, after those that stay here."""
        if not self.kept:
            return [frame.raw]
        self.kept = (*self.kept, frame.raw)
        return []

    def end(self, frame: Frame | None = None) -> list[bytes]:
        """End the reply; `frame` is how upstream ended it."""
        out: list[bytes] = []
        if isinstance(self.encoder, TurnEncoder) and self.encoder.state == "held":
            self.ending = frame or self.ending
            return out
        frame = frame or self.ending
        if frame is not None and self.in_step and not self.strict:
            out, self.kept = [*self.kept, frame.raw], ()
        elif frame is not None or not self.passes:
            self.encoder = copy.copy(self.encoder)
            values = self.encoder.end()
            if not (values or self.told or self.passes or self.ended):
                self.failure = Failure(NOTHING)
                values = self.encoder.write([self.failure], 0)
            like = frame if self.passes and not self.strict else None
            out, self.kept = self.encoder.framing.write(values, like), ()
            if not self.ended and self.encoder.framing.last:
                out.append(self.encoder.framing.last)
        self.ended = True
        return out

    def let_end(self) -> list[bytes]:
        """Let the end leave that waits: the model is not asked, or gave no answer."""
        assert isinstance(self.encoder, TurnEncoder)
        self.encoder = copy.copy(self.encoder)
        values = self.encoder.let_end()
        self.told, self.shifted = self.told or bool(values), True
        return [*self.encoder.framing.write(values, None), *self.end(self.ending)]

    def go_on(self) -> FrameWriter:
        """Return what writes on in the same reply, for the answer to a question that the client knows nothing of."""
        encoder = copy.copy(self.encoder)
        assert isinstance(encoder, TurnEncoder)
        encoder.go_on()
        return replace(self, encoder=encoder, shifted=True, heed=None)

    def close(self) -> list[bytes]:
        """Return the frames that stayed here; for the end of the body, or after a failure."""
        out, self.kept = [*self.kept], ()
        return out

    def _known(self, events: Iterable[ReplyEvent], choice: int) -> Iterable[ReplyEvent]:
        """Leave out what only an unknown part of the server's API says; for a client of another, its objects, too."""
        for event in events:
            known = event
            if not self.passes:
                known = self._crossed(event, choice)
            elif self.strict:
                known = self._alone(event)
            own: Any = known if isinstance(known, Origin) else getattr(known, "own", None)
            harmless = own is not None and own.harmless and (not self.strict or is_distinct(own.value))
            if own is None or (self.passes and (harmless or not self.strict)):
                yield known
                continue
            lost = "" if harmless or not (self.passes or own is known) else own.kind
            lost = lost if self.passes else own.lost or lost
            if lost:
                self._leave_out(lost)
            if own is not known:
                yield replace(known, own=None)

    def _alone(self, event: ReplyEvent) -> ReplyEvent:
        """Part a call from what else its own object says: that may be another call."""
        source = (
            event.call.source if isinstance(event, Call) else event.source if isinstance(event, CallDelta) else None
        )
        if source is None:
            return event
        fields = self.encoder.call_fields
        known = {key: value for key, value in source.items() if key in fields} if isinstance(source, dict) else None
        if isinstance(event, Call):
            return replace(event, call=replace(event.call, source=known))
        return replace(event, source=known)

    def _leave_out(self, kind: str) -> None:
        self.left_out = self.left_out if kind in self.left_out else (*self.left_out, kind)

    def _crossed(self, event: ReplyEvent, choice: int) -> ReplyEvent:
        """Tell a client of another API what its own server would have said."""
        match event:
            case CallDelta():
                key = choice, event.index
                so_far = self.calls.get(key, JsonNesting())
                self.calls = {**self.calls, key: so_far.after(event.arguments)}
                return replace(event, source=None)
            case Call(call=call):
                is_cut = JsonNesting().after(call.arguments).is_cut
                if not call.name or (is_cut and self.breaks):
                    return Rewritten(event.raw, f"{call.name} {call.arguments}" if call.name else call.arguments)
                self.cut |= {choice} if is_cut else set()
                return replace(event, call=replace(call, source=None))
            case Finish():
                is_cut = choice in self.cut or any(call.is_cut for (of, _), call in self.calls.items() if of == choice)
                return replace(event, reason="length") if is_cut else event
            case Failure():
                self.failure = event if event.message else Failure("The server broke off with an error.")
        return event
