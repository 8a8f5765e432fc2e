"""`vtc render`: show the prompt that a model would receive for messages and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from vtc import apis
from vtc.apis import RequestError
from vtc.cli.common import build_planner, profile_directories
from vtc.cli.flags import add_flags
from vtc.dialects.constrain.constraint import Inexpressible
from vtc.exchange import Session
from vtc.json_text import encode_json
from vtc.profiles.matching import Facts
from vtc.profiles.plan import Plan
from vtc.profiles.reply_constraint import make_constraint
from vtc.reporting import transcript


@click.command(short_help="Print the prompt that the model receives for a request.")
@click.argument("file", type=click.File("rb"), default="-")
@profile_directories
@add_flags("render")
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option(
    "--path",
    default="/v1/chat/completions",
    show_default=True,
    help="The path of the request, which determines its API.",
)
@click.option(
    "--constrain",
    type=click.Choice(["gbnf", "structural_tag", "json_schema"]),
    help="Print the grammar of the reply in this form instead of the prompt.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the request's body as it would be sent.")
def render(
    file: Any,
    directories: tuple[Path, ...],
    tools: str | None,
    dialect: str | None,
    user_agent: str,
    path: str,
    constrain: Any,
    as_json: bool,
) -> None:
    """Print the prompt that the model receives for the request in FILE (or standard input).

    The tools are in the prompt unless `--tools native` says otherwise.
    """
    api = apis.match_request("POST", path)
    if api is None:
        raise click.BadParameter(f"{path}: not a path of an API that VTC supports", param_hint="--path")
    plans = build_planner(directories, tools=tools or "prompt", dialect=dialect)
    try:
        exchange = Session.open(api, file.read(), Facts(user_agent=user_agent, path=path), plans, "render")
        body = json.loads(exchange.encode_request())
    except RequestError as error:
        raise click.ClickException(str(error)) from None
    if constrain:
        _show_grammar(exchange.plan, constrain)
        return
    if as_json:
        click.echo(json.dumps(body, ensure_ascii=False, indent=2))
        return
    for line in exchange.plan.why:
        click.secho(f"# {line}", dim=True)
    for message in api.request(encode_json(body)).messages:
        click.secho(f"\n[{message.role}]", bold=True)
        for part in message.content:
            click.echo(part if isinstance(part, str) else json.dumps(part.part, ensure_ascii=False))
        for call in message.calls:
            click.echo(transcript.render_call(call))
    for key in ("tools", "tool_choice"):
        if key in body:
            click.secho(f"\n{key}:", bold=True)
            click.echo(json.dumps(body[key], ensure_ascii=False, indent=2))


def _show_grammar(plan: Plan, form: Any) -> None:
    """Print the grammar of a reply to a prompt with tools, in the form that a server accepts."""
    protocol = plan.protocol
    if not (protocol.write and protocol.prompt_tools and plan.offered):
        raise click.ClickException("no grammar: the prompt contains no tools")
    constraint = make_constraint(form, protocol.write, plan)
    try:
        text = constraint.render()
    except Inexpressible as error:
        raise click.ClickException(f"no grammar: {error}") from None
    click.echo(text.rstrip() if isinstance(text, str) else json.dumps(text, ensure_ascii=False, indent=2))
