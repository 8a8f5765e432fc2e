"""`vtc run`: mitmdump or mitmweb with the addon."""

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
from vtc.cli.common import complete_names, profile_directories
from vtc.cli.config import Config
from vtc.cli.tail import run_with_page
from vtc.profiles.document import KeyPath, ProfileError, nearest
from vtc.profiles.planner import Planner
from vtc.profiles.schema import API_NAMES
from vtc.proxy import keys, launch, options
from vtc.proxy.address import Address
from vtc.proxy.address import parse_upstream as address_of
from vtc.proxy.asker import Asker
from vtc.proxy.findings import collect_findings
from vtc.proxy.trust import Trust
from vtc.scrub import escape_invisible


class ApiNames(click.ParamType[str]):
    """Names of APIs, parted by commas."""

    name = "APIS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for name in str(value).split(","):
            if name.strip() not in ("same", *API_NAMES):
                known = ", ".join(API_NAMES)
                self.fail(f"there is no API {name.strip()!r}{nearest(name, API_NAMES)}; they are {known}", param, ctx)
        return str(value)


class RunCommand(click.Command):
    """Tells where options of mitmproxy go that are given to this command."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        given = [*arguments]
        try:
            return super().parse_args(context, arguments)
        except click.NoSuchOption as error:
            name = error.option_name
            at = next(index for index, argument in enumerate(given) if argument.startswith(name))
            value = [word for word in given[at + 1 : at + 2] if given[at] == name and not re.match(r"-|\w+://", word)]
            raise click.UsageError(
                f"there is no option {name}{common.format_nearest_option(error)}; "
                f"arguments of mitmproxy go after `--`: vtc run URL -- {shlex.join([given[at], *value])}",
                context,
            ) from None


@click.command(cls=RunCommand, short_help="Run the proxy with VTC.")
@click.argument("upstream", default="")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
@click.option("--web", is_flag=True, help="Run mitmweb, to see in a browser what happens.")
@click.option("--ui", is_flag=True, help="Show exchanges in the terminal as they end, as `vtc tail` does.")
@click.option("--proxy", is_flag=True, help="Without UPSTREAM: be an ordinary proxy, and look for no server.")
@click.option("--port", type=click.IntRange(0, 65535), help=f"Where clients connect; 0: any free one. [{launch.PORT}]")
@click.option("--host", help="0.0.0.0 for clients on other machines. [127.0.0.1]")
@profile_directories
@click.option("--tools", type=click.Choice(["auto", "native", "prompt"]), help="How tools reach the model.")
@click.option(
    "--dialect", help="The dialect in which the model is prompted.", shell_complete=complete_names("dialects")
)
@click.option("--blocks", type=click.Choice(["auto", "text", "last"]), help="What JSON in the last code block is.")
@click.option("--model", help="The model to ask for in the place of each that the server does not list.")
@click.option("--server", help="The server profile, if it is not recognised.", shell_complete=complete_names("servers"))
@click.option(
    "--api", type=ApiNames(), help="The APIs that the server speaks, parted by commas, if not those it shows."
)
@click.option("--key-env", help="The variable with UPSTREAM's key, for clients that send none. It goes nowhere else.")
@click.option("--share-keys", is_flag=True, help="Clients of other machines may spend your keys (key_env), too.")
@click.option("--retry", is_flag=True, help="Ask the model once more about faulty replies and silent turns.")
@click.option("--observe", is_flag=True, help="Change nothing, and tell what would have been done.")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="Add a line of JSON for each exchange.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="An option of VTC or mitmproxy by its name.")
@click.option("-v", "--verbose", is_flag=True, help="mitmproxy's own lines, too: connections and requests.")
@click.option(
    "--config",
    "named",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read these settings from FILE, not from vtc.yaml here or in your settings folder.",
)
@click.option("--dry-run", is_flag=True, help="Print the command instead.")
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
    """Run VTC before the model server UPSTREAM, such as http://127.0.0.1:8000; clients ask http://127.0.0.1:8088/v1.

    Without it, and without one in vtc.yaml, it is what answers on a usual port here; else VTC is an ordinary proxy.
    What stands after `--` goes to mitmproxy: `vtc run http://127.0.0.1:8000 -- -w flows`.
    """
    upstream, more = _split_arguments(upstream, more)
    more = [*launch.format_sets(sets), *more]
    file, settings = config.load_config(named)
    directories = options.pop("directories") or config.list_directories(file, settings)
    log = options.pop("log") or (config.resolve_path(file, settings.log) if settings.log else None)
    options = {key: value or getattr(settings, key) for key, value in options.items()}
    program: Literal["mitmweb", "mitmdump"] = "mitmweb" if web or settings.web else "mitmdump"
    with _report_in_file(file, () if upstream else ("upstream",)):
        server = build_server_url(upstream or settings.upstream)
    # A key must never go to a server that only happens to answer on a usual port.
    if not (server or proxy or options["key_env"] or _has_mode([*settings.build_arguments(), *more])):
        server = _find_local_server(quiet=dry_run)
    address = host or settings.host or "127.0.0.1"
    at = next(choice for choice in (port, settings.port, launch.PORT) if choice is not None)
    if _is_listening_address(server, address, at):
        problem = f"{server} is where VTC itself would listen; choose another --port"
        raise click.BadParameter(problem, param_hint="UPSTREAM")
    # Of an option of one value the last counts: what is written in the file, then what is typed.
    own = config.format_options({**options, "log": log})
    arguments = [*settings.build_arguments(), *launch.format_sets(own), *more]
    values = launch.list_settings(arguments)
    profiles = [f"vtc_profiles={directory}" for directory in directories]
    planner = _build_planner(profiles, values, file, settings)
    with _report_in_file(file, ("key_env",) if settings.key_env and settings.key_env == options["key_env"] else ()):
        _check_keys(planner, server, Address(address, at), values)
    arguments = [*launch.format_sets(f"vtc_profiles={directory.absolute()}" for directory in directories), *arguments]
    command = launch.build_command(program, server, address, at, arguments, quiet=not verbose)
    if dry_run:
        click.echo(shlex.join(command))
        _print_findings(server, planner, launch.list_settings(command))
        return
    if file != config.NO_CONFIG_FILE:
        click.echo(f"vtc: settings from {file}", err=True)
    if not (settings.build_arguments() or more):  # those may have it listen elsewhere, or not at all
        _check_free(address, at)
    if program == "mitmweb" and not any(argument.startswith("--web-") for argument in arguments):
        _check_web_port(values)
    if ui:
        sys.exit(run_with_page(command, log, directories))
    _replace_process(command)


def _split_arguments(upstream: str, more: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Part the server from arguments for mitmproxy."""
    if upstream.startswith("-"):  # `vtc run -- …`
        return "", (upstream, *more)
    if more and more[0][0:1].isalnum():  # mitmproxy would take it for a filter, and show no other flow
        raise click.UsageError(f"unexpected {more[0]}: one UPSTREAM is all; arguments for mitmproxy begin with `-`")
    return upstream, more


