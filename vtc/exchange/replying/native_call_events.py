"""The native tool calls of one choice: those that are sent as they arrive, and those that are buffered."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from vtc.dialects.reading.call_end import MAX_EXCERPT_CHARACTERS
from vtc.dialects.syntax import tool_names
from vtc.events import NATIVE, Call, CallDelta, Denied, Event, Rewritten, Tool, ToolCall, UnreadCall
from vtc.exchange.replying.native_calls import NO_ARGUMENTS, MalformedCall, as_function, normalize_call, resolve_tool
from vtc.exchange.replying.streamed_calls import CallEnd, StreamedCalls
from vtc.exchange.replying.value_ends import make_value_ends
from vtc.profiles.plan import Plan


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


class NativeCalls:
    """Creates events of native tool calls.

    `from_text` is the live list of text tool calls, `taken` the live set of ids of native calls that were sent, and
    `used` holds the ids of past calls.
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
        self._ends = make_value_ends(plan.reading.dialects)
        streamed = StreamedCalls(tools, from_text, taken, used, lenient=self._lenient, ends=self._ends)
        self.streamed = streamed if as_they_come else None
        """Calls that are sent piece by piece; None if all are buffered."""
        self.ended: list[CallEnd] = []
        """The ends of calls that were sent piece by piece, once the message ends."""
        self._buffered: list[ToolCall] = []

    @property
    def made(self) -> list[ToolCall]:
        """The calls so far."""
        return [*self._buffered, *(sent.call for sent in self.ended)]

    def read_buffered(self, calls: Sequence[ToolCall]) -> list[Event]:
        """Process buffered calls before the end of the message."""
        ended = self.streamed.end_followed_calls() if self.streamed else []
        self._buffered += [*(call for sent in ended for call in sent.others), *calls]
        return [*self._make_other_events(ended), *self.read_calls(calls, complete=True)]

    def end(self, *, complete: bool) -> dict[int | None, CallDelta | None]:
        """End the calls that were sent as they arrived; return the missing rest of each, by number."""
        self.ended = self.streamed.finish(complete=complete) if self.streamed else []
        return {sent.number: sent.piece for sent in self.ended}

    def list_others(self) -> list[Event]:
        """Return the calls found in the arguments of calls that were sent."""
        return self._make_other_events(self.ended)

    def _make_other_events(self, ended: Iterable[CallEnd]) -> list[Event]:
        return [event for sent in ended for call in sent.others for event in self.make_event(call, sent.repairs)]

    def read_calls(self, calls: Sequence[ToolCall], *, complete: bool) -> list[Event]:
        """Process native calls; a malformed one stays unchanged, or becomes text for a text client."""
        events: list[Event] = []
        for call in _join_split_calls(calls) if calls else ():
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
                events.append(UnreadCall(str(error), NATIVE, name, call.arguments[:MAX_EXCERPT_CHARACTERS]))
                judged = replace(as_function(call), name=name)
                events.append(
                    self._render_unreadable(call) if self._as_text else Call("", judged, NATIVE, spelled=call)
                )
                continue
            for spelled in result.calls:
                if self._is_given(spelled):
                    events.append(
                        UnreadCall(
                            "the text holds the same call",
                            NATIVE,
                            spelled.name,
                            spelled.arguments[:MAX_EXCERPT_CHARACTERS],
                        )
                    )
                elif result.repairs or self._as_text:
                    events += self.make_event(spelled, result.repairs)
                else:  # policies see the resolved tool; a call that they do not change keeps its spelling
                    name = spelled.name if spelled.name in self._tools else tool_names.strip_name(spelled.name)
                    events.append(Call("", replace(spelled, name=name), NATIVE, spelled=spelled))
        return events

    def _report_nameless(self, call: ToolCall) -> list[Event]:
        """Render an entry without a name, which is no call, as text."""
        unread_call = UnreadCall("it has no name", NATIVE, "", call.arguments[:MAX_EXCERPT_CHARACTERS])
        text = "" if call.arguments in NO_ARGUMENTS else call.arguments
        if self._hides_arguments and text:
            return [unread_call, Denied("", call, "steer", "A call without a name could not be read.")]
        return [unread_call, Rewritten("", text)]

    def make_event(self, call: ToolCall, repairs: tuple[str, ...]) -> list[Event]:
        """Create the event of a re-encoded native call, unless the client has received it already."""
        if self._as_text and not _is_json(call.arguments):  # its tool is not offered, so it was not normalized
            return [UnreadCall("its arguments are no JSON", NATIVE, call.name, ""), self._render_unreadable(call)]
        return [Call("", call, NATIVE, repairs)]

    def _render_unreadable(self, call: ToolCall) -> Event:
        """Describe a call that nobody could execute in its place, so that nothing vanishes."""
        message = f"The call of `{call.name}` could not be read"
        return Denied("", call, "steer", f"{message}." if self._hides_arguments else f"{message}: {call.arguments}")

    def _is_given(self, call: ToolCall) -> bool:
        """Return True if the client has received this call already, as a text tool call."""
        same = [given.arguments for given in self._from_text if given.name == call.name]
        return bool(same) and _is_json(call.arguments) and json.loads(call.arguments) in map(json.loads, same)


def _join_split_calls(calls: Iterable[ToolCall]) -> list[ToolCall]:
    """Join a call without arguments and the nameless entry after it, because servers miscount entries."""
    whole: list[ToolCall] = []
    for call in calls:
        last = whole[-1] if whole else None
        if last and last.name and not call.name and last.arguments in NO_ARGUMENTS:
            whole[-1] = replace(last, arguments=call.arguments)
        else:
            whole.append(call)
    return whole
