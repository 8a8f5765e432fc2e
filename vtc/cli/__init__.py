"""`vtc …`: what can be asked without running a proxy, and the proxy itself. A command is a module and a line here."""

from __future__ import annotations

import click

from vtc import __version__
from vtc.cli.common import CommandGroup

EPILOG = """\b
Ends with
  0  all is well
  1  a check failed: profiles with mistakes, a refused call, a reply that
     changes, a file that cannot be read or in which VTC finds nothing,
     a server with which no agent will work
  2  the command was called wrongly
"""


MODULES = {
    "addon-path": "common",
    "check": "check",
    "demo": "demo",
    "doctor": "doctor",
    "env": "env",
    "explain": "explain",
    "launch": "launch",
    "new-dialect": "new_dialect",
    "parse": "parse",
    "probe": "probing.command",
    "profiles": "profiles",
    "render": "render",
    "replay": "replay",
    "run": "run",
    "schema": "schema",
    "stats": "stats",
    "tail": "tail",
}
"""The module of each command, which is loaded when the command is asked for."""


@click.group(
    cls=CommandGroup,
    modules={name: f"vtc.cli.{module}" for name, module in MODULES.items()},
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Virtual Tool Calling: translates tool calls between LLM clients and model servers."""
