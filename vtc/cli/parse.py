"""`vtc parse`: what VTC reads in a reply, without a proxy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.control import strip_control_codes
from rich.markup import escape

from vtc.apis import APIS
from vtc.apis.openai_chat.words import REASONS
from vtc.cli.common import complete_names, load_profiles, profile_directories, read_text
from vtc.cli.replies import GivenReply, load_replies, name_of, of_lines, reply_options
from vtc.dialects.reading.reader import Begins, ModelFacts, Reader, ReasoningTarget, UnknownTools
from vtc.dialects.reading.trace import PassedOver, TracedReader, TracedStep
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import TagPairs, compile_grammar
from vtc.events import CUT_OFF, NATIVE, Call, Event, Reasoning, Refusal, Text, Tool, ToolCall
from vtc.exchange.replying.stages import Limit
from vtc.json_text import decode, encode
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best
from vtc.profiles.plan import Plan, ReadingPlan
from vtc.profiles.planner import own_tokens, read_dialects, thinking
from vtc.profiles.schema import ModelProfile
from vtc.profiles.settings import UNKNOWN_MODEL, UnknownName
from vtc.reporting.hints import find_possible_call
from vtc.reporting.report import describe_fate, serialize_refusal


@click.command(short_help="Read a model's reply: message, calls, repairs, refusals.")
@click.argument("file", type=click.File("rb"), required=False)
@reply_options
@profile_directories
@click.option(
    "--dialect",
    "names",
    multiple=True,
    help="A dialect to read; may be given several times.",
    shell_complete=complete_names("dialects"),
)
@click.option(
    "--model",
    default="",
    help="A model's name, for the dialects of its profile.",
    shell_complete=complete_names("models"),
)
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tools that are offered, as a JSON list or in a request; without it any name is a tool.",
)
@click.option(
    "--finish-reason",
    type=click.Choice(["stop", *(word for word, reason in REASONS.items() if reason in CUT_OFF)]),
    default="stop",
    show_default=True,
    help="`length`: the model was cut off.",
)
@click.option("--lines", is_flag=True, help="FILE is JSON Lines, with the reply under `text` or `content`.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a reply.")
@click.option("--trace", is_flag=True, help="Show each step of the reader, and calls in code that it passed over.")
@click.option("--lenient/--strict", default=True, show_default=True, help="Repair malformed calls.")
def parse(
    file: Any,
    flow: str,
    port: int,
    directories: tuple[Path, ...],
    names: tuple[str, ...],
    model: str,
    tools_file: Path | None,
    finish_reason: str,
    lines: bool,
    as_json: bool,
    trace: bool,
    lenient: bool,
) -> None:
    """Read a model's reply from FILE (or standard input): its message, calls, repairs and refusals.

    FILE holds the model's text, a reply as an API sends it (JSON or a stream), flows that mitmproxy saved, a HAR file,
    or cases that `vtc.save` wrote. Flows and cases are read with the dialects and the tools of their requests, but for
    what is given here.

    Without --tools no type of an argument is known, and what is a call only with the name of an offered tool is text.
    Ends with 1 if a call was refused.
    """
    profiles = load_profiles(directories)
    profile = best(profiles.models, Facts(model=model), profiles.sources).profile or UNKNOWN_MODEL
    tools, declared = load_tools(tools_file) if tools_file else ({}, frozenset())
    known = profile if model and profile is not UNKNOWN_MODEL else None
    think = thinking(known, profiles.unknown_server, Facts(model=model), None)
    setup = ReadingSetup(
        dialects=_dialects(profiles, names, profile),
        tags=think.tags,
        think=think.to,
        begins=think.begins(whole=True),
        markers=profile.markers,
        answer=(profile.answer.open, profile.answer.close),
        tools=tools,
        unoffered=declared - tools.keys(),
        unknown_tools=profile.unknown_tools if tools_file else "allow",
        lenient=lenient,
        own=ModelFacts(own_tokens(profile)),
        trace=trace,
    )
    chosen = Overrides(dialects=bool(names or model), tools=bool(tools_file))
    console = Console(highlight=False)
    refused = False
    if file is None and not flow:
        file = sys.stdin.buffer
    for reply, reason in _replies(file, profiles, flow, port, lines=lines):
        complete = reply.complete and REASONS.get(reason or finish_reason, "stop") not in CUT_OFF
        try:
            entries = setup.of(reply, profiles, chosen).read(reply, complete=complete)
        except ValueError as error:
            raise click.ClickException(f"{name_of(file)}: {error}") from None
        refused = refused or bool(entries["refusals"])
        if as_json:
            click.echo(json.dumps(entries, ensure_ascii=False))
        else:
            _show(console, entries)
    raise SystemExit(1 if refused else 0)


def _replies(file: Any, profiles: Profiles, flow: str, port: int, *, lines: bool) -> Iterable[tuple[GivenReply, str]]:
    """Read the replies of a file, each with the finish reason that stands beside it."""
    return of_lines(file) if lines else ((reply, "") for reply in load_replies(file, profiles, flow, port))


class Overrides(NamedTuple):
    """What was chosen on the command line; the rest is that of the flow or the case."""

    dialects: bool
    tools: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSetup:
    """How replies are read."""

    dialects: tuple[Description, ...]
    tags: TagPairs
    think: ReasoningTarget
    begins: Begins
    markers: tuple[str, ...]
    answer: tuple[tuple[str, ...], tuple[str, ...]]
    tools: Mapping[str, Tool]
    unoffered: frozenset[str]
    unknown_tools: UnknownTools
    lenient: bool
    own: ModelFacts
    trace: bool

    def of(self, reply: GivenReply, profiles: Profiles, chosen: Overrides) -> ReadingSetup:
        """Return how one reply is read: as its own case has it, where nothing else was chosen."""
        setup, case = self, reply.case
        if case and not chosen.tools:
            unknown = case.reader.get("unknown_tools", "text")
            setup = replace(setup, tools=case.resolve_tools(), unoffered=frozenset(), unknown_tools=unknown)
        if case and not chosen.dialects:
            setup = replace(
                setup,
                dialects=case.resolve_dialects(profiles),
                tags=case.tags,
                think=case.reader.get("think", "reasoning_content"),
                begins=case.reader.get("begins", "text"),
                markers=case.markers,
                answer=case.answer,
                lenient=self.lenient and case.reader.get("lenient", True),
            )
        return replace(setup, tags=(), begins="text") if reply.reasoning else setup

    def read(self, reply: GivenReply, *, complete: bool) -> dict[str, Any]:
        """Read a reply; what its server made calls itself, and parted off as reasoning, is that already."""
        grammar = compile_grammar(self.dialects if not reply.calls else (), self.tags, self.markers, self.answer)
        reader = (TracedReader if self.trace else Reader)(
            grammar,
            self.tools,
            lenient=self.lenient,
            think=self.think,
            begins=self.begins,
            unknown_tools=self.unknown_tools,
            own=self.own,
        )
        limit = Limit(Plan(reading=ReadingPlan(unknown_tools=self.unknown_tools), unoffered=self.unoffered), self.tools)
        read = [*reader.feed(reply.text), *reader.finish(complete=complete)]
        entries = _entries([passed for event in read for passed in limit.feed(event)], self.tools, reply)
        if isinstance(reader, TracedReader):
            entries["trace"] = [_describe_step(entry) for entry in reader.trace]
        return entries


def _entries(events: Sequence[Event], tools: Mapping[str, Tool], reply: GivenReply) -> dict[str, Any]:
    """List the message, the calls and the refusals of a reply."""
    content = "".join(event.raw for event in events if isinstance(event, Text))
    calls = [
        {
            "name": event.call.name,
            "arguments": json.loads(event.call.arguments),
            "dialect": event.dialect,
            "repairs": list(event.repairs),
            **_lacking(event, tools),
        }
        for event in events
        if isinstance(event, Call)
    ]
    calls += [
        {"name": call.name, "arguments": _arguments(call), "dialect": NATIVE, "repairs": []} for call in reply.calls
    ]
    refusals = [serialize_refusal(event) for event in events if isinstance(event, Refusal)]
    return {
        **({"reply": reply.source} if reply.source else {}),
        "content": content,
        "reasoning_content": reply.reasoning + "".join(event.raw for event in events if isinstance(event, Reasoning)),
        "calls": calls,
        "refusals": refusals,
        "unread": call.text if not (calls or refusals) and (call := find_possible_call(content, tools)) else "",
    }


def _arguments(call: ToolCall) -> Any:
    """Return the arguments of a call of the server's own; what is no JSON as it is."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _describe_step(entry: TracedStep | PassedOver) -> dict[str, Any]:
    """Describe a step of the reader, or a call that it passed over in code."""
    if isinstance(entry, PassedOver):
        return {"passed_over": entry.dialect, "text": entry.text}
    return {
        "state": entry.state.value,
        "token": entry.step.token,
        "action": entry.step.action.__qualname__,
        "verdict": entry.verdict.name.lower() if entry.verdict else "",
        "next": entry.next.value,
        "text": entry.text,
        "again": entry.pushed_back,
    }


