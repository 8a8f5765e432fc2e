"""Native tool calls that are sent piece by piece as they arrive, so that clients can show a file while it is written.

A call is sent this way if it begins correctly: an offered tool, a unique id, an object whose first key the tool
declares. Four repairs remain possible. A string for a parameter that accepts no text is buffered to its end and sent
with its intended type. A piece whose end is ambiguous is buffered until the next one decides. Nothing is sent after the
complete object. If the JSON breaks, the rest is buffered until the end of the call; it is sent repaired if that
continues the text already sent, else unchanged.

    {"path": "a",        the comma may be superfluous
    90                   may be a text without its quotes
    Paris<               may begin a special token that closes the value
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import JsonBody, dump_json, escape_surrogates, load_json
from vtc.dialects.repair import Repair
from vtc.events import CallDelta, Tool, ToolCall
from vtc.exchange.replying import value_ends
from vtc.exchange.replying.native_calls import NO_MARKERS, MalformedCall, normalize_call
from vtc.exchange.replying.value_ends import ValueEnds
from vtc.json_schema import ObjectSchema

MAX_PIECE_CHARACTERS = 1 << 14
"""Characters beyond which a piece is buffered, because at the end of the call it is parsed in a tenth of the time."""


MAX_BUFFERED_PIECES = 1 << 10
"""Characters of complete pieces that are buffered while each ends ambiguously; beyond that the last piece is split."""


_WORDS = [word[: end + 1] for word in ("true", "false", "null") for end in range(len(word))]
_BEGINS_WORD = re.compile(rf"\s*(?:-?(?:\d[-+.\deE]*)?|{'|'.join(_WORDS)})\Z", re.ASCII)  # used with match
"""The beginning of a number or literal that may continue."""


class _StreamedArguments(JsonBody):
    """Incrementally parsed arguments: strict JSON whose top-level keys are recorded."""

    def __init__(self) -> None:
        super().__init__(lenient=False)
        self.keys: list[str] = []
        """Top-level keys so far."""
        self.begun: int | None = None
        """Offset in the last text of the last key's string value, if it begins there."""

    @property
    def follows_comma(self) -> bool:
        """True if a member or an item must follow, even if something else did."""
        return self._expect.startswith("next") and not self.in_string

    def is_over(self) -> bool:
        """Return True after the complete object or a fault."""
        return self.done or bool(self.error)

    def step(self, text: str, at: int) -> int:
        """Parse one token and return its end; `at` if it is incomplete."""
        self.begun, expected = None, self._expect
        end = self._feed_string(text, at) if self.in_string else self._feed_structure(text, at, False)
        if end == at and not (self.in_string or self.error or _BEGINS_WORD.match(text, at)):
            self.error = "a word where JSON has a value"  # it may be a text without its opening quote
        if self._containers == ["{"]:
            if expected == "colon" and self._expect == "value":
                self.keys.append("".join(self._out[self._string_start : -2]))
            elif expected == "value" and self.in_string:
                self.begun = end - 1
        return end


class CallEnd(NamedTuple):
    """The end of a call whose beginning was sent."""

    call: ToolCall
    number: int | None
    """The server's number of it."""
    piece: CallDelta | None
    """The missing rest of its arguments."""
    repairs: tuple[str, ...]
    fault: str
    """Reason why its arguments are no object; empty if they are one."""
    others: tuple[ToolCall, ...] = ()
    """Calls that follow it in its arguments."""


