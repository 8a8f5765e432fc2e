"""The stages between the reader and the client's codec: each takes an event and returns events.

    policies -> Limit -> Identify -> Record -> ForStructuredClient or ForTextClient, which ask OutputFilter

Policies come first, so that a call which they refuse counts for no limit. The `raw` of all events, joined, stays the
text of the reply.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Protocol

import msgspec

from vtc.dialects.arguments import parameter
from vtc.dialects.arguments.json_object import loaded
from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.syntax import tool_names
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
    Refusal,
    Rewritten,
    Text,
    Tool,
    ToolCall,
)
from vtc.exchange.replying.native_calls import Ended
from vtc.guards.content import Joined
from vtc.guards.openers import Openers
from vtc.profiles.plan import Plan, TextClient
from vtc.reporting.report import Report

# Hold calls to the tools that are offered, and to the number that the client takes.


class Limit:
    """Holds calls to the tools that are offered, and to the number that the client takes."""

    def __init__(self, plan: Plan, tools: Collection[str]) -> None:
        self.most = plan.protocol.max_calls
        self._unknown_tools = plan.reading.unknown_tools
        self._unoffered = plan.unoffered
        self._tools = tools
        self.delivered: list[str] = []
        """Names of the calls that went on."""
        self.extra: list[str] = []
        """Names of those that were too many, and the client was not told of."""
        self._as_text = plan.protocol.client_text is not None
        self._drops = False
        """True while a call that leaves in pieces is one of these."""
        self._dropped: list[str] = []
        """The text of that."""

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            return self._piece(event)
        broken = "".join(self._dropped)
        self._dropped.clear()
        if not isinstance(event, Call) or event.rest is None:
            return (Text(broken), *self._limited(event)) if broken else self._limited(event)
        if self._drops:
            return self._limited(replace(event, raw=broken + event.raw))
        self.delivered += [event.call.name] * self._as_text
        return (event,)

    def _limited(self, event: Event) -> Sequence[Event]:
        if not isinstance(event, Call):
            return (event,)
        name, most = event.call.name, self.most
        if event.dialect != NATIVE and name not in self._tools and not self._may_be_unknown(name):
            # It was read for a reactor, which did not want it, or the request does not offer it now.
            reason = tool_names.refused(name, self._tools)
            drops = self._unknown_tools == "drop"
            told = Refusal(reason, event.dialect, name, event.raw[:EXCERPT], malformed=False, left_out=drops)
            return told, Markup(event.raw) if drops else Text(event.raw)
        if most is not None and len(self.delivered) >= most:
            self.extra.append(name)
            reason = f"only {most} call{'s' * (most > 1)} a reply"
            return Intervention("max_calls", "dropped", name, reason, event.raw[:EXCERPT]), Markup(event.raw)
        self.delivered.append(name)
        return (event,)

    def _piece(self, piece: CallPiece) -> Sequence[Event]:
        """Count a call that leaves in pieces as it begins; as text it is one when it is complete."""
        if piece.name:
            self._drops = self.most is not None and len(self.delivered) >= self.most
            self.delivered += [] if self._drops or self._as_text else [piece.name]
        if not self._drops:
            return (piece,)
        self._dropped.append(piece.raw)
        return ()

    def _may_be_unknown(self, name: str) -> bool:
        """True if a call of a tool that is not offered may leave: the client knows none of this name."""
        return self._unknown_tools == "allow" and tool_names.resolve(name, self._unoffered) is None


MOST_GAP = 9
"""Newlines that a client profile may want between text and a call, at the most."""
MESSAGE_GAP = 2
"""Newlines before a message that stands in the place of a call."""
MOST_NAMED = 20
"""The calls beyond the limit, in the words in which the client is told."""
FROM_TEXT = 1 << 30
"""Numbers of calls out of the text begin after this: upstream's own have others."""


class ReplyFault(NamedTuple):
    """What may be worth asking again for."""

    kind: Literal["malformed", "arguments", "denied", "tool_choice"]
    reason: str
    """For people, in logs: it holds no value of an argument."""
    quoted: str = ""
    """For the model, where more can be said to it."""
    tool: str = ""  # the one that was called


class Stage(Protocol):
    """An event in, events out."""

    def feed(self, event: Event) -> Sequence[Event]: ...


