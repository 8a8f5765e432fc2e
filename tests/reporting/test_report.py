"""What was done to one exchange, in a line and as plain data."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtc.reporting.report import Report


def test_a_report_is_plain_data() -> None:
    report = Report(client="c", model="m", calls=[{"name": "f", "repairs": []}])
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()


def test_nothing_done_is_nothing_said() -> None:
    assert Report(client="c", model="m", why=["because"]).summary() == ""


CALL = {"name": "f", "dialect": "tag", "repairs": []}
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
        ({"policies": [{**POLICY, "action": "changed"}]}, "rewritten"),
        ({"policies": [{**POLICY, "action": "changed"}], "calls": [REPAIRED]}, "repaired"),
        ({"policies": [POLICY], "refusals": [REFUSAL]}, "denied"),
        ({"policies": [POLICY, {**POLICY, "action": "failed"}]}, "failed"),
        ({"calls": [REPAIRED], "refusals": [REFUSAL], "failures": ["f"]}, "failed"),
    ],
)
def test_the_most_serious_outcome_is_told(fields: dict[str, Any], outcome: str) -> None:
    assert Report(**fields).outcome == outcome


def test_secrets_are_in_no_report() -> None:
    refusal = {**REFUSAL, "excerpt": '<bash>curl -H "Authorization: Bearer abcdefgh1234"', "reason": "sk-abcdefgh"}
    report = Report(refusals=[refusal], failures=["ValueError: api_key=abcdefgh"])
    assert "abcdefgh" not in json.dumps(report.as_dict()) + report.summary()
