"""What the commands share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from vtc.profiles import loader
from vtc.profiles.document import ProfileError
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner, Settings, UnknownName

profile_directories = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A directory with profiles of your own; may be given several times.",
)
json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Shell completion by the names of `models`, `dialects`, `clients` or `servers`."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = loader.load([loader.builtin_directory(), *context.params.get("directories", ())])
        except ProfileError:
            return []
        profiles = getattr(found, kind).values()
        return [CompletionItem(one.name, help=one.description) for one in profiles if one.name.startswith(incomplete)]

    return complete


def loaded(directories: tuple[Path, ...]) -> Profiles:
    """The built-in profiles and those of `directories`; ends the program with what is wrong with them."""
    try:
        return loader.load([loader.builtin_directory(), *directories])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def planner(directories: tuple[Path, ...], settings: Settings) -> Planner:
    """What plans exchanges as the addon would; ends the program with what is wrong."""
    try:
        return Planner(loaded(directories), settings)
    except UnknownName as error:
        raise click.BadParameter(str(error), param_hint=f"--{error.setting}") from None


def show_json(value: Any) -> None:
    """JSON for programs: readable, and characters as they are."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
