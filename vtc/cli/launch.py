"""`vtc launch`: VTC before a model server and a coding agent that asks it, by one command.

The agent has the terminal, and Ctrl-C is its own; VTC runs in a session of its own beside it, on a free port, and ends
with it. What the agent is told stands in its profile (`kind: agent`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from vtc.cli import children, common, config, local_servers
from vtc.cli.common import profile_directories, split_upstream
from vtc.cli.env import PLACEHOLDER_KEY, AgentName, VariableName, find_agent
from vtc.cli.run import run
from vtc.profiles.agents import AgentProfile, AgentSetup, text
from vtc.profiles.document import join_words
from vtc.profiles.loader import Profiles
from vtc.profiles.schema import API_NAMES
from vtc.proxy import launch as programs
from vtc.proxy.asker import Asker
from vtc.proxy.findings import detect_apis, identify_server
from vtc.proxy.findings import list_models as models_of
from vtc.proxy.stats import Figures
from vtc.proxy.status import format_ownership_fault, request_status

STARTUP_SECONDS = 60.0
"""Seconds after which a VTC that does not answer is given up."""
STARTUP_POLL_SECONDS = 0.05
RUN_OPTIONS = ("tools", "dialect", "blocks", "server", "api", "retry", "observe", "sets")
"""The options that are those of `vtc run`."""


class LaunchError(click.ClickException):
    """A call that cannot be carried out as it was typed, told in one line."""

    exit_code = 2


class LaunchCommand(click.Command):
    """Keeps what stands after `--` for the agent."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        at = arguments.index("--") if "--" in arguments else len(arguments)
        context.meta["arguments"] = arguments[at + 1 :]
        try:
            return super().parse_args(context, arguments[:at])
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"there is no option {error.option_name}{common.format_nearest_option(error)}; "
                f"the agent's own go after `--`: vtc launch AGENT URL -- {error.option_name}",
                context,
            ) from None


def add_run_options[F: click.Command](command: F) -> F:
    """Give a command the options of `vtc run` that say how VTC works."""
    command.params += [option for option in run.params if option.name in RUN_OPTIONS]
    return command


@add_run_options
@click.command(cls=LaunchCommand, short_help="Start a coding agent that asks your server by way of VTC.")
@click.argument("agent", type=AgentName())
@click.argument("upstream", metavar="[URL]", default="")
@click.option("--model", help="The name that the server has. [the only one, or the one that you choose]")
@click.option(
    "--key-env", type=VariableName(), help=f"The variable that holds the server's key. [the key: {PLACEHOLDER_KEY}]"
)
@profile_directories
def launch(
    agent: str,
    upstream: str,
    model: str | None,
    key_env: str | None,
    directories: tuple[Path, ...],
    **options: Any,
) -> None:
    """Start AGENT so that it asks the model server at URL by way of VTC, and end VTC after it.

    Without URL, the server is that of vtc.yaml, or one that answers on a usual port of this machine. What stands after
    `--` goes to the agent: `vtc launch codex http://127.0.0.1:8000 -- exec "Tidy up"`. A VTC of yours that runs before
    that server is used, if no option asks for another. No file of yours is changed.
    """
    file, settings = config.load_config(None)
    profiles = common.load_profiles(directories or config.list_directories(file, settings))
    profile = find_agent(profiles, agent)
    program = next(filter(None, map(shutil.which, profile.commands)), None)
    if program is None:
        how = f": {profile.install}" if profile.install else ""
        raise LaunchError(f"{profile.title} is not installed; {join_words(profile.commands)} is not on PATH{how}")
    key = os.environ.get(key_env, "") if key_env else PLACEHOLDER_KEY
    if not key:
        raise LaunchError(f"--key-env: the variable {key_env} is not set, or empty")
    server, path = split_upstream(upstream or settings.upstream)
    if key_env and not server:
        raise LaunchError(f"--key-env: name the server whose key it is: vtc launch {profile.name} URL")
    server = server or local_servers.choose_server(f"vtc launch {profile.name}")
    if not server:
        raise LaunchError(
            f"no model server answers on ports {local_servers.format_ports()} of this machine: "
            f"vtc launch {profile.name} URL"
        )
    asker = Asker(server + path, key=key if key_env else "", trust=settings.build_trust(options["sets"]))
    names = _list_models(asker, profiles)
    chosen = model or _choose_model(names, profile, server + path)
    if path and not options["api"]:  # VTC itself asks servers at their roots
        options = {**options, "api": ",".join(detect_apis(asker))}
    asked = [
        *_render_typed_options(options),
        *(word for directory in directories for word in ("--profiles", str(directory))),
    ]
    given = [*asked, "--model", chosen, *(("--key-env", key_env) if key_env else ())]
    with ExitStack() as stack:
        stack.enter_context(children.exit_on_signals())
        folder = Path(tempfile.mkdtemp(prefix="vtc-launch-"))
        stack.callback(_remove_folder, folder)
        confdir = settings.choose_confdir(options["sets"])
        address = None if asked else _find_running(settings.port or programs.PORT, server, confdir)
        proxy = None if address else stack.enter_context(OwnProxy.start(server, given, folder, settings.log, confdir))
        at = (address or (proxy.address if proxy else "")) + path
        setup = profile.setup({"address": at, "model": chosen, "key": key, "folder": str(folder / "agent")})
        _write_files(setup, folder / "agent")
        code = _run_agent([program, *map(text, setup.arguments), *click.get_current_context().meta["arguments"]], setup)
        if proxy:
            proxy.stop(code)
    sys.exit(code)


