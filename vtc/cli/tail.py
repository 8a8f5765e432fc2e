"""`vtc tail`: the exchanges of a VTC that runs, as they end, in a terminal."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from vtc.cli.common import base_url
from vtc.proxy import launch

NEEDED = "needs the package textual"


@click.command(short_help="Watch exchanges in a terminal.")
@click.argument("source", metavar="[FILE|URL]", default=f"http://127.0.0.1:{launch.PORT}")
def tail(source: str) -> None:
    """Watch the exchanges of a log as they end: how, with which calls and refusals, and what VTC did.

    FILE is one that `vtc run --log FILE` (the option `vtc_log`) writes. URL is that of a VTC which runs on this machine
    and writes one; it is [http://127.0.0.1:8088] if nothing is given.
    """
    file = Path(source)
    if not file.exists() and re.search(r"://|:\d+/*\Z|\A\d+\Z", source):
        file = _log_of(base_url(source, "URL"))
    watch(file)


def watch(file: Path) -> None:
    """Show a log until the user ends it; ends the program with an error where that cannot be."""
    try:
        from vtc.cli.terminal import LogTail, TerminalPage  # it takes a while, and is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise click.UsageError(f"this {NEEDED}: {sys.executable} -m pip install textual") from None
    if not file.is_file():
        raise click.UsageError(f"{file}: no such file; `vtc run --log {file}` writes one")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"this needs a terminal; for programs each line of {file} is JSON (`vtc stats` counts)")
    TerminalPage(LogTail(file)).run()


def _log_of(url: str) -> Path:
    """Ask a VTC of this machine where it writes its log."""
    from vtc.proxy.discovery import Asker
    from vtc.proxy.status import status_of

    status, answer = status_of(Asker(url))
    if answer.error:
        raise click.ClickException(f"nothing answers at {url} ({answer.why}): name its URL, or the file of its log")
    if status is None:
        raise click.ClickException(f"what answers at {url} is no VTC before a model server: name the file of its log")
    if not status.log:
        raise click.ClickException(
            f"VTC at {url} writes no log that you may read here: start it with `vtc run --log FILE`"
        )
    return Path(status.log)
