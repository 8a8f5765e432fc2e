"""The questions of a probe (`scenarios.yaml`), and the test of a reply to each."""

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
from vtc.profiles.document import table

LINES = "".join(f"Line {number} says nothing of it.\n" for number in range(1, 800))
"""Fills the long prompt, of about eight tokens each; stands for `{lines}`."""


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One question to the model; `scenarios.yaml` says what its keys are."""

    name: str
    asks: str
    question: str
    past: tuple[Message, ...] = ()
    """What was said since."""
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    calls: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    answer: Answer | None = None
    compared: bool = False
    stream: bool = False

    @property
    def label(self) -> str:
        """Return the name, and whether a stream is asked for."""
        return f"{self.name}, streamed" if self.stream else self.name

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation."""
        return (Message("user", (self.question.replace("{lines}", LINES),)), *self.past)

    def as_stream(self) -> Scenario:
        """Copy it, to be answered by a stream."""
        return replace(self, stream=True)

    def faults(self, spoken: str, calls: Sequence[ToolCall]) -> list[str]:
        """Say what is wrong with a reply; nothing for a good one."""
        if not self.calls:
            if calls:
                return [f"it called {', '.join(call.name for call in calls)}"]
            missing = [text for text in self.contains if text not in spoken]
            return [f"{text!r} is missing" for text in missing] if spoken.strip() else ["it said nothing"]
        names = [call.name for call in calls]
        wanted = iter(names)
        faults = [] if all(name in wanted for name in self.calls) else [f"it called {', '.join(names) or 'nothing'}"]
        faults += [fault for call in calls if (fault := self._misfit(call))]
        written = " ".join(call.arguments for call in calls)
        values = written + json.dumps([_plain(call.arguments) for call in calls], ensure_ascii=False)
        return faults + [f"{text!r} is missing in the arguments" for text in self.contains if text not in values]

    def _misfit(self, call: ToolCall) -> str:
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            return f"{call.name} is not offered"
        arguments = _plain(call.arguments)
        if not isinstance(arguments, dict):
            return f"the arguments of {call.name} are no JSON object"
        fault = Checker(tool, Budget()).find_mismatch(arguments)
        return f"{call.name}: {fault.detail or fault.reason}" if fault.reason else ""


def _plain(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return None


class ScenarioTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scenarios, in the order in which they are asked."""

    scenarios: tuple[Scenario, ...]
    headers: dict[str, dict[str, str]]
    """The headers of agents, by API."""


_TABLE = table(Path(__file__).with_suffix(".yaml"), ScenarioTable)
HEADERS = _TABLE.headers
SCENARIOS = {scenario.name: scenario for scenario in _TABLE.scenarios}
SINGLE = SCENARIOS["single-call"]
PARALLEL = SCENARIOS["parallel-calls"]
FOLLOWED_UP = SCENARIOS["tool-result-followup"]
FORCED = SCENARIOS["forced-tool-choice"]
REQUIRED = SCENARIOS["required-tool-choice"]
FORBIDDEN = SCENARIOS["no-tool-choice"]
SCHEMAS = SCENARIOS["hard-schema"]
CONSTRAINED = SCENARIOS["constrained"]
STRICT = SCENARIOS["strict-tool"]
LONG = SCENARIOS["long-prompt"]
(SEAL,) = CONSTRAINED.contains
"""A value that no model guesses."""


def echoing(marker: str) -> Scenario:
    """Ask to repeat a marker, which a server that drops special tokens leaves out."""
    text = f"red {marker} green"
    asks = f"whether {marker} comes back if the model is asked to write it"
    question = f"Repeat this line exactly, and write nothing else:\n{text}"
    return Scenario(name="special-tokens", asks=asks, question=question)
