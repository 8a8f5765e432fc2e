"""Detect the model server behind a reverse proxy and the APIs that it speaks.

The server is probed when VTC starts and then before requests until it answers, so a server that takes minutes to load
may start after VTC. The findings replace `vtc_server` and `vtc_upstream_api` unless the user set them. A server that
wants a key is probed with the one that the user named, or else with the keys of clients, each once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from mitmproxy import ctx, exceptions, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from vtc.exchange.target import find_key
from vtc.profiles.planner import Planner
from vtc.proxy.asking.address import Address, get_server_url, parse_upstream
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import ServerFindings, collect_findings, list_models
from vtc.proxy.asking.keys import get_key, list_lenders
from vtc.proxy.reload import ReloadableAddon
from vtc.proxy.trust import Trust, TrustError

logger = logging.getLogger(__name__)

RETRY_PAUSE_SECONDS = 10.0
"""Seconds before the next probe of a server that failed to answer within `SLOW_ANSWER_SECONDS`."""
LIST_REFRESH_SECONDS = 60.0
"""Seconds after which the list of models is fetched again, if a default model replaces all unlisted ones or a request
names an unlisted model without a profile."""
MAX_TRIED_KEYS = 64
"""Maximum number of clients' keys with which a server is probed."""
SLOW_ANSWER_SECONDS = 1.0
"""Seconds beyond which a failed probe was slow; a closed port fails at once."""


@dataclass(slots=True)
class ModelServer:
    """A model server, the findings about it, and the state of its probe."""

    url: str
    findings: ServerFindings | None = None
    """None until a probe has succeeded."""
    probe: asyncio.Task[None] | None = None
    """The last probe, or the last refresh of the list of models."""
    retry_from: float = 0.0
    """The earliest time of the next probe."""
    listed_at: float = 0.0
    """The time of the last request for its list of models."""
    was_missing: bool = False
    """True if a probe failed because the server was not available."""
    tried_keys: set[int] = field(default_factory=set)
    """Hashes of the clients' keys with which it was probed."""
    wrong_scheme: str = ""
    """Advice if it speaks http although its URL says https, or the reverse; else empty."""
    planners: tuple[Planner, Planner] | None = None
    """The planner without and with the findings."""

    def is_known(self, planner: Planner) -> bool:
        """True if the findings cover everything that the user's options do not set."""
        return self.findings is not None and (self.findings.apis is not None or bool(planner.settings.upstream_api))


