"""`vtc env`: shell commands that start a coding agent with VTC as its server."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from vtc.cli import common, config
from vtc.cli.common import complete_names, profile_directories, split_upstream
from vtc.cli.server_models import OnceAsker, find_window, list_models
from vtc.profiles.agents import AgentProfile, Phrase, Value, Variable
from vtc.profiles.document import suggest_nearest
from vtc.profiles.loader import Profiles
from vtc.profiles.schema import VARIABLE
from vtc.proxy import launch
from vtc.proxy.asking.address import Address
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.status import format_ownership_fault, request_status

PLACEHOLDER_KEY = "any"
"""Key that an agent sends if the server needs none, because most agents do not start without a key."""
PLACEHOLDER_MODEL = "my-model"
"""Name of the model if the user gives none."""
FOLDER_VARIABLE = Variable("VTC_AGENT")
"""Environment variable with the folder of an agent's files."""


class AgentName(click.ParamType[str]):
    """Name of an agent or of its program; `find_agent` looks it up."""

    name = "AGENT"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete_names("agents")(ctx, param, incomplete)


class VariableName(click.ParamType[str]):
    """Name of an environment variable with a key, because others can read a key in a command line."""

    name = "NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not VARIABLE.fullmatch(str(value)):
            self.fail("give the name of a variable that contains the key, not the key", param, ctx)
        return str(value)


def find_agent(profiles: Profiles, name: str) -> AgentProfile:
    """Find an agent by its name or the name of its program; raise `BadParameter` if there is none."""
    for agent in profiles.agents.values():
        if name.casefold() in (agent.name.casefold(), *map(str.casefold, agent.commands)):
            return agent
    known = sorted(profiles.agents)
    hint = suggest_nearest(name, known)
    raise click.BadParameter(f"there is no agent {name!r}{hint}; known: {', '.join(known)}", param_hint="AGENT")


@dataclass(frozen=True, slots=True)
class Shell:
    """Syntax of a shell: templates of its commands, and the way in which it quotes and joins texts."""

    quote: Callable[[str], str]
    """Function that quotes a literal text."""
    variable: str
    """Template of a variable inside a text."""
    export: str
    """Template of the command that sets an environment variable."""
    unset: str
    """Template of the command that removes an environment variable."""
    new_folder: str
    """Template of the command that creates a temporary folder and sets a variable to its path."""
    subfolder: str
    """Template of the command that creates a folder inside the temporary one."""
    file: str
    """Template of the command that writes a file."""
    start: str = "{command}"
    """Template of the command that runs a program whose name is quoted."""
    joiner: str = ""
    """Operator between the parts of one text."""
    group: str = "{text}"
    """Template that makes one argument of a text with multiple parts."""

    def format_text(self, words: Phrase) -> str:
        """Format a text, which can contain variables, as one word of the shell."""
        parts = [self._format_part(part) for part in words] or [self.quote("")]
        return parts[0] if len(parts) == 1 else self.group.format(text=self.joiner.join(parts))

    def _format_part(self, part: Value) -> str:
        return self.variable.format(name=part.name) if isinstance(part, Variable) else self.quote(part)


def _quote_for_fish(text: str) -> str:
    needs_no_quotes = shlex.quote(text) == text
    return text if needs_no_quotes else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quote_for_powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


SHELLS = {
    "sh": Shell(
        quote=shlex.quote,
        variable='"${name}"',
        export="export {name}={value}",
        unset="unset {name}",
        new_folder="export {name}=$(mktemp -d)",
        subfolder='mkdir -p "${folder}"/{path}',
        file='printf %s {text} > "${folder}"/{path}',
    ),
    "fish": Shell(
        quote=_quote_for_fish,
        variable='"${name}"',
        export="set -gx {name} {value}",
        unset="set -e {name}",
        new_folder="set -gx {name} (mktemp -d)",
        subfolder='mkdir -p "${folder}"/{path}',
        file='printf %s {text} > "${folder}"/{path}',
    ),
    "powershell": Shell(
        quote=_quote_for_powershell,
        variable="$env:{name}",
        export="$env:{name} = {value}",
        unset="Remove-Item Env:{name} -ErrorAction Ignore",
        new_folder="$env:{name} = Join-Path ([IO.Path]::GetTempPath()) ([Guid]::NewGuid())\n"
        "New-Item -ItemType Directory $env:{name} | Out-Null",
        subfolder="New-Item -ItemType Directory (Join-Path $env:{folder} {path}) | Out-Null",
        file="[IO.File]::WriteAllText((Join-Path $env:{folder} {path}), {text})",
        start="& {command}",
        joiner=" + ",
        group="({text})",
    ),
}


def _detect_shell() -> str:
    """Return the name of the user's shell, according to the environment."""
    if os.name == "nt":
        return "powershell"
    return "fish" if Path(os.environ.get("SHELL", "")).name == "fish" else "sh"


