"""Cases: recorded replies with the calls that they should be read as, which turn a capture into a test.

    - name: qwen3-coder 5f0c1ab2
      text: |-
        <tool_call>…
      calls: [{read_file: {path: a.txt}}]
      dialects: [qwen3-coder, hermes, "*"]
      tools: {read_file: {properties: {path: {type: string}}}}

A file is a list of cases. A case without `dialects` is read like the reply of a model without a profile. A recorded
case contains the events that are read today; if they are wrong, correct them by hand, and the case fails until the code
is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec
import yaml

from vtc.apis.contract import Reply
from vtc.dialects.reading.context import ReasoningSyntax, ReplySyntax
from vtc.dialects.reading.reader import Reader, ReaderOptions
from vtc.dialects.syntax.description import Description
from vtc.events import Call, Event, Reasoning, Text, Tool, UnreadCall
from vtc.profiles.loader import Profiles
from vtc.profiles.plan import ReadingPlan, Thinking
from vtc.profiles.stack import UnknownName
from vtc.scrub import scrub_data, scrub_text

type ToolSet = dict[str, dict[str, Any]]
"""JSON Schemas of the tools' parameters, by tool name; `type: object` can be omitted."""

OTHER_DIALECTS = "*"
"""A placeholder among the dialects of a case: all other dialects that are read from every model."""


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A reply and the result of reading it; `calls` are `{name: arguments}`."""

    name: str
    text: str
    calls: tuple[dict[str, dict[str, Any]], ...] = ()
    content: str = ""
    as_is: bool = False
    """True if the content is the whole text."""
    reasoning: str = ""
    repairs: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    """A substring of each refusal's reason."""
    dialects: tuple[str, ...] = (OTHER_DIALECTS,)
    """The dialects to read, in this order; with `[]` no text is parsed."""
    tools: str | ToolSet = "agent"
    """The offered tools, or the name of a set that the tests share."""
    finish: Literal["complete", "length"] = "complete"
    alone: bool = False
    """True if text before or after the reply would change the result."""
    tags: tuple[tuple[str, str], ...] = ()
    """Openers and closers of the model's reasoning."""
    markers: tuple[str, ...] = ()
    answer: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    reader: dict[str, Any] = {}
    """Values of `ReaderOptions`."""

    @classmethod
    def record(
        cls,
        name: str,
        text: str,
        plan: ReadingPlan,
        *,
        complete: bool,
        thinking: Thinking | None = None,
        secrets: Iterable[str] = (),
    ) -> Self:
        """Record how a plan reads `text` today, scrubbed of secrets; `thinking` overrides the plan's.

        Tags and markers that the text does not contain are omitted.
        """
        # Step 1: Keep only the settings that matter for this text.
        secrets = tuple(secrets)
        think = thinking or plan.thinking
        begins = think.may_begin_inside or think.begins_inside
        tags = tuple(tag for tag in think.tags if begins or _contains_any(text, tag))
        reader: dict[str, Any] = {}
        if not plan.lenient:
            reader["lenient"] = False
        if plan.unknown_tools != "text":
            reader["unknown_tools"] = plan.unknown_tools
        if tags and think.to != "reasoning_content":
            reader["think"] = think.to
        if begins:
            reader["begins"] = "reasoning" if think.begins_inside else "text"
        # Step 2: Read the scrubbed text with them, and store the result.
        case = cls(
            name=name,
            text=scrub_text(text, secrets),
            dialects=tuple(dialect.name for dialect in plan.dialects),
            tools={name: _trim_parameters(tool, secrets) for name, tool in plan.tools.items()},
            finish="complete" if complete else "length",
            alone=True,
            tags=tags,
            markers=tuple(marker for marker in plan.markers if _contains_any(text, (marker,))),
            answer=plan.answer if any(_contains_any(text, markers) for markers in plan.answer) else ((), ()),
            reader=reader,
        )
        result = case.summarize_events(case.read_events([case.text], plan.dialects, case.resolve_tools()))
        return msgspec.structs.replace(case, **result)

    @classmethod
    def record_reply(cls, name: str, reply: Reply, plan: ReadingPlan, secrets: Iterable[str] = ()) -> Self:
        """Record a reply; if the server separated the reasoning, the text is not searched for reasoning."""
        thinking = Thinking(()) if reply.message.reasoning else None
        text, complete = reply.message.text, reply.complete
        return cls.record(name, text, plan, complete=complete, thinking=thinking, secrets=secrets)

    def shorten(self, profiles: Profiles) -> Self:
        """Replace the last dialects by `*` if they are all other dialects that are read from every model."""
        every = [dialect.name for dialect in profiles.rescued]
        for count in range(len(self.dialects)):
            expected, others = self.dialects[:count], self.dialects[count:]
            if [*others] == [name for name in every if name not in expected]:
                return msgspec.structs.replace(self, dialects=(*expected, OTHER_DIALECTS))
        return self

    def resolve_dialects(self, profiles: Profiles) -> tuple[Description, ...]:
        """Look up the dialects of the case; raise ValueError if one has no profile."""
        try:
            expected = [profiles.get_dialect(name) for name in self.dialects if name != OTHER_DIALECTS]
        except UnknownName as error:
            raise ValueError(f"case {self.name!r}: {error}") from None
        others = profiles.rescued if OTHER_DIALECTS in self.dialects else ()
        return (*expected, *(one for one in others if one.name not in self.dialects))

    def resolve_tools(self, shared: Mapping[str, Mapping[str, Tool]] | None = None) -> Mapping[str, Tool]:
        """Look up the offered tools; raise ValueError if they are the name of a set that `shared` does not contain."""
        if isinstance(self.tools, str):
            if shared is None or self.tools not in shared:
                raise ValueError(f"case {self.name!r}: unknown tool set {self.tools!r}; list the tools in the case")
            return shared[self.tools]
        return {name: Tool(name, parameters={"type": "object", **entry}) for name, entry in self.tools.items()}

    def get_syntax(self, dialects: Iterable[Description]) -> ReplySyntax:
        """Return the syntax of the reply, in these dialects."""
        thinking = ReasoningSyntax(self.tags)
        return ReplySyntax(dialects=tuple(dialects), thinking=thinking, markers=self.markers, answer=self.answer)

    def read_events(
        self, chunks: Iterable[str], dialects: Sequence[Description], tools: Mapping[str, Tool]
    ) -> list[Event]:
        """Read the reply as it arrives in `chunks`."""
        reader = Reader(self.get_syntax(dialects).grammar, tools, ReaderOptions(**self.reader))
        events = [event for chunk in chunks for event in reader.feed(chunk)]
        return [*events, *reader.finish(complete=self.finish == "complete")]

    def summarize_events(self, events: Sequence[Event]) -> dict[str, Any]:
        """Summarize events as values of the case's fields."""
        calls = [event for event in events if isinstance(event, Call)]
        return {
            "calls": tuple({event.call.name: json.loads(event.call.arguments)} for event in calls),
            "content": "".join(event.raw for event in events if isinstance(event, Text)),
            "reasoning": "".join(event.raw for event in events if isinstance(event, Reasoning)),
            "repairs": tuple(repair for event in calls for repair in event.repairs),
            "refusals": tuple(event.reason for event in events if isinstance(event, UnreadCall)),
        }

    def list_differences(self, events: Sequence[Event]) -> list[str]:
        """Describe the differences between the events and the case, one line each."""
        result = self.summarize_events(events)
        lines = []
        for key in ("calls", "content", "reasoning", "repairs"):
            wanted = self.text if key == "content" and self.as_is else getattr(self, key)
            if _serialize(result[key]) != _serialize(wanted):
                lines.append(f"{key}: {_serialize(result[key])}, not {_serialize(wanted)}")
        refusals = result["refusals"]
        if len(refusals) != len(self.refusals) or not all(map(str.__contains__, refusals, self.refusals)):
            lines.append(f"refusals: {_serialize(refusals)}, not {_serialize(self.refusals)}")
        return lines


