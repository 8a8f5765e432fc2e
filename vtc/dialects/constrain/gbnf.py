"""Renders the tree as GBNF, the grammars of llama.cpp, which Fireworks, TabbyAPI and structural tags accept, too.

Rules are named by their order, so that the same tools give the same text and the caches of servers stay valid. Equal
parts share one rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from vtc.dialects.constrain.tree import (
    EMPTY_NODE,
    Alternatives,
    CharRun,
    Each,
    EachMember,
    FreeText,
    Inexpressible,
    Leaf,
    Node,
    Repeat,
    ReplyGrammar,
    Seq,
    join_nodes,
    list_states,
    make_choice,
)
from vtc.dialects.syntax.pattern import Lit


class RuleMember(msgspec.Struct, frozen=True):
    """A member, by the name of its rule."""

    rule: str
    required: bool


class MemberRules:
    """Renders the rules of one `Each`, which allow members in any order as far as that is worth the rules.

    A rule is a set of members that may still come: some of `free`, as the bits of `left`, and those of `rest` from the
    index `at` on.
    """

    def __init__(self, name: str, gap: str, free: Sequence[RuleMember], rest: Sequence[RuleMember]) -> None:
        """`gap` is the text between members."""
        self._name = name
        self._gap = gap
        self._free = free
        self._rest = rest

    def render_rules(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each rule, beginning with the rule of all members."""
        everything = (1 << len(self._free)) - 1
        yield self._name, self._render_rule(everything, 0, "")
        queue, done = self._list_following(everything, 0, ""), set[tuple[int, int]]()
        while queue:
            state = queue.pop(0)
            if state not in done:
                done.add(state)
                yield self._name_rule(*state), self._render_rule(*state, self._gap)
                queue += self._list_following(*state, self._gap)

    def _name_rule(self, left: int, at: int) -> str:
        return f"{self._name}-{left}-{at}"

    def _render_rule(self, free_left: int, at: int, gap: str) -> str:
        coming = [*self._list_free(free_left, at), *self._list_rest(free_left, at, gap)]
        options = [f"{gap} {member.rule} {self._name_rule(*after)}".strip() for member, after in coming]
        if self._can_skip(free_left, at, gap):
            options.append(self._name_rule(free_left, at + 1))
        elif not self._is_incomplete(free_left, at):
            options.append('""')
        return " | ".join(options)

    def _can_skip(self, left: int, at: int, gap: str) -> bool:
        """Return True if a rule continues with the rule of the next index, which keeps rules short.

        This requires that `free` is used up, because otherwise the same text could be derived in two ways.
        """
        return not left and gap == self._gap and at < len(self._rest) and not self._rest[at].required

    def _list_free(self, left: int, at: int) -> Iterator[tuple[RuleMember, tuple[int, int]]]:
        return ((member, (left & ~(1 << bit), at)) for bit, member in enumerate(self._free) if left >> bit & 1)

    def _list_rest(self, left: int, at: int, gap: str) -> Iterator[tuple[RuleMember, tuple[int, int]]]:
        for place in range(at, len(self._rest)):
            yield self._rest[place], (left, place + 1)
            if self._rest[place].required or self._can_skip(left, at, gap):
                return

    def _list_following(self, left: int, at: int, gap: str) -> list[tuple[int, int]]:
        following = [after for _, after in (*self._list_free(left, at), *self._list_rest(left, at, gap))]
        return [*following, (left, at + 1)] if self._can_skip(left, at, gap) else following

    def _is_incomplete(self, left: int, at: int) -> bool:
        """Return True if a required member is still missing."""
        free = (member for bit, member in enumerate(self._free) if left >> bit & 1)
        return any(member.required for member in (*free, *self._rest[at:]))


