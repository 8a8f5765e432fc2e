"""Arguments of a Python call: they end where Python says, and come out as JSON, however they are cut."""

from __future__ import annotations

import json
import keyword

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.dialects.arguments.kwargs import KwargsBody


def read(text: str, cuts: list[str] | None = None, *, lenient: bool = True) -> tuple[KwargsBody, str]:
    """The body after `text` (or its pieces), and what it left unread."""
    body, left = KwargsBody(lenient=lenient), ""
    for piece in cuts if cuts is not None else [text]:
        left += piece
        left = left[body.feed(left, 0) :]
    return body, left


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (")", {}),
        ('city="Paris", days=2)', {"city": "Paris", "days": 2}),
        ("a=True, b=None, c=-1.5)", {"a": True, "b": None, "c": -1.5}),
        ("a=true, b=null, c=[false])", {"a": True, "b": None, "c": [False]}),
        ("a={'k': [1, 'x']}, b=(1, 2))", {"a": {"k": [1, "x"]}, "b": [1, 2]}),
        (r"""a='it\'s', b="say \"hi\"", c='\n')""", {"a": "it's", "b": 'say "hi"', "c": "\n"}),
        ("a=') ] }', b=\"(\")", {"a": ") ] }", "b": "("}),
        ("\n  a = 1,\n  b = 'x',\n)", {"a": 1, "b": "x"}),
    ],
)
def test_arguments_end_where_the_call_does(text: str, expected: object) -> None:
    for cuts in ([text], list(text), [text[:3], text[3:]]):
        body, left = read(text, [*cuts, "tail)"])
        assert (body.done, body.error) == (True, "")
        assert left == ")tail)"
        assert json.loads(body.text()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("'Paris')", "without a name"),
        ("**more)", "without a name"),
        ("a=open('x'))", "not Python"),
        ("a=1 b=2)", "not Python"),
        ("city=Paris)", "not Python"),
        ("a=[1)]", "brackets"),
        ("a=]", "brackets"),
        ("a=\\x)", "backslash"),
    ],
)
def test_what_is_no_python_is_an_error(text: str, message: str) -> None:
    for cuts in ([text], list(text)):
        body, _ = read(text, cuts)
        assert message in body.error or not body.done


def test_a_raw_newline_in_a_string_is_mended_and_named() -> None:
    body, _ = read("a='one\ntwo')")
    assert json.loads(body.text()) == {"a": "one\ntwo"}
    assert list(body.repairs) == ["raw-newline"]
    assert read("a='one\ntwo')", lenient=False)[0].error


def test_a_call_that_was_cut_off_is_not_closed() -> None:
    body, _ = read("a='on")
    assert not body.done
    assert not body.close()


@given(st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.text() | st.integers() | st.booleans()))
def test_what_python_writes_is_read(arguments: dict[str, object]) -> None:
    arguments = {key: value for key, value in arguments.items() if not keyword.iskeyword(key)}
    text = ", ".join(f"{key}={value!r}" for key, value in arguments.items()) + ")"
    body, left = read(text, list(text))
    assert (body.error, left) == ("", ")")
    assert json.loads(body.text()) == arguments
