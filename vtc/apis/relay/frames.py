"""Frames on their way out: they wait until what they say was read, and leave as they came or written anew.

A frame waits as long as something of its text is undecided, and those after it wait with it. What is decided of it
leaves before, unless only white space and back-ticks are left: then it waits whole, so that it can leave as it came.

It leaves as it came if both APIs are the same, nothing of it changed, no client misreads it and the client's numbers
are still the server's; where a policy is strict, only if the decoder knows all that it holds. All else is written anew
by the encoder of the client's API.

To a client of another API, a reply that the server ended well in the middle of a native call is an error, and so is
one that ended for a reason that is on no list: agents then retry.

A frame for which the encoder writes nothing (the start of a block) stays here until something after it leaves. It is
left out if the encoder has to write in its place.
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
    RefusalDelta,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)
from vtc.json_text import has_distinct_keys, is_unambiguous
from vtc.wire.framing import Frame

# What waits, and how much of it is decided once the text was read.

type Read = list[Event | BlockEnd | CallDelta]
"""The events that text became; a `BlockEnd` stands where one block of it was ended and the next begins, and a piece of
a call of upstream's where that leaves as it came."""


_ORIGIN_PLACES = ("", "chunk.", "choice.", "delta.", "event.", "candidate.", "content.", "part.", "line.", "message.")
_TOKEN_ORIGINS = frozenset(
    at + name for at in _ORIGIN_PLACES for name in ("logprobs", "logprobsResult", "token_ids", "hidden_states")
)
"""What repeats the text of its frame, by the kinds of `Origin`."""
_QUOTING_FIELDS = (
    *("annotations", "annotation", "citations", "citations_delta", "citationMetadata"),
    *("groundingMetadata", "groundingAttributions"),
)
_QUOTING_ORIGINS = frozenset(at + name for at in _ORIGIN_PLACES for name in _QUOTING_FIELDS)
"""What quotes the text so far, or says something of places in it."""


def _kind_of(event: ReplyEvent) -> str:
    return event.kind if isinstance(event, Origin) else ""


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
    altered: bool = False
    """True if its text is not sent as it was received."""
    mirrors: bool = False
    """True if it repeats text beside that: log probabilities, citations."""
    odd: bool = False
    """True if clients may read more in it than it says, or fail at it: it leaves written anew."""
    shared: bool = False
    """True if the frame holds other choices, too."""
    begun: bool = False
    """True once a part of it has left."""

    def render_text(self, start: int = 0) -> list[ReplyEvent]:
        """Return its text from a place on, as it came."""
        return _slice_frame(self, start, len(self.text))


def make_pending(frame: Frame, metadata: Sequence[FrameMetadata], failure: Failure | None = None) -> PendingFrame:
    """Make the pending frame of one that says more than its text."""
    origins = [item if isinstance(item, Origin) else getattr(item, "own", None) for item in (*metadata, failure)]
    unknown = mirrors = False
    for own in origins:
        if own is not None:
            unknown = unknown or not own.harmless
            mirrors = mirrors or own.kind in _TOKEN_ORIGINS or own.kind in _QUOTING_ORIGINS
    last = (failure,) if failure else ()
    said_after = (*select_after(metadata), *last)
    return PendingFrame(frame, before=select_before(metadata), after=said_after, unknown=unknown, mirrors=mirrors)


def select_before(metadata: Iterable[FrameMetadata]) -> tuple[FrameMetadata, ...]:
    """Return what is said before the text, the starts first."""
    first = [item for item in metadata if not _comes_last(item)]
    return tuple(sorted(first, key=lambda item: not isinstance(item, Start | BlockStart)))


def select_after(metadata: Iterable[FrameMetadata]) -> tuple[FrameMetadata, ...]:
    """Return what is said after the text."""
    return tuple(item for item in metadata if _comes_last(item))


def _comes_last(item: FrameMetadata) -> bool:
    if isinstance(item, Origin):
        return item.ends
    return isinstance(item, Usage) or (isinstance(item, Seal) and item.on == "text")


type SplitFrame = tuple[PendingFrame, list[ReplyEvent]]
"""A frame that leaves, or a part of one, and all that it says."""


