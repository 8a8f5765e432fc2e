"""Find out which model server a reverse proxy serves, and which APIs it speaks: ask when VTC starts, and before
requests until it is there.

So a server that takes minutes to load may start after VTC. What it showed stands in the place of `vtc_server` and
`vtc_upstream_api` where the user left them open.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Timer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import certifi
from mitmproxy import ctx, http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from vtc.apis import APIS, named
from vtc.apis.place import BEARER
from vtc.exchange.model_list import names_of
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best, plain_model
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ServerProfile
from vtc.proxy.beside import UNTRUSTED
from vtc.proxy.reload import Planned

# Asks a model server over HTTP, within a time: no proxy, no redirect, one connection a question.
#
# A key is sent to that server alone, and stands in nothing that is told.


MOST = 4 << 20
"""Bytes of an answer that are read."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of a server, or why there is none (`error`)."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""
    error: OSError | HTTPException | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True for an answer whose status tells of no error."""
        return 200 <= self.status < 300

    @property
    def json(self) -> Any:
        """The body as plain data; None if it is no JSON, or tells of an error."""
        try:
            return json.loads(self.body) if self.ok else None
        except (ValueError, RecursionError):
            return None

    @property
    def why(self) -> str:
        """Why there is no answer, for people."""
        if isinstance(self.error, OSError):  # a server that hangs up is one, too
            return self.error.strerror or str(self.error)
        return "it does not answer in HTTP"


class Asker:
    """Asks one server; each answer is there within `seconds`, or is an error."""

    def __init__(self, url: str, *, key: str = "", seconds: float = 3, tls: ssl.SSLContext | None = None) -> None:
        """`url` is that of the server, with what stands before the paths of its APIs.

        `tls` says whose certificates are trusted; None for those that Python trusts.
        """
        self.url = url.rstrip("/")
        self.seconds = seconds
        self._at = urlsplit(self.url)
        self._key = key
        self._tls = tls

    @property
    def has_key(self) -> bool:
        return bool(self._key)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no output may show."""
        return (self._key,) if self._key else ()

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, key: str = BEARER
    ) -> ServerAnswer:
        """GET a path, or POST a body of JSON to it; `key` names the header for the user's key."""
        begun = time.monotonic()
        host, is_tls = self._at.hostname or "", self._at.scheme == "https"
        connection = (
            HTTPSConnection(host, self._at.port, timeout=self.seconds, context=self._tls)
            if is_tls
            else HTTPConnection(host, self._at.port, timeout=self.seconds)
        )
        late = Event()
        watch = Timer(self.seconds, _cut, (connection, late))
        watch.daemon = True
        watch.start()
        try:
            sent = {"content-type": "application/json", "accept": "*/*", **(headers or {})}
            if self._key:
                sent[key] = f"Bearer {self._key}" if key == BEARER else self._key
            connection.request("GET" if body is None else "POST", f"{self._at.path}{path}", body, sent)
            response = connection.getresponse()
            data = response.read(MOST)
            if late.is_set():
                raise TimeoutError
            by_name = {name.lower(): value for name, value in response.getheaders()}
            return ServerAnswer(response.status, data, by_name, None, time.monotonic() - begun)
        except (OSError, HTTPException) as error:
            if late.is_set() or isinstance(error, TimeoutError):
                error = TimeoutError(None, f"no answer within {self.seconds:g} seconds")
            return ServerAnswer(error=error, seconds=time.monotonic() - begun)
        finally:
            watch.cancel()
            connection.close()


def _cut(connection: HTTPConnection, late: Event) -> None:
    """End a connection whose time is up, however slowly it trickles."""
    late.set()
    if connection.sock is not None:
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


# Which server an upstream is, asked before it is used: by its list of models, as clients ask for it.


LIST = "/v1/models"


