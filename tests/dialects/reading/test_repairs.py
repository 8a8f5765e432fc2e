"""The repairs one by one: what each takes, and where it would have to guess."""

from __future__ import annotations

import json
import re

import pytest

from vtc.dialects.arguments.broken_json import ExpectedObject
from vtc.dialects.reading import repairs

CLOSERS = ["</invoke>", "</function_calls>"]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("x</invo", "x"),
        ("x</invoke", "x"),
        ("x\n/invoke>", "x"),
        ("x\ninvoke>", "x"),
        ("xinvfunction_calls>", "x"),
        ("x</invfunction_calls>", "x"),
        ("x</inv\n</function_ca\n", "x"),
        # A word alone, an opening tag, or too little of a name may be content.
        ("echo inv", None),
        ("x</in", None),
        ("x</", None),
        ("x<inv", None),
        ("reinvoke>", None),
        ("x", None),
    ],
)
def test_garbled_closers_at_the_end(text: str, rest: str | None) -> None:
    assert repairs.without_corrupt_closer(text, CLOSERS) == ((text, False) if rest is None else (rest, True))


@pytest.mark.parametrize(
    ("text", "partial"),
    [("<", True), ("</i", True), ("inv", True), ("\n</function_calls", True), ("So.", False), ("<invoke", False)],
)
def test_what_little_there_is_of_a_closer_behind_what_is_complete(text: str, partial: bool) -> None:
    assert repairs.is_partial_closer(text, CLOSERS) is partial


def mended(text: str) -> tuple[list[object], list[str], str] | None:
    """The values, the repairs and the text behind."""
    found = repairs.json_bodies(text, CLOSERS, ExpectedObject({}))
    return found and ([json.loads(value) for value in found.values], found.repairs, text[found.end :])


@pytest.mark.parametrize(
    ("text", "value", "name"),
    [
        ('{"a": "x</invoke>', {"a": "x"}, "json-cut"),
        ('{{"a": {"b": 1}}}', {"a": {"b": 1}}, "doubled-braces"),
        ('{{"a": {{"b": 1}}}}', {"a": {"b": 1}}, "doubled-braces"),
        ('{"a": {"b": [1', {"a": {"b": [1]}}, "json-cut"),
        ("{'a': True}", {"a": True}, "python-literal"),
        ('{"a": 1}\n```', {"a": 1}, "code-fence"),
        (r"{\"a\": \"x\ny\"}", {"a": "x\ny"}, "escaped-json"),
        ('{"a": 1}}', {"a": 1}, "extra-brace"),
        ('{"a": 1}\ninv', {"a": 1}, "corrupt-closer"),
        ('{"a": "x"\ninv', {"a": "x"}, "corrupt-closer"),
        ('{"a": "say "hi" now"}', {"a": 'say "hi" now'}, "json-inner-quotes"),
        ('{"a": 1, b: 2}', {"a": 1, "b": 2}, "json-missing-quote"),
    ],
)
def test_broken_json(text: str, value: object, name: str) -> None:
    found = mended(text)
    assert found is not None
    assert found[0] == [value]
    assert name in found[1]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "',
        '{"a": "x\\',
        '{"a": "x\\u12',
        '{"a": 1,',
        '{"a": 1, "b',
        '{"a": 1, "b":',
        '{"a": "x}}',
        '{"a": "x" + "y"}',
        '{"a": "x" + y}',
        '{"a": 1} and so on',
        '{"a": 1, ...}',
        "not JSON",
    ],
)
def test_json_that_is_cut_off_elsewhere_or_may_be_read_in_two_ways(text: str) -> None:
    assert mended(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{{"a": {{"b": "{{x}}"}}}}', {"a": {"b": "{{x}}"}}),
        (r"{\"a\": \"\u00e9\\n\"}", {"a": "é\n"}),
        ('{"a": "x\n</invoke>', {"a": "x"}),  # the closing tag's own line
    ],
)
def test_a_repair_changes_no_value(text: str, value: object) -> None:
    found = mended(text)
    assert found is not None
    assert found[0] == [value]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "x\n\n</invoke>',  # the string's line breaks, or the tag's?
        '{"a": "x  </invoke>',
        '{"a": "# x\n```</invoke>',  # the string's fence, or the call's?
        r"{\"a\": \"x\ny C:\\new\"}",  # only the quotes are escaped once too often
    ],
)
def test_where_a_value_may_be_another_there_is_no_repair(text: str) -> None:
    assert mended(text) is None


