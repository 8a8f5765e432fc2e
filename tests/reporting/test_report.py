"""The report of one exchange, as a summary and as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtc.events import UnreadCall
from vtc.reporting import Parties, Report, count_entries, validate_report
from vtc.reporting.report import MAX_ENTRIES


def test_a_report_is_plain_data() -> None:
    report = Report(Parties(client="c", model="m"), calls=[{"name": "f", "repairs": []}])
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()


def test_unchanged_exchange_has_an_empty_report() -> None:
    assert Report(Parties(client="c", model="m"), why=["because"]).summarize() == ""


CALL = {"name": "f", "dialect": "tag", "repairs": []}
LONG = "x" * 65
REPAIRED = {**CALL, "repairs": ["missing-closer"]}
POLICY = {"policy": "denied_tools", "action": "refused", "tool": "f", "reason": "r", "count": 1}
REFUSAL = {"reason": "r", "dialect": "tag", "name": "f", "excerpt": "x"}


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, ""),
        ({"calls": [CALL]}, "rewritten"),
        ({"request": ["3 tools -> tag prompt"]}, "rewritten"),
        ({"calls": [CALL, REPAIRED]}, "repaired"),
        ({"calls": [REPAIRED], "refusals": [REFUSAL]}, "refused"),
        ({"unread": {"at": "@@read"}, "request": ["3 tools -> tag prompt"]}, "unread"),
        ({"unread": {"at": "@@read"}, "refusals": [REFUSAL]}, "refused"),
        ({"policies": [{**POLICY, "action": "changed"}]}, "rewritten"),
        ({"policies": [{**POLICY, "action": "changed"}], "calls": [REPAIRED]}, "repaired"),
        ({"policies": [POLICY], "refusals": [REFUSAL]}, "denied"),
        ({"policies": [POLICY, {**POLICY, "action": "failed"}]}, "failed"),
        ({"calls": [REPAIRED], "refusals": [REFUSAL], "failures": ["f"]}, "failed"),
    ],
)
def test_most_serious_outcome_is_reported(fields: dict[str, Any], outcome: str) -> None:
    assert Report(**fields).outcome == outcome


def test_secrets_are_in_no_report() -> None:
    refusal = {**REFUSAL, "excerpt": '<bash>curl -H "Authorization: Bearer abcdefgh1234"', "reason": "sk-abcdefgh"}
    report = Report(refusals=[refusal], failures=["ValueError: api_key=abcdefgh"])
    assert "abcdefgh" not in json.dumps(report.as_dict()) + report.summarize()


def test_text_that_stayed_differs_from_removed_text() -> None:
    report = Report()
    for refusal in (UnreadCall("a", "tag"), UnreadCall("b", "tag", left_out=True), UnreadCall("c", "tag")):
        report.record_unread_call(refusal)
    assert report.summarize() == "vtc: 2 left as text (a), 1 left out (b)"


def test_thousands_of_entries_of_each_kind_are_counted_and_not_kept() -> None:
    """A reply may hold thousands of calls: the report stays short, and the work linear."""
    report = Report()
    for number in range(5_000):
        report.record_call("f", f"c{number}", "tag", ["missing-closer"])
        report.record_unread_call(UnreadCall(f"no tool {number}", "tag", f"t{number}", "x" * 80))
        report.record_intervention("arguments", "refused", "f", f"reason {number}", "detail")
        report.record_intervention("denied_tools", "refused", "bash", "r")
    assert count_entries(report.calls) == count_entries(report.refusals) == 5_000
    assert report.repaired == 5_000
    assert count_entries(report.policies) == 10_000
    assert all(len(one) <= MAX_ENTRIES + 5 for one in (report.calls, report.refusals, report.policies))
    assert len(report.summarize()) < 3_000


def test_repeated_entry_is_counted_at_its_first_place() -> None:
    report = Report()
    for number in (*range(500), 3):
        report.record_intervention("arguments", "refused", "f", f"reason {number}")
    assert report.policies[3] == {**POLICY, "policy": "arguments", "reason": "reason 3", "count": 2}


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"request": ["3 tools -> tag prompt"]}, "vtc: f, tag -> tool_calls, 3 tools -> tag prompt"),
        ({"request": [LONG, "b"]}, "vtc: f, tag -> tool_calls, +2 changes of the request"),
        ({"request": ["a", "b"]}, "vtc: f, tag -> tool_calls, a, b"),
        ({"request": [LONG]}, "vtc: f, tag -> tool_calls, +1 change of the request"),
        (
            {"request": [LONG, "b"], "notes": ["asked again"]},
            "vtc: f, asked again, tag -> tool_calls, +2 changes of the request",
        ),
        (
            {"parties": Parties(api="gemini-generate", server_api="openai-chat"), "request": [LONG, "b"]},
            "vtc: f, tag -> tool_calls, gemini-generate -> openai-chat, +2 changes of the request",
        ),
        ({"calls": [{**CALL, "dialect": "tool_calls"}], "parties": Parties(api="a", server_api="b")}, "vtc: f, a -> b"),
        ({"calls": [{**REPAIRED, "dialect": "tool_calls"}]}, "vtc: f, 1 repaired (missing-closer)"),
    ],
)
def test_calls_precede_changes_of_the_request_and_those_are_counted(fields: dict[str, Any], line: str) -> None:
    report = Report(**{"calls": [CALL], **fields})
    assert report.summarize() == line
    assert report.as_dict()["request"] == fields.get("request", [])  # whole, for programs


FORGED = "x\n[11:00:00.000] vtc: FORGED LINE\x1b[31m\u202e\x85"


def test_name_from_a_model_is_one_line_of_plain_characters() -> None:
    report = Report(request=[FORGED], failures=[FORGED], refusals=[{**REFUSAL, "reason": FORGED, "name": FORGED}])
    report.record_intervention("denied_tools", "refused", FORGED, FORGED)
    output = json.dumps(report.as_dict(), ensure_ascii=False) + report.summarize()
    assert "FORGED LINE" in output
    assert output.isprintable()


def test_a_detail_is_in_no_line() -> None:
    report = Report()
    report.record_intervention("arguments", "refused", "f", "reason", "PRIVATE")
    assert "PRIVATE" not in report.summarize()
    assert report.as_dict()["policies"][0]["detail"] == "PRIVATE"


def test_only_reports_have_the_shape_of_a_report() -> None:
    report = Report(Parties(client="c", settings={"tools": "prompt"}), why=["w"], errors=["e"], failures=["f"])
    assert validate_report(report.as_dict()) == report.as_dict()
    report.record_call("read", None, "hermes", ["json-cut"], ["path"])
    report.record_unread_call(UnreadCall("reason", "hermes", "excerpt"))
    for detail in ("", "what a model wrote"):
        report.record_intervention("denied_tools", "refused", "bash", "denied", detail)
    report.prefix = {"kept": 1, "of": 2, "chars": 3, "chars_of": 4, "what": "system", "how": "changed", "at": 0}
    report.unread = {"tool": "read", "begins": "@@read", "text": "@@read(", "advice": ""}
    report.measures.sizes["request_came"] = 1
    plain = report.as_dict()
    assert validate_report(plain) == plain
    wrong = {key: 5 if not isinstance(value, float) else "x" for key, value in plain.items()}
    assert [key for key, value in wrong.items() if validate_report({**plain, key: value})] == []
    assert [validate_report(value) for value in (None, "x", [plain])] == [None, None, None]
