"""Upstream's own calls that leave piece by piece, as they come: clients draw a file while it is written.

A call does so if its beginning is in order: an offered tool, an id of its own, an object whose first key the tool
declares. Of such a call four things are still mended. A string where the schema allows no text waits for its end and
leaves as what it means; a piece whose end the next one decides about waits for that, whole; nothing leaves after the
whole object; and if the JSON breaks, the rest waits for the end of the call, and leaves as it should be if that
continues what has left, else as it came.

    {"path": "a",        the comma may be one too many
    90                   may be a text without its quotes
    Paris<               a special token may begin that closes the value
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
"""Characters of a piece beyond which it waits: at the end of the call it is read in a tenth of the time."""


MAX_BUFFERED_PIECES = 1 << 10
"""Characters of pieces that wait whole, each of them as it ends in doubt: more of them leave, the last one cut."""


_WORDS = [word[: end + 1] for word in ("true", "false", "null") for end in range(len(word))]
_BEGINS_WORD = re.compile(rf"\s*(?:-?(?:\d[-+.\deE]*)?|{'|'.join(_WORDS)})\Z", re.ASCII)  # used with match
"""The beginning of a number or of a literal that may go on."""


class _StreamedArguments(JsonBody):
    """The object of arguments as it comes: strict JSON, of which the keys at the top are known."""

    def __init__(self) -> None:
        super().__init__(lenient=False)
        self.keys: list[str] = []
        """The keys at the top so far."""
        self.begun: int | None = None
        """Where the text value of the last key begins, if it does in the text that was read last."""

    @property
    def follows_comma(self) -> bool:
        """True if a member or an item must follow, also where something else did."""
        return self._expect.startswith("next") and not self.in_string

    def is_over(self) -> bool:
        """True after the whole object, or after a fault."""
        return self.done or bool(self.error)

    def step(self, text: str, at: int) -> int:
        """Read one token; return where it ends, `at` if it is not whole yet."""
        self.begun, expected = None, self._expect
        end = self._feed_string(text, at) if self.in_string else self._feed_structure(text, at, False)
        if end == at and not (self.in_string or self.error or _BEGINS_WORD.match(text, at)):
            self.error = "a word where JSON has a value"  # none of it leaves: it may be a text without its quote
        if self._containers == ["{"]:
            if expected == "colon" and self._expect == "value":
                self.keys.append("".join(self._out[self._string_start : -2]))
            elif expected == "value" and self.in_string:
                self.begun = end - 1
        return end


class CallEnd(NamedTuple):
    """A call that has left, but for a last piece."""

    call: ToolCall
    number: int | None
    """Upstream's number of it."""
    piece: CallDelta | None
    """What is missing of its arguments."""
    repairs: tuple[str, ...]
    fault: str
    """Why its arguments are no object; empty if they are one."""
    others: tuple[ToolCall, ...] = ()
    """Calls that follow it in its arguments."""


