"""A recorded reply and what it reads as: how a capture becomes a test.

    - name: qwen3-coder 5f0c1ab2
      text: |-
        <tool_call>…
      calls: [{read_file: {path: a.txt}}]
      dialects: [qwen3-coder, hermes, "*"]
      tools: {read_file: {properties: {path: {type: string}}}}

A file is a list of cases. One without `dialects` is read as what a model writes that no profile knows. A recorded one
says what is read today; where that is wrong, correct it by hand and the case fails until the code is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self

import msgspec
import yaml

from vtc.apis.contract import Reply
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, Event, Reasoning, Refusal, Text, Tool
from vtc.profiles.loader import Profiles
from vtc.profiles.plan import ReadingPlan, Thinking
from vtc.profiles.settings import UnknownName
from vtc.scrub import scrub, scrub_data

type ToolSet = dict[str, dict[str, Any]]
"""Tools by name, each the JSON Schema of its parameters; `type: object` is understood."""

OTHER_DIALECTS = "*"
"""Among the dialects of a case: all others that are read from every model."""


class Case(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A reply and what it reads as; `calls` are `{name: arguments}`."""

    name: str
    text: str
    calls: tuple[dict[str, dict[str, Any]], ...] = ()
    content: str = ""
    as_is: bool = False
    """The content is the text."""
    reasoning: str = ""
    repairs: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    """Part of each refusal's reason."""
    dialects: tuple[str, ...] = (OTHER_DIALECTS,)
    """Those that are read, in this order; with `[]` no text is."""
    tools: str | ToolSet = "agent"
    """Those offered, or the name of a set that the tests share."""
    finish: Literal["complete", "length"] = "complete"
    alone: bool = False
    """Other text before or after it would change what it reads as."""
    tags: tuple[tuple[str, str], ...] = ()
    """What the model thinks between."""
    markers: tuple[str, ...] = ()
    answer: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    reader: dict[str, Any] = {}

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
        """Record how a plan reads `text` today, scrubbed of secrets; with `thinking` in the place of the plan's.

        Tags and markers that do not stand in the text are left out.
        """
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
        case = cls(
            name=name,
            text=scrub(text, secrets),
            dialects=tuple(dialect.name for dialect in plan.dialects),
            tools={name: _trim_parameters(tool, secrets) for name, tool in plan.tools.items()},
            finish="complete" if complete else "length",
            alone=True,
            tags=tags,
            markers=tuple(marker for marker in plan.markers if _contains_any(text, (marker,))),
            answer=plan.answer if any(_contains_any(text, markers) for markers in plan.answer) else ((), ()),
            reader=reader,
        )
        reading = case.summarize_events(case.read_events([case.text], plan.dialects, case.resolve_tools()))
        return msgspec.structs.replace(case, **reading)

    @classmethod
    def record_reply(cls, name: str, reply: Reply, plan: ReadingPlan, secrets: Iterable[str] = ()) -> Self:
        """Record a reply as the server sent it; where that parted the reasoning off, none is looked for in the text."""
        thinking = Thinking(()) if reply.message.reasoning else None
        text, complete = reply.message.text, reply.complete
        return cls.record(name, text, plan, complete=complete, thinking=thinking, secrets=secrets)

    def shorten(self, profiles: Profiles) -> Self:
        """Return it with `*` for those dialects at the end of its list that are read from every model."""
        every = [dialect.name for dialect in profiles.rescued]
        for count in range(len(self.dialects)):
            expected, others = self.dialects[:count], self.dialects[count:]
            if [*others] == [name for name in every if name not in expected]:
                return msgspec.structs.replace(self, dialects=(*expected, OTHER_DIALECTS))
        return self

    def resolve_dialects(self, profiles: Profiles) -> tuple[Description, ...]:
        """Return the dialects in which it is read; raises ValueError if one is of no profile."""
        known = profiles.dialects
        expected = [name for name in self.dialects if name != OTHER_DIALECTS]
        if missing := [name for name in expected if name not in known]:
            raise ValueError(f"case {self.name!r}: {UnknownName('dialect', missing[0], tuple(known))}")
        others = profiles.rescued if OTHER_DIALECTS in self.dialects else ()
        return (*(known[name] for name in expected), *(one for one in others if one.name not in expected))

    def resolve_tools(self, shared: Mapping[str, Mapping[str, Tool]] | None = None) -> Mapping[str, Tool]:
        """Return the tools that are offered; raises ValueError for the name of a set that is not shared here."""
        if isinstance(self.tools, str):
            if shared is None or self.tools not in shared:
                raise ValueError(f"case {self.name!r}: there is no set of tools {self.tools!r}; write the tools out")
            return shared[self.tools]
        return {name: Tool(name, parameters={"type": "object", **entry}) for name, entry in self.tools.items()}

    def read_events(
        self, chunks: Iterable[str], dialects: Sequence[Description], tools: Mapping[str, Tool]
    ) -> list[Event]:
        """Read the reply as it arrives in `chunks`."""
        grammar = compile_grammar(tuple(dialects), self.tags, self.markers, self.answer)
        reader = Reader(grammar, tools, **self.reader)
        events = [event for chunk in chunks for event in reader.feed(chunk)]
        return [*events, *reader.finish(complete=self.finish == "complete")]

    def summarize_events(self, events: Sequence[Event]) -> dict[str, Any]:
        """Write events as the fields of a case have them."""
        calls = [event for event in events if isinstance(event, Call)]
        return {
            "calls": tuple({event.call.name: json.loads(event.call.arguments)} for event in calls),
            "content": "".join(event.raw for event in events if isinstance(event, Text)),
            "reasoning": "".join(event.raw for event in events if isinstance(event, Reasoning)),
            "repairs": tuple(repair for event in calls for repair in event.repairs),
            "refusals": tuple(event.reason for event in events if isinstance(event, Refusal)),
        }

    def list_differences(self, events: Sequence[Event]) -> list[str]:
        """List what is read otherwise than the case says, a line each."""
        reading = self.summarize_events(events)
        lines = []
        for key in ("calls", "content", "reasoning", "repairs"):
            wanted = self.text if key == "content" and self.as_is else getattr(self, key)
            if _serialize(reading[key]) != _serialize(wanted):
                lines.append(f"{key}: {_serialize(reading[key])}, not {_serialize(wanted)}")
        refusals = reading["refusals"]
        if len(refusals) != len(self.refusals) or not all(map(str.__contains__, refusals, self.refusals)):
            lines.append(f"refusals: {_serialize(refusals)}, not {_serialize(self.refusals)}")
        return lines


