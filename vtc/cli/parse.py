"""`vtc parse`: what VTC reads in a reply, without a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.control import strip_control_codes
from rich.markup import escape

from vtc.apis import APIS
from vtc.apis.openai_chat.words import REASONS
from vtc.cli.common import completing, loaded, profile_directories, read_text
from vtc.dialects.arguments import parameter
from vtc.dialects.reading.reader import ModelFacts, Reader
from vtc.dialects.reading.trace import PassedOver, TracedReader, TracedStep
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compiled
from vtc.events import CUT_OFF, Call, Event, Reasoning, Refusal, Text, Tool
from vtc.exchange.replying.stages import Limit
from vtc.json_text import encode
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best
from vtc.profiles.plan import Plan, ReadingPlan
from vtc.profiles.planner import own_tokens, read_dialects, thinking
from vtc.profiles.schema import ModelProfile
from vtc.profiles.settings import UNKNOWN_MODEL, UnknownName
from vtc.reporting.hints import possible_call
from vtc.reporting.report import as_entry, fate


@click.command(short_help="Read a model's reply: message, calls, repairs, refusals.")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@profile_directories
@click.option(
    "--dialect",
    "names",
    multiple=True,
    help="A dialect to read; may be given several times.",
    shell_complete=completing("dialects"),
)
@click.option(
    "--model", default="", help="A model's name, for the dialects of its profile.", shell_complete=completing("models")
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

    Without --tools no type of an argument is known, and what is a call only with the name of an offered tool is text.
    Ends with 1 if a call was refused.
    """
    profiles = loaded(directories)
    profile = best(profiles.models, Facts(model=model), profiles.sources).profile or UNKNOWN_MODEL
    dialects = _dialects(profiles, names, profile)
    tools, declared = offered(tools_file) if tools_file else ({}, frozenset())
    unknown_tools = profile.unknown_tools if tools_file else "allow"
    known = profile if model and profile is not UNKNOWN_MODEL else None
    think = thinking(known, profiles.unknown_server, Facts(model=model), None)
    grammar = compiled(dialects, think.tags, profile.markers, (profile.answer.open, profile.answer.close))
    plan = Plan(reading=ReadingPlan(unknown_tools=unknown_tools), unoffered=declared - tools.keys())
    console = Console(highlight=False)
    refused = False
    for text, reason in _replies(file, finish_reason, lines):
        reader = (TracedReader if trace else Reader)(
            grammar,
            tools,
            lenient=lenient,
            think=think.to,
            begins=think.begins(whole=True),
            unknown_tools=unknown_tools,
            own=ModelFacts(own_tokens(profile)),
        )
        limit = Limit(plan, tools)
        read = [*reader.feed(text), *reader.finish(complete=REASONS.get(reason, "stop") not in CUT_OFF)]
        reply = _entries([passed for event in read for passed in limit.feed(event)], tools)
        if isinstance(reader, TracedReader):
            reply["trace"] = [_traced(entry) for entry in reader.trace]
        refused = refused or bool(reply["refusals"])
        if as_json:
            click.echo(json.dumps(reply, ensure_ascii=False))
        else:
            _show(console, reply)
    raise SystemExit(1 if refused else 0)


def _entries(events: Sequence[Event], tools: Mapping[str, Tool]) -> dict[str, Any]:
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
    refusals = [as_entry(event) for event in events if isinstance(event, Refusal)]
    return {
        "content": content,
        "reasoning_content": "".join(event.raw for event in events if isinstance(event, Reasoning)),
        "calls": calls,
        "refusals": refusals,
        "unread": call.text if not (calls or refusals) and (call := possible_call(content, tools)) else "",
    }


def _traced(entry: TracedStep | PassedOver) -> dict[str, Any]:
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
        "again": entry.again,
    }


def _lacking(event: Call, tools: Mapping[str, Tool]) -> dict[str, list[str]]:
    """Tell which required parameters a call lacks, if any."""
    tool = tools.get(event.call.name)
    lacks = parameter.missing(json.loads(event.call.arguments), tool.parameters) if tool else []
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


def offered(file: Path) -> tuple[dict[str, Tool], frozenset[str]]:
    """Read the tools in the form of any API; each leaves out entries that are not in its own.

    Also return the names of all that is declared: tools that the server runs are no functions.
    """
    try:
        value = json.loads(read_text(file))
        entries = value["tools"] if isinstance(value, dict) else value
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("it holds no list of objects")
        tools = [_declared(entry) for entry in entries]
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


def _declared(entry: dict[str, Any]) -> dict[str, Any]:
    """Declare a bare function, or return any other entry as it is."""
    is_bare = "name" in entry and not _FORMS & entry.keys()
    return {"type": "function", "function": entry} if is_bare else entry


def _replies(file: Any, reason: str, lines: bool) -> Iterator[tuple[str, str]]:
    if not lines:
        yield file.read(), reason
        return
    for number, line in enumerate(file, 1):
        try:
            entry = json.loads(line)
            text = entry["text"] if "text" in entry else entry["content"]
        except (ValueError, KeyError, TypeError):
            raise click.BadParameter(
                f"line {number}: no JSON object with `text` or `content`", param_hint="FILE"
            ) from None
        yield text, entry.get("finish_reason") or reason


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
        for key, value in call["arguments"].items():
            _print_as_it_is(console, f"  {key}: {json.dumps(value, ensure_ascii=False)}")
        for repair in call["repairs"]:
            console.print(f"  [yellow]repaired: {escape(repair)}[/yellow]")
        for name in call.get("lacks", ()):
            console.print(f"  [yellow]lacks: {escape(name)}, which the tool requires[/yellow]")
    for refusal in reply["refusals"]:
        name = f" {escape(refusal['name'])}" if refusal["name"] else ""
        console.print(f"[bold red]{fate(refusal)}[/bold red]{name}: {escape(refusal['reason'])}")
    if reply["unread"]:
        _print_as_it_is(console, f"a possible call was not read: {reply['unread']}")


def _print_as_it_is(console: Console, text: str) -> None:
    """Print text without line breaks of our own; to find places for these takes seconds a megabyte, and far more."""
    console.out(strip_control_codes(text), highlight=False)
