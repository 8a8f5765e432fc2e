"""Render the page: the list of exchanges with charts and figures, one exchange, and the output of a command."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, Template
from mitmproxy import http
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow

from vtc import __version__
from vtc.profiles.document import format_count
from vtc.proxy import flows
from vtc.proxy.showing.page.filters import ListFilter, list_outcomes, list_values
from vtc.proxy.showing.page.rows import ExchangeRow, ExchangeRows, describe_flow
from vtc.proxy.showing.stats import CallCounts, Figures, Stats
from vtc.reporting import LEFT_ALONE, OUTCOMES, picture, view

ROWS_PER_PAGE = 100
"""Number of exchanges on a page, the latest first."""
MIN_SPAN_FOR_MINUTES = 180
"""Seconds covered by a chart from which its labels need no seconds."""
BAR_TONES = {look.word: look.tone for look in reversed([*OUTCOMES.values()])}
"""Outcomes and their tones, from the bottom of a bar to its top."""
SHOWN_LINES: Mapping[view.Side, tuple[int, int]] = {"request": (24, 4), "reply": (60, 24)}
"""Maximum number of lines shown of a changed text and of an unchanged one."""


def render_overview(
    listed: View, query: Mapping[str, str], exchanges: ExchangeRows, base_urls: Sequence[str] = ()
) -> str:
    """Render the filtered list of exchanges, their charts, and their figures.

    `base_urls` for clients are shown while the list is empty.
    """
    filter_ = ListFilter.of(query)
    rows = exchanges.list_rows(listed)
    matching = [row for row in rows if filter_.matches(row)]
    ended = [row for row in matching if row.has_ended]
    stats = Stats()
    for row in ended:
        if row.outcome != LEFT_ALONE and row.report:
            stats.add(row.report)
    start = filter_.start if filter_.start < len(matching) else 0
    end = start + ROWS_PER_PAGE
    later = earlier = ""
    if start:
        later = filter_.build_address(**{"from": str(start - ROWS_PER_PAGE) if start > ROWS_PER_PAGE else ""})
    if end < len(matching):
        earlier = filter_.build_address(**{"from": str(end)})
    return load_template().render(
        version=__version__,
        total=_format_total(ended, stats.total),
        charts=picture.draw_charts([row.sample for row in ended], BAR_TONES),
        clock=_choose_clock_format(ended),
        signs={look.word: look.sign for look in OUTCOMES.values()},
        chosen=filter_,
        outcomes=list_outcomes(rows, filter_),
        looks=OUTCOMES,
        selects={name: list_values(rows, name, filter_) for name in ("model", "client")},
        exchanges=matching[start:end],
        base_urls=base_urls,
        span=(start + 1, min(end, len(matching)), len(matching)),
        later=later,
        earlier=earlier,
        figures=list(_list_figures(stats)),
    )


def _format_total(ended: Sequence[ExchangeRow], figures: Figures) -> str:
    """Format the totals of the listed exchanges, without their outcomes."""
    left_alone = sum(row.outcome == LEFT_ALONE for row in ended)
    parts = [
        format_count(len(ended), "exchange") + (f" ({left_alone} of them left alone)" if left_alone else ""),
        f"{CallCounts.summarize(figures)}, {figures.unread} unread",
        f"{figures.traffic:,} bytes",
        f"{figures.seconds * 1e3:.0f} ms in VTC",
        figures.format_prefixes(),
    ]
    return ", ".join(filter(None, parts))


def _choose_clock_format(rows: Sequence[ExchangeRow]) -> str:
    """Return the time format of a chart: with seconds if minutes would be identical."""
    times = [row.at for row in rows]
    return "%H:%M" if times and max(times) - min(times) >= MIN_SPAN_FOR_MINUTES else "%H:%M:%S"


def render_detail(flow: http.HTTPFlow) -> str:
    """Render one exchange: request and reply, each as received next to as sent, and the report."""
    sections = dict(view.list_sections(flows.get_report(flow) or {}))
    done, changes = sections.pop(view.ACTIONS_TITLE, []), sections.pop(view.CHANGES_TITLE, [])
    sides = [_describe_side(flow, side) for side in ("reply", "request")]  # the reply first, because people look for it
    where = f"{flow.request.pretty_host}{flows.format_path(flow)}"
    status = flow.response.status_code if flow.response else None
    about = describe_flow(flow)
    return load_template().render(
        flow=about,
        where=[about.model, about.client, where, status],
        done=done,
        changes=changes,
        sides=sides,
        sections=sections.items(),
    )


def render_detail_of(flow: Flow | None) -> str | None:
    return render_detail(flow) if isinstance(flow, http.HTTPFlow) else None


def render_output(text: str) -> str:
    """Render the output of a command."""
    return load_template().render(output=text or "no command has printed anything yet: run vtc.explain or vtc.diff")


def _describe_side(flow: http.HTTPFlow, side: view.Side) -> dict[str, Any]:
    came_in, went_out = view.SIDE_LABELS[side]
    context: dict[str, Any] = {"title": side, "came": came_in, "went": went_out}
    api, bodies = flows.find_client_api(flow), flows.get_bodies(flow, side)
    if bodies is None:
        return {**context, "problem": "not received yet, or not stored"}
    try:
        if api is None:
            raise ValueError("VTC does not process this")
        received, sent = view.read_conversations(api, side, bodies)
    except ValueError as error:
        return {**context, "problem": f"({error})\n{bodies.sent.decode(errors='replace')}"}
    return {**context, "passages": picture.pair_passages(received, sent, *SHOWN_LINES[side])}


def _list_figures(stats: Stats) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    for kind, by_name in (("model", stats.models), ("client", stats.clients)):
        counts = "exchanges", "calls", "repaired", "left as text", "unread", "failed", "errors"
        heads = (kind, *counts, "cache usable", "ms in VTC")
        yield f"by {kind}", heads, [_format_row(name, figures) for name, figures in by_name.items()]
    calls: list[tuple[str, ...]] = [
        (name, str(figures.calls), str(figures.repaired), str(figures.refused), ", ".join(figures.repairs))
        for name, figures in sorted(stats.dialects.items())
    ]
    yield "by dialect", ("dialect", "calls", "repaired", "left as text", "repairs"), calls


def _format_row(name: str, figures: Figures) -> tuple[str, ...]:
    calls = figures.calls, figures.repaired, figures.refused, figures.unread
    counts = figures.exchanges, *calls, figures.failed, figures.errors
    kept = "" if figures.prompt_kept is None else f"{figures.prompt_kept:.0%}"
    return (name, *map(str, counts), kept, f"{figures.seconds * 1e3:.0f}")


def _format_clock(at: float, form: str = "%H:%M:%S") -> str:
    return time.strftime(form, time.localtime(at))


def read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


@cache
def load_template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["clock"] = _format_clock
    return environment.from_string(read_asset("page.html"))
