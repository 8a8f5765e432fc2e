"""The questions of a probe (`scenarios.yaml`), each with a check of the replies to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.events import Answer, Message, Tool, ToolCall
from vtc.guards.arguments import Checker
from vtc.guards.patterns import Budget
from vtc.profiles.document import load_table

FILLER_LINES = "".join(f"Line {number} says nothing of it.\n" for number in range(1, 800))
"""Filler of the long prompt, about eight tokens per line; it replaces `{lines}`."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question to the model; `scenarios.yaml` describes the keys."""

    name: str
    asks: str
    question: str
    past: tuple[Message, ...] = ()
    """The messages after the question, for example a call and its result."""
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    calls: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    answer: Answer | None = None
    compared: bool = False
    stream: bool = False

    @property
    def label(self) -> str:
        """The name, with a suffix if the reply is streamed."""
        return f"{self.name}, streamed" if self.stream else self.name

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation of the request."""
        return (Message("user", (self.question.replace("{lines}", FILLER_LINES),)), *self.past)

    def as_stream(self) -> Scenario:
        """Return a copy that requests a stream."""
        return replace(self, stream=True)

    def find_faults(self, reply_text: str, calls: Sequence[ToolCall]) -> list[str]:
        """List the faults of a reply; empty for a good one."""
        # A question that requests text.
        if not self.calls:
            if calls:
                return [f"it called {', '.join(call.name for call in calls)}"]
            if not reply_text.strip():
                return ["the reply is empty"]
            return [f"{text!r} is missing" for text in self.contains if text not in reply_text]
        # A question that requests calls: their order, their arguments, and the values in these.
        faults = []
        names = [call.name for call in calls]
        remaining = iter(names)  # each test below consumes names, so the order counts
        if not all(name in remaining for name in self.calls):
            faults.append(f"it called {', '.join(names) or 'nothing'}")
        faults += filter(None, map(self._find_misfit, calls))
        encoded = " ".join(call.arguments for call in calls)
        values = encoded + json.dumps([_parse_arguments(call.arguments) for call in calls], ensure_ascii=False)
        return faults + [f"{text!r} is missing in the arguments" for text in self.contains if text not in values]

    def _find_misfit(self, call: ToolCall) -> str:
        """Describe why a call does not fit the schema of its tool; empty if it fits."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            return f"{call.name} is not offered"
        arguments = _parse_arguments(call.arguments)
        if not isinstance(arguments, dict):
            return f"the arguments of {call.name} are not a JSON object"
        fault = Checker(tool, Budget()).find_mismatch(arguments)
        return f"{call.name}: {fault.detail or fault.reason}" if fault.reason else ""


def _parse_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return None


class ScenarioTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `scenarios.yaml`."""

    scenarios: tuple[Scenario, ...]
    headers: dict[str, dict[str, str]]
    """The headers that agents send, by API."""


_TABLE = load_table(Path(__file__).with_suffix(".yaml"), ScenarioTable)
AGENT_HEADERS = _TABLE.headers
SCENARIOS = {scenario.name: scenario for scenario in _TABLE.scenarios}
SINGLE = SCENARIOS["single-call"]
PARALLEL = SCENARIOS["parallel-calls"]
TOOL_RESULT = SCENARIOS["tool-result-followup"]
FORCED = SCENARIOS["forced-tool-choice"]
REQUIRED = SCENARIOS["required-tool-choice"]
FORBIDDEN = SCENARIOS["no-tool-choice"]
SCHEMAS = SCENARIOS["hard-schema"]
CONSTRAINED = SCENARIOS["constrained"]
STRICT = SCENARIOS["strict-tool"]
LONG = SCENARIOS["long-prompt"]
(UNGUESSABLE_VALUE,) = CONSTRAINED.contains
"""A value that no model guesses."""


def build_echo_scenario(marker: str) -> Scenario:
    """Build a question that asks the model to repeat a marker; a server may drop it as a special token."""
    text = f"red {marker} green"
    asks = f"whether {marker} is in the reply when the model writes it"
    question = f"Repeat this line exactly, and write nothing else:\n{text}"
    return Scenario(name="special-tokens", asks=asks, question=question)