class Discovery:
    """Probes model servers for settings that the user did not make."""

    name = "vtc-discovery"

    def __init__(self, addon: ReloadableAddon, clock: Callable[[], float]) -> None:
        self._addon = addon
        self._clock = clock
        self._servers: dict[str, ModelServer] = {}

    def configure(self, updated: set[str]) -> None:
        """Reject invalid certificate files now, because mitmproxy would report them only when a request needs them."""
        try:
            if updated.intersection(Trust._fields):
                Trust.from_options().check()
        except TrustError as error:
            raise exceptions.OptionsError(f"vtc: {error}") from None

    def running(self) -> None:
        proxy = ctx.master.addons.get("proxyserver")
        for server in proxy.servers if isinstance(proxy, Proxyserver) else ():
            self._ensure_probe(server.mode)

    def done(self) -> None:
        for server in self._servers.values():
            if server.probe:
                server.probe.cancel()

    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        # Shielded, because other requests wait for the same probe.
        if flow.response is None and (probe := self._ensure_probe(flow.client_conn.proxy_mode)):
            await asyncio.shield(probe)
        if flow.response is None and (probe := self._ensure_probe_with_key(flow)):
            await asyncio.shield(probe)

    def server_connect_error(self, data: ServerConnectionHookData) -> None:
        """Clear the error, so that the client's next request connects again instead of getting the same error."""
        data.server.error = None

    def choose_planner(self, flow: http.HTTPFlow, planner: Planner) -> Planner:
        """Return the planner for a flow, with the findings about its model server."""
        server = self._servers.get(get_server_url(flow.client_conn.proxy_mode))
        if server is None or server.findings is None:
            return planner
        if server.planners is None or server.planners[0] is not planner:
            settings = server.findings.settings
            if settings.get("server") not in planner.profiles.servers:  # the user may have edited the profiles
                settings.pop("server", None)
            server.planners = planner, planner.with_settings(settings, server.findings.models)
        return server.planners[1]

    def probe_for_model(self, flow: http.HTTPFlow, planner: Planner, model: str) -> None:
        """Probe the server again because of a model that has no profile and is not listed; no request waits for it."""
        server = self._servers.get(get_server_url(flow.client_conn.proxy_mode))
        if server is None or server.findings is None or server.findings.models.has(model):
            return
        if server.findings.needs_key or server.tried_keys:  # without a key, less is found
            return
        is_running = server.probe is not None and not server.probe.done()
        if not is_running and self._clock() >= server.listed_at + LIST_REFRESH_SECONDS:
            server.probe = asyncio.create_task(self._discover(server, planner))

    def explain_failure(self, flow: http.HTTPFlow, why: str) -> str:
        """Explain why a server did not reply: advice about a wrong scheme if that is known, else mitmproxy's `why`."""
        server = self._servers.get(get_server_url(flow.client_conn.proxy_mode))
        return server.wrong_scheme if server and server.wrong_scheme else why

    def _ensure_probe(self, mode: ProxyMode) -> asyncio.Task[None] | None:
        """Start a probe of a proxy's server unless all is known; return the running probe, which requests must await.

        If all is known, refresh the list of models when it is old, and return None.
        """
        url, planner = get_server_url(mode), self._addon.planner
        if not url or planner is None or ctx.options.vtc_discover != "on" or ctx.options.vtc_mode == "off":
            return None
        server = self._servers.setdefault(url, ModelServer(url))
        if server.is_known(planner):
            if planner.default_model and self._clock() >= server.listed_at + LIST_REFRESH_SECONDS:
                server.listed_at = self._clock()
                server.probe = asyncio.create_task(self._refresh_models(server, planner))
            return None  # no request waits for the refresh
        if server.probe is None or (server.probe.done() and self._clock() >= server.retry_from):
            server.probe = asyncio.create_task(self._discover(server, planner))
        return server.probe

    def _ensure_probe_with_key(self, flow: http.HTTPFlow) -> asyncio.Task[None] | None:
        """Start a probe with the client's key if the server wants one; return the running probe of a server.

        The key is that of a header, and goes only to the server to which the client sends it anyway.
        """
        url, planner, request = get_server_url(flow.client_conn.proxy_mode), self._addon.planner, flow.request
        key, server = find_key(request.headers), self._servers.get(url)
        if not (key and planner and server and server.findings and server.findings.needs_key):
            return None
        if ctx.options.vtc_mode != "rewrite" or ctx.options.vtc_discover != "on":
            return None
        if [Address(request.host.lower(), request.port)] != parse_upstream(url):
            return None
        if hash(key) not in server.tried_keys and len(server.tried_keys) < MAX_TRIED_KEYS:
            server.tried_keys.add(hash(key))
            server.probe = asyncio.create_task(self._discover(server, planner, key))
        return server.probe

    async def _discover(self, server: ModelServer, planner: Planner, client_key: str = "") -> None:
        started = self._clock()
        key = client_key or _find_named_key(server.url, planner)
        try:
            asker = _make_asker(server.url, key)
            findings = await asyncio.to_thread(collect_findings, asker, planner, describes_models=not client_key)
        except TrustError as error:
            findings = ServerFindings(lines=(f"{error}.",), is_available=False)
        except Exception:  # a bug in VTC: forward requests, and stop probing
            logger.exception("vtc: %s could not be probed", server.url)
            findings = ServerFindings(apis=())
        if (client_key and not findings.apis) or (server.findings and not findings.is_available):
            return  # nothing new was found
        server.listed_at = ended = self._clock()
        server.wrong_scheme = findings.lines[0] if findings.has_wrong_scheme else ""
        if not findings.is_available:
            server.retry_from = ended + RETRY_PAUSE_SECONDS if ended - started > SLOW_ANSWER_SECONDS else ended
            if not server.was_missing:
                logger.warning("vtc: %s It is probed again before requests.", findings.lines[0])
            server.was_missing = True
            return
        known_lines = server.findings.lines if server.findings else ()
        for line in (line for line in findings.lines if line not in known_lines):
            logger.info("vtc: %s%s", "VTC started before the server: " if server.was_missing else "", line)
        if findings.apis is None:
            findings = findings._replace(apis=())
        server.was_missing, server.planners, server.findings = False, None, findings

    async def _refresh_models(self, server: ModelServer, planner: Planner) -> None:
        """Fetch the list of models again, because models may have been loaded or removed."""
        apis = planner.settings.upstream_api or (server.findings.apis if server.findings else None) or ()
        asker = _make_asker(server.url, _find_named_key(server.url, planner))
        names = await asyncio.to_thread(list_models, asker, apis)
        if names and server.findings and names != server.findings.models.names:
            models = server.findings.models._replace(names=names)
            server.planners, server.findings = None, server.findings._replace(models=models)


def _make_asker(url: str, key: str) -> Asker:
    """Make an asker that trusts the same certificates as mitmproxy does for requests of clients."""
    can_be_sent = key.isascii() and key.isprintable()  # otherwise the error would quote the key
    return Asker(url, key=key if can_be_sent else "", trust=Trust.from_options())


def _find_named_key(url: str, planner: Planner) -> str:
    """Find the key that the user named for a server; empty if there is none, or if VTC only observes."""
    if ctx.options.vtc_mode != "rewrite":
        return ""
    lenders = list_lenders(planner.profiles, parse_upstream(url), ctx.options.vtc_key_env)
    return next(filter(None, map(get_key, lenders)), "")
