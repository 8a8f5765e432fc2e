"""What the addon did so far, by client, model and dialect: exchanges, calls, repairs by name, policies, bytes, time.

Counts reports as the plain data that they are kept as, so that a log of them (`vtc_log`) can be counted as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

type Report = Mapping[str, Any]


def counted(count: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{count} {noun}{'s' * (count != 1)}"


@dataclass(slots=True)
class Calls:
    """Counts of calls: those made and those that stayed text."""

    calls: int = 0
    repaired: int = 0
    refused: int = 0
    repairs: Counter[str] = field(default_factory=Counter)
    """By name, without what was repaired."""

    def called(self, call: Mapping[str, Any]) -> None:
        times = call.get("count", 1)
        self.calls += times
        self.repaired += times * bool(call["repairs"])
        for repair in call["repairs"]:
            self.repairs[repair.partition(":")[0]] += times

    def as_dict(self) -> dict[str, Any]:
        read = self.calls + self.refused
        return {
            "calls": self.calls,
            "repaired": self.repaired,
            "refused": self.refused,
            "success_rate": round(self.calls / read, 4) if read else None,
            "repairs": dict(self.repairs.most_common()),
        }

    def summary(self) -> str:
        return f"{counted(self.calls, 'call')} ({self.repaired} repaired), {self.refused} left as text"


@dataclass(slots=True)
class Figures(Calls):
    """Counts of exchanges and what was in them."""

    exchanges: int = 0
    failed: int = 0
    errors: int = 0
    """Of servers: statuses, errors in a stream, replies that broke off or were no JSON."""
    policies: Counter[str] = field(default_factory=Counter)
    """By policy and action: `denied_tools steer`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """Of requests and replies, as they came and as they went: `request_came`, …"""
    seconds: float = 0.0
    """Time spent in VTC."""
    elapsed: float = 0.0
    """Time from requests to the ends of their replies."""

    @property
    def traffic(self) -> int:
        """Bytes that clients sent and received."""
        return self.bytes["request_came"] + self.bytes["reply_went"]

    def add(self, report: Report) -> None:
        self.exchanges += 1
        for call in report.get("calls", ()):
            self.called(call)
        self.refused += sum(one.get("count", 1) for one in report.get("refusals", ()))
        self.failed += len(report.get("failures", ()))
        self.errors += len(report.get("errors", ()))
        for one in report.get("policies", ()):
            self.policies[f"{one['policy']} {one['action']}"] += one.get("count", 1)
        self.bytes.update(report.get("sizes", {}))
        self.seconds += report.get("seconds", 0.0)
        self.elapsed += report.get("elapsed", 0.0)

    @classmethod
    def together(cls, several: Iterable[Figures]) -> Self:
        total = cls()
        for one in several:
            total.calls += one.calls
            total.repaired += one.repaired
            total.refused += one.refused
            total.exchanges += one.exchanges
            total.failed += one.failed
            total.errors += one.errors
            total.seconds += one.seconds
            total.elapsed += one.elapsed
            for mine, theirs in (
                (total.repairs, one.repairs),
                (total.policies, one.policies),
                (total.bytes, one.bytes),
            ):
                mine.update(theirs)
        return total

    def as_dict(self) -> dict[str, Any]:
        return {
            "exchanges": self.exchanges,
            **Calls.as_dict(self),
            "failed": self.failed,
            "errors": self.errors,
            "policies": dict(self.policies.most_common()),
            "bytes": dict(sorted(self.bytes.items())),
            "seconds": round(self.seconds, 6),
            "elapsed": round(self.elapsed, 3),
        }

    def summary(self) -> str:
        return (
            f"{counted(self.exchanges, 'exchange')}, {Calls.summary(self)}, {self.failed} failed open, "
            f"{counted(self.errors, 'server error')}, "
            f"{self.traffic:,} bytes, {self.seconds * 1e3:.0f} ms in VTC"
        )


class Stats:
    """Figures by client and model profile, and calls by dialect."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Figures] = {}
        """By client and model."""
        self.dialects: dict[str, Calls] = {}

    def add(self, report: Report) -> None:
        """Count the report of one exchange."""
        self.rows.setdefault((report["client"], report["model"]), Figures()).add(report)
        for call in report.get("calls", ()):
            self.dialects.setdefault(call["dialect"], Calls()).called(call)
        for refusal in report.get("refusals", ()):
            self.dialects.setdefault(refusal["dialect"], Calls()).refused += refusal.get("count", 1)

    def has(self, model: str) -> bool:
        """True if an exchange with a model profile was counted."""
        return any(row[1] == model for row in self.rows)

    @property
    def total(self) -> Figures:
        return Figures.together(self.rows.values())

    @property
    def clients(self) -> dict[str, Figures]:
        return self._by(0)

    @property
    def models(self) -> dict[str, Figures]:
        return self._by(1)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: `total`, and by name `clients`, `models` and `dialects`."""
        return {
            "total": self.total.as_dict(),
            "clients": {name: one.as_dict() for name, one in self.clients.items()},
            "models": {name: one.as_dict() for name, one in self.models.items()},
            "dialects": {name: one.as_dict() for name, one in sorted(self.dialects.items())},
        }

    def summary(self) -> Iterator[str]:
        """A line for each client, model and dialect; none when nothing happened."""
        for kind, figures in (("client", self.clients), ("model", self.models), ("dialect", self.dialects)):
            for name, one in sorted(figures.items()):
                yield f"vtc: {kind} {name}: {one.summary()}"

    def _by(self, place: int) -> dict[str, Figures]:
        names = sorted({row[place] for row in self.rows})
        return {name: Figures.together(one for row, one in self.rows.items() if row[place] == name) for name in names}
