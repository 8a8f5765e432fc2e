"""The command line `vtc …`. Each command is one module, plus one entry of `MODULES`."""

from __future__ import annotations

import click

from vtc import __version__
from vtc.cli.common import CommandGroup

EPILOG = """\b
Exit codes:
  0  success
  1  a check failed: profiles with mistakes, a denied or unread call, a
     reply that changes, a file that VTC cannot read or that contains
     nothing to show, a server with which no agent will work
  2  wrong arguments
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
"""The module of each command below `vtc.cli`; it is imported when the command is used."""


@click.group(
    cls=CommandGroup,
    modules={name: f"vtc.cli.{module}" for name, module in MODULES.items()},
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__)
def main() -> None:
    """Virtual Tool Calling: translate tool calls between LLM clients and model servers."""
