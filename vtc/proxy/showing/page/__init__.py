"""The page `/vtc` of mitmweb: live exchanges, messages as received next to as sent, figures, charts.

mitmweb's web application serves it behind its token, and it shows mitmweb's flows without storing more. Its script
listens to the same updates as mitmweb's page, and fetches the page again after a change.
"""

from __future__ import annotations

import asyncio

from mitmproxy import ctx, http
from mitmproxy.addons.view import View
from mitmproxy.flow import Flow

from vtc.proxy.options import list_profile_directories
from vtc.proxy.reload import ReloadableAddon
from vtc.proxy.showing.captured import make_case
from vtc.proxy.showing.draft_file import DraftFile
from vtc.proxy.showing.page.handlers import PageRenderer, add_pages
from vtc.proxy.showing.page.rendering import read_asset, render_detail_of, render_output, render_overview
from vtc.proxy.showing.page.rows import ExchangeRows
from vtc.proxy.showing.startup import list_base_urls


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
                r"/vtc/(page\.css|page\.js|list\.css)": lambda _, name: read_asset(name),
                r"/vtc/([0-9a-f-]+)": lambda _, id_: render_detail_of(listed.get_by_id(id_)),
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
