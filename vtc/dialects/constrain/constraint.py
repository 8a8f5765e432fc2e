"""One constraint of a request, in the form that its server accepts.

The tree of a reply is made from a dialect's patterns and the tools. Calls are written in the first pattern. In free
text, however, every opening counts that the reader recognises, because a call that begins in an unknown way would not
be constrained, and nobody would notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from vtc import json_schema, json_text
from vtc.dialects.constrain import gbnf
from vtc.dialects.constrain.schema import MAX_SCHEMA_DEPTH, VALUE_SPACE, ParameterBuilder, ValueBuilder, is_open
from vtc.dialects.constrain.tree import (
    EMPTY_NODE,
    Alternatives,
    CallForm,
    CharRun,
    EachMember,
    Inexpressible,
    Node,
    Nodes,
    Repeat,
    ReplyGrammar,
    Seq,
    join_nodes,
    make_choice,
    make_each,
    make_optional,
)
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.pattern import Lit, Slot
from vtc.events import Tool
from vtc.json_schema import Schema

__all__ = ["Demand", "Inexpressible", "Kind", "find_reserved_opener", "render_constraint"]


MIN_TRIGGER_LENGTH = 5
"""Minimum length of a trigger; ordinary text may begin like a shorter one by accident."""
_MARKER = re.compile(rf"[^>\]]{{{MIN_TRIGGER_LENGTH - 1},}}?[>\]]")  # used with match
"""Finds the first tag or marker of an opening."""
ID_RUN = CharRun("0-9A-Za-z_.:-", 1, 64)
KEYWORD_RUN = CharRun("A-Za-z_", 1, 64)
INDEX_RUN = CharRun("0-9", 1, 3)


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The content that a reply must or may have."""

    calls_only: bool
    """True if the reply must consist of calls; False if it may be free text with calls in it."""
    allows_multiple: bool = True
    """True if the reply may contain more than one call."""
    reasoning_tags: tuple[tuple[str, str], ...] = ()
    """The tags around reasoning that may precede the calls."""
    reasoning_closers: tuple[str, ...] = ()
    """The closing tags of reasoning that the prompt may have opened."""


FREEDOM = ((4, 2), (3, 1), (2, 0), (0, 0))
"""Pairs of limits: how many parameters of a call, and how many members of an object in them, may come in any order.

The first pair whose grammar is short enough is used.
"""


class _CallLayout(msgspec.Struct, frozen=True):
    """One format of calls: the parts of a call's pattern, and the section around calls if there is one."""

    call: tuple[str | Slot, ...]
    before: str = ""
    after: str = ""

    def respell(self, word: str, otherwise: str) -> _CallLayout:
        """Return the layout with a word of its markup replaced."""
        call = tuple(part.replace(word, otherwise) if isinstance(part, str) else part for part in self.call)
        return _CallLayout(call, self.before.replace(word, otherwise), self.after.replace(word, otherwise))

    @property
    def is_marked(self) -> bool:
        """True if text of the dialect itself marks the beginning of a call."""
        first = self.call[0]
        return bool(self.before.strip()) or (isinstance(first, str) and bool(first.strip()))


def build_reply_grammar(
    dialect: Description, tools: Sequence[Tool], demand: Demand, freedom: tuple[int, int] = FREEDOM[0]
) -> ReplyGrammar:
    """Build the tree of a reply. Raises `Inexpressible` with the reason if there is none."""
    if dialect.unconstrained:
        raise Inexpressible(f"dialect {dialect.name}: {dialect.unconstrained}")
    if not tools:
        raise Inexpressible("no tools are offered")
    calls = _CallBuilder(dialect, tools, demand.allows_multiple, freedom)
    first = next(_list_layouts(dialect))
    call_forms: list[CallForm] = []
    if not demand.calls_only:
        if dialect.section_anchor == "message" or not first.is_marked:
            raise Inexpressible(f"dialect {dialect.name}: only a whole reply is a call, so free text cannot be allowed")
        call_forms = [*_list_call_forms(dialect, calls)]
    return ReplyGrammar(
        calls.build_calls(first),
        tuple(call_forms),
        demand.reasoning_tags,
        demand.reasoning_closers,
        demand.allows_multiple,
    )


def find_reserved_opener(dialect: Description) -> str:
    """Return the start of a parameter, which values between tags cannot contain; empty if any value can be written.

    If the tag is the key, only the value's own tag is excluded.
    """
    if pattern.find_body_slot(dialect.calls[0]) != "params":
        return ""
    opening = dialect.params[0].partition("{")[0]
    return opening if len(opening) >= MIN_TRIGGER_LENGTH else ""


