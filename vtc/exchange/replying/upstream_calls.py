"""The calls that upstream made itself, in one choice: those that leave as they come, and those that wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from vtc.dialects.reading.after_call import MAX_EXCERPT_CHARACTERS
from vtc.dialects.syntax import tool_names
from vtc.events import NATIVE, Call, CallDelta, Denied, Event, Refusal, Rewritten, Tool, ToolCall
from vtc.exchange.replying.native_calls import NO_ARGUMENTS, MalformedCall, as_function, normalize_call, resolve_tool
from vtc.exchange.replying.streamed_calls import CallEnd, StreamedCalls
from vtc.exchange.replying.value_ends import ends_in
from vtc.profiles.plan import Plan


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class NativeCalls:
    """Makes events of upstream's own calls.

    `from_text` holds, at each time, the calls that were read in the text, and `taken` the ids of upstream's that left;
    `used` are those of past calls.
    """

    def __init__(
        self,
        plan: Plan,
        tools: Mapping[str, Tool],
        from_text: Sequence[ToolCall],
        taken: set[str],
        used: Collection[str],
        *,
        read_name: Callable[[str], Call | None],
        as_they_come: bool,
    ) -> None:
        self._tools = tools
        self._from_text = from_text
        self._lenient = plan.reading.lenient
        self._read_name = read_name
        self._as_text = plan.protocol.client_text is not None
        self._hides_arguments = plan.checks_calls
        self._ends = ends_in(plan.reading.dialects)
        streamed = StreamedCalls(tools, from_text, taken, used, lenient=self._lenient, ends=self._ends)
        self.streamed = streamed if as_they_come else None
        """Those that leave piece by piece; None if all wait."""
        self.ended: list[CallEnd] = []
        """Those of them that have left, once the message ends."""
        self._waited: list[ToolCall] = []

    @property
    def made(self) -> list[ToolCall]:
        """The calls that were made so far."""
        return [*self._waited, *(sent.call for sent in self.ended)]

    def read_buffered(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Take calls that waited, before the end of the message."""
        ended = self.streamed.following() if self.streamed else []
        self._waited += [*(call for sent in ended for call in sent.others), *calls]
        return [*self._others(ended), *self.read_calls(calls, complete=True)]

    def end(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        """End the calls that left as they came; return what is missing of each, by its number."""
        self.ended = self.streamed.finish(complete=complete) if self.streamed else []
        return {sent.number: sent.piece for sent in self.ended}

    def list_others(self) -> list[Event]:
        """Return the calls that stood in the arguments of those that left."""
        return self._others(self.ended)

    def _others(self, ended: Iterable[CallEnd]) -> list[Event]:
        return [event for sent in ended for call in sent.others for event in self.make_event(call, sent.repairs)]

    def read_calls(self, calls: Sequence[ToolCall], *, complete: bool) -> list[Event]:
        """Read calls that upstream made itself; one that cannot be put in order stays, for a text client as text."""
        events: list[Event] = []
        for call in _put_together(calls) if calls else ():
            if not call.name:
                events += self._report_nameless(call)
                continue
            try:
                if not call.arguments:
                    raise MalformedCall("it was cut off before its arguments")
                result = normalize_call(
                    call, self._tools, lenient=self._lenient, complete=complete, read=self._read_name, ends=self._ends
                )
            except MalformedCall as error:
                known = resolve_tool(call.name, self._tools)
                name = known.tool if known else call.name
                events.append(Refusal(str(error), NATIVE, name, call.arguments[:MAX_EXCERPT_CHARACTERS]))
                judged = replace(as_function(call), name=name)
                events.append(
                    self._render_unreadable(call) if self._as_text else Call("", judged, NATIVE, spelled=call)
                )
                continue
            for spelled in result.calls:
                if self._is_given(spelled):
                    events.append(
                        Refusal(
                            "the text holds the same call",
                            NATIVE,
                            spelled.name,
                            spelled.arguments[:MAX_EXCERPT_CHARACTERS],
                        )
                    )
                elif result.repairs or self._as_text:
                    events += self.make_event(spelled, result.repairs)
                else:  # policies are told which tool is meant; a call that they leave alone leaves as it was spelled
                    name = spelled.name if spelled.name in self._tools else tool_names.strip_name(spelled.name)
                    events.append(Call("", replace(spelled, name=name), NATIVE, spelled=spelled))
        return events

    def _report_nameless(self, call: ToolCall) -> list[Event]:
        """Tell as text what an entry without a name holds, which is no call."""
        refusal = Refusal("it has no name", NATIVE, "", call.arguments[:MAX_EXCERPT_CHARACTERS])
        text = "" if call.arguments in NO_ARGUMENTS else call.arguments
        if self._hides_arguments and text:
            return [refusal, Denied("", call, "steer", "A call without a name could not be read.")]
        return [refusal, Rewritten("", text)]

    def make_event(self, call: ToolCall, repairs: tuple[str, ...]) -> list[Event]:
        """Make the event for a call of upstream's that is written anew, unless the client has it already."""
        if self._as_text and not _is_json(call.arguments):  # of a tool that is not offered: nothing was put in order
            return [Refusal("its arguments are no JSON", NATIVE, call.name, ""), self._render_unreadable(call)]
        return [Call("", call, NATIVE, repairs)]

    def _render_unreadable(self, call: ToolCall) -> Event:
        """Tell in the place of a call that no one could carry out what it was, so that nothing vanishes."""
        message = f"The call of `{call.name}` could not be read"
        return Denied("", call, "steer", f"{message}." if self._hides_arguments else f"{message}: {call.arguments}")

    def _is_given(self, call: ToolCall) -> bool:
        """True if the client was given this call already, out of the text."""
        same = [given.arguments for given in self._from_text if given.name == call.name]
        return bool(same) and _is_json(call.arguments) and json.loads(call.arguments) in map(json.loads, same)


def _put_together(calls: Iterable[ToolCall]) -> list[ToolCall]:
    """Give a call without arguments those of the entry without a name that follows it: servers lose count."""
    whole: list[ToolCall] = []
    for call in calls:
        last = whole[-1] if whole else None
        if last and last.name and not call.name and last.arguments in NO_ARGUMENTS:
            whole[-1] = replace(last, arguments=call.arguments)
        else:
            whole.append(call)
    return whole
