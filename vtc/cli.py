"""`vtc …`: what can be asked without running a proxy."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vtc import __version__
from vtc.profiles import loader
from vtc.profiles.document import ProfileError
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, best

_directories = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A directory with profiles of your own; may be given several times.",
)


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Virtual Tool Calling: any LLM client with any model's way of calling tools."""


@main.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def check(directories: tuple[Path, ...]) -> None:
    """Validate the profiles of DIRECTORIES together with the built-in ones."""
    profiles = _loaded(directories)
    click.echo(f"ok: {len(profiles.clients)} clients, {len(profiles.models)} models, {len(profiles.dialects)} dialects")


@main.command()
@_directories
@click.option("--user-agent", default="", help="The client's User-Agent header.")
@click.option("--model", default="", help="The model's name in the request.")
@click.option("--host", default="", help="The model server's host.")
@click.option("--path", default="/v1/chat/completions", show_default=True)
def explain(directories: tuple[Path, ...], user_agent: str, model: str, host: str, path: str) -> None:
    """Say which profiles a request gets, and why."""
    profiles = _loaded(directories)
    facts = Facts(user_agent=user_agent, model=model, host=host, path=path)
    for kind, candidates in (("client", profiles.clients), ("model", profiles.models)):
        choice = best(candidates, facts, profiles.sources)
        click.secho(f"{kind}: {choice.profile.name if choice.profile else 'none'}", bold=True)
        for line in choice.why:
            click.echo(f"  {line}")


def _loaded(directories: tuple[Path, ...]) -> Profiles:
    try:
        return loader.load([loader.builtin_directory(), *directories])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
