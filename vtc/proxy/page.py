"""The page `/vtc` of mitmweb: live exchanges, messages as received next to as sent, figures, charts.

mitmweb's web application serves it behind its token, and it shows mitmweb's flows without storing more. Its script
listens to the same updates as mitmweb's page, and fetches the page again after a change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from mimetypes import guess_type
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from jinja2 import Environment, Template
from mitmproxy import ctx, http
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow
from mitmproxy.tools.web.app import Application, IndexHandler, RequestHandler

from vtc import __version__
from vtc.profiles.document import format_count
from vtc.proxy import flows
from vtc.proxy.captured import make_case
from vtc.proxy.draft_file import DraftFile
from vtc.proxy.options import list_profile_directories
from vtc.proxy.reload import ReloadableAddon
from vtc.proxy.startup import list_base_urls
from vtc.proxy.stats import CallCounts, Figures, Stats
from vtc.reporting import LEFT_ALONE, OUTCOMES, UNDER_WAY, Look, picture, view
from vtc.reporting.picture import ExchangeSample
from vtc.reporting.report import count_entries

ROWS_PER_PAGE = 100
"""Number of exchanges on a page, the latest first."""
CHOICE_COLUMNS = ("outcome", "model", "client")
"""The columns by which exchanges are filtered."""


MIN_SPAN_FOR_MINUTES = 180
"""Seconds covered by a chart from which its labels need no seconds."""
UNCHANGED = "unchanged"
"""The empty outcome in a URL."""
BAR_TONES = {look.word: look.tone for look in reversed([*OUTCOMES.values()])}
"""Outcomes and their tones, from the bottom of a bar to its top."""
SHOWN_LINES: Mapping[view.Side, tuple[int, int]] = {"request": (24, 4), "reply": (60, 24)}
"""Maximum number of lines shown of a changed text and of an unchanged one."""


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


class FilterOption(NamedTuple):
    """A value of a filter, with the number of its exchanges and the URL that selects it."""

    name: str
    value: str
    exchanges: int
    address: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The filter of a URL; empty strings select all."""

    outcome: str = ""
    model: str = ""
    client: str = ""
    start: int = 0
    """Number of exchanges before the first one on the page."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListFilter:
        """Parse the query of a URL; unknown parameters are ignored."""
        start = query.get("from", "")
        values = {name: query.get(name, "") for name in CHOICE_COLUMNS}
        return cls(**values, start=int(start) if _is_number(start) else 0)

    def build_address(self, **changed: str) -> str:
        """Build the URL of the page with a changed filter, from the first row unless `from` is given."""
        values = {name: changed.get(name, getattr(self, name)) for name in CHOICE_COLUMNS} | {
            "from": changed.get("from", "")
        }
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/vtc?{query}" if query else "/vtc"

    def matches_parties(self, row: ExchangeRow) -> bool:
        """True if an exchange matches the model and the client of the filter."""
        return self.model in ("", row.model) and self.client in ("", row.client)

    def matches(self, row: ExchangeRow) -> bool:
        """True if an exchange matches the filter."""
        return self.matches_parties(row) and self.outcome in ("", row.outcome or UNCHANGED)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


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


def list_outcomes(rows: Sequence[ExchangeRow], chosen: ListFilter) -> Iterator[FilterOption]:
    """List the filter for all outcomes, then one per outcome, counted among exchanges that match the other filters.

    The first counts finished exchanges only, because a running one has no outcome yet.
    """
    matching = [row for row in rows if chosen.matches_parties(row)]
    yield FilterOption(
        "", "", sum(row.has_ended for row in matching), chosen.build_address(outcome=""), not chosen.outcome
    )
    counts = Counter(row.outcome for row in matching)
    for outcome in OUTCOMES:
        value = outcome or UNCHANGED
        if counts[outcome] or value == chosen.outcome:
            yield FilterOption(
                outcome, value, counts[outcome], chosen.build_address(outcome=value), value == chosen.outcome
            )


def list_values(rows: Iterable[ExchangeRow], name: str, chosen: ListFilter) -> list[FilterOption]:
    """List the models or clients, sorted by name."""
    counts = Counter(getattr(row, name) for row in rows if row.has_ended)
    counts.setdefault(getattr(chosen, name), 0)
    return [
        FilterOption(value, value, number, chosen.build_address(**{name: value}), value == getattr(chosen, name))
        for value, number in sorted(counts.items())
        if value
    ]


logger = logging.getLogger(__name__)

type PageRenderer = Callable[..., str | None]
"""Function that renders a page from the query of its URL and the variable parts of its path; None if not found."""

STYLES = b'<link rel="stylesheet" href="/vtc/list.css"></head>'


class PageHandler(RequestHandler):
    """Serves one page."""

    def initialize(self, shown: PageRenderer) -> None:
        self.shown = shown

    def auth_fail(self, invalid_password: bool) -> None:
        self.write("Open mitmweb first: the address that it printed has the token that this page also needs.")

    def get(self, *parts: str) -> None:
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        text = self.shown(query, *parts)
        if text is None:
            self.send_error(404)
        else:
            kind = guess_type(self.request.path)[0] or "text/html"
            self.set_header("Content-Type", f"{kind}; charset=UTF-8")
            self.set_header("Cache-Control", "no-store")  # keep conversations out of the browser's cache
            self.write(text)


class DraftHandler(RequestHandler):
    """Shows the draft of a dialect for one exchange, and writes it to the user's folder when its button is pressed.

    mitmweb's base handler enforces access: by its token, and for the button by the token of the form.
    """

    auth_fail = PageHandler.auth_fail

    def initialize(self, draft: Callable[[str], Awaitable[DraftFile]]) -> None:
        self.draft = draft

    async def get(self, id_: str) -> None:
        await self._show(id_, pressed=False)

    async def post(self, id_: str) -> None:
        await self._show(id_, pressed=True)

    async def _show(self, id_: str, pressed: bool) -> None:
        draft, message = None, ""
        try:
            draft = await self.draft(id_)
            if pressed and (draft.path is None or self.get_body_argument("name", "") != draft.path.name):
                message = "nothing was written: a file or a dialect with this name exists now"
                self.set_status(409)
            elif pressed:
                draft.write()
                message = f"written: {draft.path}. VTC loads it within a second"
                draft = None
                logger.info("vtc: a draft of a dialect was %s", message)
        except LookupError:
            self.set_status(404)
            message = "there is no such exchange"
        except ValueError as error:
            message = f"no dialect can be drafted: {error}"
        except OSError as error:
            message = f"nothing was written: {error.strerror}"
            self.set_status(409)
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.set_header("Cache-Control", "no-store")
        self.write(_load_template().render(draft=draft, message=message, id=id_, token=self.xsrf_token.decode()))


class Index(IndexHandler):
    """mitmweb's own page, with styles that cut its column of comments at the next column."""

    def render_string(self, template_name: str, **values: Any) -> bytes:
        return super().render_string(template_name, **values).replace(b"</head>", STYLES)


