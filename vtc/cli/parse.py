"""`vtc parse`: parse a model's reply without a proxy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec.structs import replace as replace_fields
from rich.console import Console
from rich.control import strip_control_codes
from rich.markup import escape

from vtc.apis.openai_chat.words import REASONS
from vtc.cli.common import complete_names, find_dialects, load_profiles, profile_directories, read_text
from vtc.cli.replies import GivenReply, add_reply_options, get_file_name, load_replies, parse_json_lines
from vtc.dialects.reading.context import ReasoningSyntax, ReplySyntax
from vtc.dialects.reading.reader import ModelFacts, Reader, ReaderOptions
from vtc.dialects.reading.trace import PassedOver, TracedReader, TracedStep
from vtc.events import CUT_OFF, NATIVE, Call, Event, Reasoning, Text, Tool, ToolCall, UnreadCall
from vtc.exchange.replying.stages import Limit
from vtc.json_text import decode_json
from vtc.library import read_tools
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, choose_best
from vtc.profiles.plan import Plan, ReadingPlan
from vtc.profiles.reasoning_plan import plan_reasoning
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.profiles.tool_protocol import list_dialects, list_token_dialects
from vtc.proof import CallProver, Proof
from vtc.reporting.hints import find_possible_call
from vtc.reporting.report import describe_fate, serialize_unread_call


@click.command(short_help="Parse a model's reply: message, calls, repairs, unread calls.")
@click.argument("file", type=click.File("rb"), required=False)
@add_reply_options
@profile_directories
@click.option(
    "--dialect",
    "names",
    multiple=True,
    help="The dialect of the calls; can be repeated.",
    shell_complete=complete_names("dialects"),
)
@click.option(
    "--model",
    default="",
    help="The model's name; the dialects of its profile are used.",
    shell_complete=complete_names("models"),
)
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The offered tools, as a JSON list or in a request; without it, a call of any name is accepted.",
)
@click.option(
    "--finish-reason",
    type=click.Choice(["stop", *(word for word, reason in REASONS.items() if reason in CUT_OFF)]),
    default="stop",
    show_default=True,
    help="The finish reason of a reply that states none; `length`: it was cut off.",
)
@click.option("--lines", is_flag=True, help="FILE is JSON Lines; each line has the reply in `text` or `content`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each reply.")
@click.option("--trace", is_flag=True, help="Show each step of the reader, and the calls that it skipped in code.")
@click.option("--proof", is_flag=True, help="Prove that the values of calls are characters of the reply.")
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
    proof: bool,
    lenient: bool,
) -> None:
    """Parse a model's reply from FILE (or standard input): its message, calls, repairs and unread calls.

    FILE contains the model's text, a reply as an API sends it (JSON or a stream), flows that mitmproxy saved, a HAR
    file, or cases that `vtc.save` wrote. Flows and cases use the dialects and tools of their requests, unless options
    name others.

    Without --tools, argument types are unknown, and dialects that need the name of an offered tool find no calls.
    Exits with 1 if there is an unread call.
    """
    profiles = load_profiles(directories)
    profile = choose_best(profiles.models, Facts(model=model), profiles.sources).profile or UNKNOWN_MODEL
    tools, declared = load_tools(tools_file) if tools_file else ({}, frozenset())
    known = profile if model and profile is not UNKNOWN_MODEL else None
    think = plan_reasoning(known, profiles.unknown_server, Facts(model=model), None)
    answer = (profile.answer.open, profile.answer.close)
    syntax = ReplySyntax(
        dialects=find_dialects(profiles, names) or list_dialects(profiles, profile),
        own=list_token_dialects(profile),
        thinking=think,
        markers=profile.markers,
        answer=answer,
    )
    unknown_tools = profile.unknown_tools if tools_file else "allow"
    options = ReaderOptions(lenient, unknown_tools, think=think.to, begins=think.begins(whole=True))
    setup = ReadingSetup(syntax, options, tools, declared - tools.keys(), trace=trace, proof=proof)
    chosen = Overrides(dialects=bool(names or model), tools=bool(tools_file))
    console = Console(highlight=False)
    has_unread_call = False
    if file is None and not flow:
        file = sys.stdin.buffer
    for reply, reason in _iterate_replies(file, profiles, flow, port, lines=lines):
        complete = reply.complete and REASONS.get(reason or finish_reason, "stop") not in CUT_OFF
        try:
            entries = setup.adapt_to(reply, profiles, chosen).parse(reply, complete=complete)
        except ValueError as error:
            raise click.ClickException(f"{get_file_name(file)}: {error}") from None
        has_unread_call = has_unread_call or bool(entries["refusals"])
        if as_json:
            click.echo(json.dumps(entries, ensure_ascii=False))
        else:
            _show_reply(console, entries)
    raise SystemExit(1 if has_unread_call else 0)


def _iterate_replies(
    file: Any, profiles: Profiles, flow: str, port: int, *, lines: bool
) -> Iterable[tuple[GivenReply, str]]:
    """Return the replies of a file, each with its finish reason; empty if the file states none."""
    return parse_json_lines(file) if lines else ((reply, "") for reply in load_replies(file, profiles, flow, port))


class Overrides(NamedTuple):
    """Settings that the command line chose (True); a flow or a case provides the others."""

    dialects: bool
    tools: bool


@dataclass(frozen=True, slots=True)
class ReadingSetup:
    """The settings with which replies are parsed."""

    syntax: ReplySyntax
    options: ReaderOptions
    tools: Mapping[str, Tool]
    unoffered: frozenset[str]
    trace: bool
    proof: bool

    def adapt_to(self, reply: GivenReply, profiles: Profiles, chosen: Overrides) -> ReadingSetup:
        """Return the setup for one reply: its own case provides each setting that the command line did not choose."""
        syntax, options, case = self.syntax, self.options, reply.case
        tools, unoffered = self.tools, self.unoffered
        recorded = ReaderOptions(**case.reader) if case else options
        if case and not chosen.tools:
            tools, unoffered = case.resolve_tools(), frozenset()
            options = options._replace(unknown_tools=recorded.unknown_tools)
        if case and not chosen.dialects:
            lenient = options.lenient and recorded.lenient
            syntax = case.get_syntax(case.resolve_dialects(profiles))
            options = options._replace(think=recorded.think, begins=recorded.begins, lenient=lenient)
        if reply.reasoning:
            syntax, options = replace_fields(syntax, thinking=ReasoningSyntax()), options._replace(begins="text")
        return ReadingSetup(syntax, options, tools, unoffered, trace=self.trace, proof=self.proof)

    def parse(self, reply: GivenReply, *, complete: bool) -> dict[str, Any]:
        """Parse a reply. Native tool calls and reasoning that the server separated are passed through."""
        syntax = replace_fields(self.syntax, dialects=()) if reply.calls else self.syntax
        facts, unknown_tools = ModelFacts(syntax.own), self.options.unknown_tools
        reader = (TracedReader if self.trace else Reader)(syntax.grammar, self.tools, self.options, facts)
        limit = Limit(Plan(reading=ReadingPlan(unknown_tools=unknown_tools), unoffered=self.unoffered), self.tools)
        events = reader.read_whole(reply.text, complete=complete)
        delivered = [passed for event in events for passed in limit.feed(event)]
        entries = _build_entries(delivered, self.tools, reply)
        if self.proof:
            prover = CallProver()
            calls = (event for event in delivered if isinstance(event, Call))
            for entry, call in zip(entries["calls"], calls, strict=False):  # native calls follow, and are not parsed
                entry["proof"] = _describe_proof(prover.prove(call))
        if isinstance(reader, TracedReader):
            entries["trace"] = [_describe_step(entry) for entry in reader.trace]
        return entries


def _build_entries(events: Sequence[Event], tools: Mapping[str, Tool], reply: GivenReply) -> dict[str, Any]:
    """Build the JSON entry of a reply: its message, reasoning, calls and unread calls, or else a possible call."""
    content = "".join(event.raw for event in events if isinstance(event, Text))
    calls: list[dict[str, Any]] = [
        {
            "name": event.call.name,
            "arguments": json.loads(event.call.arguments),
            "dialect": event.dialect,
            "repairs": list(event.repairs),
            **_find_missing_parameters(event, tools),
        }
        for event in events
        if isinstance(event, Call)
    ]
    calls += [
        {"name": call.name, "arguments": _parse_arguments(call), "dialect": NATIVE, "repairs": []}
        for call in reply.calls
    ]
    unread_calls = [serialize_unread_call(event) for event in events if isinstance(event, UnreadCall)]
    possible_call = None if calls or unread_calls else find_possible_call(content, tools)
    return {
        **({"reply": reply.source} if reply.source else {}),
        "content": content,
        "reasoning_content": reply.reasoning + "".join(event.raw for event in events if isinstance(event, Reasoning)),
        "calls": calls,
        "refusals": unread_calls,
        "unread": possible_call.text if possible_call else "",
    }


def _parse_arguments(call: ToolCall) -> Any:
    """Parse the arguments of a native tool call; return the string unchanged if it is not JSON."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _describe_step(entry: TracedStep | PassedOver) -> dict[str, Any]:
    """Build the JSON entry of a step of the reader, or of a call that it skipped in code."""
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


