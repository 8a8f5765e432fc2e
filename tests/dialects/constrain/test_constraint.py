"""Every dialect with a grammar: written calls are accepted, accepted text is read, malformed text is rejected.

llguidance decides (`checker.py`); `test_engines.py` checks structural tags with xgrammar.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from tests.dialects.constrain import material
from tests.dialects.constrain.checker import Checker
from tests.dialects.constrain.material import (
    EXPRESSIBLE,
    SEARCHED,
    THOROUGH,
    TOOLS,
    call,
    calls,
    free,
    required_grammar,
    text_of,
)
from tests.dialects.material import DIALECTS, content, read
from vtc.dialects import Description
from vtc.dialects.constrain import Demand, Inexpressible, render_constraint
from vtc.dialects.constrain.constraint import build_reply_grammar
from vtc.dialects.constrain.tree import MAX_SCHEMAS, Nodes
from vtc.dialects.writing import write_calls
from vtc.events import Call, Tool

EXAMPLES, WALKS, STEPS = (200, 40, 100) if THOROUGH else (8, 2, 60)
FULL = {"path": "a.py", "content": "if x < 3:\n    y", "mode": "new", "lines": 5, "force": True}


@pytest.mark.halved
@pytest.mark.parametrize("name", SEARCHED)
@settings(max_examples=EXAMPLES)
@given(made=st.lists(calls(), min_size=1, max_size=2))
def test_rendered_calls_are_accepted(name: str, made: list[Any]) -> None:
    text = text_of(name, *made)
    assume(is_tagged(DIALECTS[name], text))
    assert accepts(required_grammar(name), text)


@pytest.mark.halved
@pytest.mark.parametrize("name", SEARCHED)
def test_accepted_calls_are_read(name: str) -> None:
    """Accepted text is read as one or more calls, without repair and without text, and every value is complete."""
    source, done = random.Random(name), 0
    for _ in range(WALKS * 12):
        text = required_grammar(name).sample(source, STEPS)
        if text is None:
            continue
        done += 1
        events = read([text], [DIALECTS[name]], TOOLS)
        found = [one for one in events if isinstance(one, Call)]
        assert found
        assert not [one.repairs for one in found if one.repairs], text
        assert not content(events).strip(), text
        for one in found:
            jsonschema.validate(json.loads(one.call.arguments), TOOLS[one.call.name].parameters)
        again = write_calls([one.call for one in found], DIALECTS[name], TOOLS)
        # An escape is written as the character that it denotes.
        if "{params}" in DIALECTS[name].calls[0] and is_tagged(DIALECTS[name], again) and "\\" not in text + again:
            assert flat(again) == flat(text)
        if done == WALKS:
            break
    assert done


def flat(text: str) -> str:
    """Remove everything with several spellings: white space, and JSON values."""
    return re.sub(r"[\s\d\"',.eE+-]|\\.|true|false|True|False|null|None", "", text)


def is_tagged(dialect: Description, text: str) -> bool:
    """Return False if values would not survive between tags and are written as JSON, which no model is prompted to
    do.
    """
    return "{params}" not in dialect.calls[0] or not re.search(r'(?m)^\s*\{.*\}$|\{"(?:path|content|mode|lines)', text)


def accepts(grammar: Checker, text: str) -> bool:
    if grammar.accepts(text):
        return True
    at = grammar.count_accepted_bytes(text)
    print(repr(text.encode()[:at]), "|", repr(text.encode()[at:]))  # noqa: T201
    return False


@pytest.mark.parametrize("name", EXPRESSIBLE)
def test_malformed_calls_are_rejected(name: str) -> None:
    grammar, good = required_grammar(name), text_of(name, call("write_file", FULL))
    assert grammar.complete(good) == [len(good.encode())]
    assert not grammar.accepts(f"I look.\n{good}")
    assert not grammar.accepts(good.replace("write_file", "write_fil"))
    wrong: list[dict[str, Any]] = [
        {**FULL, "mode": "other"},
        {**FULL, "lines": "five"},
        {**FULL, "colour": "red"},
        {"path": "a.py"},
        {},
    ]
    for arguments in wrong:
        bad = text_of(name, call("write_file", arguments))
        assert not grammar.accepts(bad), bad


MALFORMED = {
    "hermes": [
        '<tool_call>\n{"name": "now", "arguments": {}\n</tool_call>',
        '<tool_call>\n{"name": "now", "arguments": {}}}\n</tool_call>',
        "<tool_call>\n{'name': 'now', 'arguments': {}}\n</tool_call>",
        '<tool_call>\n{{"name": "now", "arguments": {}}}\n</tool_call>',
        '```json\n{"name": "now", "arguments": {}}\n```',
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\nDone.',
        '<tool_call>\n{"name": "now",' + " " * 40 + '"arguments": {}}\n</tool_call>',
    ],
    "qwen3-coder": [
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n<parameter=content>\nb\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>\n<function=now>\n</function>",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=path>\na\n</parameter>\n"
        "<parameter=content>\nb\n</parameter>\n</function>\n</tool_call>",
    ],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MALFORMED.items() for text in texts])
def test_no_known_slip_can_be_written(name: str, text: str) -> None:
    assert not required_grammar(name).accepts(text)


@pytest.mark.parametrize("name", SEARCHED)
def test_calls_may_stand_in_free_text(name: str) -> None:
    try:
        grammar = free(name)
    except Inexpressible as error:
        assert "whole reply" in str(error)  # noqa: PT017
        return
    good = text_of(name, call("write_file", FULL))
    for text in ("No call: 3 < 5.", f"I look.\n{good}", f"{good}\nDone."):
        assert accepts(grammar, text)
    assert not grammar.accepts(f"I look.\n{good[: len(good) - 4]}")
    assert (
        not grammar.accepts(f"I look.\n{good.replace('write_file', 'write_fil')}") or DIALECTS[name].names == "declared"
    )


def test_reasoning_may_precede_calls() -> None:
    demand = Demand(calls_only=True, reasoning_tags=(("<think>", "</think>"),), reasoning_closers=("</think>",))
    tools, good = [*TOOLS.values()], text_of("hermes", call("now", {}))
    grammar = Checker(render_constraint("gbnf", DIALECTS["hermes"], tools, demand))
    for before in ("", "<think>\nA <tool_call> it is.\n</think>\n\n", "So be it.</think>\n"):
        assert accepts(grammar, before + good)
    assert not grammar.accepts("<think>so")
    assert not Checker(render_constraint("gbnf", DIALECTS["hermes"], tools, Demand(calls_only=True))).accepts(
        f"<think></think>{good}"
    )


def test_parallel_calls_are_accepted_only_if_allowed() -> None:
    two = text_of("hermes", call("now", {}), call("now", {}))
    one = Checker(
        render_constraint("gbnf", DIALECTS["hermes"], [*TOOLS.values()], Demand(calls_only=True, allows_multiple=False))
    )
    assert required_grammar("hermes").accepts(two)
    assert not one.accepts(two)


def test_an_unknown_schema_loosens_the_value() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"not": {"type": "null"}}, "b": {"$ref": "#/$defs/b"}, "c": {"type": "odd"}, "d": True},
        "$defs": {"b": {"type": "integer", "minimum": 3}},
    }
    grammar = Checker(render_constraint("gbnf", DIALECTS["hermes"], [Tool("f", "", schema)], Demand(calls_only=True)))
    text = '<tool_call>\n{"name": "f", "arguments": {"a": [1], "b": 1, "c": {"x": null}, "d": "y"}}\n</tool_call>'
    assert accepts(grammar, text)
    assert not grammar.accepts(text.replace('"b": 1', '"b": "1"'))


@pytest.mark.parametrize("name", material.FAMILIES)
@pytest.mark.parametrize("schema", [{}, {"type": "object"}, {"type": "object", "additionalProperties": True}])
def test_tool_without_parameters_accepts_any_arguments(name: str, schema: dict[str, Any]) -> None:
    tools = {"now": Tool("now", "", schema)}
    grammar = Checker(render_constraint("gbnf", DIALECTS[name], [*tools.values()], Demand(calls_only=True)))
    assert accepts(grammar, write_calls([call("now", {})], DIALECTS[name], tools).lstrip())
    some = write_calls([call("now", {"zone": "UTC"})], DIALECTS[name], tools).lstrip()
    assert accepts(grammar, some) or name == "tag"  # its closer would have to be known


def test_a_schema_that_refers_to_itself_ends() -> None:
    schema = {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    }
    assert render_constraint("gbnf", DIALECTS["hermes"], [Tool("f", "", schema)], Demand(calls_only=True))


REFERRING = {
    "properties": {"a": {"$ref": "#/$defs/d0"}},
    "$defs": {
        **{
            f"d{level}": {
                "properties": {f"p{place}": {"$ref": f"#/$defs/d{level + 1}"} for place in range(4)},
                "required": ["p0", "p1", "p2", "p3"],
            }
            for level in range(10)
        },
        "d10": {"type": "string"},
    },
}
"""Ten definitions with four properties that each refer to the next one: expanded, it would have a million leaves."""


def grown(depth: int, name: str = "k") -> dict[str, Any]:
    """Build nested objects of four members, all of them different."""
    if not depth:
        return {"type": "string"}
    return {"properties": {f"{name}{place}": grown(depth - 1, f"{name}{place}") for place in range(4)}}


BEYOND = {
    "choices": {"enum": [f"value-{number:06}" for number in range(20000)]},
    "beginnings of each other": {"enum": ["x" * number for number in range(1, 1500)]},
    "objects in each other": grown(6),
}


def nodes_of(tree: Any) -> int:
    """Count the nodes of a tree, shared ones once."""
    known: dict[int, Any] = {}
    waiting = [tree]
    while waiting:
        if id(node := waiting.pop()) not in known:
            known[id(node)] = node
            waiting += node if isinstance(node, tuple) else getattr(node, "__struct_fields__", ()) and astuple(node)
    return len(known)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "llama3"])
def test_referenced_schemas_are_built_once(name: str) -> None:
    tools = [Tool(f"tool_{number}", "", REFERRING) for number in range(20)]
    one, many = (
        nodes_of(build_reply_grammar(DIALECTS[name], some, Demand(calls_only=True))) for some in (tools[:1], tools)
    )
    assert one < 500
    assert many < 20 * one
    grammars = [render_constraint("gbnf", DIALECTS[name], some, Demand(calls_only=True)) for some in (tools[:1], tools)]
    assert len(grammars[1]) < len(grammars[0]) + 20 * 200


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "llama3"])
@pytest.mark.parametrize("schema", BEYOND.values(), ids=BEYOND)
def test_a_grammar_that_is_too_long_is_given_up_while_it_is_made(schema: dict[str, Any], name: str) -> None:
    tools = [Tool(f"tool_{number}", "", {"properties": {"a": schema}}) for number in range(20)]
    with pytest.raises(Inexpressible, match="longer than"):
        build_reply_grammar(DIALECTS[name], tools, Demand(calls_only=True))


def test_number_of_schemas_is_bounded_by_the_grammar() -> None:
    nodes = Nodes()
    for _ in range(MAX_SCHEMAS):
        nodes.count_schema()
    with pytest.raises(Inexpressible, match="cover more than"):
        nodes.count_schema()


def test_a_schema_of_json_is_given_up_while_it_is_made() -> None:
    for schema in (REFERRING, {"properties": {"a": BEYOND["beginnings of each other"]}}):
        tools = [Tool(f"tool_{number}", "", schema) for number in range(20)]
        with pytest.raises(Inexpressible, match=r"longer than|cover more than"):
            render_constraint("json_schema", DIALECTS["llama3"], tools, Demand(calls_only=True))


def test_many_tools_have_less_freedom_and_then_none() -> None:
    def of(count: int) -> str:
        schemas = ({"properties": {f"p{i}_{j}": material.TEXT for j in range(12)}} for i in range(count))
        tools = [Tool(f"tool_{i}", "", one) for i, one in enumerate(schemas)]
        return str(render_constraint("gbnf", DIALECTS["hermes"], tools, Demand(calls_only=True)))

    assert len(of(60)) < 60 * len(of(1))
    with pytest.raises(Inexpressible, match="longer than"):
        of(400)


def test_the_same_tools_give_the_same_text() -> None:
    texts = {render_constraint("gbnf", DIALECTS["tag"], [*TOOLS.values()], Demand(calls_only=False)) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in EXPRESSIBLE])
@pytest.mark.parametrize("kind", ["gbnf", "structural_tag", "json_schema"])
def test_other_dialects_have_a_reason_why_not(name: str, kind: Any) -> None:
    with pytest.raises(Inexpressible, match=re.escape(DIALECTS[name].unconstrained)):
        render_constraint(kind, DIALECTS[name], [*TOOLS.values()], Demand(calls_only=True))


def test_a_literal_of_python_mixes_no_json_into_it() -> None:
    arguments = {**FULL, "about": {"who": "it's", "sure": True}}
    grammar, good = required_grammar("minicpm"), text_of("minicpm", call("write_file", arguments))
    assert accepts(grammar, good)
    assert not grammar.accepts(good.replace("'sure': True", "'sure': true"))
