"""One exchange, from top to bottom: a request and its reply on their way through VTC.

    request body -> Exchange.open(…) -> exchange.request()      what goes to the model server
    reply        -> exchange.stream(…).feed(…) or exchange.body(…)   what goes to the client
    exchange.report                                             what was done, as plain data

Nothing here does I/O, reads a clock or draws a random number. Bad traffic fails open in exactly one place for each
direction: `Exchange.open` for a request (the body goes on as it came), `Stream._failing_open` and
`Exchange.body` for a reply (what is held is released, the rest passes).
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vtc.apis import Api, BadRequest, Request
from vtc.dialects import conversation, documentation, history, writer
from vtc.dialects.description import Description
from vtc.dialects.grammar import compiled
from vtc.dialects.reader import EXCERPT, Reader
from vtc.events import Call, Event, Markup, Message, Opaque, Refusal, Rewritten, Text, Tool, ToolCall
from vtc.profiles.matching import Facts
from vtc.profiles.plan import Plan, Planner, TextClient
from vtc.wire import compression, sse

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """What VTC did to one exchange, for people to read; `as_dict` is plain data."""

    client: str = ""
    model: str = ""
    form: str = "tool_calls"
    """What calls become: `tool_calls`, or the dialect of a client that reads text."""
    why: list[str] = field(default_factory=list)
    request: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def repaired(self) -> int:
        return sum(bool(call["repairs"]) for call in self.calls)

    def summary(self) -> str:
        """`vtc: qwen3-coder -> tool_calls, 2 calls, 1 repaired`; empty when nothing was done."""
        parts = []
        if self.calls:
            count = len(self.calls)
            dialects = ", ".join(dict.fromkeys(call["dialect"] for call in self.calls))
            parts.append(f"{dialects} -> {self.form}, {count} call{'s' * (count > 1)}")
        if self.repaired:
            parts.append(f"{self.repaired} repaired")
        if self.refusals:
            parts.append(f"{len(self.refusals)} left as text ({self.refusals[0]['reason']})")
        parts = [*self.request, *parts, *(f"failed open: {failure}" for failure in self.failures)]
        return "vtc: " + ", ".join(parts) if parts else ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Exchange:
    """One request of an API that VTC speaks, and the plan for it."""

    def __init__(self, api: Api, request: Request, body: bytes, plan: Plan, seed: str) -> None:
        self.plan = plan
        self.report = Report(client=plan.client, model=plan.model, why=list(plan.why))
        if plan.client_text:
            self.report.form = plan.client_text.dialect.name
        self._api = api
        self._request = request
        self._body = body
        self._tools = {tool.name: tool for tool in plan.tools}
        self._used_ids = {call.id for message in request.messages for call in message.calls}
        self._seed = seed
        self._count = 0
        self._rewritten = self._rewrite()

    @classmethod
    def open(cls, api: Api, body: bytes, facts: Facts, planner: Planner, seed: str) -> Exchange:
        """Decode a request, decide about it and rewrite it; raises `BadRequest`, and then the body goes on as it came.

        `seed` must differ for every exchange: the ids of calls are derived from it.
        """
        try:
            request = api.request(body)
            facts = replace(facts, model=request.model, body=request.fields)
            return cls(api, request, body, planner.plan(facts, request), seed)
        except BadRequest:
            raise
        except Exception as error:
            logger.exception("vtc: the request is passed on as it came")
            raise BadRequest(f"{type(error).__name__}: {error}") from error

    def request(self) -> bytes:
        """The body for the model server; the very bytes that came unless the plan says otherwise."""
        return self._rewritten

    def _rewrite(self) -> bytes:
        plan, request = self.plan, self._request
        if plan.write is None and not plan.promote:
            if plan.set or plan.drop:
                return request.encode(set_=plan.set, drop=plan.drop)
            return self._body
        messages = request.messages
        if plan.client_text:
            messages = self._structured(plan.client_text, plan.write)
        if plan.write:
            messages = history.to_text(messages, plan.write, self._tools)
            if plan.client_text:
                messages = history.joined(messages)
        if plan.write and plan.prompt_tools:
            messages = history.with_tools(messages, plan.write, plan.tools, request.tool_choice)
        if plan.promote or plan.prompt_tools:
            told = "`tools`" if plan.write is None else f"{plan.write.name} prompt"
            self.report.request.append(f"{len(plan.tools)} tools -> {told}")
        return request.encode(
            messages=messages, tools=plan.tools if plan.promote else (), set_=plan.set, drop=plan.drop
        )

    def _structured(self, client: TextClient, write: Description | None) -> Sequence[Message]:
        """A text client's conversation with calls and results as such, and its prompt without what it says of tools."""

        def sample(call: ToolCall) -> str:
            return writer.write_calls([call], write, self._tools) if write else f"{call.name}({call.arguments})"

        def told(part: str | Opaque) -> str | Opaque:
            if isinstance(part, Opaque):
                return part
            rest = documentation.read(part, client.tool_sections).rest
            return conversation.with_samples(rest, client.dialect, self._tools, sample)

        messages = conversation.structured(self._request.messages, client.dialect, self._tools)
        return [
            replace(message, content=tuple(map(told, message.content))) if message.role == "system" else message
            for message in messages
        ]

    @property
    def reads(self) -> bool:
        """Whether the reply is read at all; if not, it is nobody's business here."""
        return bool(self.plan.read) and bool(self._tools)

    def stream(self, content_encoding: str = "") -> Stream:
        """The codec for a reply of server-sent events; raises `UnsupportedEncoding`."""
        rewriter = self._api.rewriter(self._channel, legacy=self._request.legacy)
        return Stream(rewriter, compression.decoder(content_encoding), self.report)

    def body(self, body: bytes) -> bytes:
        """A whole reply, JSON or server-sent events, rewritten; as it came if that fails."""
        try:
            if body.lstrip().startswith((b"data:", b"event:", b":", b"id:")):
                stream = self.stream()
                return b"".join([*stream.feed(body), *stream.finish()])
            return self._api.rewrite(body, self._channel, legacy=self._request.legacy)
        except Exception as error:
            logger.exception("vtc: the reply is passed on as it came")
            self.report.failures.append(f"{type(error).__name__}: {error}")
            self.report.calls.clear()
            return body

    def _channel(self) -> Channel:
        """A reader for one choice of the reply."""
        plan, think = self.plan, self.plan.reasoning
        grammar = compiled(
            plan.read, tuple(sorted(self._tools)), (think.open, think.close) if think else None, plan.markers
        )
        reader = Reader(
            grammar,
            self._tools,
            lenient=plan.lenient,
            unknown_tools=plan.unknown_tools,
            max_call_bytes=plan.max_call_bytes,
            think=think.to if think else "keep",
            thinking=bool(think and think.prefilled),
        )
        return Channel(reader, self._identified, plan, self._tools, self.report)

    def _identified(self, event: Call) -> Call:
        """The call with an id that is unique in its conversation: its own if it has one, else a derived one."""
        id_ = event.call.id
        while not id_ or id_ in self._used_ids:
            self._count += 1
            digest = hashlib.sha256(f"{self._seed}:{self._count}".encode()).hexdigest()
            id_ = digest[:9] if self.plan.ids == "alphanumeric9" else f"call_{digest[:24]}"
        self._used_ids.add(id_)
        return replace(event, call=replace(event.call, id=id_))


