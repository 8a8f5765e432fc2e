"""Calls that upstream makes, one after the other: the pieces that it sends of several may be mixed.

The first call leaves as it comes. What is said besides waits until its arguments are whole; then the calls that waited
leave in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from vtc.apis.anthropic_messages.words import NO_BLOCK, number_of
from vtc.apis.base import Said
from vtc.apis.tool_calls import Nesting
from vtc.events import CallDelta, Failure, Finish, Origin, Start, Text, Usage

type Queue = tuple[Queue, Said] | None
"""What came before, and what came last: it grows without being copied."""


class OpenCall(msgspec.Struct, frozen=True):
    """The call that leaves."""

    number: int
    name: str
    id: str | None
    nesting: Nesting


class CallsInOrder(msgspec.Struct):
    """What is said, with each call in one piece: a delta with its name and id, then deltas of its arguments alone."""

    open: OpenCall | None = None
    begun: frozenset[int] = frozenset()
    """Upstream's numbers of calls that began before: pieces without a name belong to them."""
    queue: Queue = None
    """What waits for the end of the call, and pieces of calls that have no name yet."""
    unnumbered: int = 0

    def feed(self, one: Said) -> Iterator[Said]:
        """Take what is said next; yield what may be said now."""
        if isinstance(one, Start | Usage | Finish | Failure) or (
            isinstance(one, Origin) and number_of(one) == NO_BLOCK
        ):
            yield one
        elif self.open and not self._continues(self.open, one):
            if not self.open.nesting.is_whole:
                self.queue = self.queue, one
                return
            yield from self._end()
            yield from self.feed(one)
        elif isinstance(one, CallDelta):
            yield from self._piece(one)
        else:
            yield one
            if self.open:  # it ends the call
                yield from self._end()

    def finish(self) -> Iterator[Said]:
        """End the message: yield all that waits. Arguments of a call without a name are text."""
        while self.open or self.queue:
            if self.open:
                yield from self._end()
                continue
            one, *rest = self._taken()
            self._put(rest)
            if not isinstance(one, CallDelta):
                yield from self.feed(one)
            elif one.name:
                yield from self._begin([one], waits=False)
            elif one.arguments:
                yield Text(one.arguments)

    def _taken(self) -> list[Said]:
        """Take all that waits."""
        waited: list[Said] = []
        while self.queue:
            self.queue, one = self.queue
            waited.append(one)
        return waited[::-1]

    def _put(self, some: Iterable[Said]) -> None:
        for one in some:
            self.queue = self.queue, one

    def _continues(self, call: OpenCall, one: Said) -> bool:
        """True if something belongs to the call that leaves."""
        if not isinstance(one, CallDelta):
            return isinstance(one, Origin) and number_of(one) == call.number
        if one.index not in (None, call.number):
            return False
        if not one.name or (one.id and one.id == call.id):
            return True
        differs = one.index is None or bool(one.id and call.id)
        return not call.nesting.is_whole and not (differs and one.name != call.name)

    def _piece(self, piece: CallDelta) -> Iterator[Said]:
        """Take a piece of the open call, or of one that begins as soon as its name and id are there."""
        if self.open:
            self.open = replace(self.open, nesting=self.open.nesting.after(piece.arguments))
            yield CallDelta(self.open.number, arguments=piece.arguments)
            if self.queue and self.open.nesting.is_whole:
                yield from self._end()
        elif piece.index in self.begun and not piece.name:
            yield piece
        else:
            waited = self._taken()
            parts = [one for one in waited if isinstance(one, CallDelta) and one.index == piece.index]
            self._put(one for one in waited if one not in parts)
            yield from self._begin([*parts, piece])

    def _begin(self, parts: Sequence[CallDelta], *, waits: bool = True) -> Iterator[Said]:
        """Begin a call, or let its pieces wait for its name or id; without an id it begins when it is whole."""
        named = next((part for part in parts if part.name), parts[0])
        id_ = next((part.id for part in parts if part.id), None)
        arguments = "".join([part.arguments for part in parts])
        call = replace(named, id=id_, arguments=arguments)
        nesting = Nesting().after(arguments)
        if waits and not (call.name and (call.id or nesting.is_whole)):
            self.queue = self.queue, call
            return
        number = call.index
        if number is None:
            self.unnumbered += 1
            number = NO_BLOCK - self.unnumbered
        self.begun |= {number}
        self.open = OpenCall(number, call.name, call.id, nesting)
        yield replace(call, index=number)

    def _end(self) -> Iterator[Said]:
        """End the open call, and say what waited for that."""
        self.open = None
        for one in sorted(self._taken(), key=_place):
            yield from self.feed(one)


def _place(one: Said) -> int:
    return one.index + 1 if isinstance(one, CallDelta) and one.index is not None else 0
