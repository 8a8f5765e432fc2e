"""What was done to one exchange, for people to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from vtc.scrub import scrub, scrubbed

type Outcome = Literal["failed", "error", "denied", "refused", "repaired", "rewritten", ""]

DENYING = ("refused", "stopped", "dropped", "exhausted")
"""What policies do that leaves a call, or a whole request, undone."""

MOST_NAMES = 4
"""Names of tools that a summary has."""


@dataclass(slots=True)
class Report:
    """What VTC did to one exchange, for people to read; `as_dict` is plain data."""

    client: str = ""
    model: str = ""
    """The model profile's name."""
    asked: str = ""
    """The model's name in the request."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the user's options set, where that is not the default."""
    form: str = "tool_calls"
    """What calls become: `tool_calls`, or the dialect of a client that reads text."""
    why: list[str] = field(default_factory=list)
    request: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    refusals: list[dict[str, str]] = field(default_factory=list)
    policies: list[dict[str, Any]] = field(default_factory=list)
    """What policies did: `{"policy": "denied_tools", "action": "refused", "tool": "bash", "reason": …, "count": 1}`."""
    failures: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What came in the place of a reply, and what that means."""
    unread: str = ""
    """What looks like a call in no dialect that is read, where nothing else was found."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of `request_came`, `request_went`, `reply_came` and `reply_went`, decoded, as far as they were seen."""
    seconds: float = 0.0
    """Time spent in VTC."""
    elapsed: float = 0.0
    """Seconds from the request's first byte to the reply's last."""

    @property
    def outcome(self) -> Outcome:
        """The one word for what was done, the most serious first; empty when nothing was."""
        actions = {entry["action"] for entry in self.policies}
        if self.failures or "failed" in actions:
            return "failed"
        if self.errors:
            return "error"
        if actions.intersection(DENYING):
            return "denied"
        if self.refusals or self.unread:
            return "refused"
        if self.repaired:
            return "repaired"
        return "rewritten" if self.calls or self.request or self.policies else ""

    @property
    def repaired(self) -> int:
        return sum(bool(call["repairs"]) for call in self.calls)

    def intervened(self, policy: str, action: str, tool: str = "", reason: str = "") -> None:
        """Note what a policy did; what it did before is counted."""
        entry = {"policy": policy, "action": action, "tool": tool, "reason": reason}
        for known in self.policies:
            if entry.items() <= known.items():
                known["count"] += 1
                return
        self.policies.append({**entry, "count": 1})

    def adopt(self, reply: Report) -> None:
        """Take over what was done to a reply."""
        self.calls += reply.calls
        self.refusals += reply.refusals
        self.failures += reply.failures
        for entry in reply.policies:
            self.policies.append(entry)

    def summary(self) -> str:
        """`vtc: read x2, 1 repaired (json-cut), hermes -> tool_calls`; empty when nothing was done.

        First what differs from one exchange to the next: a list of flows shows the beginning.
        """
        parts = []
        if self.calls:
            names = Counter(call["name"] for call in self.calls)
            parts += [f"{name} x{count}" if count > 1 else name for name, count in names.items()]
            if len(parts) > MOST_NAMES:
                parts[MOST_NAMES:] = [f"{len(parts) - MOST_NAMES} more"]
        if self.repaired:
            repairs = dict.fromkeys(repair.partition(":")[0] for call in self.calls for repair in call["repairs"])
            parts.append(f"{self.repaired} repaired ({', '.join(repairs)})")
        if self.refusals:
            parts.append(f"{len(self.refusals)} left as text ({self.refusals[0]['reason']})")
        for entry in self.policies:
            times = f" {entry['count']} times" if entry["count"] > 1 else ""
            of = f" {entry['tool']}" if entry["tool"] else ""
            parts.append(f"{entry['policy']} {entry['action']}{of}{times} ({entry['reason']})")
        parts += [f"a possible call was not read: {self.unread}"] if self.unread else []
        parts += [f"failed open: {failure}" for failure in self.failures]
        parts += self.errors
        if self.calls:
            parts.append(f"{', '.join(dict.fromkeys(call['dialect'] for call in self.calls))} -> {self.form}")
        parts += self.request
        return scrub("vtc: " + ", ".join(parts)) if parts else ""

    def as_dict(self, known: Iterable[str] = ()) -> dict[str, Any]:
        """Scrubbed of secrets, those `known` among them: an excerpt is the model's text."""
        return scrubbed({one.name: getattr(self, one.name) for one in fields(self)}, known)
