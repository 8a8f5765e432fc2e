"""Calls and results in each dialect; written calls can be read back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.material import (
    AGENT,
    COMMON,
    DIALECTS,
    ROOT,
    TOOLS,
    calls,
    content,
    dump_typed,
    merge_events,
    parse_dialect,
    raw,
    read,
)
from vtc.dialects import Description
from vtc.dialects.writing import write_calls, write_result
from vtc.events import Call, Tool, ToolCall, UnreadCall

WEATHER = ToolCall("get_weather", '{"city": "Paris", "days": 2}', "c1")
EXAMPLES = settings().max_examples
LIST = ToolCall("list_files", "{}", "c2")


def write_one(call: ToolCall, dialect: Description, tools: Any = AGENT) -> str:
    return write_calls([call], dialect, tools)


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            "hermes",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n</tool_call>\n'
            '<tool_call>\n{"name": "list_files", "arguments": {}}\n</tool_call>',
        ),
        (
            "qwen3-coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n"
            "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=list_files>\n</function>\n</tool_call>",
        ),
        (
            "invoke",
            '<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
            '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="list_files">\n</invoke>\n'
            "</function_calls>",
        ),
        (
            "tag",
            "<get_weather>\n<city>Paris</city>\n<days>2</days>\n</get_weather>\n<list_files>\n</list_files>",
        ),
        (
            "tools-tag",
            '<tools>\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
            '{"name": "list_files", "arguments": {}}\n</tools>',
        ),
        (
            "bare-json",
            '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}\n'
            '{"name": "list_files", "arguments": {}}',
        ),
    ],
)
def test_calls_as_the_models_of_a_dialect_write_them(dialect: str, text: str) -> None:
    assert write_calls([WEATHER, LIST], DIALECTS[dialect], AGENT) == text


def test_no_calls_no_text() -> None:
    assert all(write_calls([], dialect, AGENT) == "" for dialect in DIALECTS.values())


@pytest.mark.parametrize(
    ("dialect", "kind", "value", "text"),
    [
        ("qwen3-coder", "boolean", True, "\nTrue\n"),
        ("qwen3-coder", "null", None, "\nNone\n"),
        ("qwen3-coder", "object", {"a": [True, "é"]}, '\n{"a": [true, "é"]}\n'),
        ("qwen3-coder", "string", " a\n\nb\n", "\n a\n\nb\n\n"),
        ("invoke", "boolean", True, "true"),
        ("invoke", "string", " a\nb\n", " a\nb\n"),
        ("tag", "string", "a", "a"),
        ("tag", "string", "a\nb", "\na\nb\n"),
        ("tag", "array", [1], "[1]"),
    ],
)
def test_a_value_as_a_dialect_writes_it(dialect: str, kind: str, value: Any, text: str) -> None:
    tool = Tool("f", parameters={"properties": {"key": {"type": kind}}})
    found = write_one(ToolCall("f", json.dumps({"key": value})), DIALECTS[dialect], {"f": tool})
    assert f">{text}</" in found


def test_a_value_whose_type_would_be_lost_is_written_as_json() -> None:
    untyped = write_one(ToolCall("f", '{"key": 5}'), DIALECTS["invoke"], {"f": Tool("f")})
    assert untyped == '<function_calls>\n<invoke name="f">\n{"key": 5}\n</invoke>\n</function_calls>'


def test_value_that_is_not_read_back_is_rendered_as_json() -> None:
    arguments = json.dumps({"command": "</command>\n</bash> <bash>"})
    text = write_one(ToolCall("bash", arguments), DIALECTS["tag"])
    assert text == '<bash>\n{"command": "\\u003c/command>\\n\\u003c/bash> \\u003cbash>"}\n</bash>'
    assert calls(read([text], [DIALECTS["tag"]])) == [("bash", json.loads(arguments))]


def test_unless_it_is_for_clients_that_have_no_such_form() -> None:
    call = ToolCall("bash", '{"command": "</command></bash> x"}')
    text = write_calls([call], DIALECTS["cline"], AGENT, for_client=True)
    assert text == "<bash>\n<command></command></bash> x</command>\n</bash>"
    assert write_one(call, DIALECTS["cline"]) == '<bash>\n{"command": "\\u003c/command>\\u003c/bash> x"}\n</bash>'


def test_slots_of_a_call() -> None:
    dialect = parse_dialect(
        "{kind: dialect, name: kimi, call: '<|c|>{name}:{index}<|id|>{id}<|a|>{args}<|e|>', separator: ''}"
    )
    text = write_calls([WEATHER, LIST], dialect, AGENT)
    assert (
        text == '<|c|>get_weather:0<|id|>c1<|a|>{"city": "Paris", "days": 2}<|e|><|c|>list_files:1<|id|>c2<|a|>{}<|e|>'
    )


def test_the_id_in_the_json() -> None:
    dialect = parse_dialect(
        "{kind: dialect, name: ids, call: '<c>{json}</c>', json: {name: [tool], arguments: [args], id: cid}}"
    )
    text = write_one(WEATHER, dialect)
    assert json.loads(text.removeprefix("<c>").removesuffix("</c>")) == {
        "cid": "c1",
        "tool": "get_weather",
        "args": {"city": "Paris", "days": 2},
    }
    (event,) = read([text], [dialect])
    assert isinstance(event, Call)
    assert event.call.id == "c1"
    assert json.loads(event.call.arguments) == {"city": "Paris", "days": 2}


@pytest.mark.parametrize("name", COMMON)
def test_a_call_of_a_tool_that_is_offered_no_more_is_written_all_the_same(name: str) -> None:
    text = write_one(ToolCall("gone", '{"x": "1"}'), DIALECTS[name])
    assert calls(read([text], [DIALECTS[name]], {"gone": Tool("gone")})) == [("gone", {"x": "1"})]


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("", {}),
        ("{}", {}),
        ("not JSON", {"arguments": "not JSON"}),
        ("[1]", {"arguments": [1]}),
        ('"x"', {"arguments": "x"}),
    ],
)
def test_arguments_that_are_no_object_are_kept(arguments: str, kept: Any) -> None:
    for name in ("hermes", "invoke"):
        text = write_one(ToolCall("list_files", arguments), DIALECTS[name])
        assert calls(read([text], [DIALECTS[name]])) == [("list_files", kept)]


# Results


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        ("hermes", "<tool_response>\nOK\n</tool_response>"),
        ("tag", "Tool Result from bash:\nOK"),
        ("cline", "[bash] Result:\nOK"),
        ("bare-json", "Result of bash:\nOK"),
    ],
)
def test_a_result(dialect: str, text: str) -> None:
    assert write_result("bash", "c1", "OK", DIALECTS[dialect]) == text


def test_empty_result_is_marked() -> None:
    assert write_result("bash", "c1", "", DIALECTS["tag"]) == "Tool Result from bash:\n(no output)"


def test_a_result_is_not_a_pattern() -> None:
    dialect = parse_dialect("{kind: dialect, name: r, call: '<c>{json}</c>', result: '{name}/{id}: {result}'}")
    assert write_result("{id}", "{result}", "{name} {{x}}", dialect) == "{id}/{result}: {name} {{x}}"


# Reading back

KINDS: dict[str, tuple[dict[str, Any], st.SearchStrategy[Any]]] = {
    "integer": ({"type": "integer"}, st.integers()),
    "number": ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False) | st.integers()),
    "boolean": ({"type": "boolean"}, st.booleans()),
    "null": ({"type": ["integer", "null"]}, st.none() | st.integers()),
}


def markers(dialect: Description) -> list[str]:
    """Return a dialect's markup, whole and in pieces, with the names of the calls below."""
    patterns = [*dialect.calls, *dialect.params, *dialect.sections]
    names = {"name": "bash", "key": "text", "value": "x", "params": "", "calls": "", "json": "{}", "args": "{}"}
    texts = [re.sub(r"\{(\w+)\}", lambda slot: names.get(slot[1], ""), text) for text in patterns]
    return sorted({piece for text in texts for piece in [text, *re.split(r"(?<=>)|(?=<)|\n", text)] if piece})


