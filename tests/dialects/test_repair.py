"""The names of repairs: docs/repairs.md lists all, each is used, and the cases contain no others."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.dialects.material import CASES, cases
from vtc.dialects import Repair

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "repairs.md"
PER_PARAMETER = {Repair.UNDECLARED, Repair.REPEATED, Repair.UNTYPED, Repair.TYPED, Repair.PARAMETER_NAME}


def list_repairs() -> str:
    rows = [f"| `{repair}{':PARAMETER' * (repair in PER_PARAMETER)}` | {repair.meaning} |" for repair in sorted(Repair)]
    return "\n".join(["| name | explanation |", "|---|---|", *rows]) + "\n"


def test_the_page_lists_them() -> None:
    """Renew it by running this test with VTC_RENEW_DOCS=1."""
    page = PAGE.read_text("utf-8")
    renewed = re.sub(
        r"(?s)(<!-- repairs -->\n).*?(<!-- end -->)", lambda found: found[1] + list_repairs() + found[2], page
    )
    if os.environ.get("VTC_RENEW_DOCS"):
        PAGE.write_text(renewed, "utf-8")
    assert page == renewed or os.environ.get("VTC_RENEW_DOCS")


@pytest.mark.parametrize("repair", Repair)
def test_each_is_used_and_its_meaning_is_a_sentence(repair: Repair) -> None:
    used = [path for path in (ROOT / "vtc").rglob("*.py") if path.name != "repair.py" and is_used(repair, path)]
    assert used
    assert re.fullmatch(r"[A-Z`].*\.", repair.meaning)


def is_used(repair: Repair, path: Path) -> bool:
    text = path.read_text("utf-8")
    return f"Repair.{repair.name}" in text or f'"{repair}"' in text


@pytest.mark.parametrize("file", sorted(path.stem for path in (CASES / "reading").glob("*.yaml")))
def test_the_repairs_of_the_recorded_cases_are_known(file: str) -> None:
    assert {repair.partition(":")[0] for case in cases(file) for repair in case.repairs} <= {*Repair}


def test_a_repair_of_a_parameter_has_its_name() -> None:
    assert Repair.UNTYPED.of("count") == "untyped:count"
    assert f"{Repair.CDATA}" == "cdata"
