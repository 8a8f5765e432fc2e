"""The beginning of a call: the heads of all dialects, matched together."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.dialects.material import AGENT, COMMON, DIALECTS, parse_dialect
from vtc.dialects import Grammar, ModelFacts, ReaderOptions, compile_grammar
from vtc.dialects.reading.context import Context, TokenMatch
from vtc.dialects.syntax.scan import get_token_kind
from vtc.dialects.syntax.tokens import TokenKind
from vtc.events import Tool

SIX = [DIALECTS[name] for name in COMMON]
ALL = Grammar(SIX)


def first(grammar: Grammar, text: str, offered: Iterable[str] = AGENT) -> TokenMatch | None:
    """Return the first token in a text, if these tools are offered."""
    tools = {name: Tool(name) for name in offered}
    context = Context(grammar, tools, ReaderOptions(max_call_bytes=1000, think="keep"), ModelFacts())
    return grammar.text.search(text, final=True, offers=context.offers)


def begins(grammar: Grammar, text: str, offered: Iterable[str] = AGENT) -> str | None:
    """Return the dialect of the call at the start of a text; None for plain text and undecided text."""
    found = first(grammar, text, offered)
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
        # A shorter text is no call.
        ("<tool_call>{name", None),
        ("<tool_call>bash", None),
        ("<function=>", None),
        ("<function=a b>", None),
        ("<tools>[", None),
        ("<invoke>", None),
        ("<invoke name=any>", "invoke"),
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
def test_beginnings_of_a_call(text: str, dialect: str | None) -> None:
    assert begins(ALL, text) == dialect


@pytest.mark.parametrize("dialect", COMMON)
def test_call_begins_only_if_its_dialect_is_armed(dialect: str) -> None:
    texts = ['<tool_call>{"a', "<function=f>", '<tools>{"', '<invoke name="f">', "<bash>", '{"name": "bash"']
    found = {begins(Grammar([DIALECTS[dialect]]), text) for text in texts}
    assert found == {dialect, None}


def test_without_tools_nothing_begins_a_call_of_a_dialect_that_needs_their_names() -> None:
    assert begins(ALL, "<bash>", []) is None
    assert begins(ALL, '{"name": "bash"', []) is None
    assert begins(ALL, "<function=f>", []) == "qwen3-coder"


def test_all_of_a_name_counts_and_nothing_else_is_passed_over() -> None:
    for name in ("read", "read_all"):
        found = first(ALL, f"<all> <read_> <b> <read-all> </read> </READ> <{name}>", ["read", "read_all"])
        assert found is not None
        assert found[f"name_{found.lastgroup}"] == name


def test_text_that_is_no_tool_name_has_another_meaning() -> None:
    """A quoting element has the form of a call in tags, and is a call if a tool has its name."""
    for offered, token in (([], TokenKind.QUOTING_ELEMENT), (["example"], TokenKind.CALL_OPENER)):
        found = first(ALL, "<example>", offered)
        assert found is not None
        assert get_token_kind(found.lastgroup) == token


def test_markers_are_found_in_text() -> None:
    grammar = Grammar([], (), ["<|end|>"])
    found = grammar.text.search("a <|end|>")
    assert found is not None
    assert get_token_kind(found.lastgroup) == TokenKind.MARKER


def test_a_marker_holds_the_name_of_any_tool() -> None:
    grammar = Grammar([], (), [" to={name}<|message|>"])
    found = grammar.text.search("a to=get_weather<|message|>b")
    assert found is not None
    assert found.group() == " to=get_weather<|message|>"
    assert grammar.text.search("a to=<|message|>b") is None


def test_a_section_that_must_be_the_whole_reply_counts_only_at_its_start() -> None:
    text = '```json\n{"name": "bash"'
    assert begins(ALL, text) is None
    found = ALL.start.match(text, final=True)
    assert found is not None
    assert ALL.heads[found.lastgroup or ""].syntax.whole_reply


def test_names_in_a_pattern_are_no_expressions() -> None:
    dialect = parse_dialect("{kind: dialect, name: odd, call: '[a.b(*{name}|{args}]', names: any}")
    assert begins(Grammar([dialect]), "[a.b(*f|{}") == "odd"
    assert begins(Grammar([dialect]), "[axb(*f|{}") is None


def test_a_set_of_dialects_is_compiled_once() -> None:
    assert compile_grammar(tuple(SIX)) is compile_grammar(tuple(SIX))
    assert compile_grammar(tuple(SIX)) is not compile_grammar(tuple(SIX[1:]))
