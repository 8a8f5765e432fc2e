"""`vtc schema`: what a profile may hold, as JSON Schema, for editors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from vtc.profiles import loader, reference


@click.command(short_help="Print the JSON Schema of profiles, for editors.")
@click.argument("kind", type=click.Choice([*loader.KINDS, "profile"]), default="profile")
@click.option(
    "--write",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write all schemas to this directory instead: client.json, dialect.json and so on.",
)
@click.option("--markdown", is_flag=True, help="All keys as Markdown tables, for people.")
def schema(kind: str, directory: Path | None, markdown: bool) -> None:
    """Print the JSON Schema of one kind of profile, or of files that may hold any kind (`profile`, the default).

    An editor that knows the YAML language server checks and completes a file that begins with
    `# yaml-language-server: $schema=schema/profile.json`, a path from the file to the schema.
    """
    if markdown:
        click.echo(reference.markdown(), nl=False)
        return
    if directory is None:
        click.echo(text(kind), nl=False)
        return
    directory.mkdir(parents=True, exist_ok=True)
    for one in (*loader.KINDS, "profile"):
        (directory / f"{one}.json").write_text(text(one), "utf-8")
    click.echo(f"{len(loader.KINDS) + 1} schemas written to {directory}")


def text(kind: str) -> str:
    """The file's text."""
    return json.dumps(reference.schema(kind), indent=2, ensure_ascii=False) + "\n"
