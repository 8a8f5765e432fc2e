"""The addon: mitmproxy's hooks and the state that they share.

A request is rewritten in `request`, when its body is complete. A reply of server-sent events is rewritten by the stream
callable that `responseheaders` sets (`stream_callable.py`), any other in `response`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from vtc.apis import Api, BadRequest
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.exchange import PlannedRequest, Session
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.planner import PROMPT, Planner
from vtc.proxy import bodies, connections, flows, options, side_questions, views
from vtc.proxy.bodies import STREAMED_MEDIA_TYPES, BodyRecorder
from vtc.proxy.boundary import Boundary
from vtc.proxy.commands import Commands
from vtc.proxy.connections import Turns, wait_without_reading
from vtc.proxy.continuation import begin_continuation
from vtc.proxy.discovery import Discovery
from vtc.proxy.flows import FOLLOW_UP_OF, METADATA
from vtc.proxy.follow_up import RestOfReplies, forward_to_listener
from vtc.proxy.log import Log
from vtc.proxy.log_lines import LogLines
from vtc.proxy.originals import OriginalRequest, restore_received
from vtc.proxy.page import Page
from vtc.proxy.parent import Parent
from vtc.proxy.reload import Reloader
from vtc.proxy.secret import derive_secret
from vtc.proxy.server_keys import ServerKeys
from vtc.proxy.server_request import NO_WEBSOCKET, build_request, decline_websocket, deny_unreadable
from vtc.proxy.side_questions import SideQuestions
from vtc.proxy.startup import Startup
from vtc.proxy.stats import Metrics, Stats
from vtc.proxy.status_endpoint import StatusEndpoint
from vtc.proxy.stream_callable import (
    HOLDING_COMMENT,
    LiveExchange,
    format_break,
    make_observer,
    make_rewriter,
    withhold,
)
from vtc.proxy.unread_calls import UnreadCalls
from vtc.proxy.whole_reply import is_long, process_reply, run_work
from vtc.reporting.report import Report, choose_model_name
from vtc.scrub import escape_invisible, scrub, scrub_data
from vtc.wire.compression import UnsupportedEncoding

logger = logging.getLogger(__name__)

FLOW_MARKERS = {
    "rewritten": ":hammer:",
    "repaired": ":wrench:",
    "refused": ":warning:",
    "unread": ":warning:",
    "denied": ":no_entry:",
    "failed": ":boom:",
    "error": ":x:",
    "left alone": ":zzz:",
}
"""By outcome, for the flow list and for `~marker`."""

SLOW_SECONDS = 0.1
"""Seconds of work on one exchange that cause a warning, if they also exceed 1/50 of its elapsed time."""


@cache
def _freeze() -> None:
    """Exclude mitmproxy's modules and the profiles from garbage collection, once.

    They are permanent, and each full collection of them would block all streams for 50 ms.
    """
    gc.freeze()


def _open_session(
    api: Api, request: http.Request, facts: Facts, planner: Planner, seed: str, memory: Memory | None, secret: bytes
) -> tuple[PlannedRequest, bytes]:
    """Parse a request; return the opening of its session and the decoded body."""
    most = ctx.options.vtc_max_body_bytes
    body = bodies.decode_body(request, most)
    if body is None:
        raise BadRequest("the body is streamed")
    if len(body) > most:
        raise BadRequest(f"the body is longer than vtc_max_body_bytes ({len(body)} bytes)")
    return Session.plan_request(api, body, facts, planner, seed, memory, secret), body


def _rewrite_request(opening: PlannedRequest) -> tuple[Session, bytes]:
    exchange = opening.create_session()
    return exchange, exchange.request()


class VirtualToolCalling:
    """Rewrites tool calls between LLM clients and model servers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.planner: Planner | None = None
        """The planner for new exchanges."""
        self.memory: Memory | None = None
        """Facts about servers, for new exchanges; None with `vtc_cache=off`."""
        self._live: WeakKeyDictionary[http.HTTPFlow, LiveExchange] = WeakKeyDictionary()
        self._unread: WeakKeyDictionary[http.HTTPFlow, BodyRecorder] = WeakKeyDictionary()
        """Recorders of replies that are streamed unread, if bodies are kept."""
        self._beside = SideQuestions()
        self._discovery = Discovery(self, clock)
        self._keys = ServerKeys()
        self._unread_calls = UnreadCalls()
        self._warmer = ThreadPoolExecutor(1, "vtc-warm")
        """Compiles the patterns that replies need, one model at a time."""
        self._why = 0
        """Hash of the reasons for the last plan; a hash, because the reasons contain names of tools."""
        self._stats = Stats()
        reloader = Reloader(self)
        self._log = Log()
        self._lines = LogLines()
        page = Page(self)
        commands = Commands(self, reloader, self._stats, page)
        self.addons = [Startup(self), reloader, commands, self._log, Metrics(self._stats), page, Turns(), self._beside]
        self.addons += [self._unread_calls, StatusEndpoint(), self._discovery, self._keys, RestOfReplies(), Parent()]
        boundary = Boundary(self)
        for addon in (self, *self.addons):
            boundary.enclose(addon)

    def load(self, loader: Loader) -> None:
        options.declare_options(loader)
        views.register()
        connections.HOLDERS.add(self)

    def running(self) -> None:
        _freeze()

    def done(self) -> Awaitable[None] | None:
        """End the addon. mitmproxy awaits the result when it exits, but not when it reloads a changed script."""
        if ctx.master.should_exit.is_set():
            return self._close_all()
        self._end()
        return None

    async def _close_all(self) -> None:
        await connections.close_clients()
        self._end()

    def _end(self) -> None:
        connections.HOLDERS.discard(self)
        for line in self._stats.summary():
            logger.info(line)

    async def request(self, flow: http.HTTPFlow) -> None:
        if api := flows.find_websocket_api(flow):
            self._decline(flow, api)
            return
        if self.planner is None or ctx.options.vtc_mode == "off":
            return
        if flow.is_replay == "request" and FOLLOW_UP_OF not in flow.metadata:
            restore_received(flow)
        api = flows.find_client_api(flow)
        planner = self._discovery.inform_planner(flow, self.planner)
        if not flow.live and (
            flow.response or flow.error
        ):  # loaded from a file, for which mitmproxy runs all hooks again
            return
        loan = self._keys.lend(flow, planner)
        if api is None:
            if self._beside.take(flow, planner):
                return
            if unread := flows.find_unread(flow):
                self.leave_alone(flow, unread.why)
                if unread.may_call:
                    self._refuse(flow, unread.why)
            return
        started = time.perf_counter()
        long, secret = is_long(flow.request), derive_secret(ctx.options.confdir)
        of = flows.read_facts(flow), planner, flow.id, self.memory, secret
        try:
            opening, body = await run_work(partial(_open_session, api, flow.request, *of), much=long)
            is_warm = opening.is_warm
            exchange, rewritten = await run_work(partial(_rewrite_request, opening), much=long or not is_warm)
        except ValueError as error:
            self.leave_alone(flow, str(error))
            self.forget()
            self._refuse(flow, str(error))
            return
        flows.keep_secrets(flow, exchange.report.secrets)
        original = OriginalRequest.of(flow.request)
        live = LiveExchange(exchange, bodies.keeps_bodies(), original, time.perf_counter() - started)
        self._live[flow] = live
        sent = len(rewritten) if ctx.options.vtc_mode == "rewrite" else len(body)
        exchange.report.parties.settings = planner.settings.list_changed()
        exchange.report.why += loan.why
        exchange.report.request += loan.request
        exchange.report.measures.sizes.update(request_came=len(body), request_went=sent)
        why = exchange.plan.why
        if hash(why) != self._why:  # a log record costs mitmproxy more time than the request costs VTC
            self._why = hash(why)
            logger.debug("vtc: %s", "; ".join(why))
        if ctx.options.vtc_mode == "rewrite":
            if answer := exchange.answer():
                flow.response = http.Response.make(answer.status, answer.body, {"content-type": answer.media_type})
                live.answered = True
                return
            build_request(flow, original, api, exchange, rewritten, keep=live.keep)
        if exchange.may_change_reply and (long or not is_warm):
            # After this hook, when the request is sent and VTC waits for the reply.
            asyncio.get_running_loop().call_soon(self._warm, live)

    def _warm(self, live: LiveExchange) -> None:
        live.warming = self._warmer.submit(live.session.warm)

    def leave_alone(self, flow: http.HTTPFlow, why: str) -> None:
        """Report that a flow is not processed."""
        left, known = f"left alone: {why}", flows.collect_secrets(flow)
        text: dict[str, object] = escape_invisible(scrub_data({"notes": [left]}, known))
        self._publish(flow, text, escape_invisible(scrub(f"vtc: {left}", known)), "left alone")

    def live(self, flow: http.HTTPFlow) -> LiveExchange | None:
        """Return the live exchange of a flow, if it has one."""
        return self._live.get(flow)

    def _decline(self, flow: http.HTTPFlow, api: Api) -> None:
        """Report a WebSocket; decline it unless VTC only observes."""
        if flow.response or flow.error:  # loaded from a file
            return
        rewrites = ctx.options.vtc_mode == "rewrite"
        self.leave_alone(flow, f"{NO_WEBSOCKET}{': answered with 426' if rewrites else ''}")
        if rewrites:
            decline_websocket(flow, api)

    def _refuse(self, flow: http.HTTPFlow, why: str) -> None:
        """Answer a request with an error if a policy restricts calls, because its reply could not be read."""
        if (
            ctx.options.vtc_mode == "rewrite"
            and self.planner
            and self.planner.has_strict_policy(flows.read_facts(flow))
        ):
            deny_unreadable(flow, why)

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        live, response = self._live.get(flow), flow.response
        if response is None:
            return
        if FOLLOW_UP_OF in flow.metadata:
            forward_to_listener(flow)
            return
        if live and live.warming:
            await wait_without_reading(flow.server_conn, asyncio.wrap_future(live.warming))
        is_reply = 200 <= (status := response.status_code) < 300
        is_read = status >= 200 and live and bodies.streams_large_bodies() and live.session.fate.reads(status)
        if not (is_reply or is_read):
            return  # an error, processed in `response` when it is complete
        if response.raw_content is not None:
            return  # made by VTC, another addon or a person: mitmproxy does not stream it
        media_type = bodies.get_media_type(response)
        is_stream = media_type in STREAMED_MEDIA_TYPES
        if live is None or not live.session.may_change_reply:
            if is_stream and not response.stream:
                # Stream it unchanged, because mitmproxy would buffer it up to its end.
                response.stream = (
                    self._unread.setdefault(flow, BodyRecorder(keep=True)).pass_on if bodies.keeps_bodies() else True
                )
            return
        exchange, rewrites = live.session, ctx.options.vtc_mode == "rewrite"
        # Whole replies are processed when complete, but with `stream_large_bodies` mitmproxy does not buffer them.
        whole = not exchange.is_streamed(media_type)
        if (whole or (exchange.plan.buffered and rewrites)) and not bodies.streams_large_bodies():
            return  # `response` accepts a buffered reply in either form
        try:
            encoding = response.headers.get("content-encoding", "")
            # The thread's CPU time bounds the work on an encoded reply. It needs a system call, which at every frame of
            # a call would take a tenth of VTC's time, so other replies use the cheaper clock.
            stream = exchange.stream(encoding, time.thread_time if encoding else time.perf_counter, whole=whole)
        except UnsupportedEncoding as error:
            live.killed = exchange.whole.replace_unread(str(error)) is not None and rewrites
            response.stream = withhold if live.killed else True
            return
        if not rewrites:
            response.stream = make_observer(stream, live, flow)
            return
        live.original = None
        if exchange.is_bridged:
            response.headers["content-type"] = exchange.media_type
        live.encoding = response.headers.pop("content-encoding", "")
        bodies.cut_in_chunks(flow.request, response)
        at_end = partial(begin_continuation, flow, live, stream)
        response.stream = make_rewriter(stream, live, flow, ctx.options.vtc_keep_alive, self.clock, at_end)

    async def response(self, flow: http.HTTPFlow) -> None:
        live, response = self._live.get(flow), flow.response
        self._keep_unread(flow)
        missed = live is None and flow.live and METADATA not in flow.metadata and ctx.options.vtc_mode != "off"
        if missed and flows.find_client_api(flow):
            self.leave_alone(flow, "its request was not processed: it was edited later, or VTC was off at that time")
        if live is None or response is None:
            return
        if not live.answered and (response.status_code >= 400 or not response.stream):
            await process_reply(flow, live, response)
        broken = live.killed or (live.stream and live.stream.broken)
        if broken and flow.killable and ctx.options.vtc_mode == "rewrite":
            flow.kill()  # otherwise the client would take the partial reply for a complete one
        live.settled = True
        self.close(flow)

    def server_broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Report that the server broke off, and return the remaining pieces for the client (`connections.py`)."""
        live = self._live.get(flow)
        return live.broke_off(flow, self._discovery.explain_failure(flow, why)) if live else []

    def server_gave_none(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Return an error of the client's API if the server gave no reply (`connections.py`)."""
        live, api = self._live.get(flow), side_questions.find_error_api(flow)
        if api is None or FOLLOW_UP_OF in flow.metadata or ctx.options.vtc_mode != "rewrite":
            return None
        why = self._discovery.explain_failure(flow, why)
        explanation = format_break(flow, why) if flow.response else side_questions.explain_unreachable(flow, why)
        if live is None:
            logger.error(
                "vtc: %s - %s",
                escape_invisible(scrub(explanation, flows.collect_secrets(flow))),
                flows.format_path(flow),
            )
            return side_questions.make_error_answer(api, explanation)
        live.answered, errors = True, live.session.report.errors
        if not errors:  # otherwise the break was already reported
            errors.append(explanation)
        return side_questions.make_error_answer(api, errors[-1])

    def error(self, flow: http.HTTPFlow) -> None:
        self._keep_unread(flow)
        live = self._live.get(flow)
        if live and flow.error and not flow.server_conn.timestamp_tcp_setup:
            live.session.report.errors.append(side_questions.explain_unreachable(flow, flow.error.msg))
        self.close(flow)

    def _keep_unread(self, flow: http.HTTPFlow) -> None:
        """Store a reply that was streamed unread in its flow, because mitmproxy does not."""
        passed = self._unread.pop(flow, None)
        if passed and flow.response and flow.response.raw_content is None:
            flow.response.raw_content = passed.get_recorded()

    def close(self, flow: http.HTTPFlow) -> None:
        """Report the exchange of a flow, which has ended."""
        live = self._live.pop(flow, None)
        if live is None:
            return
        report = live.session.report
        self._measure(flow, live, report)
        if case := live.session.report_unread_call(partial(live.received.end, live.encoding)):
            advice = self._unread_calls.keep(flow, case)
            report.unread["advice"] = report.unread["advice"] or advice
        seconds = report.measures.seconds
        if seconds > max(SLOW_SECONDS, report.measures.elapsed / 50):
            # Only debug level for the first exchange with a model, which compiles its dialects.
            model = choose_model_name(report.parties.model, report.parties.asked)
            level = logging.WARNING if self._stats.has(model) else logging.DEBUG
            logger.log(level, "vtc: %.0f ms of work on one exchange with model %s", seconds * 1e3, model)
        summary = report.summarize()
        if summary and ctx.options.vtc_mode == "observe":
            summary = summary.replace("vtc: ", "vtc (observing): ", 1)
        plan = live.session.plan
        report.parties.record_server_facts(prompted=PROMPT in plan.quirks.list_known(), api=plan.stack.learned_api)
        data = report.as_dict()
        self._stats.add(data)
        self._publish(flow, data, summary, report.outcome)
        self.forget()

    def forget(self) -> None:
        """Drop compiled patterns that contain names if `vtc_cache=off`; running exchanges compile theirs again."""
        if self.memory is None:
            COMPILED_PATTERNS.evict_temporary()

    def _measure(self, flow: http.HTTPFlow, live: LiveExchange, report: Report) -> None:
        """Add sizes and times to the report; store in the flow the received reply and, if streamed, the sent one."""
        measures = report.measures
        measures.seconds = live.seconds + (live.stream.seconds if live.stream else 0.0)
        measures.elapsed = time.time() - flow.request.timestamp_start
        observing = ctx.options.vtc_mode == "observe"
        if size := live.received.size:
            measures.sizes.update(reply_came=size, reply_went=size if observing else live.sent.size)
        received, sent = live.received.get_recorded(live.encoding), live.sent.get_recorded()
        if received is None or sent is None or observing:
            return
        if received != sent:
            flow.metadata[flows.RECEIVED_BODY["reply"]] = received
        if flow.response and flow.response.raw_content is None:
            flow.response.raw_content = sent

    def _publish(self, flow: http.HTTPFlow, report: dict[str, object], summary: str, outcome: str) -> None:
        """Store, log and show a report, which is already scrubbed."""
        report["outcome"] = outcome
        flow.metadata[METADATA] = report
        self._log.write(flow, report)
        if flow.comment.startswith(HOLDING_COMMENT):
            flow.comment = flow.marked = ""
        asked = str(report.get("asked", ""))
        if summary or asked:
            flow.comment = flows.format_comment(summary, asked)
        if summary:
            flow.marked = FLOW_MARKERS.get(outcome, "")
            self._lines.write(flow, report, summary, outcome)
