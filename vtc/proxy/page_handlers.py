"""How mitmweb's web application serves the page `/vtc`: behind its own token, with its own headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from mitmproxy.tools.web.app import Application, RequestHandler

logger = logging.getLogger(__name__)

type Shown = Callable[..., str | None]
"""Writes a page, given the parts of its path that vary; None if there is no such page."""


class Handler(RequestHandler):
    """Serves one page."""

    def initialize(self, shown: Shown) -> None:
        self.shown = shown

    def auth_fail(self, invalid_password: bool) -> None:
        self.write("Open mitmweb first: the address that it printed has the token that this page needs, too.")

    def get(self, *parts: str) -> None:
        text = self.shown(*parts)
        if text is None:
            self.send_error(404)
        else:
            self.write(text)


def add(app: Application, pages: Mapping[str, Shown]) -> str:
    """Serve the pages, each at the paths that an expression matches; say and return where."""
    app.add_handlers(r".*", [(path, Handler, {"shown": shown}) for path, shown in pages.items()])
    base, mark, token = app.master.web_url.partition("?")
    logger.info("vtc: exchanges live at %svtc%s%s", base, mark, token)
    return f"{base}vtc"
