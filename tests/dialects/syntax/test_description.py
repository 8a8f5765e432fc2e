"""A dialect's file: its keys, and invalid values."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.dialects.material import DIALECTS, parse_dialect
from vtc.dialects import Description, PatternError

SMALL = "{kind: dialect, name: small, call: '<t>{json}</t>'"


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_file_is_in_order(name: str) -> None:
    dialect = DIALECTS[name]
    dialect.check()
    assert dialect.name == name
    assert dialect.description
    assert dialect.prompt


def test_one_pattern_or_several() -> None:
    one = parse_dialect(SMALL + "}")
    assert (one.calls, one.params, one.sections) == (("<t>{json}</t>",), (), ())
    many = parse_dialect(
        "{kind: dialect, name: many, call: ['a{json}', 'b{json}'], section: 's{calls}', param: [p, q]}"
    )
    assert (many.calls, many.params, many.sections) == (("a{json}", "b{json}"), ("p", "q"), ("s{calls}",))


@pytest.mark.parametrize(
    ("more", "key", "message"),
    [
        ("call: []", "call", "at least one pattern is needed"),
        ("call: '<t>{name}</t>'", "call", "exactly one of"),
        ("call: '<t>{name}{args}{json}</t>'", "call", "exactly one of"),
        ("call: '<t>{args}{args}</t>'", "call", "exactly one of"),
        ("call: '<t>{json}</t>{x}'", "call", "{x} is not a placeholder here"),
        ("call: '<{name}>{params}</{name}>'", "param", "a call with {params} needs a pattern for one parameter"),
        ("string_token: quote", "string_token", "'quote' must begin with '<'"),
        ("param: '<p>{value}</p>'", "param", "{key} is missing"),
        ("section: '<s></s>'", "section", "{calls} is missing"),
        ("section_required: true", "section_required", "a required section needs a pattern in `section`"),
        ("result: 'none'", "result", "{result} is missing"),
        ("prompt: '{% if %}'", "prompt", "line 1 of the template"),
        ("result_start: '['", "result_start", "not a regular expression"),
        ("result_start: 'x'", "result_start", "(?P<name>…) is missing"),
    ],
)
def test_inconsistent_description_is_an_error_that_names_its_key(more: str, key: str, message: str) -> None:
    dialect = parse_dialect(
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
        parse_dialect(SMALL + ", " + more + "}")


def test_dialects_can_be_compared_and_be_keys() -> None:
    assert parse_dialect(SMALL + "}") == parse_dialect(SMALL + "}")
    assert len({parse_dialect(SMALL + "}"), parse_dialect(SMALL + "}")}) == 1
    assert isinstance(parse_dialect(SMALL + "}"), Description)


# Patterns


def with_pattern(key: str, text: str, *, enclosed: bool = False) -> Description:
    """Return a dialect with this pattern, for calls inside of a section or not."""
    fields = {"kind": "dialect", "name": "small", "call": "<t>{json}</t>"}
    if key == "param":
        fields["call"] = "<f {name}>{params}</f>"
    elif "{params}" in text:
        fields["param"] = "<p={key}>{value}</p>"
    if enclosed and key == "call":
        fields |= {"section": "<s>{calls}</s>", "section_required": True}
    return msgspec.convert({**fields, key: text}, Description)


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("<f>{nam}{params}</f>", "call", "{nam} is not a placeholder here; use {args}, {id}"),
        ("<f>{value}</f>", "call", "{value} is not a placeholder here"),
        ("<f>{name!r}{params}</f>", "call", "not a placeholder"),
        ("<f>{name:>5}{params}</f>", "call", "not a placeholder"),
        ("<f>{}</f>", "call", "not a placeholder"),
        ("<f>{name</f>", "call", "write {{ and }} for braces"),
        ("<f>}</f>", "call", "write {{ and }} for braces"),
        ("<f>{name}</f>", "call", "exactly one of {json}, {args}, {params}, {kwargs}"),
        ("<f>{json}{args}</f>", "call", "exactly one of"),
        ("<f>{params}</f>", "call", "{name} is missing"),
        ("<f>{args}</f>", "call", "{name} is missing"),
        ("<p>{value}</p>", "param", "{key} is missing"),
        ("<p={key}></p>", "param", "{value} is missing"),
        ("<s></s>", "section", "{calls} is missing"),
        ("nothing", "result", "{result} is missing"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_an_error(text: str, key: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        with_pattern(key, text).check()
    assert message in str(caught.value)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("text", "key", "enclosed", "message"),
    [
        ("{name}<f>{params}</f>", "call", False, "must begin with literal text"),
        ("<f={name}>{params}", "call", False, "literal text must follow {params}"),
        ("<f={name}>{params}\n", "call", False, "literal text must follow {params}"),
        ("{name}({kwargs}", "call", True, "literal text must follow {kwargs}"),
        ("<p={key}>{value}", "param", True, "literal text must follow {value}"),
        ("<p={key} {key}>{value}</p>", "param", True, "{key} occurs twice before {value}"),
        ("<p={key}>{value}</p>{value}</p>", "param", True, "{value} must not come after {value}"),
        ("<p={key}>{value}</{type}>", "param", True, "{type} must not come after {value}"),
        ("<p>{value}</{key}>", "param", True, "{key} must come before {value}"),
        ("<c {name} {name}>{json}</c>", "call", False, "{name} occurs twice before {json}"),
        ("<c>{args}</c {name}>", "call", False, "{name} must come before {args}"),
        ("<c>{calls}</c>{calls}", "section", True, "{calls} must not come after {calls}"),
    ],
)
def test_markup_that_cannot_be_found_is_an_error(text: str, key: str, enclosed: bool, message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)) as raised:
        with_pattern(key, text, enclosed=enclosed).check()
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("text", "key"), [("{name}({kwargs})", "call"), ("{key}:<e>{value}<e>", "param"), ("{json}", "call")]
)
def test_slot_may_be_first_inside_other_markup(text: str, key: str) -> None:
    with_pattern(key, text, enclosed=True).check()