def _trim_parameters(tool: Tool, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return a tool's parameters without `type: object`, scrubbed of secrets."""
    parameters = {key: part for key, part in tool.parameters.items() if (key, part) != ("type", "object")}
    return scrub_data(parameters, secrets)


def _contains_any(text: str, markers: Iterable[str]) -> bool:
    """Return True if the text contains one of the markers; case is ignored."""
    text = text.casefold()
    return any(marker.casefold() in text for marker in markers)


def parse_cases(text: str) -> list[Case]:
    """Parse a file of cases; raise ValueError if it is invalid."""
    try:
        return msgspec.convert(yaml.safe_load(text), list[Case])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"not a list of cases: {place}{error.problem}") from None
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"not a list of cases: {error}") from None
    except RecursionError:
        raise ValueError("not a list of cases: it is nested too deeply") from None


def serialize_case(case: Case) -> str:
    """Serialize a case as an entry of such a file, with multi-line texts as literal blocks if YAML permits it."""
    fields = msgspec.to_builtins(case)
    return yaml.dump(
        [fields], Dumper=_CaseDumper, allow_unicode=True, default_flow_style=None, sort_keys=False, width=110
    )


class _CaseDumper(yaml.SafeDumper):
    """A YAML dumper that writes multi-line texts as literal blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_CaseDumper.add_representer(str, _represent_text)


def _serialize(value: Any) -> str:
    """Serialize a value for comparison: `1`, `1.0` and `true` differ, the order of keys is ignored."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
