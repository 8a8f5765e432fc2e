"""Keys of arguments that only some clients take for another: `{"command": "ls", "Command": "rm -rf /"}`.

Clients in Go and .NET do not tell upper from lower case in keys, and the last one wins. A rule sees the exact key. So a
key that is another only in case than one that a rule or the tool's schema names is refused, where rules are about
arguments. A key that the schema has just so is always fine, and so is one of which nothing is known (`env: {Path: …}`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jmespath

from vtc import json_schema, json_text
from vtc.events import Call, Denied, Event, Intervention, Tool
from vtc.guards.guard import Guard, ToolNames
from vtc.guards.patterns import Budget
from vtc.guards.reactors import Reactor

KEYS_PER_STEP = 8
"""Items, or declared keys, that are passed by in a step."""
MAX_SCHEMA_DEPTH = 16
"""References and alternatives of a schema that are followed, one in the other."""
CHAIN_NODES = {"subexpression", "projection", "value_projection", "filter_projection", "pipe"}
"""Parts of a path of which the first is about the arguments, and the others are about what it leads to."""


class RuleKeys(NamedTuple):
    """The keys that rules name: of the arguments themselves, and further inside."""

    outer: Collection[str]
    inner: Collection[str]


def collect_keys(reactors: Sequence[Reactor]) -> RuleKeys:
    """Collect the keys that rules name, in their conditions and in what they do."""
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


def _collect_path_keys(node: Mapping[str, Any], here: set[str], inside: set[str]) -> None:
    """Collect the keys of a path of JMESPath."""
    if node["type"] == "field":
        here.add(node["value"])
    children = node["children"]
    leads_on = node["type"] in CHAIN_NODES and children[0]["type"] != "current"
    for place, child in enumerate(children):
        _collect_path_keys(child, inside if leads_on and place else here, inside)


def _find_rules(reactors: Sequence[Reactor], name: str, names: ToolNames) -> list[Reactor]:
    """Find the rules that a call of this tool must not get round."""
    return [reactor for reactor in reactors if reactor.then.is_enforcing and names.match(reactor.when.tools, name)]


class Keys(Guard):
    """Refuses calls with keys that may be taken for others, of the tools that rules on arguments are for."""

    def __init__(
        self,
        reactors: Sequence[Reactor],
        tools: Mapping[str, Tool],
        names: ToolNames,
        *,
        checks_all: bool,
        budget: Budget | None = None,
    ) -> None:
        # What tells of it holds no guard: a circle would be kept, with the tools, until the collector comes.
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
            return [event]  # those who look at them tell so
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
        """Find the keys for which others may be taken."""
        if not isinstance(value, dict | list):
            return
        parts = [part for schema in schemas for part in self._iterate_subschemas(schema, root)]
        if isinstance(value, list):
            entries = [part["items"] for part in parts if "items" in part]
            self._budget.spend(len(value) // KEYS_PER_STEP)
            for item in value:
                yield from self._find_ambiguous_keys(item, entries, root, names)
            return
        declared: dict[str, list[Any]] = {}
        for part in parts:
            if isinstance(properties := part.get("properties"), Mapping):
                for key, entry in properties.items():
                    declared.setdefault(key, []).append(entry)
        self._budget.spend(len(value) + len(declared) // KEYS_PER_STEP)
        known = {json_text.fold_key(key): key for key in (*names.outer, *declared)}
        seen: dict[str, str] = {}
        for key, inner in value.items():
            meant = json_text.fold_key(key)
            if meant in known:
                again = meant in seen and not {key, seen[meant]} <= declared.keys()
                if again or not (key in declared or key in names.outer):
                    yield known[meant]
                seen[meant] = key
            yield from self._find_ambiguous_keys(inner, declared.get(key, []), root, RuleKeys(names.inner, names.inner))

    def _iterate_subschemas(self, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
        """Go through all that a schema says about one value: itself, what it refers to, and its alternatives."""
        self._budget.spend()
        if not isinstance(schema, Mapping) or depth > MAX_SCHEMA_DEPTH:
            return
        yield schema
        if "$ref" in schema:
            yield from self._iterate_subschemas(json_schema.resolve_reference(root, schema["$ref"]), root, depth + 1)
        for keyword in ("allOf", "anyOf", "oneOf"):
            several = schema.get(keyword)
            for part in several if isinstance(several, list) else ():
                yield from self._iterate_subschemas(part, root, depth + 1)
