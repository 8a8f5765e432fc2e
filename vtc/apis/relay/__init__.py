"""The relay: pairs the frames of a reply with the results of their deltas, for all APIs.

    frame -> decoder (server's API) -> deltas -> choice: reader and stages -> events
          -> pending frames: the decided part of each frame -> frame writer (client's API) -> bytes

A frame is decoded and encoded on copies of the relay's state, which replace it only if nothing failed: so after a
failure `release` returns exactly the frames that have not been sent.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis.contract import Decoded, Decoder, Encoder, ReplyEvent
from vtc.apis.fields import object_of, unwrap_envelope
from vtc.apis.relay.choice import (
    Choice,
    ChoicePart,
    Pipeline,
    adapt_reason,
    finish_choice,
    has_calls,
    read_frame,
    to_events,
)
from vtc.apis.relay.frames import (
    FrameWriter,
    PendingFrame,
    ReadEvents,
    SplitFrame,
    describe_failed_end,
    make_pending,
    select_after,
    select_before,
    settle_frames,
)
from vtc.events import CallDelta, Delta, Event, Failure, Finish, FrameMetadata, Seal, Text, Usage
from vtc.json_text import encode_json
from vtc.wire.framing import Frame

MAX_FRAMES_AT_ONCE = 2048
"""Maximum number of frames of text that are sent in one step. A call that is given up after a megabyte has 262,144
of them, for which all other streams would wait more than a second."""
MAX_CHOICES = 256
"""Maximum number of choices in one reply: twice as many as any server makes."""
NO_REASON = "the reply ended without a reason"
UNREADABLE_REST = "The rest of the server's reply could not be read."
BROKE_OFF = "the server broke off: its stream ended without a reason and without an end mark"


class LastFrame(NamedTuple):
    """The effect of a frame with a single delta: the frames that it sent, and those that are still pending."""

    frame: Frame
    delta: Delta
    sent: Sequence[SplitFrame]
    """The frames that were sent."""
    out: Sequence[bytes]
    """The bytes that were sent for them."""
    pending: Sequence[PendingFrame]
    is_alone: bool
    """True if the frame contained only the delta."""


class UnreadableFrame(ValueError):
    """A frame that is not forwarded because a policy lets nothing unread pass."""


class Relay[P: Pipeline]:
    """Turns the frames of one reply into bytes for the client."""

    def __init__(
        self,
        decoder: Decoder,
        encoder: Encoder,
        pipeline: Callable[[], P],
        *,
        same_api: bool = True,
        strict: bool = False,
        whole: bool = False,
    ) -> None:
        """Set up the relay of one reply.

        `same_api`: client and server speak the same API. `strict`: nothing may be sent unread. `whole`: the frames are
        those of a whole reply, whose end is certain.
        """
        self.decoder = decoder
        self.writer = FrameWriter(encoder, same_api, strict)
        self.pipelines: dict[int, P] = {}
        """The pipeline of each choice."""
        self._pipeline = pipeline
        self._choices: dict[int, Choice] = {}
        self.unsettled: dict[int, list[Text]] = {}
        """Decided text, by choice, that is deferred: it belongs to so many pending frames that they are sent in
        several steps."""
        self.queued: list[Frame] = []
        """Frames that are processed after the deferred text was sent."""
        self._last = Frame(b"", None)  # the last frame with deltas
        self.last_frame: LastFrame | None = None
        """The effect of the latest frame, if it had a single delta and only text resulted."""
        self.fault = ""
        """The reason why the reply did not end well although its connection did not break; for people."""
        self.is_whole = whole
        self.on_prompt_tokens: Callable[[int], None] | None = None
        """Called with the number of prompt tokens that the server counted."""
        self.on_error: Callable[[bytes], Failure | None] = lambda _: None
        """Called with the error, as JSON, that the server sent instead of the rest of the reply.

        It returns a replacement for the client, or None to forward the error.
        """

    def continue_reply(self, first: Relay[P]) -> None:
        """Continue the reply of another relay, whose end is held back."""
        self.writer = first.writer.for_second_reply()

    def feed(self, frame: Frame) -> list[bytes]:
        """Process a frame; return the bytes to send now. Raises `UnreadableFrame` in strict mode.

        After an error the state is unchanged.
        """
        self.last_frame, decoder = None, copy.copy(self.decoder)  # Step 1: decode on a copy.
        try:
            decoded = decoder.decode(frame)
        except Exception as error:
            if self.writer.strict:
                raise UnreadableFrame(type(error).__name__) from error
            raise
        if decoded is None and (inner := self._unwrap_envelope(frame)):
            return self.feed(inner)
        if decoded is None or decoded.keep_alive:  # Step 2: forward a frame without content at once.
            return self._forward_now(frame, decoded)
        frame, metadata = decoded.frame or frame, decoded.metadata
        if decoded.ends and (decoded.deltas or metadata):
            raise ValueError("the decoder returned the end of the reply and other content in one frame")
        deltas: Sequence[Delta] = decoded.deltas  # Step 3: look for an error or a failed end, and for usage.
        last, replacement = deltas[-1] if deltas else None, None
        if isinstance(last, Failure):
            deltas, last, replacement = self._without_error(frame, deltas, last)
        elif isinstance(last, Finish) and last.reason == "failed":
            self.fault = describe_failed_end(last)
        indices = {item.choice for item in (*deltas, *metadata)} if metadata or len(deltas) > 1 else ()
        if metadata and self.on_prompt_tokens:
            self._count(metadata)
        if decoded.ends or isinstance(last, Failure):  # Step 4: process the deltas; send the frames that they settle.
            writer = copy.copy(self.writer)
            out, choices = self._handle_end(writer, frame, metadata, last, reencodes=replacement is not None)
        elif len(indices) > 1:
            writer = copy.copy(self.writer)
            out, choices = self._feed_choices(writer, frame, decoded, sorted(indices))
        else:
            index = deltas[0].choice if deltas else min(indices, default=0)
            choice = self._choices.get(index) or self._begin(index)
            waiting, entry = choice.waiting, make_pending(frame, metadata) if metadata else PendingFrame(frame)
            entry = entry if decoded.clean else replace(entry, odd=True)
            choice, entry, events = read_frame(choice, entry, deltas)
            is_pending = not (events or choice.ended) and choice.waiting is waiting  # the frame decided nothing
            is_deferred = len(waiting) >= MAX_FRAMES_AT_ONCE and self._defers(choice, events)
            if is_deferred or (is_pending and (waiting or entry.text or entry.calls)):
                choice.waiting.append(entry)  # the common case inside a long call; nothing can fail any more
                self.decoder, self._choices[index], self._last = decoder, choice, frame if deltas else self._last
                if last and len(deltas) == 1 and decoded.clean and not (metadata or self.unsettled):
                    self.last_frame = LastFrame(frame, last, (), (), waiting, True)
                return []
            writer = copy.copy(self.writer)
            all_events = self._join_deferred(index, events) if self.unsettled else events
            settled_frames, waiting = settle_frames([*choice.waiting, entry], all_events, ended=choice.ended)
            out, choices = writer.send(index, settled_frames), [replace(choice, waiting=waiting)]
            is_text = len(deltas) == 1 and all(type(event) is Text for event in events)
            if last and is_text and not any(isinstance(item, Seal) for item in metadata):  # each seal is recorded
                self.last_frame = LastFrame(frame, last, settled_frames, out, waiting, not metadata)
        self.decoder, self.writer = decoder, writer  # Step 5: nothing failed, so replace the state.
        for choice in choices:
            self._choices[choice.index] = choice
        self._last = frame if deltas else self._last
        return out

    def _without_error(
        self, frame: Frame, deltas: Sequence[Delta], failure: Failure
    ) -> tuple[Sequence[Delta], Delta, Failure | None]:
        """Return the deltas of a frame without its error, its last delta or error, and the replacement of the error."""
        if replacement := self._replace_error(frame, failure, deltas):
            return (), replacement, replacement
        deltas = deltas[:-1]
        return deltas, deltas[-1] if deltas else failure, None

    def _replace_error(self, frame: Frame, failure: Failure, deltas: Sequence[Delta]) -> Failure | None:
        """Return an error that replaces the whole frame for the client; None to keep the frame."""
        has_content = any(isinstance(delta, CallDelta) or getattr(delta, "text", "") for delta in deltas)
        # A router sent an error together with the end of a choice, which on its own would look like a reply.
        is_lost = len(deltas) > 1 and not has_content and not self.writer.same_api
        return self.on_error(frame.data or b"") or (failure if is_lost else None)

    def _count(self, metadata: Sequence[FrameMetadata]) -> None:
        """Report the number of prompt tokens that the server counted."""
        for usage in metadata:
            if isinstance(usage, Usage) and usage.prompt and self.on_prompt_tokens:
                self.on_prompt_tokens(usage.prompt)

    def _unwrap_envelope(self, frame: Frame) -> Frame | None:
        """Unwrap a frame from a gateway's envelope; None if there is no envelope."""
        inner = unwrap_envelope(object_of(frame.data))
        if inner is None:
            return None
        framing = self.decoder.framing
        return Frame(framing.encode([inner], frame)[0], encode_json(inner))

    def _forward_now(self, frame: Frame, decoded: Decoded | None) -> list[bytes]:
        """Forward a frame without content, or one that does not belong to the API."""
        writer = self.writer
        if not writer.same_api or (writer.strict and decoded and frame.data is not None):
            keep_alive = writer.encoder.keep_alive()
            return [keep_alive] if keep_alive else []
        if writer.strict and not writer.encoder.framing.is_unambiguous(frame):
            raise UnreadableFrame("a comment contains data")
        if writer.strict and decoded is None and b"{" in (frame.data or b""):
            raise UnreadableFrame("it does not belong to this API")
        if decoded:
            return writer.forward_now(frame)
        if writer.encoder.counts:
            writer.record_number(frame)
        return [frame.raw]

    def finish(self, *, breaks: bool = False) -> list[bytes]:
        """End the reply: return the rest of the choices that the server did not finish.

        If it `breaks` off, nothing signals the end to the client, and a client of another API gets an error. For such a
        client a stream without a reason and without an end mark has broken off, too.
        """
        writer = copy.copy(self.writer)
        if not breaks and self._lacks_end(writer):
            breaks, self.fault = True, BROKE_OFF
        out, choices = _settle_choices(writer, self._end_choices(writer, complete=self.is_whole, breaks=breaks))
        if breaks and not writer.same_api and not writer.ended:
            out += writer.encode_events((Failure("The model server broke off."),), 0)
        if not breaks:
            out += writer.end()
        out += writer.close()
        self.writer = writer
        self._choices.update((choice.index, choice) for choice in choices)
        return out

    def break_bridge(self) -> list[bytes]:
        """End the reply with an error of the client's API after a fault; pending frames are dropped."""
        return [] if self.writer.ended else self.writer.encode_events((Failure(UNREADABLE_REST),), 0)

    def _lacks_end(self, writer: FrameWriter) -> bool:
        """Return True if a bridged stream with content has neither a reason nor an end mark."""
        choice = self._choices.get(0)
        return not (writer.same_api or writer.ended or self.is_whole or choice is None or choice.ended)

    def feed_text(self, index: int, frame: Frame, text: str, events: Sequence[Event]) -> list[bytes]:
        """Process a frame like the last one, which is pending, and return the bytes to send now.

        It contains only this text, which together with the text of the pending frames became these events.
        """
        choice, entry = self._choices[index], PendingFrame(frame, text)
        self._last = frame
        if not events:
            choice.waiting.append(entry)
            return []
        self.last_frame, writer = None, copy.copy(self.writer)
        if len(choice.waiting) >= MAX_FRAMES_AT_ONCE and self._defers(choice, events):
            choice.waiting.append(entry)
            return []
        settled, waiting = settle_frames([*choice.waiting, entry], [*events], ended=False)
        out = writer.send(index, settled)
        self.writer = writer
        self._choices[index] = replace(choice, waiting=waiting, lifted=choice.lifted or has_calls(events))
        return out

    def send_deferred(self) -> list[bytes]:
        """Send the next frames of deferred text."""
        out: list[bytes] = []
        for index, texts in [*self.unsettled.items()]:
            choice = self._choices[index]
            frames = [*islice(choice.waiting, MAX_FRAMES_AT_ONCE)]
            size = sum(len(entry.text) - entry.decided for entry in frames)
            now, later = _split_texts(texts, size)
            writer = copy.copy(self.writer)
            settled, waiting = settle_frames(frames, now, ended=choice.ended)
            out += writer.send(index, settled)
            self.writer = writer
            waiting.extend(islice(choice.waiting, len(frames), None))
            self._choices[index] = replace(choice, waiting=waiting)
            self.unsettled[index] = later
            if not later:
                del self.unsettled[index]
        return out

    def _defers(self, choice: Choice, events: Sequence[object]) -> bool:
        """Defer the events of very many frames if they are only text; False if they are not."""
        texts = [event for event in events if type(event) is Text]
        before = self.unsettled.get(choice.index, [])
        if len(texts) < len(events) or not (before or texts):
            return False
        self.unsettled[choice.index] = [*before, *texts]
        return True

    def _join_deferred(self, index: int, events: ReadEvents) -> ReadEvents:
        """Return the events of a choice after its deferred text."""
        return [*self.unsettled.pop(index, ()), *events]

    def drop_pending(self) -> None:
        """Drop the last frame, which was pending: the fast path has already forwarded it."""
        if self.last_frame:
            self._choices[self.last_frame.delta.choice].waiting.clear()

    def release(self) -> list[bytes]:
        """Return all pending frames as received; used after a failure."""
        out: list[bytes] = []
        self.unsettled.clear()
        for choice in self._choices.values():
            while choice.waiting:
                entry = choice.waiting.popleft()
                text = entry.render_text(entry.decided if entry.begun else 0)
                events = [*entry.before, *text, *entry.calls, *entry.after]
                if entry.begun or entry.shared:
                    out += self.writer.encode_events(events, choice.index, entry.frame, first=not entry.begun)
                else:
                    out += self.writer.send_whole(entry.frame, [(choice.index, entry, events)])
        return [*out, *self.writer.close()]

    def pass_through(self, frame: Frame) -> list[bytes]:
        """Forward a frame after a failure: as received, unless earlier frames were renumbered."""
        if self.writer.in_step:
            return [*self.writer.close(), frame.raw]
        decoded = self.decoder.decode(frame)
        if decoded is None or decoded.keep_alive:
            return [frame.raw]
        events: list[ReplyEvent] = [
            *select_before(decoded.metadata),
            *to_events(decoded.deltas),
            *select_after(decoded.metadata),
        ]
        out = self.writer.encode_events(events, 0, frame) if events or not decoded.ends else []
        return [*out, *self.writer.end(frame)] if decoded.ends else out

    def _begin(self, index: int) -> Choice:
        """Begin a choice."""
        if len(self._choices) >= MAX_CHOICES:
            raise ValueError(f"the reply has more than {MAX_CHOICES} choices")
        pipeline = self.pipelines[index] = self._pipeline()
        reencodes = self.writer.strict or not self.writer.same_api
        bridged = not self.writer.same_api
        choice = self._choices[index] = Choice(index, pipeline, deque(), reencodes=reencodes, bridged=bridged)
        return choice

    def _feed_choices(
        self, writer: FrameWriter, frame: Frame, decoded: Decoded, indices: Sequence[int]
    ) -> tuple[list[bytes], list[Choice]]:
        """Process a frame of several choices: as a whole if nothing changes, else by choice."""
        parts = []
        for index in indices:
            deltas = [delta for delta in decoded.deltas if delta.choice == index]
            entry = make_pending(frame, [item for item in decoded.metadata if item.choice == index])
            choice = self._choices.get(index) or self._begin(index)
            choice, entry, events = read_frame(choice, replace(entry, shared=True, odd=not decoded.clean), deltas)
            parts.append((choice, entry, self._join_deferred(index, events) if self.unsettled else events))
        whole = []
        for choice, entry, events in parts:
            settled, pending = settle_frames([*choice.waiting, entry], events, ended=choice.ended)
            if len(settled) == 1 and not pending and settled[0][0].intact:
                whole.append((choice.index, *settled[0]))
        if len(whole) == len(parts):
            return writer.send_whole(frame, whole), [replace(choice, waiting=deque()) for choice, _, _ in parts]
        return _settle_choices(
            writer, ((choice, replace(entry, intact=False), events) for choice, entry, events in parts)
        )

    def _handle_end(
        self,
        writer: FrameWriter,
        frame: Frame,
        metadata: Sequence[FrameMetadata],
        last: Delta | None,
        *,
        reencodes: bool,
    ) -> tuple[list[bytes], list[Choice]]:
        """Process the frame by which the server ended or broke off the reply; `reencodes`: it is encoded again."""
        if not isinstance(last, Failure):
            out, choices = _settle_choices(writer, self._end_choices(writer, complete=True))
            return [*out, *writer.end(frame)], choices
        out, choices = _settle_choices(writer, self._end_choices(writer, complete=False, breaks=True))
        entry, choice = make_pending(frame, metadata, last), last.choice
        events = [*entry.before, *entry.after]
        last_bytes = (
            writer.encode_events(events, choice, frame)
            if reencodes
            else writer.send_whole(frame, [(choice, entry, events)])
        )
        return [*out, *last_bytes], choices

    def _end_choices(self, writer: FrameWriter, *, complete: bool, breaks: bool = False) -> Iterator[ChoicePart]:
        """End the choices that the server did not finish; one with calls gets a reason, unless the reply breaks off.

        Native calls must be complete for that, unless the server announced calls as the reason.
        """
        writer.breaks = breaks
        for choice in self._choices.values():
            if choice.ended:
                continue
            self.fault = self.fault or ("" if breaks else NO_REASON)
            has_reason = choice.owes_end or self.is_whole
            choice, events, pieces, _, fate = finish_choice(choice, [], complete=complete, has_reason=has_reason)
            entry = PendingFrame(self._last, after=(*pieces,), intact=False, begun=True)
            has_made_calls = choice.lifted or choice.whole or fate == "written"
            needs_reason = choice.owes_end or (has_made_calls and not choice.cut)
            if (needs_reason or not writer.same_api) and not breaks:
                reason = adapt_reason("stop", choice, fate)
                entry = replace(entry, after=(*pieces, Finish(reason, choice.index, is_assumed=True)))
            yield choice, entry, self._join_deferred(choice.index, events) if self.unsettled else events


def _settle_choices(writer: FrameWriter, parts: Iterable[ChoicePart]) -> tuple[list[bytes], list[Choice]]:
    """Send the decided part of some choices; return the bytes and the updated choices."""
    out: list[bytes] = []
    choices: list[Choice] = []
    for choice, entry, events in parts:
        settled, waiting = settle_frames([*choice.waiting, entry], events, ended=choice.ended)
        out += writer.send(choice.index, settled)
        choices.append(replace(choice, waiting=waiting))
    return out, choices


def _split_texts(texts: Iterable[Text], size: int) -> tuple[ReadEvents, list[Text]]:
    """Split texts after `size` characters."""
    now: ReadEvents = []
    later: list[Text] = []
    for text in texts:
        first, rest = text.raw[:size], text.raw[size:]
        size -= len(first)
        if first:
            now.append(Text(first))
        if rest:
            later.append(Text(rest))
    return now, later
