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
    def initialize(self, of: page.Page, listed: View, stats: Stats) -> None:
        self.of, self.listed, self.stats = of, listed, stats

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


class Said(_Handler):
    """What the last command said."""

    def get(self) -> None:
        self.write(page.said(self.of.said))


def add(app: Application, of: page.Page, listed: View, stats: Stats) -> str:
    """Serve the page; say and return where."""
    shared = {"of": of, "listed": listed, "stats": stats}
    pages = ((r"/vtc", Overview), (r"/vtc/said", Said), (r"/vtc/([0-9a-f-]+)", Detail))
    app.add_handlers(r".*", [(path, handler, shared) for path, handler in pages])
    base, mark, token = app.master.web_url.partition("?")
    logger.info("vtc: exchanges live at %svtc%s%s", base, mark, token)
    return f"{base}vtc"
