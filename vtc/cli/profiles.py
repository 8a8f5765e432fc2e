"""`vtc check` and `vtc explain`: are profiles valid, and which one does a request get."""

from __future__ import annotations

from pathlib import Path

import click

from vtc.cli.common import loaded, profile_directories
from vtc.profiles.matching import Facts, best


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def check(directories: tuple[Path, ...]) -> None:
    """Validate the profiles of DIRECTORIES together with the built-in ones."""
    profiles = loaded(directories)
    click.echo(f"ok: {len(profiles.clients)} clients, {len(profiles.models)} models, {len(profiles.dialects)} dialects")


@click.command()
@profile_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.")
@click.option("--host", default="", help="The model server's host.")
@click.option("--path", default="/v1/chat/completions", show_default=True)
def explain(directories: tuple[Path, ...], user_agent: str, model: str, host: str, path: str) -> None:
    """Say which profiles a request gets, and why."""
    profiles = loaded(directories)
    facts = Facts(user_agent=user_agent, model=model, host=host, path=path)
    for kind, candidates in (("client", profiles.clients), ("model", profiles.models)):
        choice = best(candidates, facts, profiles.sources)
        click.secho(f"{kind}: {choice.profile.name if choice.profile else 'none'}", bold=True)
        for line in choice.why:
            click.echo(f"  {line}")