def _lacking(event: Call, tools: Mapping[str, Tool]) -> dict[str, list[str]]:
    """Tell which required parameters a call lacks, if any."""
    tool = tools.get(event.call.name)
    lacks = tool.schema.list_missing(json.loads(event.call.arguments)) if tool else []
    return {"lacks": lacks} if lacks else {}


def _dialects(profiles: Profiles, names: tuple[str, ...], model: ModelProfile) -> tuple[Description, ...]:
    known = profiles.dialects
    if unknown := [name for name in names if name not in known]:
        raise click.BadParameter(str(UnknownName("dialect", unknown[0], tuple(known))), param_hint="--dialect")
    if names:
        return tuple(known[name] for name in names)
    return read_dialects(profiles, model)


_FORMS = frozenset({"type", "function", "input_schema"})
"""Keys that tell an entry of `tools` from a bare function."""


def load_tools(file: Path) -> tuple[dict[str, Tool], frozenset[str]]:
    """Read the tools in the form of any API; each leaves out entries that are not in its own.

    Also return the names of all that is declared: tools that the server runs are no functions.
    """
    try:
        value = decode(read_text(file).encode())
        entries = value["tools"] if isinstance(value, dict) else value
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("it holds no list of objects")
        tools = [_wrap_bare_function(entry) for entry in entries]
        body = encode({"model": "any", "messages": [], "input": [], "tools": tools})
        requests = [api.request(body) for api in reversed(APIS)]
        functions = {tool.name: tool for request in requests for tool in request.offer.tools}
        declared = frozenset(name for request in requests for name in request.offer.declared)
        if entries and not functions:
            raise ValueError("none of them is a function")
    except KeyError:
        raise click.BadParameter(f"{file}: this object has no key `tools`", param_hint="--tools") from None
    except ValueError as error:
        raise click.BadParameter(f"{file}: no list of tools as in a request: {error}", param_hint="--tools") from None
    return functions, declared


