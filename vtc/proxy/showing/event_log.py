"""Write the log for people: one line per exchange.

The line only counts the changes of the request. An agent's requests are changed in the same way in each turn, so the
changes are listed once for each client and model, in a separate line. So is the profile of each model.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from mitmproxy import http

from vtc.profiles.plan import Plan
from vtc.proxy import flows
from vtc.reporting.report import Report, list_changes
from vtc.scrub import escape_invisible, scrub_text

logger = logging.getLogger(__name__)

LEVELS = {"error": logging.ERROR, **dict.fromkeys(("failed", "refused", "unread", "denied"), logging.WARNING)}
"""Log level by outcome; mitmproxy colours the lines. The traceback of a fault is in another record."""
MAX_KNOWN_FACTS = 1 << 14
"""Maximum number of remembered changes and models; beyond it all are forgotten and logged once more."""
_COUNT = re.compile(r"(?<!\d)\d++ (\w+?)s?\b")
"""Matches a number and its noun. A line that differs only in its number is no new change."""


class EventLog:
    """Writes the lines, and remembers which changes were logged."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        """Hashes of logged changes with client and model, and of logged models; hashes, because changes contain names
        of tools."""

    def write_model(self, flow: http.HTTPFlow, report: Report, plan: Plan) -> None:
        """Write a line about the profile of a model, at the first exchange with it at a server."""
        model, request = report.parties.server_model or report.parties.asked, flow.request
        if self._record([hash((request.pretty_host, request.port, model))]):
            line = f"model {model or '(not named)'} at {request.pretty_host}:{request.port}: {plan.model_line}"
            logger.info("vtc: %s", escape_invisible(scrub_text(line, report.secrets)))

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
        if new := self._record(keys):
            lines = "; ".join(keys[key] for key in keys if key in new)
            logger.info("vtc: changes of requests from %s to %s (later only counted): %s", client, model, lines)

    def _record(self, keys: Collection[int]) -> set[int]:
        """Record hashes, and return the new ones."""
        new = {*keys} - self._known
        if len(self._known) > MAX_KNOWN_FACTS:
            self._known.clear()
        self._known.update(new)
        return new
