"""Find out which model server a reverse proxy serves, and which APIs it speaks: ask when VTC starts, and before
requests until it is there.

So a server that takes minutes to load may start after VTC. What it showed stands in the place of `vtc_server` and
`vtc_upstream_api` where the user left them open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy import ctx, exceptions, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from vtc.profiles.planner import Planner
from vtc.proxy.address import get_server_url
from vtc.proxy.asker import Asker
from vtc.proxy.findings import ServerFindings, collect_findings, list_models
from vtc.proxy.reload import ReloadableAddon
from vtc.proxy.trust import Trust, TrustError

logger = logging.getLogger(__name__)

RETRY_PAUSE_SECONDS = 10.0
"""Seconds for which a server is left alone that took long to say nothing."""
LIST_REFRESH_SECONDS = 60.0
"""Seconds after which a list of models is asked for again, where one model stands for all that are not in it."""
SLOW_ANSWER_SECONDS = 1.0
"""Seconds beyond which that was long; a port that no one listens at answers at once."""


@dataclass(slots=True)
class ModelServer:
    """A model server, and what it showed."""

    url: str
    found: ServerFindings | None = None
    asking: asyncio.Task[None] | None = None
    retry_from: float = 0.0
    listed_at: float = 0.0
    """When its list of models was asked for last."""
    was_missing: bool = False
    """True if it was not there when it was asked."""
    wrong_scheme: str = ""
    """What to do if it speaks the other one of http and https than its URL says."""
    planners: tuple[Planner, Planner] | None = None
    """The planner without and with what it showed."""

    def is_known(self, planner: Planner) -> bool:
        """True if it showed what the user's options leave open."""
        return self.found is not None and (self.found.apis is not None or bool(planner.settings.upstream_api))


class Discovery:
    """Asks model servers what no option says."""

    name = "vtc-discovery"

    def __init__(self, addon: ReloadableAddon, clock: Callable[[], float]) -> None:
        self._addon = addon
        self._clock = clock
        self._servers: dict[str, ModelServer] = {}

    def configure(self, updated: set[str]) -> None:
        """Refuse files of certificates that are none; mitmproxy would tell it at requests alone."""
        try:
            if updated.intersection(Trust._fields):
                Trust.from_options().check()
        except TrustError as error:
            raise exceptions.OptionsError(f"vtc: {error}") from None

    def running(self) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        for server in proxy.servers if isinstance(proxy, Proxyserver) else ():
            self._ask(server.mode)

    def done(self) -> None:
        for server in self._servers.values():
            if server.asking:
                server.asking.cancel()

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        if flow.response is None and (asking := self._ask(flow.client_conn.proxy_mode)):
            await asyncio.shield(asking)  # others wait for it, too

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """Have the next request of the same client connect anew: mitmproxy would go on giving it this error."""
        data.server.error = None

    def inform_planner(self, flow: http.HTTPFlow, planner: Planner) -> Planner:
        """Return the planner for a flow: it knows what the model server showed."""
        server = self._servers.get(get_server_url(flow.client_conn.proxy_mode))
        if server is None or server.found is None:
            return planner
        if server.planners is None or server.planners[0] is not planner:
            known = server.found.settings
            if known.get("server") not in planner.profiles.servers:  # profiles are edited
                known.pop("server", None)
            server.planners = planner, planner.with_settings(known, server.found.models)
        return server.planners[1]

    def explain_failure(self, flow: http.HTTPFlow, why: str) -> str:
        """Return why a server gave no reply, in mitmproxy's words unless more is known."""
        server = self._servers.get(get_server_url(flow.client_conn.proxy_mode))
        return server.wrong_scheme if server and server.wrong_scheme else why

    def _ask(self, mode: ProxyMode) -> asyncio.Task[None] | None:
        """Begin to ask the server of a proxy, if there is anything to ask; returns what to wait for."""
        url, planner = get_server_url(mode), self._addon.planner
        if not url or planner is None or ctx.options.vtc_discover != "on" or ctx.options.vtc_mode == "off":
            return None
        server = self._servers.setdefault(url, ModelServer(url))
        if server.is_known(planner):
            if (
                planner.default_model and self._clock() >= server.listed_at + LIST_REFRESH_SECONDS
            ):  # for which no request waits
                server.listed_at = self._clock()
                server.asking = asyncio.create_task(self._list_again(server, planner))
            return None
        if server.asking is None or (server.asking.done() and self._clock() >= server.retry_from):
            server.asking = asyncio.create_task(self._discover(server, planner))
        return server.asking

    async def _discover(self, server: ModelServer, planner: Planner) -> None:
        begun = self._clock()
        try:
            found = await asyncio.to_thread(lambda: collect_findings(_make_asker(server.url), planner))
        except TrustError as error:
            found = ServerFindings(lines=(f"{error}.",), is_there=False)
        except Exception:  # a fault of ours: requests go on, and nothing is asked again
            logger.exception("vtc: %s could not be asked", server.url)
            found = ServerFindings(apis=())
        server.listed_at = ended = self._clock()
        server.wrong_scheme = found.lines[0] if found.has_wrong_scheme else ""
        if not found.is_there:
            server.retry_from = ended + RETRY_PAUSE_SECONDS if ended - begun > SLOW_ANSWER_SECONDS else ended
            if not server.was_missing:
                logger.warning("vtc: %s It is asked again before requests.", found.lines[0])
            server.was_missing = True
            return
        for line in found.lines:
            logger.info("vtc: %s%s", "VTC started before the server: " if server.was_missing else "", line)
        if found.apis is None:
            found = found._replace(apis=())
        server.was_missing, server.planners, server.found = False, None, found

    async def _list_again(self, server: ModelServer, planner: Planner) -> None:
        """Ask for the list of models once more: some may have been loaded, or taken out."""
        apis = planner.settings.upstream_api or (server.found.apis if server.found else None) or ()
        models = await asyncio.to_thread(lambda: list_models(_make_asker(server.url), apis))
        if models and server.found and models != server.found.models:
            server.planners, server.found = None, server.found._replace(models=models)


def _make_asker(url: str) -> Asker:
    """Make what asks a server, with mitmproxy's trust in certificates, as requests of clients have it."""
    return Asker(url, trust=Trust.from_options())
