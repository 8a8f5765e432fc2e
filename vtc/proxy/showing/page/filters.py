"""The filter of the list, as the query of a URL, and the values that it can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlencode

from vtc.proxy.showing.page.rows import ExchangeRow
from vtc.reporting import OUTCOMES

CHOICE_COLUMNS = ("outcome", "model", "client")
"""The columns by which exchanges are filtered."""
UNCHANGED = "unchanged"
"""The empty outcome in a URL."""


class FilterOption(NamedTuple):
    """A value of a filter, with the number of its exchanges and the URL that selects it."""

    name: str
    value: str
    exchanges: int
    address: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The filter of a URL; empty strings select all."""

    outcome: str = ""
    model: str = ""
    client: str = ""
    start: int = 0
    """Number of exchanges before the first one on the page."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListFilter:
        """Parse the query of a URL; unknown parameters are ignored."""
        start = query.get("from", "")
        values = {name: query.get(name, "") for name in CHOICE_COLUMNS}
        return cls(**values, start=int(start) if _is_number(start) else 0)

    def build_address(self, **changed: str) -> str:
        """Build the URL of the page with a changed filter, from the first row unless `from` is given."""
        values = {name: changed.get(name, getattr(self, name)) for name in CHOICE_COLUMNS} | {
            "from": changed.get("from", "")
        }
        query = urlencode({name: value for name, value in values.items() if value})
        return f"/vtc?{query}" if query else "/vtc"

    def matches_parties(self, row: ExchangeRow) -> bool:
        """True if an exchange matches the model and the client of the filter."""
        return self.model in ("", row.model) and self.client in ("", row.client)

    def matches(self, row: ExchangeRow) -> bool:
        """True if an exchange matches the filter."""
        return self.matches_parties(row) and self.outcome in ("", row.outcome or UNCHANGED)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def list_outcomes(rows: Sequence[ExchangeRow], chosen: ListFilter) -> Iterator[FilterOption]:
    """List the filter for all outcomes, then one per outcome, counted among exchanges that match the other filters.

    The first counts finished exchanges only, because a running one has no outcome yet.
    """
    matching = [row for row in rows if chosen.matches_parties(row)]
    yield FilterOption(
        "", "", sum(row.has_ended for row in matching), chosen.build_address(outcome=""), not chosen.outcome
    )
    counts = Counter(row.outcome for row in matching)
    for outcome in OUTCOMES:
        value = outcome or UNCHANGED
        if counts[outcome] or value == chosen.outcome:
            yield FilterOption(
                outcome, value, counts[outcome], chosen.build_address(outcome=value), value == chosen.outcome
            )


def list_values(rows: Iterable[ExchangeRow], name: str, chosen: ListFilter) -> list[FilterOption]:
    """List the models or clients, sorted by name."""
    counts = Counter(getattr(row, name) for row in rows if row.has_ended)
    counts.setdefault(getattr(chosen, name), 0)
    return [
        FilterOption(value, value, number, chosen.build_address(**{name: value}), value == getattr(chosen, name))
        for value, number in sorted(counts.items())
        if value
    ]
