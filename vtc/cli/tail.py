"""`vtc tail`: the exchanges of a VTC that runs, as they end, in a terminal."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import click

from vtc.cli import children, config
from vtc.cli.common import normalize_url, profile_directories
from vtc.cli.replies import load_replies
from vtc.profiles import loader
from vtc.proxy import launch
from vtc.proxy.asker import Asker
from vtc.proxy.draft_file import DraftFile
from vtc.proxy.status import format_ownership_fault, request_status

NEEDED = "needs the package textual"


@click.command(short_help="Watch exchanges in a terminal.")
@click.argument("source", metavar="[FILE|URL]", default=f"http://127.0.0.1:{launch.PORT}")
@profile_directories
def tail(source: str, directories: tuple[Path, ...]) -> None:
    """Watch the exchanges of a log as they end: how, with which calls and refusals, and what VTC did.

    FILE is one that `vtc run --log FILE` (the option `vtc_log`) writes. URL is that of a VTC which runs on this machine
    and writes one; it is [http://127.0.0.1:8088] if nothing is given.

    A call that was not read can be made a dialect of, which is put into the first folder of --profiles, or of vtc.yaml.
    """
    file = Path(source)
    if not file.exists() and re.search(r"://|:\d+/*\Z|\A\d+\Z", source):
        file = _find_log(normalize_url(source, "URL"))
    folders = directories or config.list_directories(*config.load_config(None))
    if not file.is_file():
        raise click.UsageError(f"{file}: no such file; `vtc run --log {file}` writes one")
    check_terminal(f"for programs each line of {file} is JSON (`vtc stats` counts)")
    watch_log(file, folders)


def watch_log(file: Path, folders: Sequence[Path], is_over: Callable[[], bool] = lambda: False) -> None:
    """Show a log until the user ends it, or it `is_over`."""
    from vtc.cli.terminal import LogTail, TerminalPage  # it takes a while, and is an extra

    TerminalPage(LogTail(file), lambda flow, port: _draft_dialect(flow, port, folders), is_over).run()


def check_terminal(otherwise: str) -> None:
    """End the program with an error where nothing can be shown in a terminal; `otherwise` says what can be done."""
    if find_spec("textual") is None:
        raise click.UsageError(f"this {NEEDED}: {launch.format_install_command('textual')}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"this needs a terminal; {otherwise}")


def run_with_page(command: Sequence[str], log: Path | None, folders: Sequence[Path]) -> int:
    """Run a VTC behind the page of its exchanges, end both together, and return the exit code.

    Its lines are shown at the end if it did not run until then. Without a log it writes one that is not kept.
    """
    check_terminal("leave out --ui; --log FILE writes the same")
    with ExitStack() as stack:
        if log is None:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vtc-ui-"))) / "exchanges.jsonl"
            command = [*command, "--set", f"vtc_log={log}"]
        log.touch(mode=0o600)
        lines = stack.enter_context(tempfile.TemporaryFile())
        stack.enter_context(children.exit_on_signals())
        process = children.start_vtc(command, lines)
        stack.callback(children.stop_vtc, process)
        watch_log(log, folders, lambda: process.poll() is not None)
        if process.poll() is None:
            return 0
        lines.seek(0)
        click.echo(lines.read().decode("utf-8", "replace"), nl=False, err=True)
        return process.returncode or 1


def _draft_dialect(flow: str, port: int, folders: Sequence[Path]) -> DraftFile:
    """Draft the dialect of a reply that a VTC of this machine keeps; raises ValueError."""
    try:
        profiles = loader.load([loader.builtin_directory(), *folders])
        case = load_replies(None, profiles, flow, port)[0].case
    except click.ClickException as error:
        raise ValueError(error.message) from None
    if case is None:
        raise ValueError(f"there is no reply {flow}")
    return DraftFile.of(case, folders, profiles.dialects)


def _find_log(url: str) -> Path:
    """Ask a VTC of this machine where it writes its log."""
    confdir = config.load_config(None)[1].choose_confdir(())
    status, answer = request_status(Asker(url), confdir)
    if answer.error:
        raise click.ClickException(f"nothing answers at {url} ({answer.why}): name its URL, or the file of its log")
    if status is None:
        raise click.ClickException(f"what answers at {url} is no VTC before a model server: name the file of its log")
    if not status.log:
        raise click.ClickException(
            f"VTC at {url} writes no log that you may read here: start it with `vtc run --log FILE`"
        )
    if not status.is_own:
        raise click.ClickException(
            f"VTC at {url} names {status.log} as its log, but {format_ownership_fault(confdir)}: "
            "name the file if you trust it"
        )
    return Path(status.log)
