"""`vtc …`: what can be asked without running a proxy, and the proxy itself. A command is a module and a line here."""

from __future__ import annotations

import click

from vtc import __version__
from vtc.cli.check import check
from vtc.cli.common import CommandGroup, addon_path
from vtc.cli.demo import demo
from vtc.cli.doctor import doctor
from vtc.cli.env import env
from vtc.cli.explain import explain
from vtc.cli.launch import launch
from vtc.cli.new_dialect import new_dialect
from vtc.cli.parse import parse
from vtc.cli.probing.command import probe
from vtc.cli.profiles import profiles
from vtc.cli.render import render
from vtc.cli.replay import replay
from vtc.cli.run import run
from vtc.cli.schema import schema
from vtc.cli.stats import stats
from vtc.cli.tail import tail

EPILOG = """\b
Ends with
  0  all is well
  1  a check failed: profiles with mistakes, a refused call, a reply that
     changes, a file that cannot be read or in which VTC finds nothing,
     a server with which no agent will work
  2  the command was called wrongly
"""


@click.group(cls=CommandGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Virtual Tool Calling: translates tool calls between LLM clients and model servers."""


COMMANDS = (
    *(
        run,
        launch,
        tail,
        env,
        probe,
        demo,
        doctor,
        parse,
        render,
        explain,
        check,
        new_dialect,
        profiles,
        schema,
        replay,
        stats,
    ),
    addon_path,
)
for command in COMMANDS:
    main.add_command(command)
