"""The fast path: may a chunk leave, as it came or as its client is told such texts, without any state being touched?

    data: {"id": "c1", "created": 17, "choices": [{"index": 0, "delta": {"content": " word"}}], "usage": {"total": 5}}
                 string          number                                               text                       number

Nearly all frames of a reply are alike but for a few values. One that went the long way and came out as it was shows
how they look. It becomes an expression with a hole for each value that makes no difference to the codec; which these
are is found out by putting something else there and decoding it. Most frames do not even need the expression: they
are the frame that was read last but for the text.

In a chunk of nothing but such frames, whose texts are what the reader calls plain, none is decoded. A frame whose text
ends in white space waits for the next one, and the beginning of a frame for its end, as they do on the long way. So
does one that went the long way and waits there as the only one: it leaves from here, and the reader is told. It is also
told the end of the text that left unread, once there is something to read; or at once, where a code span begins or ends
in it: that text is as plain as any, but in a span the reader looks for something else.

Of a call that is delivered whole no frame leaves before its end. Those that look alike are not decoded either: they
wait in the relay, as on the long way, and texts that only make the call longer are read with the next that may do more.
"""

from __future__ import annotations

import copy
import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from vtc.apis.contract import Decoder
from vtc.apis.relay import LastFrame, Relay
from vtc.apis.told_text import ToldText, learn_template
from vtc.dialects.bounded_cache import BYTES_PER_PATTERN_CHARACTER, COMPILED_PATTERNS
from vtc.dialects.reading.context import LOOKBEHIND_CHARACTERS
from vtc.dialects.reading.reader import HeldCall
from vtc.dialects.syntax.scan import INDENT, PlainRule
from vtc.events import Delta, Event, ReasoningDelta, TextDelta
from vtc.exchange.remembering.reasoning import ReasoningRecorder
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.wire.framing import Frame

# The text of a frame as JSON writes it.

ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}
"""How JSON may write characters, in the texts that leave unread."""
_ESCAPED = {written.decode(): character for character, written in ESCAPES.items()}
_ESCAPE = re.compile(r"\\.")
_CODE = rb" {0,3}(?:\\t|>)|    "
"""The beginning of a line of code or of a quotation."""
_BLOCK = rb": [|>]|(?:\A| )[|>][-+1-9]{0,2}(?:\\n|\Z)"
"""The end of a line that may open a block of text in YAML: the reader says whether it does."""
_INDENT = rb"(?: |\\t|>){0,%d}" % INDENT
_QUOTE_BEGUN = rb"(?: |\\t)*+>(?: |\\t|>)*+\Z"
"""A line of which nothing but the `>` of a quotation was received: the next text may still begin with its markup."""
_SPACE = ord(" ")


class TextCheck(msgspec.Struct, frozen=True):
    """Tells plain texts, by one rule."""

    odd: Callable[[bytes], object]
    """Finds a byte that may be more than text: the text needs a closer look."""
    joined: Callable[[bytes], object]
    """Finds what must be looked at together with the texts before and after it."""
    stops: Callable[[bytes], object]
    """Finds what must be read."""
    lines: Callable[[bytes], object]
    """Finds the beginning of a line that must be read. The line that the first text goes on with is not meant."""
    ends: tuple[bytes, ...]
    """The characters that wait at the end of a text for the next one: none where nothing is read."""
    blank: Callable[[bytes], object]
    """Matches a text of nothing but these."""
    later: bytes
    """A character that changes what must be read after it: a text with it is told to the reader as it leaves."""


