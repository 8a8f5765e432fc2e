"""The offered tool for a written name."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from tests.dialects.material import DIALECTS, calls, raw, read
from vtc.events import Tool

OFFERED = (
    *("read_file", "Search", "Read", "read", "ns.tool", "mcp__disk__list"),
    *("mcp__memory__find", "mcp__files__find", "store/open"),
)


def find_called_tool(written: str, offered: Iterable[str]) -> str | None:
    """Return the name of the tool that a call in a reply becomes; None if there is no call."""
    text = f"<tool_call>\n{json.dumps({'name': written, 'arguments': {}})}\n</tool_call>"
    made = calls(read([text], [DIALECTS["hermes"]], {name: Tool(name) for name in offered}))
    return made[0][0] if made else None


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
        # The name of a server is omitted if only one has such a tool.
        ("list", "mcp__disk__list"),
        ("disk__list", "mcp__disk__list"),
        ("disk:list", "mcp__disk__list"),
        ("mcp:disk:list", "mcp__disk__list"),
        ("functions.list", "mcp__disk__list"),
        ("tool", "ns.tool"),
        ("open", "store/open"),
        ("memory:find", "mcp__memory__find"),
        ("find", None),
        ("web:list", None),
        ("ist", None),
        # Names are never guessed.
        ("READ", None),
        ("readfile", None),
        ("read-file", None),
        ("read_file_", None),
        ("functions.", None),
        ("", None),
        (" read_file\n", "read_file"),
        ("read file", None),
    ],
)
def test_the_tool_that_a_name_means(written: str, name: str | None) -> None:
    assert find_called_tool(written, OFFERED) == name


def test_a_namespace_of_a_client() -> None:
    assert find_called_tool("antml:tool:read_file", OFFERED) == "read_file"


def test_no_tools_no_names() -> None:
    assert find_called_tool("read_file", ()) is None


SERVER = {
    "mcp__web__navigate": Tool(
        "mcp__web__navigate",
        parameters={
            "properties": {"url": {"type": "string"}, "tabs": {"type": "integer"}, "raw": {"type": "boolean"}},
            "required": ["url"],
        },
    )
}
WRITTEN = {
    "hermes": '<tool_call>\n{"name": "navigate", "arguments": ARGS}\n</tool_call>',
    "bare-json": '{"name": "navigate", "arguments": ARGS}',
    "kimi-k2": "<|tool_call_begin|>functions.navigate:0<|tool_call_argument_begin|>ARGS<|tool_call_end|>",
    "qwen3-coder": "<tool_call>\n<function=navigate>\nARGS</function>\n</tool_call>",
    "deepseek-v3.2": '<｜DSML｜invoke name="navigate">\nARGS</｜DSML｜invoke>\n',
}


def write_arguments(dialect: str, arguments: dict[str, object]) -> str:
    match dialect:
        case "qwen3-coder":
            return "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        case "deepseek-v3.2":
            parameter = '<｜DSML｜parameter name="{}" string="{}">{}</｜DSML｜parameter>\n'
            return "".join(
                parameter.format(key, str(isinstance(value, str)).lower(), value) for key, value in arguments.items()
            )
    return json.dumps(arguments)


@pytest.mark.every
@pytest.mark.parametrize("dialect", WRITTEN)
@pytest.mark.parametrize("incremental", [True, False])
def test_tool_without_its_server_is_meant_if_it_accepts_the_arguments(dialect: str, *, incremental: bool) -> None:
    for arguments, accepted in (
        ({"url": "x", "tabs": 2}, True),
        ({"tabs": 2}, False),
        ({"url": "x", "id": "one"}, False),
    ):
        text = WRITTEN[dialect].replace("ARGS", write_arguments(dialect, arguments))
        expected = [("mcp__web__navigate" if accepted else "navigate", arguments)]
        if dialect == "bare-json" and not accepted:
            expected = []  # the names of offered tools are its only markup
        for chunks in ([text], list(text)):
            assert (
                calls(read(chunks, [DIALECTS[dialect]], SERVER, incremental=incremental, unknown_tools="allow"))
                == expected
            )


@pytest.mark.parametrize("dialect", ["qwen3-coder", "deepseek-v3.2", "hermes"])
def test_name_with_spaces_counts_only_if_a_tool_has_it(dialect: str) -> None:
    tools = {name: Tool(name, parameters={"properties": {"city": {"type": "string"}}}) for name in ("the weather", "w")}
    text = WRITTEN[dialect].replace("navigate", "the weather")
    text = text.replace("ARGS", write_arguments(dialect, {"city": "Paris"})).strip()
    for chunks in ([text], list(text)):
        assert calls(read(chunks, [DIALECTS[dialect]], tools)) == [("the weather", {"city": "Paris"})]
        events = read(chunks, [DIALECTS[dialect]], {"w": tools["w"]}, unknown_tools="allow")
        assert calls(events) == []
        assert raw(events) == text
