"""`vtc tail`: the exchanges of a VTC that runs, as they end, in a terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click

from vtc.cli import config
from vtc.cli.common import base_url, profile_directories
from vtc.cli.replies import given
from vtc.profiles import loader
from vtc.proxy import launch
from vtc.proxy.draft_file import DraftFile

NEEDED = "needs the package textual"


@click.command(short_help="Watch exchanges in a terminal.")
@click.argument("source", metavar="[FILE|URL]", default=f"http://127.0.0.1:{launch.PORT}")
@click.option("--port", type=click.IntRange(1, 65535), help=f"Where the VTC of FILE listens. [{launch.PORT}]")
@profile_directories
def tail(source: str, port: int | None, directories: tuple[Path, ...]) -> None:
    """Watch the exchanges of a log as they end: how, with which calls and refusals, and what VTC did.

    FILE is one that `vtc run --log FILE` (the option `vtc_log`) writes. URL is that of a VTC which runs on this machine
    and writes one; it is [http://127.0.0.1:8088] if nothing is given.

    A call that was not read can be made a dialect of, which is put into the first folder of --profiles, or of vtc.yaml.
    """
    file = Path(source)
    if not file.exists() and re.search(r"://|:\d+/*\Z|\A\d+\Z", source):
        url = base_url(source, "URL")
        file, port = _log_of(url), port or urlsplit(url).port
    folders = directories or config.directories(*config.loaded(None))
    watch(file, lambda flow: _draft(flow, port or launch.PORT, folders))


def watch(file: Path, draft: Callable[[str], DraftFile]) -> None:
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
    TerminalPage(LogTail(file), draft).run()


def _draft(flow: str, port: int, folders: Sequence[Path]) -> DraftFile:
    """Draft the dialect of a reply that a VTC of this machine keeps; raises ValueError."""
    try:
        profiles = loader.load([loader.builtin_directory(), *folders])
        case = given(None, profiles, flow, port)[0].case
    except click.ClickException as error:
        raise ValueError(error.message) from None
    if case is None:
        raise ValueError(f"there is no reply {flow}")
    return DraftFile.of(case, folders, profiles.dialects)


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