def format_lines(agent: AgentProfile, shell: Shell, values: Mapping[str, Value]) -> Iterator[str]:
    """Format the commands that configure an agent, and the one that starts it as the last line."""
    setup = agent.setup({**values, "folder": FOLDER_VARIABLE})
    if setup.files:
        yield shell.new_folder.format(name=FOLDER_VARIABLE.name)
    for path in _list_folders([*setup.files]):
        yield shell.subfolder.format(folder=FOLDER_VARIABLE.name, path=shell.quote(path))
    for path, content in setup.files.items():
        yield shell.file.format(folder=FOLDER_VARIABLE.name, path=shell.quote(path), text=shell.format_text(content))
    for name, value in setup.variables.items():
        yield shell.export.format(name=name, value=shell.format_text(value))
    for name in setup.unset:
        yield shell.unset.format(name=name)
    words = [shell.quote(agent.commands[0]), *map(shell.format_text, setup.arguments)]
    yield shell.start.format(command=" ".join(words))


def _list_folders(paths: Sequence[str]) -> list[str]:
    """List the folders of files, except the agent's folder itself."""
    folders = [str(PurePosixPath(path).parent) for path in paths]
    return [folder for folder in dict.fromkeys(folders) if folder != "."]


@click.command(short_help="Print shell commands that start a coding agent with VTC.")
@click.argument("agent", type=AgentName())
@click.argument("upstream", metavar="[URL]", default="")
@click.option("--model", help=f"The model's name at your server. [the only model at URL, or {PLACEHOLDER_MODEL}]")
@click.option("--port", type=click.IntRange(1, 65535), help=f"The port of VTC. [{launch.PORT}]")
@click.option("--host", help="The address at which the agent reaches VTC. [127.0.0.1]")
@click.option(
    "--key-env",
    type=VariableName(),
    help=f"The environment variable with the server's key. Without it, the key is `{PLACEHOLDER_KEY}`.",
)
@click.option("--shell", type=click.Choice([*SHELLS]), help="The shell that runs the commands. [your shell]")
@profile_directories
def env(
    agent: str,
    upstream: str,
    model: str | None,
    port: int | None,
    host: str | None,
    key_env: str | None,
    shell: str | None,
    directories: tuple[Path, ...],
) -> None:
    """Print shell commands that start AGENT with VTC as its server.

    The commands set variables, write the agent's files into a new folder, and run the agent; they change none of your
    files. `vtc env` itself writes nothing. `vtc run` must be running; `vtc launch AGENT` starts both.

    URL is your model server or the running VTC; its path is appended to the address that the agent uses. Without
    --model it is asked for its only model, and for the size of its context window.
    """
    file, settings = config.load_config(None)
    profiles = common.load_profiles(directories or config.list_directories(file, settings))
    profile = find_agent(profiles, agent)
    server, path = split_upstream(upstream)
    reached_at = host or "127.0.0.1"
    address = f"http://{f'[{reached_at}]' if ':' in reached_at else reached_at}:{port or settings.port or launch.PORT}"
    if _is_local_vtc(server) and not (host or port):
        address = server
    _warn_of_strangers(address, settings.choose_confdir(()))
    key: Value = Variable(key_env) if key_env else PLACEHOLDER_KEY
    window = ""
    login = None if model or key_env else profile.with_login(server)
    if server and not (model or login):
        asker = OnceAsker(
            server + path, key=os.environ.get(key_env, "") if key_env else "", trust=settings.build_trust(())
        )
        model = _find_only_model(asker, profiles)
        window = find_window(asker, profiles, model) if model else ""
    if not (model or login):
        click.echo(f"vtc: {PLACEHOLDER_MODEL} stands for the name of your model: give it by --model", err=True)
    values = {"address": address + path, "model": model or PLACEHOLDER_MODEL, "key": key, "window": window}
    for line in format_lines(login or profile, SHELLS[shell or _detect_shell()], values):
        click.echo(line)


def _find_only_model(asker: Asker, profiles: Profiles) -> str:
    """Return the only model of a server. If it has none or several, report that, and return an empty text."""
    try:
        names = list_models(asker, profiles)
    except click.ClickException as error:
        click.echo(f"vtc: {error.message}", err=True)
        return ""
    if len(names) > 1:
        click.echo(f"vtc: {asker.url} has multiple models: {', '.join(names[:9])}", err=True)
    return names[0] if len(names) == 1 else ""


def _is_local_vtc(server: str) -> bool:
    """Return True if a VTC on this machine answers at a URL. Servers on other machines are not probed."""
    return _is_local(server) and request_status(Asker(server, seconds=1))[0] is not None


def _warn_of_strangers(address: str, confdir: str) -> None:
    """Warn if another user of this machine may own the program at the address that the agent will use."""
    if _is_local(address):
        status, answer = request_status(Asker(address, seconds=1), confdir)
        if not (answer.error or (status and status.is_own)):
            click.echo(f"vtc: something listens at {address}, but {format_ownership_fault(confdir)}", err=True)


def _is_local(server: str) -> bool:
    url = urlsplit(server)
    return url.scheme == "http" and Address(url.hostname or "", 0).is_loopback
