"""Rewrite the schemas of tools for a server: if it cannot handle one schema, it rejects all tools.

There are three sets of keywords that servers support, each a subset of the one before:

    object   parameters are an object with declared members; arrays declare their items (OpenAI, Anthropic)
    grammar  types, names and enums, from which a grammar can be made (llama.cpp)
    plain    one type per value, or `anyOf` alone, and nothing else (Gemini, Moonshot)

The rewritten schema accepts each value that the client's schema accepts. Constraints that it cannot express move into
the description, where the model still reads them. VTC validates calls against the client's own schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.apis.contract import Json
from vtc.dialects.bounded_cache import BYTES_PER_PATTERN_CHARACTER, COMPILED_PATTERNS
from vtc.events import CanonicalRequest, Tool
from vtc.exchange.asking.steps.messages import StepContext
from vtc.json_schema import get_type, list_options, normalize_type, resolve_reference
from vtc.json_text import encode_json
from vtc.profiles.document import format_count

NARROWING_KEYWORDS = frozenset(
    (
        *("pattern", "format", "minLength", "maxLength", "contentEncoding", "contentMediaType"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "contains", "minProperties", "maxProperties", "propertyNames"),
        *("patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "not", "if", "then", "else"),
    )
)
"""Keywords that only narrow a value whose type is declared elsewhere."""
_HINT_KEYWORDS = NARROWING_KEYWORDS | {"const", "default"}
"""Keywords that move into the description for servers of the set `plain`."""
_UNIONS = ("anyOf", "oneOf")
_NESTING_KEYWORDS = frozenset(("properties", "items", "additionalProperties", "prefixItems", "anyOf", "oneOf", "allOf"))
_ALL_NESTING_KEYWORDS = _NESTING_KEYWORDS | {"$defs", "definitions", "patternProperties", "not", "if", "then", "else"}
"""Keywords that contain other schemas."""
_KEYWORDS_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_TOP_LEVEL_REJECTED = ("anyOf", "oneOf", "allOf", "enum", "not")
"""Keywords that OpenAI and Anthropic reject at the top level of a tool's parameters."""
_COMPLEX_KEYWORDS = NARROWING_KEYWORDS | {"$ref", "$defs", "definitions", *_UNIONS}
MAX_NESTED_SCHEMAS = 12
"""Nesting depth beyond which any value is accepted, because a schema may refer to itself."""
MAX_SUBSCHEMAS = 2000
"""Subschemas per tool that are visited."""
MAX_SUBSCHEMAS_OF_ALL = 12000
"""Subschemas of all tools that are visited."""
MAX_REPORTED_TOOLS = 6
"""Tools that the report names."""
MAX_ANSWER_DEPTH = 50
"""Nesting depth of the schema of an answer below which it stays as it is."""
MAX_HINT_CHARACTERS = 400
"""Characters per keyword in a description."""


