"""Calls as a text client parses them, which knows only its own tags."""

from __future__ import annotations

import json

import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects.text_client import ClientReader
from vtc.dialects.text_client.conversation import is_tagged, trim_arguments
from vtc.events import ToolCall

CLINE = DIALECTS["cline"]
READER = ClientReader(CLINE, ["read_file", "write_to_file"], ["path", "content", "recursive"])


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("No call.", []),
        ("<read_file>\n<path> a </path>\n</read_file>", [("read_file", {"path": "a"})]),
        ("<read_file><path>a</path>.<path>b</path></read_file>", [("read_file", {"path": "b"})]),
        ("<read_file><path>a</path><content>c</content></read_file>", [("read_file", {"path": "a", "content": "c"})]),
        ("<read_file><path>a</read_file></path></read_file>", [("read_file", {"path": "a</read_file>"})]),
        ("<read_file><path><path>a</path></path></read_file>", [("read_file", {"path": "<path>a"})]),
        ("<read_file><other>a</other></read_file>", [("read_file", {})]),
        ("<read_file><path>a", [("read_file", {"path": "a"})]),
        ("<read_file><path>a</path>", [("read_file", {"path": "a"})]),
        ("<Read_File><path>a</path></Read_File>", []),
        (
            "<write_to_file><path>a</path><content>x</content>y</content></write_to_file>",
            [("write_to_file", {"path": "a", "content": "x</content>y"})],
        ),
        (
            "<write_to_file><content>x</content><path>b</path></content><path>c</path></write_to_file>",
            [("write_to_file", {"path": "c", "content": "x</content><path>b</path>"})],
        ),
        (
            "<write_to_file><path>a</path></write_to_file><read_file></read_file>",
            [("write_to_file", {"path": "a"}), ("read_file", {})],
        ),
    ],
)
def test_calls_by_the_rules_of_the_client(text: str, calls: list[tuple[str, dict[str, str]]]) -> None:
    assert [*READER.find_calls(text)] == calls


@pytest.mark.parametrize(
    ("text", "name", "arguments", "same"),
    [
        ("<read_file><path>a</path></read_file>", "read_file", {"path": "a"}, True),
        ("<read_file><path>a</path></read_file>", "read_file", {"path": " a\n"}, True),
        ("<read_file><path>a</path></read_file>", "read_file", {"path": "b"}, False),
        ("<read_file><path>a</path></read_file>", "write_to_file", {"path": "a"}, False),
        ("<read_file><path>a</path></read_file>", "read_file", {}, False),
        ("<read_file></read_file>", "read_file", {"path": "a"}, False),
        ("<read_file></read_file>", "read_file", {"path": None}, True),
        ("<read_file></read_file>", "read_file", {"unknown": "a"}, True),
        ("<read_file><recursive>true</recursive></read_file>", "read_file", {"recursive": True}, True),
        ("<read_file><recursive>True</recursive></read_file>", "read_file", {"recursive": True}, False),
        ("<read_file><recursive>1</recursive></read_file>", "read_file", {"recursive": True}, False),
        ("<read_file><path>[1,2]</path></read_file>", "read_file", {"path": [1, 2]}, True),
        ("<new><path>a</path></new>", "new", {"path": "a"}, True),
        ("<new><read_file></new>", "new", {"path": "a"}, False),
        ("<read_file></read_file><read_file></read_file>", "read_file", {}, False),
    ],
)
def test_a_text_is_one_call_only_if_the_client_finds_just_that(
    text: str, name: str, arguments: dict[str, object], same: bool
) -> None:
    assert READER.is_one_call(text, ToolCall(name, json.dumps(arguments))) is same


def test_white_space_that_the_client_takes_away_is_taken_away_but_for_content() -> None:
    call = ToolCall(
        "write_to_file", '{"path": "\\ufeff /etc/x\\u00a0", "content": " x\\n", "n": 1.0000000000000000001}'
    )
    assert trim_arguments(call, CLINE).arguments == (
        '{"path": "/etc/x", "content": " x\\n", "n": 1.0000000000000000001}'
    )
    for arguments in ('{"path": "a"}', "[1]", "no JSON", "[" * 100_000):
        same = ToolCall("read_file", arguments)
        assert trim_arguments(same, CLINE) is same


def test_which_dialects_are_read_by_tags() -> None:
    assert [name for name in ("cline", "hermes", "qwen3-coder", "pythonic") if is_tagged(DIALECTS[name])] == ["cline"]


@pytest.mark.parametrize("filler", ["<", "<path></path>", "<path>a</path><", "<read_file>"])
def test_a_text_of_nothing_but_tags_is_no_call(filler: str) -> None:
    text = f"<read_file>{filler * 100_000}<path>a</path></read_file>"
    assert not READER.is_one_call(text, ToolCall("read_file", '{"path": "a"}'))
    content = f"<write_to_file><path>a</path><content>{filler * 100_000}</content></write_to_file>"
    call = ToolCall("write_to_file", json.dumps({"path": "a", "content": filler * 100_000}))
    assert READER.is_one_call(content, call)
