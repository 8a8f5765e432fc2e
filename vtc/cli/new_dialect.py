"""`vtc new-dialect`: a draft of the dialect of a reply that none reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from vtc.cli import draft
from vtc.cli.common import loaded, profile_directories
from vtc.cli.draft import Draft
from vtc.cli.parse import offered
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.grammar import compiled
from vtc.events import Call
from vtc.profiles.loader import Profiles

UNSEEN = {
    "result": "not in the reply: write how the model is used to see results",
    "prompt": "not in the reply: how the tools are shown to the model, where VTC does that",
}


@click.command("new-dialect", short_help="Draft a dialect from a reply that none reads.")
@click.argument("reply", type=click.File(encoding="utf-8"))
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="The tools that were offered, as a JSON list or in a request.",
)
@click.option("--name", default="my-dialect", show_default=True, help="What the dialect is called.")
@profile_directories
def new_dialect(reply: Any, tools_file: Path, name: str, directories: tuple[Path, ...]) -> None:
    """Print a dialect's file for the calls in REPLY, in which what is not sure is marked.

    The draft is what reads most of REPLY back. Ends with 1 if it reads no call, or if there is nothing to draft.
    """
    profiles = loaded(directories)
    text = reply.read()
    tools, _ = offered(tools_file)
    if known := _known(profiles, text, tools):
        click.echo(f"vtc: this reply is read already, as {known}: no dialect is needed", err=True)
    found = draft.best(text, tools, name)
    if found is None:
        raise click.ClickException(f"none of the tools stands in the reply with arguments: {', '.join(tools)}")
    for line in _file(found, text):
        click.echo(line)
    for call in found.calls:
        click.echo(f"vtc: it reads {call.call.name} {call.call.arguments}", err=True)
    if not found.calls:
        click.echo("vtc: it reads no call in this reply yet: put the holes where they belong", err=True)
    sys.exit(0 if found.calls else 1)


def _known(profiles: Profiles, text: str, tools: Any) -> str:
    reader = Reader(compiled(profiles.rescued, (), (), ((), ())), tools)
    events = [*reader.feed(text), *reader.finish()]
    return next((one.dialect for one in events if isinstance(one, Call)), "")


def _file(found: Draft, text: str) -> Iterator[str]:
    yield "# A draft by `vtc new-dialect` of this reply:"
    yield "#"
    yield from (f"#   {line}".rstrip() for line in text.strip().splitlines()[:20])
    yield "#"
    if found.calls:
        yield f"# It reads {len(found.calls)} call{'s' * (len(found.calls) != 1)} in it."
    else:
        yield f"# It does not read back: {found.problem or 'no call is found in it by these patterns'}."
    unsure = {**UNSEEN, **found.unsure}
    if len(found.calls) < 2:
        unsure["call"] = "the reply has one call; what stands between two is not known"
    for key, value in found.keys.items():
        if key in unsure:
            yield f"# unsure: {unsure[key]}"
        if key == "prompt":
            yield "prompt: |"
            yield from (f"  {line}".rstrip() for line in value.splitlines())
        else:
            yield f"{key}: {json.dumps(value, ensure_ascii=False)}"
