"""Public functions for text with XML calls."""

from __future__ import annotations

import inspect
import json
import re
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtc
from vtc import (
    detect_complete_tool_call,
    detect_vtc_client,
    has_partial_xml_pattern,
    parse_vtc_xml,
    serialize_tool_calls_to_xml,
)

BARE = '<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n</invoke>'
WRAPPED = f"<function_calls>\n{BARE}\n</function_calls>"


def call(name: str = "read_file", id_: str = "call_0", **arguments: Any) -> dict[str, Any]:
    text = json.dumps(arguments or {"path": "a.py"}, ensure_ascii=False, separators=(",", ":"))
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": text}}


# detect_vtc_client


@pytest.mark.parametrize(
    ("agent", "found"),
    [
        ("Cline/3.82.0", True),
        ("cline", True),
        ("Kilo-Code/4.1 node", True),
        ("RooCode/3.2", True),
        ("Mozilla/5.0 (ROO)", True),
        ("OpenAI/Python 2.54.0", False),
        ("", False),
    ],
)
def test_the_default_patterns(agent: str, found: bool) -> None:
    """Patterns match a part of the user agent, in upper and lower case."""
    assert detect_vtc_client(agent) is found


def test_patterns_of_ones_own() -> None:
    """Given patterns replace the default; an empty list and an empty pattern match nothing."""
    assert detect_vtc_client("MyAgent/1", ["myagent"])
    assert not detect_vtc_client("Cline/3", ["myagent"])
    assert not detect_vtc_client("Cline/3", [])
    assert not detect_vtc_client(None)
    assert not detect_vtc_client("Cline/3", [""])
    assert detect_vtc_client("Cline/3", (pattern for pattern in ("x", "CLINE")))


# parse_vtc_xml


@pytest.mark.parametrize(
    "text",
    [
        WRAPPED,
        BARE,
        WRAPPED.replace("\n", ""),
        BARE.replace('"', "'"),
        re.sub("<(/?)", r"<\1antml:", WRAPPED),
        re.sub("<(/?)", r"<\1antml:", BARE),
        BARE.replace("read_file", "antml:tool:read_file"),
        BARE.replace("read_file", "tool:read_file"),
        BARE.replace("read_file", "any:name:space:read_file"),
    ],
)
def test_the_spellings_of_one_call(text: str) -> None:
    """Calls with and without a wrapper or a namespace; the result has the format of the OpenAI API."""
    assert parse_vtc_xml(text) == ("", [call()])
    assert parse_vtc_xml(text, allowed_tools=["read_file"]) == ("", [call()])


def test_text_around_the_calls() -> None:
    text = f"One.\n\n{WRAPPED}\n\n{BARE.replace('a.py', 'b.py')}\n\nTwo."
    content, calls = parse_vtc_xml(text)
    assert content.split() == ["One.", "Two."]
    assert calls == [call(), call(id_="call_1", path="b.py")]


def test_several_calls_in_one_wrapper() -> None:
    other = '<invoke name="list_files">\n</invoke>'
    content, calls = parse_vtc_xml(f"<function_calls>\n{BARE}\n{other}\n</function_calls>")
    assert content == ""
    assert calls == [call(), {**call("list_files", "call_1"), "function": {"name": "list_files", "arguments": "{}"}}]


def test_only_allowed_tools_are_read() -> None:
    """Calls of other tools remain text, character by character."""
    other = BARE.replace("read_file", "bash")
    content, calls = parse_vtc_xml(f"a\n{other}\nb\n{BARE}", allowed_tools={"read_file"})
    assert (content, calls) == (f"a\n{other}\nb", [call()])
    assert parse_vtc_xml(WRAPPED, allowed_tools=[]) == (WRAPPED, [])


def test_an_allowed_name_is_given_back_as_it_is_allowed() -> None:
    """The name is returned in the allowed spelling, even with a colon, which otherwise separates a namespace."""
    text = BARE.replace("read_file", "disk:read_file")
    assert parse_vtc_xml(text, allowed_tools=["disk:read_file"]) == ("", [call("disk:read_file")])
    assert parse_vtc_xml(text, allowed_tools=["Read_File"]) == ("", [call("Read_File")])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("123", "123"),
        ("true", "true"),
        ("", ""),
        ("  two  ", "  two  "),
        ("a\nb\n", "a\nb\n"),
        ("&lt;b&gt; &amp;", "&lt;b&gt; &amp;"),
        ("é😀\u2028", "é😀\u2028"),
        ("</content></write></tool_call>", "</content></write></tool_call>"),
        ("a </parameter> b", "a </parameter> b"),
        ('["x", 1]', ["x", 1]),
        ('{"deep": {"a": null}}', {"deep": {"a": None}}),
        ("{no json}", "{no json}"),
    ],
)
def test_values(written: str, value: Any) -> None:
    """Values are kept verbatim, except JSON lists and objects."""
    assert parse_vtc_xml(BARE.replace("a.py", written))[1] == [call(path=value)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Just text with a < and a `<invoke>`.",
        "<invoke name=>",
        '<invoke name="x">hello</invoke>',
        f"`{BARE}` is how",
        f"```\n{WRAPPED}\n```",
        "<function_calls>\n</function_calls>",
        "<read_file><path>a</path></read_file>",
    ],
)
def test_text_without_a_call(text: str) -> None:
    assert parse_vtc_xml(text) == (text, [])
    assert not detect_complete_tool_call(text)