def trusting(*, insecure: bool = False, file: str | None = None, folder: str | None = None) -> ssl.SSLContext:
    """Trust whom mitmproxy trusts by its options: any server, those that an authority signed, or the usual ones."""
    paths = [str(Path(path).expanduser()) if path else None for path in (file, folder)]
    context = ssl.create_default_context(cafile=paths[0] or (None if paths[1] else certifi.where()), capath=paths[1])
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _other_scheme(asker: Asker, answer: ServerAnswer) -> str:
    """Return the URL of a server that answers in the other one of http and https; empty if it does not."""
    url = urlsplit(asker.url)
    is_mixed_up = isinstance(answer.error, ssl.SSLError | ConnectionResetError | HTTPException)
    is_mixed_up = is_mixed_up or (url.scheme == "https" and isinstance(answer.error, TimeoutError))  # it waits for more
    if not (is_mixed_up or answer.status == 400):
        return ""
    other = url._replace(scheme="http" if url.scheme == "https" else "https").geturl()
    tried = Asker(other, seconds=min(1, asker.seconds), tls=trusting(insecure=True)).ask(LIST)
    return "" if tried.error else other


STARTING = (502, 503, 504)
"""Answers of a server that loads its model, and of a gateway before one that is not there."""


class ServerIdentity(NamedTuple):
    """The server that an upstream is."""

    server: str | None
    """Its profile; None if it is not known."""
    told: str
    """The words for the user."""
    is_there: bool = True
    """True if it answered, or need not be asked."""
    models: tuple[str, ...] = ()
    """Those that it lists."""
    is_hosted: bool = False
    """True for a hosted API that is known by its name."""
    answers: bool = False
    """True if it answered with a list."""
    is_listed: bool = False
    """True if its list of models tells which it is, not its address, by which requests find a profile themselves."""


def recognised(asker: Asker, profiles: Profiles) -> ServerIdentity:
    """Find out which server an upstream is.

    A hosted API that is known by its name is not asked: it would want a key, and is hardly down. Nor is a server for
    which the user has a profile.
    """
    upstream, url = asker.url, urlsplit(asker.url)
    named = best(profiles.servers, Facts(host=url.hostname or "", port=url.port or 0), profiles.sources).profile
    if named and not profiles.sources["server", named.name].builtin:
        return ServerIdentity(named.name, f"{upstream} has a profile of yours: {named.name}")
    if named and url.scheme == "https":
        told = f"{upstream} is one of: {named.description or named.name}"
        return ServerIdentity(named.name, told, is_hosted=True)
    answer = asker.ask(LIST)
    if isinstance(answer.error, ssl.SSLCertVerificationError):
        why = f"({answer.error.verify_message}): {UNTRUSTED} (after `--`)"
        return ServerIdentity(None, f"the certificate of {upstream} is not trusted {why}")
    if other := _other_scheme(asker, answer):
        scheme = urlsplit(other).scheme
        return ServerIdentity(None, f"{upstream} speaks {scheme}: start with `vtc run {other}`")
    if answer.error and not isinstance(answer.error, OSError):
        return ServerIdentity(None, f"{upstream} does not answer in HTTP: is it the model server?", is_there=False)
    if answer.error:
        why = f"({answer.why}): is the model server running?"
        return ServerIdentity(None, f"{upstream} cannot be reached now {why}", is_there=False)
    if answer.status in STARTING:
        problem = f"{upstream} answers {answer.status} to GET {LIST}: does it still load its model?"
        return ServerIdentity(None, problem, is_there=False)
    if not answer.ok:
        problem = f"{upstream} answers {answer.status} to GET {LIST}, so it is not known which server it is"
        return ServerIdentity(None, problem)
    models = tuple(names_of(answer.body))
    owner = owned(answer.json, profiles)
    if server := owner or named:
        told = f"{upstream} is {server.description or server.name}"
        return ServerIdentity(server.name, told, models=models, answers=True, is_listed=owner is not None)
    told = "its kind was not recognised, which is fine for most servers (--server names it)"
    return ServerIdentity(None, f"{upstream} answers; {told}", models=models, answers=True)


def owned(listed: Any, profiles: Profiles) -> ServerProfile | None:
    """Find the profile of a server by the owners in its list of models."""
    names = {owner for entry in entries(listed) if isinstance(owner := entry.get("owned_by"), str)}
    return next((server for server in profiles.servers.values() if names.intersection(server.owned_by)), None)


def entries(listed: Any) -> list[dict[str, Any]]:
    """Return the entries of a list of models; none if it is no such list."""
    models = listed.get("data") if isinstance(listed, dict) else None
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else []


def spoken(asker: Asker) -> tuple[str, ...]:
    """Find the APIs that a server speaks, the one first that servers know best; none if that does not show.

    Each is asked with an empty object, which no server answers with a reply: what it does not speak is not found.
    """
    spoken = tuple(api.name for api in APIS if _is_spoken(asker, api.place.written(api.place.version, "none")))
    return () if len(spoken) == len(APIS) else spoken


