"""`vtc new-dialect`: draft a dialect from a reply that no known dialect matches."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from vtc.cli.common import load_profiles, profile_directories
from vtc.cli.parse import load_tools
from vtc.cli.replies import GivenReply, add_reply_options, get_file_name, load_replies
from vtc.cli.templates import RenderError, load_templates, render_template
from vtc.deriving import (
    SAMPLE_TOOLS,
    Draft,
    UnknownFormError,
    derive_dialect,
    draft_dialect,
    draft_response_template,
)
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, Tool
from vtc.profiles.loader import Profiles
from vtc.profiles.tool_protocol import BLOCK_DIALECT
from vtc.reporting import find_possible_call


@click.command("new-dialect", short_help="Draft a dialect from a reply with unread calls.")
@click.argument("file", type=click.File("rb"), required=False)
@add_reply_options
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The offered tools, as a JSON list or in a request; not needed for flows and cases, which contain them.",
)
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A chat template to derive the dialect from, in place of a reply (Jinja, tokenizer_config.json, "
    "chat_template.json or GGUF).",
)
@click.option("--name", default="my-dialect", show_default=True, help="The name of the dialect.")
@profile_directories
def new_dialect(
    file: Any,
    flow: str,
    port: int,
    tools_file: Path | None,
    template: Path | None,
    name: str,
    directories: tuple[Path, ...],
) -> None:
    """Draft a dialect file that parses the calls of the reply in FILE, and print it; uncertain parts are marked.

    FILE contains the model's text, a reply as an API sends it (JSON or a stream), flows that mitmproxy saved, a HAR
    file, or cases that `vtc.save` wrote. Without FILE, --flow names a reply of a running VTC. If FILE contains
    multiple replies, choose one with --flow, unless only one has a call that VTC does not read.

    With --template, the dialect is derived from the chat template of a model: replies with known calls are rendered,
    and their differences show the form of calls. The draft is checked with these replies. If the file holds a
    `response_template`, which describes replies, that is translated instead.

    Exits with 1 if the draft parses no call, or if nothing can be drafted.
    """
    profiles = load_profiles(directories)
    if template:
        if file or flow or tools_file:
            raise click.UsageError("--template needs no reply and no tools: leave out FILE, --flow and --tools")
        _derive_from_template(template, name, profiles)
    replies = load_replies(file, profiles, flow, port)
    reply, tools = _choose_reply(replies, load_tools(tools_file)[0] if tools_file else {}, get_file_name(file))
    _report_known_dialect(profiles, reply.text, tools)
    draft = draft_dialect(reply.text, tools, name)
    if draft is None:
        raise click.ClickException(f"the reply contains no offered tool with arguments: {', '.join(tools)}")
    _print_draft(draft)
    for call in draft.calls:
        click.echo(f"vtc: the draft reads {call.call.name} {call.call.arguments}", err=True)
    if draft.problem:
        click.echo(f"vtc: VTC cannot express this form: {draft.problem}", err=True)
    elif not draft.calls:
        click.echo(
            "vtc: the draft reads no call in this reply yet; put the holes, for example {name}, in place of values",
            err=True,
        )
    sys.exit(0 if draft.calls else 1)


def _derive_from_template(template: Path, name: str, profiles: Profiles) -> NoReturn:
    """Derive the dialect of a chat template, print it, and exit."""
    templates = load_templates(template)
    draft: Draft | None
    try:
        if templates.response:
            draft = draft_response_template(templates.response, name)
        elif templates.chat.strip():
            draft = derive_dialect(partial(render_template, templates.chat), name)
        else:
            raise click.ClickException(f"{template}: there is no chat template and no `response_template` in it")
    except (RenderError, UnknownFormError) as error:
        raise click.ClickException(f"{template}: {error}") from None
    if draft is None:
        raise click.ClickException(f"{template}: the template writes no call in a form that is known")
    _report_known_dialect(profiles, draft.sample, {tool.name: tool for tool in SAMPLE_TOOLS})
    _print_draft(draft)
    if draft.problem:
        click.echo(f"vtc: VTC cannot express this form: {draft.problem}", err=True)
    sys.exit(0 if draft.exact else 1)


def _print_draft(draft: Draft) -> None:
    for line in draft.render_lines():
        click.echo(line)


def _report_known_dialect(profiles: Profiles, text: str, tools: Mapping[str, Tool]) -> None:
    if known := _find_known_dialect(profiles, text, tools):
        if known == BLOCK_DIALECT:
            reason = f"`vtc_blocks=last` reads this reply, as {known}"
        else:
            reason = f"this reply is read already, as {known}"
        click.echo(f"vtc: no dialect is needed: {reason}", err=True)


def _choose_reply(
    replies: Sequence[GivenReply], tools: Mapping[str, Tool], file: str
) -> tuple[GivenReply, Mapping[str, Tool]]:
    """Choose the reply to draft a dialect from; return it with the offered tools.

    `tools` overrides the tools of the replies' own cases. Exits with an error if the choice is not unique.
    """
    candidates = [(reply, tools or (reply.case.resolve_tools() if reply.case else {})) for reply in replies]
    if not any(offer for _, offer in candidates):
        raise click.UsageError("--tools: give the offered tools, as a JSON list or in a request")
    if len(candidates) == 1:
        return candidates[0]
    # Otherwise the reply is unique only if it is the only one with a possible call that VTC did not read.
    unread: list[tuple[GivenReply, Mapping[str, Tool], str]] = []
    for reply, offer in candidates:
        call = None if reply.case and reply.case.calls else find_possible_call(reply.text, offer)
        if call:
            unread.append((reply, offer, call.begins))
    if len(unread) == 1:
        reply, offer, _ = unread[0]
        return reply, offer
    choices = unread or [(reply, offer, "") for reply, offer in candidates]
    ids = ", ".join(f"{reply.id}{f' ({begins} …)' if begins else ''}" for reply, _, begins in choices)
    raise click.ClickException(f"{file}: {len(choices)} replies are possible; choose one with --flow: {ids}")


def _find_known_dialect(profiles: Profiles, text: str, tools: Any) -> str:
    """Return the name of the known dialect that parses a call in the text; empty if there is none."""
    dialects = (*profiles.rescued, profiles.dialects[BLOCK_DIALECT])
    reader = Reader(compile_grammar(dialects, (), (), ((), ())), tools)
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")
