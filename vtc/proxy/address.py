"""The host and port of a server, or of a place where clients connect."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

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


def upstream(url: str) -> list[Address]:
    """Find the server of a URL; none for an ordinary proxy."""
    at = urlsplit(url)
    return [Address(at.hostname, at.port or {"https": 443}.get(at.scheme, 80))] if at.hostname else []
