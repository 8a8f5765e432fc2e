"""Replies on their way to a client of another API: names and ids of calls are its own, signed thoughts are sealed."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from vtc.apis.base import Decoded, Decoder
from vtc.apis.chain import Chain, joined
from vtc.apis.crossing import Names
from vtc.apis.sealed import sealed
from vtc.events import Beside, BlockStart, CallDelta, Delta, ReasoningDelta, Seal, Start, Thought
from vtc.json_text import decode
from vtc.wire.framing import Frame, Framing


class Crossed(msgspec.Struct, eq=False):
    """The decoder of a server whose client speaks another API: names are the client's again, as is the model's."""

    decoder: Decoder
    names: Names
    model: str
    id: str
    """That of the reply, but for how ids begin in the client's API; calls without one get it, too."""
    origin: str = ""
    """The server (`origin_of`)."""
    signs: bool = False
    """True if its seals are for the text of the reasoning."""
    calls: int = 0
    """Those that had no id."""
    known: frozenset[tuple[int, int]] = frozenset()
    """The numbers of calls that have an id."""
    thought: Chain = None
    """The text of the reasoning that began last, until it is sealed, if that is for the text."""

    def __eq__(self, other: object) -> bool:
        """True if another one will read frames alike; what was thought makes no difference to that."""
        if not isinstance(other, Crossed):
            return False
        return (self.decoder, self.calls, self.known) == (other.decoder, other.calls, other.known)

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has one of its own

    __hash__ = None  # type: ignore[assignment]

    def thought_more(self, texts: Sequence[bytes]) -> None:
        if self.thought:
            self.thought = self.thought, "".join(decode(b'["%b"]' % b'","'.join(texts)))

    def __copy__(self) -> Crossed:
        return replace(self, decoder=copy.copy(self.decoder))

    def tells_thoughts(self, data: bytes, *, plain: bool) -> bool:
        return self.decoder.tells_thoughts(data, plain=plain)

    @property
    def framing(self) -> Framing:
        return self.decoder.framing

    def decode(self, frame: Frame) -> Decoded | None:
        decoded = self.decoder.decode(frame)
        if decoded is None:
            return None
        deltas, beside = decoded.deltas, decoded.beside
        if self.signs and any(isinstance(one, BlockStart) and one.kind == "reasoning" for one in beside):
            self.thought = None, ""
        if self.thought:
            for one in deltas:
                self.thought = (self.thought, one.text) if isinstance(one, ReasoningDelta) else self.thought
        if any(isinstance(one, CallDelta) and (one.name or one.id) for one in deltas):
            deltas = tuple(self._named(one) if isinstance(one, CallDelta) else one for one in deltas)
        return replace(decoded, deltas=deltas, beside=tuple(map(self._told, beside)) if beside else ())

    def _told(self, one: Beside) -> Beside:
        match one:
            case Start():
                return replace(one, id=self.id, model=self.model)
            case Seal(signature, encrypted):
                text, self.thought = joined(self.thought) if signature else "", None
                made = sealed(Thought(text, signature, encrypted), self.origin)
                return replace(one, signature=made) if signature else replace(one, encrypted=made)
        return one

    def _named(self, call: CallDelta) -> CallDelta:
        key = None if call.index is None else (call.choice, call.index)
        id_ = call.id
        if call.name and not id_ and key not in self.known:
            self.calls += 1
            id_ = f"call_{self.id}{self.calls}"
        if id_ and key:
            self.known |= {key}
        return replace(call, name=self.names.back(call.name) if call.name else "", id=id_)


class Renamed:
    """The decoder of a server that knows tools by other names: they are the client's again."""

    def __init__(self, decoder: Decoder, names: Names) -> None:
        self._decoder = decoder
        self._names = names

    def __copy__(self) -> Renamed:
        return Renamed(copy.copy(self._decoder), self._names)

    def tells_thoughts(self, data: bytes, *, plain: bool) -> bool:
        return self._decoder.tells_thoughts(data, plain=plain)

    @property
    def framing(self) -> Framing:
        return self._decoder.framing

    def decode(self, frame: Frame) -> Decoded | None:
        decoded = self._decoder.decode(frame)
        if decoded is None or not any(isinstance(one, CallDelta) and one.name for one in decoded.deltas):
            return decoded
        return replace(decoded, deltas=tuple(map(self._named, decoded.deltas)))

    def _named(self, delta: Delta) -> Delta:
        if not isinstance(delta, CallDelta) or not delta.name:
            return delta
        return replace(delta, name=self._names.back(delta.name))