def _wrap_bare_function(entry: dict[str, Any]) -> dict[str, Any]:
    """Declare a bare function, or return any other entry as it is."""
    is_bare = "name" in entry and not _FORMS & entry.keys()
    return {"type": "function", "function": entry} if is_bare else entry


MOST_SHOWN = 60
"""Characters of the text of one step that are shown to a person."""
_COLUMNS = "{state:<10} {token:<20} {action:<26} {verdict:<10} {next:<10} "


def _show_trace(console: Console, trace: Sequence[Mapping[str, Any]]) -> None:
    """Print one line a step."""
    names = ("state", "token", "action", "verdict", "next")
    _print_as_it_is(console, f"{_COLUMNS.format(**{name: name for name in names})}text")
    for entry in trace:
        text = json.dumps(entry["text"], ensure_ascii=False)
        if len(text) > MOST_SHOWN:
            text = f"{text[: MOST_SHOWN // 2]} … {text[-MOST_SHOWN // 2 :]}"
        if "passed_over" in entry:
            _print_as_it_is(console, f"  passed over in code, a call of {entry['passed_over']}: {text}")
            continue
        again = f"to be read again: {entry['again']} characters" if entry["again"] else ""
        _print_as_it_is(console, f"{_COLUMNS.format(**entry)}{again or text}".rstrip())


def _show(console: Console, reply: dict[str, Any]) -> None:
    if "reply" in reply:
        console.print(f"[bold cyan]{escape(strip_control_codes(reply['reply']))}[/bold cyan]")
    if "trace" in reply:
        _show_trace(console, reply["trace"])
    if reply["reasoning_content"]:
        console.print("[bold]reasoning[/bold]")
        _print_as_it_is(console, reply["reasoning_content"])
    console.print("[bold]message[/bold]")
    if reply["content"]:
        _print_as_it_is(console, reply["content"])
    else:
        console.print("[dim](empty)[/dim]")
    for call in reply["calls"]:
        console.print(f"[bold green]call[/bold green] {escape(call['name'])} [dim]({call['dialect']})[/dim]")
        arguments = call["arguments"]
        for key, value in arguments.items() if isinstance(arguments, dict) else (("arguments", arguments),):
            _print_as_it_is(console, f"  {key}: {json.dumps(value, ensure_ascii=False)}")
        for repair in call["repairs"]:
            console.print(f"  [yellow]repaired: {escape(repair)}[/yellow]")
        for name in call.get("lacks", ()):
            console.print(f"  [yellow]lacks: {escape(name)}, which the tool requires[/yellow]")
    for refusal in reply["refusals"]:
        name = f" {escape(refusal['name'])}" if refusal["name"] else ""
        console.print(f"[bold red]{describe_fate(refusal)}[/bold red]{name}: {escape(refusal['reason'])}")
    if reply["unread"]:
        _print_as_it_is(console, f"a possible call was not read: {reply['unread']}")


def _print_as_it_is(console: Console, text: str) -> None:
    """Print text without line breaks of our own; to find places for these takes seconds a megabyte, and far more."""
    console.out(strip_control_codes(text), highlight=False)
