"""Ask what listens whether it is VTC, and before which model server: `GET /.vtc`."""

from __future__ import annotations

from typing import NamedTuple

from mitmproxy.options import CONF_DIR

from vtc.proxy.address import Address
from vtc.proxy.address import parse_upstream as address_of
from vtc.proxy.asker import Asker, ServerAnswer
from vtc.proxy.ownership import NONCE_HEADER, is_proof, make_nonce

STATUS_PATH = "/.vtc"
SERVICE_NAME = "vtc"
"""The `name` by which its answer is known."""
CLAIMS = ("version", "mode", "upstream", "log")
"""The fields of its answer that its proof covers."""


class ProxyStatus(NamedTuple):
    """A VTC that listens, and the model server that it stands before."""

    version: str
    mode: str
    upstream: str
    log: str
    """The file with a line for each exchange, for programs of its machine; empty if there is none."""
    is_own: bool = False
    """True if it proved that its user is that of this program; all else is what any listener may say."""

    def is_before(self, server: str) -> bool:
        """True if it stands before the server of this URL, as far as URLs show it."""
        here, there = (
            [(Address(*pair).is_loopback or pair[0], pair[1]) for pair in address_of(url)]
            for url in (self.upstream, server)
        )
        return here == there


def format_ownership_fault(confdir: str = CONF_DIR) -> str:
    """Say that a listener is not known to be of this user, and why."""
    return f"it does not prove that it is yours (by the key in {confdir})"


def request_status(asker: Asker, confdir: str = CONF_DIR) -> tuple[ProxyStatus | None, ServerAnswer]:
    """Ask what listens whether it is VTC before a model server; None if it is not, and what it answered.

    `confdir` is the folder whose key proves that it is a VTC of this user.
    """
    nonce = make_nonce()
    answer = asker.ask(STATUS_PATH, headers={NONCE_HEADER: nonce})
    value = answer.json
    if not isinstance(value, dict) or value.get("name") != SERVICE_NAME:
        return None, answer
    claims = [str(value.get(key) or "") for key in CLAIMS]
    is_own = is_proof(str(value.get("proof")), confdir, nonce, answer.peer, claims)
    version, mode, upstream, log = claims
    return ProxyStatus(version, mode, upstream, log, is_own), answer
