"""Schemas of tools in the forms that servers accept for their grammars."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.dialects.material import CASES as FOLDER
from tests.dialects.material import plain
from tests.exchange.asking.applied_steps import make_context
from vtc.events import Answer, CanonicalRequest, Tool
from vtc.exchange.asking.steps import apply_steps

type Json = dict[str, Any]

CASES = plain((FOLDER / "schemas.yaml").read_text("utf-8"))
KINDS = ("string", "number", "boolean", "object", "array", "null")
NULLABLE = {"anyOf": [{"type": "string"}, {"type": "null"}]}
ANY = {"anyOf": [{"type": kind} for kind in KINDS]}


def simplify_schema(schema: Json, value: str = "grammar") -> tuple[Any, list[str]]:
    asked = CanonicalRequest(model="m", messages=(), tools=(Tool("go", "", schema),))
    found, reports = apply_steps(asked, {"schemas": value}, make_context())
    return found.tools[0].parameters, [*reports.values()]


def parameter(schema: Any, form: str, **root: Any) -> Any:
    found, _ = simplify_schema({"type": "object", "properties": {"p": schema}, **root}, form)
    return found["properties"]["p"]


@pytest.mark.every
@pytest.mark.parametrize(("form", "case"), [(form, case) for form in ("grammar", "plain") for case in CASES[form]])
def test_constraints_are_described_in_words(form: str, case: Json) -> None:
    root = {"$defs": {"one": {"type": "integer"}}} if form == "grammar" else {}
    assert parameter(case["schema"], form, **root) == case["sent"]


def test_property_named_like_a_keyword_is_unchanged() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "format": {"type": "string"}}}
    found, reports = simplify_schema(schema)
    assert found is schema
    assert not reports


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, "right": {"$ref": "#/$defs/node"}}}
    found, reports = simplify_schema({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert found == {"type": "object", "properties": {"left": {"type": "object"}, "right": {"type": "object"}}}
    assert reports == ["1 schema simplified (go: $ref, depth)"]


def test_the_schemas_of_all_tools_together_are_bounded() -> None:
    """Each definition refers twice to the next one, so a tool of eleven definitions has two thousand schemas."""
    definitions: Json = {
        f"d{level}": {"properties": {place: {"$ref": f"#/$defs/d{level + 1}"} for place in "ab"}} for level in range(10)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**definitions, "d10": {"type": "string"}}}
    tools = tuple(Tool(f"go{number}", "", schema) for number in range(20))
    found, reports = apply_steps(
        CanonicalRequest(model="m", messages=(), tools=tools), {"schemas": "grammar"}, make_context()
    )
    sizes = [len(json.dumps(tool.parameters)) for tool in found.tools]
    assert sizes[0] == max(sizes) > 20_000
    assert sum(sizes) < 8 * sizes[0]
    assert all(tool.parameters["type"] == "object" for tool in found.tools)
    assert any("go19" in line or "…" in line for line in reports.values())


def test_a_tool_without_parameters_has_those_of_an_object() -> None:
    assert simplify_schema({})[0] == {"type": "object", "properties": {}}


SCOPES: Json = {
    "type": "object",
    "properties": {"paths": {"type": "array", "items": {"type": "string"}}, "scopes": {"type": "array"}},
    "anyOf": [{"required": ["paths"]}, {"required": ["scopes"]}],
}
BY_URL = {"type": "object", "properties": {"name": {"type": "string"}, "url": {"type": "string"}}, "required": ["name"]}
BY_TEXT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "text": {"type": "string"}},
    "required": ["name", "text"],
}


def test_parameters_are_an_object_with_members_and_entries() -> None:
    """OpenAI and Anthropic require it; every other keyword stays unchanged."""
    assert simplify_schema(SCOPES, "object") == (
        {
            "type": "object",
            "properties": {**SCOPES["properties"], "scopes": {"type": "array", "items": {}}},
            "description": '(anyOf: [{"required":["paths"]},{"required":["scopes"]}])',
        },
        ["1 schema simplified (go: anyOf, items)"],
    )
    narrow = {"type": "object", "properties": {"p": {"type": "string", "pattern": "a"}}, "additionalProperties": False}
    assert simplify_schema(narrow, "object")[0] is narrow


@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
@pytest.mark.parametrize("value", ["object", "grammar", "plain"])
def test_members_of_all_alternatives_are_shown_and_common_required_ones_required(key: str, value: str) -> None:
    members, _ = simplify_schema({key: [BY_URL, {"$ref": "#/$defs/text"}], "$defs": {"text": BY_TEXT}}, value)
    assert members["type"] == "object"
    assert [*members["properties"]] == ["name", "url", "text"]
    assert members["required"] == ["name"]
    assert not members.keys() & {"anyOf", "oneOf"}


@pytest.mark.parametrize("value", ["object", "grammar", "plain"])
def test_of_all_of_several_objects_all_is_required(value: str) -> None:
    members, _ = simplify_schema({"allOf": [BY_URL, BY_TEXT]}, value)
    assert (members["type"], [*members["properties"]]) == ("object", ["name", "url", "text"])
    assert members["required"] == ["name", "text"]


def test_entries_of_a_tuple_are_described() -> None:
    first = {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}
    draft = {"type": "array", "prefixItems": first["items"], "items": False}
    items = [*first["items"]]
    assert simplify_schema({"type": "object", "properties": {"p": first, "q": draft}}, "object")[0]["properties"] == {
        "p": {"type": "array", "prefixItems": items, "items": {}},
        "q": {"type": "array", "prefixItems": items, "items": {}, "maxItems": 2},
    }
    simplified, _ = simplify_schema({"type": "object", "properties": {"q": draft}}, "plain")
    assert simplified["properties"]["q"] == {"type": "array", "items": {"anyOf": items}}


@pytest.mark.parametrize("value", ["object", "grammar", "plain"])
def test_tool_without_an_object_is_removed_and_others_are_offered(value: str) -> None:
    tools = tuple(Tool(name, "", schema) for name, schema in (("a", {"type": "string"}), ("b", BY_URL)))
    found, reports = apply_steps(
        CanonicalRequest(model="m", messages=(), tools=tools), {"schemas": value}, make_context()
    )
    assert [tool.name for tool in found.tools] == ["b"]
    assert reports["schemas"] == "not offered, because their arguments are no object: a"


@pytest.mark.parametrize("words", ["grammar", "plain"])
@pytest.mark.parametrize("given", [{"type": ["string", "null"]}, {"type": ["null", "string"]}, NULLABLE])
def test_null_is_kept_if_a_value_is_required(given: Json, words: str) -> None:
    schema = {"type": "object", "properties": {"p": {**given, "description": "b"}}, "required": ["p"]}
    found, _ = simplify_schema(schema, words)
    parameter = found["properties"]["p"]
    assert [member["type"] for member in parameter["anyOf"]] == ["string", "null"]
    assert "b" in (parameter.get("description"), parameter["anyOf"][0].get("description"))


def test_plain_servers_get_no_keyword_that_they_reject() -> None:
    schema = {"$schema": "x", "type": "object", "additionalProperties": False, "properties": {"p": {"const": "a"}}}
    assert simplify_schema(schema)[0] is schema
    assert simplify_schema(schema, "plain") == (
        {"type": "object", "properties": {"p": {"type": "string", "description": "(const: a)"}}},
        ["1 schema simplified (go: const, $schema, additionalProperties)"],
    )


# The rewritten form of any schema is accepted by servers of that form, and accepts the same values


def plain_fault(schema: Json) -> str:
    """Return the reason why Gemini, Vertex or Moonshot would reject a schema; empty if they accept it."""
    if "anyOf" in schema:
        faults = ["anyOf beside others"] * (schema.keys() != {"anyOf"} or len(schema["anyOf"]) < 2)
        return next(iter([*faults, *filter(None, map(plain_fault, schema["anyOf"]))]), "")
    kind = schema.get("type")
    known = {
        "object": {"properties", "required"},
        "array": {"items"},
        "string": {"enum"},
        **{kind: set[str]() for kind in ("number", "integer", "boolean", "null")},
    }
    if kind not in known:
        return f"no type: {schema}"
    if other := schema.keys() - {"type", "description"} - known[kind]:
        return f"unknown name {other}"
    if kind == "string" and not all(isinstance(text, str) and text for text in schema.get("enum", ["a"])):
        return "enum"
    if kind == "object":
        if not isinstance(schema.get("properties"), dict) or not {*schema.get("required", [])} <= {
            *schema["properties"]
        }:
            return "object schema missing properties"
        return next(filter(None, map(plain_fault, schema["properties"].values())), "")
    return plain_fault(schema["items"]) if "items" in schema else "missing items" if kind == "array" else ""


def object_fault(schema: Any, *, top: bool = True) -> str:
    """Return the reason why OpenAI or Anthropic would reject a schema."""
    if top and (schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}):
        return "schema must have type 'object' and not have 'anyOf' at the top level"
    if top and "properties" not in schema:
        return "object schema missing properties"
    if isinstance(schema, list):
        return next(filter(None, (object_fault(inner, top=False) for inner in schema)), "")
    if not isinstance(schema, dict):
        return ""
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        return "array schema missing items"
    return next(filter(None, (object_fault(inner, top=False) for inner in schema.values())), "")


WORD = st.sampled_from(["a", "b", ""])
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (True, st.none() | WORD | st.integers(0, 3) | st.just({"x": [1]})),
    ({"type": "string"}, WORD),
    ({"type": "string", "pattern": "^a", "maxLength": 9}, st.just("a")),
    ({"type": "integer", "minimum": 1}, st.integers(1, 3)),
    ({"type": "number"}, st.integers(0, 3) | st.just(0.5)),
    ({"type": "boolean", "default": False}, st.booleans()),
    ({"type": "null"}, st.none()),
    ({"type": ["string", "null", "integer"], "title": "T"}, WORD | st.none() | st.integers(0, 3)),
    ({"type": ["string", "null"], "enum": ["a", None]}, st.sampled_from(["a", None])),
    ({"anyOf": [{"$ref": "#/$defs/word"}, {"type": "null"}], "description": "Or none."}, WORD | st.none()),
    ({"description": "Whatever."}, st.none() | WORD | st.just([None])),
    ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, st.just({"x1": None})),
    ({"enum": ["a", 1, None]}, st.sampled_from(["a", 1, None])),
    ({"enum": ["", "b"], "description": "Which."}, st.sampled_from(["", "b"])),
    ({"const": {"a": 1}}, st.just({"a": 1})),
    ({"$ref": "#/$defs/word", "description": "Said."}, WORD),
    ({}, st.none() | WORD | st.integers(0, 3) | st.just({"x": [1]}) | st.just([1, None, ["a"]])),
    ({"type": "object"}, st.just({"x": None})),
    ({"type": "array"}, st.just([None, 1, {"x": 1}])),
]
"""Schemas, each with values that it accepts."""


@st.composite
def fitting_schemas(draw: st.DrawFn, depth: int = 3) -> tuple[Json, Any]:
    """Generate a schema, and a value that it accepts."""
    form = (
        draw(st.sampled_from(["scalar", "list", "tuple", "object", "anyOf", "oneOf", "allOf"])) if depth else "scalar"
    )
    if form == "scalar":
        schema, value = draw(st.sampled_from(SCALARS))
        return schema, draw(value)
    if form == "object":
        return draw(objects(depth))
    some = draw(st.lists(fitting_schemas(depth - 1), min_size=1, max_size=3))
    schemas, value = [schema for schema, _ in some], some[0][1]
    match form:
        case "list":
            return {"type": "array", "items": schemas[0], "minItems": 1}, [value]
        case "tuple":
            last = draw(st.sampled_from([{}, {"items": False}]))
            return {"type": "array", "prefixItems": schemas, **last}, [value for _, value in some]
        case "allOf":
            return {"allOf": [{"description": "d"}, schemas[0]]}, value
    return {form: draw(st.permutations(schemas)), "default": None}, value


@st.composite
def objects(draw: st.DrawFn, depth: int = 3) -> tuple[Json, Json]:
    """Generate the schema of an object, as tools declare it, and a value that it accepts."""
    names = draw(st.lists(st.sampled_from("pqrs"), unique=True, max_size=3))
    members = {name: draw(fitting_schemas(depth - 1)) for name in names}
    given = [name for name in names if draw(st.booleans())]
    schema: Json = {
        "type": "object",
        "properties": {name: schema for name, (schema, _) in members.items()},
        "required": given,
        **draw(st.sampled_from([{}, {"additionalProperties": False}, {"additionalProperties": {"type": "string"}}])),
    }
    value = {
        name: value
        for name, (_, value) in members.items()
        if name in given or (value is not None and draw(st.booleans()))
    }
    match draw(st.sampled_from(["", "narrowed", "among", "all"])):
        case "narrowed":
            schema["anyOf"] = [{"required": [*value]}, {"required": ["other"]}]
        case "among":
            schema = {
                draw(st.sampled_from(["anyOf", "oneOf"])): draw(st.permutations([schema, {"$ref": "#/$defs/of"}]))
            }
        case "all":
            schema = {"allOf": [{"type": "object", "properties": {"other": {"type": "string"}}}, schema]}
    return schema, value


DEFINITIONS = {
    "word": {"type": "string"},
    "of": {"type": "object", "properties": {"other": {"type": "number"}}, "required": ["other"]},
}


def omit_nulls(value: Any) -> list[Any]:
    """Return the value without any of its members that are null, in all combinations: such calls are equivalent."""
    if isinstance(value, list):
        return [[*one] for one in product(*map(omit_nulls, value))]
    if not isinstance(value, dict):
        return [value]
    members = [
        [*([()] if inner is None else []), *(((name, one),) for one in omit_nulls(inner))]
        for name, inner in value.items()
    ]
    return [dict(chain.from_iterable(some)) for some in product(*members)]


def grammar_fault(schema: Any, *, place: str = "") -> str:
    """Return a part of a schema for which llama.cpp would make no grammar, or a wrong one."""
    if not isinstance(schema, dict):
        return "" if isinstance(schema, bool) and place in ("additionalProperties", "") else f"{place}: {schema}"
    if not place and (schema.get("type") != "object" or "properties" not in schema):
        return "no object on top"
    if narrow := schema.keys() & {"pattern", "minLength", "minimum", "minItems", "maxItems", "not", "if", "format"}:
        return f"{place}: {narrow}"
    if place != "allOf" and not schema.keys() & {"type", "enum", "const", "anyOf", "oneOf", "allOf"}:
        return f"{place}: no type in {schema}"
    inside = [("property", inner) for inner in schema.get("properties", {}).values()]
    for key in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems"):
        value = schema.get(key, [])
        inside += [(key, inner) for inner in (value if isinstance(value, list) else [value])]
    inside = [(key, inner) for key, inner in inside if (key, inner) != ("items", False)]
    return next(filter(None, (grammar_fault(inner, place=key) for key, inner in inside)), "")


FAULTS = {"grammar": grammar_fault, "object": object_fault, "plain": plain_fault}


@pytest.mark.parametrize("words", FAULTS)
@settings(max_examples=60)
@over(fitted=objects())
def test_every_schema_is_accepted_and_accepts_the_same_values(words: str, fitted: tuple[Json, Json]) -> None:
    """This holds except for null if a member may be missing."""
    schema, value = {**fitted[0], "$defs": DEFINITIONS}, fitted[1]
    written, _ = simplify_schema(schema, words)
    assert not FAULTS[words](written)
    assert simplify_schema(written, words)[0] is written
    if Draft202012Validator(schema).is_valid(value):  # several schemas of `oneOf` can accept it
        assert any(map(Draft202012Validator(written).is_valid, omit_nulls(value)))


REJECTED = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern"),
    *("maxItems", "uniqueItems", "minProperties", "maxProperties", "patternProperties", "oneOf", "not"),
}
"""Keywords that platform.claude.com, "Structured outputs", lists as not supported; its SDKs describe `pattern`, too."""


def find_faults(schema: Any, place: str = "") -> Iterator[str]:
    if isinstance(schema, dict):
        if not place.endswith("properties"):
            yield from (f"{place}: {key}" for key in REJECTED & schema.keys())
            if "object" in str(schema.get("type")) and schema.get("additionalProperties") is not False:
                yield f"{place}: open"
        for key, value in schema.items():
            if key not in ("enum", "const", "default"):
                yield from find_faults(value, "" if place.endswith("properties") else key)
    elif isinstance(schema, list):
        for entry in schema:
            yield from find_faults(entry, "list")


@settings(max_examples=40)
@over(fitted=objects())
def test_no_keyword_of_an_answer_is_sent_that_anthropic_rejects(fitted: tuple[Json, Json]) -> None:
    asked = CanonicalRequest(model="m", messages=(), answer=Answer({**fitted[0], "$defs": DEFINITIONS}))
    found, _ = apply_steps(asked, {"answer": True}, make_context(server="anthropic-messages"))
    assert found.answer
    assert not [*find_faults(found.answer.schema)]