def settle(
    frames: Sequence[PendingFrame], events: Read, *, ended: bool
) -> tuple[list[SplitFrame], deque[PendingFrame]]:
    """Give frames, in their order, what became of their text; return what leaves of them, and those that wait.

    `ended` says that the choice is: then the pieces of its calls that waited leave, too.
    """
    if len(frames) == len(events) == 1:
        first, event = frames[0], events[0]
        if type(event) is Text and event.raw == first.text and not (first.calls or first.refusal):
            return [(first, [*first.before, event, *first.after])], deque()  # nothing waits or changes, as mostly
    start = len(frames) - 1
    # All before a text that is decided wait for calls only, and after a long call they are many.
    while start and not 0 < len(frames[start - 1].text) == frames[start - 1].decided:
        start -= 1
    shares = [*frames[:start], *_share_events(frames[start:], events)]
    leave: list[SplitFrame] = []
    for share in shares:
        if share.decided < len(share.text) or (share.calls and not ended):
            break
        middle = _order_by_call(share) if share.calls else [*share.events, *share.after]
        leave.append((share, [*share.before, *middle]))
    wait = deque(shares[len(leave) :])
    if wait and wait[0].events and not wait[0].calls:
        first = wait[0]
        rest = first.text[first.decided :]
        if not (first.intact and rest.replace("`", " ").isspace()):
            leave.append((replace(first, after=(), intact=False), [*first.before, *first.events]))
            wait[0] = replace(first, before=(), text=rest, decided=0, events=(), intact=False, begun=True)
    return leave, wait


def _order_by_call(frame: PendingFrame) -> list[ReplyEvent]:
    """List what a frame says after its beginning, its calls in the order of their numbers, as pieces of some waited."""
    # Those of a call that was let go later than another of the same frame stand behind its text already.
    begun = [*takewhile(_is_piece, frame.after)]
    left = [event for event in frame.events if frame.intact and _is_piece(event)]
    text = [event for event in frame.events if not (frame.intact and _is_piece(event))]
    pieces = sorted((*left, *begun, *frame.calls), key=lambda piece: getattr(piece, "index", None) or 0)
    return [*text, *pieces, *frame.after[len(begun) :]]


def _is_piece(event: ReplyEvent) -> bool:
    return isinstance(event, CallDelta)


def _share_events(frames: Sequence[PendingFrame], events: Read) -> list[PendingFrame]:
    """Give each frame its share of the events, by their characters."""
    shares: list[PendingFrame] = []
    rest = iter(frames)
    here, last = next(rest), frames[-1]
    decided, share, intact, altered = here.decided, [*here.events], here.intact, here.altered
    pieces: list[ReplyEvent] = []  # of calls, which stand in the last frame, after its text
    is_silent = False  # the last share says nothing
    for event in events:
        if isinstance(event, CallDelta):
            pieces.append(event)
            continue
        left = size = 0 if isinstance(event, BlockEnd) else len(event.raw)
        kind = type(event) if isinstance(event, Text | Reasoning) else None
        changes = size > 0 and kind is not Text
        intact, altered = intact and not changes, altered or changes
        while True:
            end = min(decided + left, len(here.text))
            if end > decided and kind:
                if here.refusal and kind is Text:
                    share += _slice_frame(here, decided, end)
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
            says = share or intact or here.before or here.calls or here.after or here.begun or here.shared
            if says or not is_silent:  # of those in the middle of a call one is enough
                shares.append(replace(here, decided=decided, events=tuple(share), intact=intact, altered=altered))
            is_silent = not says
            here = next(rest)
            decided, share, intact = here.decided, [*here.events], here.intact and not changes
            altered = here.altered or changes
        if isinstance(event, Call | Rewritten):
            altered = True
            if here is last and not event.raw:  # it was decided at the end, after those that left in pieces
                share, pieces = [*share, *pieces], []
            intact = False
            refuses = here.refusal and decided + (not size) > len(here.text) - here.refusal
            share.append(RefusalDelta(event.text) if refuses and isinstance(event, Rewritten) else event)
        elif isinstance(event, CallPiece):
            intact, altered = False, True
            if event.name or event.arguments:
                share.append(CallDelta(event.number, event.id, event.name, event.arguments))
    shares += [replace(here, decided=decided, events=tuple(share), intact=intact, altered=altered), *rest]
    if pieces:
        shares[-1] = replace(shares[-1], events=(*shares[-1].events, *pieces))
    return shares


def _slice_frame(frame: PendingFrame, start: int, end: int) -> list[ReplyEvent]:
    """Return a part of a frame's text, the refusal at its end apart."""
    begun = max(start, min(end, len(frame.text) - frame.refusal))
    text, refusal = frame.text[start:begun], frame.text[begun:end]
    return [*([Text(text)] if text else []), *([RefusalDelta(refusal)] if refusal else [])]


