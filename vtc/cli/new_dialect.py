"""`vtc new-dialect`: draft a dialect from a reply that no known dialect matches."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import click

from vtc.cli.common import json_output, load_profiles, parse_url, profile_directories, show_json
from vtc.cli.parse import load_tools
from vtc.cli.replies import GivenReply, add_reply_options, get_file_name, load_replies
from vtc.cli.templates import MAX_FILE_BYTES, RenderError, TemplateFile, load_templates, render_template
from vtc.deriving import (
    SAMPLE_TOOLS,
    Draft,
    UnknownFormError,
    derive_dialect,
    draft_dialect,
    draft_response_template,
    read_samples,
    translate_go_template,
)
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, Tool
from vtc.profiles.loader import Profiles
from vtc.profiles.tool_protocol import BLOCK_DIALECT
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import fetch_templates
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
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="A chat template to derive the dialect from, in place of a reply (Jinja, Ollama's Go, tokenizer_config.json, "
    "chat_template.json or GGUF; - for standard input).",
)
@click.option("--from", "server", default="", metavar="URL", help="Derive it from the chat template of this server.")
@click.option("--model", default="", help="With --from: the model, if the server has multiple.")
@click.option("--name", default="my-dialect", show_default=True, help="The name of the dialect.")
@profile_directories
@json_output
def new_dialect(
    file: Any,
    flow: str,
    port: int,
    tools_file: Path | None,
    template: Path | None,
    server: str,
    model: str,
    name: str,
    directories: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Draft a dialect file that parses the calls of the reply in FILE, and print it; uncertain parts are marked.

    FILE contains the model's text, a reply as an API sends it (JSON or a stream), flows that mitmproxy saved, a HAR
    file, or cases that `vtc.save` wrote. Without FILE, --flow names a reply of a running VTC. If FILE contains
    multiple replies, choose one with --flow, unless only one has a call that VTC does not read.

    With --template, the dialect is derived from the chat template of a model: replies with known calls are rendered,
    and their differences show the form of calls. The draft is checked with these replies. If the file holds a
    `response_template`, which describes replies, that is translated instead. --from requests the chat template from a
    model server (llama.cpp and others with /props, Ollama), as `vtc run` does for models without a profile.

    Exits with 1 if the draft parses no call, or if nothing can be drafted.
    """
    profiles = load_profiles(directories)
    if template or server:
        if file or flow or tools_file or (template and server):
            way = "--from" if server else "--template"
            raise click.UsageError(f"{way} needs no reply and no tools: leave out FILE, --flow and --tools")
        templates = _load_templates(template) if template else _fetch_templates(server, model)
        _derive_from_template(templates, server or str(template), name, profiles, as_json=as_json)
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


def _load_templates(path: Path) -> TemplateFile:
    """Load the templates of a file, or a chat template on standard input."""
    if path == Path("-"):
        return TemplateFile(sys.stdin.buffer.read(MAX_FILE_BYTES).decode("utf-8", "replace"))
    return load_templates(path)


def _fetch_templates(server: str, model: str) -> TemplateFile:
    """Fetch the chat template of a model from its server; exit with an error if it states none."""
    asker = Asker(parse_url(server, "--from").geturl())
    templates = fetch_templates(asker, model)
    if len(templates) > 1:
        raise click.UsageError(f"--model: {server} has multiple models: {', '.join(templates)}")
    if not templates:
        raise click.ClickException(
            f"{server} states no chat template{f' of {model}' * bool(model)} (/props, /api/show)"
        )
    return TemplateFile(next(iter(templates.values())))


def _derive_from_template(
    templates: TemplateFile, origin: str, name: str, profiles: Profiles, *, as_json: bool
) -> NoReturn:
    """Derive the dialect of a chat template, print it, and exit."""
    draft: Draft | None
    try:
        if templates.response:
            draft = draft_response_template(templates.response, name)
        elif templates.chat.strip():
            source = translate_go_template(templates.chat) or templates.chat
            draft = derive_dialect(partial(render_template, source), name)
        else:
            raise click.ClickException(f"{origin}: there is no chat template and no `response_template` in it")
    except (RenderError, UnknownFormError) as error:
        raise click.ClickException(f"{origin}: {error}") from None
    if draft is None:
        raise click.ClickException(f"{origin}: the template writes no call in a form that is known")
    tools = {tool.name: tool for tool in SAMPLE_TOOLS}
    if as_json:
        _, _, read = read_samples(profiles.rescued, draft.samples, tools)
        show_json({"dialect": draft.keys, "samples": len(draft.samples), "exact": draft.exact, "read_already": read})
        sys.exit(0 if draft.exact else 1)
    _report_known_dialect(profiles, draft.sample, tools)
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
