"""What the tests of the command line share with those that take exchanges through a whole proxy."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import confdir, server_tls
from vtc.cli import local_servers

__all__ = ["confdir", "server_tls"]

type UsualPorts = Callable[..., None]


@pytest.fixture(autouse=True)
def usual_ports(monkeypatch: pytest.MonkeyPatch) -> UsualPorts:
    """Say at which ports of this machine model servers are looked for; at none, unless a test says so."""
    monkeypatch.setattr(local_servers, "USUAL_PORTS", ())
    return lambda *ports: monkeypatch.setattr(local_servers, "USUAL_PORTS", ports)
