"""Lend the server's key from the environment to clients that send none.

The server profile names the variable (`key_env`); for the server of a reverse proxy, an option can (`vtc_key_env`).

The key is added to the request before it is processed, and removed when the exchange has ended. In between it is
treated as if the client had sent it: scrubbed, translated for a server of another API, and repeated in follow-up
requests, which are separate flows (`follow_up.py`). A stored flow never contains it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from mitmproxy import ctx, http
from mitmproxy.proxy.mode_specs import ReverseMode

from vtc.apis import APIS, Api, find_api
from vtc.apis.place import format_key
from vtc.profiles.matching import is_at
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ServerProfile
from vtc.proxy import flows
from vtc.proxy.asking.address import Address
from vtc.proxy.asking.keys import SHARE_KEYS_FLAG, get_key, make_upstream_profile
from vtc.proxy.serving import side_questions
from vtc.proxy.serving.local_clients import is_from_web_page
from vtc.scrub import CREDENTIALS, find_query_credentials, scrub_text

logger = logging.getLogger(__name__)

_KEY_HEADERS = tuple(name for name in CREDENTIALS if name != "proxy-authorization")
"""Headers that authenticate a request to a server."""


class Loan(NamedTuple):
    """Lines for the report about the key that was added to a request, or was not."""

    why: Sequence[str]
    """States whose key was sent."""
    request: Sequence[str]
    """States why no key was sent."""


NO_LOAN = Loan((), ())


_lent: WeakKeyDictionary[http.HTTPFlow, str] = WeakKeyDictionary()
"""Flows that contain a lent key, with that key."""


def share_loan(flow: http.HTTPFlow, copy: http.HTTPFlow) -> None:
    """Record that a copy of a flow contains its lent key, too."""
    if key := _lent.get(flow):
        _lent[copy] = key


def take_back(flow: http.HTTPFlow) -> None:
    """Remove the key from a flow that has ended, and from the backup that mitmproxy could revert to."""
    key = _lent.pop(flow, "")
    if not key:
        return
    headers = flow.request.headers
    for header in [header for header, value in headers.items() if key in value]:
        headers.pop(header, None)
    backup: Any = flow._backup
    if backup:  # a person edited it meanwhile
        request = backup["request"]
        request["headers"] = tuple(field for field in request["headers"] if key.encode() not in field[1])


class KeyLoans:
    """Lends keys, and takes them back; runs after the addon that processes requests."""

    name = "vtc-keys"

    def __init__(self) -> None:
        self._warned: set[str] = set()
        """The obstacles that were logged; each is logged once."""

    def lend(self, flow: http.HTTPFlow, planner: Planner) -> Loan:
        """Add the key of its server to a request, if permitted."""
        variable = ctx.options.vtc_key_env
        if (
            not (planner.has_lent_keys or variable)
            or ctx.options.vtc_mode != "rewrite"
            or flow.request.method == "OPTIONS"
        ):
            return NO_LOAN
        facts = flows.read_facts(flow)
        mode, profile = flow.client_conn.proxy_mode, planner.find_server(facts)
        if variable and isinstance(mode, ReverseMode):
            profile = make_upstream_profile(variable, Address(*mode.address))
        if profile is None or not profile.key_env or _has_key(facts.headers, facts.query):
            return NO_LOAN
        name = scrub_text(profile.key_env)
        if why := self._find_obstacle(flow, profile):
            if why not in self._warned:
                self._warned.add(why)
                logger.warning("vtc: the key of %s is not sent: %s", name, why)
            return Loan((), (f"the client sends no key, and that of {name} is not sent: {why}",))
        key, headers = get_key(profile), flow.request.headers
        for header in _KEY_HEADERS:  # these hold no key
            headers.pop(header, None)
        header = profile.key_header.lower()
        if not header:
            api = side_questions.find_error_api(flow) or _choose_api(planner.list_apis(facts))
            header = api.place.key
        headers[header] = format_key(header, key)
        _lent[flow] = key
        return Loan((f"the client sends no key: that of {name} is sent",), ())

    def _find_obstacle(self, flow: http.HTTPFlow, profile: ServerProfile) -> str:
        """Explain why a client may not be lent a key; empty if it may."""
        request, mode = flow.request, flow.client_conn.proxy_mode
        server, peer = Address(request.host, request.port), flow.client_conn.peername
        if not get_key(profile):
            return f"the environment has no variable {scrub_text(profile.key_env)}"
        if request.stream:
            return "the request is streamed"
        if not is_at(profile.match, *server):  # regardless of the Host header
            return f"{server.host} does not match server profile {profile.name}"
        if request.scheme != "https" and not (isinstance(mode, ReverseMode) or server.is_loopback):
            return "the request is not encrypted, so others could read it"
        if ctx.options.vtc_share_keys != "on" and not Address(*peer[:2]).is_loopback:
            return f"the client is on another machine, and vtc_share_keys ({SHARE_KEYS_FLAG}) is off"
        return "the client is a web page" if is_from_web_page(request.headers) else ""

    def response(self, flow: http.HTTPFlow) -> None:
        """Remove the key from a flow whose exchange has ended."""
        take_back(flow)

    error = response


def _has_key(headers: Mapping[str, str], query: str) -> bool:
    """True if a client sends a credential; some without a key send `Bearer` alone."""
    values = (headers.get(name, "").strip() for name in _KEY_HEADERS)
    return any(value and value.casefold() != "bearer" for value in values) or any(find_query_credentials(query))


def _choose_api(apis: Sequence[str]) -> Api:
    """Choose the API that determines the header of a server's key."""
    return next(filter(None, map(find_api, apis)), APIS[0])
