"""Which offered tool a written name means."""

from __future__ import annotations

import pytest

from vtc.dialects.syntax.tool_names import bare, resolve

OFFERED = ("read_file", "Search", "Read", "read", "ns.tool", "mcp__disk__list")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("read_file", "read_file"),
        ("functions.read_file", "read_file"),
        ("default_api.read_file", "read_file"),
        ("tools.read_file", "read_file"),
        ("tool:read_file", "read_file"),
        ("some.namespace.read_file", "read_file"),
        ("a:b:read_file", "read_file"),
        ("READ_FILE", "read_file"),
        ("functions.search", "Search"),
        ("Read", "Read"),
        ("read", "read"),
        ("ns.tool", "ns.tool"),
        ("ns__tool", "ns.tool"),
        ("functions.ns.tool", "ns.tool"),
        ("mcp__disk__list", "mcp__disk__list"),
        # Never by guessing
        ("READ", None),
        ("readfile", None),
        ("read-file", None),
        ("read_file_", None),
        ("list", None),
        ("tool", None),
        ("functions.", None),
        ("", None),
        (" read_file\n", "read_file"),
        ("read file", None),
    ],
)
def test_resolve(written: str, name: str | None) -> None:
    assert resolve(written, OFFERED) == name


def test_a_namespace_of_a_client() -> None:
    assert resolve("antml:tool:read_file", OFFERED) == "read_file"


def test_no_tools_no_names() -> None:
    assert resolve("read_file", ()) is None


@pytest.mark.parametrize("written", ["read", " read\n", "functions.read", "default_api.read ", "tools.read"])
def test_a_bare_name(written: str) -> None:
    assert bare(written) == "read"
