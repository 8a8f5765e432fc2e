"""Pattern strings."""

from __future__ import annotations

import re

import pytest

from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.pattern import PatternError, Slot


def test_a_pattern_is_literals_and_slots() -> None:
    assert pattern.parse("<f={name}>\n{params}</f>", "call") == ["<f=", Slot("name"), ">\n", Slot("params"), "</f>"]
    assert "".join(map(str, pattern.parse("{{{{x}}}}{json}", "call")[:-1])) == "{{x}}"
    assert pattern.parse("{json}", "call") == [Slot("json")]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("<f>{nam}{params}</f>", "call", "{nam} is no placeholder here; there are {args}, {id}"),
        ("<f>{value}</f>", "call", "{value} is no placeholder here"),
        ("<f>{name!r}{params}</f>", "call", "no placeholder"),
        ("<f>{name:>5}{params}</f>", "call", "no placeholder"),
        ("<f>{}</f>", "call", "no placeholder"),
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
        pattern.parse(text, key)
    assert message in str(caught.value)
    assert caught.value.key == key


def test_which_slot_holds_the_arguments() -> None:
    assert pattern.body("<t>{json}</t>") == "json"
    assert pattern.body("{name} {args}") == "args"
    assert pattern.body("<{name}>{params}</{name}>") == "params"


def test_a_pattern_is_split_at_the_first_of_some_slots() -> None:
    parts = pattern.parse("<{name}>{params}</{name}>", "call")
    assert pattern.split(parts, pattern.BODIES) == (["<", Slot("name"), ">"], ["</", Slot("name"), ">"])


@pytest.mark.parametrize(
    ("text", "key", "enclosed", "message"),
    [
        ("{name}<f>{params}</f>", "call", False, "must begin with literal text"),
        ("<f={name}>{params}", "call", False, "literal text must follow {params}"),
        ("<f={name}>{params}\n", "call", False, "literal text must follow {params}"),
        ("{name}({kwargs}", "call", True, "literal text must follow {kwargs}"),
        ("<p={key}>{value}", "param", True, "literal text must follow {value}"),
        ("<p={key} {key}>{value}</p>", "param", True, "{key} stands there twice before {value}"),
        ("<p={key}>{value}</p>{value}</p>", "param", True, "{value} cannot stand behind {value}"),
        ("<p={key}>{value}</{type}>", "param", True, "{type} cannot stand behind {value}"),
        ("<p>{value}</{key}>", "param", True, "{key} must stand before {value}"),
        ("<c {name} {name}>{json}</c>", "call", False, "{name} stands there twice before {json}"),
        ("<c>{args}</c {name}>", "call", False, "{name} must stand before {args}"),
        ("<c>{calls}</c>{calls}", "section", True, "{calls} cannot stand behind {calls}"),
    ],
)
def test_markup_that_cannot_be_found_is_an_error(text: str, key: str, enclosed: bool, message: str) -> None:
    with pytest.raises(PatternError, match=re.escape(message)) as raised:
        pattern.check_findable(text, key, enclosed=enclosed)
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("text", "key"), [("{name}({kwargs})", "call"), ("{key}:<e>{value}<e>", "param"), ("{json}", "call")]
)
def test_inside_of_other_markup_a_slot_may_come_first(text: str, key: str) -> None:
    pattern.check_findable(text, key, enclosed=True)