@lru_cache(maxsize=256)
def compile_check(rule: PlainRule) -> TextCheck:
    """Compile a rule; one that stops at no character is for text that is not read at all."""
    bytes_ = {0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in rule.stop + rule.later)}
    bytes_ |= {*b"|>"} if rule.lines else set()
    is_read, later = any(rule), rule.later.encode()
    stops = [*_escape_for_json(rule.stop), rb"[\x00-\x1f]"]
    if rule.lines:
        stops.append(_BLOCK)
    if is_read:
        stops.append(rb'(?<!\\)(?:\\\\)*+\\[^"\\/nt]')  # no escape that is not known
    starts = b"|".join(_escape_for_json(rule.starts))
    lines = [_CODE] if rule.lines else []
    if starts:
        lines += [b"%b(?:%b)" % (_INDENT, starts), _QUOTE_BEGUN]
    joined = [rb" \Z", rb"\\[nt]", *([re.escape(later)] if later else [])]
    ends = (b" ", b"\\n", b"\\t", *([later] if later else [])) if is_read else ()
    odd = re.compile(b"[%b]" % b"".join(rb"\x%02x" % byte for byte in sorted(bytes_)))
    return TextCheck(
        odd.search,
        re.compile(b"|".join(joined)).search,
        re.compile(b"|".join(stops)).search,
        re.compile(rb"\\n(?:%b)" % (b"|".join(lines) or b"(?!)")).search,
        ends,
        re.compile(b"(?:%b)++" % b"|".join(map(re.escape, ends))).fullmatch,
        later,
    )


def _escape_for_json(characters: str) -> list[bytes]:
    """Write expressions for some characters as JSON may have them."""
    ways = ((character.encode(), ESCAPES.get(character)) for character in characters)
    return [re.escape(way) for pair in ways for way in pair if way]


# How frames look that are alike but for a few values: an expression, found out by decoding one with other values.


MAX_LEARNED_BYTES = 1 << 14
"""Bytes of a frame beyond which it is not learned from."""
_PROBE = "vtc probe"

# Tokens of JSON. An array of numbers is one, since its length differs from frame to frame.
_NUMBER = rb"-?[0-9][-+.eE0-9]*+"
_CHARACTERS = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_STRING = b'"%b"' % _CHARACTERS
_NUMBERS = rb"\[[-+.eE0-9,\s]*+\]"
_TEXT = b'"(?P<text>%b)"' % _CHARACTERS
_TOKEN = re.compile(b"|".join((_STRING, _NUMBERS, _NUMBER, rb'[^"\[0-9-]++|.')), re.DOTALL)
_HOLES = {b'"': _STRING, b"[": _NUMBERS, **dict.fromkeys([b"%d" % digit for digit in range(10)] + [b"-"], _NUMBER)}
_PROBES = {hole: {_STRING: b'"vtc"', _NUMBERS: b"[-70707]", _NUMBER: b"-70707"}[kind] for hole, kind in _HOLES.items()}
_NAME_END = re.compile(rb"\s*:")  # used with match

type FrameMatcher = Callable[[bytes], re.Match[bytes] | None]
_is_string = re.compile(_CHARACTERS).fullmatch


class FrameShape(NamedTuple):
    """How the frame looks that was read last, and others like it."""

    before: bytes
    """The bytes before its text."""
    after: bytes
    match: FrameMatcher
    """Matches frames that differ from it in other values, too."""

    def text(self, frame: bytes, check: TextCheck | None = None) -> bytes:
        """Return the text of a frame, as JSON has it; none if it looks otherwise, or must be read by a `check`."""
        before, after, match = self
        text = frame[len(before) : -len(after)] if frame.startswith(before) and frame.endswith(after) else b""
        if not (text and _is_string(text)):
            found = match(frame)
            text = found["text"] if found else b""
        return b"" if len(text) > MAX_TEXT_BYTES or (check and check.odd(text) and check.stops(text)) else text


