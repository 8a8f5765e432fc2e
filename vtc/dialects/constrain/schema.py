"""Builds the trees of a JSON Schema's values, omitting constraints that a grammar cannot express: looser, never wrong.

Types, names, choices, required members and the items of lists are expressed; patterns, bounds and conditions are not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal

from vtc import json_schema
from vtc.dialects.constrain.tree import (
    EMPTY_NODE,
    CharRun,
    EachMember,
    FreeText,
    Leaf,
    Node,
    Nodes,
    Repeat,
    join_nodes,
    make_choice,
    make_each,
)
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.forms import CallSyntax, get_last_tag
from vtc.dialects.syntax.pattern import Lit, Part, Slot, Space
from vtc.events import Tool
from vtc.json_schema import ObjectSchema, Schema
from vtc.json_text import serialize_json

type ValueForm = Literal["json", "python"]
"""Format of a value: JSON, or a Python literal."""

SCALARS = ("string", "number", "integer", "boolean", "null")
MAX_SCHEMA_DEPTH = 6
"""Maximum nesting of schemas; deeper values are unconstrained."""
MAX_MEMBERS = 64
"""Maximum number of members of an object; one with more is unconstrained."""
VALUE_SPACE = Leaf("blank")
"""White space between the parts of a value: none, a blank, or a line break with indentation."""


class ValueBuilder:
    """Builds the trees of values of one tool; their schemas may refer to definitions in the tool's schema (`root`)."""

    def __init__(self, root: Schema, form: ValueForm, free: int, nodes: Nodes, within: FreeText | None = None) -> None:
        """`free` members of each object may come in any order.

        For a value between tags, `within` is the text up to its closer: no string in the value may contain that.
        """
        self._within = within
        self._root = root
        self._shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        self._form = form
        self._free = free
        self._nodes = nodes
        self._known: dict[Hashable, tuple[Schema, Node]] = {}

    def build_arguments(self, free: int) -> Node:
        """Build the object of all arguments."""
        return self._build_object(json_schema.resolve_schema(self._root, self._root), 0, free)

    def build(self, schema: Any, depth: int = 0) -> Node:
        """Build the tree of a schema's values."""
        schema = json_schema.resolve_schema(schema, self._root)
        key = (depth, *_list_identities(schema))
        if key not in self._known:
            self._nodes.count_schema()
            # The schema is stored as well, so that the `id`s of its parts in the key stay unique.
            self._known[key] = (schema, self._nodes.intern(self._build_value(schema, depth)))
        return self._known[key][1]

    def _build_value(self, schema: Schema, depth: int) -> Node:
        if options := json_schema.list_options(schema):
            return make_choice(*(node for option in options for node in self._list_literals(option)))
        kinds = json_schema.list_types(schema, self._root)
        if not kinds or depth > MAX_SCHEMA_DEPTH:
            return self._build_leaf("value")
        return make_choice(*(self._build_kind(kind, entry, depth) for kind, entry in kinds))

    def _build_kind(self, kind: str, schema: Schema, depth: int) -> Node:
        options = [
            option
            for option in json_schema.list_options(schema)
            if json_schema.get_type(option) == kind or (kind, json_schema.get_type(option)) == INTEGER_FITS_NUMBER
        ]
        if options:
            return make_choice(*(node for option in options for node in self._list_literals(option)))
        if kind in SCALARS:
            return self._build_leaf(kind)
        if kind == "array":
            items = schema.get("items")
            if "prefixItems" in schema or not isinstance(items, Mapping):
                return self._build_leaf("array")
            between = join_nodes(VALUE_SPACE, Lit(","), VALUE_SPACE)
            return join_nodes(
                Lit("["), VALUE_SPACE, Repeat(self.build(items, depth + 1), between, 0), VALUE_SPACE, Lit("]")
            )
        return self._build_object(schema, depth, self._free) if kind == "object" else self._build_leaf("value")

    def _build_object(self, schema: Schema, depth: int, free: int) -> Node:
        """Build an object, which is closed unless its schema describes additional members."""
        schema = {**self._shared, **schema}
        takes, additional = ObjectSchema(schema), schema.get("additionalProperties")
        declared = takes.properties
        if len(declared) > MAX_MEMBERS or (
            declared and (additional is True or (isinstance(additional, Mapping) and additional))
        ):
            return self._build_leaf("object")
        if not declared:
            if isinstance(additional, Mapping) and additional:
                member = join_nodes(
                    self._build_leaf("string"), Lit(":"), VALUE_SPACE, self.build(additional, depth + 1)
                )
                return self._wrap_in_braces(Repeat(member, self._comma, 0))
            return self._build_leaf("object") if is_open(schema) else join_nodes(Lit("{"), VALUE_SPACE, Lit("}"))
        needed = takes.required
        members = tuple(
            EachMember(
                join_nodes(self._build_key(key), Lit(":"), VALUE_SPACE, self.build(entry, depth + 1)), key in needed
            )
            for key, entry in declared.items()
        )
        return self._wrap_in_braces(make_each(members, self._comma, free))

    @property
    def _comma(self) -> Node:
        return join_nodes(Lit(","), VALUE_SPACE)

    def _wrap_in_braces(self, inside: Node) -> Node:
        return join_nodes(Lit("{"), VALUE_SPACE, inside, VALUE_SPACE, Lit("}"))

    def _build_key(self, key: str) -> Node:
        return (
            make_choice(Lit(serialize_json(key)), Lit(repr(key)))
            if self._form == "python"
            else Lit(serialize_json(key))
        )

    def _build_leaf(self, name: str) -> Node:
        if name == "string" and self._within:
            escape = Leaf("python-escape" if self._form == "python" else "escape")
            quotes = "\"'" if self._form == "python" else '"'
            return make_choice(*(_build_string(quote, self._within, escape) for quote in quotes))
        return Leaf(f"python-{name}" if self._form == "python" and name not in ("number", "integer") else name)

    def _list_literals(self, value: Any) -> list[Node]:
        if self._form == "json":
            return [Lit(serialize_json(value))]
        literals: list[Node] = [Lit(repr(value))]
        if isinstance(value, str):
            literals.append(Lit(serialize_json(value)))
        return literals


