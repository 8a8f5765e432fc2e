"""What the page `/vtc` lists: the exchanges that mitmweb has, chosen by outcome, model and client, some at a time.

Nothing is kept but what was read out of a flow once, as long as the flow is there: a page looks through thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from mitmproxy import http
from mitmproxy.addons.view import View

from vtc.proxy import flows
from vtc.reporting.picture import Sample
from vtc.reporting.report import count

MOST = 100
"""Exchanges that are listed at once, the latest first."""
CHOICES = ("outcome", "model", "client")
"""What they are chosen by."""


class Look(NamedTuple):
    """How an outcome is shown: never by its colour alone."""

    sign: str
    word: str
    tone: str


OUTCOMES: Mapping[str, Look] = {
    "failed": Look("✱", "failed open", "bad"),
    "error": Look("✕", "server error", "bad"),
    "denied": Look("⊘", "denied", "warn"),
    "refused": Look("△", "left as text", "warn"),
    "repaired": Look("✚", "repaired", "mended"),
    "rewritten": Look("✓", "rewritten", "good"),
    "": Look("○", "unchanged", "quiet"),
    "left alone": Look("–", "left alone", "quiet"),
    "under way": Look("…", "under way", "quiet"),
}
"""By the outcome of a report, the most serious first."""
UNCHANGED = "unchanged"
"""How the empty outcome is written in an address."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One row of the list."""

    id: str
    at: float
    """Seconds since the epoch."""
    outcome: str
    model: str
    """As the request names it."""
    client: str
    happened: str
    sample: Sample
    """Of the picture."""

    @property
    def look(self) -> Look:
        return OUTCOMES[self.outcome]


class Choice(NamedTuple):
    """A value to choose, how many exchanges have it, and the address that chooses it."""

    name: str
    value: str
    exchanges: int
    address: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an address asks for; empty texts stand for all."""

    outcome: str = ""
    model: str = ""
    client: str = ""
    start: int = 0
    """Exchanges before the first that is listed."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Chosen:
        """Read an address; what means nothing in it chooses nothing."""
        start = query.get("from", "")
        values = {name: query.get(name, "") for name in CHOICES}
        return cls(**values, start=int(start) if _is_number(start) else 0)

    def address(self, **changed: str) -> str:
        """The address of the page with another choice, from its first row on, unless `from` says otherwise."""
        said = {name: changed.get(name, getattr(self, name)) for name in CHOICES} | {"from": changed.get("from", "")}
        query = urlencode({name: value for name, value in said.items() if value})
        return f"/vtc?{query}" if query else "/vtc"

    def is_among(self, one: Exchange) -> bool:
        """True for an exchange of the model and the client that are chosen."""
        return self.model in ("", one.model) and self.client in ("", one.client)

    def fits(self, one: Exchange) -> bool:
        """True for an exchange that is chosen."""
        return self.is_among(one) and self.outcome in ("", one.outcome or UNCHANGED)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


class Listing:
    """Reads exchanges out of mitmweb's flows."""

    def __init__(self) -> None:
        self._read: WeakKeyDictionary[http.HTTPFlow, tuple[object, str, Exchange]] = WeakKeyDictionary()
        """Those that are over, beside the report and the comment that they were read from."""

    def every(self, view: View) -> list[Exchange]:
        """All that are exchanges with a model, the latest first."""
        found = (self._exchange(flow) for flow in reversed(view) if isinstance(flow, http.HTTPFlow))
        return [one for one in found if one]

    def _exchange(self, flow: http.HTTPFlow) -> Exchange | None:
        report = flows.report(flow)
        if report is None:
            return about(flow) if flows.api(flow) else None
        known = self._read.get(flow)
        if known is None or known[0] is not report or known[1] != flow.comment:
            known = self._read[flow] = report, flow.comment, about(flow)
        return known[2]


def about(flow: http.HTTPFlow) -> Exchange:
    """One exchange, under way or over."""
    report = flows.report(flow) or {}
    under_way = flow.live and not report
    outcome = "under way" if under_way else str(report.get("outcome", ""))
    outcome = outcome if outcome in OUTCOMES else ""
    at = flow.request.timestamp_start
    return Exchange(
        id=flow.id,
        at=at,
        outcome=outcome,
        model=report.get("asked", "") or (_model(flow) if under_way else ""),
        client=report.get("client", ""),
        happened=flows.happened(flow) or ("under way" if under_way else flows.NOTHING),
        sample=_sample(at, OUTCOMES[outcome].tone, report),
    )


def _sample(at: float, tone: str, report: Mapping[str, Any]) -> Sample:
    calls, prefix = report.get("calls", ()), report.get("prefix") or {"chars": 0, "chars_of": 0}
    repaired = count(call for call in calls if call["repairs"])
    return Sample(
        at=at,
        tone=tone,
        made=count(calls) - repaired,
        repaired=repaired,
        refused=count(report.get("refusals", ())),
        kept=prefix["chars"],
        lost=max(0, prefix["chars_of"] - prefix["chars"]),
        seconds=report.get("seconds", 0.0),
    )


def _model(flow: http.HTTPFlow) -> str:
    """The model that is asked; empty if the request does not say."""
    api, bodies = flows.server_api(flow), flows.bodies(flow, "request")
    try:
        return api.request(bodies.went, flow.request.path).model if api and bodies else ""
    except ValueError:
        return ""


def outcomes(every: Sequence[Exchange], chosen: Chosen) -> Iterator[Choice]:
    """All outcomes together, then those there are, counted among what else is chosen."""
    fitting = [one for one in every if chosen.is_among(one)]
    yield Choice("", "", len(fitting), chosen.address(outcome=""), not chosen.outcome)
    counts = Counter(one.outcome for one in fitting)
    for outcome in OUTCOMES:
        value = outcome or UNCHANGED
        if counts[outcome] or value == chosen.outcome:
            yield Choice(outcome, value, counts[outcome], chosen.address(outcome=value), value == chosen.outcome)


def values(every: Iterable[Exchange], name: str, chosen: Chosen) -> list[Choice]:
    """The models or clients there are, by name."""
    counts = Counter(getattr(one, name) for one in every)
    counts.setdefault(getattr(chosen, name), 0)
    return [
        Choice(value, value, number, chosen.address(**{name: value}), value == getattr(chosen, name))
        for value, number in sorted(counts.items())
        if value
    ]
