"""`vtc run`: start mitmdump or mitmweb with the addon."""

from __future__ import annotations

import errno
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

import click

from vtc.cli import common, config, local_servers
from vtc.cli.common import profile_directories
from vtc.cli.config import Config
from vtc.cli.flags import add_flags, set_option
from vtc.cli.tail import run_with_page
from vtc.profiles.document import KeyPath, ProfileError
from vtc.profiles.planner import Planner
from vtc.proxy import launch, options
from vtc.proxy.asking import keys
from vtc.proxy.asking.address import Address
from vtc.proxy.asking.address import parse_upstream as address_of
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import collect_findings
from vtc.proxy.trust import Trust
from vtc.scrub import escape_invisible


class RunCommand(click.Command):
    """A command whose error for an unknown option explains how to pass options to mitmproxy."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        original = [*arguments]  # because click consumes the list
        try:
            return super().parse_args(context, arguments)
        except click.NoSuchOption as error:
            name = error.option_name
            at = next(index for index, argument in enumerate(original) if argument.startswith(name))
            # The next word is the option's value, unless it is an option or a URL, or the value is after a `=`.
            next_words = original[at + 1 : at + 2] if original[at] == name else []
            value = [word for word in next_words if not re.match(r"-|\w+://", word)]
            raise click.UsageError(
                f"there is no option {name}{common.format_nearest_option(error)}; "
                f"arguments of mitmproxy go after `--`: vtc run URL -- {shlex.join([original[at], *value])}",
                context,
            ) from None


@click.command(cls=RunCommand, short_help="Run the proxy with VTC.")
@click.argument("upstream", default="")
@click.argument("more", metavar="[-- MITMPROXY_ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--web", is_flag=True, help=config.KEY_DESCRIPTIONS["web"])
@click.option("--ui", is_flag=True, help="Show exchanges in the terminal as they end, like `vtc tail`.")
@click.option("--proxy", is_flag=True, help="Without UPSTREAM: run an ordinary proxy, and search for no server.")
@click.option("--port", type=click.IntRange(0, 65535), help=config.KEY_DESCRIPTIONS["port"])
@click.option("--host", help=config.KEY_DESCRIPTIONS["host"])
@profile_directories
@click.option(
    "--dialect-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of a dialect, as `vtc new-dialect` prints it: like --profiles FILE --dialect NAME.",
)
@add_flags("run")
@set_option
@click.option("-v", "--verbose", is_flag=True, help="Also log connections and requests, as mitmproxy does.")
@click.option(
    "--config",
    "named",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of settings. [vtc.yaml in the current folder or in your settings folder]",
)
@click.option("--dry-run", is_flag=True, help="Print the command, and do not run it.")
def run(
    upstream: str,
    more: Sequence[str],
    web: bool,
    ui: bool,
    proxy: bool,
    port: int | None,
    host: str | None,
    named: Path | None,
    sets: tuple[str, ...],
    verbose: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Run VTC in front of the model server UPSTREAM, for example http://127.0.0.1:8000.

    Clients use http://127.0.0.1:8088/v1. Without UPSTREAM here and in vtc.yaml, VTC uses a model server that answers at
    a usual port of this machine; if none answers, VTC is an ordinary proxy. Arguments after `--` are passed to
    mitmproxy: `vtc run http://127.0.0.1:8000 -- -w flows`.
    """
    # Step 1: combine the command line with vtc.yaml; the command line has precedence.
    upstream, more = _split_arguments(upstream, more)
    more = [*launch.format_sets(sets), *more]
    file, settings = config.load_config(named)
    directories = _add_dialect_file(options, options.pop("directories") or config.list_directories(file, settings))
    options = {name: options[name] or value for name, value in settings.flags.items()}
    program: Literal["mitmweb", "mitmdump"] = "mitmweb" if web or settings.web else "mitmdump"
    with _report_in_file(file, () if upstream else ("upstream",)):
        server = build_server_url(upstream or settings.upstream)
    # Step 2: choose the server and the address to listen at.
    # A key must never be sent to a server only because it answers at a usual port.
    if not (server or proxy or options["key_env"] or _has_mode([*settings.build_arguments(), *more])):
        server = _find_local_server(quiet=dry_run)
    address = host or settings.host or "127.0.0.1"
    at = next(choice for choice in (port, settings.port, launch.PORT) if choice is not None)
    _check_own_address(server, address, at)
    # Step 3: check all options as the addon would, before anything is started.
    own = launch.format_sets(config.format_options(options))
    arguments = [*settings.build_arguments(), *own, *more]  # in this order: mitmproxy uses the last value
    values = launch.list_settings(arguments)
    planner = _build_planner([f"vtc_profiles={directory}" for directory in directories], values, file, settings)
    is_key_of_file = options["key_env"] and options["key_env"] == settings.flags["key_env"]
    with _report_in_file(file, ("key_env",) if is_key_of_file else ()):
        _check_keys(planner, server, Address(address, at), values)
    # Step 4: print or run the command.
    arguments = [*launch.format_sets(f"vtc_profiles={directory.absolute()}" for directory in directories), *arguments]
    command = launch.build_command(program, server, address, at, arguments, quiet=not verbose)
    if dry_run:
        click.echo(shlex.join(command))
        _print_findings(server, planner, launch.list_settings(command))
        return
    if file != config.NO_CONFIG_FILE:
        click.echo(f"vtc: settings from {file}", err=True)
    if not (settings.build_arguments() or more):  # which can make mitmproxy listen elsewhere, or not at all
        _check_free(address, at)
    if program == "mitmweb" and not any(argument.startswith("--web-") for argument in arguments):
        _check_web_port(values)
    if ui:
        sys.exit(run_with_page(command, options["log"], directories))
    _replace_process(command)


