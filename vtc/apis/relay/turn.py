"""A turn that may take two replies: the end of one that says nothing waits, and what the model says then goes on in it.

    text, reasoning -> leave                 the end, its reason, the tokens used -> wait
    the model is asked once more -> its reply goes on, without a beginning of its own; the tokens are those of both
    it is not, or there is no reply -> what waited leaves

Its client sees one reply of one model.
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
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Rewritten,
    Seal,
    Silence,
    Start,
    Text,
    Usage,
)
from vtc.json_text import decode
from vtc.wire.framing import Framing

MAX_SILENT_CHARACTERS = 1 << 20
"""Characters of a reply beyond which it is none that says nothing."""
_GAP = 2
"""Line breaks between the texts of two replies."""
_COUNTS = ("prompt", "completion", "cached", "reasoning")
_CONTENT = ("part", "delta", "message", "event", "odd")
"""Places of an API's own things that are content, by how their kinds begin."""


class Silent(NamedTuple):
    """A reply that made no call, as its client was told it."""

    text: str
    thought: bool
    """True if the model thought."""
    finish: Finish


type ClassifySilence = Callable[[Silent], Silence | None]
"""Names how a reply that made no call was silent, so that its end is to wait; None if it is not to."""


class TurnEncoder(msgspec.Struct, eq=False):
    """The client's encoder, for a turn that may take two replies (`contract.Encoder`, `contract.FrameFollower`)."""

    encoder: Encoder
    classify: ClassifySilence
    state: Literal["first", "held", "second", "over"] = "first"
    """`held`: the end of the first reply waits. `over`: all leaves as it is."""
    silence: Silence | None = None
    """How the first reply was silent."""
    text: TextChain = None
    """Its text."""
    size: int = 0
    thinks: bool = False
    """True if what came last was reasoning."""
    thought: bool = False
    speaks: bool = False
    """True once it made a call, or said what only its API knows."""
    held: tuple[ReplyEvent, ...] = ()
    used: Usage | None = None
    """The tokens of the first reply."""
    told: bool = False
    """True once the second reply said something."""
    parted: bool = False
    """True once its text began."""
    counted: bool = False
    """True once its tokens were told."""

    def __copy__(self) -> TurnEncoder:
        return replace(self, encoder=copy.copy(self.encoder))

    def __eq__(self, other: object) -> bool:
        """True if another one will write alike; what was said makes no difference to that."""
        return isinstance(other, TurnEncoder) and (self.encoder, self.state) == (other.encoder, other.state)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has one of its own

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
        """All that the first reply said."""
        return join_chain(self.text)

    def record_passed(self, data: bytes, texts: Sequence[bytes]) -> None:
        """Take note of frames that left unread (`contract.FrameFollower`)."""
        if self.state == "first" and not self.thinks:
            self._record_text(decode(b'"%b"' % b"".join(texts), "replace"))
        if follow := getattr(self.encoder, "record_passed", None):
            follow(data, texts)

    def follow(self, events: Sequence[ReplyEvent], choice: int) -> bool:
        if self.state == "first" and not choice:
            self._record(events)
            if self._holds_end(events):
                self.state = "held"  # so that it is written
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
        if self.state == "second" and not self.told:
            return [*self.release_end(), *self.encoder.end()]
        rest: list[Json] = []
        if self.state == "second" and self.used and not self.counted:
            rest = self.encoder.write([self.used], 0)
        return [*rest, *self.encoder.end()]

    def release_end(self) -> list[Json]:
        """Write the end that waits: the model has said no more."""
        held, self.held, self.state = self.held, (), "over"
        return self.encoder.write(held, 0)

    # The first reply

    def _record(self, events: Sequence[ReplyEvent]) -> None:
        for event in events:
            match event:
                case Text(text) | Rewritten(text=text) | RefusalDelta(text) if text:
                    self.thinks = False
                    self._record_text(text)
                case Reasoning(text) | ReasoningDelta(text) if text:
                    self.thinks = self.thought = True
                case Seal():
                    self.thought = True
                case Call() | CallDelta():
                    self.speaks = True
                case Origin(kind=kind, value=value, lost=lost):
                    self.speaks = self.speaks or bool(value and (lost or kind.partition(".")[0] in _CONTENT))
                case Usage():
                    self.used = event
                case Finish():
                    self.state = self.state if not self.speaks and self.size <= MAX_SILENT_CHARACTERS else "over"

    def _record_text(self, text: str) -> None:
        self.size += len(text)
        self.text = (
            (self.text, text) if self.size <= MAX_SILENT_CHARACTERS else None
        )  # a reply that is longer has spoken

    def _holds_end(self, events: Sequence[ReplyEvent]) -> bool:
        """True if the reply ends with these events, and its end is to wait."""
        finish = next((event for event in events if isinstance(event, Finish)), None)
        if finish is None or self.state == "over":
            return False
        self.silence = self.classify(Silent(self.first_text, self.thought, finish))
        if self.silence is None:
            self.state = "over"
        return self.silence is not None

    # The second reply

    def begin_second(self) -> None:
        """Take what comes for the reply to a question that the client knows nothing of."""
        used = [event for event in self.held if isinstance(event, Usage)]
        self.state, self.used = "second", used[-1] if used else self.used
        self.used = replace(self.used, own=None) if self.used else None

    def _write_second(self, events: Sequence[ReplyEvent]) -> list[Json]:
        if not self.told and any(isinstance(event, Failure) for event in events):
            return self.release_end()  # the first reply is better than an error
        out: list[ReplyEvent] = []
        for event in events:
            match event:
                case Start():
                    continue
                case Usage():
                    event, self.counted = add_usage(self.used, event), True
                case Text(text) | Rewritten(text=text) if text and not self.parted:
                    event, self.parted = Rewritten(event.raw, self._gap + text), True
                case _:
                    pass
            self.told = self.told or not isinstance(event, Origin | Usage | Finish)
            out.append(event)
        return self.encoder.write(out, 0)

    @property
    def _gap(self) -> str:
        text = self.first_text
        breaks = len(text) - len(text.rstrip("\n"))
        return "\n" * max(0, _GAP - breaks) if text.strip() else ""


def add_usage(first: Usage | None, second: Usage) -> Usage:
    """Add the tokens of two replies; the API's own counts, which are of one of them, are left out."""
    if first is None:
        return second
    counts = {name: getattr(first, name) + getattr(second, name) for name in _COUNTS}
    return Usage(**counts, choice=second.choice)
