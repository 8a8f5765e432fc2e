"""Pattern strings, and that a sequence's two expressions belong together: the whole, and every beginning of it."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.parts import Chars, Group, Lit, Maybe, OneOf, Part, Space, beginning, whole
from vtc.dialects.syntax.pattern import PatternError, Slot, Token, expecting, searching


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


# Sequences, each with texts that are one


@st.composite
def sequences(draw: st.DrawFn, depth: int = 2) -> tuple[tuple[Part, ...], str]:
    """A sequence of parts, and a text that it matches."""
    parts: list[Part] = []
    text = ""
    for _ in range(draw(st.integers(1, 4))):
        part, piece = draw(_parts(depth))
        parts.append(part)
        text += piece
    return tuple(parts), text


@st.composite
def _parts(draw: st.DrawFn, depth: int) -> tuple[Part, str]:
    kinds = ["lit", "space", "chars", "words", *(["maybe", "group"] if depth else [])]
    match draw(st.sampled_from(kinds)):
        case "lit":
            text = draw(st.text("<>/ab.*", min_size=1, max_size=5))
            return Lit(text), text
        case "space":
            return Space(), draw(st.text(" \n\t", max_size=3))
        case "chars":
            # A run that the next part could go on with would be given back by `re`, as it is in no real pattern.
            return Chars("0-9", 3), draw(st.text("0123456789", min_size=1, max_size=3))
        case "words":
            words = draw(st.lists(st.text("xyzé+", min_size=1, max_size=4), min_size=1, max_size=3))
            word = draw(st.sampled_from(words))
            any_case = draw(st.booleans())
            return OneOf(tuple(words), any_case=any_case), word.upper() if any_case else word
        case "maybe":
            inner, text = draw(sequences(depth - 1))
            return Maybe(inner), draw(st.sampled_from(["", text]))
    inner, text = draw(sequences(depth - 1))
    return Group(inner, "group"), text


@given(sequences())
@example(((Lit("<t>"), Maybe((Space(), Lit("</t>")))), "<t>"))
@example(((OneOf(("read", "read_all")), Lit(">")), "read_all>"))
@example(((Chars("0-9", 3), Lit("</a"), Space(), Lit(">")), "12</a  >"))
def test_every_beginning_of_a_match_is_one(sequence: tuple[tuple[Part, ...], str]) -> None:
    parts, text = sequence
    if not re.fullmatch(whole(parts), text):
        return  # a possessive part took what a later one needs; then there is no match to begin
    for end in range(len(text)):
        assert re.fullmatch(beginning(parts), text[:end]), text[:end]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((Lit("<tool>"),), "<tool>"),
        ((Lit("<tool>"),), "tool"),
        ((Lit("<t>"), Lit("{")), "<t>x"),
        ((OneOf(("ab", "cd")),), "ad"),
        ((OneOf(("ab",)),), "A"),
        ((Chars("a-z", 3),), "abcd"),
        ((Space(), Lit("x")), " " * 257),
    ],
)
def test_what_can_become_no_match_is_no_beginning(parts: tuple[Part, ...], text: str) -> None:
    assert not re.fullmatch(beginning(parts), text)


def test_groups_are_named_after_their_token() -> None:
    parts = (Lit("<"), OneOf(("read", "read_all"), "name"), Group((Lit(" "), Lit("x")), "rest"), Chars("0-9", 2))
    found = re.fullmatch(whole(parts, "h3"), "<read_all x12")
    assert found is not None
    assert found.groupdict() == {"name_h3": "read_all", "rest_h3": " x"}


def test_a_literal_is_no_expression() -> None:
    assert re.fullmatch(whole((Lit("a.b*[c]"), OneOf(("x|y", "(z")))), "a.b*[c](z")
    assert not re.fullmatch(whole((Lit("a.b"),)), "axb")


# States


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


def test_what_begins_with_one_of_many_characters_can_be_expected() -> None:
    scan = pattern.expecting([Token("p", (Chars("a-z", 8, "key"), Lit(":"))), Token("tail", (Lit("}"),))])
    found = [scan.while_open.match(text) for text in ("ab:", " }", "ab", " ")]
    assert [one and str(one.lastgroup).rstrip("01_") for one in found] == ["p", "tail", "hold", "hold"]
    assert scan.at_end.match("ab") is None


TAG = Token("tag", (Lit("<tag"), Space(), Lit(">")))
LINE = Token("line", (Lit("#!"),), line_start=True)


@pytest.mark.parametrize(
    ("text", "group", "start"),
    [
        ("some text", None, None),
        ("a <b> c", None, None),
        ("a <ta", "hold", 2),
        ("a <tag \n", "hold", 2),
        ("a <tag >b", "tag", 2),
        ("a <tag><ta", "tag", 2),
        ("<ta <tag>", "tag", 4),
        ("#!", "line", 0),
        ("x #!", None, None),
        ("x\n #!", "line", 3),
        ("x\n> \t#", "hold", 5),
        ("x\n         #!", None, None),
    ],
)
def test_searching(text: str, group: str | None, start: int | None) -> None:
    scan = searching([TAG, LINE])
    found = scan.while_open.search(text)
    assert (found and (found.lastgroup or "").rstrip("0123456789")) == group
    assert (found and found.start()) == start
    final = scan.at_end.search(text)
    assert (final and final.lastgroup) == (None if group == "hold" else group)


def test_some_tokens_count_only_as_the_last_thing() -> None:
    scan = searching([TAG], [Token("end", (Lit("<end>"),))])
    assert not scan.while_open.search("a <end>")
    assert not scan.at_end.search("a <end> b")
    found = scan.at_end.search("a <end> \n")
    assert found is not None
    assert found.lastgroup == "end"


@pytest.mark.parametrize(
    ("text", "group"),
    [("", "hold"), (" \n", "hold"), (" <ta", "hold"), ("\n\n<tag>", "tag"), ("x<tag>", None), (" " * 257, None)],
)
def test_expecting(text: str, group: str | None) -> None:
    found = expecting([TAG]).while_open.match(text)
    assert (found and (found.lastgroup or "").rstrip("0123456789_")) == group


def test_a_state_without_tokens_finds_none() -> None:
    scan = searching([])
    assert not scan.while_open.search("a < b")
    assert not scan.at_end.search("")