def _build_string(quote: str, within: FreeText, escape: Node) -> Node:
    """Build a string that cannot end a value between tags: escapes break up any markup in it."""
    banned = [quote, "\\", *map(chr, range(32))]
    plain = FreeText((*within.stops, *((Lit(word),) for word in banned)), within.banned_ends)
    return join_nodes(Lit(quote), plain, Repeat(join_nodes(escape, plain), EMPTY_NODE, 0), Lit(quote))


def _list_identities(schema: Schema) -> Iterator[Hashable]:
    """Identify a schema by its parts, because it is a copy if references were resolved."""
    for key, inside in schema.items():
        if isinstance(inside, Mapping):
            yield key, *((name, id(entry)) for name, entry in inside.items())
        elif isinstance(inside, list):
            yield key, *map(id, inside)
        else:
            yield key, id(inside)


def is_open(schema: Schema) -> bool:
    """Return True if an object without declared members may have any: its schema allows it, or mentions no members."""
    additional = schema.get("additionalProperties")
    return additional is True or (additional is None and "properties" not in schema)


INTEGER_FITS_NUMBER = ("number", "integer")
"""A type, and the type of options that match it as well."""


def describe_tag_value(
    schema: Any, root: Schema, form: Literal["json", "python", "repr"], values: ValueBuilder
) -> tuple[str, list[str], Node | None]:
    """Describe a value between tags: its kind, its words and its tree.

    The kind is `text` for any text, `words` for one of some texts, and `value` for a value with a tree.
    """
    schema = json_schema.resolve_schema(schema, root)
    options = json_schema.list_options(schema)
    if options and all(isinstance(option, str) for option in options):
        return "words", [*dict.fromkeys(options)], None
    if json_schema.accepts_text(schema, root):
        return "text", [], None
    node = values.build(schema)
    if form == "python":  # only scalars have Python's format
        kinds = {kind for kind, _ in json_schema.list_types(schema, root)}
        node = make_choice(
            node, *(Leaf(f"python-{kind}") for kind in ("boolean", "null") if kind in kinds and not options)
        )
    return "value", [], node


ANY_KEY_RUN = CharRun("0-9A-Za-z_.-", 1, 64)
"""Any key, for a tool without declared parameters."""


