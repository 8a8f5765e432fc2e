"""The addon: mitmproxy's hooks and the state that they share.

A request is rewritten in `request`, when its body is complete. A reply of server-sent events is rewritten by the stream
callable that `responseheaders` sets (`stream_callable.py`), any other in `response`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

from vtc.apis import Api, RequestError
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.exchange import PlannedRequest, Session
from vtc.profiles.matching import Facts
from vtc.profiles.memory import Memory
from vtc.profiles.planner import PROMPT, Planner
from vtc.proxy import flows, options
from vtc.proxy.asking.discovery import Discovery
from vtc.proxy.boundary import Boundary
from vtc.proxy.flows import FOLLOW_UP_OF, METADATA
from vtc.proxy.parent import Parent
from vtc.proxy.reload import Reloader
from vtc.proxy.secret import load_seal_secrets
from vtc.proxy.serving import bodies, connections, side_questions
from vtc.proxy.serving.bodies import STREAMED_MEDIA_TYPES, BodyRecorder
from vtc.proxy.serving.client_stream import Continuations
from vtc.proxy.serving.connections import Turns, wait_without_reading
from vtc.proxy.serving.continuation import begin_continuation
from vtc.proxy.serving.follow_up import forward_to_listener
from vtc.proxy.serving.key_loans import KeyLoans
from vtc.proxy.serving.originals import OriginalRequest, restore_received
from vtc.proxy.serving.server_request import NO_WEBSOCKET, build_request, decline_websocket, deny_unreadable
from vtc.proxy.serving.side_questions import SideQuestions
from vtc.proxy.serving.status_endpoint import StatusEndpoint
from vtc.proxy.serving.stream_callable import (
    LiveExchange,
    format_break,
    make_observer,
    make_rewriter,
    send_nothing,
)
from vtc.proxy.serving.whole_reply import is_long, process_reply, run_work
from vtc.proxy.showing import views
from vtc.proxy.showing.commands import Commands
from vtc.proxy.showing.event_log import EventLog
from vtc.proxy.showing.log_file import LogFile
from vtc.proxy.showing.page import Page
from vtc.proxy.showing.startup import Startup
from vtc.proxy.showing.stats import Metrics, Stats
from vtc.proxy.showing.unread_calls import UnreadCalls
from vtc.reporting import LEFT_ALONE
from vtc.reporting.report import Report, choose_model_name
from vtc.scrub import escape_invisible, scrub_data, scrub_text
from vtc.wire.compression import UnsupportedEncoding

logger = logging.getLogger(__name__)

SLOW_SECONDS = 0.1
"""Seconds of work on one exchange that cause a warning, if they also exceed 1/50 of its elapsed time."""


@cache
def _freeze() -> None:
    """Exclude mitmproxy's modules and the profiles from garbage collection, once.

    They are permanent, and each full collection of them would block all streams for 50 ms.
    """
    gc.freeze()


def _plan_request(
    api: Api,
    request: http.Request,
    facts: Facts,
    planner: Planner,
    seed: str,
    memory: Memory | None,
    secrets: Sequence[bytes],
) -> tuple[PlannedRequest, bytes]:
    """Parse a request and plan its exchange; return the plan and the decoded body. Raises ValueError."""
    max_bytes = ctx.options.vtc_max_body_bytes
    body = bodies.decode_body(request, max_bytes)
    if body is None:
        raise RequestError("the body is streamed")
    if len(body) > max_bytes:
        raise RequestError(f"the body is longer than vtc_max_body_bytes ({len(body)} bytes)")
    return Session.plan_request(api, body, facts, planner, seed, memory, secrets), body


def _rewrite_request(planned: PlannedRequest) -> tuple[Session, bytes]:
    """Create the session of a planned request; return it and the body for the server."""
    session = planned.create_session()
    return session, session.encode_request()


class VirtualToolCalling:
    """Rewrites tool calls between LLM clients and model servers."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.planner: Planner | None = None
        """The planner for new exchanges."""
        self.memory: Memory | None = None
        """Facts about servers, for new exchanges; None with `vtc_cache=off`."""
        self._live: WeakKeyDictionary[http.HTTPFlow, LiveExchange] = WeakKeyDictionary()
        self._unchanged_replies: WeakKeyDictionary[http.HTTPFlow, BodyRecorder] = WeakKeyDictionary()
        """Recorders of replies that are streamed without being parsed, if bodies are kept."""
        self._side_questions = SideQuestions()
        self._discovery = Discovery(self, clock)
        self._key_loans = KeyLoans()
        self._unread_calls = UnreadCalls()
        self._warmer = ThreadPoolExecutor(1, "vtc-warm")
        """Compiles the patterns that replies need, one model at a time."""
        self._last_plan_hash = 0
        """Hash of the reasons for the last plan, so that equal reasons are logged once. Reasons contain names of tools,
        so only their hash is stored.
        """
        self._stats = Stats()
        reloader = Reloader(self)
        self._log_file = LogFile()
        self._event_log = EventLog()
        page = Page(self)
        commands = Commands(self, reloader, self._stats, page)
        self.addons = [
            Startup(self),
            reloader,
            commands,
            self._log_file,
            Metrics(self._stats),
            page,
            Turns(),
            self._side_questions,
        ]
        self.addons += [
            self._unread_calls,
            StatusEndpoint(),
            self._discovery,
            self._key_loans,
            Continuations(),
            Parent(),
        ]
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
        for line in self._stats.summarize():
            logger.info(line)

    async def request(self, flow: http.HTTPFlow) -> None:
        # Step 1: Decline a WebSocket; skip a flow that VTC must not process.
        if api := flows.find_websocket_api(flow):
            self._decline_websocket(flow, api)
            return
        if self.planner is None or ctx.options.vtc_mode == "off":
            return
        if flow.is_replay == "request" and FOLLOW_UP_OF not in flow.metadata:
            restore_received(flow)
        api = flows.find_client_api(flow)
        planner = self._discovery.choose_planner(flow, self.planner)
        is_finished = bool(flow.response or flow.error)
        if is_finished and not flow.live:
            return  # loaded from a file, for which mitmproxy runs all hooks again
        # Step 2: Lend a key; handle a request that begins no exchange.
        loan = self._key_loans.lend(flow, planner)
        if api is None:
            self._handle_other_request(flow, planner)
            return
        # Step 3: Plan the exchange, and rewrite the body.
        started = time.perf_counter()
        long, secrets = is_long(flow.request), load_seal_secrets(ctx.options.confdir, ctx.options.vtc_secret_file)
        context = flows.read_facts(flow), planner, flow.id, self.memory, secrets
        try:
            planned, body = await run_work(partial(_plan_request, api, flow.request, *context), in_thread=long)
            is_warm = planned.is_warm
            session, rewritten = await run_work(partial(_rewrite_request, planned), in_thread=long or not is_warm)
        except ValueError as error:
            self.report_unprocessed(flow, str(error))
            self.evict_patterns()
            self._block_if_restricted(flow, str(error))
            return
        # Step 4: Register the exchange, and begin its report.
        flows.store_secrets(flow, session.report.secrets)
        original = OriginalRequest.of(flow.request)
        live = LiveExchange(session, bodies.keeps_bodies(), original, time.perf_counter() - started)
        self._live[flow] = live
        sent_bytes = len(rewritten) if ctx.options.vtc_mode == "rewrite" else len(body)
        session.report.parties.settings = planner.settings.list_changed()
        session.report.why += loan.why
        session.report.request += loan.request
        session.report.measures.sizes.update(request_came=len(body), request_went=sent_bytes)
        why = session.plan.why
        if hash(why) != self._last_plan_hash:  # a log record costs mitmproxy more time than the request costs VTC
            self._last_plan_hash = hash(why)
            logger.debug("vtc: %s", "; ".join(why))
        if ctx.options.vtc_mode == "rewrite":
            self._event_log.write_model(flow, session.report, session.plan)
        if session.plan.stack.known_model is None:
            self._discovery.probe_for_model(flow, self.planner, session.report.parties.asked)
        # Step 5: Answer the request without the server, or change it.
        if ctx.options.vtc_mode == "rewrite":
            if answer := session.answer():
                flow.response = http.Response.make(answer.status, answer.body, {"content-type": answer.media_type})
                live.answered = True
                return
            build_request(flow, original, api, session, rewritten, keep=live.keep)
        # Step 6: Compile the patterns of the reply while the server works, hence after this hook.
        if session.may_change_reply and (long or not is_warm):
            asyncio.get_running_loop().call_soon(self._warm, live)

    def _handle_other_request(self, flow: http.HTTPFlow, planner: Planner) -> None:
        """Answer or forward a side question; report a path that VTC does not read, or block it under a policy."""
        if self._side_questions.answer_or_forward(flow, planner, self.memory):
            return
        if unread := flows.find_unread_path(flow):
            self.report_unprocessed(flow, unread.why)
            if unread.may_call:
                self._block_if_restricted(flow, unread.why)

    def _warm(self, live: LiveExchange) -> None:
        """Compile the patterns that the reply needs, in a thread."""
        live.warming = self._warmer.submit(live.session.warm)

    def report_unprocessed(self, flow: http.HTTPFlow, why: str) -> None:
        """Report that a flow is forwarded unprocessed; its outcome is `left alone`."""
        note, secrets = f"{LEFT_ALONE}: {why}", flows.collect_secrets(flow)
        report: dict[str, object] = escape_invisible(scrub_data({"notes": [note]}, secrets))
        self._publish(flow, report, escape_invisible(scrub_text(f"vtc: {note}", secrets)), LEFT_ALONE)

    def get_live(self, flow: http.HTTPFlow) -> LiveExchange | None:
        """Return the live exchange of a flow, if it has one."""
        return self._live.get(flow)

    def _decline_websocket(self, flow: http.HTTPFlow, api: Api) -> None:
        """Report a WebSocket; decline it unless VTC only observes."""
        if flow.response or flow.error:  # loaded from a file
            return
        rewrites = ctx.options.vtc_mode == "rewrite"
        self.report_unprocessed(flow, f"{NO_WEBSOCKET}{': answered with 426' if rewrites else ''}")
        if rewrites:
            decline_websocket(flow, api)

    def _block_if_restricted(self, flow: http.HTTPFlow, why: str) -> None:
        """Answer a request with an error if a policy restricts calls, because VTC could not read the reply."""
        if (
            ctx.options.vtc_mode == "rewrite"
            and self.planner
            and self.planner.has_strict_policy(flows.read_facts(flow))
        ):
            deny_unreadable(flow, why)

    async def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Decide how a reply is handled before its body arrives: as a stream, or as a whole in `response`."""
        # Step 1: Skip replies that are not processed here.
        live, response = self._live.get(flow), flow.response
        if response is None:
            return
        if FOLLOW_UP_OF in flow.metadata:
            forward_to_listener(flow)
            return
        if live and live.warming:
            await wait_without_reading(flow.server_conn, asyncio.wrap_future(live.warming))
        is_reply = 200 <= (status := response.status_code) < 300
        is_read = status >= 200 and live and bodies.streams_large_bodies() and live.session.fate.reads_status(status)
        if not (is_reply or is_read):
            return  # an error, processed in `response` when it is complete
        if response.raw_content is not None:
            return  # made by VTC, another addon or a person: mitmproxy does not stream it
        # Step 2: Stream a reply unchanged if VTC need not read it; mitmproxy would buffer it up to its end.
        media_type = bodies.get_media_type(response)
        is_stream = media_type in STREAMED_MEDIA_TYPES
        if live is None or not live.session.may_change_reply:
            if is_stream and not response.stream:
                response.stream = True
                if bodies.keeps_bodies():
                    response.stream = self._unchanged_replies.setdefault(flow, BodyRecorder(keep=True)).pass_on
            return
        # Step 3: Leave a whole or buffered reply to `response`, unless `stream_large_bodies` lets none be buffered.
        session, rewrites = live.session, ctx.options.vtc_mode == "rewrite"
        is_whole = not session.is_streamed(media_type)
        if (is_whole or (session.plan.buffered and rewrites)) and not bodies.streams_large_bodies():
            return
        # Step 4: Set the stream callable.
        try:
            encoding = response.headers.get("content-encoding", "")
            # The thread's CPU time bounds the work on an encoded reply. It needs a system call, which at every frame of
            # a call would take a tenth of VTC's time, so other replies use the cheaper clock.
            stream = session.stream(encoding, time.thread_time if encoding else time.perf_counter, whole=is_whole)
        except UnsupportedEncoding as error:
            live.killed = session.whole.replace_unread(str(error)) is not None and rewrites
            response.stream = send_nothing if live.killed else True
            return
        if not rewrites:
            response.stream = make_observer(stream, live, flow)
            return
        live.original = None  # no retry is possible any more
        if session.is_bridged:
            response.headers["content-type"] = session.media_type
        live.encoding = response.headers.pop("content-encoding", "")
        bodies.send_chunked(flow.request, response)
        at_end = partial(begin_continuation, flow, live, stream)
        response.stream = make_rewriter(stream, live, flow, ctx.options.vtc_keep_alive, self.clock, at_end)

    async def response(self, flow: http.HTTPFlow) -> None:
        live, response = self._live.get(flow), flow.response
        self._store_unchanged_reply(flow)
        was_skipped = live is None and flow.live and METADATA not in flow.metadata and ctx.options.vtc_mode != "off"
        if was_skipped and flows.find_client_api(flow):
            self.report_unprocessed(
                flow, "its request was not processed: it was edited later, or VTC was off at that time"
            )
        if live is None or response is None:
            return
        if not live.answered and (response.status_code >= 400 or not response.stream):
            await process_reply(flow, live, response)
        is_partial = live.killed or (live.stream and live.stream.broken)
        if is_partial and flow.killable and ctx.options.vtc_mode == "rewrite":
            flow.kill()  # otherwise the client would treat the partial reply as complete
        live.settled = True
        self.finish_exchange(flow)

    def server_broke_off(self, flow: http.HTTPFlow, why: str) -> list[bytes]:
        """Report that the server broke off, and return the remaining pieces for the client (`connections.py`)."""
        live = self._live.get(flow)
        return live.handle_break(flow, self._discovery.explain_failure(flow, why)) if live else []

    def server_gave_no_reply(self, flow: http.HTTPFlow, why: str) -> http.Response | None:
        """Return an error of the client's API if the server gave no reply (`connections.py`)."""
        live, api = self._live.get(flow), side_questions.find_error_api(flow)
        if api is None or FOLLOW_UP_OF in flow.metadata or ctx.options.vtc_mode != "rewrite":
            return None
        why = self._discovery.explain_failure(flow, why)
        if flow.response:
            explanation = format_break(flow, why)
        else:
            explanation = side_questions.explain_unreachable(flow, why)
        if live is None:
            logger.error(
                "vtc: %s - %s",
                escape_invisible(scrub_text(explanation, flows.collect_secrets(flow))),
                flows.format_path(flow),
            )
            return side_questions.make_error_answer(api, explanation)
        live.answered = True
        errors = live.session.report.errors
        if not errors:  # otherwise the break was already reported
            errors.append(explanation)
        return side_questions.make_error_answer(api, errors[-1])

    def error(self, flow: http.HTTPFlow) -> None:
        self._store_unchanged_reply(flow)
        live = self._live.get(flow)
        if live and flows.has_client_left(flow):
            seconds = time.time() - flow.request.timestamp_start
            begun = "had begun its reply" if flow.response else "had not answered"
            live.session.report.notes.append(f"the client left after {seconds:.1f} s; the server {begun}")
        elif live and flow.error and not flow.server_conn.timestamp_tcp_setup:
            live.session.report.errors.append(side_questions.explain_unreachable(flow, flow.error.msg))
        self.finish_exchange(flow)

    def _store_unchanged_reply(self, flow: http.HTTPFlow) -> None:
        """Store a reply that was streamed unchanged in its flow, because mitmproxy does not."""
        recorder = self._unchanged_replies.pop(flow, None)
        if recorder and flow.response and flow.response.raw_content is None:
            flow.response.raw_content = recorder.get_recorded()

    def finish_exchange(self, flow: http.HTTPFlow) -> None:
        """Complete and publish the report of a flow whose exchange has ended."""
        live = self._live.pop(flow, None)
        if live is None:
            return
        report = live.session.report
        self._record_measures(flow, live, report)
        if case := live.session.report_unread_call(partial(live.received.decode_end, live.encoding)):
            advice = self._unread_calls.store(flow, case)
            report.unread["advice"] = report.unread["advice"] or advice
        seconds = report.measures.seconds
        if seconds > max(SLOW_SECONDS, report.measures.elapsed / 50):
            # Only debug level for the first exchange with a model, which compiles its dialects.
            model = choose_model_name(report.parties.model, report.parties.asked)
            level = logging.WARNING if self._stats.has_model(model) else logging.DEBUG
            logger.log(level, "vtc: %.0f ms of work on one exchange with model %s", seconds * 1e3, model)
        summary = report.summarize()
        if summary and ctx.options.vtc_mode == "observe":
            summary = summary.replace("vtc: ", "vtc (observing): ", 1)
        plan = live.session.plan
        report.parties.record_server_facts(
            prompted=PROMPT in plan.quirks.lasting.list_known(), api=plan.stack.learned_api
        )
        data = report.as_dict()
        self._stats.add(data)
        self._publish(flow, data, summary, report.outcome)
        self.evict_patterns()

    def evict_patterns(self) -> None:
        """Drop compiled patterns with names of tools if `vtc_cache=off`; running exchanges compile theirs again."""
        if self.memory is None:
            COMPILED_PATTERNS.evict_temporary()

    def _record_measures(self, flow: http.HTTPFlow, live: LiveExchange, report: Report) -> None:
        """Add sizes and times to the report, and store the reply in the flow: as received, and if streamed as sent."""
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
        self._log_file.write(flow, report)
        model = str(report.get("asked", ""))
        comment = flows.format_comment(summary, model) if summary or model else ""
        flows.annotate(flow, comment, flows.MARKERS.get(outcome, "") if summary else "")
        if summary:
            self._event_log.write(flow, report, summary, outcome)
