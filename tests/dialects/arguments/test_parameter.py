"""The value of one parameter between tags: the schema decides, then the markup, and no repair alters a text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.material import typed
from vtc.dialects.arguments import parameter

STRING, INTEGER, BOOLEAN, ARRAY, OBJECT = (
    {"type": kind} for kind in ("string", "integer", "boolean", "array", "object")
)
MAYBE, EITHER = {"type": ["string", "null"]}, {"anyOf": [STRING, INTEGER]}
KINDS = {"enum": ["a", "b"]}


def read(text: str, schema: Any, **how: Any) -> tuple[Any, str]:
    return parameter.read(text, "key", schema, {}, **how)


@pytest.mark.parametrize(
    ("schema", "text", "value", "repair"),
    [
        # A string, where the schema allows one
        (STRING, "42", "42", ""),
        (STRING, "null", "null", ""),
        (STRING, ' "x"\n', ' "x"\n', ""),
        (MAYBE, "null", "null", ""),
        (EITHER, "5", "5", ""),
        (KINDS, "a", "a", ""),
        ({}, "5", "5", ""),
        (None, "[1]", "[1]", ""),
        # No string, as the schema allows none
        (INTEGER, "42", 42, "typed:key"),
        (BOOLEAN, "true", True, "typed:key"),
        (ARRAY, '["a"]', ["a"], "typed:key"),
        (OBJECT, '{"a": 1}', {"a": 1}, "typed:key"),
        ({"type": ["integer", "null"]}, "null", None, "typed:key"),
        ({"enum": [1, 2]}, "2", 2, "typed:key"),
        (INTEGER, "many", "many", "untyped:key"),
        (ARRAY, "a, b", "a, b", "untyped:key"),
    ],
)
def test_the_schema_decides_of_a_value_that_is_marked_as_a_string(
    schema: Any, text: str, value: Any, repair: str
) -> None:
    found, told = read(text, schema, is_string=True)
    assert (typed(found), told) == (typed(value), repair)


@pytest.mark.parametrize(
    ("schema", "text", "value", "repair"),
    [
        # Text, where the schema allows nothing else
        (STRING, "5", "5", ""),
        (STRING, "null", "null", ""),
        (STRING, "ls -la", "ls -la", ""),
        (STRING, "'x'", "'x'", ""),
        (STRING, '["a"]', '["a"]', ""),
        # A string of JSON is a string.
        (STRING, '"a\\n"', "a\n", ""),
        (EITHER, '"5"', "5", ""),
        # Otherwise it is what the schema allows.
        (MAYBE, "null", None, ""),
        (MAYBE, "5", "5", ""),
        (EITHER, "5", 5, ""),
        (EITHER, "five", "five", ""),
        (INTEGER, "5", 5, ""),
        (ARRAY, "['a']", ["a"], ""),
        (INTEGER, "five", "five", "untyped:key"),
        # The markup decides where the schema says nothing.
        (None, "5", 5, ""),
        (None, "null", None, ""),
        (None, "True", True, ""),
        ({}, '"x"', "x", ""),
        (None, "ls", "ls", "untyped:key"),
    ],
)
def test_the_schema_decides_of_a_value_that_is_marked_as_no_string(
    schema: Any, text: str, value: Any, repair: str
) -> None:
    found, told = read(text, schema, is_string=False)
    assert (typed(found), told) == (typed(value), repair)


@pytest.mark.parametrize(
    ("schema", "text", "value", "repair"),
    [
        (ARRAY, r"[{\"id\": \"1\"}]", [{"id": "1"}], "escaped-text"),
        (ARRAY, '[\n  {\\"id\\": \\"a\\\\nb\\"}\n]', [{"id": "a\nb"}], "escaped-text"),
        (OBJECT, r"{\"a\": \"x \\\"y\\\"\"}", {"a": 'x "y"'}, "escaped-text"),
        (ARRAY, r'"[{\"id\": 1}]"', [{"id": 1}], "typed:key"),
        (INTEGER, '"5"', 5, "typed:key"),
        (INTEGER, "<![CDATA[5]]>", 5, "cdata"),
        (ARRAY, ' <![CDATA[["]]]]><![CDATA[>"]]]> ', ["]]>"], "cdata"),
        # Once only, and only if the schema allows no text
        (ARRAY, r"[{\\\"id\\\": 1}]", r"[{\\\"id\\\": 1}]", "untyped:key"),
        (ARRAY, r"[{\"id\": \"a\nb\"}]", r"[{\"id\": \"a\nb\"}]", "untyped:key"),
        (ARRAY, r"{\"id\": 1}", r"{\"id\": 1}", "untyped:key"),
        ({"type": ["array", "string"]}, r"[{\"id\": 1}]", r"[{\"id\": 1}]", ""),
        (STRING, r"[{\"id\": 1}]", r"[{\"id\": 1}]", ""),
        (STRING, "<![CDATA[x < y]]>", "<![CDATA[x < y]]>", ""),
        (None, "<![CDATA[5]]>", "<![CDATA[5]]>", ""),
    ],
)
@pytest.mark.parametrize("is_string", [None, True])
def test_text_where_the_schema_allows_none_is_looked_at_once_more(
    schema: Any, text: str, value: Any, repair: str, is_string: bool | None
) -> None:
    found, told = read(text, schema, is_string=is_string)
    assert (typed(found), told) == (typed(value), repair)
    if repair in ("cdata", "escaped-text"):
        assert read(text, schema, is_string=is_string, lenient=False) == (text, "untyped:key")


@given(st.text() | st.text(st.sampled_from('\\"<![CDATA]>x\n&lt;ndt{}')), st.sampled_from([None, True, False]))
def test_a_string_stays_as_it_is_written(text: str, is_string: bool | None) -> None:
    if not (is_string is False and text.lstrip().startswith('"')):
        assert read(text, STRING, is_string=is_string) == (text, "")
    if is_string:
        assert read(text, None, is_string=True) == read(text, {}, is_string=True) == (text, "")
