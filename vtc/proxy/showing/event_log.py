"""Write the log for people: one line per exchange.

The line only counts the changes of the request. An agent's requests are changed in the same way in each turn, so the
changes are listed once for each client and model, in a separate line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mitmproxy import http

from vtc.proxy import flows
from vtc.reporting.report import list_changes

logger = logging.getLogger(__name__)

LEVELS = {"error": logging.ERROR, **dict.fromkeys(("failed", "refused", "unread", "denied"), logging.WARNING)}
"""Log level by outcome; mitmproxy colours the lines. The traceback of a fault is in another record."""
MAX_KNOWN_CHANGES = 1 << 14
"""Maximum number of remembered changes; beyond it all are forgotten and logged once more."""
_COUNT = re.compile(r"(?<!\d)\d++ (\w+?)s?\b")
"""Matches a number and its noun. A line that differs only in its number is no new change."""


class EventLog:
    """Writes the lines, and remembers which changes were logged."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        """Hashes of logged changes with client and model; hashes, because changes contain names of tools."""

    def write(self, flow: http.HTTPFlow, report: Mapping[str, Any], summary: str, outcome: str) -> None:
        """Write the line of an exchange, preceded by any new changes of its request."""
        asked, changes = str(report.get("asked", "")), report.get("request", ())
        if not list_changes(changes):  # otherwise the summary itself lists the changes
            self._write_changes(str(report.get("client", "")), asked, changes)
        server_model = str(report.get("server_model", ""))
        model = f"{asked} at " if asked else ""
        if asked and server_model:
            model = f"{asked} -> {server_model} at "
        level = LEVELS.get(outcome, logging.INFO)
        logger.log(level, "%s - %s%s%s", summary, model, flow.request.pretty_host, flows.format_path(flow))

    def _write_changes(self, client: str, model: str, changes: Sequence[str]) -> None:
        keys = {hash((client, model, _COUNT.sub(r"\1", change))): change for change in changes}
        if new := [change for key, change in keys.items() if key not in self._known]:
            if len(self._known) > MAX_KNOWN_CHANGES:
                self._known.clear()
            self._known.update(keys)
            logger.info(
                "vtc: changes of requests from %s to %s (later only counted): %s", client, model, "; ".join(new)
            )