def _replace_process(command: list[str]) -> NoReturn:
    """Have a program take the place of this one."""
    if os.name == "nt":  # there, a program that is replaced returns to the shell at once
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)


def _check_web_port(values: Sequence[str]) -> None:
    """End the program if mitmweb could not listen, given these `NAME=VALUE`s."""
    typed = dict(value.partition("=")[::2] for value in values)
    host, at = typed.get("web_host", WEB_HOST), int(typed.get("web_port", WEB_PORT))
    _check_free(host, at, "mitmweb", f"`--set web_port={at + 1}`")


def _has_mode(arguments: Sequence[str]) -> bool:
    """True if mitmproxy is told what to be."""
    return any(argument in ("-m", "--mode") or argument.startswith(("--mode=", "mode=")) for argument in arguments)


def _find_local_server(*, quiet: bool) -> str:
    """Find a model server of this machine, and say so; empty if none answers."""
    server = local_servers.choose_server("vtc run")
    ports = local_servers.format_ports()
    found = f"{server} answers, so VTC stands before it (--proxy: before none)" if server else ""
    if not quiet:
        click.echo(f"vtc: {found or f'no model server answers on ports {ports}: VTC is an ordinary proxy'}", err=True)
    return server


LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1", "0.0.0.0")


def _is_listening_address(server: str, host: str, port: int) -> bool:
    """True if a server's URL leads to where the proxy listens."""
    url = urlsplit(server)
    return bool(server) and url.port == port and (url.hostname == host or {url.hostname, host} <= {*LOCAL_HOSTS})


WEB_HOST, WEB_PORT = "127.0.0.1", 8081
"""Where mitmweb's pages are, if nothing else is said."""


def _check_free(host: str, port: int, program: str = "VTC", options: str = "--port or --host") -> None:
    """End the program where nothing can listen; mitmproxy would name options of its own that are not those of ours."""
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
    """Say what a server shows that is there now, as it is asked when VTC starts (`vtc_discover`)."""
    values = dict(setting.partition("=")[::2] for setting in settings)
    if not server or values.get("vtc_discover") != "on":
        return
    found = collect_findings(Asker(server, trust=Trust.from_settings(settings)), planner)
    for line in found.lines if found.is_there or found.has_wrong_scheme else ():
        click.echo(f"# found now, asked when it starts: {escape_invisible(line)}", err=True)


def build_server_url(upstream: str) -> str:
    """The model server as mitmproxy wants it: scheme, host and port."""
    server, path = common.split_upstream(upstream)
    if path:
        raise click.BadParameter(
            f"{upstream}: leave out {path}; it belongs in the client's base URL", param_hint="UPSTREAM"
        )
    return server


def _build_planner(profiles: Sequence[str], values: Sequence[str], file: Path, settings: Config) -> Planner:
    """Make the planner; end the program if the addon would refuse these `NAME=VALUE`s."""
    try:
        return options.build_planner_from_specs([*profiles, *values])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except options.RefusedOption as error:
        for key, specs in settings.list_specs().items():  # the key that is refused by itself is the one to blame
            with _report_in_file(file, key), suppress(ProfileError):
                options.build_planner_from_specs([*profiles, *specs])
        raise click.UsageError(str(error)) from None


@contextmanager
def _report_in_file(file: Path, key: KeyPath) -> Iterator[None]:
    """Tell what is refused with its place in the file of settings, if its key there is known."""
    try:
        yield
    except (click.ClickException, options.RefusedOption) as error:
        if not key:
            raise
        message = error.message if isinstance(error, click.ClickException) else str(error)
        click.echo(str(config.build_problem(file, key, message)), err=True)
        sys.exit(1)


def _check_keys(planner: Planner, server: str, address: Address, settings: Sequence[str]) -> None:
    """Say whose keys clients are lent; end the program where one is not there, or others could spend it unasked."""
    values = dict(setting.partition("=")[::2] for setting in settings)
    variable, upstream = values.get(keys.OPTION, ""), address_of(server)
    if variable and not upstream:
        raise click.UsageError("--key-env: whose key it is must be said: vtc run URL --key-env NAME")
    lenders = keys.list_lenders(planner.profiles, upstream, variable)
    shared = values.get("vtc_share_keys") == "on"
    if faults := [*keys.find_faults(lenders, [address], shared=shared)]:
        raise click.ClickException("\n".join(faults))
    for lender in lenders:
        click.echo(f"vtc: {lender.lends}", err=True)