LEAVES: Mapping[str, str] = {
    "blank": r'" " | "\n" [ \t]{0,32} | ""',
    "hex": "[0-9a-fA-F]",
    "string": r'"\"" character* "\""',
    "character": r'[^"\\\u0000-\u001f] | "\\" (["\\/bfnrt] | "u" codepoint)',
    "escape": r'"\\" (["\\/bfnrt] | "u" codepoint)',
    "codepoint": r'([0-9a-cA-CefEF] hex hex | [dD] [0-7] hex) hex | [dD] [89abAB] hex hex "\\u" [dD] [c-fC-F] hex hex',
    "integer": '"-"? ("0" | [1-9] [0-9]{0,19})',
    "number": 'integer ("." [0-9]{1,20})? ([eE] ("-" [0-9]{1,3} | "+"? ("2" [0-7] [0-9] | "1"? [0-9]{1,2})))?',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "array": '"[" blank (value (blank "," blank value)*)? blank "]"',
    "object": r'"{" blank (string ":" blank value ("," blank string ":" blank value)*)? blank "}"',
    "value": "object | array | string | number | boolean | null",
    "python-string": r'"\"" python-double* "\"" | "\u0027" python-single* "\u0027"',
    "python-double": r'[^"\\\u0000-\u001f] | python-escape',
    "python-single": r"[^'\\\u0000-\u001f] | python-escape",
    "python-escape": r'"\\" (["\u0027\\bfnrt] | "x" hex hex | "u" ([0-9a-cA-CefEF] hex | [dD] [0-7]) hex hex'
    ' | "U000" [1-9a-fA-F] hex hex hex hex)',
    "python-boolean": '"True" | "False"',
    "python-null": '"None"',
    "python-array": '"[" blank (python-value (blank "," blank python-value)*)? blank "]"',
    "python-object": '"{" blank (python-string ":" blank python-value'
    ' ("," blank python-string ":" blank python-value)*)? blank "}"',
    "python-value": "python-object | python-array | python-string | number | python-boolean | python-null",
}
"""The rules of values. White space, digits and exponents are bounded, because models loop in
them and numbers must not overflow."""
MAX_GRAMMAR_LENGTH = 128 << 10
"""Maximum length of a grammar, in characters."""


def write_grammar(reply: ReplyGrammar) -> str:
    """Render the grammar of a reply. Raises `Inexpressible` if it is too long."""
    return render_tree(build_root(reply))


def build_root(reply: ReplyGrammar) -> Node:
    """Build one tree of a reply: reasoning, then calls alone, or free text with calls in it."""
    if not reply.call_forms:
        body = reply.calls
    else:
        free = FreeText(tuple((Lit(way.trigger),) for way in reply.call_forms))
        call = make_choice(*(way.node for way in reply.call_forms))
        body = (
            Repeat(join_nodes(free, call), EMPTY_NODE, 0)
            if reply.allows_multiple
            else make_choice(join_nodes(free, call), EMPTY_NODE)
        )
        body = join_nodes(body, free)
    reasoning = [join_nodes(Lit(open_), _build_text_until(close)) for open_, close in reply.reasoning_tags]
    reasoning += [_build_text_until(close) for close in reply.reasoning_closers]
    return join_nodes(make_choice(*reasoning, EMPTY_NODE), body) if reasoning else body


def _build_text_until(close: str) -> Node:
    return join_nodes(FreeText(((Lit(close),),)), Lit(close), Repeat(Leaf("blank"), EMPTY_NODE, 0, 2))


def render_tree(node: Node) -> str:
    """Render the grammar of one tree. Raises `Inexpressible` if it is too long."""
    rules = _Rules()
    root = rules.render_alternatives(node)
    lines = [f"root ::= {root}", *(f"{name} ::= {text}" for name, text in rules.rules.items())]
    written = "\n".join(lines) + "\n"
    if len(written) > MAX_GRAMMAR_LENGTH:
        raise Inexpressible(f"the grammar would be longer than {MAX_GRAMMAR_LENGTH >> 10} KB")
    return written