def add_pages(app: Application, pages: Mapping[str, PageRenderer], draft: Callable[[str], Awaitable[DraftFile]]) -> str:
    """Serve the pages, each at the paths that match its expression, and the drafts; log and return the address."""
    app.add_handlers(r".*", [(path, PageHandler, {"shown": shown}) for path, shown in pages.items()])
    app.add_handlers(r".*", [(r"/vtc/([0-9a-f-]+)/dialect", DraftHandler, {"draft": draft})])
    app.add_handlers(r".*", [("/", Index)])
    base, mark, token = app.master.web_url.partition("?")
    logger.info("vtc: exchanges live at %svtc%s%s", base, mark, token)
    return f"{base}vtc"


class Page:
    """Adds the page if mitmproxy runs as mitmweb."""

    name = "vtc-page"

    def __init__(self, addon: ReloadableAddon) -> None:
        self._addon = addon
        self._listing = ExchangeRows()
        self.address = ""
        """The address of the page; empty if mitmweb is not running."""
        self.command_output = ""
        """The output of the last command that was too long for mitmweb's command bar."""

    def running(self) -> None:
        app = getattr(ctx.master, "app", None)
        listed = ctx.master.addons.get("view")
        if app is not None and isinstance(listed, View):
            pages: dict[str, PageRenderer] = {
                r"/vtc": lambda query: render_overview(listed, query, self._listing, list_base_urls()),
                r"/vtc/said": lambda _: render_output(self.command_output),
                r"/vtc/(page\.css|page\.js|list\.css)": lambda _, name: _read_asset(name),
                r"/vtc/([0-9a-f-]+)": lambda _, id_: _render_detail_of(listed.get_by_id(id_)),
            }
            self.address = add_pages(app, pages, lambda id_: self._draft(listed.get_by_id(id_)))

    async def _draft(self, flow: Flow | None) -> DraftFile:
        """Draft the dialect of a reply; raises LookupError if there is no exchange, ValueError if there is no draft."""
        planner = self._addon.planner
        if not isinstance(flow, http.HTTPFlow) or planner is None:
            raise LookupError
        case = make_case(flow, planner)
        return await asyncio.to_thread(
            DraftFile.of, case, list_profile_directories(ctx.options)[1:], planner.profiles.dialects
        )


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
    return _load_template().render(
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
    return _load_template().render(
        flow=about,
        where=[about.model, about.client, where, status],
        done=done,
        changes=changes,
        sides=sides,
        sections=sections.items(),
    )


def _render_detail_of(flow: Flow | None) -> str | None:
    return render_detail(flow) if isinstance(flow, http.HTTPFlow) else None


def render_output(text: str) -> str:
    """Render the output of a command."""
    return _load_template().render(output=text or "no command has printed anything yet: run vtc.explain or vtc.diff")


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


def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


@cache
def _load_template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["clock"] = _format_clock
    return environment.from_string(_read_asset("page.html"))
