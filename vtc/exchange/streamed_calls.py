"""Upstream's own calls that leave piece by piece, as they come: clients draw a file while it is written.

A call does so if its beginning is in order: an offered tool, an id of its own, an object whose first key the tool
declares. Of such a call four things are still mended. A string where the schema allows no text waits for its end and
leaves as what it means; a piece that ends in a comma waits for the next one, as that may be one too many; nothing
leaves after the whole object; and if the JSON breaks, the rest waits for the end of the call, and leaves as it should
be if that continues what has left, else as it came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_fields
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.dialects.arguments import values
from vtc.dialects.arguments.json_object import JsonBody, dumped, encodable, loaded
from vtc.dialects.repair import Repair
from vtc.events import CallDelta, Tool, ToolCall
from vtc.exchange.native_calls import NotInOrder, in_order

MOST_AT_ONCE = 1 << 14
"""Characters of a piece beyond which it waits: at the end of the call it is read in a tenth of the time."""


class _Arguments(JsonBody):
    """The object of arguments as it comes: strict JSON, of which the keys at the top are known."""

    def __init__(self) -> None:
        super().__init__(lenient=False)
        self.keys: list[str] = []
        """The keys at the top so far."""
        self.begun: int | None = None
        """Where the text value of the last key begins, if it does in the text that was read last."""
        self._key_at = 0

    def has_failed(self) -> bool:
        return bool(self.error)

    def is_in_string(self) -> bool:
        return self.in_string

    @property
    def follows_comma(self) -> bool:
        """True if a member or an item must follow, also where something else did."""
        return self._expect.startswith("next") and not self.in_string

    def is_over(self) -> bool:
        """True after the whole object, or after a fault."""
        return self.done or bool(self.error)

    def step(self, text: str, at: int) -> int:
        """Read one token; return where it ends, `at` if it is not whole yet."""
        self.begun = None
        if self.in_string:
            return self._string(text, at)
        expected, is_top = self._expect, self._containers == ["{"]
        end, begins_text = self._structure(text, at, False), self.is_in_string()
        if is_top and expected.endswith("key") and begins_text:
            self._key_at = len(self._out)
        elif is_top and expected == "colon" and self._expect == "value":
            self.keys.append("".join(self._out[self._key_at : -2]))
        elif is_top and expected == "value" and begins_text:
            self.begun = end - 1
        return end


class Ended(NamedTuple):
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
class _Streamed:
    """One call so far."""

    first: CallDelta
    schema: Mapping[str, Any]
    streams: bool = False
    """True once its beginning has shown that it is in order."""
    text: list[str] = field(default_factory=list)
    """Its arguments as they came."""
    left: list[str] = field(default_factory=list)
    """Its arguments as they left."""
    arguments: _Arguments = field(default_factory=_Arguments)
    rest: str = ""
    """What came last, and cannot be told yet: half an escape, a number that may go on."""
    waiting: bool = False
    """True in a text value that waits for its end."""
    waits: str = ""
    """What has not left: that value, or all after a fault."""
    repairs: dict[str, None] = field(default_factory=dict)
    has_told: bool = False
    """True once the calls that follow it in its arguments were told."""
    held: str | None = None
    """What may leave of its last piece, which waits as it does not end the object."""
    comma: str = ""
    """Text from a comma on that may be one too many: what follows it shows that."""
    comma_waits: bool = False
    """True if whole pieces wait with it; else the text before it has left."""

    def take(self, piece: str) -> str:
        """Read a piece of the arguments; return what of them may leave."""
        read = self.arguments
        self.text.append(piece)
        if len(piece) > MOST_AT_ONCE and not read.is_over():
            self.waits += self.rest if self.waiting else ""
            read.error = "a piece of it is too long to be read as it comes"
        if read.is_over():
            self.waits += piece
            return ""
        text, sent = self.rest + piece, 0 if self.waiting else len(self.rest)
        out: list[str] = []
        at, mark = 0, sent
        while at < len(text) and not read.is_over():
            here = at
            at = read.step(text, at)
            if at == here and not read.is_over():
                break
            if read.begun is not None and not self._takes_text(read.keys[-1]):
                out.append(text[mark : read.begun])
                mark, self.waiting = read.begun, True
            elif self.waiting and not read.in_string and not read.has_failed():
                out.append(self._typed(self.waits + text[mark:at]))
                mark, self.waiting, self.waits = at, False, ""
        self.rest = text[at:]
        if self.waiting or read.is_over():
            known = max(mark, at)
            if not self.waiting:
                out.append(text[mark:known])
                mark = known
            self.waits += text[mark:] if not self.waiting or read.has_failed() else text[mark:at]
        else:
            out.append(text[mark:])
        left, self.comma = self.comma + "".join(out), ""
        if read.follows_comma and (end := left.rstrip()).endswith(","):
            left, self.comma = end[:-1], left[len(end) - 1 :]
        return left

    @property
    def has_more(self) -> bool:
        """True if something follows its object: another one, perhaps, which is a call before those that come later."""
        return self.arguments.done and bool(self.waits.strip())

    @property
    def shows(self) -> bool:
        """True once it can be told whether the beginning is in order."""
        return bool(self.arguments.keys or self.arguments.error or self.arguments.done)

    @property
    def is_in_order(self) -> bool:
        """True if the object begins with a key that the tool declares, if it declares any."""
        keys, declared = self.arguments.keys, values.properties(self.schema)
        return bool(keys) and not self.arguments.error and (not declared or keys[0] in declared)

    def _takes_text(self, key: str) -> bool:
        declared = values.properties(self.schema)
        return key not in declared or values.takes_text(declared[key], self.schema)

    def _typed(self, written: str) -> str:
        """Write a text value as what it means; as it came if it means nothing that the schema allows."""
        key = self.arguments.keys[-1]
        value, fits = values.read(loaded(written), values.properties(self.schema)[key], self.schema)
        if not fits or isinstance(value, str):
            return written
        self.repairs[Repair.TYPED.of(key)] = None
        return encodable(dumped(value))


class StreamedCalls:
    """The calls of one message of upstream's that leave as they come.

    `given` holds, at each time, the calls that the client was given out of the text.
    """

    def __init__(self, tools: Mapping[str, Tool], given: Sequence[ToolCall], *, lenient: bool) -> None:
        self._tools = tools
        self._given = given
        self._lenient = lenient
        self._calls: dict[int, _Streamed] = {}
        self._held: set[int] = set()
        self._ids: set[str] = set()

    @property
    def ids(self) -> list[str]:
        """The ids of the calls that left."""
        return [call.first.id for call in self._calls.values() if call.streams and call.first.id]

    def piece(self, delta: CallDelta) -> CallDelta | None:
        """Take a piece; return what may leave of it now. None if its call waits, or may have to."""
        number = delta.index
        if number is None or number in self._held:
            return None
        call = self._calls.get(number)
        if call and call.held is not None:
            return None
        if call is None or delta.name:
            known = call is None and delta.name in self._tools and len(delta.arguments) <= MOST_AT_ONCE
            known = known and all(delta.name != one.name for one in self._given)
            known = known and not any(other.has_more for other in self._calls.values())
            if not (known and delta.clean and delta.id and delta.id not in self._ids):
                self._held.add(number)
                return None
            self._ids.add(delta.id)
            call = self._calls[number] = _Streamed(delta, self._tools[delta.name].parameters)
        before = call.comma if call.comma_waits else ""
        left = call.take(delta.arguments)
        waits = call.comma and (call.comma_waits or left + call.comma + call.waits == delta.arguments)
        if waits and not delta.last:  # up to what shows whether the comma is one too many, or to the end of the call
            call.comma, call.comma_waits = left + call.comma, True
            return None
        if not call.streams:
            if not call.shows:
                return None
            if not call.is_in_order:
                del self._calls[number]
                self._held.add(number)
                return None
            call.streams = True
            call.left = [*call.text[:-1]]  # the pieces that waited leave now
        elif not delta.last or call.arguments.done:
            call.left.append(before)
        if delta.last and not call.arguments.done:
            call.held, call.comma = left + call.comma, ""
            return None  # whether it was cut off shows with the end of the message
        left, call.comma_waits = left.removeprefix(before), False
        call.left.append(left)
        return delta if left == delta.arguments else replace(delta, arguments=left)

    def following(self) -> list[Ended]:
        """End the calls that others follow in their arguments, before those that came later are made."""
        found = [call for call in self._calls.values() if call.streams and call.has_more and not call.has_told]
        ended = [self._ended(call, complete=True) for call in found]
        for call in found:
            call.has_told = True
        return ended

    def finish(self, *, complete: bool) -> list[Ended]:
        """End the calls that left."""
        return [self._ended(call, complete=complete) for call in self._calls.values() if call.streams]

    def _ended(self, call: _Streamed, *, complete: bool) -> Ended:
        written, left, more, fault = "".join(call.text), "".join(call.left), "", ""
        others: tuple[ToolCall, ...] = ()
        made = ToolCall(call.first.name, left, call.first.id, call.first.source)
        if call.waits.strip() or not call.arguments.done:
            try:
                found = in_order(
                    replace_fields(made, arguments=written), self._tools, lenient=self._lenient, complete=complete
                )
                more, others = (
                    _after(left, found.calls[0].arguments),
                    tuple(replace_fields(one, source=None) for one in found.calls[1:] if not call.has_told),
                )
                call.repairs |= dict.fromkeys(found.repairs)
            except (NotInOrder, ValueError) as error:
                more, fault = (
                    ("", "") if call.arguments.done else ((call.held or "") + call.comma + call.waits, str(error))
                )
        piece = CallDelta(call.first.index, arguments=more, choice=call.first.choice) if more else None
        return Ended(
            replace_fields(made, arguments=left + more), call.first.index, piece, (*call.repairs,), fault, others
        )


def _after(left: str, whole: str) -> str:
    """Return what is missing of `whole` after what has `left`. Raises ValueError if that is another."""
    if whole.startswith(left):
        return whole[len(left) :]
    begun, meant = JsonBody(lenient=False), JsonBody(lenient=False)
    begun.feed(left, 0)
    meant.feed(whole, 0, final=True)
    more = meant.text()[len(begun.text()) :] if meant.text().startswith(begun.text()) else ""
    try:
        loaded(left + more)
    except ValueError:
        raise ValueError("its arguments are not a whole JSON object, and a part of them has left") from None
    return more