def _describe_proof(proof: Proof) -> dict[str, Any]:
    """Build the JSON entry of a call's proof."""
    return {**proof._asdict(), "holds": proof.holds, "slices": [one._asdict() for one in proof.slices]}


def _find_missing_parameters(event: Call, tools: Mapping[str, Tool]) -> dict[str, list[str]]:
    """Return the required parameters that a call lacks as `{"lacks": [...]}`; empty if it lacks none."""
    tool = tools.get(event.call.name)
    lacks = tool.schema.list_missing(json.loads(event.call.arguments)) if tool else []
    return {"lacks": lacks} if lacks else {}


def load_tools(file: Path) -> tuple[dict[str, Tool], frozenset[str]]:
    """Parse a file of tools in the form of any API, as `vtc.library.read_tools` does."""
    try:
        return read_tools(decode_json(read_text(file).encode()))
    except ValueError as error:
        raise click.BadParameter(
            f"{file}: not a list of tools as in a request: {error}", param_hint="--tools"
        ) from None


MAX_SHOWN_STEP_CHARS = 60
"""Characters of a step's text that are printed; longer text is shortened in the middle."""
_TRACE_COLUMNS = "{state:<10} {token:<20} {action:<26} {verdict:<10} {next:<10} "


def _show_trace(console: Console, trace: Sequence[Mapping[str, Any]]) -> None:
    """Print one line for each step."""
    names = ("state", "token", "action", "verdict", "next")
    _print_verbatim(console, f"{_TRACE_COLUMNS.format(**{name: name for name in names})}text")
    for entry in trace:
        text = json.dumps(entry["text"], ensure_ascii=False)
        if len(text) > MAX_SHOWN_STEP_CHARS:
            text = f"{text[: MAX_SHOWN_STEP_CHARS // 2]} … {text[-MAX_SHOWN_STEP_CHARS // 2 :]}"
        if "passed_over" in entry:
            _print_verbatim(console, f"  skipped in code, a call of {entry['passed_over']}: {text}")
            continue
        again = f"pushed back: {entry['again']} characters" if entry["again"] else ""
        _print_verbatim(console, f"{_TRACE_COLUMNS.format(**entry)}{again or text}".rstrip())


