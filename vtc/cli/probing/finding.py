"""One thing that a probe found out: the question, the answer, what shows it, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

type Outcome = Literal["works", "mended", "refused", "broken", "seen"]
"""`mended`: by VTC; `seen`: neither a pass nor a failure."""

WORDS: dict[Outcome, str] = {
    "works": "works",
    "mended": "mended by VTC",
    "refused": "refused",
    "broken": "broken",
    "seen": "seen",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one question."""

    question: str
    answer: str
    outcome: Outcome = "seen"
    evidence: str = ""
    advice: str = ""
    """The one thing to change, if there is one."""
