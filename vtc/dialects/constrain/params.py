"""Parameters that stand between tags, and where the text of a value ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtc.dialects.arguments import values
from vtc.dialects.constrain.schema import Form, Values, in_tags, is_open, kind_of, options_of
from vtc.dialects.constrain.tree import NOTHING, Chars, Member, Node, Nodes, Some, Text, choice, each, seq
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax, last_tag
from vtc.dialects.syntax.parts import Lit, Part, Space
from vtc.dialects.syntax.pattern import Slot
from vtc.events import Tool

KEY = Chars("0-9A-Za-z_.-", 1, 64)
"""Any name, of a tool that says nothing of its parameters."""


class Params:
    """Makes the parameters of calls in one dialect."""

    def __init__(self, dialect: Description, free: int, free_inside: int, nodes: Nodes) -> None:
        """`free` parameters stand in any order, and so many members of objects in them."""
        self._dialect = dialect
        self._free = free
        self._free_inside = free_inside
        self._nodes = nodes
        self._syntax = CallSyntax(dialect, dialect.calls[0])
        self._parts = pattern.parse(dialect.params[0], "param") if dialect.params else []
        self._texts: dict[tuple[str, str], Text] = {}
        self._made: dict[tuple[str, Text], Values] = {}

    def of(self, tool: Tool) -> Node:
        """Make those of a tool."""
        needed = values.required(tool.parameters)
        declared = values.properties(tool.parameters)
        if not declared and is_open(tool.parameters) and self._syntax.closers_alike:
            return Some(self._filled(self._parts, KEY, "string", self._text(tool.name, "")), NOTHING, 0)
        members = tuple(Member(self._param(key, entry, tool), key in needed) for key, entry in declared.items())
        separator = self._dialect.param_separator
        return each(members, Lit(separator) if separator else NOTHING, self._free)

    def _param(self, key: str, schema: Mapping[str, object], tool: Tool) -> Node:
        """One parameter; where its tag says a type, once for each that its value may have."""
        dialect, root = self._dialect, tool.parameters
        style = dialect.values
        assert style in ("json", "python", "repr")
        kind, words, node = in_tags(schema, root, style, self._values(tool, key))
        parts = self._parts
        names_type = any(part in (Slot("type"), Slot("string")) for part in parts)
        if node is not None:
            kinds = ["null"]
            if names_type:
                resolved = values.resolved_of(schema, root)
                kinds = [kind_of(one) for one in options_of(resolved)]
                kinds = [*dict.fromkeys(kinds or [one for one, _ in values.types_of(resolved, root)])] or ["null"]
            return choice(*(self._filled(parts, Lit(dialect.escaped(key)), one, node) for one in kinds))
        said: Node = self._text(tool.name, key)
        if kind == "words":
            said = self._nodes.once(choice(*(Lit(self._framed(word)) for word in words)))
        return self._filled(parts, Lit(dialect.escaped(key)), "string", said)

    def _values(self, tool: Tool, key: str) -> Values:
        """What makes the values of a parameter; one for all of a tool, as far as its closer names nothing."""
        within = self._text(tool.name, key)
        if (tool.name, within) not in self._made:
            form: Form = "python" if self._dialect.values == "repr" else "json"
            self._made[tool.name, within] = Values(tool.parameters, form, self._free_inside, self._nodes, within)
        return self._made[tool.name, within]

    def _framed(self, word: str) -> str:
        return f"\n{word}\n" if self._dialect.frame == "multiline" and "\n" in word else word

    def _filled(self, parts: Sequence[str | Slot], key: Node, kind: str, value: Node) -> Node:
        slots: Mapping[str, Node] = {
            "key": key,
            "value": value,
            "string": Lit("true" if kind == "string" else "false"),
            "type": Lit(kind),
        }
        return seq(*(Lit(part) if isinstance(part, str) else slots[part.name] for part in parts))

    def _text(self, name: str, key: str) -> Text:
        """Any text up to the end of a parameter; one for all, as far as its closer names nothing."""
        alike = self._syntax.closers_alike
        of = (name if self._dialect.names == "declared" and alike else "", "" if alike else key)
        if of not in self._texts:
            self._texts[of] = Text(*self._ends(name, key))
        return self._texts[of]

    def _doubled(self) -> list[tuple[Part, ...]]:
        """The tag before a value after others of its opener, which models write twice: the reader leaves one out."""
        tag = last_tag(self._dialect.params[0].partition("{value}")[0].strip())
        return [(Lit(tag),)] if tag else []

    def _ends(self, name: str, key: str) -> tuple[tuple[tuple[Part, ...], ...], tuple[tuple[Part, ...], ...]]:
        """What ends the value of a parameter, or opens what a closer would pair with; and what it may not end in.

        Where the closer names the parameter these are the same for all tools: there would be as many automata else.
        """
        syntax = self._syntax
        written = "" if syntax.closers_alike else key
        close, tail = syntax.param_tail(0, written), syntax.written_tail(name)
        openers = [*syntax.quoted_params(0, written)]
        openers += [*syntax.quoted_heads(name), tail] if syntax.closers_alike else []
        openers += self._doubled()
        followers = [tail, *syntax.param_heads(), *syntax.last_tags(name)]
        first = {one[0].text[0] for one in followers if one and isinstance(one[0], Lit)}
        ends = [(*close, Space(), Lit(one)) for one in sorted(first)]
        return (*map(tuple, openers), *ends), ((*close, Space()),)