class Channel:
    """One choice's text between reader and API: numbers the calls, keeps to `max_calls`, writes the report.

    For a client that reads text, calls leave as text: those it can read already as the characters they came in.
    """

    def __init__(
        self,
        reader: Reader,
        identify: Callable[[Call], Call],
        plan: Plan,
        tools: Mapping[str, Tool],
        report: Report,
    ) -> None:
        self._reader = reader
        self._identify = identify
        self._plan = plan
        self._tools = tools
        self._report = report
        self._calls = 0
        self._extra: list[str] = []
        self._spoke = False

    @property
    def structured(self) -> bool:
        return self._plan.client_text is None

    def feed(self, text: str) -> list[Event]:
        return self._passed(self._reader.feed(text))

    def finish(self, *, complete: bool) -> list[Event]:
        return [*self._passed(self._reader.finish(complete=complete)), *self._note()]

    def release(self) -> list[Event]:
        return self._passed(self._reader.release())

    def calls(self, calls: Sequence[ToolCall]) -> list[Event]:
        events: list[Event] = []
        for call in calls:
            try:
                whole = isinstance(json.loads(call.arguments), dict)
            except ValueError:
                whole = False
            if whole:
                events.append(Call("", call, "tool_calls"))
            else:
                reason = "its arguments are not a whole JSON object"
                events.append(Refusal(reason, "tool_calls", call.name, call.arguments[:EXCERPT]))
        return [*self._passed(events), *self._note()]

    def _passed(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if isinstance(event, Refusal):
                self._refused(event)
            self._spoke = self._spoke or isinstance(event, Text)
            out.append(self._called(event) if isinstance(event, Call) else event)
        return out

    def _called(self, event: Call) -> Event:
        limit = self._plan.max_calls
        if limit is not None and self._calls >= limit:
            self._extra.append(event.call.name)
            reason = f"only {limit} call{'s' * (limit > 1)} a reply: dropped"
            self._refused(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))
            return Markup(event.raw)
        self._calls += 1
        event = self._identify(event)
        call = event.call
        self._report.calls.append(
            {"name": call.name, "id": call.id, "dialect": event.dialect, "repairs": list(event.repairs)}
        )
        client = self._plan.client_text
        if client is None:
            return event
        if event.dialect == client.dialect.name and not event.repairs:
            self._spoke = True
            return Text(event.raw)
        gap = "\n" * client.gap if self._spoke else ""
        self._spoke = True
        return Rewritten(event.raw, gap + writer.write_calls([call], client.dialect, self._tools))

    def _note(self) -> list[Event]:
        """For a one-call client: what else the model called, in words, so that the model will see it too."""
        client, extra = self._plan.client_text, self._extra
        if not extra or client is None or client.extra_calls == "drop":
            return []
        self._extra = []
        names = ", ".join(extra)
        return [Rewritten("", f"\n\n(Not carried out, as only one tool can be used at a time: {names}.)")]

    def _refused(self, event: Refusal) -> None:
        self._report.refusals.append(
            {"reason": event.reason, "dialect": event.dialect, "name": event.name, "excerpt": event.excerpt}
        )