# What leaves.

type SettledEntry = tuple[int, PendingFrame, Sequence[ReplyEvent]]
"""One choice's part of a frame that leaves, and all that it says."""

EMPTY_REPLY_MESSAGE = "The server ended the reply before it said anything."
MAX_REASON_CHARACTERS = 100
"""Characters of a server's word for the end of a reply that an error quotes."""


def describe_failed_end(end: Finish) -> str:
    """Say for what reason the server ended the reply."""
    return f"the server ended the reply with the reason {end.said[:MAX_REASON_CHARACTERS]!r}"


def _is_cut_off(end: Finish) -> bool:
    """True if the reply did not end well."""
    return end.reason in CUT_OFF


class BridgedCalls(msgspec.Struct, frozen=True):
    """The native calls that a client of another API was sent."""

    pieces: dict[tuple[int, int | None], JsonNesting] = {}
    """Those that were sent in pieces, by choice and number."""
    cut: frozenset[int] = frozenset()
    """The choices in which a native call lacks its end."""


class FrameWriter(msgspec.Struct):
    """Lets frames leave, and knows what the client was told. Copied for each frame: fields get new values.

    So does `encoder`: one that is to be told something is copied before.
    """

    encoder: Encoder
    same_api: bool = True
    """True if the server's API is the client's: frames may leave as they came."""
    strict: bool = False
    """True if nothing may leave that the decoder does not know."""
    deferred: tuple[bytes, ...] = ()
    """Frames that leave with what comes after them."""
    behind: bool = False
    """True if the encoder has to write what stood in frames that were left out."""
    renumbered: bool = False
    """True once frames have other numbers than they came with, for the rest of the reply."""
    ended: bool = False
    failure: Failure | None = None
    """The error by which a reply of another API ended."""
    has_written: bool = False
    """True once something was written."""
    bridged_calls: BridgedCalls = BridgedCalls()
    changed: frozenset[int] = frozenset()
    """The choices whose text was not sent as it was received."""
    breaks: bool = False
    """True if the reply ends in an error: a call that lacks its end becomes text, because a client may run any call."""
    left_out: tuple[str, ...] = ()
    """What did not leave, as no encoder or no policy takes it, for people."""
    ending: Frame | None = None
    """How upstream ended a reply whose end waits."""
    on_sent: Callable[[Iterable[ReplyEvent], int], object] | None = None
    """Takes what leaves of a choice, but for frames of plain text or reasoning that need not be read."""

    @property
    def in_step(self) -> bool:
        """True if frames still leave as they came, where nothing of them changes."""
        return self.same_api and not (self.renumbered or self.behind) and self.encoder.in_step

    def send(self, choice: int, left: Iterable[SplitFrame]) -> list[bytes]:
        """Let leave what is decided of a choice: each frame as it came if nothing of it changed."""
        out: list[bytes] = []
        if not self.same_api:
            left = [*left]
            self._record_cut_calls(choice, [event for _, says in left for event in says])
        for pending, says in left:
            if pending.altered:
                self.changed |= {choice}
            if pending.intact:
                out += self.send_whole(pending.frame, [(choice, pending, says)])
                continue
            if pending.mirrors:  # of its text, a part of which may be removed
                says = [event for event in says if _kind_of(event) not in _TOKEN_ORIGINS | _QUOTING_ORIGINS]
            if says:
                out += self.encode_events(says, choice, pending.frame, first=not pending.begun)
            elif not pending.begun:
                if self.deferred:  # without its text, a block whose start is kept may never begin
                    self.encode_events((), 0)
                self.renumbered = self.renumbered or self.encoder.counts
        return out

    def send_whole(self, frame: Frame, entries: Sequence[SettledEntry]) -> list[bytes]:
        """Let a frame leave of which nothing changed: as it came, if all that it holds may leave and is in step."""
        is_odd = entries[0][1].odd
        if self.changed:
            said = [says for _, _, says in entries]
            entries = [
                (choice, pending, self._drop_stale_mirrors(pending, says, choice)) for choice, pending, says in entries
            ]
            is_odd = is_odd or said != [says for _, _, says in entries]
        may_pass = self.same_api and not (is_odd or (self.strict and self._may_hide_more(frame, entries)))
        if may_pass and not (self.renumbered or self.behind):
            before, self.encoder = self.encoder, copy.copy(self.encoder)
            tells = False
            for choice, _, says in entries:
                tells = self.encoder.follow(says, choice) or tells
            if (heed := self.on_sent) and (self.encoder.in_step or not tells):
                for choice, _, says in entries:
                    heed(says, choice)
            if not tells and any(says for _, _, says in entries):
                self.deferred = (*self.deferred, frame.raw)
                return []
            if self.encoder.in_step:
                out, self.deferred = [*self.deferred, frame.raw], ()
                return out
            self.encoder = before
        return [piece for choice, _, says in entries for piece in self.encode_events(says, choice, frame)]

    def _drop_stale_mirrors(
        self, pending: PendingFrame, says: Sequence[ReplyEvent], choice: int
    ) -> Sequence[ReplyEvent]:
        """Leave out of a frame whose text stays what repeats text that was changed before, in the same block.

        A policy may have removed that, and clients show what stands in log probabilities and citations, too.
        """
        if choice not in self.changed:
            return says
        if any(isinstance(event, BlockEnd) for event in says):
            self.changed -= {choice}
        fields = _QUOTING_ORIGINS if pending.text else _TOKEN_ORIGINS | _QUOTING_ORIGINS
        return [event for event in says if _kind_of(event) not in fields] if pending.mirrors else says

    def _record_cut_calls(self, choice: int, events: Sequence[ReplyEvent]) -> None:
        """Record whether a choice that ends well for its server has a call that lacks its end, before that is sent."""
        if any(isinstance(event, Call) and is_cut(event.call.arguments) for event in events):
            self.bridged_calls = replace(self.bridged_calls, cut=self.bridged_calls.cut | {choice})
            self.breaks = self.breaks or any(isinstance(event, Finish) and not _is_cut_off(event) for event in events)

    def _may_hide_more(self, frame: Frame, entries: Sequence[SettledEntry]) -> bool:
        """True if a client may find more in a frame than the decoder knows."""
        is_known = not any(pending.unknown for _, pending, _ in entries)
        return not (is_known and self.encoder.framing.is_unambiguous(frame) and is_unambiguous(frame.data or b"null"))

    def encode_events(
        self, events: Iterable[ReplyEvent], choice: int, like: Frame | None = None, *, first: bool = True
    ) -> list[bytes]:
        """Let the encoder write something, in the place of the frame `like` or of a part of it.

        A client of another API is told one choice: no two APIs have several.
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

    def forward_now(self, frame: Frame) -> list[bytes]:
        """Let a frame leave that tells nothing, after those that stay here."""
        if not self.deferred:
            return [frame.raw]
        self.deferred = (*self.deferred, frame.raw)
        return []

    def end(self, frame: Frame | None = None) -> list[bytes]:
        """End the reply; `frame` is how upstream ended it."""
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
        """Let the end leave that waits: the model is not asked, or gave no answer."""
        assert isinstance(self.encoder, TurnEncoder)
        self.encoder = copy.copy(self.encoder)
        values = self.encoder.release_end()
        self.has_written, self.renumbered = self.has_written or bool(values), True
        return [*self.encoder.framing.encode(values, None), *self.end(self.ending)]

    def for_second_reply(self) -> FrameWriter:
        """Return what writes on in the same reply, for the answer to a question that the client knows nothing of."""
        encoder = copy.copy(self.encoder)
        assert isinstance(encoder, TurnEncoder)
        encoder.begin_second()
        return replace(self, encoder=encoder, renumbered=True, on_sent=None)

    def close(self) -> list[bytes]:
        """Return the frames that stayed here; for the end of the body, or after a failure."""
        out, self.deferred = [*self.deferred], ()
        return out

    def _drop_unknown_origins(self, events: Iterable[ReplyEvent], choice: int) -> Iterable[ReplyEvent]:
        """Leave out what only an unknown part of the server's API says; for a client of another, its objects, too."""
        for event in events:
            known = event
            if not self.same_api:
                if isinstance(event, Finish) and not (event.assumed or _is_cut_off(event)):
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
        """Complete the calls sent in pieces that have no arguments, as the server said that the message is complete."""
        for (of, index), nesting in self.bridged_calls.pieces.items():
            if of == choice and not nesting.begun:
                yield self._translate_event(CallDelta(index, arguments="{}", choice=choice), choice)

    def _strip_call_source(self, event: ReplyEvent) -> ReplyEvent:
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

    def _describe_fault(self, end: Finish, choice: int) -> str:
        """Say what makes the end of a reply an error for clients of another API; empty if nothing does."""
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
        """Tell a client of another API what its own server would have said."""
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