def test_missing_closer_is_repaired() -> None:
    assert parse_vtc_xml(f"Look:\n\n{WRAPPED[: -len('</invoke>\n</function_calls>')]}") == ("Look:", [call()])


# serialize_tool_calls_to_xml


def test_no_calls_are_no_text() -> None:
    assert serialize_tool_calls_to_xml([]) == ""


def test_the_text_of_calls() -> None:
    other = call("list_files", "call_1")
    other["function"]["arguments"] = "{}"
    text = f'<function_calls>\n{BARE}\n<invoke name="list_files">\n</invoke>\n</function_calls>'
    assert serialize_tool_calls_to_xml([call(), other]) == text


@pytest.mark.parametrize(
    "entry",
    [
        {"function": {"name": "read_file", "arguments": '{"path": "a.py"}'}},
        {"function": {"name": "read_file", "arguments": {"path": "a.py"}}},
        {"name": "read_file", "arguments": {"path": "a.py"}},
    ],
)
def test_a_call_in_other_forms(entry: dict[str, Any]) -> None:
    assert serialize_tool_calls_to_xml([entry]) == WRAPPED


@pytest.mark.parametrize("arguments", ["", None, "{}", {}])
def test_a_call_without_arguments(arguments: Any) -> None:
    entry = {"function": {"name": "f", "arguments": arguments}}
    assert serialize_tool_calls_to_xml([entry]) == '<function_calls>\n<invoke name="f">\n</invoke>\n</function_calls>'


def test_a_call_without_a_name_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match=r"call 2 of 2 has no function name"):
        serialize_tool_calls_to_xml([call(), {"function": {"arguments": "{}"}}])


def test_a_text_and_a_call_round_trip() -> None:
    """Serializing a parsed text returns the same text."""
    listing = '<invoke name="list_files">\n<parameter name="path">.</parameter>\n</invoke>'
    text = f"I will check.\n\n<function_calls>\n{listing}\n</function_calls>"
    content, calls = parse_vtc_xml(text)
    assert f"{content}\n\n{serialize_tool_calls_to_xml(calls)}" == text


JSONS = st.recursive(
    st.text(max_size=10)
    | st.integers()
    | st.booleans()
    | st.none()
    | st.sampled_from(["</parameter>", "</invoke>", "{"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)


@given(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, JSONS, max_size=3)), max_size=3), st.text("ab. \n", max_size=9))
def test_any_calls_round_trip(made: list[tuple[str, dict[str, Any]]], before: str) -> None:
    entries = [call(name, f"call_{i}", **arguments) for i, (name, arguments) in enumerate(made)]
    for entry, (_, arguments) in zip(entries, made, strict=True):
        entry["function"]["arguments"] = json.dumps(arguments)
    content, calls = parse_vtc_xml(f"{before}\n\n{serialize_tool_calls_to_xml(entries)}")
    assert [(one["function"]["name"], json.loads(one["function"]["arguments"])) for one in calls] == made
    assert [one["id"] for one in calls] == [f"call_{i}" for i in range(len(made))]
    assert content.strip() == before.strip()


# has_partial_xml_pattern, detect_complete_tool_call


@pytest.mark.parametrize("text", [BARE, WRAPPED, f"Look:\n\n{WRAPPED}"])
def test_a_text_that_grows(text: str) -> None:
    """Text is partial from the first character of markup until the call is complete, and never both."""
    opened = text.index("<")
    complete = text.index("</invoke>") + len("</invoke>")
    for at in range(len(text) + 1):
        part = text[:at]
        assert detect_complete_tool_call(part) is (at >= complete), part
        in_closer = complete < at < len(text) and part[-1] != "\n"
        assert has_partial_xml_pattern(part) is (opened < at < complete or in_closer), part


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "text\n\n",
        "text ",
        "a `",
        "a ``",
        "text:\n```",
        "text:\n```xml",
        "text:\n~~~",
        "a > b",
        "</",
        "<div>",
        '<invoke name="x">hello',
        "`code`",
        "x\u00a0",
    ],
)
def test_text_without_a_partial_call(text: str) -> None:
    assert not has_partial_xml_pattern(text)


@pytest.mark.parametrize(
    "text", ["<", "a <fun", "<function_calls>", "<inv", '<invoke name="', BARE[:-1], f"{BARE} <inv"]
)
def test_possible_partial_call(text: str) -> None:
    assert has_partial_xml_pattern(text)


# Public names


def test_they_are_exported_documented_and_typed() -> None:
    for name in (
        "detect_vtc_client",
        "parse_vtc_xml",
        "serialize_tool_calls_to_xml",
        "has_partial_xml_pattern",
        "detect_complete_tool_call",
    ):
        function = getattr(vtc, name)
        assert name in vtc.__all__
        assert inspect.getdoc(function)
        assert set(typing.get_type_hints(function)) == {*inspect.signature(function).parameters, "return"}


@given(
    st.lists(
        st.sampled_from(["<", "</", "invoke", ' name="', "x", '">', "<parameter", "`", "\n", "<function_calls>", "{"])
    )
)
def test_no_text_breaks_them(pieces: list[str]) -> None:
    text = "".join(pieces)
    content, calls = parse_vtc_xml(text)
    assert calls or content == text
    assert detect_complete_tool_call(text) in (True, False)
    assert has_partial_xml_pattern(text) in (True, False)