@dataclass(slots=True)
class _Snapshots:
    """The pieces of a call's arguments as they came, each of which may be the object so far."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    """Their characters."""
    again: str = ""
    """The last one, if it begins with all that came before, and waits: the next one shows what that means."""
    grows: bool = False
    """True once each piece is the object so far."""

    def add(self, piece: str) -> None:
        """Take a piece that is not read."""
        self.pieces.append(piece)
        self.size += len(piece)

    def take(self, piece: str) -> str:
        """Take a piece; return what is to be read now."""
        begins = "".join(self.pieces) if 0 < self.size <= len(piece) else ""
        self.add(piece)
        if self.again and piece:
            self.grows = piece.startswith(self.again)
            piece, self.again = self.again + piece, ""
        elif begins and piece.startswith(begins):
            piece, self.again = "", piece
        return piece


class _BufferedText(NamedTuple):
    """The text at the end of what came that may not leave yet."""

    text: str = ""
    until: Literal["next", "value", "end"] = "next"
    """What lets it leave: the next piece shows what it is; the value in which it stands is whole; the call ends."""


NOT_BUFFERED = _BufferedText()


@dataclass(slots=True)
class _CallInPieces:
    """One call so far."""

    first: CallDelta
    schema: ObjectSchema
    ends: ValueEnds
    streams: bool = False
    """True once its beginning has shown that it is in order."""
    received: _Snapshots = field(default_factory=_Snapshots)
    sent: list[str] = field(default_factory=list)
    """Its arguments as they left."""
    arguments: _StreamedArguments = field(default_factory=_StreamedArguments)
    rest: str = ""
    """What came last, and is no whole token yet: half an escape, a number that may go on."""
    buffered: _BufferedText = NOT_BUFFERED
    kept: list[str] = field(default_factory=list)
    """What came after that, once all waits for the end of the call."""
    whole: list[str] = field(default_factory=list)
    """The pieces that wait, as they came: they leave so, or stay for the end of the call."""
    repairs: dict[str, None] = field(default_factory=dict)
    has_listed_others: bool = False
    """True once the calls that follow it in its arguments were told."""

    def release(self, piece: str, *, last: bool) -> str | None:
        """Take a piece, the last or not; return what leaves now after the pieces that waited. None if it waits, too."""
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
        """True if a piece waits whole, though so much of what waited and of it may leave."""
        if last and not self.is_whole:  # whether it was cut off shows with the end of the message
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
        if not left.startswith(waited):  # what waited does not leave as it came
            self._keep()
            return True
        return False

    def _take(self, piece: str) -> str:
        """Read a piece of the arguments; return what of them may leave."""
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
        """Let nothing more leave before the end of the call."""
        if self.buffered.until == "end":
            self.kept.append(text)
        else:
            unread = self.rest if self.buffered.until == "value" else ""
            self.buffered = _BufferedText(self.buffered.text + unread + text, "end")
        return ""

    def _read(self, piece: str) -> str:
        """Read on; what waited for the next piece leaves now, unless that stays in doubt, too."""
        read, in_value = self.arguments, self.buffered.until == "value"
        doubtful, value = ("", self.buffered.text) if in_value else (self.buffered.text, "")
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
        if read.error and word.stop == at and self._may_be_text(text[word]):
            at, doubtful = word.start, "" if word.start < mark else doubtful
            mark = min(mark, at)
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
        """Part text that may leave from what waits at its end, and before a value or a fault."""
        read, doubtful = self.arguments, ""
        has_marker = self.ends and "<" in text
        if has_marker and (marker := value_ends.MARKER_START.search(text)):
            # It may close the value: the end of the call shows whether it does.
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
        """True for a number, or the beginning of one, where the tool takes a text."""
        keys, declared = self.arguments.keys, self.schema.properties
        is_word = bool(word.strip()) and _BEGINS_WORD.fullmatch(word) is not None
        return is_word and bool(keys) and keys[-1] in declared and self.schema.accepts_text(keys[-1])

    @property
    def has_more(self) -> bool:
        """True if something follows its object: another one, perhaps, which is a call before those that come later."""
        return self.is_whole and any(text.strip() for text in (self.buffered.text, *self.kept))

    @property
    def is_whole(self) -> bool:
        """True if its object ended where it could be read as it came."""
        return self.arguments.done and not self.arguments.error

    @property
    def shows(self) -> bool:
        """True once it can be told whether the beginning is in order."""
        return bool(self.arguments.keys or self.arguments.error or self.arguments.done)

    @property
    def is_in_order(self) -> bool:
        """True if the object begins with a key that the tool declares, if it declares any."""
        keys, declared = self.arguments.keys, self.schema.properties
        return bool(keys) and not self.arguments.error and (not declared or keys[0] in declared)

    def _render_typed(self, written: str) -> str:
        """Write a text value as what it means; as it came if it means nothing that the schema allows."""
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
    """The calls of one message of upstream's that leave as they come.

    `from_text` holds, at each time, the calls that were read in the text; `taken` gets the ids of those that leave;
    `used` are those of past calls.
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

    def piece(self, delta: CallDelta) -> CallDelta | None:
        """Take a piece; return what may leave of it now. None if its call waits, or may have to."""
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
        """True if a call may begin so that leaves as it comes, which does not begin `again`."""
        known = not again and delta.name in self._tools and len(delta.arguments) <= MAX_PIECE_CHARACTERS
        known = known and all(delta.name != given.name for given in self._from_text)
        known = known and not any(call.has_more for call in self._calls.values())
        if not (known and delta.clean and delta.id and delta.id not in self._ids):
            return False
        self._ids.add(delta.id)
        return True

    def following(self) -> list[CallEnd]:
        """End the calls that others follow in their arguments, before those that came later are made."""
        calls = [call for call in self._calls.values() if call.streams and call.has_more and not call.has_listed_others]
        ended = [self._end_call(call, complete=True) for call in calls]
        for call in calls:
            call.has_listed_others = True
        return ended

    def finish(self, *, complete: bool) -> list[CallEnd]:
        """End the calls that left."""
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
                more = _rest_after(left, result.calls[0].arguments)
                if not call.has_listed_others:
                    others = tuple(replace(following, source=None) for following in result.calls[1:])
                call.repairs |= dict.fromkeys(result.repairs)
            except (MalformedCall, ValueError) as error:
                unread = call.rest if call.buffered.until == "value" else ""
                rest = "".join((call.buffered.text, unread, *call.kept, call.received.again))
                more, fault = ("", "") if call.is_whole else (rest, str(error))
        piece = CallDelta(call.first.index, arguments=more, choice=call.first.choice) if more else None
        return CallEnd(replace(sent, arguments=left + more), call.first.index, piece, (*call.repairs,), fault, others)


def _rest_after(left: str, whole: str) -> str:
    """Return what is missing of `whole` after what has `left`. Raises ValueError if that is another."""
    if whole.startswith(left):
        return whole[len(left) :]
    begun, meant = JsonBody(lenient=False), JsonBody(lenient=False)
    begun.feed(left, 0)
    meant.feed(whole, 0, final=True)
    more = meant.text()[len(begun.text()) :] if meant.text().startswith(begun.text()) else ""
    try:
        load_json(left + more)
    except ValueError:
        raise ValueError("its arguments are not a whole JSON object, and a part of them has left") from None
    return more
