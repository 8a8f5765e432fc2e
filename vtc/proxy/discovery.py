"""What the model server of a reverse proxy is, and which APIs it speaks: it is asked when VTC starts, and before
requests until it is there.

So a server that takes minutes to load may start after VTC. What it showed stands in the place of `vtc_server` and
`vtc_upstream_api` where the user left them open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.proxy.asker import Asker
from vtc.proxy.recognise import recognised, spoken, told
from vtc.proxy.reload import Planned

logger = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds for which a server is left alone that took long to say nothing."""
LONG = 1.0
"""Seconds beyond which that was long; a port that no one listens at answers at once."""


@dataclass(slots=True)
class ModelServer:
    """A model server, and what it showed by name of the setting: None or empty for what it did not."""

    url: str
    shown: dict[str, Any] = field(default_factory=dict)
    asking: asyncio.Task[None] | None = None
    free_from: float = 0.0
    missed: bool = False
    """It was not there when it was asked."""
    planners: tuple[Planner, Planner] | None = None
    """The planner without and with what it showed."""


class Discovery:
    """Asks model servers what no option says."""

    name = "vtc-discovery"

    def __init__(self, addon: Planned, clock: Callable[[], float]) -> None:
        self._addon = addon
        self._clock = clock
        self._servers: dict[str, ModelServer] = {}

    def running(self) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        for one in proxy.servers if isinstance(proxy, Proxyserver) else ():
            self._ask(one.mode)

    def done(self) -> None:
        for server in self._servers.values():
            if server.asking:
                server.asking.cancel()

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        if asking := self._ask(flow.client_conn.proxy_mode):
            await asyncio.shield(asking)  # others wait for it, too

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """Have the next request of the same client connect anew: mitmproxy would go on giving it this error."""
        data.server.error = None

    def informed(self, flow: http.HTTPFlow, planner: Planner) -> Planner:
        """Return the planner for a flow: it knows what the model server showed."""
        server = self._servers.get(_url(flow.client_conn.proxy_mode))
        if server is None or not any(server.shown.values()):
            return planner
        if server.planners is None or server.planners[0] is not planner:
            known = {name: value for name, value in server.shown.items() if value}
            if known.get("server") not in planner.profiles.servers:  # profiles are edited
                known.pop("server", None)
            server.planners = planner, planner.with_settings(known)
        return server.planners[1]

    def _ask(self, mode: ProxyMode) -> asyncio.Task[None] | None:
        """Begin to ask the server of a proxy, if there is anything to ask; returns what to wait for."""
        url, planner = _url(mode), self._addon.planner
        if not url or planner is None or ctx.options.vtc_discover != "on" or ctx.options.vtc_mode == "off":
            return None
        server = self._servers.setdefault(url, ModelServer(url))
        left_open = [name for name in ("server", "upstream_api") if not getattr(planner.settings, name)]
        if server.shown.keys() >= {*left_open}:
            return None
        if server.asking is None or (server.asking.done() and self._clock() >= server.free_from):
            server.asking = asyncio.create_task(self._discover(server, left_open, planner.profiles))
        return server.asking

    async def _discover(self, server: ModelServer, names: list[str], profiles: Profiles) -> None:
        begun = self._clock()
        try:
            shown, lines = await asyncio.to_thread(_shown, Asker(server.url), names, profiles)
        except Exception:  # a fault of ours: requests go on, and nothing is asked again
            logger.exception("vtc: %s could not be asked", server.url)
            shown, lines = dict.fromkeys(names), []
        if shown is None:
            ended = self._clock()
            server.free_from = ended + PAUSE if ended - begun > LONG else ended
            if not server.missed:
                logger.warning("vtc: %s It is asked again before requests.", lines[0])
            server.missed = True
            return
        for line in lines:
            logger.info("vtc: %s%s", "VTC started before the server: " if server.missed else "", line)
        server.missed, server.planners = False, None
        server.shown.update(shown)


def _shown(asker: Asker, names: list[str], profiles: Profiles) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Ask a server, beside the event loop; returns what it shows, None if it is not there, and what to tell."""
    identity = recognised(asker, profiles)
    if not identity.is_there:
        return None, [identity.told]
    lines = [identity.told] if "server" in names else []
    apis = spoken(asker) if "upstream_api" in names else ()
    lines += [told(apis)] if apis else []
    return {name: {"server": identity.server, "upstream_api": apis}[name] for name in names}, lines


def _url(mode: ProxyMode) -> str:
    """The URL of the model server that a reverse proxy stands before; empty for any other."""
    if not isinstance(mode, ReverseMode) or mode.scheme not in ("http", "https"):
        return ""
    host, port = mode.address[0], mode.address[1]
    usual = port == {"http": 80, "https": 443}[mode.scheme]
    return f"{mode.scheme}://{f'[{host}]' if ':' in host else host}{'' if usual else f':{port}'}"
