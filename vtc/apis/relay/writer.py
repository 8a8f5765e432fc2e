"""Forward or re-encode the frames that are decided, and track the events that the client was sent.

A frame is forwarded as received if both APIs are the same, nothing of it changed, no client misreads it and the
client's numbers still equal the server's; under a strict policy, only if the decoder knows all its content. Every other
frame is re-encoded for the client's API.

A frame that encodes to nothing (the start of a block) is deferred until a later frame is sent. It is dropped if the
encoder writes instead.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from vtc.apis.contract import Decoded, Encoder, ReplyEvent
from vtc.apis.relay.choice import Choice, ChoicePart
from vtc.apis.relay.pending import (
    QUOTING_ORIGINS,
    TOKEN_ORIGINS,
    PendingFrame,
    ReadEvents,
    make_pending,
)
from vtc.apis.relay.translator import EventTranslator
from vtc.apis.relay.turn import TurnEncoder
from vtc.events import (
    BlockEnd,
    Call,
    CallDelta,
    CallPiece,
    Failure,
    FrameMetadata,
    Origin,
    Reasoning,
    RefusalText,
    Rewritten,
    Text,
)
from vtc.json_text import is_unambiguous
from vtc.wire.framing import Frame

type SplitFrame = tuple[PendingFrame, list[ReplyEvent]]
"""A frame to send, or a part of one, and all its events."""

type SettledEntry = tuple[int, PendingFrame, Sequence[ReplyEvent]]
"""One choice's part of a frame to send, and all its events."""

EMPTY_REPLY_MESSAGE = "The server ended the reply before it sent any content."


class UnreadableFrame(ValueError):
    """A frame that is not forwarded because a policy lets nothing unread pass."""


class Sent(NamedTuple):
    """The effect of sending the parts of a frame."""

    out: list[bytes]
    choices: dict[int, Choice]
    """The choices with the frames that are still pending, by index."""
    frames: Sequence[SplitFrame]
    """The frames that were sent of the last choice, without those that several choices share."""