class Ids:
    """Makes ids of calls that are unique in their conversation. One for all choices of an exchange."""

    def __init__(self, seed: str, used: Iterable[str], form: Callable[[str], str]) -> None:
        self._seed = seed
        self._used = {*used}
        self._form = form
        self._count = 0

    def take(self, id_: str | None) -> str:
        """Return a call's own id, or one derived from the seed if it has none or another call has it."""
        while not id_ or id_ in self._used:
            self._count += 1
            id_ = self._form(hashlib.sha256(f"{self._seed}:{self._count}".encode()).hexdigest())
        self._used.add(id_)
        return id_


def alphanumeric9(digest: str) -> str:
    """Make the id of a call from 64 hex digits, as Mistral's templates demand it."""
    return digest[:9]


class Identify:
    """Gives calls their ids; one that upstream made, and no policy changed, leaves as upstream spelled it."""

    def __init__(self, ids: Ids, *, structured: bool) -> None:
        self._ids = ids
        self._structured = structured
        self._spelled: dict[int, tuple[Call, ToolCall]] = {}  # by the id of the event, which is kept so
        self._given: set[str | None] = {None, ""}
        self._begun: list[str] = []
        """The ids of the calls that left in pieces."""

    def give(self, ids: Iterable[str]) -> None:
        """Take note of the ids of calls that left without going through here."""
        self._given.update(ids)

    def named(self, call: ToolCall, meant: ToolCall) -> Call:
        """Make the event for a call of upstream's as it is `meant`, for policies to see."""
        event = Call("", meant, NATIVE)
        self._spelled[id(event)] = event, call
        return event

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            self._begun += [self._ids.take(event.id)] if event.name else []
            id_ = self._begun[-1] if event.name else None
            return (msgspec.structs.replace(event, id=id_, number=FROM_TEXT + len(self._begun)),)
        if not isinstance(event, Call):
            return (event,)
        if event.rest is not None:
            return (replace(event, call=replace(event.call, id=self._begun[-1])),)
        if self._structured and event.dialect == NATIVE:
            event = replace(event, call=self._spelled.get(id(event), (event, event.call))[1])
            if event.call.id not in self._given:  # upstream's own, also where a past turn had it
                self._given.add(event.call.id)
                return (event,)
            event = replace(event, call=replace(event.call, id=None))
        return (replace(event, call=replace(event.call, id=self._ids.take(event.call.id))),)


class Record:
    """Writes the report, and what may be worth asking again for; what is only said for that goes no further."""

    def __init__(self, report: Report, tools: Mapping[str, Tool], *, structured: bool) -> None:
        self._report = report
        self._tools = tools
        self._structured = structured
        self.faults: list[ReplyFault] = []

    def feed(self, event: Event) -> Sequence[Event]:
        match event:
            case Refusal():
                self._refused(event)
                return ()
            case Intervention():
                self.intervened(event)
                return ()
            case Call(call=call) if event.dialect != NATIVE or event.repairs or not self._structured:
                self._called(call, event.dialect, event.repairs)
                if not event.compared:
                    self._report.intervened("echo", "passed", call.name, NOT_COMPARED)
        return (event,)

    def _called(self, call: ToolCall, dialect: str, repairs: Sequence[str]) -> None:
        """Note a call, and the parameters that its tool requires and that it does not have."""
        tool, lacks = self._tools.get(call.name), list[str]()
        with contextlib.suppress(ValueError, RecursionError):  # what is no JSON was told as that
            lacks = parameter.missing(loaded(call.arguments), tool.parameters) if tool else []
        self._report.called(call.name, call.id, dialect, repairs, lacks)

    def _refused(self, event: Refusal) -> None:
        if event.malformed:
            named = (tool for tool in self._tools if f'"{tool}"' in event.excerpt)  # in JSON that is broken
            self.faults.append(ReplyFault("malformed", event.reason, tool=event.name or next(named, "")))
        told = (event.reason, event.name, event.excerpt)
        last = self._report.refusals[-1:]
        if not any((one["reason"], one["name"], one["excerpt"]) == told for one in last):
            # not once for each dialect that could be meant
            self._report.refused(event)

    def intervened(self, event: Intervention) -> None:
        """Note what a policy did."""
        self._report.intervened(event.policy, event.action, event.tool, event.reason, event.detail)
        if event.policy == "arguments" and event.action in ("passed", "refused"):
            told, detail = f"the arguments of `{event.tool}`: ", event.detail or event.reason
            self.faults.append(ReplyFault("arguments", told + event.reason, told + detail, event.tool))
        elif event.action == "refused":
            self.faults.append(ReplyFault("denied", f"the call of `{event.tool}`: {event.reason}"))

    def left(self, ended: Ended) -> None:
        """Note a call that left as it came."""
        call = ended.call
        if ended.repairs:
            self._called(call, NATIVE, ended.repairs)
        if ended.fault:
            self._report.refused(Refusal(ended.fault, NATIVE, call.name, call.arguments[:EXCERPT]))

    def chosen(self, demanded: str, called: Collection[str], *, constrained: bool = False) -> None:
        """Note if a reply that made these calls lacks the one that `tool_choice` demands.

        Where it was `constrained` to make one, the server did not decode by the grammar that it was sent.
        """
        if demanded in ("auto", "none") or demanded in called or (demanded == "required" and called):
            return
        tool = "" if demanded == "required" else demanded
        reason = f"`tool_choice` demands a call{f' of `{tool}`' * bool(tool)}, and the reply makes none"
        self._report.intervened("tool_choice", "missed", tool, reason)
        if constrained:
            told = "the server took the grammar, and did not decode by it: the reply makes no call"
            self._report.intervened("grammar", "missed", tool, told)
        self.faults.append(ReplyFault("tool_choice", reason))


