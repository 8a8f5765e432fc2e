"""What a dialect's patterns are read by."""

from __future__ import annotations

import re

import pytest

from tests.dialects.material import DIALECTS
from vtc.dialects import Description
from vtc.dialects.syntax.forms import CallSyntax, call_syntaxes, closers, variants
from vtc.dialects.syntax.grammar import heads_after_unclosed
from vtc.dialects.syntax.pattern import Lit, whole


def one(name: str) -> CallSyntax:
    return call_syntaxes(DIALECTS[name])[-1]


def test_a_section_may_be_missing_unless_the_dialect_needs_it() -> None:
    assert [bool(syntax.section) for syntax in call_syntaxes(DIALECTS["invoke"])] == [True] * 3 + [False] * 3
    assert [bool(syntax.section) for syntax in call_syntaxes(DIALECTS["tools-tag"])] == [True]
    assert [bool(syntax.section) for syntax in call_syntaxes(DIALECTS["hermes"])] == [False]


def test_a_head_begins_with_its_optional_marker_or_without() -> None:
    heads = [whole(parts, "t") for parts in variants(call_syntaxes(DIALECTS["qwen3-coder"])[0])]
    assert re.fullmatch(heads[0], "<tool_call>\n<function=read>")
    assert re.fullmatch(heads[-1], "<function=read>")


def test_a_tag_is_any_name_that_the_reader_then_looks_up() -> None:
    (head,) = variants(one("tag"))
    found = re.fullmatch(whole(head, "h"), "<functions.Read>")
    assert found
    assert found["offered_h"] == "functions.Read"
    assert not re.fullmatch(whole(head), "</div>")


@pytest.mark.parametrize("text", ["</parameter>", "</parameter >", "< /parameter>"])
def test_white_space_in_a_closer_is_loose(text: str) -> None:
    assert re.fullmatch(whole(one("qwen3-coder").param_tail(0, "path")), text)


@pytest.mark.parametrize("quote", ['"', "'", '\\"'])
def test_an_attribute_has_either_quote_also_escaped(quote: str) -> None:
    head, *_ = one("invoke").param_heads()
    found = re.fullmatch(whole(head, "p"), f"<parameter name={quote}path{quote}>")
    assert found
    assert found["key_p"] == "path"


def test_a_tag_may_carry_a_known_namespace() -> None:
    tail = whole(one("invoke").tail("read"))
    assert re.fullmatch(tail, "</invoke>")
    assert not re.fullmatch(tail, "</x:invoke>")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_markup_after_the_head_speaks_of_a_name_unless_it_repeats_it(dialect: str) -> None:
    """So one expression serves all names that a model may write."""

    def after_head(syntax: CallSyntax, name: str) -> list[object]:
        written = [syntax.tail(name), syntax.written_tail(name), syntax.closing_tags(name), syntax.last_tags(name)]
        return [*written, syntax.quoted_heads(name), syntax.following_heads(name), heads_after_unclosed(syntax, name)]

    for syntax in call_syntaxes(DIALECTS[dialect]):
        assert (after_head(syntax, "one") == after_head(syntax, "another")) or syntax.repeats_name


def test_closing_tags_are_those_of_the_call_and_its_section() -> None:
    assert one("invoke").closing_tags("read") == ["</invoke>", "</function_calls>"]
    assert one("tag").closing_tags("read") == ["</read>"]


def test_the_opener_of_a_parameter_is_found_by_its_name() -> None:
    opener = one("tag").param_opener(("path", "content"))
    assert [found[1] for found in opener.finditer("<path>a</path><limit>1</limit><content>")] == ["path", "content"]


def test_a_section_that_was_not_opened_may_still_be_closed() -> None:
    assert [whole(parts) for parts in closers(one("invoke"))] == ["</(?:(?:antml:))?(?:function_calls|tool_calls)>"]


def test_typed_parameters_say_what_they_are() -> None:
    text = '<p name="{key}" string="{string}" type="{type}">{value}</p>'
    typed = Description(kind="dialect", name="t", call="<f name={name}>{params}</f>", param=text)
    head, _ = call_syntaxes(typed)[0].param_heads()
    found = re.fullmatch(whole(head, "p"), '<p name="a" string="true" type="number">')
    assert found
    assert found.groupdict() == {"key_p": "a", "string_p": "true", "type_p": "number"}


def test_literals_are_kept_as_they_are() -> None:
    pattern = Description(kind="dialect", name="t", call="[TOOL.*]{name}[ARGS]{args}")
    for head in variants(call_syntaxes(pattern)[0]):
        assert head[0] == Lit("[TOOL.*]")