def _list_call_forms(dialect: Description, calls: _CallBuilder) -> Iterator[CallForm]:
    """List the layouts of calls in free text; of those with the same trigger, the first wins."""
    forms: dict[str, tuple[_CallLayout, Tool | None]] = {}
    for form in _list_layouts(dialect):
        if opening := _trigger_of(form):
            forms.setdefault(opening, (form, None))
        elif dialect.names == "declared":  # its tag is the tool's name
            for tool in calls.tools:
                forms.setdefault(_trigger_of(form, tool.name), (form, tool))
    # A trigger that begins with another one is redundant.
    openings = [opening for opening in forms if opening]
    shortest = [
        opening
        for opening in openings
        if not any(opening != shorter and opening.startswith(shorter) for shorter in openings)
    ]
    if not shortest:
        raise Inexpressible(f"dialect {dialect.name}: nothing distinguishes the beginning of a call from other text")
    for trigger in shortest:
        form, tool_of_tag = next(candidate for opening, candidate in forms.items() if opening.startswith(trigger))
        yield CallForm(trigger, calls.build_calls(form, tool_of_tag))


def _list_layouts(dialect: Description) -> Iterator[_CallLayout]:
    """List all layouts that are read, the written one first: with other spellings, and without optional markers."""
    in_section = dialect.section_required or dialect.section_anchor == "anywhere"
    sections = [*dialect.sections]
    if not dialect.section_required:
        sections.append("")
    written = dialect.sections[0] if dialect.sections and in_section else ""
    for section in dict.fromkeys((written, *sections)):
        before, after = ("", "")
        if section:
            around = pattern.split_at_slot(pattern.parse(section, "section"), ("calls",))
            before, after = ("".join(part for part in parts if isinstance(part, str)) for parts in around)
        for call in dialect.calls:
            form = _CallLayout(tuple(pattern.parse(call, "call")), before.lstrip(), after)
            yield form
            yield from (form.respell(words[0], word) for words in dialect.spellings for word in words[1:])
            if any(call.startswith(marker) for marker in dialect.optional):
                for marker in dialect.optional:
                    form = form.respell(marker, "")
                yield _CallLayout((str(form.call[0]).lstrip(), *form.call[1:]), form.before, form.after)


def _trigger_of(form: _CallLayout, name: str = "") -> str:
    """Return the text that identifies a layout in free text: its first tag, line, or text before a quote.

    Empty if that may be prose. With the `name` of a tool, it may include the name.
    """
    # Step 1: join the fixed text with which the layout begins.
    text = form.before
    for part in () if text else form.call:
        if isinstance(part, Slot) and not (name and part.name == "name"):
            break
        text += part if isinstance(part, str) else name
    text = text.lstrip()
    # Step 2: keep its first tag or line, unless that may be ordinary text.
    line = text.partition("\n")[0].partition('"')[0]
    opening = match[0] if (match := _MARKER.match(line)) else line
    is_prose = not form.before and (opening[:1].isalnum() or opening[:1] in "-`")
    is_unclosed = opening[:1] == "<" and opening[-1:].isspace()  # <function foo at 0x7f>
    is_short = len(opening) < (3 if name else MIN_TRIGGER_LENGTH)
    return "" if is_prose or is_unclosed or is_short else opening.rstrip()


