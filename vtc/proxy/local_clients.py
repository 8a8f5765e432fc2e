"""Tell programs of this machine from pages of the web, which a browser of this machine shows."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from mitmproxy import http

from vtc.proxy.address import Address
from vtc.proxy.connections import get_named_host

FORWARDED_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers of requests that another machine may have sent."""
PRIVATE_DOMAINS = ("localhost", "local", "internal")
"""Ends of names that no one can have in the web."""


def is_from_web_page(headers: Mapping[str, str]) -> bool:
    """True if a browser says that it sends a request for a page that is not of this machine.

    An origin that is no URL counts as one of those.
    """
    try:
        origin = urlsplit(headers.get("origin", ""))
    except ValueError:
        return True
    if origin.scheme in ("http", "https"):
        return not Address(origin.hostname or "", 0).is_loopback
    return headers.get("origin") == "null" or headers.get("sec-fetch-site") == "cross-site"


def may_be_web_page(flow: http.HTTPFlow) -> bool:
    """True if a request may be that of a page, as far as one shows that asks for what is its own.

    Whoever has a name in the web can have it lead to this machine after its page was loaded (DNS rebinding). Browsers
    send such a page's requests as they send those of any page to its own server, and with its name.
    """
    return is_from_web_page(flow.request.headers) or not _is_private_host(get_named_host(flow.request))


def is_local_program(flow: http.HTTPFlow) -> bool:
    """True if a program of this machine asks, and no page of the web that its browser shows."""
    peer = flow.client_conn.peername
    forwarded = any(name in flow.request.headers for name in FORWARDED_HEADERS)
    return bool(peer) and Address(peer[0], 0).is_loopback and not (forwarded or may_be_web_page(flow))


def _is_private_host(host: str) -> bool:
    """True for a host that is a number, or whose name is none of the web; and for none, as browsers always say it."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.rpartition(".")[2] in PRIVATE_DOMAINS
    return True
