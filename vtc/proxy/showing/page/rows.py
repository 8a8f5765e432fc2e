"""The rows of the list: one for each exchange in mitmweb's flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy.addons.view import View

from vtc.proxy import flows
from vtc.reporting import OUTCOMES, UNDER_WAY, Look
from vtc.reporting.picture import ExchangeSample
from vtc.reporting.report import count_entries


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One row of the list."""

    id: str
    at: float
    """Seconds since the epoch."""
    outcome: str
    model: str
    """The name in the request."""
    client: str
    happened: str
    report: Mapping[str, Any]
    """Empty for a running exchange."""

    @property
    def look(self) -> Look:
        return OUTCOMES[self.outcome]

    @property
    def has_ended(self) -> bool:
        """True if the exchange has ended; running ones are shown but not counted."""
        return self.outcome != UNDER_WAY

    @property
    def sample(self) -> ExchangeSample:
        """The sample of this exchange for the charts."""
        calls, prefix = self.report.get("calls", ()), self.report.get("prefix") or {"chars": 0, "chars_of": 0}
        repaired = count_entries(call for call in calls if call["repairs"])
        return ExchangeSample(
            at=self.at,
            outcome=self.look.word,
            made=count_entries(calls) - repaired,
            repaired=repaired,
            refused=count_entries(self.report.get("refusals", ())),
            unread=bool(self.report.get("unread")),
            kept=prefix["chars"],
            lost=max(0, prefix["chars_of"] - prefix["chars"]),
            seconds=self.report.get("seconds", 0.0),
        )


class ExchangeRows:
    """List of the exchanges in mitmweb's flows; each row is built once, because a page looks through thousands."""

    def __init__(self) -> None:
        self._rows: WeakKeyDictionary[http.HTTPFlow, tuple[object, str, ExchangeRow]] = WeakKeyDictionary()
        """Rows of finished exchanges, with the report and the comment from which each was built."""

    def list_rows(self, view: View) -> list[ExchangeRow]:
        """List the exchanges with a model, the latest first."""
        rows = (self._get_row(flow) for flow in reversed(view) if isinstance(flow, http.HTTPFlow))
        return [row for row in rows if row]

    def _get_row(self, flow: http.HTTPFlow) -> ExchangeRow | None:
        report = flows.get_report(flow)
        if report is None:
            return describe_flow(flow) if flows.find_client_api(flow) else None
        known = self._rows.get(flow)
        if known is None or known[0] is not report or known[1] != flow.comment:
            known = self._rows[flow] = report, flow.comment, describe_flow(flow)
        return known[2]


def describe_flow(flow: http.HTTPFlow) -> ExchangeRow:
    """Make the row of an exchange, running or finished."""
    report = flows.get_report(flow) or {}
    is_running = flow.live and not report
    outcome = UNDER_WAY if is_running else str(report.get("outcome", ""))
    outcome = outcome if outcome in OUTCOMES else ""
    return ExchangeRow(
        id=flow.id,
        at=flow.request.timestamp_start,
        outcome=outcome,
        model=report.get("asked", "") or (_find_model(flow) if is_running else ""),
        client=report.get("client", ""),
        happened=flows.strip_comment_prefix(flow) or (UNDER_WAY if is_running else flows.NOTHING_CHANGED),
        report=report,
    )


def _find_model(flow: http.HTTPFlow) -> str:
    """Find the model in the request; empty if there is none."""
    api, bodies = flows.find_server_api(flow), flows.get_bodies(flow, "request")
    try:
        return api.request(bodies.sent, flow.request.path).model if api and bodies else ""
    except ValueError:
        return ""
