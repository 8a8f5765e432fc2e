"""A JSON value in a stream: where it ends, and that what comes out is strict JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.material import random_cuts, single_cuts
from vtc.dialects.arguments.json_object import GRAMMAR, MOST_DEPTH, JsonBody, dumped, loaded


def read(chunks: Iterable[str], *, lenient: bool = True) -> tuple[JsonBody, int]:
    """The body, and how many characters it took."""
    body, buffer, at = JsonBody(lenient=lenient), "", 0
    for chunk in chunks:
        buffer += chunk
        at = body.feed(buffer, at)
    return body, body.feed(buffer, at, final=True)


def every_cut(text: str) -> Iterable[Iterable[str]]:
    return chain([[text], [*text]], single_cuts(text), random_cuts(text))


STRICT = [
    "{}",
    "[]",
    '{"a": 1}',
    '{"a": -0.5e+10, "b": [1, 2.0, 0], "c": true, "d": false, "e": null}',
    '{"a": "\\" \\\\ \\/ \\b\\f\\n\\r\\t \\u00e9 \\ud83d\\ude00"}',
    '{"": {"": [[], {}, ""]}}',
    '{"é\u2028\U0001f600": "}]\\"</tool_call>"}',
    '\n{ "a"\t:\r\n[ 1 , 2 ] }',
    '{"a": 12345678901234567890123456789012345678901234567890}',
    '{"a": 1, "a": 2}',
]


@pytest.mark.parametrize("text", STRICT)
def test_strict_json_is_taken_as_it_is(text: str) -> None:
    for chunks in every_cut(text):
        body, end = read(chunks, lenient=False)
        assert (body.done, body.error, end, list(body.repairs)) == (True, "", len(text), [])
        assert json.loads(body.text(), object_pairs_hook=list) == json.loads(text, object_pairs_hook=list)


@pytest.mark.parametrize("behind", ["", "}", "]", " \n</tool_call>", '{"b": 2}', ",", "é"])
def test_a_value_ends_where_it_ends(behind: str) -> None:
    text = '{"a": ["}", {}]}'
    for chunks in every_cut(text + behind):
        body, end = read(chunks)
        assert body.done
        assert end == len(text)
        assert body.text() == '{"a":["}",{}]}'


MENDED = [
    ('{"a": "x\ny\tz\x00\x1f"}', {"a": "x\ny\tz\x00\x1f"}, ["control-character"]),
    ('{"a": 1,}', {"a": 1}, ["trailing-comma"]),
    ('{"a": [1, 2 , ], }', {"a": [1, 2]}, ["trailing-comma"]),
    ('{"a": [True, False, None]}', {"a": [True, False, None]}, ["python-literal"]),
    (r'{"a": "it\'s"}', {"a": "it's"}, ["bad-escape"]),
    (r'{"a": "C:\x \d \u12 \u00g0 \\"}', {"a": "C:\\x \\d \\u12 \\u00g0 \\"}, ["bad-escape"]),
    ('{"a": "\n", "b": [None,]}', {"a": "\n", "b": [None]}, ["control-character", "python-literal", "trailing-comma"]),
]


@pytest.mark.parametrize(("text", "value", "repairs"), MENDED)
def test_faults_that_leave_no_doubt_are_mended(text: str, value: Any, repairs: list[str]) -> None:
    for chunks in every_cut(text):
        body, end = read(chunks)
        assert (body.done, body.error, end) == (True, "", len(text))
        assert json.loads(body.text()) == value
        assert list(body.repairs) == [f"json-{repair}" for repair in repairs]


@pytest.mark.parametrize(("text", "value", "repairs"), MENDED)
def test_nothing_is_mended_unless_asked_for(text: str, value: Any, repairs: list[str]) -> None:
    for chunks in every_cut(text):
        body, _ = read(chunks, lenient=False)
        assert not body.done
        assert body.error == f"{repairs[0].replace('-', ' ')} in JSON"


@pytest.mark.parametrize(
    ("text", "at", "error"),
    [
        ("{'a': 1}", 1, '"\'" where JSON has first key'),
        ('{"a" 1}', 5, "a word where JSON has colon"),
        ('{"a": }', 6, "'}' where JSON has value"),
        ('{"a": 1 "b": 2}', 8, "'\"' where JSON has comma"),
        ('{"a": 01}', 6, "a word where JSON has value"),
        ('{"a": truth}', 6, "a word where JSON has value"),
        ('{"a": +1}', 6, "a word where JSON has value"),
        ('{"a": NaN}', 6, "a word where JSON has value"),
        ('{"a": 1.}', 6, "a word where JSON has value"),
        ('{"a": ١}', 6, "a word where JSON has value"),
        ('{"a": 1]', 7, "']' where JSON has comma"),
        ('{,"a": 1}', 1, "',' where JSON has first key"),
        ('{"a": 1,,}', 8, "',' where JSON has next key"),
        ("[,]", 1, "',' where JSON has first item"),
        ('{"a": 1  \n  <', 12, "'<' where JSON has comma"),
        ('{"a": [1}', 8, "'}' where JSON has comma"),
        ("{1: 2}", 1, "a word where JSON has first key"),
    ],
)
def test_other_faults_are_errors(text: str, at: int, error: str) -> None:
    for chunks in every_cut(text):
        body, end = read(chunks)
        assert (body.done, body.error, end) == (False, error, at)


@pytest.mark.parametrize("text", ["", "{", '{"a', '{"a": "x', '{"a": "x"', '{"a": 1', '{"a": [1, ', '{"a": tr'])
def test_a_value_that_does_not_end_is_not_done(text: str) -> None:
    for chunks in every_cut(text):
        buffer, body, at = "", JsonBody(), 0
        for chunk in chunks:
            buffer += chunk
            at = body.feed(buffer, at)
        assert not body.done
        assert not body.error


def test_nesting_has_a_limit() -> None:
    body, _ = read(["[" * MOST_DEPTH + "]" * MOST_DEPTH])
    assert body.done
    for chunks in (["[" * 100_000], ["["] * 300):
        body, end = read(chunks)
        assert body.error == f"nested more than {MOST_DEPTH} deep"
        assert end == MOST_DEPTH + 1


def test_halves_of_a_surrogate_pair_become_one_character_again() -> None:
    body, _ = read(['{"a": "\ud83d', '\ude00", "b": "\ud83d"}'])
    body.text().encode()
    assert json.loads(body.text()) == {"a": "\U0001f600", "b": "\ud83d"}


def test_what_is_discarded_is_not_in_the_text() -> None:
    body = JsonBody()
    at = body.feed('{"a": "long', 0)
    body.discard()
    body.feed('{"a": "long"}', at)
    assert body.done
    assert "long" not in body.text()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{{"a": {"b": 1}}}', '{"a":{"b":1}}'),
        ('{{"a": {{"b": "}}"}}, "c": [{{}}]}}', '{"a":{"b":"}}"},"c":[{}]}'),
    ],
)
def test_braces_that_are_doubled_count_once(text: str, read: str) -> None:
    whole, piecewise = JsonBody(), JsonBody()
    assert whole.feed(text + "}", 0, final=True) == len(text)
    at = 0
    for end in range(1, len(text) + 1):
        at = piecewise.feed(text[:end], at)
    for body in (whole, piecewise):
        assert (body.done, body.text(), [*body.repairs]) == (True, read, ["doubled-braces"])


@pytest.mark.parametrize("text", ['{{"a": 1}', '{{"a": 1}, 2}', '{{{"a": 1}}}', '{{"a": 1} x}'])
def test_braces_that_are_doubled_at_one_end_only_are_no_object(text: str) -> None:
    body = JsonBody()
    body.feed(text, 0, final=True)
    assert not body.done


def test_the_grammar_leads_only_to_states_that_it_has() -> None:
    reached = {state for moves in GRAMMAR.values() for state in moves.values()}
    assert reached - {"done", "end"} | {"value", "comma in {", "comma in [", "second brace"} == set(GRAMMAR)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)


@given(st.lists(json_values) | st.dictionaries(st.text(), json_values), st.booleans(), st.data())
def test_all_that_is_json_is_read_in_any_cut(value: Any, escaped: bool, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=escaped, indent=data.draw(st.sampled_from([None, 2])))
    behind = data.draw(st.text(max_size=5))
    cut = data.draw(st.integers(0, len(text)))
    body, end = read([text[:cut], text[cut:] + behind], lenient=False)
    assert body.done
    assert end == len(text)
    assert json.loads(body.text()) == value


@given(st.text("{}[]\",:\\ntu0123.e- \n'TrueNone</t>é", max_size=40), st.booleans())
def test_whatever_is_fed_nothing_raises_and_what_is_done_is_json(text: str, lenient: bool) -> None:
    whole, end = read(["{", text], lenient=lenient)
    single, single_end = read(["{", *text], lenient=lenient)
    assert (whole.done, whole.error, end) == (single.done, single.error, single_end)
    assert whole.text() == single.text()
    if whole.done:
        json.loads(whole.text())


# Whole texts

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
trees = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
ODD = [
    '{"a": 1, "a": 2}',
    '"\\ud83d"',
    '"\ud83d"',
    "1e400",
    "-0",
    "-0.0",
    "NaN",
    "-Infinity",
    " {} ",
    "9007199254740993.0",
]


@given(trees, st.booleans())
def test_a_text_is_read_as_by_pythons_own_reader(value: Any, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert repr(loaded(text)) == repr(json.loads(text))
    assert repr(loaded(dumped(value))) == repr(json.loads(text))


@pytest.mark.parametrize("text", ODD)
def test_an_odd_text_is_read_as_by_pythons_own_reader(text: str) -> None:
    assert repr(loaded(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ["", "{", "[1,]", "{'a': 1}", '"\x01"', "\u00a0{}", "01", "1 2"])
def test_a_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        loaded(text)