def _is_spoken(asker: Asker, path: str) -> bool:
    answer = asker.ask(path, b"{}")
    if answer.ok:
        return b"nexpected endpoint" not in answer.body  # LM Studio
    return answer.error is None and answer.status not in (404, 405, 501)


def listed(asker: Asker, apis: Sequence[str]) -> tuple[str, ...]:
    """Ask a server for its models, where clients do and where one of these APIs has its list; empty if it has none."""
    places = dict.fromkeys([LIST, *(api.place.lists for name in apis if (api := named(name)))])
    names = (names_of(answer.body) for path in places if (answer := asker.ask(path)).ok)
    return tuple(next(filter(None, names), ()))


MOST_LISTED = 5
"""Models that are told by their names."""


def told_models(models: Sequence[str], default: str = "") -> str:
    """Say which models a server lists, and whether the one is there that stands for all others; empty for none."""
    if not models:
        return f"the server's models are not known: it is asked for {default} in the place of any" if default else ""
    more = len(models) - MOST_LISTED
    line = f"its models: {', '.join(models[:MOST_LISTED])}{f' and {more} more' if more > 0 else ''}"
    if not default:
        return line
    is_there = plain_model(default) in map(plain_model, models)
    return (
        f"{line}; it is asked for {default} in the place of all others{'' if is_there else ', which is none of them'}"
    )


def told(apis: tuple[str, ...]) -> str:
    """Say which clients are served by way of another API."""
    unspoken = [api.name for api in APIS if api.name not in apis]
    return f"it speaks {' and '.join(apis)}: clients of {', '.join(unspoken)} are translated to {apis[0]}"


logger = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds for which a server is left alone that took long to say nothing."""
LISTED = 60.0
"""Seconds after which a list of models is asked for again, where one model stands for all that are not in it."""
LONG = 1.0
"""Seconds beyond which that was long; a port that no one listens at answers at once."""


class ServerFindings(NamedTuple):
    """What a model server showed of itself."""

    server: str | None = None
    """Its profile."""
    apis: tuple[str, ...] | None = None
    """The APIs that it speaks; None if it was not asked, empty if that does not show."""
    models: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """All that in words, for the user."""
    is_there: bool = True
    is_sound: bool = False
    """True if it answered as servers do."""
    is_listed: bool = False
    """True if its profile has to be named: its address does not match it. One that does may be one of several there,
    each for other models.
    """

    @property
    def settings(self) -> dict[str, Any]:
        """Return what stands in the place of options that the user left open."""
        named: dict[str, Any] = {"server": self.server if self.is_listed else None, "upstream_api": self.apis}
        return {name: value for name, value in named.items() if value}


CONTEXT_API = "ollama-chat"
"""The one API in which a server can be told how long its context is to be."""


def findings(asker: Asker, planner: Planner) -> ServerFindings:
    """Ask a model server what the user's options leave open; it is sent no key."""
    settings = planner.settings
    identity = recognised(asker, planner.profiles)
    if not identity.is_there:
        return ServerFindings(lines=(identity.told,), is_there=False)
    lines = [] if settings.server else [identity.told]
    apis = None
    if not (settings.upstream_api or identity.is_hosted):
        apis = spoken(asker)
        if not apis and urlsplit(asker.url).scheme == "https":
            lines.append("it does not show without a key which APIs it speaks: if clients get a 404, say --api")
    profile = planner.profiles.servers.get(settings.server or identity.server or "")
    if profile and apis and profile.steps.get("context") and CONTEXT_API in apis:
        apis = (CONTEXT_API,)
    elif profile and profile.remark and not profile.steps.get("context"):
        lines.append(profile.remark)
    lines += [told(apis)] if apis else []
    models = identity.models or listed(asker, settings.upstream_api or apis or ())
    lines.append(told_models(models, planner.default_model))
    return ServerFindings(
        identity.server,
        apis,
        models,
        tuple(filter(None, lines)),
        is_sound=identity.answers,
        is_listed=identity.is_listed,
    )


