"""Outgoing frames: they are pending until their text is decided, then forwarded as received or re-encoded.

A frame is pending as long as some of its text is undecided, and so are the frames behind it. Its decided text is sent
before the rest, unless only white space and back-ticks remain: then the whole frame is kept, so that it can be
forwarded as received.

A frame is forwarded as received if both APIs are the same, nothing of it changed, no client misreads it and the
client's numbers still equal the server's; under a strict policy, only if the decoder knows all its content. Every other
frame is re-encoded for the client's API.

For a client of another API, a reply that its server ended well in the middle of a native call is an error, and so is
one with an unlisted finish reason: agents then retry.

A frame that encodes to nothing (the start of a block) is deferred until a later frame is sent. It is dropped if the
encoder writes instead.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import JsonNesting, is_cut
from vtc.apis.contract import Encoder, ReplyEvent
from vtc.apis.relay.turn import TurnEncoder
from vtc.events import (
    CUT_OFF,
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    CallPiece,
    Event,
    Failure,
    Finish,
    FrameMetadata,
    Origin,
    Reasoning,
    RefusalText,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.json_text import has_distinct_keys, is_unambiguous
from vtc.wire.framing import Frame

type ReadEvents = list[Event | BlockEnd | CallDelta]
"""The events that resulted from text; a `BlockEnd` ends one block of it, and a `CallDelta` is a piece of a native
call that is sent as received."""


_ORIGIN_PLACES = ("", "chunk.", "choice.", "delta.", "event.", "candidate.", "content.", "part.", "line.", "message.")
_TOKEN_ORIGINS = frozenset(
    at + name for at in _ORIGIN_PLACES for name in ("logprobs", "logprobsResult", "token_ids", "hidden_states")
)
"""Kinds of `Origin` that repeat the text of their frame."""
_QUOTING_FIELDS = (
    *("annotations", "annotation", "citations", "citations_delta", "citationMetadata"),
    *("groundingMetadata", "groundingAttributions"),
)
_QUOTING_ORIGINS = frozenset(at + name for at in _ORIGIN_PLACES for name in _QUOTING_FIELDS)
"""Kinds of `Origin` that quote earlier text, or refer to places in it."""


def _kind_of(event: ReplyEvent) -> str:
    return event.kind if isinstance(event, Origin) else ""


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

    def render_text(self, start: int = 0) -> list[ReplyEvent]:
        """Return its text from an offset on, as received."""
        return _slice_frame(self, start, len(self.text))


def make_pending(frame: Frame, metadata: Sequence[FrameMetadata], failure: Failure | None = None) -> PendingFrame:
    """Make the pending frame of a frame with metadata."""
    origins = [item if isinstance(item, Origin) else getattr(item, "own", None) for item in (*metadata, failure)]
    unknown = mirrors = False
    for own in origins:
        if own is not None:
            unknown = unknown or not own.harmless
            mirrors = mirrors or own.kind in _TOKEN_ORIGINS or own.kind in _QUOTING_ORIGINS
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


type SplitFrame = tuple[PendingFrame, list[ReplyEvent]]
"""A frame to send, or a part of one, and all its events."""


def settle_frames(
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
                    share += _slice_frame(here, decided, end)
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


def _slice_frame(frame: PendingFrame, start: int, end: int) -> list[ReplyEvent]:
    """Return a part of a frame's text, with the refusal at its end separate."""
    begun = max(start, min(end, len(frame.text) - frame.refusal))
    text, refusal = frame.text[start:begun], frame.text[begun:end]
    events: list[ReplyEvent] = []
    if text:
        events.append(Text(text))
    if refusal:
        events.append(RefusalText(refusal))
    return events


type SettledEntry = tuple[int, PendingFrame, Sequence[ReplyEvent]]
"""One choice's part of a frame to send, and all its events."""

EMPTY_REPLY_MESSAGE = "The server ended the reply before it sent any content."
MAX_REASON_CHARACTERS = 100
"""Maximum characters of a server's finish reason that an error quotes."""


def describe_failed_end(end: Finish) -> str:
    """Describe the reason for which the server ended the reply."""
    return f"the server ended the reply with the reason {end.native_reason[:MAX_REASON_CHARACTERS]!r}"


