"""The grammar as GBNF text."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from tests.dialects.constrain.checker import Checker
from tests.dialects.material import DIALECTS
from vtc.dialects.constrain import Demand, gbnf
from vtc.dialects.constrain.constraint import build_reply_grammar
from vtc.dialects.constrain.tree import (
    EMPTY_NODE,
    Each,
    EachMember,
    FreeText,
    Leaf,
    Node,
    Repeat,
    join_nodes,
    make_choice,
    make_each,
)
from vtc.dialects.syntax.pattern import Lit
from vtc.events import Tool

HERMES = r"""root ::= r0
blank ::= " " | "\n" [ \t]{0,32} | ""
integer ::= "-"? ("0" | [1-9] [0-9]{0,19})
r2-0 ::= "\"n\":" blank integer
r2 ::= r2-0 r2-0-0 | ""
r2-0-0 ::= ""
r1 ::= "<f>{" blank r2 blank "}</f>"
r0 ::= r1 ("\n" r1)*
"""


def test_a_grammar_is_for_people_to_read_too() -> None:
    dialect = replace(DIALECTS["hermes"], call="<{name}>{args}</{name}>")
    tree = build_reply_grammar(
        dialect, [Tool("f", "", {"properties": {"n": {"type": "integer"}}})], Demand(calls_only=True)
    )
    text = gbnf.write_grammar(tree)
    assert text == HERMES


@pytest.mark.parametrize("gap", ["", ","])
@pytest.mark.parametrize("free", [0, 1, 4])
@pytest.mark.parametrize("required", ["", "b", "ac"])
def test_each_member_is_allowed_once_and_required_ones_are_required(gap: str, free: int, required: str) -> None:
    members = tuple(EachMember(Lit(one), one in required) for one in "abcd")
    node = make_each(members, Lit(gap) if gap else EMPTY_NODE, free)
    assert isinstance(node, Each)
    grammar = Checker(gbnf.render_tree(join_nodes(Lit("<"), node, Lit(">"))))
    ordered = [one.node for one in node.rest]
    for count in range(5):
        for chosen in itertools.permutations("abcd", count):
            rest = [place for one in chosen for place, other in enumerate(ordered) if other == Lit(one)]
            fits = rest == sorted(rest) and set(required) <= set(chosen)
            assert grammar.accepts(f"<{gap.join(chosen)}>") == fits
    assert not grammar.accepts(f"<{gap.join('abcda')}>")
    assert not grammar.accepts(f"<{gap.join('abc')}{gap}>") or not gap


def test_every_rule_of_values_is_valid() -> None:
    values: list[Node] = [Leaf(name) for name in gbnf.LEAVES]
    grammar = Checker(gbnf.render_tree(join_nodes(Lit("="), make_choice(*values))))
    for text in (
        "1.5e-300",
        "-0.5",
        "[1, {}]",
        '{"a": [true, null]}',
        '"\\ud83d\\ude00 \\u00e9"',
        "'it\\'s \\x41'",
        "None",
    ):
        assert grammar.accepts(f"={text}"), text
    for text in ("01", "1.", ".5", "1e999", '"\n"', "{'a': 1,}", '"\\ud83d"', "TRUE"):
        assert not grammar.accepts(f"={text}"), text


def test_a_literal_is_escaped() -> None:
    odd = '"\\\n\r\t\x01]^-[é😀'
    stops = FreeText(((Lit(odd),),))
    grammar = Checker(gbnf.render_tree(join_nodes(Lit(odd), stops, Lit(odd))))
    assert grammar.accepts(f"{odd}a]^-[{odd}")
    assert not grammar.accepts(f"{odd}{odd}{odd}")


def test_no_escape_includes_the_following_character() -> None:
    """xgrammar consumes any number of hexadecimal digits after `\\x`."""
    text = gbnf.render_tree(join_nodes(Lit("\x01a"), FreeText(((Lit("[c"),),)))) + "".join(gbnf.LEAVES.values())
    assert "\\x" not in text
    assert "\\u0001a" in text


def test_repeated_expression_is_one_rule() -> None:
    text = gbnf.render_tree(
        join_nodes(Lit("a"), Repeat(Leaf("string"), Lit(","), 0), Lit("b"), Repeat(Leaf("string"), Lit(","), 0))
    )
    assert text.count("string ::=") == text.count("r0 ::=") == 1
    assert "r1" not in text
