"""`vtc check`: validate profiles."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from vtc.cli.common import json_output, show_json
from vtc.dialects.writing.read_back import find_flaws
from vtc.profiles import loader
from vtc.profiles.document import Problem, ProfileError, read_documents


@click.command(short_help="Validate profiles.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@json_output
def check(paths: tuple[Path, ...], as_json: bool) -> None:
    """Validate the profiles in PATHS, files or directories, together with the built-in ones.

    In each of your dialects, a test call is rendered and parsed again. It is a mistake if the call cannot be parsed,
    and a warning if a JSON object must replace its parameters. Each is reported with file, line, key and a correction.
    Exits with 1 if there is a mistake, or if a path contains no profile.
    """
    try:
        profiles = loader.load_profiles([loader.builtin_directory(), *paths])
        warnings = _check_dialects(profiles)
    except ProfileError as error:
        if as_json:
            show_json({"ok": False, "problems": [*map(_build_entry, error.problems)]})
        else:
            click.echo(str(error), err=True)
        sys.exit(1)
    for path in paths:
        if not any(path == source.path or path in source.path.parents for source in profiles.sources.values()):
            raise click.ClickException(f"{path}: no profile in it (files that end in .yaml or .yml)")
    if as_json:
        show_json(
            {"ok": True, **profiles.counts(), **({"warnings": [*map(_build_entry, warnings)]} if warnings else {})}
        )
        return
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    yours = Counter(kind for (kind, _), source in profiles.sources.items() if not source.builtin)
    of_yours = ", ".join(f"{count} {loader.plural(kind, count)}" for kind, count in sorted(yours.items()))
    click.echo(
        f"ok: yours: {of_yours}; all: {profiles.format_counts()}" if yours else f"ok: {profiles.format_counts()}"
    )


def _check_dialects(profiles: loader.Profiles) -> list[Problem]:
    """Render and parse a test call in each of the user's dialects; return the warnings.

    Raises `ProfileError` if a dialect cannot parse its own call.
    """
    mistakes: list[Problem] = []
    warnings: list[Problem] = []
    for (kind, name), source in profiles.sources.items():
        if kind != "dialect" or source.builtin:
            continue
        document = next(
            document for document in read_documents(source.path)[0] if document.lines.get(("name",)) == source.line
        )
        for flaw in find_flaws(profiles.dialects[name]):
            problem = document.problem((flaw.key,), flaw.message)
            if flaw.is_fatal:
                mistakes.append(problem)
            else:
                warnings.append(problem)
    if mistakes:
        raise ProfileError(mistakes)
    return sorted(warnings)


def _build_entry(problem: Problem) -> dict[str, str | int]:
    return {"file": problem.file, "line": problem.line, "key": problem.key, "message": problem.message}
