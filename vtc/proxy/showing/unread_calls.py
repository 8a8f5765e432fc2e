"""Store the last replies with an unread possible call, for `--flow ID` of `vtc new-dialect` and `vtc parse`.

They are stored in memory and served to programs on this machine that know the id of the flow, which is in its log line.
Its 48 random bits keep other programs that can connect from guessing it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from mitmproxy import ctx, http

from vtc.json_text import encode_json
from vtc.proxy import launch
from vtc.proxy.asking.address import get_server_url
from vtc.proxy.serving.local_clients import is_local_program
from vtc.reporting import Case, serialize_case

UNREAD_PATH = "/.vtc/unread/"
MAX_CASES = 16
"""Maximum number of replies that are kept."""
MIN_ID_CHARS = len("01234567-89ab")
"""Minimum number of characters of a flow's id in a request for its reply."""


class UnreadCalls:
    """Addon that stores these replies and serves them to programs on this machine."""

    name = "vtc-unread-calls"

    def __init__(self) -> None:
        self._cases: dict[str, Callable[[str], Case]] = {}
        """By flow id, functions that make a case with a given name of the reply."""

    def configure(self, updated: set[str]) -> None:
        if "vtc_cache" in updated and ctx.options.vtc_cache == "off":
            self._cases.clear()

    def store(self, flow: http.HTTPFlow, make: Callable[[str], Case]) -> str:
        """Store a reply, and return the command that drafts a dialect from it."""
        draft = f"vtc new-dialect --flow {flow.id[:MIN_ID_CHARS]}"
        if file := _find_saved_file():
            return f"{draft} {shlex.quote(file)}"
        if ctx.options.vtc_cache == "off" or not get_server_url(flow.client_conn.proxy_mode):
            return "save flows with `-w FILE` for vtc new-dialect"
        self._cases[flow.id] = make
        if len(self._cases) > MAX_CASES:
            del self._cases[next(iter(self._cases))]
        port = flow.client_conn.sockname[1]
        return draft if port == launch.PORT else f"{draft} --port {port}"

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Answer a request for a stored reply."""
        if not (get_server_url(flow.client_conn.proxy_mode) and is_unread_request(flow.request)):
            return
        id_ = flow.request.path.removeprefix(UNREAD_PATH).partition("?")[0]
        make = self._find_case(id_) if len(id_) >= MIN_ID_CHARS and is_local_program(flow) else None
        headers = {"content-type": "application/json", "cache-control": "no-store"}
        if make is None:
            body = {"error": {"message": "VTC: no reply with this id is stored"}}
            flow.response = http.Response.make(404, encode_json(body), headers)
            return
        headers["content-type"] = "application/yaml; charset=utf-8"
        flow.response = http.Response.make(200, serialize_case(make(id_[:8])).encode(), headers)

    def _find_case(self, id_: str) -> Callable[[str], Case] | None:
        return next((make for known, make in self._cases.items() if known.startswith(id_)), None)


def is_unread_request(request: http.Request) -> bool:
    """True if a request asks for a stored reply."""
    return request.method == "GET" and request.path.startswith(UNREAD_PATH)


def _find_saved_file() -> str:
    """Return the file to which mitmproxy currently saves flows; empty if there is none."""
    saves = ctx.master.addons.get("save")
    option = ctx.options.save_stream_file if "save_stream_file" in ctx.options else None
    return str(getattr(saves, "current_path", None) or option).removeprefix("+") if option else ""
