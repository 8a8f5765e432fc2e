"""The display of outcomes, on the page `/vtc` and in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    """The display of an outcome: a sign and a word in addition to the color (`tone`), for people who cannot see it."""

    sign: str
    word: str
    tone: str


OUTCOMES: Mapping[str, Look] = {
    "failed": Look("✱", "error in VTC", "bad"),
    "error": Look("✕", "server error", "bad"),
    "denied": Look("⊘", "denied", "warn"),
    "refused": Look("△", "left as text", "warn"),
    "unread": Look("?", "unread", "warn"),
    "repaired": Look("✚", "repaired", "mended"),
    "rewritten": Look("✓", "rewritten", "good"),
    "": Look("○", "unchanged", "quiet"),
    "left alone": Look("–", "left alone", "quiet"),
    "under way": Look("…", "under way", "quiet"),
}
"""Display by the outcome of a report, the most serious first."""
UNDER_WAY, LEFT_ALONE = "under way", "left alone"