def test_text_that_is_escaped_in_part_is_not_unescaped() -> None:
    assert repairs.unescaped(r"say \"hi\"\n") == 'say "hi"\n'
    assert repairs.unescaped(r'say "hi"') == 'say "hi"'
    assert repairs.unescaped(r'grep "\d"') is None
    assert repairs.unescaped(r"grep \d") is None


def test_several_values_and_what_is_behind_them() -> None:
    assert mended('{"a": 1}; {"a": 2}') == ([{"a": 1}, {"a": 2}], ["several-objects"], "")
    assert mended('[{"a": 1}, {"a": 2') == ([{"a": 1}, {"a": 2}], ["json-cut"], "")
    assert mended('{"a": 1}}</invoke> So.') == ([{"a": 1}], ["extra-brace"], " So.")


def test_the_first_of_several_closers_may_be_content() -> None:
    assert mended('{"a": "x </invoke> y') is None
    assert mended('{"a": "x </invoke> y </invoke> So.') is None
    assert mended('{"a": 1,}</invoke>\n{"a": 2}</invoke> So.') == (
        [{"a": 1}],
        ["json-trailing-comma"],
        '\n{"a": 2}</invoke> So.',
    )


HEADS = re.compile(r"<p=(a|b|c)>")
TAIL = ["</f>"]


def tagged(text: str, *required: str) -> tuple[dict[str, str], list[str]] | None:
    return repairs.tagged(text, HEADS, dict.fromkeys("abc", "</p>"), TAIL, required)


@pytest.mark.parametrize(
    ("text", "values", "names"),
    [
        ("<p=a>1<p=b>2</p></f>", {"a": "1", "b": "2"}, ["missing-parameter-closer"]),
        ("<p=a>1</a><p=b>2</b></f>", {"a": "1", "b": "2"}, ["wrong-parameter-closer"]),
        ("<p=a>\n1\n</a>\n<p=b>\n2\n</p></f>", {"a": "\n1\n", "b": "\n2\n"}, ["wrong-parameter-closer"]),
        ("<p=a>1/p>\n<p=b>2</p></f>", {"a": "1", "b": "2"}, ["corrupt-parameter-closer"]),
        ("<p=a>1</p></q>", {"a": "1"}, ["corrupt-closer"]),
        ("<p=a>1</p><", {"a": "1"}, ["corrupt-closer"]),
        ("<p=a>1</p>", {"a": "1"}, []),
    ],
)
def test_parameters_whose_closers_are_missing_or_wrong(text: str, values: dict[str, str], names: list[str]) -> None:
    assert tagged(text) == (values, names)


@pytest.mark.parametrize(
    "text",
    [
        "<p=a>1",  # nothing says that it is whole
        "<p=a>1</p>\n<p=b",
        "<p=a>1</x<p=b>2</p></f>",
        "<p=a>1</p> and",
        "text <p=a>1</p></f>",
        "<p=a>1</p><p=a>2</p></f>",
        "<p=a><q>1</q></f>",  # that closes what was opened in the value
        "",
    ],
)
def test_parameters_of_which_nobody_knows(text: str) -> None:
    assert tagged(text) is None


def test_every_required_parameter_must_be_there() -> None:
    assert tagged("<p=a>1</a></f>", "a") is not None
    assert tagged("<p=a>1</a></f>", "a", "b") is None
