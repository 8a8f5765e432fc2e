"""Search a text for repetitions, as a reply of which they are a part is searched."""

from __future__ import annotations

from vtc.exchange.replying.repeats import MIN_CHARACTERS, STEP_CHARACTERS, RepeatGuard
from vtc.reporting.report import Report

__all__ = ["MIN_CHARACTERS", "STEP_CHARACTERS", "find_repetition"]


def find_repetition(text: str, size: int = 0) -> list[str]:
    """Return the notes about a text that arrives in pieces of a size; whole if it is 0."""
    report, messages = Report(), list[str]()
    detector = RepeatGuard(report, messages.append).text
    for at in range(0, len(text), size or len(text) or 1):
        detector.write(text[at : at + (size or len(text))])
        if detector.tell() >= STEP_CHARACTERS:
            detector.check()
    return report.notes
