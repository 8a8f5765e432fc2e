"""Arguments of any type arrive unchanged: in each dialect in VTC's format, and in the models' format.

The models' format comes from small writers that follow the chat templates and share no code with the project.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.material import DIALECTS, calls, content, dump_typed, merge_events, parse_dialect, read
from vtc.dialects import Description
from vtc.dialects.writing import write_calls
from vtc.events import Call, Tool, ToolCall, UnreadCall

EXAMPLES = settings().max_examples
ODD = [
    *("", " ", "\n", "\r\n", "  x\n\n", "5", "-1.5", "1e3", "true", "False", "null", "None", '"', "'x'", '"x"', "\\"),
    *("[1]", '{"a": 1}', "{'a': 1}", r"[{\"a\": 1}]", "\\n", "C:\\new\\table", 'x = """y"""\n', "a,b:c}", "```"),
    *("<![CDATA[x < y]]>", "]]>", "&lt;&amp;&quot;", "</a>", "<item>1</item>", "é\u2028\U0001f600"),
]
TEXT = st.sampled_from(ODD) | st.text(max_size=6) | st.lists(st.sampled_from(ODD), max_size=3).map("".join)
NUMBER = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = ["text", "path", "a_b", "item", "n1"]
PLAIN = st.sampled_from(["x", "a b", " y\n", "5", "true", "null", "&lt;", "<b>c</b>", "</b>"])
"""Text that stays text if its type is unknown."""


class Kind(NamedTuple):
    """A schema, and values that match it."""

    schema: dict[str, Any]
    values: st.SearchStrategy[Any]


def kinds(*, tells: bool, tags: bool) -> st.SearchStrategy[Kind]:
    """Return schemas whose values a dialect can express: `tells` if it marks strings, `tags` if it nests elements."""
    certain = [
        Kind({"type": "string"}, TEXT),
        Kind({"type": "integer"}, st.integers()),
        Kind({"type": "number"}, NUMBER),
        Kind({"type": "boolean"}, st.booleans()),
        Kind({"type": ["integer", "null"]}, st.none() | st.integers()),
        Kind({"type": "string", "enum": ["5", "true", "a b"]}, st.sampled_from(["5", "true", "a b"])),
        Kind({"enum": [1, 2.5, None]}, st.sampled_from([1, 2.5, None])),
        Kind({"anyOf": [{"type": "boolean"}, {"type": "number"}]}, st.booleans() | NUMBER),
    ]
    if tells:
        certain += [
            Kind({"type": ["string", "null"]}, st.none() | TEXT),
            Kind({"anyOf": [{"type": "integer"}, {"type": "string"}]}, st.integers() | TEXT),
            Kind({"enum": [1, "1", True, "true"]}, st.sampled_from([1, "1", True, "true"])),
        ]
    leaves: st.SearchStrategy[Any] = st.none() | st.booleans() | NUMBER | TEXT
    if tags:  # an undeclared element has no type
        leaves = PLAIN
    anything = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, min_size=tags, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "b-1", "c.d"]), inner, min_size=tags, max_size=3)
        ),
        max_leaves=5,
    )
    members = st.dictionaries(st.sampled_from(["a", "b-1", "c.d"]), anything, max_size=3)
    certain += [Kind({"type": "object"}, members), Kind({"type": "array"}, st.lists(anything, max_size=3))]

    def nest_kinds(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
        lists = inner.map(lambda one: Kind({"type": "array", "items": one.schema}, st.lists(one.values, max_size=3)))
        objects = st.dictionaries(st.sampled_from(["text", "n", "item"]), inner, min_size=1, max_size=3)
        return lists | objects.map(_object)

    return st.recursive(st.sampled_from(certain), nest_kinds, max_leaves=4)


def _object(members: Mapping[str, Kind]) -> Kind:
    values = st.fixed_dictionaries({}, optional={key: one.values for key, one in members.items()})
    return Kind({"type": "object", "properties": {key: one.schema for key, one in members.items()}}, values)


@st.composite
def tool_and_arguments(draw: st.DrawFn, one: st.SearchStrategy[Kind], keys: list[str]) -> tuple[Tool, dict[str, Any]]:
    members = {key: draw(one) for key in draw(st.lists(st.sampled_from(keys), min_size=1, max_size=4, unique=True))}
    values = {key: draw(kind.values) for key, kind in members.items()}
    return Tool("save", parameters=_object(members).schema), values


# VTC's format

FLAT = parse_dialect(
    "{kind: dialect, name: flat, call: '<c>{name}({params})</c>', param: '{key}=<v>{value}</v>', param_separator: ', '}"
)
"""A dialect with text between its parameters, which no built-in dialect has."""
FLAT_TOOL = Tool("save", parameters={"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}})
ANY = tool_and_arguments(kinds(tells=True, tags=False), KEYS)


@pytest.mark.parametrize("dialect", [*DIALECTS.values(), FLAT], ids=lambda one: one.name)
@settings(max_examples=max(1, EXAMPLES // 10))
@given(drawn=ANY)
def test_arguments_of_any_type_are_read_back(dialect: Description, drawn: tuple[Tool, dict[str, Any]]) -> None:
    tool, arguments = drawn
    text = write_calls([ToolCall("save", json.dumps(arguments))], dialect, {"save": tool})
    assert dump_typed(calls(read([text], [dialect], {"save": tool}))) == dump_typed([("save", arguments)])


def test_parameters_with_text_between_them() -> None:
    text = write_calls([ToolCall("save", '{"a": "x, y", "b": 5}')], FLAT, {"save": FLAT_TOOL})
    assert text == "<c>save(a=<v>x, y</v>, b=<v>5</v>)</c>"
    assert calls(read([text], [FLAT], {"save": FLAT_TOOL})) == [("save", {"a": "x, y", "b": 5})]


# The models' format


def dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def raw(value: Any) -> str:
    """Render strings unchanged, all other values as JSON."""
    return value if isinstance(value, str) else dump_json(value)


def functiongemma(arguments: Mapping[str, Any]) -> str:
    def one(value: Any) -> str:
        match value:
            case str():
                return f"<escape>{value}<escape>"
            case list():
                return f"[{','.join(map(one, value))}]"
            case dict():
                return f"{{{','.join(f'{key}:{one(entry)}' for key, entry in value.items())}}}"
        return dump_json(value)

    return f"<start_function_call>call:save{one(dict(arguments))}<end_function_call>"


def gemma4(arguments: Mapping[str, Any]) -> str:
    text = functiongemma(arguments).replace("<escape>", '<|"|>')
    return text.replace("<start_function_call>", "<|tool_call>").replace("<end_function_call>", "<tool_call|>")


def deepseek(arguments: Mapping[str, Any]) -> str:
    def param(key: str, value: Any) -> str:
        is_string = "true" if isinstance(value, str) else "false"
        return f'<｜DSML｜parameter name="{key}" string="{is_string}">{raw(value)}</｜DSML｜parameter>\n'

    params = "".join(param(key, value) for key, value in arguments.items())
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="save">\n{params}</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


def glm(arguments: Mapping[str, Any]) -> str:
    pairs = "".join(
        f"<arg_key>{key}</arg_key>\n<arg_value>{raw(value)}</arg_value>\n" for key, value in arguments.items()
    )
    return f"<tool_call>save\n{pairs}</tool_call>"


def minimax_m3(arguments: Mapping[str, Any]) -> str:
    mark = "]<]minimax[>["

    def elements(value: Any) -> str:
        match value:
            case dict():
                return "".join(f"{mark}<{key}>{elements(entry)}{mark}</{key}>" for key, entry in value.items())
            case list():
                return "".join(f"{mark}<item>{elements(entry)}{mark}</item>" for entry in value)
        return raw(value)

    call = f'{mark}<invoke name="save">{elements(arguments)}{mark}</invoke>'
    return f"{mark}<tool_call>\n{call}\n{mark}</tool_call>"


def kimi_k3(arguments: Mapping[str, Any]) -> str:
    def kind(value: Any) -> str:
        names = {str: "string", bool: "boolean", list: "array", dict: "object", type(None): "null"}
        return names.get(type(value), "number")

    def attribute(text: str) -> str:
        return text.replace("&", "&amp;").replace('"', "&quot;")

    params = "".join(
        f'<|open|>argument key="{attribute(key)}" type="{kind(value)}"<|sep|>{raw(value)}<|close|>argument<|sep|>'
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="save" index="1"<|sep|>{params}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


SURE, MARKED, RAW, TAGS = (
    tool_and_arguments(kinds(tells=tells, tags=tags), keys)
    for tells, tags, keys in (
        (True, False, KEYS),
        (True, False, [*KEYS, 'the "R&D" text', "it's", "a<b", "&quot;", "&amp;amp;", "x y"]),
        (False, False, KEYS),
        (False, True, KEYS),
    )
)
MODELS: dict[str, tuple[Callable[[Mapping[str, Any]], str], st.SearchStrategy[tuple[Tool, dict[str, Any]]]]] = {
    "functiongemma": (functiongemma, SURE),
    "gemma4": (gemma4, SURE),
    "deepseek-v4": (deepseek, SURE),
    "glm-4.5": (glm, RAW),
    "minimax-m3": (minimax_m3, TAGS),
    "kimi-k3": (kimi_k3, MARKED),
}


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data())
def test_models_own_variant_is_read_exactly_without_repair(name: str, data: st.DataObject) -> None:
    write, strategy = MODELS[name]
    tool, arguments = data.draw(strategy)
    text = write(arguments)
    events = read([text], [DIALECTS[name]], {"save": tool})
    assert dump_typed(calls(events)) == dump_typed([("save", arguments)])
    assert content(events) == ""
    assert [event.repairs for event in events if isinstance(event, Call)] == [()]
    assert not any(isinstance(event, UnreadCall) for event in events)
    assert merge_events(read(text, [DIALECTS[name]], {"save": tool})) == merge_events(events)


@pytest.mark.parametrize("name", ["functiongemma", "gemma4"])
@settings(max_examples=max(1, EXAMPLES // 10))
@given(drawn=SURE)
def test_a_call_of_gemma_that_ends_early_is_no_call_with_less_in_it(
    name: str, drawn: tuple[Tool, dict[str, Any]]
) -> None:
    tool, arguments = drawn
    text = MODELS[name][0](arguments)
    for end in range(len(text)):
        found = calls(read([text[:end]], [DIALECTS[name]], {"save": tool}))
        assert not found or dump_typed(found) == dump_typed([("save", arguments)]), text[:end]


@pytest.mark.halved
@pytest.mark.every
@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize(
    "arguments", [{"cmd": "ls"}, {"cmd": "bash", "command": "rm -rf /"}, {"bash": {"command": "x"}}]
)
def test_a_call_of_a_tool_that_is_not_offered_is_none_of_one_that_its_arguments_name(
    name: str, arguments: dict[str, Any]
) -> None:
    offered = {
        "ls": Tool("ls", parameters={"type": "object"}),
        "bash": Tool("bash", parameters={"type": "object", "properties": {"command": {"type": "string"}}}),
    }
    text = write_calls([ToolCall("shell", json.dumps(arguments))], DIALECTS[name], offered)
    assert {call.name for call in calls(read([text], [DIALECTS[name]], offered))} <= {"shell"}
