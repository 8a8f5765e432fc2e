"""`vtc check`: validate profiles."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from vtc.cli.common import complete_names, find_dialects, json_output, show_json
from vtc.cli.templates import CaseResult, RenderError, check_file
from vtc.dialects import Description
from vtc.dialects.writing.read_back import find_flaws
from vtc.profiles import loader
from vtc.profiles.document import Problem, ProfileError, read_documents
from vtc.scrub import escape_invisible


@click.command(short_help="Validate profiles.")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--template",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check that --dialect reads the calls that this chat template writes (Jinja, tokenizer_config.json, "
    "chat_template.json or GGUF).",
)
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    help="The dialect to check with --template; can be repeated.",
    shell_complete=complete_names("dialects"),
)
@json_output
def check(paths: tuple[Path, ...], template: Path | None, dialects: tuple[str, ...], as_json: bool) -> None:
    """Validate the profiles in PATHS, files or directories, together with the built-in ones.

    In each of your dialects, a test call is rendered and parsed again. It is a mistake if the call cannot be parsed,
    and a warning if a JSON object must replace its parameters. Each is reported with file, line, key and a correction.
    With --template and --dialect, known calls are rendered by a model's chat template and read in this dialect. Each
    case is exact, or the difference is shown. A template that writes no call for a case is no mistake.

    Exits with 1 if there is a mistake, if a path contains no profile, or if a case is not exact.
    """
    if bool(template) != bool(dialects):
        raise click.UsageError("give --template and --dialect together")
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
    if template:
        _check_template(template, find_dialects(profiles, dialects), as_json)
        return
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


def _check_template(template: Path, dialects: Sequence[Description], as_json: bool) -> None:
    """Check dialects with a chat template, and show the result of each case."""
    try:
        results = check_file(template, dialects)
    except RenderError as error:
        raise click.ClickException(f"{template}: {error}") from None
    counts = Counter(result.outcome for result in results)
    is_ok = counts["exact"] > 0 and not counts["text"] and not counts["different"]
    if as_json:
        show_json({"ok": is_ok, "cases": [asdict(result) for result in results]})
    else:
        for result in results:
            for line in _format_result(result):
                click.echo(escape_invisible(line))
        click.echo(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    sys.exit(0 if is_ok else 1)


def _format_result(result: CaseResult) -> Iterator[str]:
    reason = f": {result.reason}" if result.reason else ""
    yield f"{result.outcome}  {result.name}{reason}"
    if result.outcome in ("text", "different"):
        yield f"    reply: {json.dumps(result.text, ensure_ascii=False)}"
        yield from (f"    - {call}" for call in result.expected if call not in result.found)
        yield from (f"    + {call}" for call in result.found if call not in result.expected)


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