def _add_dialect_file(options: dict[str, Any], directories: tuple[Path, ...]) -> tuple[Path, ...]:
    """Add the file of `--dialect-file` to the profiles, and name its dialect in the options; exit if it has none."""
    file = options.pop("dialect_file")
    if file is None:
        return directories
    sources = common.load_profiles((file,)).sources
    names = [name for (kind, name), source in sources.items() if kind == "dialect" and source.path == file]
    if len(names) != 1:
        raise click.UsageError(f"--dialect-file: {file} contains {len(names)} dialects, one is needed")
    options["dialect"] = names[0]
    return (*directories, file)


def _split_arguments(upstream: str, more: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Separate the server from arguments for mitmproxy."""
    if upstream.startswith("-"):  # `vtc run -- …`
        return "", (upstream, *more)
    if more and more[0][0:1].isalnum():  # mitmproxy would use it as a filter, and hide all other flows
        raise click.UsageError(
            f"unexpected {more[0]}: only one UPSTREAM is allowed; arguments for mitmproxy begin with `-`"
        )
    return upstream, more


def _replace_process(command: list[str]) -> NoReturn:
    """Replace this program by another."""
    if os.name == "nt":  # where the shell would not wait for the new program
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


def _check_web_port(values: Sequence[str]) -> None:
    """Raise an error if mitmweb cannot listen at its address, given options as `NAME=VALUE`."""
    options = dict(value.partition("=")[::2] for value in values)
    host, at = options.get("web_host", WEB_HOST), int(options.get("web_port", WEB_PORT))
    _check_free(host, at, "mitmweb", f"`--set web_port={at + 1}`")


def _has_mode(arguments: Sequence[str]) -> bool:
    """Return True if arguments for mitmproxy set its mode."""
    return any(argument in ("-m", "--mode") or argument.startswith(("--mode=", "mode=")) for argument in arguments)


def _find_local_server(*, quiet: bool) -> str:
    """Return the URL of a model server on this machine, and report it unless `quiet`; empty if none answers."""
    server = local_servers.choose_server("vtc run")
    ports = local_servers.format_ports()
    message = f"no model server answers on ports {ports}; VTC is an ordinary proxy"
    if server:
        message = f"{server} answers, so VTC runs in front of it (--proxy: use no server)"
    if not quiet:
        click.echo(f"vtc: {message}", err=True)
    return server


LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
"""Hosts in a URL or of a listener that are this machine."""


def _check_own_address(server: str, host: str, port: int) -> None:
    """Raise an error if a server's URL is the address at which the proxy listens."""
    url = urlsplit(server)
    if server and url.port == port and (url.hostname == host or {url.hostname, host} <= {*LOCAL_HOSTS}):
        problem = f"{server} is the address at which VTC itself would listen; choose another --port"
        raise click.BadParameter(problem, param_hint="UPSTREAM")


WEB_HOST, WEB_PORT = "127.0.0.1", 8081
"""Default address of mitmweb's pages."""


def _check_free(host: str, port: int, program: str = "VTC", options: str = "--port or --host") -> None:
    """Raise an error if nothing can listen at an address, because mitmproxy's error names options of mitmproxy."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (")[0]
        running = f"is {program} running already? If not, " if error.errno == errno.EADDRINUSE else ""
        raise click.ClickException(
            f"cannot listen at {host}:{port} ({why}); {running}choose another address with {options}"
        ) from None


def _print_findings(server: str, planner: Planner, settings: Sequence[str]) -> None:
    """Print the findings about a server that answers now; VTC repeats the probes when it starts (`vtc_discover`)."""
    values = dict(setting.partition("=")[::2] for setting in settings)
    if not server or values.get("vtc_discover") != "on":
        return
    found = collect_findings(Asker(server, trust=Trust.from_settings(settings)), planner)
    for line in found.lines if found.is_available or found.has_wrong_scheme else ():
        click.echo(f"# found now, probed again at the start: {escape_invisible(line)}", err=True)


def build_server_url(upstream: str) -> str:
    """Return the URL of a model server for mitmproxy: scheme, host and port."""
    server, path = common.split_upstream(upstream)
    if path:
        raise click.BadParameter(
            f"{upstream}: leave out {path}; it belongs in the client's base URL", param_hint="UPSTREAM"
        )
    return server


def _build_planner(profiles: Sequence[str], values: Sequence[str], file: Path, settings: Config) -> Planner:
    """Build the planner; exit with an error if the addon would reject these options as `NAME=VALUE`."""
    try:
        return options.build_planner_from_specs([*profiles, *values])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except options.InvalidOption as error:
        for key, specs in settings.list_specs().items():  # find the key of the file whose option is rejected
            with _report_in_file(file, key), suppress(ProfileError):
                options.build_planner_from_specs([*profiles, *specs])
        raise click.UsageError(str(error)) from None


@contextmanager
def _report_in_file(file: Path, key: KeyPath) -> Iterator[None]:
    """Report an error of the block with the line of `key` in the file of settings; re-raise it if `key` is empty."""
    try:
        yield
    except (click.ClickException, options.InvalidOption) as error:
        if not key:
            raise
        message = error.message if isinstance(error, click.ClickException) else str(error)
        click.echo(str(config.build_problem(file, key, message)), err=True)
        sys.exit(1)


def _check_keys(planner: Planner, server: str, address: Address, settings: Sequence[str]) -> None:
    """Report the keys that are lent to clients.

    Raises an error if a key is not set, or if clients on other machines could use it without `--share-keys`.
    """
    values = dict(setting.partition("=")[::2] for setting in settings)
    variable, upstream = values.get(keys.KEY_OPTION, ""), address_of(server)
    if variable and not upstream:
        raise click.UsageError("--key-env: name the server of the key: vtc run URL --key-env NAME")
    lenders = keys.list_lenders(planner.profiles, upstream, variable)
    shared = values.get("vtc_share_keys") == "on"
    if faults := [*keys.find_faults(lenders, [address], shared=shared)]:
        raise click.ClickException("\n".join(faults))
    for lender in lenders:
        click.echo(f"vtc: {lender.lends}", err=True)
