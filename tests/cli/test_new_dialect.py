"""Test `vtc new-dialect`: the draft parses the calls of its reply, or states why it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from vtc.cli import main

TOOLS = [chat.tool("read_file", ["path"], path="string", limit="integer"), chat.tool("bash", command="string")]


def run_new_dialect(reply: str, folder: Path) -> Result:
    (folder / "reply.txt").write_text(reply, "utf-8")
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    files = [str(folder / "reply.txt"), "--tools", str(folder / "tools.json")]
    return CliRunner().invoke(main, ["new-dialect", *files])


BOTH = {"path": "a/b.py", "limit": 20}


@pytest.mark.parametrize(
    ("reply", "calls"),
    [
        (
            "I look.\n<<CALL read_file>>\n<<path>>a/b.py<</path>>\n<<limit>>20<</limit>>\n<<END>>\n",
            [("read_file", BOTH)],
        ),
        (
            'I look at it.\n\n```json\n{"name": "read_file", "arguments": {"path": "a/b.py", "limit": 20}}\n```\n',
            [("read_file", BOTH)],
        ),
        ('[TOOL] read_file {"path": "a/b.py", "limit": 20} [/TOOL]', [("read_file", BOTH)]),
        ('<|call|>read_file<|args|>{"path": "a/b.py", "limit": 20}', [("read_file", BOTH)]),
        ('<|do|>{"tool": "read_file", "with": {"path": "a/b.py", "limit": 20}}<|done|>', [("read_file", BOTH)]),
        ("<|do|>{'tool': 'read_file', 'with': {'path': 'a/b.py', 'limit': 20}}<|done|>", [("read_file", BOTH)]),
        ('@@read_file(path="a/b.py", limit=20)@@', [("read_file", BOTH)]),
        ('@@tool read_file path="a/b.py"@@', [("read_file", {"path": "a/b.py"})]),
        ('@@tool read_file path="a/b.py" limit="20" @@', [("read_file", BOTH)]),
        ('<act on="read_file"><arg k="path">a/b.py</arg><arg k="limit">20</arg></act>', [("read_file", BOTH)]),
        (
            "<<CALL bash>>\n<<command>>ls\nwc<</command>>\n<<END>>\n"
            "<<CALL read_file>>\n<<path>>a/b.py<</path>>\n<<END>>\n",
            [("bash", {"command": "ls\nwc"}), ("read_file", {"path": "a/b.py"})],
        ),
    ],
)
def test_a_draft_is_a_valid_dialect_that_reads_its_reply(
    reply: str, calls: list[tuple[str, object]], tmp_path: Path
) -> None:
    result = run_new_dialect(reply, tmp_path)
    assert result.exit_code == 0, result.output
    (profiles := tmp_path / "profiles").mkdir()
    (profiles / "draft.yaml").write_text(result.stdout, "utf-8")
    checked = CliRunner().invoke(main, ["check", str(profiles)])
    assert checked.exit_code == 0, checked.output
    read = ["parse", "--profiles", str(profiles), "--dialect", "my-dialect", "--json"]
    files = ["--tools", str(tmp_path / "tools.json"), str(tmp_path / "reply.txt")]
    found = json.loads(CliRunner().invoke(main, [*read, *files]).stdout)
    assert [(call["name"], call["arguments"]) for call in found["calls"]] == calls
    assert not any(call["repairs"] and "typed" not in str(call["repairs"]) for call in found["calls"])
    assert ("# unsure: the reply has one call" in result.stdout) == (len(calls) == 1)
    assert "# unsure: not in the reply: the form in which the model expects results" in result.stdout


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("Now:\nread_file path=a/b.py\nlimit=20\n", "must begin with literal text"),
        ("@@run read_file path=a/b.py limit=20@@\n", "literal text must follow"),
        ("I look.\ntool: read_file\npath: a/b.py\nlimit: 20\n", "literal text must follow"),
        ("$ read_file --path a/b.py --limit 20\n", "literal text must follow"),
    ],
)
def test_a_form_that_no_pattern_can_express_is_drafted_with_the_reason(reply: str, why: str, tmp_path: Path) -> None:
    result = run_new_dialect(reply, tmp_path)
    assert result.exit_code == 1
    assert "# The draft reads no call in it: call: " in result.stdout
    assert why in result.stdout
    assert re.search(rf"vtc: VTC cannot express this form: .*{why}", result.stderr)
    assert "put the holes" not in result.stderr


def test_a_code_block_is_consumed_whole(tmp_path: Path) -> None:
    """A block at the end of a reply is a call; a block before text is an example."""
    reply = 'I look.\n```json\n{"name": "bash", "arguments": {"command": "ls"}}\n```\n'
    result = run_new_dialect(reply, tmp_path)
    assert 'call: "```json\\n{json}\\n```"' in result.stdout
    assert "ends_reply: true" in result.stdout
    assert "`vtc_blocks=last` reads this reply" in result.stderr


def test_a_reply_that_names_no_tool_is_reported(tmp_path: Path) -> None:
    result = run_new_dialect("Hello!", tmp_path)
    assert result.exit_code == 1
    assert "the reply contains no offered tool with arguments: read_file, bash" in result.output


def test_a_reply_that_is_read_already_is_reported(tmp_path: Path) -> None:
    result = run_new_dialect(chat.DIALECTS["hermes"]("bash", {"command": "ls"}), tmp_path)
    assert "this reply is read already, as hermes" in result.stderr
