"""What was done to one exchange, in a line and as plain data."""

from __future__ import annotations

import json

from vtc.report import Report


def test_a_report_is_plain_data() -> None:
    report = Report(client="c", model="m", calls=[{"name": "f", "repairs": []}])
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()


def test_nothing_done_is_nothing_said() -> None:
    assert Report(client="c", model="m", why=["because"]).summary() == ""