def rewrite_schemas(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Rewrite the schemas in the keywords that the server supports; drop tools whose arguments are no object."""
    tools: list[Tool] = []
    lines: list[str] = []
    left_out: list[str] = []
    left = MAX_SUBSCHEMAS_OF_ALL
    for tool in request.tools:
        written = _write_cached(tool.parameters, value, min(left, MAX_SUBSCHEMAS))
        if not written.is_object and tool.name != request.choice:
            left_out.append(tool.name)
            continue
        left -= written.parts
        if written.parameters is not None:
            lines.append(f"{tool.name}: {', '.join(written.dropped)}" if written.dropped else tool.name)
            tool = replace(tool, parameters=written.parameters)
        tools.append(tool)
    shown = "; ".join(lines[:MAX_REPORTED_TOOLS]) + "; …" * (len(lines) > MAX_REPORTED_TOOLS)
    report = [f"{format_count(len(lines), 'schema')} simplified ({shown})"] if lines else []
    if left_out:
        report.append(f"not offered, because their arguments are no object: {', '.join(left_out)}")
    return (replace(request, tools=tuple(tools)), "; ".join(report)) if report else (request, "")


_ANSWER_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
"""Formats of texts in the schemas of structured answers that Anthropic accepts."""


def close_answer(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Give a structured answer the schema that Anthropic accepts, as its SDKs do.

    All objects are closed, and constraints that it rejects move into the description.
    """
    answer = request.answer
    if context.server.layout.any_json or answer is None or answer.schema is None:
        return request, ""
    schema = _close_objects(answer.schema)
    if schema == answer.schema:
        return request, ""
    line = "schema of the answer: objects closed, constraints moved into the description"
    return replace(request, answer=replace(answer, schema=schema)), line


def _close_objects(schema: Any, depth: int = 0) -> Any:
    if not isinstance(schema, Mapping) or depth > MAX_ANSWER_DEPTH:
        return schema
    lost = {key: value for key, value in schema.items() if key in NARROWING_KEYWORDS}
    if lost.get("format") in _ANSWER_FORMATS:
        del lost["format"]
    if lost.get("minItems") in (0, 1):
        del lost["minItems"]
    out = {
        "anyOf" if key == "oneOf" else key: _map_schemas(key, value, lambda inner: _close_objects(inner, depth + 1))
        if key in _ALL_NESTING_KEYWORDS
        else value
        for key, value in schema.items()
        if key not in lost
    }
    if "object" in _list_types(schema):
        if isinstance(out.get("additionalProperties"), Mapping):
            lost["additionalProperties"] = out["additionalProperties"]
        out["additionalProperties"] = False
    return _append_hints(out, lost)


class _WrittenParameters(NamedTuple):
    """The rewritten parameters of a tool."""

    parameters: Json | None
    """None if they are unchanged."""
    dropped: Collection[str]
    """Keywords that were dropped or moved into the description."""
    parts: int
    """Number of subschemas that were visited."""
    is_object: bool
    """False if the arguments that they describe are no object."""


def _write_cached(parameters: Json, words: Any, most: int) -> _WrittenParameters:
    """Rewrite the parameters of a tool, cached because agents declare the same tools in each turn."""
    source = encode_json(parameters)

    def make() -> _WrittenParameters:
        writer = SchemaWriter(parameters, most=most)
        new = writer.write(words)
        is_object = _is_object(parameters) and _is_object(new)
        return _WrittenParameters(None if new is parameters else new, tuple(writer.dropped), writer.parts, is_object)

    return COMPILED_PATTERNS.get_or_make(
        (SchemaWriter, source, words, most), make, lambda _: BYTES_PER_PATTERN_CHARACTER * len(source)
    )


def _is_object(schema: Json) -> bool:
    """Return False if the declared type of a tool's arguments is not an object."""
    kinds = _list_declared_types(schema)
    return not kinds or "object" in kinds


class SchemaWriter:
    """Rewrites one schema for a server."""

    def __init__(self, root: Json, *, most: int = MAX_SUBSCHEMAS) -> None:
        self.root = root
        self.dropped: dict[str, None] = {}
        """Keywords that were dropped or moved into the description."""
        self.parts = 0
        """Subschemas visited so far."""
        self._most = min(most, MAX_SUBSCHEMAS)

    def write(self, words: Any) -> Any:
        """Rewrite the parameters of a tool; return the same schema if nothing changes."""
        if words == "plain":
            plain = self._write_object(self.root, ())
            return self.root if plain == self.root else plain
        if words == "object":
            return self._declare_items(self._write_top_level())
        if not self.root.keys().isdisjoint(_TOP_LEVEL_REJECTED):
            self.root = self._write_top_level()
        return self.simplify(self.root)

    # Profile `object`: all keywords stay, except combining ones at the top level.

    def _write_top_level(self) -> Json:
        """Make the top level an object that declares its members."""
        combines = not self.root.keys().isdisjoint((*_TOP_LEVEL_REJECTED, "$ref"))
        flat = self._merge_members(self.root, ()) if combines else self.root
        flat = flat if flat.get("type") == "object" else {**flat, "type": "object"}
        if not isinstance(flat.get("properties"), Mapping):
            flat = {**flat, "properties": {}}
        return flat

    def _merge_members(self, schema: Json, within: tuple[str, ...]) -> Json:
        """Merge a schema and those that it combines into one object with the members of all.

        Members are required if the schema requires them, or all members of a union do. The union's other constraints
        move into the description.
        """
        flat = self._merge_conjunction(schema, within)
        gone = [key for key in _TOP_LEVEL_REJECTED if key in flat and key != "allOf"]
        own = {key: value for key, value in flat.items() if key not in _TOP_LEVEL_REJECTED}
        union = [member for member in _get_union(flat) if not _is_null(member)]
        members = [self._merge_members(member, (*within, "")) for member in union if self._can_visit(member, within)]
        if members and len(members) == len(union):
            names = dict.fromkeys(name for member in members for name in _get_properties(member))
            shown = {
                name: _unite([_get_properties(m)[name] for m in members if name in _get_properties(m)])
                for name in names
            }
            own["properties"] = {**shown, **_get_properties(own)}
            shared = [name for name in _list_required(members[0]) if all(name in _list_required(m) for m in members)]
            if required := dict.fromkeys([*_list_required(own), *shared]):
                own["required"] = [*required]
        self.dropped.update(dict.fromkeys(gone))
        hints = {key: flat[key] for key in gone}
        return _append_hints(own, hints)

    def _can_visit(self, schema: Any, within: tuple[str, ...]) -> bool:
        """Count a schema as visited; return False if it is no schema, or beyond the limits on number and depth."""
        self.parts += 1
        return isinstance(schema, Mapping) and self.parts <= self._most and len(within) <= MAX_NESTED_SCHEMAS

    def _merge_conjunction(self, schema: Json, within: tuple[str, ...]) -> dict[str, Any]:
        """Merge a schema with the schemas that it references and combines by `allOf`.

        The first value of a repeated keyword wins: dropping a part of a conjunction only widens it.
        """
        parts, flat = [(schema, within)], dict[str, Any]()
        while parts:
            part, path = parts.pop(0)
            if not self._can_visit(part, path):
                continue
            both = [part[key] for key in ("allOf",) if isinstance(part.get(key), list)]
            parts = [*((inner, (*path, "allOf")) for inners in both for inner in inners), *parts]
            self.dropped.update(dict.fromkeys(key for key in ("allOf", "$ref") if key in part))
            reference = str(part["$ref"]) if "$ref" in part else ""
            if "$ref" in part and reference not in path:
                parts.insert(0, (resolve_reference(self.root, reference), (*path, reference)))
            own = {key: value for key, value in part.items() if key not in ("allOf", "$ref")}
            properties = {**_get_properties(flat), **_get_properties(own), **_get_properties(flat)}
            required = dict.fromkeys([*_list_required(flat), *_list_required(own)])
            flat = {**own, **flat}
            if properties:
                flat["properties"] = properties
            if required:
                flat["required"] = [*required]
        return flat

    def _declare_items(self, schema: Any) -> Any:
        """Declare the items of every array, at any depth; return the same schema if all are declared."""
        if not isinstance(schema, Mapping):
            return schema
        inside = {
            key: new
            for key in _ALL_NESTING_KEYWORDS & schema.keys()
            if (new := _map_schemas(key, schema[key], self._declare_items)) is not schema[key]
        }
        schema = self._move_type_into_members({**schema, **inside} if inside else schema)
        entries = schema.get("items")
        if isinstance(entries, list):
            self.dropped["items"] = None
            rest = schema.get("additionalItems")
            schema = {key: value for key, value in schema.items() if key != "additionalItems"}
            more = {"items": rest} if isinstance(rest, Mapping) else _declare_open_items(schema, rest, entries)
            schema = {**schema, "prefixItems": entries, **more}
        elif "array" in _list_types(schema) and not isinstance(entries, Mapping):
            self.dropped["items"] = None
            schema = {**schema, **_declare_open_items(schema, entries, schema.get("prefixItems"))}
        return schema

    def _move_type_into_members(self, schema: Json) -> Json:
        """Move the type of a value into the members of its `anyOf`, as Moonshot requires."""
        members, kind = schema.get("anyOf"), schema.get("type")
        if not isinstance(members, list) or not isinstance(kind, str) or not all(map(_is_mapping, members)):
            return schema
        self.dropped["anyOf"] = None
        typed = [member if "type" in member or "$ref" in member else {"type": kind, **member} for member in members]
        return {**{key: value for key, value in schema.items() if key != "type"}, "anyOf": typed}

    # Profile `grammar`: narrowing keywords move into the description, the rest takes the form that grammars support.

    def simplify(self, schema: Any, within: tuple[str, ...] = (), *, optional: bool = False, part: bool = False) -> Any:
        """Simplify a schema and its subschemas; return the same object if nothing changes.

        `within` holds the references and keys on the way here; a circular reference ends with its type. An `optional`
        value need not accept null, because it can be omitted. A `part` of a conjunction need not declare its type.
        """
        self.parts += 1
        if not isinstance(schema, Mapping):
            return dict(_ANY_VALUE) if schema is True else schema
        reference = schema.get("$ref")
        if len(within) > MAX_NESTED_SCHEMAS or self.parts > self._most or reference in within:
            self.dropped["depth"] = None
            target = resolve_reference(self.root, reference)
            simple = target if isinstance(target, Mapping) else schema
            return _make_schema_of_types(_list_types(simple) if within else ["object"])  # arguments are an object
        depth, within = len(within), (*within, reference if isinstance(reference, str) else "")
        keys = schema.keys()
        is_simple = isinstance(schema.get("type"), str) and keys.isdisjoint(_COMPLEX_KEYWORDS)
        simple = schema if is_simple else self._simplify_here(schema, optional=optional or depth == 0)
        simple = self._simplify_nested(simple, within)
        if not (part or simple.keys() & _TYPING_KEYWORDS):
            self.dropped["no type"] = None
            simple = {**simple, **_make_schema_of_types(["object"] if depth == 0 else _list_types(simple))}
        if depth == 0 and simple.get("type") == "object" and "properties" not in simple:
            simple = {**simple, "properties": {}}
        if depth == 0 and "$ref" in self.dropped:
            simple = {key: value for key, value in simple.items() if key not in ("$defs", "definitions")}
        return simple

    def _simplify_nested(self, schema: Json, within: tuple[str, ...]) -> Json:
        """Simplify the subschemas of a schema."""
        required = _list_required(schema)
        inside: dict[str, Any] = {}
        for key in _NESTING_KEYWORDS & schema.keys():
            value = schema[key]
            if key == "properties" and isinstance(value, Mapping):
                new: Any = {
                    name: self.simplify(inner, within, optional=name not in required) for name, inner in value.items()
                }
                new = value if all(new[name] is inner for name, inner in value.items()) else new
            elif key == "items" and value is True:
                new = self.simplify(value, within)
            else:
                is_part = key == "allOf"
                new = _map_schemas(key, value, lambda inner, part=is_part: self.simplify(inner, within, part=part))
            if new is not value:
                inside[key] = new
        if "oneOf" in inside:  # its members may overlap now that they have lost constraints
            some = inside.pop("oneOf")
            schema = {key: value for key, value in schema.items() if key != "oneOf"}
            inside = {"anyOf": some, **inside} if "anyOf" not in schema else inside
        return {**schema, **inside} if inside else schema

    def _simplify_here(self, schema: Json, *, optional: bool) -> Json:
        """Simplify a schema, but not its subschemas."""
        flat = self._resolve_single(schema, optional=optional)
        lost = {key: value for key, value in flat.items() if key in NARROWING_KEYWORDS}
        kinds = flat.get("type")
        others = [value for value in kinds if value != "null"] if isinstance(kinds, list) else []
        if flat is schema and not lost and len(others) != 1:
            return schema
        out = {key: value for key, value in flat.items() if key not in lost}
        if "patternProperties" in lost and "additionalProperties" in out:
            out["additionalProperties"] = True
        if len(others) == 1:
            out["type"] = others[0]
            self.dropped["null"] = None
        self.dropped.update(dict.fromkeys(lost))
        out = _append_hints(out, lost)
        if len(others) == 1 and isinstance(kinds, list) and "null" in kinds and not optional:
            about = _get_description(out)
            out = {**about, "anyOf": [{key: out[key] for key in out if key not in about}, _ANY_VALUE_OF["null"]]}
        return out

    def _resolve_single(self, schema: Json, *, optional: bool) -> Json:
        """Resolve references and unions with one member besides null; an `optional` value loses null."""
        for _ in range(MAX_NESTED_SCHEMAS):
            if "$ref" in schema:
                self.dropped["$ref"] = None
                there = resolve_reference(self.root, schema["$ref"])
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = _merge_both(there, rest) if isinstance(there, Mapping) else rest
                continue
            key = next((key for key in _UNIONS if isinstance(schema.get(key), list)), None)
            others = [value for value in schema[key] if value != {"type": "null"}] if key else []
            others = [{} if value is True else value for value in others]
            if not key or len(others) != 1 or not isinstance(others[0], Mapping):
                break
            if len(schema[key]) > 1 and not optional:
                break
            self.dropped[key] = None
            schema = _merge_both(others[0], {name: value for name, value in schema.items() if name != key})
        return schema

    # Profile `plain`: a type and its keywords, or `anyOf` alone.

    def _write_plain(self, schema: Any, within: tuple[str, ...], *, optional: bool) -> Json:
        """Rewrite any schema; an `optional` value need not accept null, because it can be omitted."""
        schema = schema if isinstance(schema, Mapping) else {}
        if not self._can_visit(schema, within) or schema.get("$ref") in within:
            self.dropped["depth"] = None
            kinds = _list_types(schema) or _list_types(resolve_reference(self.root, schema.get("$ref")))
            return self._make_union([_ANY_VALUE_OF[kind] for kind in kinds or _ALL_TYPES], {}, optional=optional)
        flat = self._merge_conjunction(schema, within)
        within = (*within, str(schema.get("$ref") or ""))
        kinds, union = _list_types(flat), _get_union(flat)
        if kinds:
            self.dropped.update({"type": None} if isinstance(flat.get("type"), list) else {})
            about = _get_description(flat)
            bare = {key: value for key, value in flat.items() if key not in about}
            return self._make_union([self._write_typed(kind, bare, within) for kind in kinds], about, optional=optional)
        self.dropped.update(dict.fromkeys(key for key in _UNIONS if key in flat) if union else {"no type": None})
        hints = {key: value for key, value in flat.items() if key in _HINT_KEYWORDS}
        self.dropped.update(dict.fromkeys(hints))
        some = [self._write_plain(member, within, optional=False) for member in union] or [
            _ANY_VALUE_OF[kind] for kind in _ALL_TYPES
        ]
        return self._make_union(some, _append_hints(_get_description(flat), hints), optional=optional)

    def _make_union(self, some: Iterable[Json], about: Json, *, optional: bool) -> Json:
        """Return a union without duplicates, null last; `about` holds the description of all."""
        flat = [member for schema in some for member in schema.get("anyOf", [schema])]
        kept = [member for at, member in enumerate(flat) if member not in flat[:at]]
        members = [member for member in kept if member["type"] != "null"]
        nulls = [member for member in kept if member["type"] == "null"][:1]
        if nulls and members and optional:
            self.dropped["null"] = None
        members += nulls if not (members and optional) else []
        if description := about.get("description"):
            own = members[0].get("description")
            members[0] = {**members[0], "description": f"{description}\n{own}" if own else description}
        return members[0] if len(members) == 1 else {"anyOf": members}

    def _write_typed(self, kind: str, schema: Json, within: tuple[str, ...]) -> Json:
        """Rewrite a schema for the values of one type."""
        if kind == "object":
            return self._write_object(schema, within)
        hints = {key: value for key, value in schema.items() if key in _HINT_KEYWORDS}
        out: dict[str, Any] = {"type": kind}
        choices = schema.get("enum")
        if isinstance(choices, list) and choices:
            texts = [value for value in choices if isinstance(value, str)]
            if kind == "string" and texts and all(texts):
                out["enum"] = [*dict.fromkeys(texts)]
            else:
                hints["enum"] = choices
        if kind == "array":
            out["items"] = self._write_items(schema, within)
        self.dropped.update(dict.fromkeys(hints))
        return _append_hints({**out, **_get_description(schema)}, hints)

    def _write_items(self, schema: Json, within: tuple[str, ...]) -> Json:
        """Return one schema for all items of an array."""
        rest, first = schema.get("items"), schema.get("prefixItems")
        if isinstance(rest, list):
            rest, first = schema.get("additionalItems"), rest
        some = [*first] if isinstance(first, list) else []
        if some:
            self.dropped["prefixItems"] = None
        elif not rest:
            self.dropped["items"] = None
        if not some or rest is not False:
            some.append(rest)
        return self._make_union(
            [self._write_plain(entry, within, optional=False) for entry in some], {}, optional=False
        )

    def _write_object(self, schema: Json, within: tuple[str, ...]) -> Json:
        """Rewrite an object, with the members of all schemas that it combines."""
        flat = self._merge_members(schema, within)
        required = _list_required(flat)
        properties = {
            name: self._write_plain(inner, (*within, ""), optional=name not in required)
            for name, inner in _get_properties(flat).items()
        }
        needed = [name for name in required if name in properties]
        hints = {key: value for key, value in flat.items() if key in _HINT_KEYWORDS}
        others = flat.get("additionalProperties")
        if isinstance(others, Mapping) and others:
            hints["additionalProperties"] = others
        self.dropped.update(dict.fromkeys(key for key in flat if key not in _PLAIN_OBJECT_KEYWORDS))
        out = {"type": "object", "properties": properties, **({"required": needed} if needed else {})}
        return _append_hints({**out, **_get_description(flat)}, hints)


_PLAIN_OBJECT_KEYWORDS = ("type", "properties", "required", "description", "title")
_SIMPLE_SCHEMAS: list[Json] = [
    {"type": "string"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "object", "properties": {}},
]
_LIST_SCHEMA = {"type": "array", "items": {"anyOf": _SIMPLE_SCHEMAS}}
_ANY_VALUE_OF: Mapping[str, Json] = {
    **{entry["type"]: entry for entry in _SIMPLE_SCHEMAS},
    "integer": {"type": "integer"},
    "array": {"type": "array", "items": {"anyOf": [*_SIMPLE_SCHEMAS, _LIST_SCHEMA, {"type": "null"}]}},
    "null": {"type": "null"},
}
"""Schemas for any value of each type."""
_ALL_TYPES = ("string", "number", "boolean", "object", "array", "null")
_ANY_VALUE: Json = {"anyOf": [{"type": kind} for kind in _ALL_TYPES]}
"""Any value: llama.cpp's grammar for `{}` accepts objects only, and it makes none from a description without a type."""
_TYPING_KEYWORDS = frozenset(("type", "enum", "const", "allOf", *_UNIONS))
"""Keywords of which at least one determines the type."""


def _make_schema_of_types(kinds: Sequence[str]) -> dict[str, Any]:
    """Return a schema for any value of these types; any value at all if there are none."""
    return {"type": kinds[0]} if len(kinds) == 1 else {"anyOf": [{"type": kind} for kind in kinds or _ALL_TYPES]}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _get_description(schema: Json) -> Json:
    description = schema.get("description")
    return {"description": description} if isinstance(description, str) and description else {}


def _map_schemas(key: str, value: Any, write: Any) -> Any:
    """Rewrite the schemas under a keyword; return the same value if none changes."""
    if key in _KEYWORDS_BY_NAME and isinstance(value, Mapping):
        new: Any = {name: write(inner) for name, inner in value.items()}
        return value if all(new[name] is inner for name, inner in value.items()) else new
    if isinstance(value, list):
        new = [write(inner) for inner in value]
        return value if all(inner is old for inner, old in zip(new, value, strict=True)) else new
    return write(value) if isinstance(value, Mapping) else value


def _get_properties(schema: Json) -> Json:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _list_required(schema: Json) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _merge_both(one: Json, other: Json) -> dict[str, Any]:
    """Merge two schemas that both apply: the second wins, except that members and required names are united."""
    both = {**one, **other}
    if properties := {**_get_properties(one), **_get_properties(other)}:
        both["properties"] = properties
    if required := dict.fromkeys([*_list_required(one), *_list_required(other)]):
        both["required"] = [*required]
    return both


def _declare_open_items(schema: Json, rest: Any, first: Any) -> dict[str, Any]:
    """Declare unconstrained items after the first ones of an array; none if `rest` is false."""
    if rest is not False:
        return {"items": {}}
    size, most = len(first) if isinstance(first, list) else 0, schema.get("maxItems")
    return {"items": {}, "maxItems": min(size, most) if isinstance(most, int) else size}


def _unite(some: Sequence[Any]) -> Any:
    """Return the union of some schemas without duplicates."""
    kept = [schema for at, schema in enumerate(some) if schema not in some[:at]]
    return kept[0] if len(kept) == 1 else {"anyOf": kept}


def _get_union(schema: Json) -> Sequence[Any]:
    """Return the members of a schema's first union; empty if it has none."""
    return next((schema[key] for key in _UNIONS if isinstance(schema.get(key), list)), ())


def _is_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return (
        schema.get("type") == "null" or schema.get("enum") == [None] or ("const" in schema and schema["const"] is None)
    )


def _list_declared_types(schema: Mapping[str, Any]) -> list[str]:
    """List the types in `type`."""
    named = schema.get("type")
    return [normalize_type(kind) for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str)]


