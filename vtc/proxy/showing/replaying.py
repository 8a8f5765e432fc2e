"""Process a captured flow with today's profiles and compare the results. Nothing is sent."""

from __future__ import annotations

import re
from typing import Any

from mitmproxy import http

from vtc.exchange import Session
from vtc.profiles.planner import Planner
from vtc.proxy import flows
from vtc.reporting import transcript
from vtc.reporting.transcript import TranscriptBlock
from vtc.reporting.view import Bodies, Side, read_blocks
from vtc.scrub import scrub_text

THEN, NOW = "captured", "today"
_ID = re.compile(r"\b(call|toolu)_[0-9a-f]{24}\b")


def replay_flow(flow: http.HTTPFlow, planner: Planner) -> dict[str, Any]:
    """Return `name`, `result` (`same`, `changed`, `skipped`), its `reason`, and `changes`, a diff for each side.

    The comparison uses the captured bodies as sent; for a flow that VTC did not process, as received. The options are
    those of the capture, except those set in `planner`.
    """
    api = flows.find_client_api(flow)
    assert api is not None
    entry: dict[str, Any] = {
        "name": f"{flow.request.pretty_host}{flows.format_path(flow)} {flow.id[:8]}",
        "id": flow.id,
    }
    try:
        planner = flows.restore_settings(flow, planner)
        session = Session.open(api, flows.get_original(flow, "request"), flows.read_facts(flow), planner, flow.id)
        changes = [_render_difference(flow, "request", session.encode_request())]
        if session.may_change_reply and flow.response and 200 <= flow.response.status_code < 300:
            received = flows.get_original(flow, "reply")
            answer = session.whole.extract_from_error(received) if received else None
            if answer:
                changes.append(_render_difference(flow, "reply", answer.body))
            elif received:
                changes.append(_render_difference(flow, "reply", session.whole.rewrite(received)))
    except ValueError as error:
        return {**entry, "result": "skipped", "reason": str(error)}
    changes = [scrub_text(change, flows.collect_secrets(flow)) for change in changes if change]
    summary = session.report.summarize()
    result = "changed" if changes else "same"
    model = session.plan.stack.model.name
    return {**entry, "result": result, "reason": summary, "model": model, "changes": changes}


def _render_difference(flow: http.HTTPFlow, side: Side, today: bytes) -> str:
    """Compare the body sent today with the captured one, as conversations; generated ids of calls are ignored."""
    sent = (flows.get_bodies(flow, side) or Bodies(None, b"")).sent
    if sent == today:
        return ""
    api = flows.find_client_api(flow) if side == "reply" else flows.find_server_api(flow)
    assert api is not None
    then, now = ([_mask_ids(block) for block in read_blocks(api, side, body)] for body in (sent, today))
    return transcript.render_difference(then, now, f"{side} {THEN}", f"{side} {NOW}")


def _mask_ids(block: TranscriptBlock) -> TranscriptBlock:
    return TranscriptBlock(block.title, _ID.sub(r"\1_…", block.text))
