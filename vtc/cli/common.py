"""Options, arguments and output that the commands share, and the small command `vtc addon-path`."""

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

from vtc.dialects.syntax.description import Description
from vtc.profiles import loader
from vtc.profiles.document import ProfileError, suggest_nearest
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings
from vtc.profiles.stack import UnknownName
from vtc.proxy import launch
from vtc.proxy.trust import Trust, TrustError


@click.command("addon-path", short_help="Print the path of the addon, for your own mitmproxy.")
def addon_path() -> None:
    """Print the path of the addon's script: `mitmdump -s "$(vtc addon-path)"`.

    mitmproxy must run in the environment in which VTC is installed, or have its packages.
    """
    click.echo(launch.find_script())


profile_directories = click.option(
    "--profiles",
    "directories",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A directory or file with your own profiles; can be repeated.",
)


class TrustSetting(click.ParamType[str]):
    """An option of mitmproxy about trusted certificates, as `NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name, _, text = str(value).partition("=")
        if name not in Trust._fields:
            known = ", ".join(Trust._fields)
            self.fail(
                f"{name} has no effect here{suggest_nearest(name, Trust._fields)}; these have: {known}", param, ctx
            )
        if name == "ssl_insecure" and text not in ("", "true", "false"):
            self.fail(f"ssl_insecure must be true or false, not {text}", param, ctx)
        return str(value)


trust_settings = click.option(
    "--set",
    "sets",
    multiple=True,
    type=TrustSetting(),
    help="The certificates to trust: ssl_verify_upstream_trusted_ca=FILE, or ssl_insecure=true for any.",
)


def find_dialects(profiles: Profiles, names: Iterable[str]) -> tuple[Description, ...]:
    """Return the dialects that `--dialect` names."""
    try:
        return tuple(map(profiles.get_dialect, names))
    except UnknownName as error:
        raise click.BadParameter(str(error), param_hint="--dialect") from None


class CommandGroup(click.Group):
    """A group of commands that imports a command when it is used, and reports errors without a traceback."""

    def __init__(
        self, *arguments: Any, modules: Mapping[str, str], sections: Mapping[str, Iterable[str]], **more: Any
    ) -> None:
        """Create the group.

        `modules` is the module of each command by the command's name; `sections` are the commands by heading, for help.
        """
        super().__init__(*arguments, **more)
        self._modules = modules
        self._sections = sections

    def list_commands(self, context: click.Context) -> list[str]:
        return [*self._modules]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self._modules:
            command: click.Command = getattr(import_module(self._modules[name]), name.replace("-", "_"))
            return command
        return None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self._modules))
        for heading, names in self._sections.items():
            commands = [(name.ljust(width), self.get_command(context, name)) for name in names]
            with formatter.section(heading):
                formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in commands if command])

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        if re.search(r"://|:\d+/*\Z|\A\d+\Z", name):
            raise click.UsageError(f"{name} is not a command; to run VTC in front of it: vtc run {name}", context)
        if name[:1].isalpha() and name not in self._modules:
            raise click.UsageError(f"no command {name!r}{suggest_nearest(name, self._modules)}", context)
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a model's text can contain half of a surrogate pair
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(context)
        except TrustError as error:
            raise click.ClickException(str(error)) from None
        except UnicodeDecodeError as error:
            raise click.ClickException(f"the input is not UTF-8 (at byte {error.start})") from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # the program that reads our output has closed the pipe
                raise
            raise click.ClickException(f"{error.filename or 'a file'}: {error.strerror or error}") from None


def format_nearest_option(error: click.NoSuchOption) -> str:
    """Format a suggestion for a misspelled option; empty if no option is close."""
    close = get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.8)
    return f" (did you mean {close[0]}?)" if close else ""


json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def complete_names(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a shell completion by the names of a kind of profiles, for example `models` or `dialects`."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            loaded = loader.load_profiles([loader.builtin_directory(), *context.params.get("directories", ())])
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
    """Load the built-in profiles and those in `directories`; print mistakes and exit with 1 if there are any."""
    try:
        return loader.load_profiles([loader.builtin_directory(), *directories])
    except ProfileError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


def build_planner(directories: tuple[Path, ...], **options: Any) -> Planner:
    """Build the planner that the addon would use with options of a command, of which None is the default.

    Exits with an error if profiles or options are wrong.
    """
    settings = Settings(**{name: value for name, value in options.items() if value is not None})
    try:
        return Planner(load_profiles(directories), settings)
    except UnknownName as error:
        raise click.BadParameter(str(error), param_hint=f"--{error.setting}") from None


def parse_url(text: str, hint: str) -> SplitResult:
    """Parse an argument that is a URL, a host and port, or a port of this machine.

    `hint` names the argument in the error.
    """
    if re.fullmatch(r"\d+", text, re.ASCII):
        text = f"127.0.0.1:{text}"
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        is_valid = url.scheme in ("http", "https") and re.fullmatch(r"[^\s/@\x00-\x1f]+", url.hostname or "")
        if is_valid and url.port != 0:
            return url
    except ValueError as error:
        if "ort" in str(error):  # "Port out of range …" or "Port could not be cast …"
            raise click.BadParameter(f"{text}: the port must be from 1 to 65535", param_hint=hint) from None
    raise click.BadParameter(f"{text}: not a URL; write it like http://127.0.0.1:8000", param_hint=hint)


def normalize_url(text: str, hint: str) -> str:
    """Normalize the URL of a model server; drop a final `/v1`, which belongs to the paths of its API."""
    parts = parse_url(text, hint)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def split_upstream(upstream: str) -> tuple[str, str]:
    """Split the URL of a model server into scheme, host and port (for mitmproxy) and the base path of its APIs."""
    if not upstream:
        return "", ""
    if "@" in upstream:
        problem = "leave out user and password; the key that the client sends is forwarded"
        raise click.BadParameter(problem, param_hint="UPSTREAM")
    parts = parse_url(normalize_url(upstream, "UPSTREAM"), "UPSTREAM")
    return f"{parts.scheme}://{parts.netloc}", parts.path


def read_text(file: Path) -> str:
    """Read a file that the user named; exit with an error if it is not UTF-8."""
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise click.ClickException(f"{file}: not UTF-8; save the file as UTF-8") from None


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", figures: bool = False) -> None:
    """Print a table. On a terminal it is fitted to the width; otherwise it is plain text with whole cells.

    If `figures` is set, all columns except the first contain numbers and are aligned to the right.
    """
    if title:
        click.secho(title, bold=True)
    if sys.stdout.isatty():
        table = Table(*heads, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in table.columns[1:] if figures else ():
            column.justify, column.no_wrap = "right", True
        table.columns[0].overflow = "fold"  # a user cannot search for a name that is cut off
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
    """Print JSON for programs: indented, and without escapes for characters beyond ASCII."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))
