"""A turn that may take two replies: the end of a silent reply is held back, so that a follow-up can continue it.

    text, reasoning -> sent                  the end, its reason, usage -> held back
    the model is asked again -> its reply is appended, without its beginning; usage is the sum of both
    it is not asked, or does not reply -> the held events are sent

The client sees one reply of one model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from vtc.apis.contract import Encoder, Json, ReplyEvent, TextChain, join_chain
from vtc.events import (
    Call,
    CallDelta,
    Citations,
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Seal,
    Silence,
    Start,
    Text,
    Usage,
)
from vtc.json_text import decode_json
from vtc.wire.framing import Framing

MAX_SILENT_CHARACTERS = 1 << 20
"""A reply with more characters is not silent."""
_GAP_LINE_BREAKS = 2
"""Line breaks between the texts of two replies."""
_USAGE_FIELDS = ("prompt", "completion", "cached", "reasoning", "written")
_CONTENT_KINDS = ("part", "delta", "message", "event", "unknown_part")
"""Prefixes of the kinds of `Origin` that are content."""


class SilentReply(NamedTuple):
    """A reply without calls, as its client received it."""

    text: str
    has_reasoning: bool
    """True if it contains reasoning."""
    finish: Finish


type ClassifySilence = Callable[[SilentReply], Silence | None]
"""Classifies a reply without calls, if its end is to be held back; else None."""


class TurnEncoder(msgspec.Struct, eq=False):
    """The client's encoder, for a turn that may take two replies (`contract.Encoder`, `contract.FrameFollower`)."""

    encoder: Encoder
    classify: ClassifySilence
    state: Literal["first", "held", "second", "over"] = "first"
    """`held`: the end of the first reply is held back. `over`: everything is sent unchanged."""
    silence: Silence | None = None
    """The class of the first reply."""
    text: TextChain = None
    """The text of the first reply."""
    size: int = 0
    ends_in_reasoning: bool = False
    """True if the latest content of the first reply is reasoning."""
    has_reasoning: bool = False
    has_other_content: bool = False
    """True once it made a call or sent content that only its API knows."""
    held: tuple[ReplyEvent, ...] = ()
    first_usage: Usage | None = None
    """The usage of the first reply."""
    second_has_content: bool = False
    """True once the second reply had content."""
    second_has_text: bool = False
    """True once the text of the second reply began."""
    usage_sent: bool = False
    """True once the usage was sent."""

    def __copy__(self) -> TurnEncoder:
        return replace(self, encoder=copy.copy(self.encoder))

    def __eq__(self, other: object) -> bool:
        """Return True if another encoder will write identically; the text so far makes no difference."""
        return isinstance(other, TurnEncoder) and (self.encoder, self.state) == (other.encoder, other.state)

    def __ne__(self, other: object) -> bool:
        return not self == other  # msgspec defines `__ne__` itself

    __hash__ = None  # type: ignore[assignment]

    @property
    def framing(self) -> Framing:
        return self.encoder.framing

    @property
    def counts(self) -> bool:
        return self.encoder.counts

    @property
    def call_fields(self) -> Collection[str]:
        return self.encoder.call_fields

    @property
    def in_step(self) -> bool:
        return self.state in ("first", "over") and self.encoder.in_step

    def keep_alive(self) -> bytes | None:
        return self.encoder.keep_alive()

    @property
    def first_text(self) -> str:
        """The whole text of the first reply."""
        return join_chain(self.text)

    def record_passed(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Record frames that were forwarded unread (`contract.FrameFollower`)."""
        if self.state == "first" and not self.ends_in_reasoning:
            self._record_text(decode_json(b'"%b"' % b"".join(texts), "replace"))
        if follow := getattr(self.encoder, "record_passed", None):
            follow(data, texts)

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        if self.state == "first" and not choice:
            self._record(events)
            if self._holds_end(events):
                self.state = "held"  # so that the relay re-encodes the frame
                return True
        return self.encoder.follow(events, choice)

    def write(self, events: Sequence[ReplyEvent], choice: int) -> list[Json]:
        if choice or self.state == "over":
            return self.encoder.write(events, choice)
        if self.state == "second":
            return self._write_second(events)
        if self.state == "held":
            self.held = (*self.held, *events)
            return self.release_end() if any(isinstance(event, Failure) for event in events) else []
        self._record(events)
        if not self._holds_end(events):
            return self.encoder.write(events, choice)
        self.state = "held"
        self.held = tuple(event for event in events if isinstance(event, Finish | Usage | Origin))
        return self.encoder.write([event for event in events if not isinstance(event, Finish | Usage | Origin)], choice)

    def end(self) -> list[Json]:
        if self.state == "held":
            return []
        if self.state == "second" and not self.second_has_content:
            return [*self.release_end(), *self.encoder.end()]
        rest: list[Json] = []
        if self.state == "second" and self.first_usage and not self.usage_sent:
            rest = self.encoder.write([self.first_usage], 0)
        return [*rest, *self.encoder.end()]

    def release_end(self) -> list[Json]:
        """Write the end that was held back: the model has no more to add."""
        held, self.held, self.state = self.held, (), "over"
        return self.encoder.write(held, 0)

    # Methods for the first reply

    def _record(self, events: Sequence[ReplyEvent]) -> None:
        for event in events:
            match event:
                case Text(text) | Rewritten(text=text) | RefusalText(text) if text:
                    self.ends_in_reasoning = False
                    self._record_text(text)
                case Reasoning(text) | ReasoningDelta(text) if text:
                    self.ends_in_reasoning = self.has_reasoning = True
                case Seal():
                    self.has_reasoning = True
                case Call() | CallDelta() | Citations():
                    self.has_other_content = True
                case Origin(kind=kind, value=value, lost=lost):
                    self.has_other_content = self.has_other_content or bool(
                        value and (lost or kind.partition(".")[0] in _CONTENT_KINDS)
                    )
                case Usage():
                    self.first_usage = event
                case Finish():
                    self.state = (
                        self.state if not self.has_other_content and self.size <= MAX_SILENT_CHARACTERS else "over"
                    )

    def _record_text(self, text: str) -> None:
        self.size += len(text)
        self.text = (self.text, text) if self.size <= MAX_SILENT_CHARACTERS else None  # a longer reply is not silent

    def _holds_end(self, events: Sequence[ReplyEvent]) -> bool:
        """Return True if the reply ends with these events, and its end is held back."""
        finish = next((event for event in events if isinstance(event, Finish)), None)
        if finish is None or self.state == "over":
            return False
        self.silence = self.classify(SilentReply(self.first_text, self.has_reasoning, finish))
        if self.silence is None:
            self.state = "over"
        return self.silence is not None

    # Methods for the second reply

    def begin_second(self) -> None:
        """Treat further events as the reply to a follow-up, of which the client knows nothing."""
        used = [event for event in self.held if isinstance(event, Usage)]
        self.state, self.first_usage = "second", used[-1] if used else self.first_usage
        self.first_usage = replace(self.first_usage, own=None) if self.first_usage else None

    def _write_second(self, events: Sequence[ReplyEvent]) -> list[Json]:
        if not self.second_has_content and any(isinstance(event, Failure) for event in events):
            return self.release_end()  # the first reply is better than an error
        out: list[ReplyEvent] = []
        for event in events:
            match event:
                case Start():
                    continue
                case Usage():
                    event, self.usage_sent = add_usage(self.first_usage, event), True
                case Text(text) | Rewritten(text=text) if text and not self.second_has_text:
                    event, self.second_has_text = Rewritten(event.raw, self._gap + text), True
                case _:
                    pass
            self.second_has_content = self.second_has_content or not isinstance(event, Origin | Usage | Finish)
            out.append(event)
        return self.encoder.write(out, 0)

    @property
    def _gap(self) -> str:
        text = self.first_text
        breaks = len(text) - len(text.rstrip("\n"))
        return "\n" * max(0, _GAP_LINE_BREAKS - breaks) if text.strip() else ""


def add_usage(first: Usage | None, second: Usage) -> Usage:
    """Add the usage of two replies; the API's own counts, which belong to only one of them, are omitted."""
    if first is None:
        return second
    counts = {name: getattr(first, name) + getattr(second, name) for name in _USAGE_FIELDS}
    return Usage(**counts, choice=second.choice)
