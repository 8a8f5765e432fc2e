"""The fast path: may a chunk leave, as it came or as its client is told such texts, without any state being touched?

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

import copy
import json
import re
import string
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec

from vtc.apis.contract import Decoder, FrameFollower, Noting
from vtc.apis.relay import Relay
from vtc.apis.told_text import ToldText, learned
from vtc.dialects.bounded_cache import COMPILED, PER_CHARACTER
from vtc.dialects.reading.reader import PlainRule
from vtc.events import Delta, ReasoningDelta, TextDelta
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.exchange.replying.text_reading import ANYTHING
from vtc.wire.framing import Frame

# The text of a frame as JSON writes it: what it may hold, and how it may end, for the frame to leave at once.


ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}
_UNESCAPED = re.compile(r"\\(.)")


class Endings(NamedTuple):
    """Endings of texts, as JSON writes them, with which a frame does not leave at once."""

    white: tuple[bytes, ...]
    """It waits for the next one."""
    read: tuple[bytes, ...]
    """It must be read."""
    told: tuple[bytes, ...]
    """It leaves, and the reader must be told of it."""
    last: bytes
    """The last bytes of all of them."""
    plain: bytes
    """The last bytes of those without an escape; but for `POINTS`, which are of a number or none."""


POINTS = b".,"
"""What may part a number: most end a clause."""
DIGITS = b"0123456789"


@lru_cache(maxsize=4)
def of(rule: PlainRule) -> Endings:
    def written(endings: Iterable[str]) -> tuple[bytes, ...]:
        return tuple(ESCAPES.get(one, one.encode()) for one in endings if one != "\r")

    white = written(one for one in rule.endings if one.isspace())
    read = written(one for one in rule.endings if not one.isspace())
    told = written(one for one in rule.told if one not in rule.endings)
    every = (*white, *read, *told)
    plain = bytes({one[-1] for one in every if one[:1] != b"\\" and one[-1] not in POINTS})
    return Endings(white, read, told, bytes({one[-1] for one in every}), plain)


def read(text: bytes) -> str:
    """Read the end of a text, as far as it is whole."""
    return _UNESCAPED.sub(_unescaped, text.decode(errors="ignore"))


def _unescaped(found: re.Match[str]) -> str:
    """Read a character that JSON escapes."""
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])


LINE = rb" {0,3}(?:\\t|>)|    "
_MIDDLE = rb'(?:(?= ?>| [ "]| ?\\t)(?P<odd>))?'


@lru_cache(maxsize=256)
def odd(stop: str) -> Callable[[bytes, int, int], re.Match[bytes] | None]:
    """Compile what finds a byte in a text that needs a closer look."""
    bytes_ = sorted({0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in stop)})
    return re.compile(b"[%b]" % b"".join(rb"\x%02x" % byte for byte in bytes_)).search


def text_without(stop: str, *, lines: bool) -> bytes:
    """Write the expression for a text without some characters, of one character at least.

    With `lines`, no line may begin in it as code or a quotation does. That may be spread over texts, so it is noted
    where one begins like the middle of such a beginning.
    """
    beginnings: dict[int, list[bytes]] = {}  # of characters in UTF-8, and what follows
    for character in stop:
        first, *rest = character.encode()
        beginnings.setdefault(first, []).append(bytes(rest))
    odd = b"".join(rb"\x%02x" % byte for byte in sorted({0x22, 0x5C, *range(0x20), *beginnings}))
    others = [re.escape(written) for one, written in ESCAPES.items() if one not in stop] if stop else [rb"\\."]
    if lines:
        others = [rb'\\n(?!%b|   ")' % LINE if one == rb"\\n" else one for one in others]
    for first, rests in beginnings.items():
        if all(rests):
            others.append(rb"\x%02x(?!%b)" % (first, b"|".join(map(re.escape, rests))))
    middle = _MIDDLE if lines else b"(?P<odd>(?!))?"
    return rb'(?!")%b[^%b]*+(?:(?:%b)[^%b]*+)*+' % (middle, odd, b"|".join(others), odd)


# How frames look that are alike but for a few values: an expression, found out by decoding one with other values.
#
# A value is a hole if it makes no difference to the decoder what stands there.


MOST_LEARNED = 1 << 14
"""Bytes of a frame beyond which it is not learned from."""
PER_SHAPE = 1 << 10
"""Characters that stand for the holes of a shape, as its size is counted."""
_PROBE = "vtc probe"

TEXT = 2
"""The number of the group `text`."""
ODD = 3
"""The number of the group that stands where a text goes on as the beginning of a line of code or a quotation does."""

type Match = Callable[[bytes], re.Match[bytes] | None]


class Shape:
    """How frames look that are alike; `match` takes those whose texts are plain by `rule`."""

    __slots__ = ("_expression", "match", "of_any_text", "rule")

    def __init__(self, expression: bytes) -> None:
        self._expression = expression
        self.rule = ANYTHING
        self.match = self.of_any_text = _compiled(expression, ANYTHING)

    def of_plain_text(self, rule: PlainRule) -> None:
        """Take only texts that are plain by this rule."""
        self.rule, self.match = rule, _compiled(self._expression, rule)


def expression_of(decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> bytes | None:
    """Write the expression for frames like this one, with `TEXT` for its text; None if there is none.

    A value is a hole if the codec decodes the frame to the same with another value in its place.
    """
    data, raw = frame.data, frame.raw
    if data is None or len(raw) > MOST_LEARNED or not raw.endswith(decoder.framing.end) or b"\r" in raw:
        return None
    before, _, after = raw.partition(data)

    def decoded(tokens: Sequence[bytes]) -> tuple[Sequence[Delta], Sequence[Any]] | None:
        data = b"".join(tokens)
        made, trial = Frame(before + data + after, data), copy.copy(decoder)
        found = trial.decode(made)
        if found is None or found.frame is not None or trial != decoder:
            return None
        # The values of what stands beside the text make no difference.
        return found.deltas, [(type(one), getattr(one, "kind", "")) for one in found.beside]

    tokens = [token[0] for token in _TOKEN.finditer(data)]
    other = msgspec.structs.replace(delta, text=_PROBE)
    if isinstance(other, ReasoningDelta) and other.own and other.own.value == delta.text:
        other = msgspec.structs.replace(other, own=msgspec.structs.replace(other.own, value=_PROBE))
    said = [place for place in _values(tokens) if _string(tokens[place]) == delta.text]
    probe = json.dumps(_PROBE).encode()
    for text in said:
        asked = decoded([*tokens[:text], probe, *tokens[text + 1 :]])
        if asked and asked[0] == (other,):
            break
    else:
        return None
    wanted = decoded(tokens)
    holes: set[int] = set()

    def dig(places: Sequence[int]) -> None:
        """Find the holes among some values: all of them, or those of each half."""
        trial = [_PROBES[token[:1]] if place in places else token for place, token in enumerate(tokens)]
        if decoded(trial) == wanted:
            holes.update(places)
        elif len(places) > 1:
            middle = len(places) // 2
            dig(places[:middle])
            dig(places[middle:])

    dig([place for place in _values(tokens) if place != text])
    pieces = [
        b'"(?P<text>TEXT)"' if place == text else _HOLES[token[:1]] if place in holes else re.escape(token)
        for place, token in enumerate(tokens)
    ]
    return b"(?P<frame>%b%b%b)+" % (re.escape(before), b"".join(pieces), re.escape(after))


# Tokens of JSON. An array of numbers is one, since its length differs from frame to frame.
_NUMBER = rb"-?[0-9][-+.eE0-9]*+"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NUMBERS = rb"\[[-+.eE0-9,\s]*+\]"
_TOKEN = re.compile(b"|".join((_STRING, _NUMBERS, _NUMBER, rb'[^"\[0-9-]++|.')), re.DOTALL)
_HOLES = {b'"': _STRING, b"[": _NUMBERS, **dict.fromkeys([b"%d" % digit for digit in range(10)] + [b"-"], _NUMBER)}
_PROBES = {hole: {_STRING: b'"vtc"', _NUMBERS: b"[-70707]", _NUMBER: b"-70707"}[kind] for hole, kind in _HOLES.items()}
_NAME_END = re.compile(rb"\s*:")


def _values(tokens: Sequence[bytes]) -> Iterator[int]:
    """Find the places of the values that may be holes: numbers, arrays of these, strings that are no names."""
    for place, token in enumerate(tokens):
        if token[:1] not in _HOLES or token == b"[":
            continue
        if token[:1] == b'"' and place + 1 < len(tokens) and _NAME_END.match(tokens[place + 1]):
            continue
        yield place


def _string(token: bytes) -> str | None:
    if token[:1] != b'"':
        return None
    try:
        return str(json.loads(token))
    except ValueError:
        return None


def _compiled(shape: bytes, rule: PlainRule) -> Match:
    """Get a shape, compiled for texts that are plain by a rule; it matches nothing but whole frames."""
    size = (len(shape) + PER_SHAPE) * PER_CHARACTER
    return COMPILED.get_or_make(("shape", shape, rule), lambda: _compile(shape, rule), lambda _: size)


def _compile(shape: bytes, rule: PlainRule) -> Match:
    text = text_without(rule.stop, lines=bool(rule.lines))
    return re.compile(shape.replace(b"(?P<text>TEXT)", b"(?P<text>%b)" % text)).fullmatch


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
        self._follows = isinstance(relay.writer.encoder, FrameFollower)
        self.held = b""
        """Frames that wait for what follows, and the beginning of one."""
        self._whole = 0  # bytes of the former
        self._owed = 0  # bytes of the first of them, which waits in the relay, too
        self._match: Match | None = None  # None while every frame must be read
        self._before, self._after = b"", b""  # what stood around the text of the frame that was read last
        self._odd: Search = odd("")
        self._endings = of(ANYTHING)
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
            cast("FrameFollower", self._relay.writer.encoder).passed(data)
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
            self._reading.passed(read(self._tail))
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
        self._match, self._odd, self._endings = shape.match, odd(rule.stop), of(rule)
        start, end = found.span(TEXT)
        self._before, self._after = frame.raw[:start], frame.raw[end:]
        if waits:
            self.held, self._whole = frame.raw, len(frame.raw)
            self._owed = self._whole

    def _learn_to_tell(self, delta: TextDelta | ReasoningDelta, left: bytes) -> bool:
        """Learn how a client is told such texts that is not sent the frames that come; the last one `left` so."""
        known = self._tellings.get(type(delta))
        if known is None or not known.goes_on(left):
            known = learned(self._relay.writer, delta)
        if known is None or not known.goes_on(left):
            return False
        self._told = self._tellings[type(delta)] = known
        self._notes = isinstance(delta, ReasoningDelta) and isinstance(self._relay.decoder, Noting)
        return True


# The text of a frame as JSON writes it.
_WHITE = re.compile(rb"(?: |\\n|\\t)+")
_WORD_END = re.compile(rb"[a-z] ")
_WHITE_END = re.compile(rb"(?: |\\n|\\t)+\Z")
_CODE = re.compile(rb"\\n(?:%b)" % LINE)
_BLANK, _QUOTE = b" >"
_WORDS = string.ascii_letters.encode()
_OTHER = b"x"
"""Stands for a text that can quote nothing after it."""
MOST_TOLD = 1 << 10
"""Bytes of texts that the reader is told of."""