@dataclass(slots=True)
class _Snapshots:
    """The received pieces of a call's arguments; each of them may be a snapshot of the whole object so far."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    """Their characters."""
    again: str = ""
    """The last piece if it repeats all text before it; the next piece shows whether pieces are snapshots."""
    grows: bool = False
    """True once the pieces are known to be snapshots."""

    def add(self, piece: str) -> None:
        """Record a piece without parsing it."""
        self.pieces.append(piece)
        self.size += len(piece)

    def take(self, piece: str) -> str:
        """Record a piece; return the text to parse now."""
        begins = "".join(self.pieces) if 0 < self.size <= len(piece) else ""
        self.add(piece)
        if self.again and piece:
            self.grows = piece.startswith(self.again)
            piece, self.again = self.again + piece, ""
        elif begins and piece.startswith(begins):
            piece, self.again = "", piece
        return piece


class _BufferedText(NamedTuple):
    """Received text that may not be sent yet."""

    text: str = ""
    until: Literal["next", "value", "end"] = "next"
    """When it is sent: when the next piece disambiguates it, when its value is complete, or at the end of the call."""


NOT_BUFFERED = _BufferedText()


@dataclass(slots=True)
class _CallInPieces:
    """The state of one call."""

    first: CallDelta
    schema: ObjectSchema
    ends: ValueEnds
    streams: bool = False
    """True once its beginning proved correct."""
    received: _Snapshots = field(default_factory=_Snapshots)
    sent: list[str] = field(default_factory=list)
    """Its arguments as sent."""
    arguments: _StreamedArguments = field(default_factory=_StreamedArguments)
    rest: str = ""
    """An incomplete token at the end: half an escape, or a number that may continue."""
    buffered: _BufferedText = NOT_BUFFERED
    kept: list[str] = field(default_factory=list)
    """Text after `buffered`, once everything is buffered until the end of the call."""
    whole: list[str] = field(default_factory=list)
    """Buffered pieces as received: they are sent so, or stay until the end of the call."""
    repairs: dict[str, None] = field(default_factory=dict)
    has_listed_others: bool = False
    """True once the calls that follow in its arguments were returned."""

    def release(self, piece: str, *, last: bool) -> str | None:
        """Process a piece; return the text to send now after the buffered pieces. None if it is buffered, too."""
        shown = self.shows
        left = self._take(piece)
        if not self.shows:
            self.whole.append(piece)
            self.buffered = NOT_BUFFERED
            self.kept.clear()
            return None
        left = left if shown else "".join(self.whole) + left
        if self._must_buffer(piece, left, last=last):
            self.whole.append(piece)
            self.buffered = self.buffered._replace(text=left + self.buffered.text)
            return None
        waited = "".join(self.whole)
        self.whole.clear()
        self.sent.append(left)
        return left.removeprefix(waited)

    def _must_buffer(self, piece: str, left: str, *, last: bool) -> bool:
        """Return True if a piece must be buffered whole although this part of it could be sent."""
        if last and not self.is_whole:  # the end of the message shows whether it was cut off
            self._keep()
            return True
        if self.whole and not left and self.buffered.until == "end":
            return True
        waited = "".join(self.whole)
        as_came = bool(waited) or (not self.kept and left + self.buffered.text + self.received.again == piece)
        undecided = (
            self.arguments.error or self.received.again or (self.buffered.text and self.buffered.until == "next")
        )
        if undecided and as_came and len(waited) <= MAX_BUFFERED_PIECES:
            return True
        if not left.startswith(waited):  # the buffered pieces would be sent changed
            self._keep()
            return True
        return False

    def _take(self, piece: str) -> str:
        """Parse a piece of the arguments; return the part that may be sent."""
        read = self.arguments
        if read.is_over() or self.buffered.until == "end":
            self.received.add(piece)
            return self._keep(piece)
        piece = self.received.take(piece)
        if self.received.grows:
            read.error = "each piece of it is the object so far"
        elif not piece:
            return ""
        if len(piece) > MAX_PIECE_CHARACTERS and not read.error:
            read.error = "a piece of it is too long to be read as it comes"
        return self._keep(piece) if read.error else self._read(piece)

    def _keep(self, text: str = "") -> str:
        """Buffer everything until the end of the call."""
        if self.buffered.until == "end":
            self.kept.append(text)
        else:
            unread = self.rest if self.buffered.until == "value" else ""
            self.buffered = _BufferedText(self.buffered.text + unread + text, "end")
        return ""

    def _read(self, piece: str) -> str:
        """Continue parsing; return the buffered text with this piece, except for a part that remains ambiguous."""
        read, in_value = self.arguments, self.buffered.until == "value"
        doubtful, value = ("", self.buffered.text) if in_value else (self.buffered.text, "")
        # Step 1: parse token by token. Text outside typed values goes to `out`; the value in progress is buffered.
        text, out = self.rest + piece, list[str]()
        at, mark, word = 0, 0 if in_value else len(self.rest), slice(0)
        while at < len(text) and not read.is_over():
            here = at
            at = read.step(text, at)
            if at == here and not read.is_over():
                break
            word = slice(here, at) if at > here else word
            if read.begun is not None and not self.schema.accepts_text(read.keys[-1]):
                out.append(text[mark : read.begun])
                mark, in_value = read.begun, True
            elif in_value and not read.in_string and not read.error:
                out.append(self._render_typed(value + text[mark:at]))
                mark, in_value, value = at, False, ""
        # Step 2: after a fault, take back the last word if it may be a text without its opening quote.
        if read.error and word.stop == at and self._may_be_text(text[word]):
            at, doubtful = word.start, "" if word.start < mark else doubtful
            mark = min(mark, at)
        # Step 3: keep the incomplete token, and add the rest of the parsed text to `out` or to the value.
        self.rest = text[at:]
        if not in_value:
            known = max(mark, at) if read.is_over() else len(text)
            out.append(text[mark:known])
            mark = known
        value += text[mark:] if read.is_over() else text[mark:at]
        if in_value and len(value) > MAX_PIECE_CHARACTERS and not read.is_over():
            read.error = "a value of it is too long to wait for its end"
            value += self.rest
        return self._split_ready(doubtful + "".join(out), value, in_value=in_value)

    def _split_ready(self, text: str, value: str, *, in_value: bool) -> str:
        """Split text to send from an ambiguous end, and from a value or a fault after it."""
        read, doubtful = self.arguments, ""
        has_marker = self.ends and "<" in text
        if has_marker and (marker := value_ends.MARKER_START.search(text)):
            # It may close the value: the end of the call decides.
            read.error = read.error or "a special token stands in it"
            value = text[marker.start() :] + value + (self.rest if in_value else "")
            text = text[: marker.start()]
        elif has_marker:
            marker = value_ends.PARTIAL_MARKER.search(text) if read.in_string and not in_value else None
            doubtful = marker[0] if marker else ""
        elif read.follows_comma and (end := text.rstrip()).endswith(","):
            doubtful = text[len(end) - 1 :]
        elif not (in_value or read.in_string or read.is_over()) and self._may_be_text(self.rest):
            doubtful = self.rest
        until: Literal["next", "value", "end"] = "end" if read.is_over() else "value" if in_value else "next"
        self.buffered = _BufferedText(doubtful + value, until)
        return text.removesuffix(doubtful)

    def _may_be_text(self, word: str) -> bool:
        """Return True for a number, or the beginning of one, if the parameter accepts text."""
        keys, declared = self.arguments.keys, self.schema.properties
        is_word = bool(word.strip()) and _BEGINS_WORD.fullmatch(word) is not None
        return is_word and bool(keys) and keys[-1] in declared and self.schema.accepts_text(keys[-1])

    @property
    def has_more(self) -> bool:
        """True if text follows the object, perhaps another object, which is a call before later ones."""
        return self.is_whole and any(text.strip() for text in (self.buffered.text, *self.kept))

    @property
    def is_whole(self) -> bool:
        """True if its object ended without a fault."""
        return self.arguments.done and not self.arguments.error

    @property
    def shows(self) -> bool:
        """True once its beginning can be checked."""
        return bool(self.arguments.keys or self.arguments.error or self.arguments.done)

    @property
    def is_in_order(self) -> bool:
        """True if the object begins with a key that the tool declares, if it declares any."""
        keys, declared = self.arguments.keys, self.schema.properties
        return bool(keys) and not self.arguments.error and (not declared or keys[0] in declared)

    def _render_typed(self, written: str) -> str:
        """Render a string as the value that it denotes; unchanged if the schema permits no such value."""
        key = self.arguments.keys[-1]
        text = load_json(written)
        clean = self.ends.strip(text)
        value, fits = values.read(clean, self.schema.properties[key], self.schema.root)
        if clean != text:
            self.repairs[Repair.MARKUP_IN_VALUE] = None
        if not fits or isinstance(value, str):
            return written if clean == text else escape_surrogates(dump_json(clean))
        self.repairs[Repair.TYPED.of(key)] = None
        return escape_surrogates(dump_json(value))


class StreamedCalls:
    """The native calls of one message that are sent as they arrive.

    `from_text` is the live list of text tool calls, `taken` receives the ids of calls that are sent, and `used` holds
    the ids of past calls.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        from_text: Sequence[ToolCall],
        taken: set[str],
        used: Collection[str],
        *,
        lenient: bool,
        ends: ValueEnds = NO_MARKERS,
    ) -> None:
        self._tools = tools
        self._from_text = from_text
        self._taken = taken
        self._lenient = lenient
        self._ends = ends if lenient else NO_MARKERS
        self._calls: dict[int, _CallInPieces] = {}
        self._held: set[int] = set()
        self._ids = {*used}

    def process_piece(self, delta: CallDelta) -> CallDelta | None:
        """Process a piece; return the part to send now. None if its call is buffered, or may have to be."""
        number = delta.index
        if number is None or number in self._held:
            return None
        call = self._calls.get(number)
        if call is None or delta.name:
            if not self._begins(delta, again=call is not None):
                self._held.add(number)
                return None
            call = self._calls[number] = _CallInPieces(delta, self._tools[delta.name].schema, self._ends)
        left = call.release(delta.arguments, last=delta.last)
        if not call.streams and call.shows and not call.is_in_order:
            del self._calls[number]
            self._held.add(number)
            return None
        if left is None:
            return None
        if not call.streams:
            call.streams = True
            self._taken.add(call.first.id or "")
        return delta if left == delta.arguments else replace(delta, arguments=left)

    def _begins(self, delta: CallDelta, *, again: bool) -> bool:
        """Return True if a call begins correctly for streaming, and not `again`."""
        known = not again and delta.name in self._tools and len(delta.arguments) <= MAX_PIECE_CHARACTERS
        known = known and all(delta.name != given.name for given in self._from_text)
        known = known and not any(call.has_more for call in self._calls.values())
        if not (known and delta.clean and delta.id and delta.id not in self._ids):
            return False
        self._ids.add(delta.id)
        return True

    def end_followed_calls(self) -> list[CallEnd]:
        """End calls that are followed by others in their arguments, before later calls are processed."""
        calls = [call for call in self._calls.values() if call.streams and call.has_more and not call.has_listed_others]
        ended = [self._end_call(call, complete=True) for call in calls]
        for call in calls:
            call.has_listed_others = True
        return ended

    def finish(self, *, complete: bool) -> list[CallEnd]:
        """End the calls that were sent."""
        return [self._end_call(call, complete=complete) for call in self._calls.values() if call.streams]

    def _end_call(self, call: _CallInPieces, *, complete: bool) -> CallEnd:
        written, left, more, fault = "".join(call.received.pieces), "".join(call.sent), "", ""
        others: tuple[ToolCall, ...] = ()
        sent = ToolCall(call.first.name, left, call.first.id, call.first.source)
        if call.has_more or not call.is_whole:
            try:
                result = normalize_call(
                    replace(sent, arguments=written),
                    self._tools,
                    lenient=self._lenient,
                    complete=complete,
                    ends=self._ends,
                )
                more = _find_rest(left, result.calls[0].arguments)
                if not call.has_listed_others:
                    others = tuple(replace(following, source=None) for following in result.calls[1:])
                call.repairs |= dict.fromkeys(result.repairs)
            except (MalformedCall, ValueError) as error:
                unread = call.rest if call.buffered.until == "value" else ""
                rest = "".join((call.buffered.text, unread, *call.kept, call.received.again))
                more, fault = ("", "") if call.is_whole else (rest, str(error))
        piece = CallDelta(call.first.index, arguments=more, choice=call.first.choice) if more else None
        return CallEnd(replace(sent, arguments=left + more), call.first.index, piece, (*call.repairs,), fault, others)


def _find_rest(left: str, whole: str) -> str:
    """Return the rest of `whole` after the text already sent. Raises ValueError if `whole` does not continue it."""
    if whole.startswith(left):
        return whole[len(left) :]
    begun, meant = JsonBody(lenient=False), JsonBody(lenient=False)
    begun.feed(left, 0)
    meant.feed(whole, 0, final=True)
    more = meant.text()[len(begun.text()) :] if meant.text().startswith(begun.text()) else ""
    try:
        load_json(left + more)
    except ValueError:
        raise ValueError("its arguments are not a whole JSON object, and a part of them was sent already") from None
    return more
