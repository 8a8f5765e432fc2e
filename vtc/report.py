"""What was done to one exchange, for people to read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    """What VTC did to one exchange, for people to read; `as_dict` is plain data."""

    client: str = ""
    model: str = ""
    form: str = "tool_calls"
    """What calls become: `tool_calls`, or the dialect of a client that reads text."""
    why: list[str] = field(default_factory=list)
    request: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def repaired(self) -> int:
        return sum(bool(call["repairs"]) for call in self.calls)

    def summary(self) -> str:
        """`vtc: qwen3-coder -> tool_calls, 2 calls, 1 repaired`; empty when nothing was done."""
        parts = []
        if self.calls:
            count = len(self.calls)
            dialects = ", ".join(dict.fromkeys(call["dialect"] for call in self.calls))
            parts.append(f"{dialects} -> {self.form}, {count} call{'s' * (count > 1)}")
        if self.repaired:
            repairs = dict.fromkeys(repair for call in self.calls for repair in call["repairs"])
            recovered = f"recovered {self.repaired} call{'s' * (self.repaired > 1)}: {', '.join(repairs)}"
            parts.append(f"{self.repaired} repaired ({recovered})")
        if self.refusals:
            parts.append(f"{len(self.refusals)} left as text ({self.refusals[0]['reason']})")
        parts = [*parts, *(f"failed open: {failure}" for failure in self.failures), *self.request]
        return "vtc: " + ", ".join(parts) if parts else ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