def _list_types(schema: Any) -> list[str]:
    """List the types of a schema, by declaration or by its keywords and enum; empty if they are unknown."""
    if not isinstance(schema, Mapping):
        return []
    kinds = _list_declared_types(schema)
    if not kinds or not all(kind in _ANY_VALUE_OF for kind in kinds):
        signs = [kind for kind, keys in _IMPLIED_TYPES.items() if not schema.keys().isdisjoint(keys)][:1]
        kinds = ["number" if kind == "integer" else kind for kind in map(get_type, list_options(schema))] or signs
    return [*dict.fromkeys([*kinds, *(["null"] if kinds and schema.get("nullable") is True else [])])]


_IMPLIED_TYPES = {"object": ("properties", "additionalProperties", "required"), "array": ("items", "prefixItems")}
"""Keywords that imply a type if none is declared."""


def _append_hints(schema: Json, hints: Json) -> dict[str, Any]:
    """Append constraints that the schema cannot express to its description."""
    texts = {key: _render_value(value) for key, value in hints.items() if not (key == "default" and value is None)}
    words = [f"{key}: {text}" for key, text in texts.items() if len(text) <= MAX_HINT_CHARACTERS]
    if not words:
        return {**schema}
    description, hint = str(schema.get("description") or ""), f"({'; '.join(words)})"
    return {**schema, "description": f"{description}\n{hint}" if description else hint}


def _render_value(value: Any) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()
