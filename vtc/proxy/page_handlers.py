"""How mitmweb's web application serves the page `/vtc`: behind its own token, with its own headers."""

from __future__ import annotations

import logging

from mitmproxy import http
from mitmproxy.addons.view import View
from mitmproxy.tools.web.app import Application, RequestHandler

from vtc.proxy import page
from vtc.proxy.stats import Stats

logger = logging.getLogger(__name__)


class _Handler(RequestHandler):
    def initialize(self, listed: View, stats: Stats) -> None:
        self.listed, self.stats = listed, stats

    def auth_fail(self, invalid_password: bool) -> None:
        self.write("Open mitmweb first: the address that it printed has the token that this page needs, too.")


class Overview(_Handler):
    """All exchanges."""

    def get(self) -> None:
        self.write(page.overview(self.listed, self.stats))


class Detail(_Handler):
    """One exchange."""

    def get(self, id_: str) -> None:
        flow = self.listed.get_by_id(id_)
        if not isinstance(flow, http.HTTPFlow):
            self.send_error(404)
            return
        self.write(page.detail(flow))


def add(app: Application, listed: View, stats: Stats) -> None:
    """Serve the page, and say where."""
    shared = {"listed": listed, "stats": stats}
    app.add_handlers(r".*", [(r"/vtc", Overview, shared), (r"/vtc/([0-9a-f-]+)", Detail, shared)])
    base, mark, token = app.master.web_url.partition("?")
    logger.info("vtc: exchanges live at %svtc%s%s", base, mark, token)
