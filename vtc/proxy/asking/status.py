"""Request the status of a listener with `GET /.vtc`: whether it is VTC, and its model server."""

from __future__ import annotations

from typing import NamedTuple

from mitmproxy.options import CONF_DIR

from vtc.proxy.asking.address import parse_upstream
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.ownership import NONCE_HEADER, is_proof, make_nonce
from vtc.proxy.asking.question import ServerQuestion

STATUS_PATH = "/.vtc"
SERVICE_NAME = "vtc"
"""The `name` that identifies an answer of VTC."""
CLAIMS = ("version", "mode", "upstream", "log")
"""The fields of the answer that the proof covers."""


class ProxyStatus(NamedTuple):
    """A listening VTC and its model server."""

    version: str
    mode: str
    upstream: str
    log: str
    """The log file for programs on its machine; empty if there is none."""
    is_own: bool = False
    """True if it proved that it runs as the user of this program; any listener could claim the other fields."""

    def is_in_front_of(self, server: str) -> bool:
        """True if this VTC serves the model server of a URL: the same port at the same host, or at any loopback."""
        return _normalize(self.upstream) == _normalize(server)


def _normalize(url: str) -> list[tuple[str | bool, int]]:
    """Return the address in a URL, with True as the host of any loopback address."""
    return [(address.is_loopback or address.host, address.port) for address in parse_upstream(url)]


def format_ownership_fault(confdir: str = CONF_DIR) -> str:
    """Explain that a listener did not prove its user."""
    return f"it does not prove that it is yours (by the key in {confdir})"


def request_status(asker: Asker, confdir: str = CONF_DIR) -> tuple[ProxyStatus | None, ServerAnswer]:
    """Request the status of a listener; return it (None if it is not VTC) and the answer.

    `confdir` is the folder whose key proves that the VTC belongs to this user.
    """
    nonce = make_nonce()
    answer = asker.ask(ServerQuestion(STATUS_PATH, headers={NONCE_HEADER: nonce}))
    value = answer.json
    if not isinstance(value, dict) or value.get("name") != SERVICE_NAME:
        return None, answer
    claims = [str(value.get(key) or "") for key in CLAIMS]
    is_own = is_proof(str(value.get("proof")), confdir, nonce, answer.peer, claims)
    version, mode, upstream, log = claims
    return ProxyStatus(version, mode, upstream, log, is_own), answer
