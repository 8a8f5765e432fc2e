"""Plan a captured flow with today's profiles, and turn its reply into a case."""

from __future__ import annotations

from dataclasses import replace

from mitmproxy import http

from vtc.apis import whole
from vtc.apis.contract import Reply
from vtc.profiles.plan import Plan
from vtc.profiles.planner import Planner
from vtc.proxy import flows
from vtc.reporting.case import Case
from vtc.reporting.report import choose_model_name


def plan_flow(flow: http.HTTPFlow, planner: Planner) -> Plan:
    """Plan the request of a flow with the options of its capture; raises ValueError."""
    api = flows.find_client_api(flow)
    if api is None:
        raise ValueError(flows.find_unread_path(flow) or "")
    planner = flows.restore_settings(flow, planner)
    request = api.request(flows.get_original(flow, "request"), flows.read_facts(flow).path)
    return planner.plan(replace(flows.read_facts(flow), model=request.model, body=request.fields), request)


def read_reply(flow: http.HTTPFlow) -> Reply:
    """Parse the first choice of the reply as the server sent it; raises ValueError."""
    server = flows.find_server_api(flow)
    replies = whole.read_replies(server, flows.get_original(flow, "reply")) if server else []
    if not replies:
        raise ValueError("the reply has no choices")
    return replies[0]


def make_case(flow: http.HTTPFlow, planner: Planner, reply: Reply | None = None) -> Case:
    """Make a scrubbed case of `reply`, or else of the first choice of a flow, as parsed today; raises ValueError."""
    plan = plan_flow(flow, planner)
    name = choose_model_name(plan.stack.model.name, (flows.get_report(flow) or {}).get("asked", ""))
    case = Case.record_reply(
        f"{name} {flow.id[:8]}", reply or read_reply(flow), plan.reading, flows.collect_secrets(flow)
    )
    return case.shorten(planner.profiles)