class _Rules:
    """The rules of a grammar, added on demand."""

    def __init__(self) -> None:
        self.rules: dict[str, str] = {}
        self._names: dict[Node, str] = {}
        self._size = 0

    def render_alternatives(self, node: Node) -> str:
        """Render the right-hand side of a rule, after `::=`."""
        if isinstance(node, Alternatives):
            return " | ".join(map(self.render_sequence, node.options))
        return self.render_sequence(node)

    def render_sequence(self, node: Node) -> str:
        """Render a part of an alternative."""
        match node:
            case Lit(text):
                return quote_literal(text)
            case CharRun(allowed, least, most):
                return f"[{allowed}]{{{least},{most}}}"
            case Seq(parts):
                return " ".join(map(self.render_sequence, parts)) or '""'
            case Leaf(name):
                self._add_leaf(name)
                return name
        return self._add_rule(node)

    def _add_rule(self, node: Node) -> str:
        """Add a rule for a part, and return its name."""
        if node not in self._names:
            self._names[node] = f"r{len(self._names)}"
            self._render_rule(self._names[node], node)
        return self._names[node]

    def _render_rule(self, name: str, node: Node) -> None:
        match node:
            case Alternatives() | Seq():
                self._set_rule(name, self.render_alternatives(node))
            case Repeat(part, between, least, most):
                self._set_rule(name, self._render_repetition(part, between, least, most))
            case FreeText():
                self._add_free_text(name, node)
            case Each():
                self._add_each(name, node)

    def _set_rule(self, name: str, text: str) -> None:
        self.rules[name] = text
        self._size += len(name) + len(text) + 6
        if self._size > MAX_GRAMMAR_LENGTH:
            raise Inexpressible(f"the grammar would be longer than {MAX_GRAMMAR_LENGTH >> 10} KB")

    def _add_leaf(self, name: str) -> None:
        if name in self.rules:
            return
        self._set_rule(name, LEAVES[name])
        for leaf in LEAVES:
            if leaf not in self.rules and leaf in _find_rule_names(LEAVES[name]):
                self._add_leaf(leaf)

    def _render_repetition(self, part: Node, between: Node, least: int, most: int | None) -> str:
        written = self._add_rule(part) if isinstance(part, Seq) else self.render_sequence(part)
        gap = self.render_sequence(between)
        more = f"({gap} {written})" if gap != '""' else f"({written})"
        if most == 1:
            return written if least else f'{written} | ""'
        count = "*" if most is None else f"{{0,{most - 1}}}"
        return f"{written} {more}{count}" if least else f"({written} {more}{count})?"

    def _add_free_text(self, name: str, text: FreeText) -> None:
        for number, state in enumerate(list_states(text)):
            options = [f"{_render_class(characters)} {_name_state(name, to)}" for characters, to in state.moves]
            listed = "".join(characters for characters, _ in state.moves) + state.banned
            options.append(
                f"[^{escape_class(listed)}] {_name_state(name, state.others)}" if listed else f"[^\\u0000] {name}"
            )
            if state.final:
                options.append('""')
            self._set_rule(_name_state(name, number), " | ".join(options))

    def _add_each(self, name: str, node: Each) -> None:
        """Add one rule for each set of members that may still come."""
        gap = self.render_sequence(node.between)
        named = [self._add_member(f"{name}-{place}", member) for place, member in enumerate((*node.free, *node.rest))]
        free, rest = named[: len(node.free)], named[len(node.free) :]
        for rule, text in MemberRules(name, "" if gap == '""' else gap, free, rest).render_rules():
            self._set_rule(rule, text)

    def _add_member(self, name: str, member: EachMember) -> RuleMember:
        self._set_rule(name, self.render_alternatives(member.node))
        return RuleMember(name, member.required)


_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|\[(?:[^\]\\]|\\.)*+(?:\]|\Z)')


def _find_rule_names(text: str) -> set[str]:
    """Return the names of the rules that a rule refers to."""
    return {*re.findall(r"[a-z][a-z-]*", _QUOTED.sub(" ", text))}


def _name_state(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _render_class(characters: str) -> str:
    return quote_literal(characters) if len(characters) == 1 else f"[{escape_class(characters)}]"


def quote_literal(text: str) -> str:
    """Render a literal."""
    names = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f'"{"".join(names.get(character) or _print_character(character) for character in text)}"'


def escape_class(characters: str) -> str:
    """Escape characters for a character class."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
    return "".join(
        named.get(character) or (f"\\u{ord(character):04x}" if character in ']^-["' else _print_character(character))
        for character in characters
    )


def _print_character(character: str) -> str:
    """Render a character; control characters as four digits, because some parsers read on after two."""
    return f"\\u{ord(character):04x}" if ord(character) < 32 else character
