"""What looks like a call that nobody read."""

from __future__ import annotations

import pytest

from vtc.reporting.unread import possible_call

TOOLS = ("read_file", "ls")


@pytest.mark.parametrize(
    "text",
    [
        "@@read_file(path=a.py)@@",
        "<|call|>read_file|path=a.py<|end|>",
        '{"tool": "read_file", "input": {"path": "a.py"}}',
        "[read_file]\npath: a.py",
        "Action: read_file\nAction Input: a.py",
        "{ls: {}}",
    ],
)
def test_a_tools_name_amid_markup_is_told(text: str) -> None:
    assert possible_call(f"I look. {text}", TOOLS)
    assert text.split()[0][:6] in possible_call(f"I look. {text}", TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would call read_file next, then ls.",
        "`read_file(path)` reads a file",
        "```\n@@read_file(path=a.py)@@\n```",
        "```\n@@read_file(path=a.py)@@",
        "<b>read_files</b> (false)",
        "the also (wells) of",
    ],
)
def test_prose_and_code_are_not(text: str) -> None:
    assert possible_call(text, TOOLS) == ""


def test_without_tools_there_is_no_call() -> None:
    assert possible_call("@@read_file()@@", ()) == ""


def test_what_is_shown_is_short_and_on_one_line() -> None:
    shown = possible_call("x" * 500 + "\n@@read_file(\n" + "y" * 500, TOOLS)
    assert "\n" not in shown
    assert len(shown) < 100
    assert shown.startswith("…")
