"""Patterns of tool names in policies."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tests.guards.policies import build_policies
from vtc.events import Call, Denied, Tool, ToolCall
from vtc.profiles import ProfileError, load_profiles


@pytest.mark.parametrize(
    ("patterns", "name", "found"),
    [
        ("*", "read", True),
        ("read", "READ", True),
        ("read", "read_file", False),
        ("read_*", "read_file", True),
        ("READ_*", "read_file", True),
        (("write", "read_*"), "read_file", True),
        ("/^(get|list)_/", "List_files", True),
        ("/^(get|list)_/", "to_list_files", False),
        ("/file/", "read_file_now", True),
        ("[ab]ash", "bash", True),
        ("a.b", "axb", False),
    ],
)
def test_a_glob_holds_for_all_of_a_name_and_an_expression_for_a_part(
    patterns: str | tuple[str, ...], name: str, found: bool
) -> None:
    denying = build_policies({name: Tool(name)}, denied_tools=patterns, on_denied="drop")
    *_, event = denying.feed(Call("", ToolCall(name, "{}"), "tag"))
    assert isinstance(event, Denied) is found


def load_glob(directory: Path, glob: str) -> None:
    model = {"kind": "model", "name": "mine", "match": {"model": glob}}
    (directory / "mine.yaml").write_text(json.dumps(model))
    load_profiles([directory])


@pytest.mark.parametrize(
    "glob", ["/x.*/", r"/^gpt-\d/", "/a|b/", "^opencode/", "qwen$", "qwen(2|3)*", r"gpt-\d", ".*x"]
)
def test_expression_instead_of_a_glob_is_reported(glob: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="write a glob"):
        load_glob(tmp_path, glob)


@pytest.mark.parametrize("glob", ["*x*", "/v1/chat/", "a.b", "/", "[ab]*", "gpt-5.*", "Mozilla (X11; Linux)*"])
def test_a_glob_is_a_glob(glob: str, tmp_path: Path) -> None:
    load_glob(tmp_path, glob)


@pytest.mark.parametrize("host", ["http://127.0.0.1:8000", "127.0.0.1:8000/v1", "https://*.example.com/"])
def test_url_instead_of_a_host_is_reported(host: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"kind": "server", "name": "mine", "match": {"host": [host]}}))
    with pytest.raises(
        ProfileError, match=r"mine\.yaml:1: match\.host\[0\]: .* is a URL; write its host, or host and port"
    ):
        load_profiles([tmp_path])


def test_invalid_expression_is_reported() -> None:
    build_policies({}, denied_tools=("(", "[", "/fine/"))
    with pytest.raises(
        msgspec.ValidationError, match=r"^denied_tools: '/\(/' is not a regular expression: .*position 1"
    ):
        build_policies({}, denied_tools=("fine", "/(/"))
