"""The stages between the reader and the client's encoder: each maps an event to events.

`reply.py` lists them in order. The joined `raw` of all events remains the text of the reply.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Protocol

import msgspec
from msgspec.structs import replace

from vtc.dialects.arguments.json_object import load_json
from vtc.dialects.reading.call_end import MAX_EXCERPT_CHARACTERS
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import conversation
from vtc.events import (
    NATIVE,
    NOT_COMPARED,
    Call,
    CallPiece,
    Denied,
    Event,
    Intervention,
    Markup,
    Rewritten,
    Text,
    Tool,
    ToolCall,
    UnreadCall,
)
from vtc.exchange.replying.streamed_calls import CallEnd
from vtc.guards.output_filter import get_output_text
from vtc.profiles.memory import Learned
from vtc.profiles.plan import Plan
from vtc.reporting.report import Report

MAX_GAP_NEWLINES = 9
"""Maximum number of newlines between text and a call in a client profile."""
MESSAGE_GAP_NEWLINES = 2
"""Newlines before a message that replaces a call."""
MAX_NAMED_CALLS = 20
"""Calls beyond the limit that are named to the client."""
FIRST_TEXT_CALL_NUMBER = 1 << 30
"""Text tool calls are numbered from here; native ones have lower numbers."""


class Stage(Protocol):
    """Maps one event to events."""

    reads_text: bool = False
    """False if text passes immediately and unchanged."""

    def feed(self, event: Event) -> Sequence[Event]: ...

    def finish(self) -> Sequence[Event]:
        """Return buffered events, and those appended to the end of the reply."""
        return ()


class ClientTerms(Stage):
    """Expresses calls in the client's terms: its names of tools, and only the arguments that it reads.

    So policies see the call that the client will execute.
    """

    def __init__(self, client_name: Callable[[str], str] | None, dialect: Description | None) -> None:
        """Set up the stage; a client of structured calls has no `dialect`."""
        self._client_name = client_name
        self._dialect = dialect

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            if self._client_name and event.name:
                event = msgspec.structs.replace(event, name=self._client_name(event.name))
        elif isinstance(event, Call):
            call = event.call
            if self._client_name and event.dialect != NATIVE:
                call = replace(call, name=self._client_name(call.name))
            call = conversation.trim_arguments(call, self._dialect) if self._dialect else call
            event = replace(event, call=call, read_from=event.evidence)
        return (event,)


class Limit(Stage):
    """Limits calls to the offered tools, and to the number that the client accepts."""

    def __init__(self, plan: Plan, tools: Collection[str]) -> None:
        self._max_calls = plan.protocol.max_calls
        self._unknown_tools = plan.reading.unknown_tools
        self._unoffered = plan.unoffered
        self._tools = tools
        self.from_text: list[ToolCall] = []
        """The text tool calls so far."""
        self.delivered: list[str] = []
        """Names of the calls that passed."""
        client = plan.protocol.client_text
        self._as_text = client is not None
        self._tells_extra = client is not None and client.profile.extra_calls != "drop"
        self._extra: list[str] = []
        """Names of the calls beyond the limit."""
        self._drops = False
        """True while a call beyond the limit arrives in pieces."""
        self._dropped: list[str] = []
        """Its text so far."""

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            return self._count_piece(event)
        before: Sequence[Event] = ()
        if self._dropped:
            text = "".join(self._dropped)
            self._dropped.clear()
            if isinstance(event, Call) and event.rest is not None:
                event = replace(event, raw=text + event.raw)
            else:
                before = (Text(text),)  # the call broke off
        if not isinstance(event, Call):
            return (*before, event)
        name, is_native, most = event.call.name, event.dialect == NATIVE, self._max_calls
        if not is_native:
            self.from_text.append(event.call)
        if event.rest is not None and not self._drops:
            if self._as_text:
                self.delivered.append(name)
        elif not is_native and name not in self._tools and not self._may_be_unknown(name):
            # It was parsed for an add-on that did not handle it, or the request no longer offers the tool.
            reason = tool_names.explain_unknown_tool(name, self._tools)
            drops = self._unknown_tools == "drop"
            unread_call = UnreadCall(
                reason, event.dialect, name, event.raw[:MAX_EXCERPT_CHARACTERS], malformed=False, left_out=drops
            )
            return *before, unread_call, Markup(event.raw) if drops else Text(event.raw)
        elif most is not None and len(self.delivered) >= most:
            self._extra.append(name)
            reason = f"only {most} call{'s' * (most > 1)} a reply"
            return (
                *before,
                Intervention("max_calls", "dropped", name, reason, event.raw[:MAX_EXCERPT_CHARACTERS]),
                Markup(event.raw),
            )
        else:
            self.delivered.append(name)
        return (*before, event)

    def _count_piece(self, piece: CallPiece) -> Sequence[Event]:
        """Count a call in pieces when it begins; for a text client, when it is complete."""
        if piece.name:
            self._drops = self._max_calls is not None and len(self.delivered) >= self._max_calls
            if not (self._drops or self._as_text):
                self.delivered.append(piece.name)
        if not self._drops:
            return (piece,)
        self._dropped.append(piece.raw)
        return ()

    def _may_be_unknown(self, name: str) -> bool:
        """Return True if a call of a tool that is not offered may pass, because the client has no tool of this name."""
        return self._unknown_tools == "allow" and tool_names.resolve(name, self._unoffered) is None

    def finish(self) -> Sequence[Event]:
        """Name the calls beyond the limit to a client that accepts few, so that the model will see them, too."""
        if not self._extra or not self._tells_extra:
            return ()
        tools = "one tool" if self._max_calls == 1 else f"{self._max_calls} tools"
        names = ", ".join([*self._extra[:MAX_NAMED_CALLS], *["…"] * (len(self._extra) > MAX_NAMED_CALLS)])
        return (Rewritten("", f"\n\n(Not carried out, as only {tools} can be used at a time: {names}.)"),)


class Ids:
    """Generates ids of calls that are unique in their conversation, for all choices of an exchange."""

    def __init__(
        self, seed: str, used: Iterable[str], prefix: str = "call_", length: int = 24, *, counted: bool = False
    ) -> None:
        """Set up ids of `prefix` and `length` hex digits; if `counted`, of Kimi's form `functions.NAME:N`."""
        self._seed = seed
        self.used = {*used}
        """Ids of calls in the conversation and in this reply."""
        self._prefix = prefix
        self._length = length
        self._counted = counted
        self._count = len(self.used) if counted else 0

    def take(self, id_: str | None, name: str) -> str:
        """Return a call's own id, or a derived one if it has none or the id is used already."""
        while not id_ or id_ in self.used:
            self._count += 1
            if self._counted:
                id_ = f"functions.{name}:{self._count - 1}"
                continue
            digest = hashlib.sha256(f"{self._seed}:{self._count}".encode()).hexdigest()
            id_ = f"{self._prefix}{digest[: self._length]}"
        self.used.add(id_)
        return id_


