"""`vtc check`: whether profiles are valid."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from vtc.cli.common import json_output, loaded, show_json
from vtc.profiles import loader
from vtc.profiles.document import ProfileError


@click.command(short_help="Validate profiles.")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@json_output
def check(directories: tuple[Path, ...], as_json: bool) -> None:
    """Validate the profiles of DIRECTORIES together with the built-in ones.

    Each mistake is told with file, line, key and what would do. Ends with 1 if there are any.
    """
    if not as_json:
        click.echo(f"ok: {loaded(directories).counted()}")
        return
    try:
        found = loader.load([loader.builtin_directory(), *directories])
    except ProfileError as error:
        keys = ("file", "line", "key", "message")
        show_json({"ok": False, "problems": [{key: getattr(one, key) for key in keys} for one in error.problems]})
        sys.exit(1)
    show_json({"ok": True, **found.counts()})
