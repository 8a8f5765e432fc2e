"""The choices of a reply: their deltas pass through the reader and the stages, and native calls are forwarded or
re-encoded.

The pipeline decides which native calls are forwarded piece by piece. Every other one is buffered until its end, which
shows when another call begins. A choice is immutable; each frame makes a new one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import ToolCallAccumulator, is_cut, is_whole, parse_object
from vtc.apis.contract import Decoded, ReplyEvent
from vtc.apis.relay.pending import PendingFrame, ReadEvents, make_pending
from vtc.events import (
    CUT_OFF,
    NATIVE,
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    CallPiece,
    Delta,
    Event,
    Finish,
    Reason,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Start,
    Text,
    TextDelta,
    ToolCall,
)
from vtc.wire.framing import Frame

MAX_CHOICES = 256
"""Maximum number of choices in one reply: twice as many as any server makes."""
MAX_FRAMES_AT_ONCE = 2048
"""Maximum number of frames of text that are sent in one step. A call that is given up after a megabyte has 262,144
of them, for which all other streams would wait more than a second."""
MAX_BUFFERED_CALLS = 512
"""Maximum number of buffered native calls in one message: all are processed at its end, while every other stream
waits."""


class SentCall(Protocol):
    """A native call that was sent as it was received."""

    @property
    def call(self) -> ToolCall: ...
    @property
    def fault(self) -> str:
        """The fault of its arguments; empty if they are an object."""
        ...


class Pipeline(Protocol):
    """The stages of one choice: text in, events out. The `raw` of all events, joined, is that text."""

    @property
    def structured(self) -> bool:
        """True if the client reads native calls."""
        ...

    @property
    def takes_calls(self) -> bool:
        """True if native calls go through `finish`; if not, they pass through."""
        ...

    @property
    def guarded(self) -> bool:
        """True if no call may reach the client before a policy has checked it."""
        ...

    def feed(self, text: str) -> list[Event]: ...
    def record_reasoning(self, text: str) -> None:
        """Record reasoning that the server separated itself: then the text is not searched for any."""

    def process_piece(self, delta: CallDelta) -> CallDelta | None:
        """Check or change a piece of a native call; return the piece to send now, or None if its call is buffered."""
        ...

    def process_calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Process buffered native calls that are complete; the message continues."""
        ...

    def pause(self) -> list[Event]:
        """End a block of text; the message continues with another."""
        ...

    def release(self) -> list[Event]:
        """Return buffered text, because the server makes native calls; later text is plain text."""
        ...

    def end_calls(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        """End the native calls that were forwarded; return the missing part of each, by its number."""
        ...

    @property
    def sent_calls(self) -> Sequence[SentCall]:
        """The native calls that were sent as they were received; known after `end_calls`."""
        ...

    def finish(self, *, complete: bool, calls: Sequence[ToolCall] = ()) -> list[Event]:
        """End the message; `calls` are the buffered native calls."""
        ...

    def record_late_content(self) -> None:
        """Record that the server continued after the end of its message, and that this was dropped."""


type ChoicePart = tuple[Choice, PendingFrame, ReadEvents]
"""One choice's part of a frame: it is pending until the events settle it."""


class Choice(msgspec.Struct, frozen=True):
    """One choice of the reply; replaced with every frame."""

    index: int
    pipeline: Pipeline
    waiting: deque[PendingFrame]
    native: bool = False
    """True once the server makes native calls."""
    paused: bool = False
    """True after the end of a block, until the message continues."""
    refusing: bool = False
    """True while the text is a refusal: a block ends where it begins."""
    kept: bool = False
    """True once native calls were sent in their own frames."""
    stuck: bool = False
    """True once another call began before a buffered one was complete: then all of them are buffered until the end."""
    lifted: bool = False
    """True once the client was sent calls that the server did not make natively."""
    owes_end: bool = False
    """True once the server announced the end of a choice whose calls have not arrived."""
    ended: bool = False
    whole: bool = False
    """True after its end if the server made native calls and all of them are complete."""
    cut: bool = False
    """True after its end if a native call lacks the end of its arguments."""
    reencodes: bool = False
    """True if buffered calls are always re-encoded."""
    bridged: bool = False
    """True if the client speaks another API, for which a cut call makes the end of the reply an error."""


class Choices[P: Pipeline]:
    """All choices of one reply."""

    def __init__(self, make_pipeline: Callable[[], P], *, same_api: bool, reencodes: bool) -> None:
        self.by_index: dict[int, Choice] = {}
        """Each choice with its pending frames."""
        self.pipelines: dict[int, P] = {}
        """The pipeline of each choice."""
        self.unsettled: dict[int, list[Text]] = {}
        """Decided text, by choice, that is deferred: it belongs to so many pending frames that they are sent in
        several steps."""
        self._make_pipeline = make_pipeline
        self._same_api = same_api
        self._reencodes = reencodes

    def read(self, frame: Frame, decoded: Decoded, deltas: Sequence[Delta]) -> list[ChoicePart]:
        """Read the deltas of a frame for its choices; return the parts to send, none if the frame is pending."""
        metadata, parts = decoded.metadata, list[ChoicePart]()
        indices = sorted({item.choice for item in (*deltas, *metadata)}) if metadata or len(deltas) > 1 else ()
        is_shared = len(indices) > 1
        for index in indices or [deltas[0].choice if deltas else 0]:
            own = [delta for delta in deltas if delta.choice == index] if is_shared else deltas
            # Step 1: make the pending frame.
            choice = self.by_index.get(index) or self._begin(index)
            if metadata:
                items = [item for item in metadata if item.choice == index] if is_shared else metadata
                entry = make_pending(frame, items)
            else:
                entry = PendingFrame(frame)
            if is_shared or not decoded.clean:
                entry = replace(entry, shared=is_shared, odd=not decoded.clean)
            # Step 2: read the deltas; a single text is the common case, above all inside a long call.
            delta, waiting = own[0] if len(own) == 1 else None, choice.waiting
            is_paused = choice.ended or choice.paused or choice.refusing
            if isinstance(delta, TextDelta) and delta.text and not (delta.refusal or is_paused):
                events: ReadEvents = [*choice.pipeline.feed(delta.text)]
                entry = replace(entry, text=delta.text)
                if not choice.lifted and any(type(event) in (Call, CallPiece) for event in events):
                    choice = replace(choice, lifted=True)
            else:
                choice, entry, events = _read_each(choice, entry, own)
            # Step 3: the frame is pending if it decided nothing, or if it decided the text of too many frames.
            decides = events or choice.ended or choice.waiting is not waiting
            may_wait = not decides and (waiting or entry.text or entry.calls)
            is_long = len(waiting) >= MAX_FRAMES_AT_ONCE
            if not is_shared and ((is_long and self.defers(choice, events)) or may_wait):
                choice.waiting.append(entry)  # nothing can fail any more
                self.by_index[index] = choice
            else:
                before = self.unsettled.pop(index, ()) if self.unsettled else ()
                parts.append((choice, entry, [*before, *events]))
        return parts

    def _begin(self, index: int) -> Choice:
        """Begin a choice."""
        if len(self.by_index) >= MAX_CHOICES:
            raise ValueError(f"the reply has more than {MAX_CHOICES} choices")
        pipeline = self.pipelines[index] = self._make_pipeline()
        choice = self.by_index[index] = Choice(
            index, pipeline, deque(), reencodes=self._reencodes, bridged=not self._same_api
        )
        return choice

    def end(self, last: Frame, *, complete: bool, is_whole: bool, breaks: bool, message: str = "") -> list[ChoicePart]:
        """End the choices that the server did not finish; one with calls gets a reason, unless the reply breaks off.

        So does each one if VTC ends the reply with a `message` to the client.

        `last` is the last frame with deltas. Native calls must be complete for that, unless the server announced calls
        as the reason, or the reply `is_whole`.
        """
        parts: list[ChoicePart] = []
        for choice in self.by_index.values():
            if choice.ended:
                continue
            has_reason = choice.owes_end or is_whole
            choice, events, pieces, _, fate = _finish_choice(choice, [], complete=complete, has_reason=has_reason)
            entry = PendingFrame(last, after=(*pieces,), intact=False, begun=True)
            has_made_calls = choice.lifted or choice.whole or fate == "written"
            needs_reason = choice.owes_end or (has_made_calls and not choice.cut)
            if (needs_reason or message or not self._same_api) and not breaks:
                reason = _adapt_reason("stop", choice, fate)
                texts = (Rewritten("", message),) if message else ()
                entry = replace(entry, after=(*pieces, *texts, Finish(reason, choice.index, is_assumed=True)))
            parts.append((choice, entry, [*self.unsettled.pop(choice.index, ()), *events]))
        return parts

    @property
    def has_open(self) -> bool:
        """True if the server has not ended a choice."""
        return not all(choice.ended for choice in self.by_index.values())

    def defers(self, choice: Choice, events: Sequence[object]) -> bool:
        """Defer the events of very many frames if they are only text; False if they are not."""
        texts = [event for event in events if type(event) is Text]
        before = self.unsettled.get(choice.index, [])
        if len(texts) < len(events) or not (before or texts):
            return False
        self.unsettled[choice.index] = [*before, *texts]
        return True


type CallFate = Literal["none", "kept", "written"]
"""The fate of native calls: there are none, they are sent in their own frames, or they are re-encoded."""


def to_events(deltas: Iterable[Delta]) -> list[ReplyEvent]:
    """Convert deltas to events without any stage."""
    return [
        (RefusalText(delta.text) if delta.refusal else Text(delta.text)) if isinstance(delta, TextDelta) else delta
        for delta in deltas
    ]


def _read_each(choice: Choice, entry: PendingFrame, deltas: Sequence[Delta]) -> ChoicePart:
    pipeline = choice.pipeline
    events: ReadEvents = []
    calls: list[CallDelta] = []
    reasoning: list[ReplyEvent] = []
    after: list[ReplyEvent] = []
    text, intact = "", True
    for delta in deltas:
        if choice.ended:  # the server continued after its end
            if pipeline.guarded and not (pipeline.structured and isinstance(delta, TextDelta)):
                pipeline.record_late_content()
                intact = False
            elif isinstance(delta, TextDelta):
                text += delta.text
                events += [Text(delta.text)] if delta.text else []
            else:
                after += to_events([delta])
            continue
        choice, more = _begin_block(choice, delta)
        events += more
        match delta:
            case TextDelta():
                text += delta.text
                if delta.text:
                    events += pipeline.feed(delta.text)
            case ReasoningDelta():
                pipeline.record_reasoning(delta.text)
                reasoning.append(delta)
            case CallDelta():
                choice, more, calls, unchanged = _read_call(choice, delta, calls)
                events += more
                intact = intact and unchanged
            case BlockEnd():
                choice = replace(choice, paused=True)
                after.append(delta)
            case Finish(is_early=True) if not (choice.lifted or has_calls(events)):
                choice, intact = replace(choice, owes_end=True), False
            case Finish(reason=reason):
                choice, buffered_pieces = replace(choice, lifted=choice.lifted or has_calls(events)), len(calls)
                complete = reason not in CUT_OFF
                choice, more, pieces, calls, fate = _finish_choice(
                    choice, calls, complete=complete, has_reason=complete
                )
                client_reason = _adapt_reason(reason, choice, fate)
                events += more
                after += pieces
                intact = intact and not pieces and len(calls) == buffered_pieces
                after.append(delta if client_reason == reason else replace(delta, reason=client_reason))
                intact = intact and client_reason == reason and not (calls and fate == "written")
                calls = [] if fate == "written" else calls
    if not choice.lifted and has_calls(events):
        choice = replace(choice, lifted=True)
    before = entry.before
    if reasoning:
        starts = sum(isinstance(event, Start | BlockStart) for event in before)
        before = (*before[:starts], *reasoning, *before[starts:])
    entry = replace(entry, before=before, text=text, calls=(*calls,), after=(*after, *entry.after), intact=intact)
    return choice, replace(entry, refusal=_count_refusal(deltas)), events


def _read_call(
    choice: Choice, piece: CallDelta, calls: list[CallDelta]
) -> tuple[Choice, ReadEvents, list[CallDelta], bool]:
    """Send a piece of a native call or buffer it with `calls`; return also whether it is sent as received."""
    pipeline = choice.pipeline
    events: ReadEvents = []
    if pipeline.structured and not choice.native:
        choice = replace(choice, native=True)
        events += pipeline.release()
    if piece.name:
        choice, more = _end_waiting_calls(choice, piece)
        events += more
    # A call must not overtake another one that is still buffered.
    must_wait = bool(piece.name) and (choice.stuck or any(call.index != piece.index for call in calls))
    sent_piece: CallDelta | None = piece
    if pipeline.takes_calls:
        sent_piece = None if must_wait else pipeline.process_piece(piece)
    if sent_piece is None:
        return choice, events, [*calls, piece], True
    choice = replace(choice, kept=True)
    if any(entry.calls for entry in choice.waiting):
        choice = replace(choice, waiting=deque(_release_call_pieces(entry, piece) for entry in choice.waiting))
    events += [call for call in calls if call.index == piece.index]
    if sent_piece.name or sent_piece.arguments or sent_piece is piece:
        events.append(sent_piece)
    clean = piece.clean or not pipeline.takes_calls
    return choice, events, [call for call in calls if call.index != piece.index], sent_piece is piece and clean


def _begin_block(choice: Choice, delta: Delta) -> tuple[Choice, ReadEvents]:
    """End the previous block of text if this delta begins another: after its end, or at the start of a refusal."""
    is_ended = choice.paused and not isinstance(delta, BlockEnd | Finish)
    refusing = delta.refusal if isinstance(delta, TextDelta) and delta.text else choice.refusing
    if not is_ended and refusing == choice.refusing:
        return choice, []
    ended: ReadEvents = [*choice.pipeline.pause(), *([BlockEnd(choice.index)] if is_ended else [])]
    return replace(choice, paused=choice.paused and not is_ended, refusing=refusing), ended


def _count_refusal(deltas: Sequence[Delta]) -> int:
    """Count the characters of a refusal, which follows all other text of its frame."""
    texts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    begun = next((place for place, delta in enumerate(texts) if delta.refusal), len(texts))
    return sum(len(delta.text) for delta in texts[begun:])


def has_calls(events: Iterable[object]) -> bool:
    """Return True if the client is sent a call or a piece of one."""
    kinds = [*map(type, events)]
    return Call in kinds or CallPiece in kinds


def _finish_choice(
    choice: Choice, calls: Sequence[CallDelta], *, complete: bool, has_reason: bool
) -> tuple[Choice, ReadEvents, list[CallDelta], list[CallDelta], CallFate]:
    """End a choice; return also the last pieces of calls that were sent, and the pieces of `calls` that are still
    buffered.

    With `has_reason`, the server sent a reason that completes calls without arguments.
    """
    # Step 1: release the last pieces of calls that were sent.
    ended = choice.pipeline.end_calls(complete=complete)
    placed: set[int | None] = set()
    if [entry for entry in choice.waiting if entry.calls]:  # faster than `any`, and a long call has many frames
        choice = replace(choice, waiting=deque(_release_last_pieces(entry, ended, placed) for entry in choice.waiting))
    last, calls = _last_pieces(calls, ended, placed)
    pieces = [*last, *(piece for number, piece in ended.items() if piece and number not in placed)]
    # Step 2: assemble the buffered calls and end the pipeline with them.
    gathered, clean = _collect_calls(choice, calls, complete=has_reason)
    events = choice.pipeline.finish(complete=complete, calls=gathered)
    # Step 3: find out which calls are complete, and how the buffered ones are sent.
    sent = choice.pipeline.sent_calls if choice.kept else ()
    are_whole = all(parse_object(call.arguments) is not None for call in gathered)
    faulty = [call.call for call in sent if call.fault]
    whole = are_whole and bool(gathered if not choice.kept else sent) and not faulty
    made = [event.call for event in events if isinstance(event, Call) and event.dialect == NATIVE]
    cut = [call for call in [*faulty, *made] if is_cut(call.arguments)]
    choice = replace(choice, ended=True, whole=whole, cut=bool(cut))
    choice, remaining_events, fate = _decide_calls(choice, gathered, events, clean=clean)
    return choice, remaining_events, pieces, calls, fate


type Missing = Mapping[int | None, CallDelta | None]
"""The missing parts of calls that were sent, by their numbers; None for a call that lacks nothing."""


def _release_last_pieces(entry: PendingFrame, missing: Missing, placed: set[int | None]) -> PendingFrame:
    """Release the last pieces of these calls, which were buffered for the end of the message."""
    last, calls = _last_pieces(entry.calls, missing, placed)
    if len(calls) == len(entry.calls):
        return entry
    own = [piece for piece in entry.calls if piece not in calls]
    intact = entry.intact and last == own and all(piece.clean for piece in own)
    return replace(entry, calls=(*calls,), after=(*last, *entry.after), intact=intact)


def _last_pieces(
    pieces: Sequence[CallDelta], missing: Missing, placed: set[int | None]
) -> tuple[list[CallDelta], list[CallDelta]]:
    """Separate the buffered pieces of calls that were sent from those of other calls.

    The missing part of such a call replaces all its pieces, once: `placed` are the numbers of the calls that have it.
    """
    last: list[CallDelta] = []
    rest: list[CallDelta] = []
    for piece in pieces:
        if piece.name or piece.index not in missing:
            rest.append(piece)
        elif (end := missing[piece.index]) is None:
            last.append(piece)
        elif piece.index not in placed:
            placed.add(piece.index)
            last.append(end)
    return last, rest


def _end_waiting_calls(choice: Choice, begins: CallDelta) -> tuple[Choice, ReadEvents]:
    """Process the calls of pending frames when another call `begins`."""
    pieces = [piece for entry in choice.waiting for piece in entry.calls]
    if not pieces or choice.stuck or pieces[0].index in (None, begins.index):
        return choice, []
    if any(entry.text[entry.decided :].strip() for entry in choice.waiting):
        return replace(choice, stuck=True), []  # a call must not overtake earlier text
    arguments: dict[int | None, list[str]] = defaultdict(list)
    for piece in pieces:
        arguments[piece.index].append(piece.arguments)
    if {None, begins.index} & arguments.keys() or not all(is_whole("".join(parts)) for parts in arguments.values()):
        return replace(choice, stuck=True), []
    gathered, clean = _collect_calls(choice, (), complete=True)
    choice, events, fate = _decide_calls(choice, gathered, choice.pipeline.process_calls(gathered), clean=clean)
    if fate == "kept":
        waiting = deque(replace(entry, calls=(), after=(*entry.calls, *entry.after)) for entry in choice.waiting)
        choice = replace(choice, waiting=waiting, kept=True)
    return choice, events


def _collect_calls(choice: Choice, calls: Sequence[CallDelta], *, complete: bool) -> tuple[list[ToolCall], bool]:
    """Assemble the buffered calls; return also whether their pieces are clean.

    `complete`: the server ended the message well.
    """
    accumulated = ToolCallAccumulator([*[piece for entry in choice.waiting for piece in entry.calls], *calls])
    gathered = accumulated.calls(complete=complete)
    if len(gathered) > MAX_BUFFERED_CALLS and choice.pipeline.takes_calls:
        raise ValueError(f"the reply has more than {MAX_BUFFERED_CALLS} calls")
    return gathered, accumulated.clean


def _decide_calls(
    choice: Choice, gathered: Sequence[ToolCall], events: list[Event], *, clean: bool
) -> tuple[Choice, ReadEvents, CallFate]:
    """Decide whether native calls are sent in their own frames: they must be clean, and no stage may have changed them.

    They are re-encoded if nothing may be sent unread, because the rest of their frames may contain another call, and
    for a client of another API, which gets whole calls.
    """
    if not gathered:
        return replace(choice, lifted=choice.lifted or has_calls(events)), [*events], "none"
    processed = [event.call for event in events if isinstance(event, Call)]
    rewritten = any(isinstance(event, Rewritten) for event in events)
    if clean and not rewritten and not choice.reencodes and _is_same(processed, gathered):
        return choice, [event for event in events if not isinstance(event, Call)], "kept"
    waiting = deque(map(_without_calls, choice.waiting))
    return replace(choice, waiting=waiting, lifted=choice.lifted or has_calls(events)), [*events], "written"


def _release_call_pieces(entry: PendingFrame, piece: CallDelta) -> PendingFrame:
    """Release the pieces of a call that were buffered for its beginning."""
    if not entry.calls:
        return entry
    begun = tuple(call for call in entry.calls if call.index == piece.index)
    rest = tuple(call for call in entry.calls if call.index != piece.index)
    intact = entry.intact and all(piece.clean for piece in begun)
    return replace(entry, calls=rest, after=(*begun, *entry.after), intact=intact)


def _is_same(calls: Sequence[ToolCall], gathered: Sequence[ToolCall]) -> bool:
    """Return True if calls are unchanged; an id for a call that had none makes no difference."""
    return len(calls) == len(gathered) and all(
        (call.name, call.arguments, call.id) == (own.name, own.arguments, own.id or call.id)
        for call, own in zip(calls, gathered, strict=True)
    )


def _without_calls(entry: PendingFrame) -> PendingFrame:
    return replace(entry, calls=(), intact=False) if entry.calls else entry


def _adapt_reason(reason: Reason, choice: Choice, fate: CallFate) -> Reason:
    """Return the finish reason that matches the calls that the client was sent."""
    if choice.cut and not choice.bridged and reason not in CUT_OFF:
        return "length"
    if choice.lifted or choice.kept or fate == "kept":
        return reason if reason in CUT_OFF or reason == "other" else "tool_calls"
    return "stop" if reason == "tool_calls" and (fate == "written" or not choice.native) else reason
