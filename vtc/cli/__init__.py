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

SECTIONS = {
    "Start": {"launch": "launch", "run": "run", "env": "env", "addon-path": "common", "demo": "demo"},
    "Look": {
        "probe": "probing.command",
        "doctor": "doctor",
        "tail": "tail",
        "stats": "stats",
        "explain": "explain",
        "render": "render",
        "parse": "parse",
        "replay": "replay",
        "profiles": "profiles",
    },
    "Write profiles": {"new-dialect": "new_dialect", "check": "check", "schema": "schema"},
}
"""The module of each command below `vtc.cli`, by the heading in the help; it is imported when the command is used."""
MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}


@click.group(
    cls=CommandGroup,
    modules={name: f"vtc.cli.{module}" for name, module in MODULES.items()},
    sections=SECTIONS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version")
def main() -> None:
    """Virtual Tool Calling: translate tool calls between LLM clients and model servers."""
