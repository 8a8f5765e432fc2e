"""`vtc explain --call`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat
from vtc.cli import main

EXAMPLES = Path(__file__).parents[2] / "profiles" / "examples"


def explain(*arguments: str, call: str = '{"name": "bash", "arguments": {"command": "ls"}}') -> Result:
    return CliRunner().invoke(main, ["explain", *arguments, "--call", call])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd a && rm -rf b", "denied; the client receives instead: Deleting files is forbidden here"),
        ("sudo rm x", "denied; the client receives instead: Deleting"),
        ("find . -name '*.o' -delete", "denied; the client receives instead: Deleting"),
        ("git clean -fdx", "denied; the client receives instead: Deleting"),
        ("ls -l", 'delivered: bash {"command": "ls -l"}'),
        ("npm run format", "delivered: bash"),
        ("echo form farm", "delivered: bash"),
    ],
)
def test_the_example_that_forbids_deleting(command: str, expected: str) -> None:
    call = json.dumps({"name": "bash", "arguments": {"command": command}})
    found = explain("--profiles", str(EXAMPLES / "no-deleting.yaml"), call=call)
    assert found.exit_code == (1 if expected.startswith("denied") else 0), found.output
    assert expected in found.output
    assert "policy: no-deleting\n  every request matches" in found.output


def test_example_that_repairs_names() -> None:
    call = '{"name": "read_file", "arguments": {"file_path": "a.py"}}'
    found = explain("--profiles", str(EXAMPLES / "argument-names.yaml"), "--model", "my-model", call=call)
    assert 'delivered: read_file {"path": "a.py"}' in found.output
    assert "reactors.path changed read_file: argument file_path renamed to path" in found.output
    assert "delivered" in explain("--profiles", str(EXAMPLES / "argument-names.yaml"), call=call).output


def test_the_tools_are_those_of_a_request(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_bytes(chat.encode_json(chat.request()))
    policy = tmp_path / "policy.yaml"
    policy.write_text("{kind: policy, name: mine, match: {}, guards: {arguments: {misfit: drop}}}")
    call = '{"function": {"name": "read", "arguments": "{}"}}'
    found = explain("--profiles", str(policy), "--request", str(request), call=call)
    assert "arguments refused read: they do not fit: 'filePath' is a required property" in found.output
    assert "denied; the client receives instead: nothing" in found.output


@pytest.mark.parametrize("call", ["no", "[]", "[1]", "{}", "3", '{"name": 5}'])
def test_text_without_a_call_is_reported(call: str) -> None:
    found = explain(call=call)
    assert found.exit_code == 2
    assert 'not a call in the form {"name": "read"' in found.output