def _render_typed_options(options: Mapping[str, Any]) -> Iterator[str]:
    """Write the options of `vtc run` that were typed."""
    for option in run.params:
        value = options.get(option.name or "") or ()
        for word in value if isinstance(value, tuple) else (value,):
            yield option.opts[0]
            if word is not True:
                yield str(word)


# The model server.


def _list_models(asker: Asker, profiles: Profiles) -> list[str]:
    """List the models of a server; ends the program if it does not answer."""
    identity = identify_server(asker, profiles)
    if not identity.is_there:
        raise click.ClickException(identity.message)
    return [*(identity.models or models_of(asker, API_NAMES))]


def _choose_model(names: Sequence[str], agent: AgentProfile, server: str) -> str:
    """Choose a model of a server, or have the user choose."""
    if len(names) == 1:
        return names[0]
    call = f"vtc launch {agent.name} {server} --model"
    if not names:
        raise LaunchError(f"{server} lists no models: {call} NAME")
    if not sys.stdin.isatty():
        raise LaunchError(f"{server} has several models, {', '.join(names[:9])}: {call} {names[0]}")
    return names[local_servers.prompt_choice(f"{server} has several models:", names)]


# VTC.


def _find_running(port: int, server: str, confdir: str) -> str | None:
    """Find the address of a VTC of this user that runs already before that very server.

    Any user of this machine may listen there, and would be sent the key and all prompts.
    """
    address = f"http://127.0.0.1:{port}"
    status, _ = request_status(Asker(address, seconds=1), confdir)
    if not (status and status.mode == "rewrite" and status.is_before(server)):
        return None
    if not status.is_own:
        click.echo(f"vtc: the VTC at {address} is not used: {format_ownership_fault(confdir)}", err=True)
        return None
    click.echo(f"vtc: the VTC at {address} is used", err=True)
    return address