@dataclass(slots=True)
class ModelServer:
    """A model server, and what it showed."""

    url: str
    found: ServerFindings | None = None
    asking: asyncio.Task[None] | None = None
    free_from: float = 0.0
    renewed: float = 0.0
    """When its list of models was asked for last."""
    missed: bool = False
    """True if it was not there when it was asked."""
    planners: tuple[Planner, Planner] | None = None
    """The planner without and with what it showed."""

    def is_known(self, planner: Planner) -> bool:
        """True if it showed what the user's options leave open."""
        return self.found is not None and (self.found.apis is not None or bool(planner.settings.upstream_api))


class Discovery:
    """Asks model servers what no option says."""

    name = "vtc-discovery"

    def __init__(self, addon: Planned, clock: Callable[[], float]) -> None:
        self._addon = addon
        self._clock = clock
        self._servers: dict[str, ModelServer] = {}

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

    def informed(self, flow: http.HTTPFlow, planner: Planner) -> Planner:
        """Return the planner for a flow: it knows what the model server showed."""
        server = self._servers.get(url_of(flow.client_conn.proxy_mode))
        if server is None or server.found is None:
            return planner
        if server.planners is None or server.planners[0] is not planner:
            known = server.found.settings
            if known.get("server") not in planner.profiles.servers:  # profiles are edited
                known.pop("server", None)
            server.planners = planner, planner.with_settings(known, server.found.models)
        return server.planners[1]

    def _ask(self, mode: ProxyMode) -> asyncio.Task[None] | None:
        """Begin to ask the server of a proxy, if there is anything to ask; returns what to wait for."""
        url, planner = url_of(mode), self._addon.planner
        if not url or planner is None or ctx.options.vtc_discover != "on" or ctx.options.vtc_mode == "off":
            return None
        server = self._servers.setdefault(url, ModelServer(url))
        if server.is_known(planner):
            if planner.default_model and self._clock() >= server.renewed + LISTED:  # for which no request waits
                server.renewed = self._clock()
                server.asking = asyncio.create_task(self._list_again(server, planner))
            return None
        if server.asking is None or (server.asking.done() and self._clock() >= server.free_from):
            server.asking = asyncio.create_task(self._discover(server, planner))
        return server.asking

    async def _discover(self, server: ModelServer, planner: Planner) -> None:
        begun = self._clock()
        try:
            found = await asyncio.to_thread(lambda: findings(_asker(server.url), planner))
        except Exception:  # a fault of ours: requests go on, and nothing is asked again
            logger.exception("vtc: %s could not be asked", server.url)
            found = ServerFindings(apis=())
        server.renewed = ended = self._clock()
        if not found.is_there:
            server.free_from = ended + PAUSE if ended - begun > LONG else ended
            if not server.missed:
                logger.warning("vtc: %s It is asked again before requests.", found.lines[0])
            server.missed = True
            return
        for line in found.lines:
            logger.info("vtc: %s%s", "VTC started before the server: " if server.missed else "", line)
        if found.apis is None:
            found = found._replace(apis=())
        server.missed, server.planners, server.found = False, None, found

    async def _list_again(self, server: ModelServer, planner: Planner) -> None:
        """Ask for the list of models once more: some may have been loaded, or taken out."""
        apis = planner.settings.upstream_api or (server.found.apis if server.found else None) or ()
        models = await asyncio.to_thread(lambda: listed(_asker(server.url), apis))
        if models and server.found and models != server.found.models:
            server.planners, server.found = None, server.found._replace(models=models)


def _asker(url: str) -> Asker:
    """Make what asks a server, with mitmproxy's trust in certificates, as requests of clients have it."""
    options = ctx.options
    trust = {
        "insecure": options.ssl_insecure,
        "file": options.ssl_verify_upstream_trusted_ca,
        "folder": options.ssl_verify_upstream_trusted_confdir,
    }
    return Asker(url, tls=trusting(**trust) if urlsplit(url).scheme == "https" else None)


def url_of(mode: ProxyMode) -> str:
    """The URL of the model server that a reverse proxy stands before; empty for any other."""
    if not isinstance(mode, ReverseMode) or mode.scheme not in ("http", "https"):
        return ""
    host, port = mode.address[0], mode.address[1]
    usual = port == {"http": 80, "https": 443}[mode.scheme]
    return f"{mode.scheme}://{f'[{host}]' if ':' in host else host}{'' if usual else f':{port}'}"
