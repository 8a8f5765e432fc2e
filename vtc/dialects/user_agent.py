"""Recognize clients that parse calls from the text by their User-Agent."""

from __future__ import annotations

from collections.abc import Iterable

CLIENT_PATTERNS = ("cline", "kilo", "roo")
"""Parts of the user agents of clients that read calls out of the text if they declare no tools."""


def find_agent_pattern(agent: str, patterns: Iterable[str]) -> str | None:
    """Return the first pattern that a User-Agent contains, ignoring case; None if it contains none."""
    return next((pattern for pattern in patterns if pattern and pattern.casefold() in agent.casefold()), None)
