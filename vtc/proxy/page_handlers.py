"""How mitmweb's web application serves the page `/vtc`: behind its own token, with its own headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from mimetypes import guess_type
from typing import Any

from mitmproxy.tools.web.app import Application, IndexHandler, RequestHandler

logger = logging.getLogger(__name__)

type Shown = Callable[..., str | None]
"""Writes a page, given the query of its address and the parts of its path that vary; None if there is no such page."""

STYLES = b'<link rel="stylesheet" href="/vtc/list.css"></head>'


class Handler(RequestHandler):
    """Serves one page."""

    def initialize(self, shown: Shown) -> None:
        self.shown = shown

    def auth_fail(self, invalid_password: bool) -> None:
        self.write("Open mitmweb first: the address that it printed has the token that this page needs, too.")

    def get(self, *parts: str) -> None:
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        text = self.shown(query, *parts)
        if text is None:
            self.send_error(404)
        else:
            kind = guess_type(self.request.path)[0] or "text/html"
            self.set_header("Content-Type", f"{kind}; charset=UTF-8")
            self.set_header("Cache-Control", "no-store")  # what was said is for no browser's disk
            self.write(text)


class Index(IndexHandler):
    """mitmweb's own page, with styles for its column of comments, which ends where the next column begins."""

    def render_string(self, template_name: str, **values: Any) -> bytes:
        return super().render_string(template_name, **values).replace(b"</head>", STYLES)


def add(app: Application, pages: Mapping[str, Shown]) -> str:
    """Serve the pages, each at the paths that an expression matches; say and return where."""
    app.add_handlers(r".*", [(path, Handler, {"shown": shown}) for path, shown in pages.items()])
    app.add_handlers(r".*", [("/", Index)])
    base, mark, token = app.master.web_url.partition("?")
    logger.info("vtc: exchanges live at %svtc%s%s", base, mark, token)
    return f"{base}vtc"
