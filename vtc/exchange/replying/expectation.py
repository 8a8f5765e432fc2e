"""Facts that the encoded request determines about its reply: names of tools, and the grammar to decode by.

VTC verifies that a reply conforms to the grammar, because a server may accept the field and ignore it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from vtc.apis.bridge import WireNames
from vtc.events import Failure, Tool, ToolCall


class GrammarCheck(msgspec.Struct, frozen=True):
    """Finds calls that violate the grammar that the server received."""

    constrained: bool = False
    """True if the request contained a grammar."""
    strict: Mapping[str, Tool] = {}
    """Tools that were declared as strict, by the client's names, with the schemas that were sent."""

    def find_violations(self, calls: Iterable[ToolCall]) -> Iterator[tuple[str, str]]:
        """Yield calls of strict tools that violate their schemas: the tool and the reason of each."""
        for call in calls:
            if (tool := self.strict.get(call.name)) and (reason := _explain_violation(call, tool)):
                yield call.name, f"the tool is strict, but the server did not decode by a grammar: {reason}"


def _explain_violation(call: ToolCall, tool: Tool) -> str:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return "the arguments are no JSON"
    if not isinstance(arguments, dict):
        return "the arguments are no object"
    declared = tool.schema.properties
    if missing := tool.schema.list_missing(arguments):
        return f"`{missing[0]}` is missing"
    for key, value in arguments.items():
        if key not in declared:
            return f"`{key}` is no parameter of it"
        options = declared[key].get("enum")
        if isinstance(options, list) and options and value not in options:
            return f"`{key}` is none of {json.dumps(options, ensure_ascii=False)[:200]}"
    return ""


NO_GRAMMAR = GrammarCheck()


class Expectation(msgspec.Struct, frozen=True):
    """Facts about a reply that are known once its request is encoded."""

    names: WireNames | None = None
    """Mapping to the server's names of tools, if any differ."""
    grammar: GrammarCheck = NO_GRAMMAR
    on_count: Callable[[int], None] | None = None
    """Receives the server's count of the prompt's tokens."""
    on_error: Callable[[bytes], Failure | None] = lambda _: None
    """Receives an error inside the server's reply; returns its replacement for the client, if any."""


NO_EXPECTATION = Expectation()
