"""Fixtures of the tests of the command line, some of which the end-to-end tests define."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import confdir, server_tls
from vtc.cli import local_servers

__all__ = ["confdir", "server_tls"]

type UsualPorts = Callable[..., None]


@pytest.fixture(autouse=True)
def usual_ports(monkeypatch: pytest.MonkeyPatch) -> UsualPorts:
    """Return a function that sets the usual ports of model servers; there are none unless a test sets them."""
    monkeypatch.setattr(local_servers, "USUAL_PORTS", ())
    return lambda *ports: monkeypatch.setattr(local_servers, "USUAL_PORTS", ports)