@dataclass(slots=True)
class Gap:
    """The end of what the client was told in text, which says how far what follows must be set off."""

    tail: str = ""

    def after(self, text: str) -> None:
        """Note what the client was told."""
        self.tail = (self.tail + text)[-MOST_GAP:]

    def before(self, newlines: int) -> str:
        """Return the line breaks that are missing."""
        there = len(self.tail) - len(self.tail.rstrip("\n"))
        return "\n" * (newlines - there) if self.tail else ""


class OutputFilter:
    """The last look at what a client is told, after all that made it: rules on text, and openers of forbidden calls.

    A call that is written as text is told from other text.
    """

    def __init__(self, record: Record, openers: Openers | None = None, joined: Joined | None = None) -> None:
        self._record = record
        self._openers = openers
        self._joined = joined
        self.reads_text = openers is not None or joined is not None

    def feed(self, event: Event) -> list[Event]:
        if not self.reads_text and not isinstance(event, Intervention):
            return [event]
        return self._parted(self._joined.feed(event) if self._joined else [event])

    def call(self, event: Event, size: int) -> list[Event]:
        """Take a call that the client is meant to carry out, written as text in so many characters."""
        if self._openers is None:
            return self.feed(event)
        *before, event = self._joined.feed(event) if self._joined else [event]
        return [*self._parted(before), *self._told(self._openers.call(event, size))]

    def finish(self) -> list[Event]:
        """Return what waits."""
        out = self._parted(self._joined.finish()) if self._joined else []
        return out + (self._told(self._openers.finish()) if self._openers else [])

    def _parted(self, events: Iterable[Event]) -> list[Event]:
        if self._openers is None:
            return self._told(events)
        return self._told(out for event in events for out in self._openers.feed(event))

    def _told(self, events: Iterable[Event]) -> list[Event]:
        """Note what was done; only the others go on."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Intervention):
                self._record.intervened(event)
            else:
                out.append(event)
        return out


class ForStructuredClient:
    """Writes what the client reads as text in place of a call that a policy refused; calls stay calls."""

    def __init__(self, gap: Gap, leaving: OutputFilter) -> None:
        self._gap = gap
        self._leaving = leaving
        self._number = 0
        """That of the last call that left in pieces."""

    def feed(self, event: Event) -> Sequence[Event]:
        told, size = self._told(event)
        if isinstance(told, Text):
            self._gap.after(told.raw)
        elif isinstance(told, Rewritten):
            self._gap.after(told.text)
        return self._leaving.feed(told) if size is None else self._leaving.call(told, size)

    def _told(self, event: Event) -> tuple[Event, int | None]:
        """Return the event that leaves, and the length of the call at its beginning if it is one as text; else None."""
        if isinstance(event, CallPiece):
            self._number = event.number
        if isinstance(event, Call) and event.rest is not None:
            return CallPiece(event.raw, arguments=event.rest, number=self._number), None
        if not isinstance(event, Denied):
            return event, None
        if event.manner == "drop":
            return Markup(event.raw), None
        if event.manner == "text":
            written = json.dumps({"name": event.call.name, "arguments": event.call.arguments}, ensure_ascii=False)
            return Text(event.raw) if event.raw else Rewritten("", self._gap.before(MESSAGE_GAP) + written), None
        return Rewritten(event.raw, self._gap.before(MESSAGE_GAP) + event.message), None

    def finish(self) -> list[Event]:
        """End the reply; return what is added to it, too."""
        return self._leaving.finish()


def as_called(call: ToolCall) -> Mapping[str, Tool]:
    """Take a tool of which nothing is known for what its call says."""
    return {call.name: Tool(call.name, "", {"properties": {key: {} for key in json.loads(call.arguments)}})}


class ForTextClient(ForStructuredClient):
    """Writes calls as text: those that the client can read already as the characters they came in."""

    def __init__(
        self,
        gap: Gap,
        leaving: OutputFilter,
        client: TextClient,
        tools: Mapping[str, Tool],
        limit: Limit,
        record: Record,
        *,
        strict: bool,
    ) -> None:
        super().__init__(gap, leaving)
        self._strict = strict
        self._client = client
        self._tools = tools
        self._limit = limit
        self._record = record
        self._left: list[str] = []
        """Of a call that leaves as it is read, the text that has left."""

    def _told(self, event: Event) -> tuple[Event, int | None]:
        match event:
            case CallPiece():
                self._left = [] if event.name else self._left
                self._left.append(event.raw)
                return Text(event.raw), None
            case Call(rest=None):
                return self._written(event)
            case Call():
                return self._rest(event), None
            case Denied(manner="text"):
                return super()._told(replace(event, manner="steer"))  # its text would be carried out
            case Markup(raw) if raw.isspace() and self._limit.delivered:
                return Text(raw), None  # after a call that stays where it was in the text
        return super()._told(event)

    def _written(self, event: Call) -> tuple[Event, int | None]:
        call, client = event.call, self._client
        readable = conversation.is_readable(event, client.dialect)
        if readable and (not self._strict or self._says(event.raw, call)):
            return Text(event.raw), self._size(event.raw, call.name)
        tools = self._tools or as_called(call)  # the client has tools that its prompt does not document
        written = conversation.as_read(call, client.dialect, tools, client.profile.known_parameters)
        if not self._says(written, call):
            reason = "written for this client its arguments would be read as others"
            self._record.intervened(Intervention("unread_calls", "refused", call.name, reason))
            message = f"The call of `{call.name}` was not passed on: {reason}."
            return Rewritten(event.raw, self._gap.before(MESSAGE_GAP) + message), None
        if readable:
            reason = "this client would have read other arguments"
            self._record.intervened(Intervention("unread_calls", "changed", call.name, reason))
        written = self._gap.before(client.profile.call_gap) + written
        return Rewritten(event.raw, written), self._size(written, call.name)

    def _rest(self, event: Call) -> Event:
        """End a call of which a part has left: as it came, or so that the client reads what a repair made of it."""
        call, client, left = event.call, self._client, "".join(self._left)
        if conversation.is_readable(replace(event, raw=left + event.raw), client.dialect):
            return Text(event.raw)
        written = conversation.as_read(call, client.dialect, self._tools, client.profile.known_parameters)
        rest = conversation.after(left, written)
        if rest is not None and self._says(left + rest, call):
            return Rewritten(event.raw, rest)
        reason = "it is not mended, as a part of it has left"
        self._record.intervened(Intervention("unread_calls", "passed", call.name, reason))
        return Text(event.raw)

    def _says(self, text: str, call: ToolCall) -> bool:
        """Whether the client reads what was judged: no policy and no limit sees the call again."""
        dialect, profile, tools = self._client.dialect, self._client.profile, self._tools or as_called(call)
        return conversation.says(text, call, dialect, tools, profile.known_tools, profile.known_parameters)

    def _size(self, text: str, name: str) -> int:
        """How much of a text is a call for the client, which looks into one of a tool that it does not know."""
        known, dialect = self._client.profile.known_tools, self._client.dialect
        if known and name not in known:
            opener = "".join(conversation.openers(dialect, [name]))
            return text.find(opener) + len(opener)
        closer = conversation.closer(dialect, name)
        return text.rfind(closer) + len(closer)

    def finish(self) -> list[Event]:
        """Tell a client that takes few calls what else the model called, so that the model will see it, too."""
        extra, most = self._limit.extra, self._limit.most
        if not extra or self._client.profile.extra_calls == "drop":
            return super().finish()
        tools = "one tool" if most == 1 else f"{most} tools"
        names = ", ".join([*extra[:MOST_NAMED], *["…"] * (len(extra) > MOST_NAMED)])
        note = f"\n\n(Not carried out, as only {tools} can be used at a time: {names}.)"
        return [*self._leaving.feed(Rewritten("", note)), *super().finish()]
