"""The page `/vtc` of mitmweb: exchanges as they happen, what came in beside what went out, figures, a picture.

It is served by mitmweb's own web application, behind its token, and shows what that has: nothing more is kept. Its
script hears of changes where mitmweb's own page does, and has the page written anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from mitmproxy import ctx, http
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow

from vtc import __version__
from vtc.proxy import flows, listing
from vtc.proxy.listing import Chosen, Listing
from vtc.proxy.stats import Stats
from vtc.reporting import picture, transcript, view
from vtc.reporting.side_by_side import Row, rows


class Page:
    """Adds the page where mitmproxy runs as mitmweb."""

    name = "vtc-page"

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._listing = Listing()
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
                r"/vtc": lambda query: overview(listed, self._stats, query, self._listing),
                r"/vtc/said": lambda _: said(self.said),
                r"/vtc/(page\.css|page\.js|list\.css)": lambda _, name: _file(name),
                r"/vtc/([0-9a-f-]+)": lambda _, id_: _detail(listed.get_by_id(id_)),
            }
            self.address = page_handlers.add(app, pages)


def overview(listed: View, stats: Stats, query: Mapping[str, str], reading: Listing) -> str:
    """The list of exchanges that an address chooses, the picture of them, and the figures of all."""
    chosen = Chosen.of(query)
    every = reading.every(listed)
    fitting = [one for one in every if chosen.fits(one)]
    start = chosen.start if chosen.start < len(fitting) else 0
    end = start + listing.MOST
    return _template().render(
        version=__version__,
        total=stats.total.summary(),
        charts=picture.charts([one.sample for one in fitting]),
        chosen=chosen,
        outcomes=listing.outcomes(every, chosen),
        looks=listing.OUTCOMES,
        selects={name: listing.values(every, name, chosen) for name in ("model", "client")},
        exchanges=fitting[start:end],
        span=(start + 1, min(end, len(fitting)), len(fitting)),
        later=chosen.address(**{"from": str(start - listing.MOST) if start > listing.MOST else ""}) if start else "",
        earlier=chosen.address(**{"from": str(end)}) if end < len(fitting) else "",
        figures=list(_figures(stats)),
    )


def detail(flow: http.HTTPFlow) -> str:
    """One exchange: request and reply, each as it came beside as it went, and the report."""
    told = dict(view.sections(flows.report(flow) or {}))
    done = told.pop(view.DONE, [])
    sides = [_side(flow, side) for side in ("reply", "request")]  # what one looks for first
    where = f"{flow.request.pretty_host}{flows.where(flow)}"
    status = flow.response.status_code if flow.response else None
    about = listing.about(flow)
    return _template().render(
        flow=about, where=[about.model, about.client, where, status], done=done, sides=sides, sections=told.items()
    )


def _detail(flow: Flow | None) -> str | None:
    return detail(flow) if isinstance(flow, http.HTTPFlow) else None


def said(text: str) -> str:
    """What a command said."""
    return _template().render(said=text or "no command has said anything yet: vtc.explain and vtc.diff do")


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
    return {**told, "runs": [_run(changed, list(run)) for changed, run in groupby(rows(came, went), _is_changed)]}


def _is_changed(row: Row) -> bool:
    return row.changed


def _run(changed: bool, several: list[Row]) -> dict[str, Any]:
    """Lines that all are changed, or none; a side that has none of them is None."""
    left = [row.left for row in several if row.left is not None]
    right = [row.right for row in several if row.right is not None]
    return {"changed": changed, "left": "\n".join(left) if left else None, "right": "\n".join(right) if right else None}


def _figures(stats: Stats) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    for kind, found in (("model", stats.models), ("client", stats.clients)):
        heads = (kind, "exchanges", "calls", "repaired", "left as text", "failed", "errors", "prompt kept", "ms in VTC")
        yield (
            f"by {kind}",
            heads,
            [
                (
                    name,
                    *map(str, (one.exchanges, one.calls, one.repaired, one.refused, one.failed, one.errors)),
                    one.prefixes(),
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


def _clock(at: float, form: str = "%H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at))


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["clock"] = _clock
    return environment.from_string(_file("page.html"))