class FrameWriter(msgspec.Struct):
    """Forwards or re-encodes frames, and tracks what the client was sent. Copied for each frame: fields get new values.

    `encoder` and `translator`, too, are copied before each change.
    """

    encoder: Encoder
    translator: EventTranslator
    same_api: bool = True
    """True if client and server speak the same API: frames may be forwarded as received."""
    strict: bool = False
    """True if nothing may be sent that the decoder does not know."""
    deferred: tuple[bytes, ...] = ()
    """Frames that are sent together with a later one."""
    behind: bool = False
    """True if the encoder still has to write the content of dropped frames."""
    renumbered: bool = False
    """True once frames are renumbered, for the rest of the reply."""
    ended: bool = False
    has_written: bool = False
    """True once something was encoded."""
    changed: frozenset[int] = frozenset()
    """The choices whose text was not sent as it was received."""
    ending: Frame | None = None
    """The server's end of a reply whose end is held back."""
    on_sent: Callable[[Iterable[ReplyEvent], int], object] | None = None
    """Called with the events that are sent of a choice, except frames of plain text or reasoning that need no
    reading."""

    @property
    def in_step(self) -> bool:
        """True if unchanged frames are still forwarded as received."""
        return self.same_api and not (self.renumbered or self.behind) and self.encoder.in_step

    def send(self, parts: Sequence[ChoicePart]) -> Sent:
        """Send the decided frames of some choices: each as received if nothing of it changed."""
        # Step 1: a frame of several choices is sent as a whole if nothing of it changed.
        if len(parts) > 1 and parts[0][1].shared:
            if whole := self._send_shared(parts):
                return whole
            parts = [(choice, replace(entry, intact=False), events) for choice, entry, events in parts]
        out: list[bytes] = []
        frames: list[SplitFrame] = []
        choices: dict[int, Choice] = {}
        for choice, entry, read_events in parts:
            index = choice.index
            frames, waiting = _settle_frames([*choice.waiting, entry], read_events, ended=choice.ended)
            choices[index] = replace(choice, waiting=waiting)
            # Step 2: look for a call that lacks its end, before anything of its choice is sent.
            if not self.same_api:
                self.translator = copy.copy(self.translator)
                self.translator.record_cut_calls(index, [event for _, events in frames for event in events])
            # Step 3: send each frame.
            for pending, events in frames:
                if pending.altered:
                    self.changed |= {index}
                if pending.intact:
                    out += self.send_whole(pending.frame, [(index, pending, events)])
                    continue
                if pending.mirrors:  # a mirror of text of which a part may be removed
                    events = [event for event in events if _kind_of(event) not in TOKEN_ORIGINS | QUOTING_ORIGINS]
                if events:
                    out += self.encode_events(events, index, pending.frame, first=not pending.begun)
                elif not pending.begun:
                    if self.deferred:  # a block whose start is deferred may never begin without its text
                        self.encode_events((), 0)
                    self.renumbered = self.renumbered or self.encoder.counts
        return Sent(out, choices, frames)

    def _send_shared(self, parts: Sequence[ChoicePart]) -> Sent | None:
        """Send a frame of several choices as a whole; None if any of it changed."""
        entries: list[SettledEntry] = []
        for choice, entry, read_events in parts:
            frames, waiting = _settle_frames([*choice.waiting, entry], read_events, ended=choice.ended)
            if len(frames) != 1 or waiting or not frames[0][0].intact:
                return None
            entries.append((choice.index, *frames[0]))
        choices = {choice.index: replace(choice, waiting=deque()) for choice, _, _ in parts}
        return Sent(self.send_whole(parts[0][1].frame, entries), choices, [])

    def send_failure(
        self, frame: Frame, metadata: Sequence[FrameMetadata], failure: Failure, *, reencodes: bool
    ) -> list[bytes]:
        """Send the frame of an error that ends the reply; `reencodes`: it is encoded again."""
        entry, choice = make_pending(frame, metadata, failure), failure.choice
        events = [*entry.before, *entry.after]
        return (
            self.encode_events(events, choice, frame)
            if reencodes
            else self.send_whole(frame, [(choice, entry, events)])
        )

    def send_whole(self, frame: Frame, entries: Sequence[SettledEntry]) -> list[bytes]:
        """Send an unchanged frame: as received, if all its content may be sent and numbers are in step."""
        # Step 1: drop metadata that repeats changed text.
        is_odd = entries[0][1].odd
        if self.changed:
            all_events = [events for _, _, events in entries]
            entries = [
                (choice, pending, self._drop_stale_mirrors(pending, events, choice))
                for choice, pending, events in entries
            ]
            is_odd = is_odd or all_events != [events for _, _, events in entries]
        # Step 2: forward the frame if the encoder, following it, is still in step with the server's numbers.
        may_pass = self.same_api and not (is_odd or (self.strict and self._may_hide_more(frame, entries)))
        if may_pass and not (self.renumbered or self.behind):
            before, self.encoder = self.encoder, copy.copy(self.encoder)
            has_content = False
            for choice, _, events in entries:
                has_content = self.encoder.follow(events, choice) or has_content
            if self.on_sent and (self.encoder.in_step or not has_content):
                for choice, _, events in entries:
                    self.on_sent(events, choice)
            if not has_content and any(events for _, _, events in entries):
                self.deferred = (*self.deferred, frame.raw)
                return []
            if self.encoder.in_step:
                if self.encoder.counts:
                    self.record_number(frame)
                out, self.deferred = [*self.deferred, frame.raw], ()
                return out
            self.encoder = before
        # Step 3: else re-encode it.
        return [piece for choice, _, events in entries for piece in self.encode_events(events, choice, frame)]

    def _drop_stale_mirrors(
        self, pending: PendingFrame, events: Sequence[ReplyEvent], choice: int
    ) -> Sequence[ReplyEvent]:
        """Drop metadata of an unchanged frame that repeats text which was changed earlier in the same block.

        A policy may have removed that text, and clients also show the text in log probabilities and citations.
        """
        if choice not in self.changed:
            return events
        if any(isinstance(event, BlockEnd) for event in events):
            self.changed -= {choice}
        fields = QUOTING_ORIGINS if pending.text else TOKEN_ORIGINS | QUOTING_ORIGINS
        return [event for event in events if _kind_of(event) not in fields] if pending.mirrors else events

    def _may_hide_more(self, frame: Frame, entries: Sequence[SettledEntry]) -> bool:
        """Return True if a client may find more in a frame than the decoder knows."""
        is_known = not any(pending.unknown for _, pending, _ in entries)
        return not (is_known and self.encoder.framing.is_unambiguous(frame) and is_unambiguous(frame.data or b"null"))

    def encode_events(
        self, events: Iterable[ReplyEvent], choice: int, like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Encode events in place of the frame `like` or of a part of it.

        A client of another API gets one choice, because no two APIs have several.
        """
        translates = self.strict or not self.same_api
        if translates:
            self.translator = copy.copy(self.translator)
        if choice and not self.same_api:
            self.translator.record_left_out("more than one choice")
            return []
        events = [*events]
        if self.on_sent:
            self.on_sent(events, choice)
        if translates:
            events = [*self.translator.translate(events, choice)]
        self.encoder = copy.copy(self.encoder)
        values = self.encoder.write(events, choice)
        self.has_written = self.has_written or bool(values)
        if self.deferred:
            self.deferred, self.behind = (), not values
        elif values:
            self.behind = False
        self.renumbered = self.renumbered or self.encoder.counts
        like = like if self.same_api and not self.strict else None
        return self.encoder.framing.encode(values, like, first=first)

    def record_number(self, frame: Frame) -> None:
        """Record the number of a frame that is forwarded as received, for an API whose frames have numbers."""
        record = getattr(self.encoder, "record_passed", None) if self.in_step else None
        if record and frame.data:
            record(frame.data, ())

    def forward_now(self, frame: Frame, decoded: Decoded | None) -> list[bytes]:
        """Forward a frame without content, after the deferred frames, or one that does not belong to the API.

        Raises `UnreadableFrame` in strict mode.
        """
        if not self.same_api or (self.strict and decoded and frame.data is not None):
            keep_alive = self.encoder.keep_alive()
            return [keep_alive] if keep_alive else []
        if self.strict and not self.encoder.framing.is_unambiguous(frame):
            raise UnreadableFrame("a comment contains data")
        if self.strict and decoded is None and b"{" in (frame.data or b""):
            raise UnreadableFrame("it does not belong to this API")
        if self.encoder.counts:
            self.record_number(frame)
        if decoded is None or not self.deferred:
            return [frame.raw]
        self.deferred = (*self.deferred, frame.raw)
        return []

    def end(self, frame: Frame | None = None, *, is_early: bool = False) -> list[bytes]:
        """End the reply; `frame` is the server's end. `is_early`: VTC ends the reply before the server does."""
        out: list[bytes] = []
        if isinstance(self.encoder, TurnEncoder) and self.encoder.state == "held":
            self.ending = frame or self.ending
            return out
        frame = frame or self.ending
        if frame is not None and self.in_step and not self.strict:
            out, self.deferred = [*self.deferred, frame.raw], ()
        elif frame is not None or is_early or not self.same_api:
            self.encoder = copy.copy(self.encoder)
            values = self.encoder.end()
            if not (values or self.has_written or self.same_api or self.ended):
                failure = Failure(EMPTY_REPLY_MESSAGE)
                self.translator = replace(self.translator, failure=failure)
                values = self.encoder.write([failure], 0)
            like = frame if self.same_api and not self.strict else None
            out, self.deferred = self.encoder.framing.encode(values, like), ()
            if not self.ended and self.encoder.framing.last:
                out.append(self.encoder.framing.last)
        self.ended = True
        return out

    def release_end(self) -> list[bytes]:
        """Send the end that was held back: the model is not asked again, or gave no answer."""
        assert isinstance(self.encoder, TurnEncoder)
        self.encoder = copy.copy(self.encoder)
        values = self.encoder.release_end()
        self.has_written, self.renumbered = self.has_written or bool(values), True
        return [*self.encoder.framing.encode(values, None), *self.end(self.ending)]

    def for_second_reply(self) -> FrameWriter:
        """Return a writer that continues the reply with the answer to a follow-up."""
        encoder = copy.copy(self.encoder)
        assert isinstance(encoder, TurnEncoder)
        encoder.begin_second()
        return replace(self, encoder=encoder, renumbered=True, on_sent=None)

    def close(self) -> list[bytes]:
        """Return the deferred frames; for the end of the body, or after a failure."""
        out, self.deferred = [*self.deferred], ()
        return out


def _settle_frames(
    frames: Sequence[PendingFrame], events: ReadEvents, *, ended: bool
) -> tuple[list[SplitFrame], deque[PendingFrame]]:
    """Assign the events of their text to frames, in order; return the frames to send, and those still pending.

    `ended`: the choice has ended, so that the buffered pieces of its calls are sent, too.
    """
    if len(frames) == len(events) == 1:
        first, event = frames[0], events[0]
        if type(event) is Text and event.raw == first.text and not (first.calls or first.refusal):
            return [
                (first, [*first.before, event, *first.after])
            ], deque()  # the common case: nothing is pending or changed
    # Step 1: assign the events, leaving out frames that they cannot belong to.
    start = len(frames) - 1
    # Frames before a decided text are pending only for calls; after a long call there are many of them.
    while start and not 0 < len(frames[start - 1].text) == frames[start - 1].decided:
        start -= 1
    shares = [*frames[:start], *_share_events(frames[start:], events)]
    # Step 2: release whole frames up to the first undecided one.
    settled: list[SplitFrame] = []
    for share in shares:
        if share.decided < len(share.text) or (share.calls and not ended):
            break
        middle = _order_by_call(share) if share.calls else [*share.events, *share.after]
        settled.append((share, [*share.before, *middle]))
    pending = deque(shares[len(settled) :])
    # Step 3: release the decided part of that frame, unless only white space and back-ticks of it remain.
    if pending and pending[0].events and not pending[0].calls:
        first = pending[0]
        rest = first.text[first.decided :]
        if not (first.intact and rest.replace("`", " ").isspace()):
            settled.append((replace(first, after=(), intact=False), [*first.before, *first.events]))
            pending[0] = replace(first, before=(), text=rest, decided=0, events=(), intact=False, begun=True)
    return settled, pending


def _order_by_call(frame: PendingFrame) -> list[ReplyEvent]:
    """List the events of a frame after its beginning, with the pieces of its calls in the order of their numbers."""
    # Pieces of a call that was released later than another of the same frame are already behind its text.
    begun = [*takewhile(_is_piece, frame.after)]
    forwarded = [event for event in frame.events if frame.intact and _is_piece(event)]
    text = [event for event in frame.events if not (frame.intact and _is_piece(event))]
    pieces = sorted((*forwarded, *begun, *frame.calls), key=lambda piece: getattr(piece, "index", None) or 0)
    return [*text, *pieces, *frame.after[len(begun) :]]


def _is_piece(event: ReplyEvent) -> bool:
    return isinstance(event, CallDelta)


def _share_events(frames: Sequence[PendingFrame], events: ReadEvents) -> list[PendingFrame]:
    """Assign to each frame its share of the events, by their characters."""
    shares: list[PendingFrame] = []
    rest = iter(frames)
    here, last = next(rest), frames[-1]
    decided, share, intact, altered = here.decided, [*here.events], here.intact, here.altered
    pieces: list[ReplyEvent] = []  # pieces of calls, which go to the last frame, after its text
    is_silent = False  # True if the last share has no events
    for event in events:
        if isinstance(event, CallDelta):
            pieces.append(event)
            continue
        # Step 1: move over the characters of the event, closing the share of each frame that they complete.
        remaining = size = 0 if isinstance(event, BlockEnd) else len(event.raw)
        kind = type(event) if isinstance(event, Text | Reasoning) else None
        changes = size > 0 and kind is not Text
        intact, altered = intact and not changes, altered or changes
        while True:
            end = min(decided + remaining, len(here.text))
            if end > decided and kind:
                if here.refusal and kind is Text:
                    share += here.render_text(decided, end)
                elif intact and share and isinstance(text := share[-1], Text):  # nothing in between: merge them
                    share[-1] = Text(text.raw + here.text[decided:end])
                else:
                    share.append(kind(here.text[decided:end]))
            remaining -= end - decided
            decided = end
            # An event without characters belongs after all decided text.
            if not remaining and (size or decided < len(here.text) or here is last):
                break
            has_content = share or intact or here.before or here.calls or here.after or here.begun or here.shared
            if has_content or not is_silent:  # inside a call one silent share is enough
                shares.append(replace(here, decided=decided, events=tuple(share), intact=intact, altered=altered))
            is_silent = not has_content
            here = next(rest)
            decided, share, intact = here.decided, [*here.events], here.intact and not changes
            altered = here.altered or changes
        # Step 2: add an event that replaces its characters, in the frame of the last one.
        if isinstance(event, Call | Rewritten):
            altered = True
            if here is last and not event.raw:  # decided at the end, after the calls that were sent in pieces
                share, pieces = [*share, *pieces], []
            intact = False
            refuses = here.refusal and decided + (not size) > len(here.text) - here.refusal
            share.append(RefusalText(event.text) if refuses and isinstance(event, Rewritten) else event)
        elif isinstance(event, CallPiece):
            intact, altered = False, True
            if event.name or event.arguments:
                share.append(CallDelta(event.number, event.id, event.name, event.arguments))
    # Step 3: close the share of the current frame; the frames behind it have none.
    shares += [replace(here, decided=decided, events=tuple(share), intact=intact, altered=altered), *rest]
    if pieces:
        shares[-1] = replace(shares[-1], events=(*shares[-1].events, *pieces))
    return shares


def _kind_of(event: ReplyEvent) -> str:
    return event.kind if isinstance(event, Origin) else ""
