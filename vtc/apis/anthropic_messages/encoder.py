"""Replies of Anthropic Messages as they leave: the events of a stream (`decoder.py` shows them).

One block is open at a time, and a call takes a block of its own. A text block without text is refused when the client
sends it back, so it does not begin.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence

from vtc.apis.anthropic_messages.answer import counts_of, error_of, stopped
from vtc.apis.anthropic_messages.told import OURS, Block, Noted, Told
from vtc.apis.anthropic_messages.words import DELTA, NO_BLOCK, START, STOP, number_of
from vtc.apis.base import Json, Said
from vtc.apis.fields import part_of
from vtc.apis.tool_calls import Nesting, object_in
from vtc.events import (
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Failure,
    Finish,
    Origin,
    Reasoning,
    ReasoningDelta,
    Refused,
    Rewritten,
    Seal,
    Start,
    Text,
    Usage,
)

_STARTS: dict[str, Json] = {
    "text": {"type": "text", "text": ""},
    "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
}


class Encoder(Told):
    """Writes the events of a streamed reply.

    If the request did not ask for thinking, only that is shown which a server of this API tells of.
    """

    def write(self, said: Sequence[Said], choice: int) -> list[Json]:
        if choice:
            return []  # a message has only one
        self.noted, started = _needed(self.noted), self.started
        self.calls = copy.copy(self.calls)
        told = [
            event for one in sorted(said, key=_is_stop) for part in self.calls.feed(one) for event in self._say(part)
        ]
        if self.finish and self.native:
            told += self._finish()
        if told and not started and not self.started and told[0]["type"] not in ("ping", "error"):
            told = [*self._start(Start()), *told]
        self.kept = False
        more = [one.value for one in said if isinstance(one, Origin) and one.kind == "fields"]
        last = next((place for place, event in enumerate(told) if event["type"] == DELTA), None)
        if more and last is not None:
            told[last] = {**told[last], **more[0], "delta": {**told[last]["delta"], **more[0].get("delta", {})}}
        return told

    def _say(self, one: Said) -> Iterator[Json]:
        if self.ended or (self.finished and not isinstance(one, Failure)):
            return
        match one:
            case Start():
                yield from self._start(one)
            case BlockStart() if not self._is_hidden(one.kind):
                self.noted = _needed((*self.noted, one))
            case BlockEnd() if self.open or self.noted:
                self.noted = _needed((*self.noted, one))
            case Text(text) | Rewritten(text=text) | Refused(text) if text:
                self.refused = self.refused or isinstance(one, Refused)
                if text := self._unblank(text):
                    yield from self._to("text")
                    yield self._piece("text", text)
            case Reasoning(text) | ReasoningDelta(text) if text and self._shows(one):
                yield from self._to("reasoning")
                yield self._piece("thinking", text)
            case Seal() if self._shows(one):
                yield from self._seal(one)
            case Call(call=call) if not (self.native or _is_input(call.arguments)):
                yield from self._say(Text(f"{call.name} {call.arguments}"))
            case Call(call=call):
                yield from self._call(CallDelta(OURS, call.id, call.name, call.arguments, call.source))
                yield from self._close()
            case CallDelta(name=name) if name:
                yield from self._call(one)
            case CallDelta(number, arguments=arguments) if arguments and number in self.opened:
                yield self._arguments(number, arguments)
            case Origin(kind="message_delta", value=event):
                if part_of(event, "delta").get("stop_reason"):
                    self.closing = event
                else:
                    yield event
            case Origin(kind=kind) if kind not in ("within", "fields"):
                yield from self._event(one)
            case Usage():
                self.usage = one.own.value if one.own else counts_of(one)
            case Finish():
                self.finish = one
            case Failure():
                for part in self.calls.finish():
                    yield from self._say(part)
                self.ended = self.in_step = True
                yield one.own.value if one.own else error_of(one)

    def _unblank(self, text: str) -> str:
        """Keep white space that would begin a block of another API's: Anthropic's server takes no blank one back."""
        start = self._noted("text")
        if (self.open and self.open.kind == "text" and start is None) or (start and start.own):
            return text
        text = self.blank + text
        self.blank = text if text.isspace() else ""
        return "" if self.blank else text

    def _start(self, start: Start) -> Sequence[Json]:
        if self.started:
            return []
        self._begin(start)
        if start.own:
            return [start.own.value]
        head = {"id": self.id, "type": "message", "role": "assistant", "model": start.model, "content": []}
        rest = {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
        return [{"type": "message_start", "message": {**head, **rest}}]

    # Blocks

    def _noted(self, kind: str) -> BlockStart | None:
        """Find the start of a block that the client was not told."""
        return next((one for one in self.noted if isinstance(one, BlockStart) and one.kind == kind), None)

    def _to(self, kind: str, block: Json | None = None) -> Iterator[Json]:
        """Have a block open for text or for reasoning; `block` is how it starts if that is not known by its kind."""
        start = self._noted(kind)
        if start is None and self.open and self.open.kind == kind:
            self.noted = _without_ends(self.noted)
            return
        yield from self._close()
        number = start.number if start else OURS
        self.open = Block(kind, number, self._take(number))
        self.in_step = number == self.open.index
        own = start.own.value if start and start.own else {}
        block = {**part_of(own, "content_block"), **(block or _STARTS[kind])}
        yield {"type": START, **own, "index": self.open.index, "content_block": block}
        if start:
            parts, self.noted = [one.value for one in self.noted if isinstance(one, Origin)], ()
            yield from ({**part, "index": self.open.index} for part in parts)

    def _piece(self, field: str, text: str) -> Json:
        assert self.open is not None
        self.in_step = self.open.number == self.open.index
        return {"type": DELTA, "index": self.open.index, "delta": {"type": f"{field}_delta", field: text}}

    def _close(self) -> Iterator[Json]:
        """End the blocks that the client has open."""
        for index in self.opened.values():
            yield {"type": STOP, "index": index}
        self.open, self.opened, self.noted = None, {}, _without_ends(self.noted)

    def _seal(self, seal: Seal) -> Iterator[Json]:
        """Write what belongs to reasoning; encrypted data without any text have a block of their own."""
        begins = self._noted("reasoning") is not None
        is_open = self.open is not None and self.open.kind == "reasoning" and not begins
        if seal.encrypted and not is_open:
            if "redacted_thinking" not in self.drop:
                yield from self._to("reasoning", {"type": "redacted_thinking", "data": seal.encrypted})
                self.open = None
        elif (sealed := seal.signature or seal.encrypted) and (is_open or begins):
            yield from self._to("reasoning")
            yield self._piece("signature", sealed)

    def _event(self, one: Origin) -> Iterator[Json]:
        """Write an event that only this API has, with the client's number of its block."""
        event, number = one.value, number_of(one)
        if number == NO_BLOCK:
            yield event
        elif event["type"] == START:
            if not self._is_hidden(one.kind):
                yield from self._close()
                index = self._take(number)
                self.in_step = number == index
                yield {**event, "index": index}
        elif event["type"] == DELTA and self._begins(number):
            self.noted = (*self.noted, one)
        elif number in self.opened:
            self.in_step = number == self.opened[number]
            yield {**event, "index": self.opened[number]}
            if event["type"] == STOP:
                self._end(number)

    def _call(self, call: CallDelta) -> Iterator[Json]:
        """Begin a block that is a call."""
        yield from self._close()
        number = OURS if call.index is None else call.index
        index, self.called = self._take(number), True
        self.in_step = number == index
        id_ = call.id or "toolu_" + re.sub(r"[^A-Za-z0-9]", "", f"{self.id}{index}")
        source = call.source if part_of({"of": call.source}, "of").get("type") == "tool_use" else {}
        block = {**source, "type": "tool_use", "id": id_, "name": call.name, "input": {}}
        yield {"type": START, "index": index, "content_block": block}
        if call.arguments:
            yield self._arguments(number, call.arguments)

    def _arguments(self, number: int, arguments: str) -> Json:
        self.in_step = number == self.opened[number]
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return {"type": DELTA, "index": self.opened[number], "delta": delta}

    # The end

    def _finish(self) -> Iterator[Json]:
        """End what is open, and tell why the message ended."""
        for one in self.calls.finish():
            yield from self._say(one)
        yield from self._close()
        end, self.finish, self.noted = self.finish, None, ()
        if end and not self.finished:
            self.finished = self.in_step = True
            delta = part_of(self.closing, "delta")
            how = stopped(end, delta, called=self.called, refused=self.refused, native=self.native)
            event = {"type": "message_delta", "usage": self.usage or {"output_tokens": 0}, **self.closing}
            yield {**event, "delta": {**delta, **how}}

    def end(self) -> list[Json]:
        if self.ended or not self.started:
            return []
        in_step = self.in_step and not self.finish and self._is_level
        self.finish = self.finish or Finish("stop")
        self.calls = copy.copy(self.calls)
        told = [*self._finish(), {"type": "message_stop"}]
        self.ended, self.in_step = True, in_step
        return told

    def keep_alive(self) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def _shows(self, one: Said) -> bool:
        """True if the client is sent a thought; those parted off from the text only where it asked for thinking."""
        asked = self.thinks or (self.native and not isinstance(one, Reasoning))
        return asked and not self._is_hidden("reasoning")


def _is_stop(one: Said) -> bool:
    """True for the end of a block, which comes after all that the same frame says of it."""
    return isinstance(one, Origin) and number_of(one) != NO_BLOCK and one.value["type"] == STOP


def _is_input(arguments: str) -> bool:
    """True for an object, or the beginning of one, which clients take of a message that was cut off."""
    begun = arguments.lstrip().startswith("{") and Nesting().after(arguments).is_cut
    return begun or object_in(arguments) is not None


def _without_ends(noted: Iterable[Noted]) -> tuple[Noted, ...]:
    return tuple(one for one in noted if not isinstance(one, BlockEnd))


def _needed(noted: Iterable[Noted]) -> tuple[Noted, ...]:
    """Leave out what need not be told: a block that has ended without any text."""
    left: list[Noted] = []
    for one in noted:
        if isinstance(one, BlockStart | BlockEnd):
            begun = any(isinstance(other, BlockStart) for other in left)
            left = [other for other in left if isinstance(other, BlockEnd)]
            if isinstance(one, BlockEnd) and (begun or left):
                continue
        left.append(one)
    return (*left,)
