"""What begins a call: the heads of every dialect in one expression."""

from __future__ import annotations

import pytest

from tests.dialects.material import AGENT, COMMON, DIALECTS, described
from vtc.dialects.syntax.grammar import Grammar, compiled

SIX = [DIALECTS[name] for name in COMMON]
ALL = Grammar(SIX, AGENT)


def begins(grammar: Grammar, text: str) -> str | None:
    """The dialect that a text begins a call of; None for plain text and for what may still become either."""
    found = grammar.text.at_end.search(text)
    head = grammar.heads.get(found.lastgroup or "") if found else None
    return head.syntax.dialect.name if head else None


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ('<tool_call>\n{"name"', "hermes"),
        ("<tool_call>{'name'", "hermes"),
        ("<tool_call>\n<function=any_name>", "qwen3-coder"),
        ("<function=any.name:5>", "qwen3-coder"),
        ('<tools>{"', "tools-tag"),
        ('<function_calls>\n<invoke name="any">', "invoke"),
        ("<invoke name='any'>", "invoke"),
        ('<ant''ml:invoke name="any">', "invoke"),
        ("<bash>", "tag"),
        ("<functions.bash>", "tag"),
        ("<BASH>", "tag"),
        ('{"name": "bash"', "bare-json"),
        ('\n  {\n"arguments" : {', "bare-json"),
        ('{"type":"function"', "bare-json"),
        # Something less is text.
        ("<tool_call>{name", None),
        ("<tool_call>bash", None),
        ("<function=>", None),
        ("<function=a b>", None),
        ("<tools>[", None),
        ("<invoke>", None),
        ("<invoke name=any>", None),
        ("<any>", None),
        ("<bash", None),
        ("</bash>", None),
        ('{"name": "any"', None),
        ('{"name": "bash', None),
        ('{"answer": {', None),
        ('say {"name": "bash"', None),
        ("<tool_call>" + " " * 257 + '{"', None),
        ("<function=" + "x" * 129 + ">", None),
    ],
)  # fmt: skip
def test_what_begins_a_call(text: str, dialect: str | None) -> None:
    assert begins(ALL, text) == dialect


@pytest.mark.parametrize("dialect", COMMON)
def test_a_call_begins_only_where_its_dialect_is_armed(dialect: str) -> None:
    texts = ['<tool_call>{"a', "<function=f>", '<tools>{"', '<invoke name="f">', "<bash>", '{"name": "bash"']
    found = {begins(Grammar([DIALECTS[dialect]], AGENT), text) for text in texts}
    assert found == {dialect, None}


def test_without_tools_nothing_begins_a_call_of_a_dialect_that_needs_their_names() -> None:
    grammar = Grammar(SIX, ())
    assert begins(grammar, "<bash>") is None
    assert begins(grammar, '{"name": "bash"') is None
    assert begins(grammar, "<function=f>") == "qwen3-coder"


def test_the_longer_of_two_names_is_tried_first() -> None:
    grammar = Grammar([DIALECTS["tag"]], ["read", "read_all"])
    for name in ("read", "read_all"):
        found = grammar.text.at_end.search(f"<{name}>")
        assert found is not None
        assert found[f"name_{found.lastgroup}"] == name


def test_markers_are_found_in_text() -> None:
    grammar = Grammar([], (), (), ["<|end|>"])
    found = grammar.text.at_end.search("a <|end|>")
    assert found is not None
    assert found.lastgroup == "marker0"


def test_a_section_that_must_be_the_whole_reply_counts_only_at_its_start() -> None:
    text = '```json\n{"name": "bash"'
    assert begins(ALL, text) is None
    found = ALL.start.at_end.match(text)
    assert found is not None
    assert ALL.heads[found.lastgroup or ""].syntax.whole_reply


def test_names_in_a_pattern_are_no_expressions() -> None:
    dialect = described("{kind: dialect, name: odd, call: '[a.b(*{name}|{args}]', names: any}")
    assert begins(Grammar([dialect], ()), "[a.b(*f|{}") == "odd"
    assert begins(Grammar([dialect], ()), "[axb(*f|{}") is None


def test_a_set_of_dialects_is_compiled_once() -> None:
    dialects = tuple(SIX)
    assert compiled(dialects, ("a", "b")) is compiled(dialects, ("a", "b"))
    assert compiled(dialects, ("a", "b")) is not compiled(dialects, ("a",))
