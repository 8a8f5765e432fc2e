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
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vtc.apis import Api, BadRequest, Request
from vtc.channel import Channel
from vtc.dialects import conversation, documentation, history, writer
from vtc.dialects.description import Description
from vtc.dialects.grammar import compiled
from vtc.dialects.reader import Reader
from vtc.events import Call, Message, Opaque, ToolCall
from vtc.profiles.matching import Facts
from vtc.profiles.plan import Plan, Planner, TextClient
from vtc.profiles.schema import Reasoning
from vtc.report import Report
from vtc.wire import compression, sse

logger = logging.getLogger(__name__)


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
            self.report.request.append(f"{len(plan.tools)} tool{'s' * (len(plan.tools) != 1)} -> {told}")
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

        messages: list[Message] = []
        for message in conversation.structured(self._request.messages, client.dialect, self._tools):
            if message.role == "system":
                content = tuple(part for part in map(told, message.content) if isinstance(part, Opaque) or part.strip())
                if not content:  # it was about tools only; servers refuse an empty one
                    continue
                message = message if content == message.content else replace(message, content=content)
            messages.append(message)
        return messages

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
        think = self.plan.reasoning
        thoughts = self._reader(None) if think and think.calls != "ignore" else None
        return Channel(self._reader(think), thoughts, self._identified, self.plan, self._tools, self.report)

    def _reader(self, think: Reasoning | None) -> Reader:
        plan = self.plan
        tags = (think.open, think.close) if think else None
        return Reader(
            compiled(plan.read, tuple(sorted(self._tools)), tags, plan.markers),
            self._tools,
            lenient=plan.lenient,
            unknown_tools=plan.unknown_tools,
            max_call_bytes=plan.max_call_bytes,
            think=think.to if think else "keep",
            thinking=bool(think and think.prefilled),
        )

    def _identified(self, event: Call) -> Call:
        """The call with an id that is unique in its conversation: its own if it has one, else a derived one."""
        id_ = event.call.id
        while not id_ or id_ in self._used_ids:
            self._count += 1
            digest = hashlib.sha256(f"{self._seed}:{self._count}".encode()).hexdigest()
            id_ = digest[:9] if self.plan.ids == "alphanumeric9" else f"call_{digest[:24]}"
        self._used_ids.add(id_)
        return replace(event, call=replace(event.call, id=id_))


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
