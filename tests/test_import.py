"""`import vtc` loads the core alone: events, dialects and their arguments."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.known import CORE_REQUIREMENTS
from vtc.dialects import load_dialect
from vtc.profiles import builtin_directory, load_profiles

MAX_MODULES = 50
OUTSIDE_CORE = (
    *("apis", "cli", "demo", "exchange", "guards", "profiles", "proxy", "reporting", "wire"),
    "dialects.constrain",
)
"""Packages of `vtc` that the core does not import."""
OPTIONAL = {"cython_runtime", "typing_extensions"}
"""Packages that these import if they are installed."""


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Return the modules that `import vtc` loads in a new process, except those that Python itself loads."""
    code = "import sys; before = {*sys.modules}; import vtc, json; print(json.dumps(sorted({*sys.modules} - before)))"
    run = subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True, text=True)
    names: list[str] = json.loads(run.stdout)
    return names


def test_the_core_is_small(loaded: list[str]) -> None:
    own = [name for name in loaded if name.split(".")[0] == "vtc"]
    assert "vtc.dialects.reading.reader" in own
    assert len(own) <= MAX_MODULES


def test_the_core_loads_no_other_layer(loaded: list[str]) -> None:
    outside = tuple(f"vtc.{package}." for package in OUTSIDE_CORE)
    assert [name for name in loaded if f"{name}.".startswith(outside)] == []


def test_the_core_requires_few_packages(loaded: list[str]) -> None:
    roots = {name.split(".")[0] for name in loaded}
    allowed = {*sys.stdlib_module_names, *CORE_REQUIREMENTS, *OPTIONAL, "vtc"}
    assert {root for root in roots - allowed if not root.startswith("_")} == set()
    assert "asyncio" not in roots


def test_a_dialect_that_the_core_loads_equals_the_checked_one() -> None:
    for name, dialect in load_profiles([builtin_directory()]).dialects.items():
        assert load_dialect(name) == dialect