def _trim_parameters(tool: Tool, secrets: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of a tool as a case has them."""
    parameters = {key: part for key, part in tool.parameters.items() if (key, part) != ("type", "object")}
    return scrub_data(parameters, secrets)


def _contains_any(text: str, marks: Iterable[str]) -> bool:
    """True if one of these stands in the text, however it is written."""
    text = text.casefold()
    return any(mark.casefold() in text for mark in marks)


def parse_cases(text: str) -> list[Case]:
    """Read the cases of a file; raises ValueError."""
    try:
        return msgspec.convert(yaml.safe_load(text), list[Case])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"no list of cases: {where}{error.problem}") from None
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"no list of cases: {error}") from None
    except RecursionError:
        raise ValueError("no list of cases: it is nested too deeply") from None


def serialize_case(case: Case) -> str:
    """Write a case as an entry of such a file; its multi-line texts are written as they are, where YAML can."""
    fields = msgspec.to_builtins(case)
    return yaml.dump(
        [fields], Dumper=_CaseDumper, allow_unicode=True, default_flow_style=None, sort_keys=False, width=110
    )


class _CaseDumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_CaseDumper.add_representer(str, _represent_text)


def _serialize(value: Any) -> str:
    """JSON in which `1`, `1.0` and `true` are three things and the order of keys is none."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
