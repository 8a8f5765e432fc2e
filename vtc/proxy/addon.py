"""The addon: mitmproxy's hooks, and nothing that is not about them.

A request is rewritten in `request`, when its body is there. A reply of server-sent events is rewritten by the stream
callable that `responseheaders` sets, any other in `response`. What mitmproxy does with that callable rules its shape:
it must not raise (the chunk would be lost, or the client hang) and must not return b"" (that ends the body), and
its final call may come twice or not at all.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from vtc.apis import Api, BadRequest
from vtc.dialects.bounded_cache import COMPILED
from vtc.dialects.cache import ConversationCache
from vtc.exchange import Exchange
from vtc.exchange.stream import Stream
from vtc.json_text import encode
from vtc.profiles.planner import Planner
from vtc.proxy import bodies, flows, options, views
from vtc.proxy.asking import AGAIN, Asker
from vtc.proxy.bodies import Passing
from vtc.proxy.commands import Commands
from vtc.proxy.flows import METADATA
from vtc.proxy.log import Log, where
from vtc.proxy.metrics import Metrics
from vtc.proxy.reload import Reloader
from vtc.proxy.stats import Stats
from vtc.reporting.report import Report
from vtc.scrub import escaped, scrub, scrubbed, secrets
from vtc.wire.compression import UnsupportedEncoding

logger = logging.getLogger(__name__)

MARKS = {
    "rewritten": ":hammer:",
    "repaired": ":wrench:",
    "refused": ":warning:",
    "denied": ":no_entry:",
    "failed": ":boom:",
    "left alone": ":zzz:",
}
"""By outcome, for the flow list and for `~marker`."""

STREAMED = ("text/event-stream", "application/x-ndjson")
"""Media types of replies that are passed on as they come, whoever reads them."""
LONG = 1 << 17
"""Bytes of a whole reply beyond which it is dealt with beside the event loop, where all other streams go on."""
SLOW = 0.1
"""Seconds of work on one exchange beyond which it is a warning."""


@dataclass(slots=True)
class _Live:
    """An exchange on its way through, the seconds spent on it, and its reply as it came and as it went."""

    exchange: Exchange
    keep: bool
    seconds: float = 0.0
    answered: bool = False
    """The reply is our own."""
    stream: Stream | None = None
    """What a streamed reply goes through on its way to the client."""
    encoding: str = ""
    """The content-encoding in which a streamed reply comes."""
    killed: bool = False
    """Nothing of the reply may leave."""
    came: Passing = field(init=False)
    went: Passing = field(init=False)

    def __post_init__(self) -> None:
        self.came, self.went = Passing(keep=self.keep), Passing(keep=self.keep)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the reply that came, and that went."""
        return self.came.size, self.went.size