class Identify(Stage):
    """Assigns ids to calls; a native call that no policy changed keeps its spelling."""

    def __init__(self, ids: Ids, taken: set[str], *, structured: bool) -> None:
        """Set up the stage; `taken` is the live set of ids of native calls that were sent."""
        self._ids = ids
        self._structured = structured
        self._taken = taken
        self._begun: list[str] = []
        """Ids of the calls that were sent in pieces."""

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            id_ = None
            if event.name:
                id_ = self._ids.take(event.id, event.name)
                self._begun.append(id_)
            return (msgspec.structs.replace(event, id=id_, number=FIRST_TEXT_CALL_NUMBER + len(self._begun)),)
        if not isinstance(event, Call):
            return (event,)
        call, id_ = event.call, event.call.id
        if event.rest is not None:
            return (replace(event, call=replace(call, id=self._begun[-1])),)
        if self._structured and event.dialect == NATIVE:
            if event.spelled and not event.changed:
                call, id_ = event.spelled, event.spelled.id
            if id_ and id_ not in self._taken and id_ not in self._ids.used:
                self._taken.add(id_)
                return (replace(event, call=call),)
            id_ = None
        self._ids.used |= self._taken
        return (replace(event, call=replace(call, id=self._ids.take(id_, call.name))),)


class RecordCalls(Stage):
    """Records the calls that the client receives in the report, with missing required parameters."""

    def __init__(self, report: Report, tools: Mapping[str, Tool], learned: Learned, *, every: bool) -> None:
        """Set up the stage; `every` also records native calls that were not changed."""
        self._report = report
        self._tools = tools
        self._learned = learned
        self._every = every

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, Call):
            if event.dialect != NATIVE:
                self._learned.dialect = event.dialect
            elif event.call.id:
                self._learned.note_id(event.call.id)
        if isinstance(event, Call) and (event.dialect != NATIVE or event.repairs or self._every):
            call, lacks = event.call, list[str]()
            tool = self._tools.get(call.name)
            with contextlib.suppress(ValueError, RecursionError):  # invalid JSON was reported already
                arguments = load_json(call.arguments)
                lacks = tool.schema.list_missing(arguments) if tool and isinstance(arguments, dict) else []
            self._report.record_call(call.name, call.id, event.dialect, event.repairs, lacks)
            if not event.compared:
                self._report.record_intervention("echo", "passed", call.name, NOT_COMPARED)
        return (event,)

    def record_forwarded(self, ended: CallEnd) -> None:
        """Record a call that was forwarded unchanged."""
        call = ended.call
        self._learned.note_id(call.id or "")
        if ended.repairs or (self._every and not ended.fault):
            self.feed(Call("", call, NATIVE, ended.repairs))
        if ended.fault:
            self._report.record_unread_call(
                UnreadCall(ended.fault, NATIVE, call.name, call.arguments[:MAX_EXCERPT_CHARACTERS])
            )


class TextEnd(deque[str]):
    """The last characters of text that the client received; they determine the gap before the next item."""

    def __init__(self) -> None:
        super().__init__(maxlen=MAX_GAP_NEWLINES)

    def render_missing_breaks(self, wanted: int) -> str:
        """Return the line breaks missing from the `wanted` number before the next item."""
        there = sum(1 for _ in takewhile("\n".__eq__, reversed(self)))
        return "\n" * (wanted - there) if self else ""


def format_denied_call(call: ToolCall) -> str:
    """Format a native call for a client that is sent it as text."""
    return json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)


class ForStructuredClient(Stage):
    """Renders denied calls as text for a client of structured calls; other calls stay."""

    def __init__(self, end: TextEnd) -> None:
        self._text_end = end
        self._number = 0
        """Number of the last call that was sent in pieces."""

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            self._number = event.number
        elif isinstance(event, Call):
            if event.rest is not None:
                return (CallPiece(event.raw, arguments=event.rest, number=self._number),)
        else:
            event = self._render_denied(event) if isinstance(event, Denied) else event
            self._text_end.extend(get_output_text(event)[-MAX_GAP_NEWLINES:])
        return (event,)

    def _render_denied(self, event: Denied) -> Event:
        if event.manner == "drop":
            return Markup(event.raw)
        if event.manner == "text" and event.raw:
            return Text(event.raw)
        message = format_denied_call(event.call) if event.manner == "text" else event.message
        return Rewritten(event.raw, self._text_end.render_missing_breaks(MESSAGE_GAP_NEWLINES) + message)
