"""`vtc tail` and `vtc run --ui`: a page in the terminal that lists exchanges as they end."""

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
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.status import format_ownership_fault, request_status
from vtc.proxy.showing.draft_file import DraftFile


@click.command(short_help="Watch exchanges in a terminal.")
@click.argument("source", metavar="[FILE|URL]", default=f"http://127.0.0.1:{launch.PORT}")
@profile_directories
def tail(source: str, directories: tuple[Path, ...]) -> None:
    """Watch the exchanges of a log as they end, each with its outcome, its calls and the actions of VTC.

    FILE is the log that `vtc run --log FILE` (the option `vtc_log`) writes. URL is a VTC on this machine that writes a
    log. [http://127.0.0.1:8088]

    From a call that was not read, you can draft a dialect and write it to the first folder of --profiles, or of
    `profiles` in vtc.yaml.
    """
    file = Path(source)
    if not file.exists() and re.search(r"://|:\d+/*\Z|\A\d+\Z", source):
        file = _find_log(normalize_url(source, "URL"))
    folders = directories or config.list_directories(*config.load_config(None))
    if not file.is_file():
        raise click.UsageError(f"{file}: no such file; `vtc run --log {file}` creates it")
    check_terminal(f"programs can parse {file}, one JSON object per line (`vtc stats` counts them)")
    watch_log(file, folders)


def watch_log(file: Path, folders: Sequence[Path], is_over: Callable[[], bool] = lambda: False) -> None:
    """Show a log until the user quits, or `is_over` returns True."""
    # Imported here because Textual is an extra, and takes long to load.
    from vtc.cli.terminal import LogTail, TerminalPage

    TerminalPage(LogTail(file), lambda flow, port: _draft_dialect(flow, port, folders), is_over).run()


def check_terminal(otherwise: str) -> None:
    """Raise `UsageError` if no page can be shown in a terminal; the error ends with the advice `otherwise`."""
    if find_spec("textual") is None:
        raise click.UsageError(f"this needs the package textual: {launch.format_install_command('textual')}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"this needs a terminal; {otherwise}")


def run_with_page(command: Sequence[str], log: Path | None, folders: Sequence[Path]) -> int:
    """Run a VTC together with the page of its exchanges; return the exit code.

    VTC is stopped when the user quits the page, and the page quits when VTC ends. In that case VTC's output is printed.
    Without `log`, VTC writes a temporary one.
    """
    check_terminal("leave out --ui; --log FILE writes the same to a file")
    with ExitStack() as stack:
        if log is None:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vtc-ui-"))) / "exchanges.jsonl"
            command = [*command, "--set", f"vtc_log={log}"]
        log.touch(mode=0o600)
        output = stack.enter_context(tempfile.TemporaryFile())
        stack.enter_context(children.exit_on_signals())
        process = children.start_vtc(command, output)
        stack.callback(children.stop_vtc, process)
        watch_log(log, folders, lambda: process.poll() is not None)
        if process.poll() is None:
            return 0
        output.seek(0)
        click.echo(output.read().decode("utf-8", "replace"), nl=False, err=True)
        return process.returncode or 1


def _draft_dialect(flow: str, port: int, folders: Sequence[Path]) -> DraftFile:
    """Draft a dialect from a reply that a VTC on this machine retains; raise ValueError with a reason on failure."""
    try:
        profiles = loader.load_profiles([loader.builtin_directory(), *folders])
        case = load_replies(None, profiles, flow, port)[0].case
    except click.ClickException as error:
        raise ValueError(error.message) from None
    if case is None:
        raise ValueError(f"VTC has no reply {flow}")
    return DraftFile.of(case, folders, profiles.dialects)


def _find_log(url: str) -> Path:
    """Request the path of its log from a VTC on this machine."""
    confdir = config.load_config(None)[1].choose_confdir(())
    status, answer = request_status(Asker(url), confdir)
    if answer.error:
        raise click.ClickException(
            f"nothing answers at {url} ({answer.why}); name the URL of VTC, or the file of its log"
        )
    if status is None:
        raise click.ClickException(f"no VTC in front of a model server answers at {url}; name the file of its log")
    if not status.log:
        raise click.ClickException(
            f"VTC at {url} has no log that you can read here; start it with `vtc run --log FILE`"
        )
    if not status.is_own:
        raise click.ClickException(
            f"VTC at {url} names {status.log} as its log, but {format_ownership_fault(confdir)}; "
            "name the file if you trust it"
        )
    return Path(status.log)
