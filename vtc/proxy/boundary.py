"""The boundary of mitmproxy's hooks: catches exceptions of VTC, and lets the policy decide about the flow.

mitmproxy logs an exception of a hook and then sends the flow in its current state: a reply that no policy saw, or half
of a change. So each hook of the addon and its sub-addons runs inside this boundary, which either fails open (restores
the messages as the hook received them, and reports) or fails closed (answers with an error of the client's API).

The stream callable, which mitmproxy calls with each chunk, has its own boundary (`stream_callable.py`).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Protocol

from mitmproxy import ctx, http
from mitmproxy.hooks import all_hooks

from vtc.profiles.planner import Planner
from vtc.proxy import flows
from vtc.proxy.flows import METADATA
from vtc.proxy.serving import bodies
from vtc.proxy.serving.originals import OriginalReply, OriginalRequest
from vtc.proxy.serving.server_request import answer_with_error
from vtc.proxy.serving.stream_callable import LiveExchange
from vtc.reporting.report import Report
from vtc.scrub import format_exception, scrub_text

logger = logging.getLogger(__name__)


def _return_none() -> None:
    return None


HOLDER_HOOKS: Mapping[str, Callable[[], Any]] = {"server_broke_off": list, "server_gave_no_reply": _return_none}
"""Hooks that `connections.py` calls instead of mitmproxy; each with a function that makes its result after a fault."""
TRAFFIC_ARGUMENTS = {"flow", "data"}
"""Names of the arguments of hooks that handle traffic."""
ENDING_HOOKS = ("response", "error")
"""The hooks at the end of an exchange."""
FAILURE_STATUS = 502
"""Status of the error that replaces a message if VTC fails."""


class ExchangeAddon(Protocol):
    """The addon to which this boundary belongs: it has the live exchanges and the policies."""

    planner: Planner | None

    def get_live(self, flow: http.HTTPFlow) -> LiveExchange | None:
        """Return the live exchange of a flow, if it has one."""
        ...

    def report_unprocessed(self, flow: http.HTTPFlow, why: str) -> None:
        """Report that a flow is forwarded unprocessed."""
        ...

    def finish_exchange(self, flow: http.HTTPFlow) -> None:
        """Publish the report of a flow whose exchange has ended."""
        ...


@dataclass(frozen=True, slots=True)
class ReceivedFlow:
    """The messages of a flow as a hook received them."""

    request: OriginalRequest
    reply: OriginalReply | None
    stream: Any

    @classmethod
    def of(cls, flow: object) -> ReceivedFlow | None:
        """Record the messages of a flow; None for a connection, which has none."""
        if not isinstance(flow, http.HTTPFlow):
            return None
        response = flow.response
        reply = OriginalReply.of(response) if response else None
        return cls(OriginalRequest.of(flow.request), reply, response.stream if response else False)

    def restore(self, flow: http.HTTPFlow) -> None:
        """Restore these messages in a flow."""
        self.request.restore(flow)
        if self.reply is None:
            flow.response = None
        elif flow.response:
            self.reply.restore(flow.response)
            flow.response.stream = self.stream


class Boundary:
    """Wraps the hooks of addons, so that their exceptions are handled here."""

    def __init__(self, addon: ExchangeAddon) -> None:
        self._addon = addon

    def enclose(self, addon: object) -> None:
        """Wrap each hook of an addon that handles traffic."""
        hooks = (
            name for name, hook in all_hooks.items() if not TRAFFIC_ARGUMENTS.isdisjoint(signature(hook).parameters)
        )
        for name in (*hooks, *HOLDER_HOOKS):
            if (method := getattr(addon, name, None)) is not None:
                setattr(addon, name, self._wrap(method, HOLDER_HOOKS.get(name, _return_none)))

    def _wrap[**P](self, hook: Callable[P, Any], default: Callable[[], Any]) -> Callable[P, Any]:
        """Wrap a function whose first argument is a flow or connection; `default` makes its result after a fault."""
        if inspect.iscoroutinefunction(hook):

            @wraps(hook)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                received = ReceivedFlow.of(args[0])
                try:
                    return await hook(*args, **kwargs)
                except Exception as error:
                    self._fail(args[0], received, hook.__name__, error)
                    return default()

            return run_async

        @wraps(hook)
        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            received = ReceivedFlow.of(args[0])
            try:
                return hook(*args, **kwargs)
            except Exception as error:
                self._fail(args[0], received, hook.__name__, error)
                return default()

        return run

    def _fail(self, flow: object, received: ReceivedFlow | None, hook: str, error: Exception) -> None:
        """Handle a flow whose hook raised an exception."""
        if received is None or not isinstance(flow, http.HTTPFlow):
            logger.error("vtc: %s failed\n%s", hook, format_exception(error))
            return
        live = self._addon.get_live(flow)
        if _is_settled(flow, hook, live):
            logger.error(
                "vtc: the hook %s failed after the outcome of the flow was decided, so nothing changes\n%s",
                hook,
                format_exception(error, flows.collect_secrets(flow)),
            )
        elif self._fails_open(flow, live, error):
            received.restore(flow)
            response = flow.response
            if (
                hook == "responseheaders"
                and response
                and bodies.get_media_type(response) in bodies.STREAMED_MEDIA_TYPES
            ):
                response.stream = response.stream or True
        else:
            _block_message(flow, received, hook, live, type(error).__name__)
        if hook in ENDING_HOOKS:
            try:
                self._addon.finish_exchange(flow)
            except Exception as failed:
                logger.error("vtc: the report of an exchange is incomplete\n%s", format_exception(failed))
            _report(flow, error)

    def _fails_open(self, flow: http.HTTPFlow, live: LiveExchange | None, error: Exception) -> bool:
        """Report the exception; return True if the policy lets the flow pass as received."""
        rewrites, planner = ctx.options.vtc_mode == "rewrite", self._addon.planner
        if live:
            return live.session.fate.decide_after_fault(error, live.session.report) or not rewrites
        try:
            unread = flows.find_unread_path(flow)
            may_call = flows.find_client_api(flow) or flows.find_websocket_api(flow) or (unread and unread.may_call)
            is_open = not (rewrites and may_call and planner and planner.has_strict_policy(flows.read_facts(flow)))
        except Exception:  # the decision failed as well
            is_open = not rewrites
        verdict = "passes unchanged" if is_open else "is blocked"
        secrets = flows.collect_secrets(flow)
        logger.error("vtc: handling a flow failed; it %s\n%s", verdict, format_exception(error, secrets))
        self._addon.report_unprocessed(flow, scrub_text(f"{type(error).__name__}: {error}", secrets))
        return is_open


def _is_settled(flow: http.HTTPFlow, hook: str, live: LiveExchange | None) -> bool:
    """True if the outcome of a flow is already decided, or VTC does not process it."""
    if hook == "error" or not (flow.live or flow.is_replay):
        return True
    return live.settled if live else hook == "response" and METADATA in flow.metadata


def _report(flow: http.HTTPFlow, error: Exception) -> None:
    """Report a fault if the exchange has no other report."""
    if METADATA not in flow.metadata:
        report = Report(secrets=flows.collect_secrets(flow), failures=[f"{type(error).__name__}: {error}"])
        flow.metadata[METADATA] = {**report.as_dict(), "outcome": report.outcome}


def _block_message(
    flow: http.HTTPFlow, received: ReceivedFlow, hook: str, live: LiveExchange | None, fault: str
) -> None:
    """Block a message that no policy has checked: postpone it to `response`, kill its flow, or send an error."""
    is_headers = hook == "responseheaders"
    if is_headers and live and not bodies.streams_large_bodies():
        received.restore(flow)
        if flow.response:
            flow.response.stream = False  # the hook `response` processes it when it is complete
    elif flow.response is not None and (is_headers or flow.response.stream):
        if flow.killable:
            flow.kill()
    else:
        if live:
            live.answered = True
        answer_with_error(
            flow, f"an exchange failed ({fault}), and the policy does not let it pass unread", FAILURE_STATUS
        )
