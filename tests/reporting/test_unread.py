"""Possible calls that no dialect reads."""

from __future__ import annotations

import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.reporting import find_possible_call

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
def test_tool_name_inside_markup_is_reported(text: str) -> None:
    call = find_possible_call(f"I look. {text}", TOOLS)
    assert call
    assert text.split()[0][:6] in call.text


@pytest.mark.parametrize(
    "text",
    [
        'CALL read_file {"path": "a.py"}',
        "read_file(path='a.py')",
        'Use read_file with {"path": "a.py"}',
        '<run tool=read_file path="a.py">',
        "<call read_file path=a.py/>",
        "[[call read_file path='a.py']]",
        "read_file <path>a.py</path>",
        '"read_file": {"path": "a.py"}',
        'So:\n```json\n{"name": "read_file", "arguments": {"path": "a.py"}}\n```',
        "So:\n```xml\n<tool_call>read_file</tool_call>",
        "<run>read_file a.py</run>",
        "I look. <run>read_file a.py</run>\n",
        "<tool>read_file</tool><args>a.py</args>",
        "<tool>read_file</tool>\n<args>\na.py\n</args>",
        "<tool_code>read_file a.py</tool_code>",
        '**Tool:** `read_file`\n```json\n{"path": "a.py"}\n```',
        'I look.\n\nTool: **read_file**\n\n```\n{\n  "path": "a.py"\n}\n```\n',
        "### read_file\n```json\n{}\n```",
        "<tool_call>{“name”: “read_file”, “arguments”: {“path”: “a.py”}}</tool_call>",
        "read_file {‘path’: ‘a.py’}",
        "read_file => {path => 'a.py'}",
        'So:\n```xml\n<|call|>function<|sep|>read_file\n```json\n{"path": "a"}\n```<|end|>\n```',
        'So:\n```\n<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>\n```\n',
    ],
)
def test_possible_call_is_reported_with_the_name_of_its_tool(text: str) -> None:
    call = find_possible_call(text, TOOLS)
    assert call
    assert "read_file" in call.text
    assert call.tool == "read_file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I would call read_file next, then ls.",
        "`read_file(path)` reads a file",
        "```\n@@read_file(path=a.py)@@\n```",
        "```\n@@read_file(path=a.py)@@",
        "A page:\n```html\n<ls>\n<li class='x'>read_file</li>\n```\nand so on.",
        "<b>read_files</b> (false)",
        "the also (wells) of",
        "I ls (all of them) here",
        "read_file reads [a file] and <b>shows</b> it",
        'Like this:\n```json\n{"name": "read_file", "arguments": {"path": "a.py"}}\n```\nThat is it.',
        "So:\n```python\nprint(read_file(path))\n```",
        "Run <code>read_file a.py</code>",
        "In <strong>read_file</strong> there is one.",
        "Use <strong>read_file calls</strong>, not more.",
        "<ul>\n<li>read_file</li>\n<li>ls</li>\n</ul>",
        "<ul>\n<li>read_file reads a file</li>\n</ul>",
        'The result of `read_file` then was:\n```json\n{"path": "a.py"}\n```',
        'Tool: `read_file`\n```json\n{"path": "a.py"}\n```\nis how that is written.',
        "Tool: `read_file`\n```python\nprint(1)\n```",
        "`read_file` is one, `ls` another: “read_file” reads.",
        "the ‘ls’ of “all” (false)",
    ],
)
def test_prose_and_code_are_not(text: str) -> None:
    assert find_possible_call(text, TOOLS) is None


@pytest.mark.halved
@pytest.mark.every
@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.is_framed])
def test_call_in_a_code_block_is_reported_in_every_framed_dialect(name: str) -> None:
    """Even if words follow it, because the markup is that of calls."""
    tool = Tool("bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}})
    text = write_calls([ToolCall("bash", '{"command": "ls"}', id="c1")], DIALECTS[name], {"bash": tool})
    for after in ("", "\n", "\nThen I wait.\n```\nx\n```\n"):
        call = find_possible_call(f"I list them:\n````\n{text}\n````{after}", ["bash"])
        assert call
        assert call.tool == "bash"


def test_without_tools_there_is_no_call() -> None:
    assert find_possible_call("@@read_file()@@", ()) is None


def test_excerpt_is_short_and_on_one_line() -> None:
    call = find_possible_call("x" * 500 + "\n@@read_file(\n" + "y" * 500, TOOLS)
    assert call
    shown = call.text
    assert "\n" not in shown
    assert len(shown) < 100
    assert shown.startswith("…")


CALL = '{"name": "read_file", "arguments": {"path": "a.py"}}'


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (f"I look.\n\n```json\n{CALL}\n```", True),
        (f"I look at it with read_file:\n```\n{CALL}\n```\n", True),
        (f"I look.\n```json\n{CALL}\n", False),
        (f"I look.\n```python\n{CALL}\n```", False),
        (f"I look.\n```json\n{CALL}\n```\nThat is how.", False),
    ],
)
def test_block_at_the_end_of_a_reply_is_reported_as_it_is_read(text: str, is_told: bool) -> None:
    call = find_possible_call(text, TOOLS)
    assert bool(call and "vtc_blocks=last" in call.advice) == is_told


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("@@read_file(path=hush)@@", "@@read_file("),
        ("<|call|>read_file|path=hush<|end|>", "<|call|>read_file|"),
        ('{"input": {"path": "hush"}, "tool": "read_file"}', '"read_file"}'),
        ("<tool>read_file</tool><args>hush</args>", "<tool>read_file</"),
        ("<p>hush</p> <run>read_file hush</run>", "<run>read_file"),
        ("Action: read_file\nhush", "read_file"),
        ("hush=[read_file path='hush']", "=[read_file"),
        ("<hush\\b>read_file(path='hush')", ">read_file("),
    ],
)
def test_how_a_call_begins_holds_no_words_of_the_model(text: str, begins: str) -> None:
    call = find_possible_call(text, TOOLS)
    assert call
    assert call.begins == begins
