"""The calls that upstream made itself, in one choice: those that leave as they come, and those that wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replace_fields

from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.syntax import tool_names
from vtc.events import NATIVE, Call, CallDelta, Event, Refusal, Tool, ToolCall
from vtc.exchange.replying.native_calls import Ended, NotInOrder, StreamedCalls, as_function, in_order, meant
from vtc.exchange.replying.stages import Identify


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class UpstreamCalls:
    """Makes events of upstream's own calls; `given` holds, at each time, what the client was given out of the text.

    For a client that reads calls in text `as_text` writes one that no one could carry out; else it is None.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        given: Sequence[ToolCall],
        identify: Identify,
        *,
        lenient: bool,
        read_name: Callable[[str], Call | None],
        as_they_come: bool,
        as_text: Callable[[ToolCall], Event] | None,
    ) -> None:
        self._tools = tools
        self._given = given
        self._identify = identify
        self._lenient = lenient
        self._read_name = read_name
        self._as_text = as_text
        self.streamed = StreamedCalls(tools, given, lenient=lenient) if as_they_come else None
        """Those that leave piece by piece; None if all wait."""
        self.ended: list[Ended] = []
        """Those of them that have left, once the message ends."""
        self._waited: list[ToolCall] = []

    @property
    def made(self) -> list[ToolCall]:
        """The calls that were made so far."""
        return [*self._waited, *(one.call for one in self.ended)]

    def whole(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Take calls that waited, before the end of the message."""
        before = self.streamed.following() if self.streamed else []
        self._waited += [*(one for ended in before for one in ended.others), *calls]
        return [*self._others(before), *self.meant(calls, complete=True)]

    def end(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        """End the calls that left as they came; return what is missing of each, by its number."""
        self.ended = self.streamed.finish(complete=complete) if self.streamed else []
        return {one.number: one.piece for one in self.ended}

    def others(self) -> list[Event]:
        """Return the calls that stood in the arguments of those that left."""
        return self._others(self.ended)

    def _others(self, ended: Iterable[Ended]) -> list[Event]:
        return [event for one in ended for call in one.others for event in self.made_anew(call, one.repairs)]

    def meant(self, calls: Iterable[ToolCall], *, complete: bool) -> list[Event]:
        """Read calls that upstream made itself; one that cannot be put in order stays, for a text client as text."""
        if self.streamed:
            self._identify.give(self.streamed.ids)
        events: list[Event] = []
        for call in calls:
            try:
                found = in_order(call, self._tools, lenient=self._lenient, complete=complete, read=self._read_name)
            except NotInOrder as error:
                known = meant(call.name, self._tools)
                name = known.tool if known else call.name
                events.append(Refusal(str(error), NATIVE, name, call.arguments[:EXCERPT]))
                judged = replace_fields(as_function(call), name=name)
                events.append(self._as_text(call) if self._as_text else self._identify.named(call, judged))
                continue
            for one in found.calls:
                if self._is_given(one):
                    events.append(Refusal("the text holds the same call", NATIVE, one.name, one.arguments[:EXCERPT]))
                elif found.repairs or self._as_text:
                    events += self.made_anew(one, found.repairs)
                else:  # policies are told which tool is meant; a call that they leave alone leaves as it was spelled
                    name = one.name if one.name in self._tools else tool_names.bare(one.name)
                    events.append(self._identify.named(one, replace_fields(one, name=name)))
        return events

    def made_anew(self, call: ToolCall, repairs: tuple[str, ...]) -> list[Event]:
        """Make the event for a call of upstream's that is written anew, unless the client has it already."""
        if not call.name:
            return [Refusal("it has no name", NATIVE, call.name, call.arguments[:EXCERPT])]
        if self._as_text and not _is_json(call.arguments):  # of a tool that is not offered: nothing was put in order
            return [Refusal("its arguments are no JSON", NATIVE, call.name, ""), self._as_text(call)]
        return [Call("", call, NATIVE, repairs)]

    def _is_given(self, call: ToolCall) -> bool:
        """True if the client was given this call already, out of the text."""
        same = [given.arguments for given in self._given if given.name == call.name]
        return bool(same) and _is_json(call.arguments) and json.loads(call.arguments) in map(json.loads, same)
