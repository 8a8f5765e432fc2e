"""The malformed replies of `tests/cases/malformed`: recovered, or refused, and never invented.

At least 95 % of the recoverable replies are recovered with exactly the arguments that the model wrote, and no call has
any others. The test run prints the rate.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain
from typing import Any, Literal

import msgspec
import pytest

from tests.cases.malformed import derive
from tests.dialects import material
from tests.dialects.material import Case, calls, content, dump_typed, merge_events, random_cuts, raw
from vtc.events import Call, Event

pytestmark = pytest.mark.every

HERE = material.CASES / "malformed"
TOOLS = {**material.TOOLS, **material.tools(HERE / "tools.yaml")}
OUTCOMES = ("recovered", "refused", "missed", "wrong")
LEAST_CASES = 400
LEAST_REAL_CASES = 60
LEAST_RATE = 0.95

type Outcome = Literal["recovered", "refused", "missed", "wrong"]


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


class Malformed(msgspec.Struct, forbid_unknown_fields=True):
    """A reply, and its meaning according to a person; without `calls` it stays text."""

    name: str
    dialects: tuple[str, ...]
    tools: str
    text: str
    finish: Literal["stop", "length"]
    calls: list[Wanted] | None
    content: str
    source: str

    def read(self, chunks: Any, *, lenient: bool = True) -> list[Event]:
        return material.read(
            chunks,
            [material.DIALECTS[name] for name in self.dialects],
            TOOLS[self.tools],
            complete=self.finish == "stop",
            lenient=lenient,
        )

    def outcome(self, events: list[Event]) -> Outcome:
        """Return `missed` if a call is missing, `wrong` if a call or its arguments were not intended."""
        found = [dump_typed(call) for call in calls(events)]
        wanted = [dump_typed((call.name, call.arguments)) for call in self.calls or ()]
        if Counter(found) - Counter(wanted):
            return "wrong"
        if found != wanted or content(events) != self.content:
            return "missed"
        return "recovered" if wanted else "refused"


FILES = sorted(path.stem for path in HERE.glob("*.jsonl"))
CASES: dict[str, list[Malformed]] = {
    file: [msgspec.json.decode(line, type=Malformed) for line in (HERE / f"{file}.jsonl").read_bytes().splitlines()]
    for file in FILES
}
EACH_FILE = pytest.mark.parametrize("file", FILES)


@pytest.mark.parametrize("dialect", derive.FILES)
def test_derived_cases_equal_the_output_of_the_script(dialect: str) -> None:
    committed = (HERE / f"{dialect}.jsonl").read_text("utf-8")
    assert committed == derive.derive_lines(dialect), "run `python -m tests.cases.malformed.derive`"


def test_recoverable_calls_are_recovered_and_nothing_is_invented(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = {file: [(case, case.outcome(case.read([case.text]))) for case in CASES[file]] for file in FILES}
    table = {file: Counter(outcome for _, outcome in pairs) for file, pairs in outcomes.items()}
    total = Counter(outcome for pairs in outcomes.values() for _, outcome in pairs)
    rate = total["recovered"] / (total["recovered"] + total["missed"] + total["wrong"])
    rows = [f"{'malformed replies':<18}{'cases':>7}" + "".join(f"{outcome:>11}" for outcome in OUTCOMES)]
    for name, row in [*table.items(), ("all", total)]:
        rows.append(f"{name:<18}{row.total():>7}" + "".join(f"{row[outcome]:>11}" for outcome in OUTCOMES))
    with capsys.disabled():
        sys.stdout.write("\n\n" + "\n".join(rows) + f"\nrecovered: {rate:.1%} of what can be\n\n")
    assert [case.name for pairs in outcomes.values() for case, outcome in pairs if outcome == "wrong"] == []
    assert rate >= LEAST_RATE
    assert total.total() >= LEAST_CASES
    assert table["models"].total() >= LEAST_REAL_CASES


@EACH_FILE
def test_a_cut_anywhere_changes_nothing(file: str, some: Any) -> None:
    for case in some(CASES[file], 6):
        whole = case.read([case.text])
        assert raw(whole) == case.text, case.name
        for cut in chain([[*case.text]], random_cuts(case.text, 2)):
            assert merge_events(case.read(cut)) == merge_events(whole), (case.name, cut)


@pytest.mark.rest
@EACH_FILE
def test_without_repair_there_is_nothing_else_and_nothing_wrong(file: str) -> None:
    """Text that needs a repair to be a call is recovered only by a repair that is reported."""
    for case in CASES[file]:
        strict, lenient = (case.read([case.text], lenient=value) for value in (False, True))
        names = {repair for event in lenient if isinstance(event, Call) for repair in event.repairs}
        # A number in a CDATA section stays text without repair.
        assert case.outcome(strict) != "wrong" or "cdata" in names, case.name
        assert case.outcome(strict) != "recovered" or case.outcome(lenient) == "recovered", case.name
        assert names or len(calls(strict)) == len(calls(lenient)), case.name


WELL_FORMED = [
    pytest.param(case, id=f"{file}: {case.name}")
    for file in derive.FILES
    if (material.CASES / "reading" / f"{file}.yaml").exists()
    for case in material.cases(file)
    if case.calls and not case.repairs and not case.refusals and case.reader.get("lenient", True)
]


@pytest.mark.parametrize("case", WELL_FORMED)
def test_valid_calls_are_read_equally_with_and_without_repair(case: Case) -> None:
    found = []
    for lenient in (True, False):
        case.reader["lenient"] = lenient
        found.append(merge_events(case.read([case.text])))
    assert found[0] == found[1]