def derive_expression(decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> bytes | None:
    """Write the expression for frames like this one, with the group `text`; None if there is none.

    A value is a hole if the codec decodes the frame to the same with another value in its place.
    """
    data, raw = frame.data, frame.raw
    if data is None or len(raw) > MAX_LEARNED_BYTES or not raw.endswith(decoder.framing.end) or b"\r" in raw:
        return None
    before, _, after = raw.partition(data)

    def decode(tokens: Sequence[bytes]) -> tuple[Sequence[Delta], Sequence[Any], bool] | None:
        data, trial = b"".join(tokens), copy.copy(decoder)
        try:
            decoded = trial.decode(Frame(before + data + after, data))
        except (AttributeError, LookupError, TypeError, ValueError):  # with another value it is none of the API
            return None
        if decoded is None or decoded.frame is not None or trial != decoder:
            return None
        # The values of the frame's metadata make no difference.
        return decoded.deltas, [(type(item), getattr(item, "kind", "")) for item in decoded.beside], decoded.clean

    tokens = [token[0] for token in _TOKEN.finditer(data)]
    probed = msgspec.structs.replace(delta, text=_PROBE)
    if isinstance(probed, ReasoningDelta) and probed.own and probed.own.value == delta.text:
        probed = msgspec.structs.replace(probed, own=msgspec.structs.replace(probed.own, value=_PROBE))
    probe = json.dumps(_PROBE).encode()
    for text in _list_values(tokens):
        if _decode_string(tokens[text]) == delta.text:
            trial = decode([*tokens[:text], probe, *tokens[text + 1 :]])
            if trial and trial[0] == (probed,):
                break
    else:
        return None
    wanted = decode(tokens)
    holes: set[int] = set()

    def dig(places: Sequence[int]) -> None:
        """Find the holes among some values: all of them, or those of each half."""
        trial = [_PROBES[token[:1]] if place in places else token for place, token in enumerate(tokens)]
        if decode(trial) == wanted:
            holes.update(places)
        elif len(places) > 1:
            middle = len(places) // 2
            dig(places[:middle])
            dig(places[middle:])

    dig([place for place in _list_values(tokens) if place != text])
    pieces = [
        _TEXT if place == text else _HOLES[token[:1]] if place in holes else re.escape(token)
        for place, token in enumerate(tokens)
    ]
    return b"%b%b%b" % (re.escape(before), b"".join(pieces), re.escape(after))


def _list_values(tokens: Sequence[bytes]) -> Iterator[int]:
    """Find the places of the values that may be holes: numbers, arrays of these, strings that are no names."""
    for place, token in enumerate(tokens):
        if token[:1] not in _HOLES or token == b"[":
            continue
        if token[:1] == b'"' and place + 1 < len(tokens) and _NAME_END.match(tokens[place + 1]):
            continue
        yield place


def _decode_string(token: bytes) -> str | None:
    if token[:1] != b'"':
        return None
    try:
        return str(json.loads(token))
    except ValueError:
        return None


MAX_PATIENCE_FRAMES = 8
"""Frames that go the long way, at the most, before it is tried again to learn from one."""


class Shapes:
    """Learns how frames look, by what they say."""

    __slots__ = ("_failures", "_known", "_patience")

    def __init__(self) -> None:
        self._known: dict[type[Delta], FrameMatcher] = {}
        self._patience = self._failures = 0

    def of(self, decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> FrameShape | None:
        """Tell how a frame looks; None if that is not known."""
        raw = frame.raw
        known = self._known.get(type(delta))
        if known and (found := known(raw)):
            return FrameShape(raw[: found.start("text")], raw[found.end("text") :], known)
        if self._patience:
            self._patience -= 1
            return None
        self._failures += 1
        self._patience = min(self._failures, MAX_PATIENCE_FRAMES)
        if (expression := derive_expression(decoder, frame, delta)) is None:
            return None
        match = COMPILED_PATTERNS.get_or_make(
            ("shape", expression), lambda: _compile(expression), lambda _: len(expression) * BYTES_PER_PATTERN_CHARACTER
        )
        found = match(raw)  # none if its data stand in several lines
        if found is None:
            return None
        self._known[type(delta)] = match
        return FrameShape(raw[: found.start("text")], raw[found.end("text") :], match)


def _compile(expression: bytes) -> FrameMatcher:
    return re.compile(expression).fullmatch


class Plain(NamedTuple):
    """A frame with one delta, and what leaves for such a frame."""

    frame: Frame
    delta: Delta
    left: bytes
    """The bytes of the frame if it leaves as it came; else what left for the last one of its kind."""
    waits: bool = False
    """True if it waits with the white space at its end; all that waited before it has left."""


def describe_last_frame(last: LastFrame) -> Plain | None:
    """Tell what a frame shows if it left whole, or waits for its white space only, and all before it has left."""
    if not (last.left and last.out):
        return None
    frame, delta, left, out, waiting, alone = last
    entry = left[-1][0]
    is_own = out[-1] is entry.frame.raw
    if not entry.intact or not (is_own or (alone and len(left) == len(out))):
        return None
    if not waiting:
        return Plain(frame, delta, out[-1])
    contents = [(share.before, share.calls, share.after) for share in (entry, waiting[0])]
    if len(waiting) > 1 or any(map(any, contents)) or not waiting[0].text[waiting[0].decided :].isspace():
        return None
    return Plain(frame, delta, frame.raw if is_own else out[-1], True)


MAX_PARTIAL_BYTES = 1 << 16
"""Bytes of a frame that has only begun which wait here; the long way takes more."""
MAX_BLANK_FRAMES = 64
"""The same for frames of nothing but white space."""
MAX_TEXT_BYTES = 1 << 12
"""Bytes of a frame's text beyond which it is read: the last ones are kept here."""


MAX_FRAMES_BEFORE_CALL = 4
"""Frames that wait for what may begin with them; a call is longer."""
MAX_UNREAD_CALL_CHARACTERS = 1 << 12
"""Characters of a call that wait until the reader is told them."""
_PER_CHARACTER = 4
"""Bytes of UTF-8 at the most."""
_decoded = msgspec.json.Decoder(str).decode


class HeldFrames:
    """Takes the frames of a choice of which nothing leaves, as they are a call that is delivered whole."""

    __slots__ = ("_around", "_call", "_end", "_index", "_pipeline", "_relay", "_room", "_shape", "_texts", "taken")

    def __init__(
        self,
        relay: Relay[ReplyPipeline],
        pipeline: ReplyPipeline,
        shape: FrameShape,
        frame: Frame,
        index: int,
        call: HeldCall,
    ) -> None:
        """They look like this frame."""
        self._relay = relay
        self._pipeline = pipeline
        self._shape = shape
        self._index = index
        self._call: HeldCall | None = call
        self._room = 0  # characters that it may have before the reader is told
        before, _, after = frame.raw.partition(frame.data or b"")
        self._around = len(before), len(after)
        self._end = relay.decoder.framing.end
        self._texts: list[str] = []  # those that the reader was not told
        self.taken = 0
        """Bytes of the chunk at hand that the relay has."""

    def feed(self, chunk: bytes) -> list[bytes] | None:
        """Take frames; return what leaves, None if they must be read."""
        if self._call is None:
            return None
        if chunk.find(self._end) + len(self._end) == len(chunk):
            text = self._text(chunk)
            if text is None or not (left := self._take(chunk, text)):
                return None if text is None else []
            return [b"".join(left)]
        *parts, begun = chunk.split(self._end)
        frames = [part + self._end for part in parts]
        texts = [*map(self._text, frames)]
        if begun or None in texts:
            return None
        out: list[bytes] = []
        for frame, text in zip(frames, texts, strict=True):
            out += self._take(frame, text or "")
            self.taken += len(frame)
        self.taken = 0
        return [b"".join(out)] if out else out

    def _text(self, frame: bytes) -> str | None:
        """Return the text of a frame; None if it must be read."""
        try:
            return _decoded(b'"%b"' % self._shape.text(frame)) or None
        except msgspec.DecodeError:
            return None

    def _take(self, raw: bytes, text: str) -> list[bytes]:
        """Take a frame; return what leaves."""
        call, (before, after) = self._call, self._around
        self._texts.append(text)
        self._room -= len(text)
        is_more = self._room < 0 or call is None or call.find_structure is None or call.find_structure(text)
        events = self.catch_up() if is_more else []
        return self._relay.say(self._index, Frame(raw, raw[before : len(raw) - after]), text, events)

    def catch_up(self) -> list[Event]:
        """Feed the reader the text that it has not read yet; return the events."""
        text = "".join(self._texts)
        self._texts.clear()
        events = self._pipeline.feed(text) if text else []
        self._call = call = None if events else self._pipeline.held_call
        self._room = min(call.room_bytes // _PER_CHARACTER, MAX_UNREAD_CALL_CHARACTERS) if call else 0
        return events


class FastPath:
    """Forwards chunks of one reply that need not be read."""

    __slots__ = (
        "_begun",
        "_buffered_in_relay",
        "_check",
        "_end",
        "_followers",
        "_frames",
        "_reading",
        "_recorder",
        "_relay",
        "_shape",
        "_shapes",
        "_tail",
        "_texts",
        "_told",
        "held",
    )

    def __init__(self, relay: Relay[ReplyPipeline], heard: ReasoningRecorder | None = None) -> None:
        self._relay = relay
        self._recorder = heard  # hears the texts that leave unread, as far as they count
        self._end = relay.decoder.framing.end
        self._shapes = Shapes()
        self._check: TextCheck | None = None  # None while every frame must be read
        self._shape = FrameShape(b"", b"", lambda _: None)
        self.held: HeldFrames | None = None
        """Takes the frames of a call that waits, and reads them."""
        self._begun = b""  # the beginning of a frame
        self._frames: list[bytes] = []  # those before it that wait for what follows
        self._texts: list[bytes] = []
        self._buffered_in_relay = 0  # 1 if the first of them waits in the relay, too
        self._reading: ReplyPipeline | None = None  # reads what does not leave so
        self._tail = deque[bytes](maxlen=LOOKBEHIND_CHARACTERS)  # the texts that left unread
        self._told: ToldText | None = None  # for a client that is sent other frames, as those of another API
        self._followers: list[Callable[[bytes, Sequence[bytes]], None]] = []  # take the frames that leave

    def feed(self, chunk: bytes) -> list[bytes] | None:
        """Return what may leave of the chunk and of those before it; None if they must be read (`take`)."""
        check = self._check
        if check is None:
            return self.held.feed(chunk) if self.held else None
        data, (before, after, _) = self._begun + chunk, self._shape
        start, end = len(before), len(data) - len(after)
        text: bytes | None = None  # of the only frame
        if start < end < MAX_TEXT_BYTES and data[:start] == before and data[end:] == after:
            text = data[start:end]  # mostly the next frame is the same but for its text
        if text is None or check.odd(text):
            is_one = data.find(b"\n", start) == len(data) - len(self._end) > 0
            text = self._shape.text(data, check) if is_one else None
            is_alone = text is not None and not check.joined(text)
        else:
            is_alone = text[-1] != _SPACE
        if text and is_alone and not (self._begun or self._frames):
            if self._told or self._followers:
                return self._forward([data], [text])
            self._tail.append(text)
            return [data]
        if text is None:
            *parts, begun = data.split(self._end)
            frames = [part + self._end for part in parts]
            texts = [self._shape.text(frame, check) for frame in frames]
        else:
            frames, texts, begun = [data], [text], b""
        if b"" in texts or len(begun) > MAX_PARTIAL_BYTES or b"\r" in begun:
            return None
        if self._frames:
            frames, texts = self._frames + frames, self._texts + texts
        joined = texts[0] if len(texts) == 1 else b"".join(texts)
        if check.lines(joined):
            return None
        leaves = len(frames)
        while leaves and texts[leaves - 1].endswith(check.ends):
            leaves -= 1
            if not check.blank(texts[leaves]):
                break
        if len(frames) - leaves > MAX_BLANK_FRAMES:
            return None
        is_told = bool(check.later) and check.later in joined
        if is_told and 0 < leaves < len(frames) and texts[leaves - 1].endswith(check.ends):
            return None  # the reader is told no end that may go on
        out = self._forward(frames[:leaves], texts[:leaves]) if leaves else []
        if out is not None:
            self._frames, self._texts, self._begun = frames[leaves:], texts[leaves:], begun
            if is_told and leaves and self._reading:
                self._catch_up()
                self._check = compile_check(rule) if (rule := self._reading.plain) else None
        return out

    def _forward(self, frames: Sequence[bytes], texts: Sequence[bytes]) -> list[bytes] | None:
        """Let frames leave, with these texts; None if they must be read after all."""
        data = b"".join(frames)
        if self._told:
            written = self._told.write(texts)
            if written is None:
                return None
            data = written
        for follow in self._followers:
            follow(data, texts)
        self._tail.extend(texts[self._buffered_in_relay :] if self._buffered_in_relay else texts)
        if self._buffered_in_relay:
            self._relay.went()
            if self._reading and (reader := self._reading.text.reader):
                reader.release_whitespace()
            self._buffered_in_relay = 0
        return [data]

    def take(self, chunk: bytes) -> bytes:
        """Hand over what waits here, and the chunk, when the readers were told what came unread."""
        if self.held or self._tail:
            self._catch_up()
        data = b"".join([*self._frames[self._buffered_in_relay :], self._begun, chunk])
        self._frames, self._texts, self._begun, self._buffered_in_relay = [], [], b"", 0
        return data

    def give_back(self, chunk: bytes) -> bytes:
        """Hand over the same after a fault: the readers are told nothing."""
        if self.held:
            chunk = chunk[self.held.taken :]
        self.held = None
        self._tail.clear()
        return self.take(chunk)

    def _catch_up(self) -> None:
        """Tell the readers what came unread: the end of what left, or all of a call."""
        held, self.held = self.held, None
        text = b"".join(self._tail).decode(errors="replace")
        self._tail.clear()
        if held and held.catch_up():
            raise ValueError("text that only makes a call longer became something else")
        if text and self._reading and (reader := self._reading.text.reader):
            reader.skip_passed(_ESCAPE.sub(lambda escape: _ESCAPED[escape[0]], text) if "\\" in text else text)

    def rest(self) -> None:
        """Forward nothing until a frame was read: the numbers of frames have changed."""
        self._check = None

    def learn(self, *, whole: bool) -> None:
        """Look at the frame that went the long way last: does it say how to know others like it?

        `whole` is False while another frame has only begun there.
        """
        self._check = None
        last = self._relay.last_frame
        if not whole or last is None:
            return
        if not last.left:
            if len(last.waiting) > MAX_FRAMES_BEFORE_CALL:
                self._hold(last)
            return
        if (plain := describe_last_frame(last)) is None:
            return
        frame, delta, left, waits = plain
        pipeline = self._relay.pipelines[delta.choice]
        if not isinstance(delta, TextDelta | ReasoningDelta) or (isinstance(delta, TextDelta) and delta.refusal):
            return
        rule = pipeline.plain if isinstance(delta, TextDelta) else pipeline.plain_reasoning
        shape = self._shapes.of(self._relay.decoder, frame, delta) if rule else None
        if rule is None or shape is None:
            return
        text = frame.raw[len(shape.before) : -len(shape.after)]
        if not isinstance(delta, TextDelta):
            rule = rule._replace(stop=rule.stop + rule.later, later="")  # no reader is told of reasoning that left
        check = compile_check(rule)
        self._reading = pipeline if isinstance(delta, TextDelta) and check.ends else None
        if waits and check.stops(text):
            return
        self._followers = [*self._list_followers(delta)]
        if left is frame.raw:
            self._told = None
        elif self._told is None or not self._told.goes_on(left):
            self._told = learn_template(self._relay.writer, delta)
            if self._told is None or not self._told.goes_on(left):
                return
        self._check, self._shape = check, shape
        if waits:
            self._frames, self._texts, self._buffered_in_relay = [frame.raw], [text], 1

    def _hold(self, last: LastFrame) -> None:
        """Take the frames that follow one of a call which waits, if it is one."""
        frame, delta, pipeline = last.frame, last.delta, self._relay.pipelines[last.delta.choice]
        if not isinstance(delta, TextDelta) or delta.refusal or (call := pipeline.held_call) is None:
            return
        if _decode_string(b'"%b"' % self._shape.text(frame.raw)) != delta.text:
            if (shape := self._shapes.of(self._relay.decoder, frame, delta)) is None:
                return
            self._shape = shape
        self.held = HeldFrames(self._relay, pipeline, self._shape, frame, delta.choice, call)

    def _list_followers(self, delta: Delta) -> Iterator[Callable[[bytes, Sequence[bytes]], None]]:
        """Find who must know of the frames that leave and of their texts."""
        if follow := getattr(self._relay.writer.encoder, "record_passed", None):  # of a `FrameFollower`
            yield follow
        if isinstance(delta, ReasoningDelta) and (note := getattr(self._relay.decoder, "thought_more", None)):
            yield note  # of a `Noting`
        if self._recorder and (hear := self._recorder.unread_receiver(type(delta))):
            yield lambda _, texts: hear(texts, self._buffered_in_relay)
