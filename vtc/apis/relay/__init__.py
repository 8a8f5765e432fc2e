"""The relay: pairs the frames of a reply with the results of their deltas, for all APIs.

    frame -> decoder (server's API) -> deltas -> choices: reader and stages -> events
          -> pending frames: the decided part of each frame -> writer (client's API) -> bytes

A frame is decoded and encoded on copies of the relay's state, which replace it only if nothing failed: so after a
failure `release` returns exactly the frames that have not been sent.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis.contract import Decoder, Encoder, ReplyEvent
from vtc.apis.fields import unwrap_frame
from vtc.apis.relay.choice import MAX_FRAMES_AT_ONCE, Choices, Pipeline, has_calls, to_events
from vtc.apis.relay.pending import PendingFrame, ReadEvents, select_after, select_before
from vtc.apis.relay.translator import EventTranslator, describe_failed_end
from vtc.apis.relay.writer import FrameWriter, SplitFrame, UnreadableFrame
from vtc.events import CallDelta, Delta, Event, Failure, Finish, FrameMetadata, Seal, Text, TextDelta, Usage
from vtc.wire.framing import Frame

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
        cites: bool = True,
    ) -> None:
        """Set up the relay of one reply.

        `same_api`: client and server speak the same API. `strict`: nothing may be sent unread. `whole`: the frames are
        those of a whole reply, whose end is certain. `cites`: the client's API has citations (`Api.cites`).
        """
        self.decoder = decoder
        self.choices = Choices(pipeline, same_api=same_api, reencodes=strict or not same_api)
        translator = EventTranslator(encoder.call_fields, same_api, strict, cites)
        self.writer = FrameWriter(encoder, translator, same_api, strict)
        self.queued: list[Frame] = []
        """Frames that are processed after the deferred text was sent."""
        self._last = Frame(b"", None)  # the last frame with deltas
        self.last_frame: LastFrame | None = None
        """The effect of the latest frame, if it had a single delta and only text resulted."""
        self.fault = ""
        """The reason why the reply did not end well although its connection did not break; for people."""
        self.dropped: dict[str, None] = {}
        """The kinds of frames that were dropped because no client of their API can parse them; for people."""
        self.is_whole = whole
        self.stop_message = ""
        """The message to the client if VTC ends the reply before the server does."""
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
        # Step 1: decode on a copy of the decoder; a frame without content is forwarded at once.
        self.last_frame, decoder = None, copy.copy(self.decoder)
        try:
            decoded = decoder.decode(frame)
            if decoded is None and (inner := unwrap_frame(frame, decoder.framing)):
                frame, decoded = inner, decoder.decode(inner)
        except Exception as error:
            if self.writer.strict:
                raise UnreadableFrame(type(error).__name__) from error
            raise
        if decoded is None or decoded.keep_alive:
            return self.writer.forward_now(frame, decoded)
        if decoded.dropped:
            self.decoder, self.dropped = decoder, self.dropped | {decoded.dropped: None}
            return []
        # Step 2: find an error or a failed end, and the number of prompt tokens.
        frame, metadata, deltas = decoded.frame or frame, decoded.metadata, decoded.deltas
        last, replacement = deltas[-1] if deltas else None, None
        if isinstance(last, Failure):
            deltas, last, replacement = self._split_failure(frame, deltas, last)
        elif isinstance(last, Finish) and last.reason == "failed":
            self.fault = describe_failed_end(last)
        if decoded.ends and (deltas or metadata):
            raise ValueError("the decoder returned the end of the reply and other content in one frame")
        if metadata and self.on_prompt_tokens:
            self._count(metadata)
        # Step 3: read the part of each choice. The end of the reply, and an error, end all choices.
        failure = last if isinstance(last, Failure) else None
        breaks, is_end = failure is not None, decoded.ends or failure is not None
        if is_end:
            parts = self.choices.end(self._last, complete=not breaks, is_whole=self.is_whole, breaks=breaks)
            self.fault = self.fault or (NO_REASON if parts and not breaks else "")
        elif not (parts := self.choices.read(frame, decoded, deltas)):  # the frame is pending
            self.decoder, self._last = decoder, frame if deltas else self._last
            if last and len(deltas) == 1 and decoded.clean and not (metadata or self.choices.unsettled):
                waiting = self.choices.by_index[last.choice].waiting
                self.last_frame = LastFrame(frame, last, (), (), waiting, True)
            return []
        # Step 4: send the frames that are decided now.
        writer = copy.copy(self.writer)
        if is_end:
            writer.translator = replace(writer.translator, breaks=breaks)
        out, choices, frames = writer.send(parts)
        if decoded.ends:
            out += writer.end(frame)
        elif failure:
            out += writer.send_failure(frame, metadata, failure, reencodes=replacement is not None)
        elif last and len(deltas) == 1 and {*map(type, parts[0][2])} <= {Text} and Seal not in map(type, metadata):
            self.last_frame = LastFrame(frame, last, frames, out, choices[last.choice].waiting, not metadata)
        # Step 5: nothing failed, so replace the state.
        self.decoder, self.writer, self._last = decoder, writer, frame if deltas else self._last
        self.choices.by_index.update(choices)
        return out

    def _split_failure(
        self, frame: Frame, deltas: Sequence[Delta], failure: Failure
    ) -> tuple[tuple[Delta, ...], Delta, Failure | None]:
        """Return the deltas of a frame without its error, its last delta or error, and the replacement of the error."""
        if replacement := self._replace_error(frame, failure, deltas):
            return (), replacement, replacement
        others = (*deltas[:-1],)
        return others, others[-1] if others else failure, None

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

    def finish(self, *, breaks: bool = False) -> list[bytes]:
        """End the reply: return the rest of the choices that the server did not finish.

        If it `breaks` off, nothing signals the end to the client, and a client of another API gets an error. For such a
        client a stream without a reason and without an end mark has broken off, too.
        """
        writer, message = copy.copy(self.writer), self.stop_message
        if not (breaks or message) and self._lacks_end(writer):
            breaks, self.fault = True, BROKE_OFF
        writer.translator = replace(writer.translator, breaks=breaks)
        parts = self.choices.end(
            self._last, complete=self.is_whole, is_whole=self.is_whole, breaks=breaks, message=message
        )
        self.fault = self.fault or (NO_REASON if parts and not (breaks or message) else "")
        out, choices, _ = writer.send(parts)
        if breaks and not writer.same_api and not writer.ended:
            out += writer.encode_events((Failure("The model server broke off."),), 0)
        if not breaks:
            out += writer.end(is_early=bool(message))
        out += writer.close()
        self.writer = writer
        self.choices.by_index.update(choices)
        return out

    def break_bridge(self) -> list[bytes]:
        """End the reply with an error of the client's API after a fault; pending frames are dropped."""
        return [] if self.writer.ended else self.writer.encode_events((Failure(UNREADABLE_REST),), 0)

    def _lacks_end(self, writer: FrameWriter) -> bool:
        """Return True if a bridged stream with content has neither a reason nor an end mark."""
        choice = self.choices.by_index.get(0)
        return not (writer.same_api or writer.ended or self.is_whole or choice is None or choice.ended)

    def feed_text(self, index: int, frame: Frame, text: str, events: Sequence[Event]) -> list[bytes]:
        """Process a frame like the last one, which is pending, and return the bytes to send now.

        It contains only this text, which together with the text of the pending frames became these events.
        """
        choice, entry = self.choices.by_index[index], PendingFrame(frame, text)
        self._last = frame
        if not events:
            choice.waiting.append(entry)
            return []
        self.last_frame, writer = None, copy.copy(self.writer)
        if len(choice.waiting) >= MAX_FRAMES_AT_ONCE and self.choices.defers(choice, events):
            choice.waiting.append(entry)
            return []
        if has_calls(events):
            choice = replace(choice, lifted=True)
        out, choices, _ = writer.send([(choice, entry, [*events])])
        self.writer = writer
        self.choices.by_index.update(choices)
        return out

    def send_deferred(self) -> list[bytes]:
        """Send the next frames of deferred text."""
        out: list[bytes] = []
        for index, texts in [*self.choices.unsettled.items()]:
            choice = self.choices.by_index[index]
            frames = [*islice(choice.waiting, MAX_FRAMES_AT_ONCE)]
            size = sum(len(entry.text) - entry.decided for entry in frames)
            now, later = _split_texts(texts, size)
            writer = copy.copy(self.writer)
            sent, choices, _ = writer.send([(replace(choice, waiting=deque(frames[:-1])), frames[-1], now)])
            out += sent
            self.writer = writer
            choices[index].waiting.extend(islice(choice.waiting, len(frames), None))
            self.choices.by_index.update(choices)
            self.choices.unsettled[index] = later
            if not later:
                del self.choices.unsettled[index]
        return out

    def drop_pending(self) -> None:
        """Drop the last frame, which was pending: the fast path has already forwarded it."""
        if self.last_frame:
            delta = self.last_frame.delta
            self.choices.by_index[delta.choice].waiting.clear()
            if isinstance(delta, TextDelta) and not self.writer.same_api:
                self.writer.translator.count_text(delta.text)

    def count_forwarded(self, text: str) -> None:
        """Count text that the fast path forwarded, in frames like the last one, to a client of another API."""
        if self.last_frame and isinstance(self.last_frame.delta, TextDelta):
            self.writer.translator.count_text(text)

    def release(self) -> list[bytes]:
        """Return all pending frames as received; used after a failure."""
        out: list[bytes] = []
        self.choices.unsettled.clear()
        for choice in self.choices.by_index.values():
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
