"""The tool that a name means, also with the key of its first parameter at its end."""

from __future__ import annotations

import pytest

from tests.dialects.material import AGENT
from vtc.dialects.reading.parameters import NamedTool


def test_a_name_means_a_tool_with_its_parameters() -> None:
    named = NamedTool("functions.bash", AGENT)
    assert named.tool is AGENT["bash"]
    assert "command" in named.declared
    assert (NamedTool("rm", AGENT).tool, {*NamedTool("rm", AGENT).declared}) == (None, set())


@pytest.mark.parametrize(
    ("written", "parts"), [("bashcommand", ("bash", "command")), ("bash", None), ("bashx", None), ("command", None)]
)
def test_a_key_that_stands_right_after_the_name_is_parted(written: str, parts: tuple[str, str] | None) -> None:
    assert NamedTool(written, AGENT).without_key() == parts