def texts(dialect: Description) -> st.SearchStrategy[str]:
    """Draw strings of any kind, including the dialect's own markup and many lines."""
    odd = [
        "",
        "\n",
        "\r\n",
        "\r",
        " ",
        "  x",
        "5000",
        "true",
        "null",
        '{"a": 1}',
        "[1]",
        "é\u2028\U0001f600",
        "\\",
        '"',
        "&lt;",
    ]
    pieces = st.sampled_from([*markers(dialect), *odd, "`", "```", "<think>", "<![CDATA[x]]>"]) | st.text(max_size=5)
    joined = st.lists(pieces, max_size=8).map("".join)
    return joined | st.text() | st.just("line\n" * 200)


DIALECTS_PAGE = ROOT / "docs" / "dialects.md"


def load_shown_dialect(page: Path) -> Description:
    """Return the dialect that a page contains."""
    found = re.search(r"(?s)```yaml [^\n]+\n(kind: dialect\n.*?)```", page.read_text("utf-8"))
    assert found
    return parse_dialect(found[1])


@st.composite
def made_up(draw: st.DrawFn) -> Description:
    """Draw an invented dialect, in which any closing tags can be missing."""
    left, right = draw(st.sampled_from([("<<", ">>"), ("[[", "]]"), ("<|", "|>"), ("\u00ab", "\u00bb"), ("<", ">")]))
    opener = draw(st.sampled_from(["CALL {name}", "CALL={name}", "{name} CALL"]))
    body = draw(st.sampled_from(["\n{params}", "{params}", "\n{json}\n", "\n{args}\n", "{args}"]))
    if body.strip() == "{json}":
        opener = "CALL"
    ends = [f"{left}{end}{right}" for end in draw(st.sampled_from([["END"], ["/CALL"], ["END", "/ALL"], []]))]
    if "params" in body and not ends:
        ends = [f"{left}END{right}"]
    closer = draw(st.sampled_from(["/{key}", "/ARG"]))
    return Description(
        kind="dialect",
        name="made-up",
        call=f"{left}{opener}{right}{body}{draw(st.sampled_from(['', chr(10)])).join(ends)}",
        param=f"{left}ARG {{key}}{right}{{value}}{left}{closer}{right}\n" if "params" in body else (),
        optional=tuple(end for end in ends if draw(st.booleans())),
        separator=draw(st.sampled_from(["", "\n"])),
    )


