"""Addresses of servers and listeners: host and port, and URLs."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from mitmproxy.proxy.mode_specs import ProxyMode, ReverseMode

_LOCAL = ("localhost", "127.0.0.1", "::1")


class Address(NamedTuple):
    """A host name or IP address, and a port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True for the loopback interface of this machine."""
        try:
            ip = ipaddress.ip_address(self.host)
        except ValueError:
            return self.host in _LOCAL
        mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
        return (mapped or ip).is_loopback


def parse_upstream(url: str) -> list[Address]:
    """Parse the URL of a proxy's server: a list with its address, or an empty list for an ordinary proxy."""
    parts = urlsplit(url)
    return [Address(parts.hostname, parts.port or {"https": 443}.get(parts.scheme, 80))] if parts.hostname else []


def get_server_url(mode: ProxyMode) -> str:
    """Return the URL of a reverse proxy's model server; empty for other modes."""
    if not isinstance(mode, ReverseMode) or mode.scheme not in ("http", "https"):
        return ""
    host, port = mode.address[0], mode.address[1]
    is_default_port = port == {"http": 80, "https": 443}[mode.scheme]
    name = f"[{host}]" if ":" in host else host  # IPv6
    return f"{mode.scheme}://{name}" if is_default_port else f"{mode.scheme}://{name}:{port}"
