"""The fast path: forward a chunk, unchanged or by the client's template, without touching any state of the reader.

    data: {"id": "c1", "created": 17, "choices": [{"index": 0, "delta": {"content": " word"}}], "usage": {"total": 5}}
                 string          number                                               text                       number

Nearly all frames of a reply differ only in a few values. A frame that took the slow path and came out unchanged shows
their shape. It becomes an expression with a hole for each value that makes no difference to the decoder; these values
are found by decoding the frame with substitutes. Most frames do not even need the expression, because they equal the
last frame except for the text.

A chunk of such frames is not decoded if the reader calls their texts plain. A frame whose text ends in white space is
buffered until the next one, and a partial frame until its end, as on the slow path. A frame that the slow path has
buffered alone is also sent from here, and the relay drops it. The reader is given the end of the forwarded text once
there is something to parse. It gets the text at once if a code span begins or ends in it: the text is as plain as any,
but the reader looks for other markup inside a span.

A call that is delivered whole sends no frame before its end. Its frames are not decoded either if they have the same
shape: they are buffered in the relay, as on the slow path, and texts that merely extend the call are fed to the reader
together with the next text that may do more.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from vtc.apis.contract import Decoder
from vtc.apis.relay import LastFrame, Relay
from vtc.apis.text_template import TextTemplate, learn_template
from vtc.dialects.bounded_cache import BYTES_PER_PATTERN_CHARACTER, COMPILED_PATTERNS
from vtc.dialects.reading.reader import HeldCall
from vtc.dialects.syntax.scan import INDENT, PlainRule
from vtc.events import Delta, Event, ReasoningDelta, TextDelta
from vtc.exchange.remembering.recorder import ReasoningRecorder
from vtc.exchange.replying.repeats import RepeatDetector
from vtc.exchange.replying.reply import ReplyPipeline
from vtc.wire.framing import Frame

ESCAPES = {'"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\n": b"\\n", "\t": b"\\t"}
"""JSON escapes in texts that are forwarded unread."""
_CODE = rb" {0,3}(?:\\t|>)|    "
"""Start of a line of code or of a quotation."""
_BLOCK = rb": [|>]|(?:\A| )[|>][-+1-9]{0,2}(?:\\n|\Z)"
"""End of a line that may open a block scalar in YAML: the reader decides."""
_INDENT = rb"(?: |\\t|>){0,%d}" % INDENT
_QUOTE_BEGUN = rb"(?: |\\t)*+>(?: |\\t|>)*+\Z"
"""A line with only the `>` of a quotation so far: the next text may still begin with its markup."""
_SPACE = ord(" ")


class TextCheck(msgspec.Struct, frozen=True):
    """Classifies texts as plain by one rule."""

    has_special_byte: Callable[[bytes], object]
    """Finds a byte that may not be plain text, so that the text is examined closely."""
    joined: Callable[[bytes], object]
    """Finds text that must be examined together with the texts before and after it."""
    must_be_parsed: Callable[[bytes], object]
    """Finds text that the reader must parse."""
    lines: Callable[[bytes], object]
    """Finds the start of a line that the reader must parse, except the line that the first text continues."""
    ends: tuple[bytes, ...]
    """Characters that are buffered at the end of a text until the next one; empty if nothing is parsed."""
    blank: Callable[[bytes], object]
    """Matches a text of only these characters."""
    later: bytes
    """A character that changes how later text is parsed: a text with it is fed to the reader as it is sent."""


@lru_cache(maxsize=256)
def compile_check(rule: PlainRule) -> TextCheck:
    """Compile a rule; a rule without stop characters is for text that is never parsed."""
    bytes_ = {0x22, 0x5C, *range(0x20), *(character.encode()[0] for character in rule.stop + rule.later)}
    bytes_ |= {*b"|>"} if rule.lines else set()
    is_read, later = any(rule), rule.later.encode()
    stops = [*_escape_for_json(rule.stop), rb"[\x00-\x1f]"]
    if rule.lines:
        stops.append(_BLOCK)
    if is_read:
        stops.append(rb'(?<!\\)(?:\\\\)*+\\[^"\\/nt]')  # an unknown escape
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
    """Return expressions for some characters in all spellings of JSON."""
    ways = ((character.encode(), ESCAPES.get(character)) for character in characters)
    return [re.escape(way) for pair in ways for way in pair if way]


# The shape of frames that differ only in a few values, derived by decoding one with substitute values.


MAX_LEARNED_BYTES = 1 << 14
"""Bytes of a frame beyond which no shape is derived from it."""
_PROBE = "vtc probe"

# Tokens of JSON. An array of numbers is one token, because its length differs from frame to frame.
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
    """The shape of the last frame that was read, and of others like it."""

    before: bytes
    """Bytes before its text."""
    after: bytes
    match: FrameMatcher
    """Matches frames that differ from it in other values, too."""

    def text(self, frame: bytes, check: TextCheck | None = None) -> bytes:
        """Return the JSON text of a frame; empty if it has another shape, or if `check` requires parsing."""
        before, after, match = self
        text = frame[len(before) : -len(after)] if frame.startswith(before) and frame.endswith(after) else b""
        if not (text and _is_string(text)):
            found = match(frame)
            text = found["text"] if found else b""
        return (
            b""
            if len(text) > MAX_TEXT_BYTES or (check and check.has_special_byte(text) and check.must_be_parsed(text))
            else text
        )


def derive_expression(decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> bytes | None:
    """Derive the expression for frames of this shape, with the group `text`; None if there is none.

    A value becomes a hole if decoding gives the same result with another value in its place.
    """
    data, raw = frame.data, frame.raw
    if data is None or len(raw) > MAX_LEARNED_BYTES or not raw.endswith(decoder.framing.end) or b"\r" in raw:
        return None
    before, _, after = raw.partition(data)

    def decode(tokens: Sequence[bytes]) -> tuple[Sequence[Delta], Sequence[Any], bool] | None:
        data, trial = b"".join(tokens), copy.copy(decoder)
        try:
            decoded = trial.decode(Frame(before + data + after, data))
        except (AttributeError, LookupError, TypeError, ValueError):  # with the substitute it is invalid in the API
            return None
        if decoded is None or decoded.frame is not None or trial != decoder:
            return None
        # Values in the frame's metadata make no difference.
        return decoded.deltas, [(type(item), getattr(item, "kind", "")) for item in decoded.metadata], decoded.clean

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
        """Find the holes among some values: all of them at once, or else each half recursively."""
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
    """Yield the places of values that may become holes: numbers, arrays of numbers, and strings that are no keys."""
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
"""Frames on the slow path, at most, before another shape is derived."""


class Shapes:
    """Learns the shapes of frames, by the type of delta."""

    __slots__ = ("_failures", "_known", "_patience")

    def __init__(self) -> None:
        self._known: dict[type[Delta], FrameMatcher] = {}
        self._patience = self._failures = 0

    def of(self, decoder: Decoder, frame: Frame, delta: TextDelta | ReasoningDelta) -> FrameShape | None:
        """Return the shape of a frame; None if it is unknown."""
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
        found = match(raw)  # fails if its data span several lines
        if found is None:
            return None
        self._known[type(delta)] = match
        return FrameShape(raw[: found.start("text")], raw[found.end("text") :], match)


def _compile(expression: bytes) -> FrameMatcher:
    return re.compile(expression).fullmatch


class ForwardedFrame(NamedTuple):
    """A frame with one delta that the slow path has sent or buffered, from which a shape may be learned."""

    frame: Frame
    delta: Delta
    sent: bytes
    """The frame's own bytes if it is sent unchanged; else the bytes that were sent for the last one of its kind."""
    is_pending: bool = False
    """True if the frame is buffered for the white space at its end; all before it has been sent."""


