"""JSON Schema -> the trees of its values. What a grammar does not say is left out: looser, never wrong.

Types, names, choices, required ones and the items of lists are said; patterns, bounds, conditions are not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Literal

from vtc.dialects.arguments import values
from vtc.dialects.arguments.values import Schema
from vtc.dialects.constrain.tree import NOTHING, Leaf, Member, Node, Nodes, Some, Text, choice, each, seq
from vtc.dialects.syntax.parts import Lit
from vtc.json_text import write

type Form = Literal["json", "python"]
"""How a value is written: as JSON, or as a literal of Python."""

SCALARS = ("string", "number", "integer", "boolean", "null")
MOST_DEPTH = 6
"""Schemas within schemas beyond which any value may stand."""
MOST_MEMBERS = 64
"""Members of an object that are told apart."""
BLANK = Leaf("blank")
"""White space between the parts of a value: none, a blank, or a line break and its indentation."""


class Values:
    """Makes the trees of values of one tool, whose schemas may refer to its own."""

    def __init__(self, root: Schema, form: Form, free: int, nodes: Nodes, within: Text | None = None) -> None:
        """`free` members of each object stand in any order. `within` is what text between the same tags may be."""
        self._within = within
        self._root = root
        self._shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        self._form = form
        self._free = free
        self._nodes = nodes
        self._known: dict[Hashable, tuple[Schema, Node]] = {}

    def arguments(self, free: int) -> Node:
        """Make the object of all arguments."""
        return self._object(values.resolved_of(self._root, self._root), 0, free)

    def of(self, schema: Any, depth: int = 0) -> Node:
        """Make the tree of the values of a schema."""
        schema = values.resolved_of(schema, self._root)
        known = (depth, *_identity(schema))
        if known not in self._known:
            self._nodes.make()
            self._known[known] = (schema, self._nodes.once(self._made(schema, depth)))
        return self._known[known][1]

    def _made(self, schema: Schema, depth: int) -> Node:
        if options := options_of(schema):
            return choice(*(node for option in options for node in self._literals(option)))
        kinds = values.types_of(schema, self._root)
        if not kinds or depth > MOST_DEPTH:
            return self._leaf("value")
        return choice(*(self._kind(kind, entry, depth) for kind, entry in kinds))

    def _kind(self, kind: str, schema: Schema, depth: int) -> Node:
        if options := [one for one in options_of(schema) if kind_of(one) == kind or (kind, kind_of(one)) == FITS]:
            return choice(*(node for option in options for node in self._literals(option)))
        if kind in SCALARS:
            return self._leaf(kind)
        if kind == "array":
            items = schema.get("items")
            if "prefixItems" in schema or not isinstance(items, Mapping):
                return self._leaf("array")
            between = seq(BLANK, Lit(","), BLANK)
            return seq(Lit("["), BLANK, Some(self.of(items, depth + 1), between, 0), BLANK, Lit("]"))
        return self._object(schema, depth, self._free) if kind == "object" else self._leaf("value")

    def _object(self, schema: Schema, depth: int, free: int) -> Node:
        """Make an object, closed unless its schema says how others look."""
        schema = {**self._shared, **schema}
        declared, others = values.properties(schema), schema.get("additionalProperties")
        if len(declared) > MOST_MEMBERS or (declared and (others is True or (isinstance(others, Mapping) and others))):
            return self._leaf("object")
        if not declared:
            if isinstance(others, Mapping) and others:
                member = seq(self._leaf("string"), Lit(":"), BLANK, self.of(others, depth + 1))
                return self._braced(Some(member, self._comma, 0))
            return self._leaf("object") if is_open(schema) else seq(Lit("{"), BLANK, Lit("}"))
        needed = values.required(schema)
        members = tuple(
            Member(seq(self._key(key), Lit(":"), BLANK, self.of(entry, depth + 1)), key in needed)
            for key, entry in declared.items()
        )
        return self._braced(each(members, self._comma, free))

    @property
    def _comma(self) -> Node:
        return seq(Lit(","), BLANK)

    def _braced(self, inside: Node) -> Node:
        return seq(Lit("{"), BLANK, inside, BLANK, Lit("}"))

    def _key(self, key: str) -> Node:
        return choice(Lit(write(key)), Lit(repr(key))) if self._form == "python" else Lit(write(key))

    def _leaf(self, name: str) -> Node:
        if name == "string" and self._within:
            escape = Leaf("python-escape" if self._form == "python" else "escape")
            quotes = "\"'" if self._form == "python" else '"'
            return choice(*(_quoted(quote, self._within, escape) for quote in quotes))
        return Leaf(f"python-{name}" if self._form == "python" and name not in ("number", "integer") else name)

    def _literals(self, value: Any) -> list[Node]:
        if self._form == "json":
            return [Lit(write(value))]
        return [Lit(repr(value)), *([Lit(write(value))] if isinstance(value, str) else [])]


def _quoted(quote: str, within: Text, escape: Node) -> Node:
    """A string that ends no value between tags: an escape parts any markup that it may have to hold."""
    banned = [quote, "\\", *map(chr, range(32))]
    plain = Text((*within.stops, *((Lit(one),) for one in banned)), within.last)
    return seq(Lit(quote), plain, Some(seq(escape, plain), NOTHING, 0), Lit(quote))


def _identity(schema: Schema) -> Iterator[Hashable]:
    """Tell a schema from others by the parts that it consists of: where references are resolved it is a copy."""
    for key, inside in schema.items():
        if isinstance(inside, Mapping):
            yield key, *((name, id(one)) for name, one in inside.items())
        elif isinstance(inside, list):
            yield key, *map(id, inside)
        else:
            yield key, id(inside)


def is_open(schema: Schema) -> bool:
    """True if an object of no declared members may have any: its schema says so, or says nothing of members."""
    others = schema.get("additionalProperties")
    return others is True or (others is None and "properties" not in schema)


FITS = ("number", "integer")
"""A type, and that of an option which is of it all the same."""


def options_of(schema: Schema) -> list[Any]:
    """List the values that a schema names; none if it names none."""
    options = schema.get("enum")
    found = options if isinstance(options, list) else []
    return found or ([schema["const"]] if "const" in schema else [])


def kind_of(value: Any) -> str:
    """Tell the type of a value."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "null" if value is None else "object"


def in_tags(
    schema: Any, root: Schema, form: Literal["json", "python", "repr"], made: Values
) -> tuple[str, list[str], Node | None]:
    """Tell how a value stands between tags: as `text`, as one of some `words`, or as a `value` of its own writing."""
    schema = values.resolved_of(schema, root)
    options = options_of(schema)
    if options and all(isinstance(one, str) for one in options):
        return "words", [*dict.fromkeys(options)], None
    if values.takes_text(schema, root):
        return "text", [], None
    node = made.of(schema)
    if form == "python":  # scalars alone are Python's
        kinds = {kind for kind, _ in values.types_of(schema, root)}
        node = choice(node, *(Leaf(f"python-{kind}") for kind in ("boolean", "null") if kind in kinds and not options))
    return "value", [], node
