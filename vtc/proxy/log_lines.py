"""The log for people: a line for each exchange.

How its request was changed is only counted there. An agent's requests are changed in the same way in each turn, so
that is written once for a client and a model, in a line of its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mitmproxy import http

from vtc.proxy import flows
from vtc.reporting.report import named_changes

logger = logging.getLogger(__name__)

LEVELS = {"error": logging.ERROR, **dict.fromkeys(("failed", "refused", "unread", "denied"), logging.WARNING)}
"""By outcome, of the line in the log, which mitmproxy colours; a fault has its trace beside it."""
MAX_KNOWN_CHANGES = 1 << 14
"""Changes that are known; after them all are written once more."""
_COUNT = re.compile(r"(?<!\d)\d++ (\w+?)s?\b")
"""A number and its noun: that a longer conversation has more of it is no other change."""


class LogLines:
    """Writes the lines."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        """Hashes of changes that were written, with their client and model: there are names of tools in them."""

    def write(self, flow: http.HTTPFlow, report: Mapping[str, Any], summary: str, outcome: str) -> None:
        """Write the line of an exchange, and before it what is new of how its request was changed."""
        asked, changes = str(report.get("asked", "")), report.get("request", ())
        if not named_changes(changes):  # else the line has them
            self._write_changes(str(report.get("client", "")), asked, changes)
        to = str(report.get("server_model", ""))
        model = f"{asked}{f' -> {to}' if to else ''} at " if asked else ""
        level = LEVELS.get(outcome, logging.INFO)
        logger.log(level, "%s - %s%s%s", summary, model, flow.request.pretty_host, flows.format_path(flow))

    def _write_changes(self, client: str, model: str, changes: Sequence[str]) -> None:
        keys = {hash((client, model, _COUNT.sub(r"\1", change))): change for change in changes}
        if new := [change for key, change in keys.items() if key not in self._known]:
            if len(self._known) > MAX_KNOWN_CHANGES:
                self._known.clear()
            self._known.update(keys)
            logger.info("vtc: changes of requests of %s to %s, from now on counted: %s", client, model, "; ".join(new))
