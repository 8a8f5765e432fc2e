"""What the commands share."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vtc.profiles import loader
from vtc.profiles.document import ProfileError
from vtc.profiles.loader import Profiles

profile_directories = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A directory with profiles of your own; may be given several times.",
)


def loaded(directories: tuple[Path, ...]) -> Profiles:
    """The built-in profiles and those of `directories`; ends the program with what is wrong with them."""
    try:
        return loader.load([loader.builtin_directory(), *directories])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
