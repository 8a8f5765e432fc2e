"""Serve the page in mitmweb's web application, and write a draft when its button is pressed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from mimetypes import guess_type
from typing import Any

from mitmproxy.tools.web.app import Application, IndexHandler, RequestHandler

from vtc.proxy.showing.draft_file import DraftFile
from vtc.proxy.showing.page.rendering import load_template

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
        self.write(load_template().render(draft=draft, message=message, id=id_, token=self.xsrf_token.decode()))


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