def describe_last_frame(last: LastFrame) -> ForwardedFrame | None:
    """Describe the last frame if it was sent entirely or is buffered only for white space; None otherwise."""
    if not (last.sent and last.out):
        return None
    frame, delta, left, out, waiting, alone = last
    entry = left[-1][0]
    is_own = out[-1] is entry.frame.raw
    if not entry.intact or not (is_own or (alone and len(left) == len(out))):
        return None
    if not waiting:
        return ForwardedFrame(frame, delta, out[-1])
    contents = [(share.before, share.calls, share.after) for share in (entry, waiting[0])]
    if len(waiting) > 1 or any(map(any, contents)) or not waiting[0].text[waiting[0].decided :].isspace():
        return None
    return ForwardedFrame(frame, delta, frame.raw if is_own else out[-1], True)


MAX_PARTIAL_BYTES = 1 << 16
"""Bytes of a partial frame that are buffered here; the slow path accepts more."""
MAX_BLANK_FRAMES = 64
"""Frames of only white space that are buffered here."""
MAX_TEXT_BYTES = 1 << 12
"""Bytes of a frame's text beyond which it is parsed, since the last texts are retained here."""


MAX_FRAMES_BEFORE_CALL = 4
"""Buffered frames that may precede a call; more of them are a call."""
MAX_UNREAD_CALL_CHARACTERS = 1 << 12
"""Characters of a call that are buffered before the reader is fed."""
_PER_CHARACTER = 4
"""Maximum bytes of a UTF-8 character."""
_decoded = msgspec.json.Decoder(str).decode