class _CallBuilder:
    """Builds the trees of calls of some tools in one dialect."""

    def __init__(self, dialect: Description, tools: Sequence[Tool], several: bool, freedom: tuple[int, int]) -> None:
        self.tools = tools
        self._dialect = dialect
        self._several = several
        self._free, self._free_inside = freedom
        self._nodes = Nodes()
        self._params = ParameterBuilder(dialect, *freedom, self._nodes)
        self._bodies: dict[tuple[str, str], Node] = {}

    def build_calls(self, form: _CallLayout, tool: Tool | None = None) -> Node:
        """Build the calls of all tools, or of one, with the section around them."""
        call = make_choice(*(self._build_call(form, candidate) for candidate in ([tool] if tool else self.tools)))
        between = Lit(self._dialect.separator) if self._dialect.separator else EMPTY_NODE
        calls = Repeat(call, between, 1, None if self._several else 1)
        return join_nodes(Lit(form.before), calls, Lit(form.after)) if form.before or form.after else calls

    def _build_call(self, form: _CallLayout, tool: Tool) -> Node:
        parts = [*form.call]
        if isinstance(first := parts[0], str) and not form.before:
            parts[0] = first.lstrip()
        if isinstance(last := parts[-1], str):
            parts[-1] = last.rstrip("\n")
        return join_nodes(*(Lit(part) if isinstance(part, str) else self._fill_slot(part.name, tool) for part in parts))

    def _fill_slot(self, slot: str, tool: Tool) -> Node:
        match slot:
            case "name":
                return Lit(tool.name)
            case "id":
                return ID_RUN
            case "index" | "number":
                return INDEX_RUN
        # The body is shared by all layouts of a call.
        if (slot, tool.name) not in self._bodies:
            self._nodes.count_schema()
            self._bodies[slot, tool.name] = self._nodes.intern(self._build_body(slot, tool))
        return self._bodies[slot, tool.name]

    def _build_body(self, slot: str, tool: Tool) -> Node:
        match slot:
            case "json":
                return self._build_envelope(tool)
            case "args":
                return self._make_values(tool).build_arguments(self._free)
            case "kwargs":
                return self._build_keywords(tool)
        return self._params.build(tool)

    def _make_values(self, tool: Tool) -> ValueBuilder:
        return ValueBuilder(tool.parameters, "json", self._free_inside, self._nodes)

    def _build_envelope(self, tool: Tool) -> Node:
        """Build the object of a whole call, with its keys in the written order."""
        keys = self._dialect.json
        fields = {
            "name": join_nodes(Lit(f'"{keys.name[0]}":'), VALUE_SPACE, Lit(json_text.serialize_json(tool.name))),
            "arguments": join_nodes(
                Lit(f'"{keys.arguments[0]}":'), VALUE_SPACE, self._make_values(tool).build_arguments(self._free)
            ),
        }
        comma = join_nodes(Lit(","), VALUE_SPACE)
        # The id is optional, and so is the comma between it and the next member.
        members: list[Node] = []
        for field in keys.order:
            if field != "id":
                members.append(join_nodes(comma, fields[field]) if members else fields[field])
            elif keys.id:
                id_ = join_nodes(Lit(f'"{keys.id}":'), VALUE_SPACE, Lit('"'), ID_RUN, Lit('"'))
                members.append(make_optional(join_nodes(comma, id_)) if members else join_nodes(id_, comma))
        if keys.order[0] == "id" and keys.id:
            members = [make_optional(members[0]), fields[keys.order[1]], *members[2:]]
        return join_nodes(Lit("{"), VALUE_SPACE, *members, VALUE_SPACE, Lit("}"))

    def _build_keywords(self, tool: Tool) -> Node:
        values = ValueBuilder(tool.parameters, "python", self._free_inside, self._nodes)
        needed = tool.schema.required
        declared = tool.schema.properties
        if not declared and is_open(tool.parameters):
            return Repeat(
                join_nodes(KEYWORD_RUN, Lit("="), values.build({})), join_nodes(Lit(","), make_optional(Lit(" "))), 0
            )
        members = tuple(
            EachMember(join_nodes(Lit(f"{key}="), values.build(entry)), key in needed)
            for key, entry in declared.items()
        )
        return make_each(members, join_nodes(Lit(","), make_optional(Lit(" "))), self._free)


# Some servers accept only JSON Schema, for a call that is one JSON object and the whole reply. References are resolved,
# because each tool has its own, and objects are closed, because these servers enforce both.


MAX_SCHEMA_LENGTH = 512 << 10
"""Maximum length of a schema, in characters."""
KEPT_KEYWORDS = ("type", "enum", "const", "required")
"""Keywords that are copied from a schema, in addition to its subschemas."""


def build_json_reply(dialect: Description, tools: Sequence[Tool]) -> Mapping[str, Any]:
    """Build the schema of a reply that is one call. Raises `Inexpressible` if a call is not just JSON."""
    in_section = dialect.sections and (dialect.section_required or dialect.section_anchor == "anywhere")
    around = dialect.sections[0].replace("{calls}", "") if in_section else ""
    if pattern.find_body_slot(dialect.calls[0]) != "json" or dialect.calls[0] != "{json}" or around not in ("", "[]"):
        raise Inexpressible(f"dialect {dialect.name}: a call is not a JSON object that is the whole reply")
    if not tools:
        raise Inexpressible("no tools are offered")
    nodes = Nodes(MAX_SCHEMA_LENGTH)
    calls = [_build_call_schema(dialect, tool, nodes) for tool in tools]
    call = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {"type": "array", "items": call, "minItems": 1} if around else call


def _build_call_schema(dialect: Description, tool: Tool, nodes: Nodes) -> Mapping[str, Any]:
    name, arguments = dialect.json.name[0], dialect.json.arguments[0]
    fields = {
        name: {"const": tool.name},
        arguments: {"type": "object", **close_schema(tool.parameters, tool.parameters, nodes)},
    }
    return {"type": "object", "properties": fields, "required": [name, arguments], "additionalProperties": False}


