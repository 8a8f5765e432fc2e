"""Deny calls whose argument keys are ambiguous: `{"command": "ls", "Command": "rm -rf /"}`.

Clients in Go and .NET ignore the case of keys and use the last value, but a rule sees only the exact key. If rules on
arguments apply, a call is therefore denied if one of its keys differs only in case from a key of a rule or of the
tool's schema. Keys that the schema declares in this spelling, and keys that nothing declares (`env: {Path: …}`), pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vtc import json_schema, json_text
from vtc.events import Call, Denied, Event, Intervention, Tool
from vtc.guards.guard import Guard, ToolNames
from vtc.guards.patterns import Budget
from vtc.guards.reactors import Reactor

KEYS_PER_STEP = 8
"""Number of items, or of declared keys, that cost one step of the budget."""
MAX_SCHEMA_DEPTH = 16
"""Maximum depth of nested references and alternatives in a schema."""
CHAIN_NODES = {"subexpression", "projection", "value_projection", "filter_projection", "pipe"}
"""JMESPath nodes whose first child applies to the current value, and the others to the result of the first."""


class RuleKeys(NamedTuple):
    """The keys that rules name: at the top level of the arguments, and in nested values."""

    outer: Collection[str]
    inner: Collection[str]


def collect_keys(reactors: Sequence[Reactor]) -> RuleKeys:
    """Collect the keys that rules name in their conditions and changes."""
    import jmespath  # when used: `vtc.library` does not need it

    outer: set[str] = set()
    inner: set[str] = set()
    for reactor in reactors:
        then = reactor.then
        outer |= {*then.rename_arguments, *then.rename_arguments.values(), *then.set_arguments, *then.remove_arguments}
        outer |= {change.argument for change in then.replace}
        for when in (reactor.when, reactor.unless):
            for path in when.arguments if when else ():
                _collect_path_keys(jmespath.compile(path).parsed, outer, inner)
    return RuleKeys(outer, inner)


def _collect_path_keys(node: Mapping[str, Any], outer: set[str], inner: set[str]) -> None:
    """Collect the keys of a JMESPath: `outer` at the current level, `inner` below it."""
    if node["type"] == "field":
        outer.add(node["value"])
    children = node["children"]
    descends = node["type"] in CHAIN_NODES and children[0]["type"] != "current"
    for place, child in enumerate(children):
        _collect_path_keys(child, inner if descends and place else outer, inner)


def _find_rules(reactors: Sequence[Reactor], name: str, names: ToolNames) -> list[Reactor]:
    """Find the rules that a call of this tool must not evade."""
    return [reactor for reactor in reactors if reactor.then.is_enforcing and names.match(reactor.when.tools, name)]


class Keys(Guard):
    """Denies calls with ambiguous keys, of the tools to which rules on arguments apply."""

    def __init__(
        self,
        reactors: Sequence[Reactor],
        tools: Mapping[str, Tool],
        names: ToolNames,
        *,
        checks_all: bool,
        budget: Budget | None = None,
    ) -> None:
        # The predicate must not reference `self`: the cycle would keep the tools alive until garbage collection.
        super().__init__(
            refuses=lambda name: checks_all or bool(_find_rules(reactors, name, names)), on_failure="refuse"
        )
        self._reactors = reactors
        self._tools = tools
        self._names = names
        self._budget = budget or Budget()

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call) or not self.may_refuse(name := event.call.name):
            return [event]
        try:
            arguments = json_text.parse_twice(event.call.arguments)
        except ValueError:
            return [event]  # because the guards that check the arguments report it
        schema = self._tools[name].parameters if name in self._tools else {}
        rules = _find_rules(self._reactors, name, self._names)
        key = next(self._find_ambiguous_keys(arguments, [schema], schema, collect_keys(rules)), None)
        if key is None:
            return [event]
        reason = "a key of its arguments is another only in upper and lower case"
        message = f"The call of `{name}` was not carried out: {reason} (write `{key}`)."
        refusal = Intervention("unread_calls", "refused", name, f"{reason} than `{key}`")
        return [refusal, Denied(event.raw, event.call, "steer", message)]

    def _find_ambiguous_keys(
        self, value: Any, schemas: Sequence[Any], root: Mapping[str, Any], names: RuleKeys
    ) -> Iterator[str]:
        """Find the known keys that another key of the call can be mistaken for."""
        if not isinstance(value, dict | list):
            return
        parts = [part for schema in schemas for part in self._iterate_subschemas(schema, root)]
        if isinstance(value, list):
            entries = [part["items"] for part in parts if "items" in part]
            self._budget.spend(len(value) // KEYS_PER_STEP)
            for item in value:
                if item and isinstance(item, dict | list):
                    self._budget.spend()
                    yield from self._find_ambiguous_keys(item, entries, root, names)
            return
        # Step 1: Collect the keys that the schemas declare at this place.
        declared: dict[str, list[Any]] = {}
        for part in parts:
            if isinstance(properties := part.get("properties"), Mapping):
                for key, entry in properties.items():
                    declared.setdefault(key, []).append(entry)
        self._budget.spend(len(value) + len(declared) // KEYS_PER_STEP)
        # Step 2: Compare the keys of the value with them, and with those of the rules, without regard to case.
        known = {json_text.fold_key(key): key for key in (*names.outer, *declared)}
        seen: dict[str, str] = {}
        for key, inner in value.items():
            folded = json_text.fold_key(key)
            if folded in known:
                is_duplicate = folded in seen and not {key, seen[folded]} <= declared.keys()
                if is_duplicate or not (key in declared or key in names.outer):
                    yield known[folded]
                seen[folded] = key
            yield from self._find_ambiguous_keys(inner, declared.get(key, []), root, RuleKeys(names.inner, names.inner))

    def _iterate_subschemas(self, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """Iterate over the parts of a schema that apply to one value: itself, its references and alternatives."""
        self._budget.spend()
        if not isinstance(schema, Mapping) or depth > MAX_SCHEMA_DEPTH:
            return
        yield schema
        if "$ref" in schema:
            yield from self._iterate_subschemas(json_schema.resolve_reference(root, schema["$ref"]), root, depth + 1)
        for keyword in ("allOf", "anyOf", "oneOf"):
            alternatives = schema.get(keyword)
            for part in alternatives if isinstance(alternatives, list) else ():
                yield from self._iterate_subschemas(part, root, depth + 1)
