"""Fixtures that tests of the addon share with end-to-end tests."""

from __future__ import annotations

from tests.e2e.conftest import confdir, read_once, server_tls

__all__ = ["confdir", "read_once", "server_tls"]
