"""`vtc check`: whether profiles are valid."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from vtc.cli.common import json_output, show_json
from vtc.profiles import loader
from vtc.profiles.document import ProfileError


@click.command(short_help="Validate profiles.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@json_output
def check(paths: tuple[Path, ...], as_json: bool) -> None:
    """Validate the profiles in PATHS, files or directories, together with the built-in ones.

    Each mistake is told with file, line, key and what would do. Ends with 1 if there are any, or no profile at all.
    """
    try:
        found = loader.load([loader.builtin_directory(), *paths])
    except ProfileError as error:
        if as_json:
            keys = ("file", "line", "key", "message")
            show_json({"ok": False, "problems": [{key: getattr(one, key) for key in keys} for one in error.problems]})
        else:
            click.echo(str(error), err=True)
        sys.exit(1)
    for path in paths:
        if not any(path == one.path or path in one.path.parents for one in found.sources.values()):
            raise click.ClickException(f"{path}: no profile in it (files that end in .yaml or .yml)")
    if as_json:
        show_json({"ok": True, **found.counts()})
        return
    yours = Counter(kind for (kind, _), source in found.sources.items() if not source.builtin)
    of_yours = ", ".join(f"{count} {loader.plural(kind, count)}" for kind, count in sorted(yours.items()))
    click.echo(f"ok: yours: {of_yours}; all: {found.counted()}" if yours else f"ok: {found.counted()}")
