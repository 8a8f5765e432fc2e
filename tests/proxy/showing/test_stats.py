"""Statistics by client, model and dialect."""

from __future__ import annotations

import json
from typing import Any

from vtc.proxy.showing.stats import Stats
from vtc.reporting import Measures, Parties, Report


def call(*repairs: str, dialect: str = "tag") -> dict[str, object]:
    return {"name": "n", "id": "i", "dialect": dialect, "repairs": list(repairs)}


def count_reports(*reports: Report) -> Stats:
    stats = Stats()
    for report in reports:
        stats.add(report.as_dict())
    return stats


REFUSAL = {"reason": "r", "dialect": "hermes", "name": "n", "excerpt": "x"}
SIZES = {"request_came": 1, "request_went": 2, "reply_came": 3, "reply_went": 4}
B = [
    Report(
        Parties(client="c", model="b"), calls=[call("untyped:x", "json-cut"), call()], measures=Measures(SIZES, 0.25)
    ),
    Report(
        Parties(client="d", model="b"),
        calls=[call("untyped:y")],
        refusals=[REFUSAL],
        failures=["f"],
        unread={"tool": "n", "begins": "@@n(", "text": "@@n(", "advice": ""},
        measures=Measures(seconds=0.5, elapsed=2),
    ),
]


def test_nothing_yet() -> None:
    found = Stats().as_dict()
    assert (found["clients"], found["models"], found["dialects"], [*Stats().summarize()]) == ({}, {}, {}, [])
    assert found["total"]["exchanges"] == 0
    assert found["total"]["success_rate"] is None


def test_figures_add_up_by_model() -> None:
    """Repairs are counted by name, without their details."""
    found = json.loads(
        json.dumps(
            count_reports(*B, Report(Parties(client="c", model="a"), measures=Measures(seconds=0.125))).as_dict()
        )
    )
    expected: dict[str, Any] = {
        "exchanges": 2,
        "calls": 3,
        "repaired": 2,
        "refused": 1,
        "success_rate": 0.75,
        "repairs": {"untyped": 2, "json-cut": 1},
        "unread": 1,
        "failed": 1,
        "errors": 0,
        "policies": {},
        "turns": 0,
        "broken_prefixes": 0,
        "prompt_kept": None,
        "bytes": {"reply_came": 3, "reply_went": 4, "request_came": 1, "request_went": 2},
        "seconds": 0.75,
        "elapsed": 2.0,
    }
    assert found["models"]["b"] == expected
    assert {**found["total"], "exchanges": 2, "seconds": 0.75} == expected
    assert (found["total"]["exchanges"], found["total"]["seconds"]) == (3, 0.875)
    assert found["models"]["a"]["exchanges"] == 1


def test_figures_add_up_by_client_and_by_dialect() -> None:
    found = count_reports(*B).as_dict()
    assert {name: one["calls"] for name, one in found["clients"].items()} == {"c": 2, "d": 1}
    assert {name: (one["calls"], one["refused"]) for name, one in found["dialects"].items()} == {
        "hermes": (0, 1),
        "tag": (3, 0),
    }


def test_policies_are_counted_by_name_and_action() -> None:
    report = Report(Parties(client="c", model="m"))
    for action in ("refused", "refused", "stopped"):
        report.record_intervention("reactors.no-rm", action, "bash", "no")
    found = count_reports(report).as_dict()["total"]["policies"]
    assert found == {"reactors.no-rm refused": 2, "reactors.no-rm stopped": 1}


def test_a_report_without_figures_is_counted() -> None:
    """A saved flow of an older version has such a report."""
    stats = Stats()
    stats.add({"client": "c", "model": "m"})
    assert stats.as_dict()["total"]["exchanges"] == 1


def test_a_line_for_each() -> None:
    assert [*count_reports(*B).summarize()] == [
        "vtc: client c: 1 exchange, 2 calls (1 repaired), 0 left as text, 0 unread, 0 errors in VTC, "
        "0 server errors, 5 bytes, 250 ms in VTC",
        "vtc: client d: 1 exchange, 1 call (1 repaired), 1 left as text, 1 unread, 1 error in VTC, "
        "0 server errors, 0 bytes, 500 ms in VTC",
        "vtc: model b: 2 exchanges, 3 calls (2 repaired), 1 left as text, 1 unread, 1 error in VTC, "
        "0 server errors, 5 bytes, 750 ms in VTC",
        "vtc: dialect hermes: 0 calls (0 repaired), 1 left as text",
        "vtc: dialect tag: 3 calls (2 repaired), 0 left as text",
    ]


def test_prefixes_are_counted_by_turn_and_by_character() -> None:
    kept = {"kept": 3, "of": 4, "chars": 900, "chars_of": 900}
    broken = {**kept, "chars": 100, "what": "system", "how": "changed", "at": 100, "before": "a", "now": "b"}
    reports = [Report(Parties(client="c", model="a"), prefix=one) for one in ({}, kept, broken)]
    found = count_reports(*reports)
    assert (found.total.turns, found.total.broken, found.total.prompt_kept) == (2, 1, 0.5556)
    assert found.total.summarize().endswith("ms in VTC, prompt cache usable: 56% (2 turns, broken in 1)")


def make_report(name: str, profile: str = "unknown") -> Report:
    return Report(Parties(client="c", model=profile, asked=name))


def test_a_model_without_a_profile_is_counted_by_the_name_that_was_asked() -> None:
    stats = count_reports(
        make_report("mine:7b"), make_report("mine:7b"), make_report(""), make_report("qwen3:8b", "qwen3")
    )
    assert {name: figures.exchanges for name, figures in stats.models.items()} == {
        "mine:7b": 2,
        "qwen3": 1,
        "unknown": 1,
    }
    assert stats.has_model("mine:7b")


def test_clients_cannot_make_up_names_without_end() -> None:
    """Each name is a label of a metric, and stays in memory."""
    names = [f"{number}{'x' * 100}" for number in range(150)]
    stats = count_reports(*map(make_report, names), make_report(names[0]), make_report("qwen3:8b", "qwen3"))
    assert len(stats.models) == 102
    assert stats.models["(others)"].exchanges == 50
    assert max(map(len, stats.models)) == 64
    assert stats.models["qwen3"].exchanges == 1
