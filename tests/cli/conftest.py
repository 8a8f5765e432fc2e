"""What the tests of the command line share with those that take exchanges through a whole proxy."""

from __future__ import annotations

from tests.e2e.conftest import confdir

__all__ = ["confdir"]
