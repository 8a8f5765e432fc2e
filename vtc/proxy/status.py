"""Ask what listens whether it is VTC, and before which model server: `GET /.vtc`."""

from __future__ import annotations

from typing import NamedTuple

from vtc.proxy.address import Address
from vtc.proxy.address import upstream as address_of
from vtc.proxy.asker import Asker, ServerAnswer

PATH = "/.vtc"
NAME = "vtc"
"""The `name` by which its answer is known."""


class ProxyStatus(NamedTuple):
    """A VTC that listens, and the model server that it stands before."""

    version: str
    mode: str
    upstream: str
    log: str
    """The file with a line for each exchange, for programs of its machine; empty if there is none."""

    def is_before(self, server: str) -> bool:
        """True if it stands before the server of this URL, as far as URLs show it."""
        here, there = (
            [(Address(*pair).is_loopback or pair[0], pair[1]) for pair in address_of(url)]
            for url in (self.upstream, server)
        )
        return here == there


def status_of(asker: Asker) -> tuple[ProxyStatus | None, ServerAnswer]:
    """Ask what listens whether it is VTC before a model server; None if it is not, and what it answered."""
    answer = asker.ask(PATH)
    value = answer.json
    if not isinstance(value, dict) or value.get("name") != NAME:
        return None, answer
    return ProxyStatus(*(str(value.get(key) or "") for key in ProxyStatus._fields)), answer