def _show_reply(console: Console, reply: dict[str, Any]) -> None:
    if "reply" in reply:
        console.print(f"[bold cyan]{escape(strip_control_codes(reply['reply']))}[/bold cyan]")
    if "trace" in reply:
        _show_trace(console, reply["trace"])
    if reply["reasoning_content"]:
        console.print("[bold]reasoning[/bold]")
        _print_verbatim(console, reply["reasoning_content"])
    console.print("[bold]message[/bold]")
    if reply["content"]:
        _print_verbatim(console, reply["content"])
    else:
        console.print("[dim](empty)[/dim]")
    for call in reply["calls"]:
        console.print(f"[bold green]call[/bold green] {escape(call['name'])} [dim]({call['dialect']})[/dim]")
        arguments = call["arguments"]
        for key, value in arguments.items() if isinstance(arguments, dict) else (("arguments", arguments),):
            _print_verbatim(console, f"  {key}: {json.dumps(value, ensure_ascii=False)}")
        for repair in call["repairs"]:
            console.print(f"  [yellow]repaired: {escape(repair)}[/yellow]")
        if proof := call.get("proof"):
            _print_verbatim(console, f"  {'proved' if proof['holds'] else 'not proved'}: {_summarize_proof(proof)}")
        for name in call.get("lacks", ()):
            console.print(f"  [yellow]lacks the required parameter {escape(name)}[/yellow]")
    for unread_call in reply["refusals"]:
        name = f" {escape(unread_call['name'])}" if unread_call["name"] else ""
        console.print(f"[bold red]{describe_fate(unread_call)}[/bold red]{name}: {escape(unread_call['reason'])}")
    if reply["unread"]:
        _print_verbatim(console, f"a possible call was not read: {reply['unread']}")


def _summarize_proof(proof: Mapping[str, Any]) -> str:
    """Summarize the slices of a proof, or its faults."""
    slices = (f"{one['parameter']} at {one['start']}-{one['end']}, {one['decoding']}" for one in proof["slices"])
    summary = "; ".join(proof["faults"] or slices) or "no values"
    return f"{summary}; wide: {', '.join(proof['wide'])}" if proof["wide"] else summary


def _print_verbatim(console: Console, text: str) -> None:
    """Print text without wrapping it, because wrapping takes seconds per megabyte and more for long lines."""
    console.out(strip_control_codes(text), highlight=False)