class Stream:
    """A reply of server-sent events, as bytes in any cut: `feed` and `finish` return what may leave now.

    Neither ever raises, and neither ever returns empty bytes.
    """

    def __init__(self, rewriter: Any, decoder: compression.Decoder, report: Report) -> None:
        self._rewriter = rewriter
        self._decoder = decoder
        self._frames = sse.FrameReader()
        self._report = report
        self._failed = False
        self._finished = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Read on; the bytes that may leave, joined (at most one item)."""
        return self._failing_open(lambda: self._decoder.feed(chunk), final=False)

    def finish(self) -> list[bytes]:
        """The end of the body (idempotent)."""
        if self._finished:
            return []
        self._finished = True
        return self._failing_open(self._decoder.finish, final=True)

    def _failing_open(self, read: Callable[[], bytes], *, final: bool) -> list[bytes]:
        out: list[bytes] = []
        frames: list[sse.Frame] = []
        try:
            data = read()
            if self._failed:
                return [data] if data else []
            frames = self._frames.feed(data)
            if final:
                frames += self._frames.finish()
            while frames:
                frame = frames[0]
                out += [frame.raw] if frame.data is None else self._rewriter.feed(frame.raw, frame.data)
                frames.pop(0)
            if final and (last := self._rewriter.finish()):
                # The body may have ended in the middle of a frame; what is added must not continue it.
                out += [b"\n\n"] * bool(out and not out[-1].endswith((b"\n\n", b"\r\n\r\n", b"\r\r")))
                out += last
        except Exception as error:
            if not self._failed:
                self._failed = True
                logger.exception("vtc: the rest of the reply is passed on as it came")
                self._report.failures.append(f"{type(error).__name__}: {error}")
                out += self._rewriter.release()
                out += [frame.raw for frame in (*frames, *self._frames.finish())]
        joined = b"".join(out)
        return [joined] if joined else []