class VirtualToolCalling:
    """Rewrites tool calls between LLM clients and model servers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.planner: Planner | None = None
        """What decides about exchanges that begin now."""
        self.cache: ConversationCache | None = None
        """Keeps parts of conversations for exchanges that begin now; None with `vtc_cache=off`."""
        self._live: WeakKeyDictionary[http.HTTPFlow, _Live] = WeakKeyDictionary()
        self._why = 0
        """The hash of the reasons for the last plan; not the reasons, in which there are names of tools."""
        self._stats = Stats()
        reloader = Reloader(self)
        self._log = Log()
        self.addons = [reloader, Commands(self, reloader, self._stats), self._log, Metrics(self._stats)]

    def load(self, loader: Loader) -> None:
        options.add(loader)
        views.register()

    def running(self) -> None:
        # mitmproxy's modules and the profiles stay: Python's collector need not go through them again and again,
        # which takes 50 ms each time, and all streams wait for that.
        if not gc.get_freeze_count():
            gc.freeze()

    def done(self) -> None:
        for line in self._stats.summary():
            logger.info(line)

    # The request

    def request(self, flow: http.HTTPFlow) -> None:
        api = self._api(flow)
        if self.planner is None or ctx.options.vtc_mode == "off":
            return
        if not flow.live and (flow.response or flow.error):  # opened from a file: mitmproxy runs all hooks again
            return
        if api is None:
            if unread := flows.unread(flow):
                self._left_alone(flow, unread)
            return
        started = time.perf_counter()
        if flow.is_replay == "request":
            _renew(flow)
        try:
            body = bodies.decoded(flow.request, ctx.options.vtc_max_body_bytes)
            if body is None:
                raise BadRequest("the body is streamed")
            if len(body) > ctx.options.vtc_max_body_bytes:
                raise BadRequest(f"the body is longer than vtc_max_body_bytes ({len(body)} bytes)")
            exchange = Exchange.open(api, body, flows.facts(flow), self.planner, flow.id, self.cache)
            rewritten = exchange.request()
        except ValueError as error:
            self._left_alone(flow, str(error))
            self.forget()
            if ctx.options.vtc_mode == "rewrite" and self.planner.refuses(flows.facts(flow)):
                _refuse(flow, str(error))
            return
        live = self._live[flow] = _Live(exchange, bodies.keep(), time.perf_counter() - started)
        went = len(rewritten) if ctx.options.vtc_mode == "rewrite" else len(body)
        exchange.report.sizes.update(request_came=len(body), request_went=went)
        why = exchange.plan.why
        if hash(why) != self._why:  # mitmproxy spends more on a record than VTC on a request
            self._why = hash(why)
            logger.debug("vtc: %s", "; ".join(why))
        if ctx.options.vtc_mode == "rewrite":
            if answer := exchange.answer(int(flow.request.timestamp_start)):
                content_type, content = answer
                flow.response = http.Response.make(200, content, {"content-type": content_type})
                self._live[flow].answered = True
                return
            if rewritten != body:
                flow.request.content = rewritten
                if live.keep and len(body) <= bodies.KEPT:
                    flow.metadata[flows.CAME["request"]] = body
            if exchange.reads:
                # A reply that cannot be decoded could not be read; clients take identity as they take any other.
                flow.request.headers["accept-encoding"] = "identity"

    def _left_alone(self, flow: http.HTTPFlow, why: str) -> None:
        left, known = f"left alone: {why}", secrets(flow.request.headers)
        said: dict[str, object] = escaped(scrubbed({"request": [left]}, known))
        self._say(flow, said, escaped(scrub(f"vtc: {left}", known)), "left alone")

    def _api(self, flow: http.HTTPFlow) -> Api | None:
        return None if AGAIN in flow.metadata else flows.api(flow)

    # The reply

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        live, response = self._live.get(flow), flow.response
        if response is None or not (200 <= response.status_code < 300):
            return
        if self._api(flow) is None and not flows.unread(flow):
            return
        if live and live.answered:
            return
        media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_stream = media_type in STREAMED
        if live is None or not live.exchange.reads:
            response.stream = response.stream or is_stream  # nothing is done to it, and mitmproxy would keep it
            return
        exchange, rewrites = live.exchange, ctx.options.vtc_mode == "rewrite"
        # Whole replies are looked at when they are there. With `stream_large_bodies` mitmproxy keeps none for that.
        whole = not is_stream or media_type != exchange.framing.media_type
        if (whole or (exchange.plan.reply.buffered and rewrites)) and not _streams_large():
            return  # of what is buffered it is no matter in which form upstream gave it
        try:
            stream = exchange.stream(response.headers.get("content-encoding", ""), time.perf_counter, whole=whole)
        except UnsupportedEncoding as error:
            strict = exchange.withheld(str(error)) is not None and rewrites
            response.stream = _withholding if strict else True
            live.killed = strict
            return
        if not rewrites:
            response.stream = _observing(stream, live)
            return
        live.encoding = response.headers.pop("content-encoding", "")
        counted = response.headers.pop("content-length", None) is not None
        # A client of HTTP/1.0 reads up to the end of the connection.
        if counted and response.http_version == "HTTP/1.1" and flow.request.http_version != "HTTP/1.0":
            response.headers["transfer-encoding"] = "chunked"
        response.stream = _rewriting(stream, live, ctx.options.vtc_keep_alive, self.clock)

    async def response(self, flow: http.HTTPFlow) -> None:
        live, response = self._live.get(flow), flow.response
        if live is None or response is None:
            return
        if live.exchange.reads and not (live.answered or response.stream) and 200 <= response.status_code < 300:
            await self._whole(flow, live, response)
        if (
            (live.killed or (live.stream and live.stream.broken))
            and flow.killable
            and ctx.options.vtc_mode == "rewrite"
        ):
            flow.kill()  # or the client would take what there is for the whole reply
        self._close(flow)

    async def _whole(self, flow: http.HTTPFlow, live: _Live, response: http.Response) -> None:
        exchange, rewrites = live.exchange, ctx.options.vtc_mode == "rewrite"
        try:
            body = bodies.decoded(response, ctx.options.vtc_max_body_bytes)
        except ValueError as error:
            _withhold(exchange, response, f"the body cannot be decoded: {error}", rewrites=rewrites)
            return
        if not body:
            return
        if len(body) > ctx.options.vtc_max_body_bytes:
            reason = f"the reply is longer than vtc_max_body_bytes ({len(body)} bytes)"
            _withhold(exchange, response, reason, rewrites=rewrites)
            return
        started = time.perf_counter()
        retry = exchange.plan.reply.retry if rewrites else None
        asker = Asker(flow, retry.seconds) if retry else None
        if asker:
            rewritten = await exchange.rewrite_with_retry(body, asker)
        elif len(body) > LONG:
            rewritten = await asyncio.to_thread(exchange.body, body)
        else:
            rewritten = exchange.body(body)
        live.seconds += time.perf_counter() - started - (asker.waited if asker else 0)
        live.came.add(body)
        live.went.add(rewritten)
        if rewritten != body and rewrites:
            response.content = rewritten
            if exchange.plan.reply.buffered:
                response.headers["content-type"] = exchange.framing.media_type

    def error(self, flow: http.HTTPFlow) -> None:
        self._close(flow)

    def _close(self, flow: http.HTTPFlow) -> None:
        live = self._live.pop(flow, None)
        if live is None:
            return
        report = live.exchange.report
        self._measure(flow, live, report)
        if report.seconds > SLOW:
            logger.warning("vtc: %.0f ms of work on one exchange with model %s", report.seconds * 1e3, report.model)
        summary = report.summary()
        if summary and ctx.options.vtc_mode == "observe":
            summary = summary.replace("vtc: ", "vtc (observing): ", 1)
        known = secrets(flow.request.headers)
        said = report.as_dict(known)
        self._stats.add(said)
        self._say(flow, said, scrub(summary, known), report.outcome)
        self.forget()

    def forget(self) -> None:
        """Drop compiled patterns if `vtc_cache=off`. Exchanges on their way compile theirs again."""
        if self.cache is None:
            COMPILED.clear()

    def _measure(self, flow: http.HTTPFlow, live: _Live, report: Report) -> None:
        """Put sizes and times into the report, and with the flow the reply as it came and, if streamed, as it went."""
        report.seconds = live.seconds + (live.stream.seconds if live.stream else 0.0)
        report.elapsed = time.time() - flow.request.timestamp_start
        observing = ctx.options.vtc_mode == "observe"
        came_size, went_size = live.sizes
        if came_size:
            report.sizes.update(reply_came=came_size, reply_went=came_size if observing else went_size)
        came, went = live.came.kept(live.encoding), live.went.kept()
        if came is None or went is None or observing:
            return
        if came != went:
            flow.metadata[flows.CAME["reply"]] = came
        if flow.response and flow.response.raw_content is None:
            flow.response.raw_content = went

    def _say(self, flow: http.HTTPFlow, report: dict[str, object], summary: str, outcome: str) -> None:
        """Tell people; nothing secret is in there any more."""
        flow.metadata[METADATA] = report
        self._log.write(flow, report, outcome)
        if summary:
            flow.comment = summary
            flow.marked = MARKS.get(outcome, "")
            logger.info("%s %s%s", summary, flow.request.pretty_host, where(flow))


def _renew(flow: http.HTTPFlow) -> None:
    """Make a flow that is sent again what it was when it came: what was done to it then is done anew."""
    came = flow.metadata.pop(flows.CAME["request"], None)
    if isinstance(came, bytes):
        flow.request.content = came
    for key in (METADATA, flows.CAME["reply"]):
        flow.metadata.pop(key, None)
    if flow.comment.startswith("vtc"):
        flow.comment, flow.marked = "", ""


def _refuse(flow: http.HTTPFlow, reason: str) -> None:
    """Answer a request whose reply no policy would see."""
    if flow.request.stream:  # it has gone on already
        flow.kill()
        return
    message = f"vtc: a policy that refuses calls holds here, and this request cannot be read: {reason}"
    body = encode({"error": {"message": message, "type": "invalid_request_error"}})
    flow.response = http.Response.make(400, body, {"content-type": "application/json"})


def _withhold(exchange: Exchange, response: http.Response, reason: str, *, rewrites: bool) -> None:
    """Put something in the place of a whole reply that could not be looked at, unless it may pass."""
    body = exchange.withheld(reason)
    if body is not None and rewrites:
        response.headers.pop("content-encoding", None)
        response.content = body
        response.headers["content-type"] = "application/json"


def _streams_large() -> bool:
    return bool("stream_large_bodies" in ctx.options and ctx.options.stream_large_bodies)


def _withholding(_: bytes) -> list[bytes]:
    """Let nothing of a body leave."""
    return []


def _rewriting(
    stream: Stream, live: _Live, keep_alive: int = 0, clock: Callable[[], float] = time.monotonic
) -> Callable[[bytes], list[bytes]]:
    """Make the stream callable.

    A client that is sent nothing for `keep_alive` seconds although bytes still come from upstream gets a frame that
    tells it nothing. What is rewritten leaves in whole frames, so that it may stand between any two of them.
    """
    quiet = 0.0  # since then the client is sent nothing
    came, went = live.came, live.went
    live.stream = stream

    def rewrite(chunk: bytes) -> list[bytes]:
        nonlocal quiet
        out = stream.feed(chunk) if chunk else stream.finish()
        if live.keep:
            came.add(chunk)
            for one in out:
                went.add(one)
        else:  # called for each chunk of a reply: without a call in nearly no time
            came.size += len(chunk)
            if out:
                went.size += len(out[0])
        if out or not chunk or not keep_alive:
            quiet = 0.0
            return out
        now = clock()
        quiet = quiet or now
        if now - quiet < keep_alive or (frame := stream.keep_alive()) is None:
            return out
        quiet = now
        return [frame]

    return rewrite


def _observing(stream: Stream, live: _Live) -> Callable[[bytes], list[bytes]]:
    rewrite = _rewriting(stream, live)

    def observe(chunk: bytes) -> list[bytes]:
        rewrite(chunk)
        return [chunk] if chunk else []

    return observe