class ParameterBuilder:
    """Builds the parameters of calls in one dialect."""

    def __init__(self, dialect: Description, free: int, free_inside: int, nodes: Nodes) -> None:
        """`free` parameters may come in any order, and `free_inside` members of objects in them."""
        self._dialect = dialect
        self._free = free
        self._free_inside = free_inside
        self._nodes = nodes
        self._syntax = CallSyntax(dialect, dialect.calls[0])
        self._parts = pattern.parse(dialect.params[0], "param") if dialect.params else []
        self._texts: dict[tuple[str, str], FreeText] = {}
        self._made: dict[tuple[str, FreeText], ValueBuilder] = {}

    def build(self, tool: Tool) -> Node:
        """Build the parameters of a tool."""
        needed = tool.schema.required
        declared = tool.schema.properties
        if not declared and is_open(tool.parameters) and self._syntax.parameters.shares_closer:
            return Repeat(
                self._fill_slots(self._parts, ANY_KEY_RUN, "string", self._get_text(tool.name, "")), EMPTY_NODE, 0
            )
        members = tuple(
            EachMember(self._build_param(key, entry, tool), key in needed) for key, entry in declared.items()
        )
        separator = self._dialect.param_separator
        return make_each(members, Lit(separator) if separator else EMPTY_NODE, self._free)

    def _build_param(self, key: str, schema: Mapping[str, object], tool: Tool) -> Node:
        """Build one parameter; if its tag names the type, with an alternative for each possible type."""
        dialect, root = self._dialect, tool.parameters
        style = dialect.values
        assert style in ("json", "python", "repr")
        kind, words, node = describe_tag_value(schema, root, style, self._get_values(tool, key))
        parts = self._parts
        names_type = any(part in (Slot("type"), Slot("string")) for part in parts)
        if node is not None:
            kinds: list[str] = []
            if names_type:
                resolved = json_schema.resolve_schema(schema, root)
                kinds = [json_schema.get_type(option) for option in json_schema.list_options(resolved)]
                kinds = kinds or [kind for kind, _ in json_schema.list_types(resolved, root)]
            kinds = [*dict.fromkeys(kinds)] or ["null"]
            return make_choice(*(self._fill_slots(parts, Lit(dialect.escape_key(key)), kind, node) for kind in kinds))
        value: Node = self._get_text(tool.name, key)
        if kind == "words":
            value = self._nodes.intern(make_choice(*(Lit(self._frame_word(word)) for word in words)))
        return self._fill_slots(parts, Lit(dialect.escape_key(key)), "string", value)

    def _get_values(self, tool: Tool, key: str) -> ValueBuilder:
        """Return the builder of a parameter's values; it is shared by all parameters of a tool with the same closer."""
        within = self._get_text(tool.name, key)
        if (tool.name, within) not in self._made:
            form: ValueForm = "python" if self._dialect.values == "repr" else "json"
            self._made[tool.name, within] = ValueBuilder(tool.parameters, form, self._free_inside, self._nodes, within)
        return self._made[tool.name, within]

    def _frame_word(self, word: str) -> str:
        return f"\n{word}\n" if self._dialect.frame == "multiline" and "\n" in word else word

    def _fill_slots(self, parts: Sequence[str | Slot], key: Node, kind: str, value: Node) -> Node:
        slots: Mapping[str, Node] = {
            "key": key,
            "value": value,
            "string": Lit("true" if kind == "string" else "false"),
            "type": Lit(kind),
        }
        return join_nodes(*(Lit(part) if isinstance(part, str) else slots[part.name] for part in parts))

    def _get_text(self, name: str, key: str) -> FreeText:
        """Return the grammar of text up to the end of a parameter; it is shared if the closer names nothing."""
        shares_closer = self._syntax.parameters.shares_closer
        tool_part = name if self._dialect.names == "declared" and shares_closer else ""
        cache_key = (tool_part, "" if shares_closer else key)
        if cache_key not in self._texts:
            self._texts[cache_key] = FreeText(*self._list_ends(name, key))
        return self._texts[cache_key]

    def _list_doubled_openers(self) -> list[tuple[Part, ...]]:
        """Return the last tag before a value, which models write twice; the reader drops one of them."""
        tag = get_last_tag(self._dialect.params[0].partition("{value}")[0].strip())
        return [(Lit(tag),)] if tag else []

    def _list_ends(self, name: str, key: str) -> tuple[tuple[tuple[Part, ...], ...], tuple[tuple[Part, ...], ...]]:
        """List the markup that ends a value or that a closer would pair with, and markup that it must not end in.

        If the closer names the parameter, these are the same for all tools, since otherwise there would be as many
        automata.
        """
        syntax = self._syntax
        written_key = "" if syntax.parameters.shares_closer else key
        close, tail = syntax.parameters.make_tail(0, written_key), syntax.closers.make_required_tail(name)
        openers = [*syntax.parameters.list_quoted_openers(0, written_key)]
        if syntax.parameters.shares_closer:
            openers += [*syntax.list_quoted_heads(name), tail]
        openers += self._list_doubled_openers()
        followers = [tail, *syntax.parameters.list_heads(), *syntax.closers.list_last_tags(name)]
        first = {follower[0].text[0] for follower in followers if follower and isinstance(follower[0], Lit)}
        ends = [(*close, Space(), Lit(mark)) for mark in sorted(first)]
        return (*map(tuple, openers), *ends), ((*close, Space()),)
