r"""The fast path: may a chunk leave, as it came or as its client is told such texts, without any state being touched?

    data: {"id": "c1", "created": 17, "choices": [{"index": 0, "delta": {"content": " word"}}], "usage": {"total": 5}}
                 string          number                                               text                       number

Nearly all frames of a reply are alike but for a few values. One that went the long way and came out as it was shows
how they look. It becomes an expression with a hole for each value that makes no difference to the codec; which these
are is found out by putting something else there and decoding it. The hole of the text takes what the reader calls
plain.

In a chunk of nothing but such frames, none is decoded. A frame whose text ends in white space waits for the next one,
and the beginning of a frame for its end, as they do on the long way. So does one that went the long way and waits there
as the only one: it leaves from here, and the reader is told.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import cast

from vtc.apis.base import Following, Noting
from vtc.apis.relay import Relay
from vtc.apis.told_text import ToldText, learned
from vtc.events import Delta, ReasoningDelta, TextDelta
from vtc.exchange import endings
from vtc.exchange.endings import DIGITS, POINTS
from vtc.exchange.reply import ReplyPipeline
from vtc.exchange.shapes import ODD, TEXT, Match, Shape, expression_of
from vtc.exchange.text_reading import ANYTHING

MOST_PATIENCE = 8
"""Frames that go the long way, at the most, before it is tried again to learn from one."""
MOST_BEGUN = 1 << 16
"""Bytes of a frame that has only begun which wait here; the long way takes more."""

type Search = Callable[[bytes, int, int], re.Match[bytes] | None]


class FastPath:
    """Forwards chunks of one reply that need not be read."""

    __slots__ = (
        "_after",
        "_before",
        "_end",
        "_endings",
        "_failures",
        "_follows",
        "_match",
        "_notes",
        "_odd",
        "_owed",
        "_patience",
        "_reading",
        "_relay",
        "_shapes",
        "_tail",
        "_tellings",
        "_told",
        "_whole",
        "held",
    )

    def __init__(self, relay: Relay[ReplyPipeline]) -> None:
        self._relay = relay
        self._end = relay.decoder.framing.end
        self._follows = isinstance(relay.leaving.encoder, Following)
        self.held = b""
        """Frames that wait for what follows, and the beginning of one."""
        self._whole = 0  # bytes of the former
        self._owed = 0  # bytes of the first of them, which waits in the relay, too
        self._match: Match | None = None  # None while every frame must be read
        self._before, self._after = b"", b""  # what stood around the text of the frame that was read last
        self._odd: Search = endings.odd("")
        self._endings = endings.of(ANYTHING)
        self._tail = b""
        """The end of the texts that left unread, as far as it may quote a call."""
        self._reading: ReplyPipeline | None = None
        """Reads what does not leave so."""
        self._shapes: dict[type[Delta], Shape] = {}  # by what they say
        self._patience = self._failures = 0
        # For a client that is sent other frames, as those of another API:
        self._told: ToldText | None = None
        self._tellings: dict[type[Delta], ToldText] = {}
        self._notes = False

    def feed(self, chunk: bytes) -> list[bytes] | None:
        """Return what may leave of the chunk and of those before it; None if they must be read (`take`)."""
        match = self._match
        if match is None:
            return None
        if len(held := self.held) == self._whole:  # mostly the next frame is the same but for its text
            start, end = len(self._before), len(chunk) - len(self._after)
            if start < end and chunk[:start] == self._before and chunk[end:] == self._after:
                first, last = chunk[start], chunk[end - 1]
                waits = last == _BLANK and last in self._endings.plain and chunk[end - 2] in _WORDS and end - start > 1
                # A point may part a number, whose first half may stand in the text before.
                if not (
                    (last in self._endings.plain and not waits)
                    or (last in POINTS and (end - start < 2 or chunk[end - 2] in DIGITS))
                    or self._odd(chunk, start, end)
                    or first == _QUOTE
                    or (first == _BLANK and (held or chunk[start + 1] in b" >"))
                ):
                    if waits or held:
                        text = self._waited(held) if waits else b""
                        return self._left(held + chunk, b"", len(held) if waits else None, text)
                    out = self._passed(chunk, [chunk[start:end]] if self._told else ())
                    if out is not None:
                        self._tail = _OTHER
                    return out
        data = self.held + chunk if self.held else chunk
        if data.endswith(self._end):
            if (found := match(data)) is None or (found.start(ODD) >= 0 and self._begins_line(data)):
                return None
            # Nearly every text ends in a letter that no white space is written with.
            if data[found.end(TEXT) - 1] in self._endings.last or self._follows:
                return self._forward(data, found, b"")
            return self._left(data, b"")
        # The network has cut a frame.
        whole = data.rfind(self._end)
        whole = whole + len(self._end) if whole >= 0 else 0
        begun = data[whole:]
        if len(begun) > MOST_BEGUN or b"\r" in begun:
            return None
        if whole <= self._whole:
            self.held = data
            return []
        found = match(data[:whole])
        if found is None or (found.start(ODD) >= 0 and self._begins_line(data[:whole])):
            return None
        return self._forward(data[:whole], found, begun)

    def _waited(self, held: bytes) -> bytes:
        """Find the last text of what waits, if the reader may have to be told of it."""
        if not held or (
            held.endswith(self._after) and _WORD_END.fullmatch(held[-len(self._after) - 2 : -len(self._after)])
        ):
            return b""  # a word can quote nothing
        return self._texts(held)[-1]

    def _begins_line(self, data: bytes) -> bool:
        """Tell whether code or a quotation begins in the texts of some frames, joined."""
        return _CODE.search(b"".join(self._texts(data))) is not None

    def _forward(self, data: bytes, found: re.Match[bytes], begun: bytes) -> list[bytes] | None:
        """Let frames leave, except those that wait since their text ends in white space."""
        text = found["text"]
        if text.endswith(self._endings.read):
            return None
        if not text.endswith(self._endings.white):
            return self._left(data, begun, text=text)
        end = self._waiting(data, found.start("frame"), text)
        return self._left(data, begun, end, self._texts(data[:end])[-1] if end else b"")

    def _left(self, data: bytes, begun: bytes, end: int | None = None, text: bytes = b"") -> list[bytes] | None:
        """Let the frames up to `end` leave, the last of which says `text`; the others wait, with one that has begun."""
        leaves = data if end is None else data[:end]
        out = self._passed(leaves, self._texts(leaves) if self._told else ()) if leaves else []
        if out is not None:
            waits = data[len(leaves) :]
            self.held, self._whole = waits + begun, len(waits)
            said = _WHITE_END.sub(b"", text[-64:]) if text.endswith(self._endings.white) else text
            # A point may be of a fraction that began before.
            if said.endswith(self._endings.told) or said in (b".", b",") or (text and not said):
                self._tail = (self._tail + b"".join(self._texts(leaves[self._owed :])))[-MOST_TOLD:]
            elif leaves:
                self._tail = _OTHER
            if self._owed and leaves:
                self._owed = 0
                self._relay.went()
                if self._reading:
                    self._reading.spaced()
        return out

    def _passed(self, data: bytes, texts: Sequence[bytes]) -> list[bytes] | None:
        """Let frames leave, with these texts; None if they must be read after all."""
        if self._told:
            written = self._told.write(texts)
            if written is None:
                return None
            data = written
            if self._notes:
                cast("Noting", self._relay.decoder).thought_more(texts)
        if self._follows:
            cast("Following", self._relay.leaving.encoder).passed(data)
        return [data]

    def _texts(self, data: bytes) -> list[bytes]:
        """Find the texts of whole frames that match."""
        assert self._match is not None
        found = [self._match(frame + self._end) for frame in data.split(self._end)[:-1]]
        return [one["text"] for one in found]  # type: ignore[index]  # none may be lost

    def _waiting(self, data: bytes, start: int, text: bytes) -> int:
        """Find where the frames begin that wait, given the last one and its text.

        If it is nothing but white space, those before it wait with it: up to the last text that ends in none.
        """
        assert self._match is not None
        while start and _WHITE.fullmatch(text):
            if start == self._whole:
                return 0  # all that waited
            before = data.rfind(self._end, 0, start - len(self._end))
            before = before + len(self._end) if before >= 0 else 0
            found = self._match(data[before:start])
            if found is None or not (text := found["text"]).endswith(self._endings.white):
                break
            start = before
        return start

    def take(self, chunk: bytes) -> bytes:
        """Hand over what waits here, and the chunk."""
        data, self.held, self._whole, self._owed = self.held[self._owed :] + chunk, b"", 0, 0
        if self._tail and self._reading:
            self._reading.passed(endings.read(self._tail))
        self._tail = b""
        return data

    def rest(self) -> None:
        """Forward nothing until a frame was read: the numbers of frames have changed."""
        self._match = None

    def learn(self, *, whole: bool) -> None:
        """Look at the frame that went the long way last: does it say how to know others like it?

        `whole` is False while another frame has only begun there.
        """
        self._match = None
        if not whole or (plain := self._relay.plain) is None:
            return
        frame, delta, left, waits = plain
        if isinstance(delta, TextDelta) and not delta.refusal:
            self._reading = self._relay.pipelines[delta.choice]
            rule = self._reading.plain(waits=waits)
        elif isinstance(delta, ReasoningDelta):
            self._reading = None
            rule = self._relay.pipelines[delta.choice].plain_reasoning
        else:
            return
        if rule is None:
            return
        shape = self._shapes.get(type(delta))
        found = shape.of_any_text(frame.raw) if shape else None
        if shape is None or found is None:
            if self._patience:
                self._patience -= 1
                return
            self._failures += 1
            self._patience = min(self._failures, MOST_PATIENCE)
            expression = expression_of(self._relay.decoder, frame, delta)
            shape = Shape(expression) if expression else None
            if shape is None or (found := shape.of_any_text(frame.raw)) is None:
                return  # none was found, or its data stand in several lines
            self._shapes[type(delta)] = shape
        self._told = None
        if left is not frame.raw and not self._learn_to_tell(delta, left):
            return
        if shape.rule != rule:
            shape.of_plain_text(rule)
        if waits and not shape.match(frame.raw):
            return
        self._match, self._odd, self._endings = shape.match, endings.odd(rule.stop), endings.of(rule)
        start, end = found.span(TEXT)
        self._before, self._after = frame.raw[:start], frame.raw[end:]
        if waits:
            self.held, self._whole = frame.raw, len(frame.raw)
            self._owed = self._whole

    def _learn_to_tell(self, delta: TextDelta | ReasoningDelta, left: bytes) -> bool:
        """Learn how a client is told such texts that is not sent the frames that come; the last one `left` so."""
        known = self._tellings.get(type(delta))
        if known is None or not known.goes_on(left):
            known = learned(self._relay.leaving, delta)
        if known is None or not known.goes_on(left):
            return False
        self._told = self._tellings[type(delta)] = known
        self._notes = isinstance(delta, ReasoningDelta) and isinstance(self._relay.decoder, Noting)
        return True


# The text of a frame as JSON writes it.
_WHITE = re.compile(rb"(?: |\\n|\\t)+")
_WORD_END = re.compile(rb"[a-z] ")
_WHITE_END = re.compile(rb"(?: |\\n|\\t)+\Z")
_CODE = re.compile(rb"\\n(?:%b)" % endings.LINE)
_BLANK, _QUOTE = b" >"
_WORDS = string.ascii_letters.encode()
_OTHER = b"x"
"""Stands for a text that can quote nothing after it."""
MOST_TOLD = 1 << 10
"""Bytes of texts that the reader is told of."""
