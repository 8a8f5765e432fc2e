"""The page `/vtc` of mitmweb: exchanges as they happen, what came in beside what went out, figures.

It is served by mitmweb's own web application, behind its token, and shows what that has: nothing more is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from mitmproxy import ctx, http
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow

from vtc import __version__
from vtc.proxy import flows
from vtc.proxy.stats import Stats
from vtc.reporting import transcript, view
from vtc.reporting.side_by_side import rows

MOST = 200
"""Exchanges that are listed, the latest first."""
OUTCOMES = {":boom:": "failed", ":x:": "error", ":warning:": "refused", ":no_entry:": "denied"}


class Page:
    """Adds the page where mitmproxy runs as mitmweb."""

    name = "vtc-page"

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.address = ""
        """Where mitmweb serves it; empty where it does not."""
        self.said = ""
        """What the last command said, where that was too long for mitmweb's command bar."""

    def running(self) -> None:
        app = getattr(ctx.master, "app", None)
        listed = ctx.master.addons.get("view")
        if app is not None and isinstance(listed, View):
            from vtc.proxy import page_handlers  # mitmweb's own web application, which mitmdump does not load

            pages: dict[str, page_handlers.Shown] = {
                r"/vtc": lambda: overview(listed, self._stats),
                r"/vtc/said": lambda: said(self.said),
                r"/vtc/([0-9a-f-]+)": lambda id_: _detail(listed.get_by_id(id_)),
            }
            self.address = page_handlers.add(app, pages)


def overview(listed: View, stats: Stats) -> str:
    """The list of exchanges, and the figures."""
    every = (flow for flow in reversed(listed) if isinstance(flow, http.HTTPFlow))
    exchanges = (flow for flow in every if flows.api(flow) or flows.report(flow))
    return _template().render(
        version=__version__,
        total=stats.total.summary(),
        flows=[_about(flow) for flow in islice(exchanges, MOST)],
        figures=list(_figures(stats)),
    )


def detail(flow: http.HTTPFlow) -> str:
    """One exchange: request and reply, each as it came beside as it went, and the report."""
    told = dict(view.sections(flows.report(flow) or {}))
    done = told.pop(view.DONE, [])
    sides = [_side(flow, side) for side in ("reply", "request")]  # what one looks for first
    return _template().render(flow=_about(flow), done=done, sides=sides, sections=told.items())


def _detail(flow: Flow | None) -> str | None:
    return detail(flow) if isinstance(flow, http.HTTPFlow) else None


def said(text: str) -> str:
    """What a command said."""
    return _template().render(said=text or "no command has said anything yet: vtc.explain and vtc.diff do")


def _about(flow: http.HTTPFlow) -> dict[str, Any]:
    report = flows.report(flow) or {}
    under_way = flow.live and not report
    return {
        "id": flow.id,
        "under_way": under_way,
        "time": time.strftime("%H:%M:%S", time.localtime(flow.request.timestamp_start)),
        "asked": report.get("asked", "") or _model(flow) * under_way,
        "client": report.get("client", ""),
        "happened": flow.comment or ("under way" if under_way else "nothing was changed"),
        "outcome": OUTCOMES.get(flow.marked, ""),
        "where": f"{flow.request.pretty_host}{flow.request.path.partition('?')[0]}",
        "status": flow.response.status_code if flow.response else None,
    }


def _model(flow: http.HTTPFlow) -> str:
    """The model that is asked; empty if the request does not say."""
    api, bodies = flows.server_api(flow), flows.bodies(flow, "request")
    try:
        return api.request(bodies.went, flow.request.path).model if api and bodies else ""
    except ValueError:
        return ""


def _side(flow: http.HTTPFlow, side: view.Side) -> dict[str, Any]:
    came_in, went_out = view.SIDES[side]
    told: dict[str, Any] = {"title": side, "came": came_in, "went": went_out}
    api, bodies = flows.api(flow), flows.bodies(flow, side)
    if bodies is None:
        return {**told, "problem": "not there yet, or not kept"}
    try:
        if api is None:
            raise ValueError("this is not read")
        came, went = (transcript.written(one).splitlines() for one in view.conversations(api, side, bodies))
    except ValueError as error:
        return {**told, "problem": f"({error})\n{bodies.went.decode(errors='replace')}"}
    return {**told, "rows": rows(came, went)}


def _figures(stats: Stats) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    for kind, found in (("model", stats.models), ("client", stats.clients)):
        heads = (kind, "exchanges", "calls", "repaired", "left as text", "failed", "errors", "ms in VTC")
        yield (
            f"by {kind}",
            heads,
            [
                (
                    name,
                    *map(str, (one.exchanges, one.calls, one.repaired, one.refused, one.failed, one.errors)),
                    f"{one.seconds * 1e3:.0f}",
                )
                for name, one in found.items()
            ],
        )
    calls: list[tuple[str, ...]] = [
        (name, str(one.calls), str(one.repaired), str(one.refused), ", ".join(one.repairs))
        for name, one in sorted(stats.dialects.items())
    ]
    yield "by dialect", ("dialect", "calls", "repaired", "left as text", "repairs"), calls


@cache
def _template() -> Template:
    text = Path(__file__).with_name("page.html").read_text("utf-8")
    return Environment(autoescape=True).from_string(text)
