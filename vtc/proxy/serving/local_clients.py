"""Distinguish programs on this machine from web pages in a browser on this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from mitmproxy import http

from vtc.proxy.asking.address import Address
from vtc.proxy.serving.connections import get_named_host

FORWARDED_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-real-ip")
"""Headers of forwarded requests, which another machine may have sent."""
PRIVATE_DOMAINS = ("localhost", "local", "internal")
"""Last labels of host names that nobody can register."""


def is_from_web_page(headers: Mapping[str, str]) -> bool:
    """True if the headers show that a browser sends this request for a page from another machine.

    An origin that is not a URL counts as another machine.
    """
    try:
        origin = urlsplit(headers.get("origin", ""))
    except ValueError:
        return True
    if origin.scheme in ("http", "https"):
        return not Address(origin.hostname or "", 0).is_loopback
    return headers.get("origin") == "null" or headers.get("sec-fetch-site") == "cross-site"


def may_be_web_page(flow: http.HTTPFlow) -> bool:
    """True if a request may come from a web page, including one that uses DNS rebinding.

    The owner of a domain can make its name resolve to this machine after a page was loaded. Browsers treat the requests
    of such a page as same-origin, so only the host name shows that they come from the web.
    """
    return is_from_web_page(flow.request.headers) or not _is_private_host(get_named_host(flow.request))


def is_local_program(flow: http.HTTPFlow) -> bool:
    """True if the client is a program on this machine, and not a web page in its browser."""
    peer = flow.client_conn.peername
    forwarded = any(name in flow.request.headers for name in FORWARDED_HEADERS)
    return bool(peer) and Address(peer[0], 0).is_loopback and not (forwarded or may_be_web_page(flow))


def _is_private_host(host: str) -> bool:
    """True for an IP address, a name outside the public DNS, or no host, since browsers always send one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.rpartition(".")[2] in PRIVATE_DOMAINS
    return True
