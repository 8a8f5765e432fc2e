"""What the addon did so far, by model: exchanges, calls, repairs by name, refusals, failures, time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vtc.report import Report


@dataclass(slots=True)
class Figures:
    """Counts of one model, or of all together."""

    exchanges: int = 0
    calls: int = 0
    repaired: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Time spent in VTC."""
    repairs: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report, seconds: float) -> None:
        self.exchanges += 1
        self.calls += len(report.calls)
        self.repaired += report.repaired
        self.refused += len(report.refusals)
        self.failed += len(report.failures)
        self.seconds += seconds
        for call in report.calls:
            self.repairs.update(repair.partition(":")[0] for repair in call["repairs"])
        for entry in report.policies:
            self.policies[f"{entry['policy']} {entry['action']}"] += entry["count"]

    def as_dict(self) -> dict[str, Any]:
        read = self.calls + self.refused
        return {
            "exchanges": self.exchanges,
            "calls": self.calls,
            "repaired": self.repaired,
            "refused": self.refused,
            "failed": self.failed,
            "success_rate": round(self.calls / read, 4) if read else None,
            "seconds": round(self.seconds, 6),
            "repairs": dict(self.repairs.most_common()),
            "policies": dict(self.policies.most_common()),
        }


class Stats:
    """Figures by model profile."""

    def __init__(self) -> None:
        self._models: dict[str, Figures] = {}

    def add(self, report: Report, seconds: float) -> None:
        self._models.setdefault(report.model, Figures()).add(report, seconds)

    def as_dict(self) -> Mapping[str, Any]:
        """Plain data: model profile -> its figures."""
        return {model: figures.as_dict() for model, figures in sorted(self._models.items())}

    def summary(self) -> str:
        """A line for each model; empty when nothing happened."""
        return "\n".join(
            f"vtc: {model}: {figures.exchanges} exchanges, {figures.calls} calls ({figures.repaired} repaired), "
            f"{figures.refused} left as text, {figures.failed} failed open"
            for model, figures in sorted(self._models.items())
        )
