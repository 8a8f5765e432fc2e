"""A dialect's file: its keys, and what it must not say."""

from __future__ import annotations

import msgspec
import pytest

from tests.dialects.material import DIALECTS, described
from vtc.dialects import Description
from vtc.dialects.syntax.pattern import PatternError

SMALL = "{kind: dialect, name: small, call: '<t>{json}</t>'"


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_file_is_in_order(name: str) -> None:
    dialect = DIALECTS[name]
    dialect.check()
    assert dialect.name == name
    assert dialect.description
    assert dialect.prompt


def test_one_pattern_or_several() -> None:
    one = described(SMALL + "}")
    assert (one.calls, one.params, one.sections) == (("<t>{json}</t>",), (), ())
    many = described("{kind: dialect, name: many, call: ['a{json}', 'b{json}'], section: 's{calls}', param: [p, q]}")
    assert (many.calls, many.params, many.sections) == (("a{json}", "b{json}"), ("p", "q"), ("s{calls}",))


@pytest.mark.parametrize(
    ("more", "key", "message"),
    [
        ("call: []", "call", "at least one pattern is needed"),
        ("call: '<t>{name}</t>'", "call", "exactly one of"),
        ("call: '<t>{name}{args}{json}</t>'", "call", "exactly one of"),
        ("call: '<t>{args}{args}</t>'", "call", "exactly one of"),
        ("call: '<t>{json}</t>{x}'", "call", "{x} is no placeholder here"),
        ("call: '<{name}>{params}</{name}>'", "param", "a call with {params} needs a pattern for one parameter"),
        ("string_token: quote", "string_token", "'quote' must begin with '<'"),
        ("param: '<p>{value}</p>'", "param", "{key} is missing"),
        ("section: '<s></s>'", "section", "{calls} is missing"),
        ("result: 'none'", "result", "{result} is missing"),
        ("prompt: '{% if %}'", "prompt", "line 1 of the template"),
        ("result_start: '['", "result_start", "no regular expression"),
        ("result_start: 'x'", "result_start", "(?P<name>…) is missing"),
    ],
)
def test_what_makes_no_sense_is_an_error_that_names_its_key(more: str, key: str, message: str) -> None:
    dialect = described(
        "{kind: dialect, name: small, " + more + ("" if "call:" in more else ", call: '<t>{json}</t>'") + "}"
    )
    with pytest.raises(PatternError) as caught:
        dialect.check()
    assert caught.value.key == key
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("calls: x", "unknown field `calls`"),
        ("values: yaml", "Invalid enum value 'yaml'"),
        ("anchor: page", "Invalid enum value 'page'"),
        ("optional: 5", "Expected `array`"),
        ("json: {key: x}", "unknown field `key`"),
    ],
)
def test_unknown_keys_and_words_are_errors(more: str, message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        described(SMALL + ", " + more + "}")


def test_dialects_can_be_compared_and_be_keys() -> None:
    assert described(SMALL + "}") == described(SMALL + "}")
    assert len({described(SMALL + "}"), described(SMALL + "}")}) == 1
    assert isinstance(described(SMALL + "}"), Description)