class OwnProxy:
    """A VTC that was started for one run of an agent; its lines go to a file."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, folder: Path, confdir: str) -> None:
        self.address = address
        self._confdir = confdir
        self._process = process
        self._log = folder / "vtc.log"
        self._exchanges = folder / "exchanges.jsonl"

    @classmethod
    @contextmanager
    def start(
        cls, server: str, arguments: Sequence[str], folder: Path, own_log: str | None, confdir: str
    ) -> Iterator[OwnProxy]:
        """Start it on a free port before a server, and end it however the block is left."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # Not from the current folder: a module there could bear our name.
        command = [sys.executable, "-P", "-m", "vtc", "run", server, "--host", "127.0.0.1", "--port", str(port)]
        command += arguments if own_log else [*arguments, "--log", str(folder / "exchanges.jsonl")]
        with (folder / "vtc.log").open("wb") as log:
            process = children.start_vtc(command, log, folder)
        proxy = cls(process, f"http://127.0.0.1:{port}", folder, confdir)
        try:
            proxy._wait_until_ready(server)
            yield proxy
        finally:
            children.stop_vtc(process)

    def _wait_until_ready(self, server: str) -> None:
        begun = time.monotonic()
        while self._process.poll() is None and time.monotonic() - begun < STARTUP_SECONDS:
            status, _ = request_status(Asker(self.address, seconds=1), self._confdir)
            if status and status.is_before(server) and status.is_own:  # another program may have taken the port
                return
            time.sleep(STARTUP_POLL_SECONDS)
        lines = self._log.read_text("utf-8", "replace").strip()
        raise click.ClickException(f"VTC did not start:\n{lines}" if lines else "VTC did not start")

    def stop(self, code: int) -> None:
        """End it after its agent; where anything went wrong, keep its lines and say where they are."""
        early = self._process.poll() is not None
        children.stop_vtc(self._process)
        faults = ["VTC ended before the agent"] * early + [*self._list_faults()]
        faults += [f"the agent ended with {code}"] * (0 < code < 128)  # beyond, a signal ended it
        if faults:
            handle, name = tempfile.mkstemp(prefix="vtc-launch-", suffix=".log")
            os.close(handle)
            shutil.copyfile(self._log, name)
            click.echo(f"vtc: {', '.join(faults)}: what VTC did stands in {name}", err=True)

    def _list_faults(self) -> Iterator[str]:
        """Tell what VTC noted of the exchanges."""
        figures = Figures()
        with suppress(OSError, ValueError):
            for line in self._exchanges.read_text("utf-8").splitlines():
                figures.add(json.loads(line))
        for words, count in (
            ("possible calls not read", figures.unread),
            ("errors of the server", figures.errors),
            ("errors in VTC", figures.failed),
        ):
            if count:
                yield f"{words}: {count}"


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


# The agent.


def _write_files(setup: AgentSetup, folder: Path) -> None:
    """Write the files of an agent, which hold its key, for this user alone."""
    folder.mkdir(mode=0o700)
    for name, content in setup.files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text(content), "utf-8")


def _build_environment(setup: AgentSetup) -> dict[str, str]:
    """Make the environment of an agent: the user's, with what its profile sets and takes out."""
    variables = {name: value for name, value in os.environ.items() if name not in setup.unset}
    variables |= {name: text(words) for name, words in setup.variables.items()}
    for name in ("NO_PROXY", "no_proxy"):  # a proxy of the user's has nothing to do between the agent and VTC
        if any(proxy in variables for proxy in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")):
            variables[name] = ",".join(filter(None, [variables.get(name), "127.0.0.1"]))
    return variables


def _run_agent(command: Sequence[str], setup: AgentSetup) -> int:
    """Run an agent in the foreground; returns its exit code, as shells write those of signals."""
    process = subprocess.Popen(command, env=_build_environment(setup))

    def passed_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    # The terminal sends Ctrl-C to the agent, too: it alone decides what that means.
    before = {number: signal.signal(number, _ignore_signal) for number in TERMINAL_SIGNALS}
    before |= {number: signal.signal(number, passed_on) for number in children.TERMINATING_SIGNALS}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


TERMINAL_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)]


def _ignore_signal(_: int, __: FrameType | None) -> None:
    """Do nothing; to ignore a signal instead would have the agent ignore it."""
