"""`vtc …`: what can be asked without running a proxy. A command is a module here and a line below."""

from __future__ import annotations

import click

from vtc import __version__
from vtc.cli.parse import parse
from vtc.cli.profiles import check, explain, profiles
from vtc.cli.render import render


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Virtual Tool Calling: any LLM client with any model's way of calling tools."""


for command in (check, explain, parse, profiles, render):
    main.add_command(command)
