"""Figures by model."""

from __future__ import annotations

import json

from vtc.proxy.stats import Stats
from vtc.report import Report


def call(*repairs: str) -> dict[str, object]:
    return {"name": "n", "id": "i", "dialect": "tag", "repairs": list(repairs)}


def test_nothing_yet() -> None:
    assert (Stats().as_dict(), Stats().summary()) == ({}, "")


def test_figures_add_up_by_model() -> None:
    """B11: success and repairs, by the repair's name without what it was done to."""
    stats = Stats()
    report = Report(model="b", calls=[call(), call("untyped:x", "json-cut")])
    for _ in range(2):
        report.intervened("reactors.no-rm", "refused", "bash", "no")
    stats.add(report, 0.25)
    stats.add(Report(model="b", calls=[call("untyped:y")], refusals=[{"reason": "r"}], failures=["f"]), 0.5)
    stats.add(Report(model="a"), 0.125)
    assert json.loads(json.dumps(stats.as_dict())) == {
        "a": {
            "exchanges": 1,
            "calls": 0,
            "repaired": 0,
            "refused": 0,
            "failed": 0,
            "success_rate": None,
            "seconds": 0.125,
            "repairs": {},
            "policies": {},
        },
        "b": {
            "exchanges": 2,
            "calls": 3,
            "repaired": 2,
            "refused": 1,
            "failed": 1,
            "success_rate": 0.75,
            "seconds": 0.75,
            "repairs": {"untyped": 2, "json-cut": 1},
            "policies": {"reactors.no-rm refused": 2},
        },
    }
    assert stats.summary().splitlines() == [
        "vtc: a: 1 exchanges, 0 calls (0 repaired), 0 left as text, 0 failed open",
        "vtc: b: 2 exchanges, 3 calls (2 repaired), 1 left as text, 1 failed open",
    ]