@st.composite
def arguments(draw: st.DrawFn, dialect: Description) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw the properties of a schema, and matching arguments."""
    strings = texts(dialect)
    nested = st.recursive(
        st.none() | st.booleans() | st.integers() | strings,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )
    kinds = {
        **KINDS,
        "string": ({"type": "string"}, strings),
        "array": ({"type": "array"}, st.lists(nested, max_size=3)),
        "object": ({"type": "object"}, st.dictionaries(st.text(max_size=5), nested, max_size=3)),
        "any": ({}, nested),
    }
    properties, values = {}, {}
    keys = ["text", "path", "a_b", "item", "x-1", "from"]
    for key in draw(st.lists(st.sampled_from(keys), max_size=4, unique=True)):
        kind = draw(st.sampled_from(["string", "string", *kinds]))
        properties[key], strategy = kinds[kind]
        values[key] = draw(strategy)
    return properties, values


@pytest.mark.parametrize("name", [*DIALECTS])
@settings(max_examples=max(1, EXAMPLES // 10))
@given(data=st.data())
def test_rendered_calls_are_read_back(name: str, data: st.DataObject) -> None:
    read_back(DIALECTS[name], data)


@given(data=st.data())
def test_calls_rendered_by_some_dialects_are_read_back(data: st.DataObject) -> None:
    read_back(DIALECTS[data.draw(st.sampled_from(COMMON))], data)


@settings(max_examples=max(1, EXAMPLES // 4))
@given(data=st.data())
def test_calls_are_read_back_in_the_dialect_of_the_page(data: st.DataObject) -> None:
    read_back(load_shown_dialect(DIALECTS_PAGE), data)


@given(data=st.data())
def test_calls_are_read_back_in_any_dialect(data: st.DataObject) -> None:
    read_back(data.draw(made_up()), data, proved=False)  # the proof does not know its markers


@pytest.mark.parametrize("end", ["", "<<END>>", "\n<<END>>", "<<END>> And so on.", "\nAnd so on."])
def test_arguments_as_json_are_read_before_a_closing_tag_that_may_be_missing(end: str) -> None:
    tools = {"get_time": Tool("get_time", parameters={"type": "object", "properties": {"tz": {"type": "string"}}})}
    text = '<<CALL get_time>>\n{"tz":"UTC"}' + end
    for cut in ([text], text):
        assert calls(read(cut, [load_shown_dialect(DIALECTS_PAGE)], tools)) == [("get_time", {"tz": "UTC"})]


def test_a_closing_tag_that_may_be_missing_is_not_repaired_before_the_next_call() -> None:
    dialect = parse_dialect("{kind: dialect, name: x, call: '<<CALL>>{json}<<END>>', optional: ['<<END>>']}")
    events = read([write_calls([WEATHER, LIST], dialect, AGENT).replace("<<END>>", "")], [dialect])
    assert [event.repairs for event in events if isinstance(event, Call)] == [(), ()]


def read_back(dialect: Description, data: st.DataObject, *, proved: bool = True) -> None:
    properties, values = data.draw(arguments(dialect))
    declared = data.draw(st.booleans())
    tools = {**AGENT, "bash": Tool("bash", parameters={"type": "object", "properties": properties} if declared else {})}
    call = ToolCall("bash", json.dumps(values, ensure_ascii=data.draw(st.booleans())))
    text = write_one(call, dialect, tools)
    events = read([text], [dialect], tools)
    assert dump_typed(calls(events, proved=proved)) == dump_typed([("bash", values)])
    assert raw(events) == text
    assert content(events) == ""
    assert not any(isinstance(event, UnreadCall) for event in events)


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 10))
@given(data=st.data())
def test_several_calls_and_the_text_around_them_are_read_back(name: str, data: st.DataObject) -> None:
    dialect = DIALECTS[name]
    values = [
        {"path": path, "content": "x"}
        for path in data.draw(st.lists(st.text("ab \n<>/é", max_size=8), min_size=1, max_size=3))
    ]
    text = write_calls([ToolCall("write_file", json.dumps(one)) for one in values], dialect, AGENT)
    before, after = "", ""
    if dialect.section_anchor != "message":  # in such a dialect, text next to a call makes it no call
        before = data.draw(st.sampled_from(["", "Before.\n\n", "Be <b>fore</b>:\n"]))
        after = "" if dialect.ends_reply else data.draw(st.sampled_from(["", "\nAfter."]))
    whole = before + text + after
    events = read([whole], [dialect])
    assert dump_typed(calls(events)) == dump_typed([("write_file", one) for one in values])
    assert content(events).split() == (before + after).split()
    assert merge_events(read(whole, [dialect])) == merge_events(events)


@pytest.mark.parametrize(
    "name", [name for name, one in DIALECTS.items() if one.section_anchor != "message" and not one.ends_reply]
)
def test_the_text_around_calls_stays_apart(name: str) -> None:
    text = write_calls([WEATHER, LIST], DIALECTS[name], AGENT)
    assert content(read([f"Before.\n{text}\nAfter."], [DIALECTS[name]])) == "Before.\nAfter."


@pytest.mark.parametrize(
    ("name", "huge"),
    [(name, "markup") for name in [*DIALECTS]]
    + [(name, huge) for name in COMMON for huge in ("x" * 500_000, "One line.\r\n" * 20_000)],
    ids=lambda value: value[:12],
)
def test_a_huge_value_is_read_back(name: str, huge: str) -> None:
    dialect = DIALECTS[name]
    if huge == "markup":
        piece = "".join(markers(dialect))
        huge = piece * (50_000 // len(piece))
    value = {"path": "a", "content": huge}
    text = write_one(ToolCall("write_file", json.dumps(value)), dialect)
    assert calls(read([text], [dialect])) == [("write_file", value)]


@pytest.mark.parametrize("name", COMMON)
def test_a_call_with_every_type_is_read_back(name: str) -> None:
    values = {
        "text": "5000",
        "count": 5000,
        "ratio": 2.5,
        "urgent": False,
        "tags": ["a", "5"],
        "options": {"depth": 1, "label": "<x>"},
        "steps": [{"do": "it", "done": True}],
        "note": None,
        "limit": None,
        "mode": 3,
        "any": {"a": [None]},
    }
    text = write_one(ToolCall("save", json.dumps(values)), DIALECTS[name], TOOLS["typed"])
    assert dump_typed(calls(read([text], [DIALECTS[name]], TOOLS["typed"]))) == dump_typed([("save", values)])