def _is_cut_off(end: Finish) -> bool:
    """Return True if the reply did not end well."""
    return end.reason in CUT_OFF


class BridgedCalls(msgspec.Struct, frozen=True):
    """The native calls that were sent to a client of another API."""

    pieces: dict[tuple[int, int | None], JsonNesting] = {}
    """The nesting of the calls that were sent in pieces, by choice and number."""
    cut: frozenset[int] = frozenset()
    """The choices in which a native call lacks its end."""


class FrameWriter(msgspec.Struct):
    """Forwards or re-encodes frames, and tracks what the client was sent. Copied for each frame: fields get new values.

    `encoder`, too, is copied before each change.
    """

    encoder: Encoder
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
    failure: Failure | None = None
    """The error that ended a bridged reply."""
    has_written: bool = False
    """True once something was encoded."""
    bridged_calls: BridgedCalls = BridgedCalls()
    changed: frozenset[int] = frozenset()
    """The choices whose text was not sent as it was received."""
    breaks: bool = False
    """True if the reply ends in an error: a call that lacks its end becomes text, because a client may run any call."""
    left_out: tuple[str, ...] = ()
    """Content that was dropped because no encoder or no policy accepts it, for the report."""
    ending: Frame | None = None
    """The server's end of a reply whose end is held back."""
    on_sent: Callable[[Iterable[ReplyEvent], int], object] | None = None
    """Called with the events that are sent of a choice, except frames of plain text or reasoning that need no
    reading."""

    @property
    def in_step(self) -> bool:
        """True if unchanged frames are still forwarded as received."""
        return self.same_api and not (self.renumbered or self.behind) and self.encoder.in_step

    def send(self, choice: int, frames: Iterable[SplitFrame]) -> list[bytes]:
        """Send the decided frames of a choice: each as received if nothing of it changed."""
        out: list[bytes] = []
        if not self.same_api:
            frames = [*frames]
            self._record_cut_calls(choice, [event for _, events in frames for event in events])
        for pending, events in frames:
            if pending.altered:
                self.changed |= {choice}
            if pending.intact:
                out += self.send_whole(pending.frame, [(choice, pending, events)])
                continue
            if pending.mirrors:  # a mirror of text of which a part may be removed
                events = [event for event in events if _kind_of(event) not in _TOKEN_ORIGINS | _QUOTING_ORIGINS]
            if events:
                out += self.encode_events(events, choice, pending.frame, first=not pending.begun)
            elif not pending.begun:
                if self.deferred:  # a block whose start is deferred may never begin without its text
                    self.encode_events((), 0)
                self.renumbered = self.renumbered or self.encoder.counts
        return out

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
        fields = _QUOTING_ORIGINS if pending.text else _TOKEN_ORIGINS | _QUOTING_ORIGINS
        return [event for event in events if _kind_of(event) not in fields] if pending.mirrors else events

    def _record_cut_calls(self, choice: int, events: Sequence[ReplyEvent]) -> None:
        """Record whether a choice that ends well for its server has a call that lacks its end, before that is sent."""
        if any(isinstance(event, Call) and is_cut(event.call.arguments) for event in events):
            self.bridged_calls = replace(self.bridged_calls, cut=self.bridged_calls.cut | {choice})
            self.breaks = self.breaks or any(isinstance(event, Finish) and not _is_cut_off(event) for event in events)

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
        if choice and not self.same_api:
            self._record_left_out("more than one choice")
            return []
        events = [*events]
        if self.on_sent:
            self.on_sent(events, choice)
        if not self.same_api or self.strict:
            events = [*self._drop_unknown_origins(events, choice)]
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

    def forward_now(self, frame: Frame) -> list[bytes]:
        """Forward a frame without content, after the deferred frames."""
        if self.encoder.counts:
            self.record_number(frame)
        if not self.deferred:
            return [frame.raw]
        self.deferred = (*self.deferred, frame.raw)
        return []

    def end(self, frame: Frame | None = None) -> list[bytes]:
        """End the reply; `frame` is the server's end."""
        out: list[bytes] = []
        if isinstance(self.encoder, TurnEncoder) and self.encoder.state == "held":
            self.ending = frame or self.ending
            return out
        frame = frame or self.ending
        if frame is not None and self.in_step and not self.strict:
            out, self.deferred = [*self.deferred, frame.raw], ()
        elif frame is not None or not self.same_api:
            self.encoder = copy.copy(self.encoder)
            values = self.encoder.end()
            if not (values or self.has_written or self.same_api or self.ended):
                self.failure = Failure(EMPTY_REPLY_MESSAGE)
                values = self.encoder.write([self.failure], 0)
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

    def _drop_unknown_origins(self, events: Iterable[ReplyEvent], choice: int) -> Iterable[ReplyEvent]:
        """Drop unknown origins; for a client of another API, also those attached to events."""
        for event in events:
            known = event
            if not self.same_api:
                if isinstance(event, Finish) and not (event.is_assumed or _is_cut_off(event)):
                    yield from self._complete_empty_calls(choice)
                known = self._translate_event(event, choice)
            elif self.strict:
                known = self._strip_call_source(event)
            own: Any = known if isinstance(known, Origin) else getattr(known, "own", None)
            harmless = own is not None and own.harmless and (not self.strict or has_distinct_keys(own.value))
            if own is None or (self.same_api and (harmless or not self.strict)):
                yield known
                continue
            lost = "" if harmless or not (self.same_api or own is known) else own.kind
            lost = lost if self.same_api else own.lost or lost
            if lost:
                self._record_left_out(lost)
            if own is not known:
                yield replace(known, own=None)

    def _complete_empty_calls(self, choice: int) -> Iterable[ReplyEvent]:
        """Complete calls that were sent in pieces without arguments: the server declared the message complete."""
        for (call_choice, index), nesting in self.bridged_calls.pieces.items():
            if call_choice == choice and not nesting.begun:
                yield self._translate_event(CallDelta(index, arguments="{}", choice=choice), choice)

    def _strip_call_source(self, event: ReplyEvent) -> ReplyEvent:
        """Remove unknown fields from a call's object: they may contain another call."""
        if isinstance(event, Call) and event.call.source is not None:
            return replace(event, call=replace(event.call, source=self._select_call_fields(event.call.source)))
        if isinstance(event, CallDelta) and event.source is not None:
            return replace(event, source=self._select_call_fields(event.source))
        return event

    def _select_call_fields(self, source: object) -> dict[str, Any] | None:
        """Return the fields of a call's object in which no client finds another call; None if it is no object."""
        fields = self.encoder.call_fields
        return {key: value for key, value in source.items() if key in fields} if isinstance(source, dict) else None

    def _describe_fault(self, end: Finish, choice: int) -> str:
        """Describe why the end of a reply is an error for clients of another API; empty if it is none."""
        if end.reason == "failed":
            return f"T{describe_failed_end(end)[1:]}."
        calls = [nesting for (of, _), nesting in self.bridged_calls.pieces.items() if of == choice]
        is_cut = choice in self.bridged_calls.cut or any(nesting.is_cut or not nesting.begun for nesting in calls)
        if is_cut and not _is_cut_off(end):
            return "The server ended the reply in the middle of a tool call."
        return ""

    def _record_left_out(self, kind: str) -> None:
        self.left_out = self.left_out if kind in self.left_out else (*self.left_out, kind)

    def _translate_event(self, event: ReplyEvent, choice: int) -> ReplyEvent:
        """Convert an event to the equivalent of a server of the client's API."""
        match event:
            case CallDelta():
                key = choice, event.index
                so_far = self.bridged_calls.pieces.get(key, JsonNesting())
                pieces = {**self.bridged_calls.pieces, key: so_far.advance(event.arguments)}
                self.bridged_calls = replace(self.bridged_calls, pieces=pieces)
                return replace(event, source=None)
            case Call(call=call):
                if not call.name or not call.arguments or (self.breaks and is_cut(call.arguments)):
                    return Rewritten(event.raw, f"{call.name} {call.arguments}".strip())
                return replace(event, call=replace(call, source=None))
            case Finish() if reason := self._describe_fault(event, choice):
                return self._translate_event(Failure(reason, choice=choice), choice)
            case Failure():
                self.failure = event if event.message else Failure("The server broke off with an error.")
        return event