def close_schema(schema: Any, root: Schema, nodes: Nodes, depth: int = 0) -> Mapping[str, Any]:
    """Reduce a schema to types, names and choices, and close its objects; very deep values are unconstrained."""
    nodes.count_schema()
    schema = json_schema.resolve_schema(schema, root)
    if depth > MAX_SCHEMA_DEPTH:
        return {}
    kept: dict[str, Any] = {key: schema[key] for key in KEPT_KEYWORDS if key in schema}
    nodes.count_characters(len(json_text.serialize_json(kept)))
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            kept["anyOf"] = [close_schema(option, root, nodes, depth + 1) for option in options]
    if isinstance(items := schema.get("items"), Mapping):
        kept["items"] = close_schema(items, root, nodes, depth + 1)
    if isinstance(declared := schema.get("properties"), Mapping):
        nodes.count_characters(sum(len(key) + 5 for key in declared))
        kept["properties"] = {key: close_schema(entry, root, nodes, depth + 1) for key, entry in declared.items()}
    additional = schema.get("additionalProperties")
    if isinstance(additional, Mapping):
        kept["additionalProperties"] = close_schema(additional, root, nodes, depth + 1)
    elif (declared or depth == 0) and not additional:
        kept["additionalProperties"] = False
        kept.setdefault("properties", {})
    return kept


# Structural tags constrain vLLM, SGLang and TensorRT-LLM, through xgrammar. Free text with calls is `triggered_tags`:
# each trigger must be followed by a tag that begins with it. The content of a tag is the same GBNF as for other
# servers, so that the language and its bounds are the same. Tags share no rules; if that would be too long, one grammar
# describes everything.


MAX_TAGS_LENGTH = 192 << 10
"""Maximum total length of the contents of all tags, in characters."""

type Format = Mapping[str, Any]


def build_structural_tag(reply: ReplyGrammar) -> Format:
    """Build the format of a reply. Raises `Inexpressible` if it is too long."""
    if not reply.call_forms:
        return {"type": "grammar", "grammar": gbnf.write_grammar(reply)}
    contents: list[str] = []
    for way in reply.call_forms:
        contents.append(gbnf.render_tree(drop_prefix(way.node, way.trigger)))
        if sum(map(len, contents)) > MAX_TAGS_LENGTH:
            return {"type": "grammar", "grammar": gbnf.write_grammar(reply)}
    tags = [
        {
            "type": "tag",
            "begin": way.trigger,
            "content": {"type": "grammar", "grammar": content},
            "end": "",
        }
        for way, content in zip(reply.call_forms, contents, strict=True)
    ]
    content = {
        "type": "triggered_tags",
        "triggers": [way.trigger for way in reply.call_forms],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": not reply.allows_multiple,
    }
    reasoning = [
        *(_make_tag(open_, close) for open_, close in reply.reasoning_tags),
        *(_make_tag("", close) for close in reply.reasoning_closers),
    ]
    if not reasoning:
        return content
    return {"type": "or", "elements": [*(_make_sequence([tag, content]) for tag in reasoning), content]}


def _make_tag(begin: str, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": end}


def _make_sequence(elements: Sequence[Format]) -> Format:
    return {"type": "sequence", "elements": elements}


def drop_prefix(node: Node, text: str) -> Node:
    """Remove the text with which a tree begins."""
    match node:
        case Lit(whole):
            assert whole.startswith(text)
            return Lit(whole[len(text) :]) if len(whole) > len(text) else EMPTY_NODE
        case Seq((first, *rest)):
            return join_nodes(drop_prefix(first, text), *rest)
        case Alternatives(options):
            return make_choice(*(drop_prefix(option, text) for option in options))
        case Repeat(part, between, _, most):
            more = Repeat(join_nodes(between, part), EMPTY_NODE, 0)
            return drop_prefix(part, text) if most == 1 else join_nodes(drop_prefix(part, text), more)
    raise AssertionError(f"{node} does not begin with {text!r}")


type Kind = Literal["structural_tag", "gbnf", "json_schema"]


def render_constraint(kind: Kind, dialect: Description, tools: Sequence[Tool], demand: Demand) -> Any:
    """Render the constraint of a reply: a format of structural tags, the text of a grammar, or a schema.

    Raises `Inexpressible` with a reason for people if there is none.
    """
    if kind == "json_schema":
        if not demand.calls_only:
            raise Inexpressible("a JSON Schema describes the whole reply, so a call must be required")
        if dialect.unconstrained:
            raise Inexpressible(f"dialect {dialect.name}: {dialect.unconstrained}")
        return build_json_reply(dialect, tools)
    write = build_structural_tag if kind == "structural_tag" else gbnf.write_grammar
    # Allow as much freedom of order as fits into the limit.
    freest, *freedoms, least = FREEDOM
    tree = build_reply_grammar(dialect, tools, demand, freest)
    with suppress(Inexpressible):
        return write(tree)
    shortest = write(build_reply_grammar(dialect, tools, demand, least))  # if this is too long, all are
    for freedom in freedoms:
        with suppress(Inexpressible):
            return write(build_reply_grammar(dialect, tools, demand, freedom))
    return shortest
