"""Options and output that the commands share."""

from __future__ import annotations

import errno
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import click
from click.shell_completion import CompletionItem
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vtc.profiles import loader
from vtc.profiles.document import ProfileError, nearest
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings, UnknownName
from vtc.proxy import launch
from vtc.proxy.trust import Trust, TrustError

# `vtc addon-path`: what `mitmdump -s` takes.


@click.command("addon-path", short_help="Print where the addon lies, for your own mitmproxy.")
def addon_path() -> None:
    """Print the path of the addon's script: `mitmdump -s "$(vtc addon-path)"`.

    mitmproxy must run in the environment that VTC is installed in, or have its packages.
    """
    click.echo(launch.find_script())


profile_directories = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A directory or file with profiles of your own; may be given several times.",
)


class TrustSetting(click.ParamType[str]):
    """An option of mitmproxy that says whose certificates are trusted."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, _, text = str(value).partition("=")
        if name not in Trust._fields:
            known = ", ".join(Trust._fields)
            self.fail(f"{name} is none that counts here{nearest(name, Trust._fields)}: {known}", param, ctx)
        if name == "ssl_insecure" and text not in ("", "true", "false"):
            self.fail(f"ssl_insecure is true or false, not {text}", param, ctx)
        return str(value)


trust_settings = click.option(
    "--set",
    "sets",
    multiple=True,
    type=TrustSetting(),
    help="Whose certificates are trusted: ssl_verify_upstream_trusted_ca=FILE, or ssl_insecure=true for any.",
)


class CommandGroup(click.Group):
    """Commands whose users see what is wrong with their files, and no trace; each is loaded when it is asked for."""

    def __init__(self, *arguments: Any, modules: Mapping[str, str], **more: Any) -> None:
        """`modules` has the module of each command by its name."""
        super().__init__(*arguments, **more)
        self._modules = modules

    def list_commands(self, context: click.Context) -> list[str]:
        return [*self._modules]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self._modules:
            command: click.Command = getattr(import_module(self._modules[name]), name.replace("-", "_"))
            return command
        return None

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if re.search(r"://|:\d+/*\Z|\A\d+\Z", name) and self.get_command(context, name) is None:
            raise click.UsageError(f"{name} is no command; to run VTC before that server: vtc run {name}", context)
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # because a model's text may contain half a character
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(context)
        except TrustError as error:
            raise click.ClickException(str(error)) from None
        except UnicodeDecodeError as error:
            raise click.ClickException(f"the input is no UTF-8 text (at byte {error.start})") from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # what reads our output has seen enough
                raise
            raise click.ClickException(f"{error.filename or 'a file'}: {error.strerror or error}") from None


def format_nearest_option(error: click.NoSuchOption) -> str:
    """Suggest the option that is meant; empty if none is close."""
    near = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.8)
    return "".join(f" (did you mean {name}?)" for name in near)


json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def complete_names(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Shell completion by the names of `models`, `dialects`, `clients` or `servers`."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            loaded = loader.load([loader.builtin_directory(), *context.params.get("directories", ())])
        except ProfileError:
            return []
        profiles = getattr(loaded, kind).values()
        return [
            CompletionItem(profile.name, help=profile.description)
            for profile in profiles
            if profile.name.startswith(incomplete)
        ]

    return complete


def load_profiles(directories: tuple[Path, ...]) -> Profiles:
    """The built-in profiles and those of `directories`; ends the program with what is wrong with them."""
    try:
        return loader.load([loader.builtin_directory(), *directories])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def build_planner(directories: tuple[Path, ...], settings: Settings) -> Planner:
    """Make the planner that the addon would have; end the program with an error if the profiles are wrong."""
    try:
        return Planner(load_profiles(directories), settings)
    except UnknownName as error:
        raise click.BadParameter(str(error), param_hint=f"--{error.setting}") from None


def add_forcing_options[F: Callable[..., Any]](command: F) -> F:
    """Give a command the options that settle what profiles would decide, as `vtc_tools` and the like do."""
    for option in (
        click.option("--tools", type=click.Choice(["auto", "native", "prompt"]), help="How tools reach the model."),
        click.option(
            "--dialect", help="The dialect for the model's prompt.", shell_complete=complete_names("dialects")
        ),
        click.option("--client", help="The client profile.", shell_complete=complete_names("clients")),
        click.option("--server", help="The server profile.", shell_complete=complete_names("servers")),
        click.option(
            "--constrain", type=click.Choice(["off", "required", "auto"]), help="When servers decode by a grammar."
        ),
        click.option("--lenient", type=click.Choice(["auto", "on", "off"]), help="Whether calls are repaired."),
    ):
        command = option(command)
    return command


def parse_url(text: str, hint: str) -> SplitResult:
    """The parts of a URL, of a host and port, or of a port of this machine, that a user typed."""
    if re.fullmatch(r"\d+", text, re.ASCII):
        text = f"127.0.0.1:{text}"
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        sound = url.scheme in ("http", "https") and re.fullmatch(r"[^\s/@\x00-\x1f]+", url.hostname or "")
        if sound and (url.port is None or url.port):
            return url
    except ValueError as error:
        if "ort" in str(error):  # out of range, or no number
            raise click.BadParameter(f"{text}: no port from 1 to 65535", param_hint=hint) from None
    raise click.BadParameter(f"{text}: no URL such as http://127.0.0.1:8000", param_hint=hint)


def normalize_url(text: str, hint: str) -> str:
    """Return the URL of a model server as people type it: `/v1` at its end belongs to the paths of its API."""
    parts = parse_url(text, hint)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def split_upstream(upstream: str) -> tuple[str, str]:
    """Part the URL of a model server into what mitmproxy wants, and the path that its APIs stand below."""
    if not upstream:
        return "", ""
    if "@" in upstream:
        problem = "leave out user and password; what the client sends as its key is passed on"
        raise click.BadParameter(problem, param_hint="UPSTREAM")
    parts = parse_url(normalize_url(upstream, "UPSTREAM"), "UPSTREAM")
    return f"{parts.scheme}://{parts.netloc}", parts.path


def read_text(file: Path) -> str:
    """The text of a file that a user named; ends the program if it is not UTF-8."""
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise click.ClickException(f"{file}: not UTF-8; save the file as UTF-8") from None


def build_settings(**options: Any) -> Settings:
    """The settings that were given on the command line; those that were not (None) are the default."""
    return Settings(**{key: value for key, value in options.items() if value is not None})


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", figures: bool = False) -> None:
    """Print a table: for a terminal as wide as that is, otherwise plain and uncut; `figures` go to the right."""
    if title:
        click.secho(title, bold=True)
    if sys.stdout.isatty():
        table = Table(*heads, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in table.columns[1:] if figures else ():
            column.justify, column.no_wrap = "right", True
        table.columns[0].overflow = "fold"  # a name that is cut cannot be looked for
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        first, *rest = zip(line, widths, strict=True)
        cells = [text.rjust(width) if figures else text.ljust(width) for text, width in rest]
        click.echo("  ".join([first[0].ljust(first[1]), *cells]).rstrip())
    click.echo()


def show_json(value: Any) -> None:
    """JSON for programs: readable, and characters as they are."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
