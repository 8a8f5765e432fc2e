"""Gemma's writing of arguments, with the tokens of Gemma 4 and of FunctionGemma: both ways, in every cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.dialects.arguments.gemma import QUOTE, GemmaBody, with_quote, write

TOKENS = (QUOTE, "<escape>")


def read(chunks: list[str], quote: str = QUOTE, *, lenient: bool = False) -> tuple[GemmaBody, str]:
    """The body after these chunks, and what it did not take of them."""
    body, text, at = GemmaBody(quote, lenient=lenient), "", 0
    for number, chunk in enumerate(chunks, start=1):
        text += chunk
        at = body.feed(text, at, final=number == len(chunks))
    return body, text[at:]


@pytest.mark.parametrize("quote", TOKENS)
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "{}"),
        ({"city": "Paris", "days": 2}, '{city:<|"|>Paris<|"|>,days:2}'),
        ({"opts": {"a": [1, "x"]}, "on": True, "no": None}, '{opts:{a:[1,<|"|>x<|"|>]},on:true,no:null}'),
        ({"a b": "\n}"}, '{<|"|>a b<|"|>:<|"|>\n}<|"|>}'),
        ({"a": "x<|", "b": "<esc"}, '{a:<|"|>x<|<|"|>,b:<|"|><esc<|"|>}'),
    ],
)
def test_writing_and_reading(value: dict[str, Any], text: str, quote: str) -> None:
    text = text.replace(QUOTE, quote)
    assert write(value, quote) == text
    for at in range(len(text) + 1):
        body, rest = read([text[:at], text[at:] + "<tool_call|>"], quote)
        assert body.done
        assert rest == "<tool_call|>"
        assert json.loads(body.text()) == value
        assert body.repairs == {}


@pytest.mark.parametrize(
    ("quote", "text"), [(QUOTE, '{"q": "a\\u003c|\\"|>b"}'), ("<escape>", '{"q": "a\\u003cescape>b"}')]
)
def test_a_string_that_holds_the_token_is_written_as_json(quote: str, text: str) -> None:
    value = {"q": f"a{quote}b"}
    assert write(value, quote) == text
    assert json.loads(read([text], quote)[0].text()) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON), st.sampled_from(TOKENS))
def test_what_is_written_reads_back_a_character_at_a_time(value: dict[str, Any], quote: str) -> None:
    body, rest = read([*write(value, quote)], quote)
    assert body.done
    assert rest == ""
    assert json.loads(body.text()) == value


@given(st.text(st.sampled_from('{}[]:,<|">\\u0 ax1\nescp')), st.sampled_from(TOKENS), st.booleans())
def test_any_text_in_any_cut(text: str, quote: str, lenient: bool) -> None:
    text = "{" + text
    whole, rest = read([text], quote, lenient=lenient)
    cut, other = read([*text], quote, lenient=lenient)
    assert (whole.done, whole.error, rest) == (cut.done, cut.error, other)
    if whole.done:
        assert whole.text() == cut.text()
        assert isinstance(json.loads(whole.text()), dict)


@pytest.mark.parametrize("text", ["{a:b:c}", "{a<b}", "{a:1]", '{a:<|x|>"}'])
def test_what_is_wrong_is_said(text: str) -> None:
    body, _ = read([text])
    assert not body.done
    assert body.error


def test_the_end_of_what_is_not_kept() -> None:
    body = GemmaBody()
    body.feed('{a:<|"|>x', 0)
    body.discard()
    text = 'y<|"|>} rest'
    assert text[body.feed(text, 0) :] == " rest"


def test_what_was_cut_off_in_a_string_is_closed() -> None:
    body, _ = read(['{a:<|"|>x'], lenient=True)
    assert body.close()
    assert json.loads(body.text()) == {"a": "x"}


def test_a_last_string_without_its_quote_that_may_hold_another_key_stays() -> None:
    assert with_quote('{a:<|"|>x y}') == '{a:<|"|>x y<|"|>}'
    assert with_quote('{a:<|"|>x,b:5}') == '{a:<|"|>x,b:5}'
