"""`vtc new-dialect`: a draft of the dialect of a reply that none reads."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vtc.cli.common import load_profiles, profile_directories
from vtc.cli.parse import load_tools
from vtc.cli.replies import GivenReply, load_replies, name_of, reply_options
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, Tool
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import BLOCK_DIALECT
from vtc.reporting import draft_dialect, find_possible_call


@click.command("new-dialect", short_help="Draft a dialect from a reply that none reads.")
@click.argument("file", type=click.File("rb"), required=False)
@reply_options
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The tools that were offered, as a JSON list or in a request; flows and cases know theirs.",
)
@click.option("--name", default="my-dialect", show_default=True, help="What the dialect is called.")
@profile_directories
def new_dialect(
    file: Any, flow: str, port: int, tools_file: Path | None, name: str, directories: tuple[Path, ...]
) -> None:
    """Print a dialect's file for the calls of a reply in FILE, in which what is not sure is marked.

    FILE holds the model's text, a reply as an API sends it (JSON or a stream), flows that mitmproxy saved, a HAR file,
    or cases that `vtc.save` wrote; without FILE, --flow is one of a running VTC. Of several replies the one that holds
    a possible call which was not read is taken.

    The draft is what reads most of the reply back. Ends with 1 if it reads no call, or if there is nothing to draft.
    """
    profiles = load_profiles(directories)
    replies = load_replies(file, profiles, flow, port)
    reply, tools = _choose_reply(replies, load_tools(tools_file)[0] if tools_file else {}, name_of(file))
    if known := _name_known_dialects(profiles, reply.text, tools):
        way = (
            f"`vtc_blocks=last` reads this reply, as {known}"
            if known == BLOCK_DIALECT
            else f"this reply is read already, as {known}"
        )
        click.echo(f"vtc: {way}: no dialect is needed", err=True)
    draft = draft_dialect(reply.text, tools, name)
    if draft is None:
        raise click.ClickException(f"the reply has none of the tools with arguments: {', '.join(tools)}")
    for line in draft.render_lines(reply.text):
        click.echo(line)
    for call in draft.calls:
        click.echo(f"vtc: it reads {call.call.name} {call.call.arguments}", err=True)
    if draft.problem:
        click.echo(f"vtc: VTC cannot express this form: {draft.problem}", err=True)
    elif not draft.calls:
        click.echo("vtc: it reads no call in this reply yet: put the holes where they belong", err=True)
    sys.exit(0 if draft.calls else 1)


def _choose_reply(
    replies: Sequence[GivenReply], tools: Mapping[str, Tool], file: str
) -> tuple[GivenReply, Mapping[str, Tool]]:
    """Choose the reply that a dialect is wanted for, with the tools that were offered."""
    several = [(reply, tools or (reply.case.resolve_tools() if reply.case else {})) for reply in replies]
    if not any(offer for _, offer in several):
        raise click.UsageError("--tools: name the tools that were offered, as a JSON list or in a request")
    if len(several) == 1:
        return several[0]
    unread = [
        (reply, offer, call.begins)
        for reply, offer in several
        if not (reply.case and reply.case.calls) and (call := find_possible_call(reply.text, offer))
    ]
    if len(unread) == 1:
        return unread[0][:2]
    named = unread or [(reply, offer, "") for reply, offer in several]
    ids = ", ".join(f"{reply.id}{f' ({begins} …)' if begins else ''}" for reply, _, begins in named)
    raise click.ClickException(f"{file}: it holds {len(named)} replies; choose one with --flow: {ids}")


def _name_known_dialects(profiles: Profiles, text: str, tools: Any) -> str:
    dialects = (*profiles.rescued, profiles.dialects[BLOCK_DIALECT])
    reader = Reader(compile_grammar(dialects, (), (), ((), ())), tools)
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")