class HeldFrames:
    """Buffers the frames of a choice while they extend a call that is delivered whole."""

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
        """Set up the buffer for frames of the same shape as `frame`."""
        self._relay = relay
        self._pipeline = pipeline
        self._shape = shape
        self._index = index
        self._call: HeldCall | None = call
        self._room = 0  # characters left before the reader must be fed
        before, _, after = frame.raw.partition(frame.data or b"")
        self._around = len(before), len(after)
        self._end = relay.decoder.framing.end
        self._texts: list[str] = []  # texts that the reader has not read
        self.taken = 0
        """Bytes of the current chunk that the relay has received."""

    def feed(self, chunk: bytes) -> list[bytes] | None:
        """Process frames; return the bytes to send, None if they must be parsed."""
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
        """Return the text of a frame; None if it must be parsed."""
        try:
            return _decoded(b'"%b"' % self._shape.text(frame)) or None
        except ValueError:
            return None

    def _take(self, raw: bytes, text: str) -> list[bytes]:
        """Process a frame; return the bytes to send."""
        call, (before, after) = self._call, self._around
        self._texts.append(text)
        self._room -= len(text)
        is_more = self._room < 0 or call is None or call.find_structure is None or call.find_structure(text)
        events = self.catch_up() if is_more else []
        return self._relay.feed_text(self._index, Frame(raw, raw[before : len(raw) - after]), text, events)

    def catch_up(self) -> list[Event]:
        """Feed the reader the buffered text; return its events."""
        text = "".join(self._texts)
        self._texts.clear()
        events = self._pipeline.feed(text) if text else []
        self._call = call = None if events else self._pipeline.held_call
        self._room = min(call.room_bytes // _PER_CHARACTER, MAX_UNREAD_CALL_CHARACTERS) if call else 0
        return events


class FastPath:
    """Forwards the chunks of one reply that need no parsing."""

    __slots__ = (
        "_buffered_in_relay",
        "_check",
        "_end",
        "_followers",
        "_frames",
        "_partial_frame",
        "_reading",
        "_recorder",
        "_relay",
        "_repeats",
        "_shape",
        "_shapes",
        "_template",
        "_texts",
        "held",
    )

    def __init__(self, relay: Relay[ReplyPipeline], heard: ReasoningRecorder | None = None) -> None:
        self._relay = relay
        self._recorder = heard  # records texts that are forwarded unread
        self._end = relay.decoder.framing.end
        self._shapes = Shapes()
        self._check: TextCheck | None = None  # None while every frame must be parsed
        self._shape = FrameShape(b"", b"", lambda _: None)
        self.held: HeldFrames | None = None
        """Buffers the frames of a call, and feeds its text to the reader."""
        self._partial_frame = b""  # a partial frame
        self._frames: list[bytes] = []  # buffered frames before it
        self._texts: list[bytes] = []
        self._buffered_in_relay = 0  # 1 if the first frame is also buffered in the relay
        self._reading: ReplyPipeline | None = None  # parses the texts that are not forwarded
        self._repeats = RepeatDetector(lambda _: None, stops=False)  # also has the texts that were forwarded unread
        # Renders the frames for a client that is sent other ones, for example over a bridge; None if they are the same.
        self._template: TextTemplate | None = None
        self._followers: list[Callable[[bytes, Sequence[bytes]], None]] = []  # receive the frames that are sent

    def feed(self, chunk: bytes) -> list[bytes] | None:
        """Return the bytes to send for the chunk and the buffered ones; None if they must be parsed (`take`)."""
        check = self._check
        if check is None:
            return self.held.feed(chunk) if self.held else None
        # Step 1: send the usual chunk at once: one frame that equals the last one except for a plain text.
        data, (before, after, _) = self._partial_frame + chunk, self._shape
        start, end = len(before), len(data) - len(after)
        text: bytes | None = None  # the text of a single frame
        if start < end < MAX_TEXT_BYTES and data[:start] == before and data[end:] == after:
            text = data[start:end]  # the usual case: the same frame except for its text
        if text is None or check.has_special_byte(text):
            is_one = data.find(b"\n", start) == len(data) - len(self._end) > 0
            text = self._shape.text(data, check) if is_one else None
            is_alone = text is not None and not check.joined(text)
        else:
            is_alone = text[-1] != _SPACE
        if text and is_alone and not (self._partial_frame or self._frames):
            if self._template or self._followers:
                return self._forward([data], [text])
            repeats = self._repeats
            repeats.unwritten.append(text)
            if len(repeats.unwritten) > repeats.max_unwritten:
                self._catch_up()
            return [data]
        # Step 2: split any other chunk into frames. All must have the known shape and a text without stop characters.
        if text is None:
            *parts, begun = data.split(self._end)
            frames = [part + self._end for part in parts]
            texts = [self._shape.text(frame, check) for frame in frames]
        else:
            frames, texts, begun = [data], [text], b""
        if b"" in texts or len(begun) > MAX_PARTIAL_BYTES or b"\r" in begun:
            return None
        # Step 3: examine the joined text of all frames, because markup may be split between them.
        if self._frames:
            frames, texts = self._frames + frames, self._texts + texts
        joined = texts[0] if len(texts) == 1 else b"".join(texts)
        if check.lines(joined):
            return None
        # Step 4: buffer the last frames if they end in white space, since the next frame decides about it.
        ready = len(frames)  # number of frames that are sent now
        while ready and texts[ready - 1].endswith(check.ends):
            ready -= 1
            if not check.blank(texts[ready]):
                break
        if len(frames) - ready > MAX_BLANK_FRAMES:
            return None
        # Step 5: send the frames before these. A text with a `later` character is fed to the reader at once.
        feeds_reader = bool(check.later) and check.later in joined
        if feeds_reader and 0 < ready < len(frames) and texts[ready - 1].endswith(check.ends):
            return None  # the reader must not be given an end that may continue
        out = self._forward(frames[:ready], texts[:ready]) if ready else []
        if out is not None:
            self._frames, self._texts, self._partial_frame = frames[ready:], texts[ready:], begun
            if feeds_reader and ready and self._reading:
                self._catch_up()
                self._check = compile_check(rule) if (rule := self._reading.plain) else None
        return out

    def _forward(self, frames: Sequence[bytes], texts: Sequence[bytes]) -> list[bytes] | None:
        """Send frames with these texts; None if they must be parsed after all."""
        data = b"".join(frames)
        if self._template:
            written = self._template.write(texts)
            if written is None:
                return None
            data = written
        for follow in self._followers:
            follow(data, texts)
        self._repeats.unwritten.extend(texts[self._buffered_in_relay :] if self._buffered_in_relay else texts)
        if self._buffered_in_relay:
            self._relay.drop_pending()
            if self._reading and (reader := self._reading.text.reader):
                reader.release_whitespace()
            self._buffered_in_relay = 0
        if len(self._repeats.unwritten) > self._repeats.max_unwritten:
            self._catch_up()
        return [data]

    def take(self, chunk: bytes) -> bytes:
        """Return the buffered bytes and the chunk for the slow path, after the reader has caught up."""
        if self.held or self._repeats.unwritten:
            self._catch_up()
        data = b"".join([*self._frames[self._buffered_in_relay :], self._partial_frame, chunk])
        self._frames, self._texts, self._partial_frame, self._buffered_in_relay = [], [], b"", 0
        return data

    def give_back(self, chunk: bytes) -> bytes:
        """Return the same bytes after a fault, without feeding the reader."""
        if self.held:
            chunk = chunk[self.held.taken :]
        self.held = None
        self._repeats.unwritten.clear()
        return self.take(chunk)

    def _catch_up(self) -> None:
        """Feed the reader the unread text: the forwarded text, or all of a call."""
        held, self.held = self.held, None
        repeats = self._repeats
        joined = b"".join(repeats.unwritten)
        repeats.unwritten.clear()
        if held and held.catch_up():
            raise ValueError("text that only makes a call longer became something else")
        if not joined:
            return
        try:
            text: str = _decoded(b'"%b"' % joined)
        except ValueError:  # half of a surrogate pair, or bytes that are no UTF-8
            text = joined.decode(errors="replace")
        if self._reading and (reader := self._reading.text.reader):
            reader.record_forwarded(text)
        if self._template:
            self._relay.count_forwarded(text)
        # Not `add`, because this is on the way of each frame that is parsed.
        repeats.write(text)
        if repeats.tell() >= repeats.max_unchecked:
            repeats.check()

    def pause(self) -> None:
        """Forward nothing until another frame was parsed, because the frames are renumbered."""
        self._check = None

    def learn(self, *, whole: bool) -> None:
        """Learn the shape of the last frame on the slow path, if it permits to recognize others.

        `whole` is False while a partial frame is buffered there.
        """
        self._check = None
        last = self._relay.last_frame
        if not whole or last is None:
            return
        if not last.sent:
            if len(last.pending) > MAX_FRAMES_BEFORE_CALL:
                self._buffer_call(last)
            return
        if (plain := describe_last_frame(last)) is None:
            return
        frame, delta, left, waits = plain
        pipeline = self._relay.choices.pipelines[delta.choice]
        if not isinstance(delta, TextDelta | ReasoningDelta) or (isinstance(delta, TextDelta) and delta.refusal):
            return
        rule = pipeline.plain if isinstance(delta, TextDelta) else pipeline.plain_reasoning
        shape = self._shapes.of(self._relay.decoder, frame, delta) if rule else None
        if rule is None or shape is None:
            return
        text = frame.raw[len(shape.before) : -len(shape.after)]
        if not isinstance(delta, TextDelta):
            rule = rule._replace(stop=rule.stop + rule.later, later="")  # forwarded reasoning is not fed to the reader
        check = compile_check(rule)
        self._reading = pipeline if isinstance(delta, TextDelta) and check.ends else None
        if waits and check.must_be_parsed(text):
            return
        self._repeats = pipeline.repeats.text if isinstance(delta, TextDelta) else pipeline.repeats.reasoning
        self._followers = [*self._list_followers(delta)]
        if left is frame.raw:
            self._template = None
        elif self._template is None or not self._template.advance(left):
            self._template = learn_template(self._relay.writer, delta)
            if self._template is None or not self._template.advance(left):
                return
        self._check, self._shape = check, shape
        if waits:
            self._frames, self._texts, self._buffered_in_relay = [frame.raw], [text], 1

    def _buffer_call(self, last: LastFrame) -> None:
        """Buffer the frames after a buffered frame of a call."""
        frame, delta, pipeline = last.frame, last.delta, self._relay.choices.pipelines[last.delta.choice]
        if not isinstance(delta, TextDelta) or delta.refusal or (call := pipeline.held_call) is None:
            return
        if _decode_string(b'"%b"' % self._shape.text(frame.raw)) != delta.text:
            if (shape := self._shapes.of(self._relay.decoder, frame, delta)) is None:
                return
            self._shape = shape
        self.held = HeldFrames(self._relay, pipeline, self._shape, frame, delta.choice, call)

    def _list_followers(self, delta: Delta) -> Iterator[Callable[[bytes, Sequence[bytes]], None]]:
        """Yield the receivers of forwarded frames and their texts."""
        if follow := getattr(self._relay.writer.encoder, "record_passed", None):  # of a `FrameFollower`
            yield follow
        if isinstance(delta, ReasoningDelta) and (note := getattr(self._relay.decoder, "record_reasoning", None)):
            yield note  # of a `ReasoningFollower`
        if self._recorder and (hear := self._recorder.make_unread_receiver(type(delta))):
            yield lambda _, texts: hear(texts, self._buffered_in_relay)
