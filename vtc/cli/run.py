"""`vtc run`: mitmdump or mitmweb with the addon."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from vtc.cli.common import completing, profile_directories
from vtc.proxy import launch


@click.command(short_help="Run the proxy with VTC.")
@click.argument("upstream", default="")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@click.option("--web", is_flag=True, help="In mitmweb, to look at what happens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Where clients connect.")
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0 for clients on other machines.")
@profile_directories
@click.option("--tools", type=click.Choice(["auto", "native", "prompt"]), help="How tools reach the model.")
@click.option("--dialect", help="In which the model is prompted.", shell_complete=completing("dialects"))
@click.option("--observe", is_flag=True, help="Change nothing, and tell what would have been done.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Add a line of JSON for each exchange.")
@click.option("--dry-run", is_flag=True, help="Print the command instead.")
def run(upstream: str, more: tuple[str, ...], web: bool, port: int, host: str, dry_run: bool, **settings: Any) -> None:
    """Run VTC before the model server UPSTREAM, or without one as an ordinary proxy.

    UPSTREAM is a URL such as http://127.0.0.1:8000; the client's base URL is then http://127.0.0.1:8080/v1.
    What stands after `--` goes to mitmproxy: `vtc run http://127.0.0.1:8000 -- --set vtc_lenient=off`.
    """
    if upstream.startswith("-"):  # `vtc run -- …`
        upstream, more = "", (upstream, *more)
    program: Any = "mitmweb" if web else "mitmdump"
    command = launch.command(program, _server(upstream), host, port, [*_options(**settings), *more])
    if dry_run:
        click.echo(shlex.join(command))
    elif os.name == "nt":  # there, a program that is replaced returns to the shell at once
        sys.exit(subprocess.call(command))
    else:
        os.execv(command[0], command)


def _server(upstream: str) -> str:
    """The model server as mitmproxy wants it: scheme, host and port."""
    if not upstream:
        return ""
    url = urlsplit(upstream if "://" in upstream else f"http://{upstream}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise click.BadParameter(f"{upstream}: no URL such as http://127.0.0.1:8000", param_hint="UPSTREAM")
    if url.path.strip("/"):
        raise click.BadParameter(
            f"{upstream}: leave out {url.path}; it belongs into the client's base URL", param_hint="UPSTREAM"
        )
    return f"{url.scheme}://{url.netloc}"


def _options(
    directories: tuple[Path, ...], tools: str | None, dialect: str | None, observe: bool, log: Path | None
) -> list[str]:
    options = [f"vtc_profiles={directory.absolute()}" for directory in directories]
    options += [f"vtc_tools={tools}"] * bool(tools) + [f"vtc_dialect={dialect}"] * bool(dialect)
    options += ["vtc_mode=observe"] * observe + [f"vtc_log={log}"] * bool(log)
    return [part for option in options for part in ("--set", option)]
