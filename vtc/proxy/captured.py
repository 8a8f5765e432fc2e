"""What a captured flow would get today: its plan, and its reply as a case."""

from __future__ import annotations

from dataclasses import replace

from mitmproxy import http

from vtc.apis import whole
from vtc.apis.contract import Reply
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner
from vtc.proxy import flows
from vtc.reporting.case import Case
from vtc.reporting.report import model_name


def plan_of(flow: http.HTTPFlow, planner: Planner) -> Plan:
    """Plan for the request of a flow, by the options that it was captured with; raises ValueError."""
    api = flows.api(flow)
    if api is None:
        raise ValueError(flows.unread(flow) or "")
    planner = flows.as_captured(flow, planner)
    request = api.request(flows.original(flow, "request"), flows.facts(flow).path)
    return planner.plan(replace(flows.facts(flow), model=request.model, body=request.fields), request)


def reply_of(flow: http.HTTPFlow) -> Reply:
    """Read the first choice of the reply as the server sent it; raises ValueError."""
    server = flows.server_api(flow)
    replies = whole.replies(server, flows.original(flow, "reply")) if server else []
    if not replies:
        raise ValueError("the reply has no choices")
    return replies[0]


def case_of(flow: http.HTTPFlow, planner: Planner, reply: Reply | None = None) -> Case:
    """Record the `reply` of a flow, or else its first one, as it is read today, scrubbed; raises ValueError."""
    plan = plan_of(flow, planner)
    name = model_name(plan.stack.model.name, (flows.report(flow) or {}).get("asked", ""))
    case = Case.of_reply(f"{name} {flow.id[:8]}", reply or reply_of(flow), plan.reading, flows.secrets(flow))
    return case.shorten(planner.profiles)
