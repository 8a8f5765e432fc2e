"""Values between tags: the type comes from the schema, never from the look."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.dialects.material import typed
from vtc.dialects.arguments import values

STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": kind} for kind in ("string", "integer", "number", "boolean", "null"))
ARRAY, OBJECT = {"type": "array"}, {"type": "object"}


def read(text: str, schema: Any, **root: Any) -> tuple[Any, bool]:
    return values.read(text, schema, root)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        # A string is the text.
        (STRING, "5000", "5000"),
        (STRING, " true\n", " true\n"),
        (STRING, '{"a": 1}', '{"a": 1}'),
        (STRING, "null", "null"),
        (STRING, '"quoted"', '"quoted"'),
        (STRING, "", ""),
        # Other types are trimmed, and read as JSON or as Python.
        (INTEGER, " 7\n", 7),
        (INTEGER, "-3", -3),
        (INTEGER, "3.0", 3),
        (INTEGER, "1e3", 1000),
        (NUMBER, "2.5", 2.5),
        (NUMBER, "3", 3),
        (NUMBER, "1E-2", 0.01),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False ", False),
        (BOOLEAN, "TRUE", True),
        (NULL, "null", None),
        (NULL, "None", None),
        (NULL, "", None),
        (ARRAY, "[1, 2]", [1, 2]),
        (ARRAY, "['a', None, True]", ["a", None, True]),
        (ARRAY, "", []),
        (OBJECT, '{"a": {"b": []}}', {"a": {"b": []}}),
        (OBJECT, "{'a': (1), 'b': False}", {"a": 1, "b": False}),
        (OBJECT, " \n", {}),
        # Of several types the others come before the string.
        ({"type": ["string", "integer"]}, "5", 5),
        ({"type": ["string", "integer"]}, "five", "five"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "None of it", "None of it"),
        ({"type": ["string", "null"]}, "", ""),
        ({"type": ["array", "string"]}, "", ""),
        ({"type": ["integer", "null"]}, "", None),
        ({"anyOf": [STRING, NUMBER]}, "2.5", 2.5),
        ({"anyOf": [INTEGER, BOOLEAN]}, "true", True),
        ({"oneOf": [ARRAY, STRING]}, "[1]", [1]),
        ({"oneOf": [ARRAY, STRING]}, "[1", "[1"),
        ({"anyOf": [{"anyOf": [INTEGER]}, NULL]}, "7", 7),
        # Enumerations and constants
        ({"enum": ["a", "b"]}, "a", "a"),
        ({"enum": [1, "1"]}, "1", 1),
        ({"enum": [True, None]}, "None", None),
        ({"type": "string", "enum": ["1", "2"]}, "2", "2"),
        ({"enum": [1.5, {"a": 1}]}, '{"a": 1}', {"a": 1}),
        ({"const": 3}, " 3 ", 3),
        ({"const": "x"}, "x", "x"),
        # A schema that says the type in other words, or says nothing
        ({"properties": {"a": INTEGER}}, '{"a": 1}', {"a": 1}),
        ({"additionalProperties": True}, "{}", {}),
        ({"items": INTEGER}, "[1]", [1]),
        ({}, "5", "5"),
        ({}, "[1]", [1]),
        ({}, "{'a': None}", {"a": None}),
        ({}, "[1", "[1"),
        (True, "true", "true"),
    ],
)
def test_a_value_that_fits(schema: Any, text: str, value: Any) -> None:
    found, fits = read(text, schema)
    assert typed(found) == typed(value)
    assert fits


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (INTEGER, "2.5"),
        (INTEGER, "five"),
        (INTEGER, "true"),
        (INTEGER, '"5"'),
        (INTEGER, ""),
        (NUMBER, "1e999"),
        (NUMBER, "NaN"),
        (NUMBER, "Infinity"),
        (NUMBER, "1+1"),
        (BOOLEAN, "yes"),
        (BOOLEAN, "1"),
        (ARRAY, "1, 2"),
        (ARRAY, "(1, 2)"),
        (ARRAY, "[NaN]"),
        (ARRAY, "[1e999]"),
        (ARRAY, "[b'x']"),
        (ARRAY, "{1}"),
        (OBJECT, "[]"),
        (OBJECT, "{'a': 1 + 2j}"),
        (OBJECT, "{(1, 2): 3}"),
        (OBJECT, "[" * 100_000),
        (INTEGER, "9" * 100_000),
        ({"type": "string", "enum": ["a", "b"]}, "c"),
        ({"const": "x"}, "y"),
        ({"type": "date"}, "2020"),
        (OBJECT, '{"a": 1, "a": 2}'),
        (ARRAY, '[{"a": {"b": 1, "b": 2}}]'),
    ],
)
def test_what_fits_no_type_stays_a_string(schema: Any, text: str) -> None:
    assert read(text, schema) == (text, False)


def test_null_where_none_may_stand_is_null_all_the_same() -> None:
    assert read("null", INTEGER) == (None, False)


def test_a_literal_that_python_warns_about_is_read_in_silence() -> None:
    with warnings.catch_warnings(record=True) as seen:
        assert read(r"['\d']", ARRAY) == (["\\d"], True)
    assert seen == []


# Child tags


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "array", "items": STRING}, "<item>a</item>\n<item> 5 </item><item></item>", ["a", " 5 ", ""]),
        ({"type": "array", "items": INTEGER}, " \n<item>1</item> <item>2</item>\n", [1, 2]),
        ({"type": "array", "items": STRING}, "<item>\na\nb\n</item>", ["a\nb"]),
        ({"type": "array", "items": STRING}, "<item>a</item>b</item>", ["a</item>b"]),
        ({"type": "array", "items": {"type": "array", "items": INTEGER}}, "<item><item>1</item></item>", [[1]]),
        (
            {"type": "object", "properties": {"a": INTEGER, "b": {"type": "array", "items": BOOLEAN}}},
            "<b><item>true</item></b>\n<a>1</a>",
            {"a": 1, "b": [True]},
        ),
        ({"type": "array"}, "<item>1</item>", ["1"]),
    ],
)
def test_child_tags(schema: Any, text: str, value: Any) -> None:
    found, fits = read(text, schema)
    assert typed(found) == typed(value)
    assert fits


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (ARRAY, "<item>a"),
        (ARRAY, "<item>a</item> b"),
        (ARRAY, "b <item>a</item>"),
        (ARRAY, "<a>a</a>"),
        (OBJECT, "<a>a</a>"),
        ({"type": "object", "properties": {"a": STRING}}, "<a>1</a><a>2</a>"),
        ({"type": "object", "properties": {"a": STRING}}, "<a>1</a><b>2</b>"),
    ],
)
def test_child_tags_that_are_none(schema: Any, text: str) -> None:
    assert read(text, schema) == (text, False)


MARK = "]<]x[>["
OPEN = {"type": "object", "properties": {"n": INTEGER}}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        # Members that are not declared: their types are unknown
        (OBJECT, "<limit>5</limit>", {"limit": "5"}),
        (OBJECT, "\n<a> x\n</a>\n<b></b>\n", {"a": " x\n", "b": ""}),
        (OBJECT, "<a><b><c>1</c></b></a>", {"a": {"b": {"c": "1"}}}),
        (OBJECT, "<a><a>1</a><b>2</b></a>", {"a": {"a": "1", "b": "2"}}),
        (OBJECT, "<a><item>1</item><item><b>x</b></item></a>", {"a": ["1", {"b": "x"}]}),
        (OBJECT, '<a>[1, {"b": null}]</a>', {"a": [1, {"b": None}]}),
        (OPEN, "<n>5</n><other>5</other>", {"n": 5, "other": "5"}),
        ({"type": "object", "additionalProperties": INTEGER}, "<a>5</a><b>6</b>", {"a": 5, "b": 6}),
        ({"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}}, "<a>5</a>", {"a": 5}),
        ({"type": "object", "additionalProperties": False}, "<a>5</a>", {"a": "5"}),
        # Lists
        (ARRAY, "<item>1</item><item><a>x</a></item>", ["1", {"a": "x"}]),
        ({"type": "array", "items": OBJECT}, "<item><a>1</a></item><item><b>2</b></item>", [{"a": "1"}, {"b": "2"}]),
        ({"type": "array", "items": OPEN}, "<item><n>1</n></item><item></item>", [{"n": 1}, {}]),
        ({"type": "array", "prefixItems": [INTEGER], "items": BOOLEAN}, "<item>1</item><item>true</item>", [1, True]),
        ({"type": "array", "items": ARRAY}, "<item><item>a</item></item><item></item>", [["a"], []]),
        # Of several objects the one that declares the members
        ({"anyOf": [{"properties": {"a": INTEGER}}, {"properties": {"b": INTEGER}}]}, "<b>5</b>", {"b": 5}),
        ({"anyOf": [OBJECT, STRING]}, "<b>5</b>", {"b": "5"}),
        ({"anyOf": [NULL, OBJECT]}, "<b>5</b>", {"b": "5"}),
        # Nothing is known at all.
        ({}, "<a>1</a>", {"a": "1"}),
        ({}, "<item>1</item>", ["1"]),
        # A closer is counted with the openers in the value.
        (OBJECT, "<a>x <a>y</a> z</a>", {"a": "x ]<]x[>[<a>y]<]x[>[</a> z"}),
        (OBJECT, "<a>x <a> y</a>", {"a": "x ]<]x[>[<a> y"}),
        (OBJECT, "<a>x </a> y</a>", {"a": "x ]<]x[>[</a> y"}),
        (STRING, "<a>1</a>", "]<]x[>[<a>1]<]x[>[</a>"),
    ],
)
def test_child_tags_with_a_mark_of_their_own(schema: Any, text: str, value: Any) -> None:
    found, fits = values.read(text.replace("<", MARK + "<"), schema, {"$defs": {"n": INTEGER}}, mark=MARK)
    assert typed(found) == typed(value)
    assert fits


def test_child_tags_that_are_never_closed_take_linear_time() -> None:
    """Each is looked for to the end of the text once, and not once for each child before it."""
    text = f"{MARK}<item>x{MARK}<item>{MARK}</item>" * 20_000
    found, fits = values.read(text, ARRAY, {}, mark=MARK)
    assert (len(found), fits) == (20_000, True)


# References


def test_references_are_followed() -> None:
    defs = {"n": INTEGER, "list": {"type": "array", "items": {"$ref": "#/$defs/n"}}, "a/b~c": BOOLEAN}
    assert read("5", {"$ref": "#/$defs/n"}, **{"$defs": defs}) == (5, True)
    assert read("<item>5</item>", {"$ref": "#/$defs/list"}, **{"$defs": defs}) == ([5], True)
    assert read("true", {"$ref": "#/$defs/a~1b~0c"}, **{"$defs": defs}) == (True, True)
    assert read("5", {"anyOf": [{"$ref": "#/definitions/n"}, NULL]}, definitions=defs) == (5, True)
    assert read("5", {"allOf": [{"$ref": "#/$defs/n"}, {"description": "a number"}]}, **{"$defs": defs}) == (5, True)


@pytest.mark.parametrize("reference", ["#/$defs/none", "#/x/y/z", "other.json#/a", 5])
def test_a_reference_to_nothing_says_nothing(reference: Any) -> None:
    assert read("5", {"$ref": reference}) == ("5", True)


def test_a_schema_may_refer_to_itself() -> None:
    tree = {"type": "object", "properties": {"in": {"$ref": "#"}, "n": INTEGER}}
    assert values.read("<in><in><n>1</n></in></in>", tree, tree) == ({"in": {"in": {"n": 1}}}, True)
    deep = "<in>" * 5_000 + "</in>" * 5_000
    found, _ = values.read(deep, tree, tree)
    assert len(json.dumps(found)) > 5_000
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert values.read("5", loop, loop) == ("5", True)


def test_properties_and_what_is_required() -> None:
    schema = {
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": INTEGER}}],
        "$defs": {"base": {"properties": {"a": {"$ref": "#/$defs/text"}}, "required": ["a"]}, "text": STRING},
    }
    assert values.properties(schema) == {"a": STRING, "b": INTEGER}
    assert values.required(schema) == ("a",)
    assert values.properties({"properties": {"a": True, "b": False, "c": 5}}) == {"a": {}}
    assert values.properties({}) == {}
    assert values.required({}) == ()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=6,
)
KEYWORDS = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "items", "required", "$ref", "$defs"]
KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
nonsense = st.recursive(
    anything | st.sampled_from([*KINDS, "#", "#/$defs/a"]) | st.dictionaries(st.sampled_from(KEYWORDS), anything),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), children, max_size=3)
    ),
    max_leaves=10,
)


@example({"allOf": [{"properties": None}, {"properties": {"a": {}}}, {"properties": None}]}, "")
@given(nonsense, st.text(max_size=10) | st.sampled_from(["", "5", "null", "[1]", "<a>1</a>", "<item>1</item>"]))
def test_a_schema_that_makes_no_sense_costs_the_type_and_not_the_call(schema: Any, text: str) -> None:
    value, _ = values.read(text, schema, schema)
    assert isinstance(value, str | int | float | list | dict | None)
    json.dumps(value, allow_nan=False)
    values.properties(schema)
    values.required(schema)


def test_what_is_said_of_properties_in_several_places_holds_together() -> None:
    texts = {"type": "string"}
    schema = {
        "allOf": [{"properties": {"a": texts}, "required": ["a"]}, {"properties": {"b": texts}, "required": ["b"]}],
        "properties": {"c": texts},
        "required": ["c"],
    }
    assert values.properties(schema) == {"a": texts, "b": texts, "c": texts}
    assert values.required(schema) == ("a", "b", "c")


# Writing


@pytest.mark.parametrize(
    ("value", "as_json", "as_python", "as_repr"),
    [
        ('it\'s "so"', 'it\'s "so"', 'it\'s "so"', 'it\'s "so"'),
        (5, "5", "5", "5"),
        (2.5, "2.5", "2.5", "2.5"),
        (True, "true", "True", "True"),
        (None, "null", "None", "None"),
        (["é", None], '["é", null]', '["é", null]', "['é', None]"),
        ({"a": True}, '{"a": true}', '{"a": true}', "{'a': True}"),
    ],
)
def test_writing(value: Any, as_json: str, as_python: str, as_repr: str) -> None:
    assert values.write(value, "json") == as_json
    assert values.write(value, "python") == as_python
    assert values.write(value, "repr") == as_repr


TYPED = {
    "string": (STRING, st.text()),
    "integer": (INTEGER, st.integers()),
    "number": (NUMBER, st.integers() | st.floats(allow_nan=False, allow_infinity=False)),
    "boolean": (BOOLEAN, st.booleans()),
    "null": (NULL, st.none()),
    "array": (ARRAY, st.lists(anything, max_size=4)),
    "object": (OBJECT, st.dictionaries(st.text(), anything, max_size=4)),
}


@pytest.mark.parametrize("kind", TYPED)
@given(data=st.data(), style=st.sampled_from(["json", "python", "repr"]))
def test_what_is_written_is_read_back(kind: str, data: st.DataObject, style: values.Style) -> None:
    schema, strategy = TYPED[kind]
    value = data.draw(strategy)
    found, fits = read(values.write(value, style), schema)
    assert typed(found) == typed(value)
    assert fits


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("str", "1", "1"),
        ("STRING", "1", "1"),
        ("int", "1", 1),
        ("Integer", "1", 1),
        ("float", "1.5", 1.5),
        ("bool", "true", True),
        ("dict", '{"a": 1}', {"a": 1}),
        ("list", "[1]", [1]),
        ("any", "[1]", [1]),
        ("Any", "a", "a"),
        (["int", "str"], "1", 1),
    ],
)
def test_type_that_tools_declare_in_practice_means_what_it_says(kind: Any, text: str, value: Any) -> None:
    assert read(text, {"type": kind}) == (value, True)


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_schema_whose_references_multiply_is_followed_only_so_far(keyword: str) -> None:
    root: dict[str, Any] = {f"d{i}": {keyword: [{"$ref": f"#/d{i + 1}"}] * 50} for i in range(20)}
    value, fits = read("5", {"$ref": "#/d0"}, **root)
    assert (value, fits) == ("5", True)
    assert values.properties({"properties": {"a": {"$ref": "#/d0"}}, **root}).keys() == {"a"}
