"""What the tests of the addon share with those that take it through a whole proxy."""

from __future__ import annotations

from tests.e2e.conftest import confdir, read_once, server_tls

__all__ = ["confdir", "read_once", "server_tls"]
