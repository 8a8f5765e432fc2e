"""`vtc check`, `vtc explain`, `vtc profiles`: what there is, whether it is valid, and what a request gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from vtc import apis
from vtc.apis import BadRequest
from vtc.cli.common import loaded, profile_directories
from vtc.cli.dry_run import call_of, lines, tried
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best, every
from vtc.profiles.plan import Planner, Settings


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def check(directories: tuple[Path, ...]) -> None:
    """Validate the profiles of DIRECTORIES together with the built-in ones."""
    click.echo(f"ok: {loaded(directories).counted()}")


@click.command()
@profile_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.")
@click.option("--host", default="", help="The model server's host, with or without its port.")
@click.option("--path", default="/v1/chat/completions", show_default=True)
@click.option("--request", type=click.File("rb"), help="A request's body (JSON): says what is planned for it, too.")
@click.option("--call", "written", default="", help="A call (JSON): says what the policies would do to it, too.")
def explain(
    directories: tuple[Path, ...], user_agent: str, model: str, host: str, path: str, request: Any, written: str
) -> None:
    """Say which profiles a request gets, what is planned for it, and why.

    With --call nothing is carried out. What it is checked against are the tools of --request.
    """
    call = call_of(written) if written else None
    found = loaded(directories)
    name, _, port = host.partition(":")
    facts = Facts(user_agent=user_agent, model=model, host=name, port=int(port or 0), path=path)
    plan = None
    if request is not None:
        api = apis.find("POST", path)
        if api is None:
            raise click.BadParameter(f"{path}: no API that VTC knows", param_hint="--path")
        try:
            asked = api.request(request.read())
        except BadRequest as error:
            raise click.ClickException(str(error)) from None
        facts = replace(facts, model=asked.model, body=asked.fields)
        plan = Planner(found, Settings()).plan(facts, asked)
    for policy, told in every(found.policies, facts):
        click.secho(f"policy: {policy.name}", bold=True)
        click.echo(f"  {told}")
    for kind, candidates in (("client", found.clients), ("model", found.models), ("server", found.servers)):
        choice = best(candidates, facts, found.sources)
        click.secho(f"{kind}: {choice.profile.name if choice.profile else 'none'}", bold=True)
        for line in choice.why:
            click.echo(f"  {line}")
    if plan:
        click.secho("plan", bold=True)
        for line in plan.why:
            click.echo(f"  {line}")
    if call:
        if plan is None:
            plan = Planner(found, Settings()).plan(facts, apis.APIS[0].request(b'{"messages": []}'))
        click.secho("call", bold=True)
        for line in lines(tried(plan.guards, call, plan.tools)):
            click.echo(f"  {line}")


@click.command()
@profile_directories
@click.option("--markdown", is_flag=True, help="Models and dialects as Markdown tables.")
def profiles(directories: tuple[Path, ...], markdown: bool) -> None:
    """List all profiles with what they match."""
    found = loaded(directories)
    if markdown:
        click.echo(_markdown(found))
        return
    console = Console()
    for kind in ("clients", "models", "servers", "policies"):
        table = Table("name", "matches", "reads", title=kind, title_justify="left", expand=True)
        for profile in getattr(found, kind).values():
            accept = getattr(profile, "accept", ())
            table.add_row(profile.name, _tests(profile.match), accept if isinstance(accept, str) else ", ".join(accept))
        console.print(table)
    table = Table("name", "description", title="dialects", title_justify="left", expand=True)
    for dialect in found.dialects.values():
        table.add_row(dialect.name, dialect.description)
    console.print(table)


def _markdown(found: Profiles) -> str:
    lines = ["| model | names that match | dialects read |", "|---|---|---|"]
    for model in found.models.values():
        globs = (model.match.model,) if isinstance(model.match.model, str) else model.match.model
        accept = "every framed one" if model.accept == "auto" else ", ".join(model.accept)
        names = ", ".join(f"`{glob}`" for glob in globs)
        lines.append(f"| {model.description or model.name} | {names} | {accept} |")
    lines += ["", "| dialect | |", "|---|---|"]
    lines += [f"| `{dialect.name}` | {escaped(dialect.description)} |" for dialect in found.dialects.values()]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _tests(match: Any) -> str:
    tests = {key: getattr(match, key) for key in ("user_agent", "model", "host", "path", "header", "body")}
    return "; ".join(
        f"{key}: {globs if isinstance(globs, str) else ', '.join(globs)}" for key, globs in tests.items() if globs
    )
