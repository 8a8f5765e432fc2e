"""Where a server is, or a place where clients connect: host and port, and the URL."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode

_LOCAL = ("localhost", "127.0.0.1", "::1")


class Address(NamedTuple):
    """A host, by its name or its number, and a port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if nothing of it leaves this machine."""
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host in _LOCAL
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback


def parse_upstream(url: str) -> list[Address]:
    """Find the server of a URL; none for an ordinary proxy."""
    at = urlsplit(url)
    return [Address(at.hostname, at.port or {"https": 443}.get(at.scheme, 80))] if at.hostname else []


def get_server_url(mode: ProxyMode) -> str:
    """The URL of the model server that a reverse proxy stands before; empty for any other."""
    if not isinstance(mode, ReverseMode) or mode.scheme not in ("http", "https"):
        return ""
    host, port = mode.address[0], mode.address[1]
    usual = port == {"http": 80, "https": 443}[mode.scheme]
    return f"{mode.scheme}://{f'[{host}]' if ':' in host else host}{'' if usual else f':{port}'}"
