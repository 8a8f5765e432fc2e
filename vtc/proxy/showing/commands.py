"""Commands for mitmweb's command bar and mitmproxy's prompt.

Names have only letters and dots because mitmweb cannot run others. Flows are selected as everywhere in mitmproxy:
`@all`, `@marked`, a filter (`~comment hermes`), and in mitmproxy `@focus`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from mitmproxy import command, exceptions, flow, http, types

from vtc.profiles.document import format_count
from vtc.profiles.planner import Planner
from vtc.proxy import flows
from vtc.proxy.reload import Reloader
from vtc.proxy.showing import captured
from vtc.proxy.showing.log_file import append_text
from vtc.proxy.showing.page import Page
from vtc.proxy.showing.stats import Stats
from vtc.reporting import serialize_case, view

logger = logging.getLogger(__name__)


class _PlanningAddon(Protocol):
    @property
    def planner(self) -> Planner | None: ...


class Commands:
    """The commands that a user can run while the addon is active."""

    name = "vtc-commands"

    def __init__(self, addon: _PlanningAddon, reloader: Reloader, stats: Stats, page: Page) -> None:
        self._addon = addon
        self._reloader = reloader
        self._stats = stats
        self._page = page

    @command.command("vtc.stats")  # type: ignore[untyped-decorator]  # mitmproxy's own has no types
    def stats(self) -> str:
        """Show figures by client, model and dialect, as JSON; in mitmweb, the totals and the address of the rest."""
        if self._page.address:
            return f"{self._stats.total.summarize()}; by model, client and dialect: {self._page.address}"
        return json.dumps(self._stats.as_dict(), indent=2)

    @command.command("vtc.reload")  # type: ignore[untyped-decorator]
    def reload(self) -> str:
        """Read the profiles again; this also happens automatically when a file is edited."""
        done = self._reloader.reload()
        return self._shorten_for_bar(done, done.partition("\n")[0]) if "\n" in done else done

    @command.command("vtc.explain")  # type: ignore[untyped-decorator]
    def explain(self, chosen: Sequence[flow.Flow]) -> str:
        """Explain VTC's decisions about each flow, and the plan that it would get now."""
        return self._join_texts(chosen, self._explain_flow)

    @command.command("vtc.diff")  # type: ignore[untyped-decorator]
    def diff(self, chosen: Sequence[flow.Flow]) -> str:
        """Compare requests and replies as received and as sent, shown as conversations."""
        return self._join_texts(chosen, _diff)

    @command.command("vtc.save")  # type: ignore[untyped-decorator]
    def save(self, chosen: Sequence[flow.Flow], path: types.Path) -> str:
        """Append the flows' replies to a file of regression cases (YAML), without secrets; skip unusable ones."""
        cases, skipped = [], []
        for exchange in _select_exchanges(chosen):
            try:
                cases.append(captured.make_case(exchange, self._planner()))
            except ValueError as error:
                skipped.append(f"{exchange.id[:8]}: {error}")
        note = f", {len(skipped)} skipped ({skipped[0]})" if skipped else ""
        if not cases:
            raise exceptions.CommandError(f"vtc.save: nothing to save{note}")
        try:
            append_text(Path(path).expanduser(), "".join(f"{serialize_case(kept)}\n" for kept in cases))
        except OSError as error:
            raise exceptions.CommandError(f"vtc.save: {path} cannot be written: {error.strerror}") from None
        done = f"vtc: {format_count(len(cases), 'case')} added to {path}{note}"
        logger.info(done)
        return done

    def _join_texts(self, chosen: Sequence[flow.Flow], render: Callable[[http.HTTPFlow], str]) -> str:
        """Render each chosen flow, and join the texts under their titles."""
        exchanges = _select_exchanges(chosen)
        text = "\n\n".join(f"{_format_title(exchange)}\n{render(exchange)}" for exchange in exchanges)
        return self._shorten_for_bar(text, format_count(len(exchanges), "exchange"))

    def _shorten_for_bar(self, text: str, head: str) -> str:
        """Return the text, or in mitmweb, whose command bar has one line, `head` and the address of the text."""
        if not self._page.address:
            return text
        self._page.command_output = text
        return f"{head}: read it at {self._page.address}/said"

    def _explain_flow(self, exchange: http.HTTPFlow) -> str:
        lines = []
        for title, text in view.list_sections(flows.get_report(exchange) or {}):
            lines += [title, *(f"  {line}" for line in text)]
        try:
            plan = captured.plan_flow(exchange, self._planner())
            lines += ["Current plan", *(f"  {line}" for line in plan.why)]
        except ValueError as error:
            lines.append(f"VTC would leave this flow alone: {error}")
        return "\n".join(lines)

    def _planner(self) -> Planner:
        planner = self._addon.planner
        assert planner is not None
        return planner


def _format_title(exchange: http.HTTPFlow) -> str:
    return f"{exchange.request.method} {exchange.request.pretty_host}{flows.format_path(exchange)}"


def _select_exchanges(chosen: Sequence[flow.Flow]) -> list[http.HTTPFlow]:
    exchanges = [
        candidate
        for candidate in chosen
        if isinstance(candidate, http.HTTPFlow)
        and (flows.find_client_api(candidate) or flows.find_unread_path(candidate))
    ]
    if not exchanges:
        raise exceptions.CommandError("vtc: none of these flows is an exchange with a model; try @all")
    return exchanges


def _diff(exchange: http.HTTPFlow) -> str:
    api = flows.find_client_api(exchange)
    if api is None:
        return f"left alone: {flows.find_unread_path(exchange)}"
    parts = []
    for side in view.SIDE_LABELS:
        bodies = flows.get_bodies(exchange, side)
        try:
            flows.get_original(exchange, side)  # raises if the original is not available
            text = view.render_diff(api, side, bodies) if bodies else ""
            parts.append(text or f"the {side} was not changed")
        except ValueError as error:
            parts.append(f"{side}: {error}")
    return "\n".join(parts)
