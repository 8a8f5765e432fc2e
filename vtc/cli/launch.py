"""`vtc launch`: start VTC in front of a model server, and a coding agent that uses it.

The agent owns the terminal, including Ctrl-C. VTC runs in a separate session on a free port, and ends with the agent.
The agent's profile (`kind: agent`) defines its variables, arguments and files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from vtc.cli import children, common, config, local_servers
from vtc.cli.common import profile_directories, split_upstream
from vtc.cli.env import PLACEHOLDER_KEY, AgentName, VariableName, find_agent
from vtc.cli.flags import add_flags, set_option
from vtc.cli.server_models import OnceAsker, find_window, list_models
from vtc.profiles.agents import AgentProfile, AgentSetup, join_phrase
from vtc.profiles.document import join_words
from vtc.proxy import launch as programs
from vtc.proxy.addon_settings import SECRET_VARIABLE
from vtc.proxy.asking.asker import Asker
from vtc.proxy.asking.findings import detect_apis
from vtc.proxy.asking.status import format_ownership_fault, request_status
from vtc.proxy.showing.stats import Figures

STARTUP_SECONDS = 60.0
"""Seconds that VTC has to answer after its start."""
STARTUP_POLL_SECONDS = 0.05
MAX_OLD_LOGS = 4
"""Number of logs of earlier launches that are kept when one more is saved."""


class LaunchError(click.ClickException):
    """Error of the command line or of its environment: reported in one line, with exit code 2."""

    exit_code = 2


class LaunchCommand(click.Command):
    """A command that stores the arguments after `--` for the agent."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        at = arguments.index("--") if "--" in arguments else len(arguments)
        context.meta["arguments"] = arguments[at + 1 :]
        try:
            return super().parse_args(context, arguments[:at])
        except click.NoSuchOption as error:
            raise click.UsageError(
                f"there is no option {error.option_name}{common.format_nearest_option(error)}; "
                f"options of the agent go after `--`: vtc launch AGENT URL -- {error.option_name}",
                context,
            ) from None


@click.command(cls=LaunchCommand, short_help="Start a coding agent that uses your server through VTC.")
@click.argument("agent", type=AgentName())
@click.argument("upstream", metavar="[URL]", default="")
@click.option("--model", help="The model's name at the server. [its only model, or you are asked]")
@click.option(
    "--key-env",
    type=VariableName(),
    help=f"The environment variable with the server's key. Without it, the key is `{PLACEHOLDER_KEY}`.",
)
@click.option("--web", is_flag=True, help="Run mitmweb, and print the address of its pages.")
@click.option("--ui", is_flag=True, help="Print the command that shows the exchanges in another terminal.")
@profile_directories
@add_flags("launch")
@set_option
def launch(
    agent: str,
    upstream: str,
    model: str | None,
    key_env: str | None,
    web: bool,
    ui: bool,
    directories: tuple[Path, ...],
    sets: tuple[str, ...],
    **options: Any,
) -> None:
    """Start AGENT so that it uses the model server at URL through VTC; VTC is stopped when the agent exits.

    Without URL, the server is `upstream` of vtc.yaml, or a model server that answers at a usual port of this machine.
    Arguments after `--` are passed to the agent: `vtc launch codex http://127.0.0.1:8000 -- exec "Tidy up"`. If your
    VTC already runs in front of that server, it is used, unless you give options of VTC. None of your files is changed.
    On its makers' own server an agent keeps your login and models: `vtc launch claude https://api.anthropic.com`.
    """
    # Step 1: find the agent and its program, the key, and the server.
    file, settings = config.load_config(None)
    profiles = common.load_profiles(directories or config.list_directories(file, settings))
    profile = find_agent(profiles, agent)
    program = _find_program(profile)
    key = os.environ.get(key_env, "") if key_env else PLACEHOLDER_KEY
    if not key:
        raise LaunchError(f"--key-env: the variable {key_env} is not set or is empty")
    server, path = split_upstream(upstream or settings.upstream)
    server = server or _choose_local_server(profile.name, has_key=bool(key_env))
    # Step 2: choose the model, and the options of a VTC of this launch.
    asker = OnceAsker(server + path, key=key if key_env else "", trust=settings.build_trust(sets))
    chosen = window = ""
    if login := None if model or key_env else profile.with_login(server):
        profile = login
    else:
        names = list_models(asker, profiles, model)  # also with --model, because it checks that the server answers
        chosen = model or _choose_model(names, profile, server + path)
        window = find_window(asker, profiles, chosen)
    if path and not options["api"]:  # because VTC probes servers only at their root
        options["api"] = ",".join(detect_apis(asker))
    typed = _build_arguments(config.format_options(options), sets, directories, web=web)
    arguments = [*typed, *(("--model", chosen) if chosen else ()), *(("--key-env", key_env) if key_env else ())]
    # Step 3: use a running VTC or start one, then run the agent.
    with ExitStack() as stack:
        stack.enter_context(children.exit_on_signals())
        folder = Path(tempfile.mkdtemp(prefix="vtc-launch-"))
        stack.callback(_remove_folder, folder)
        confdir = settings.choose_confdir(sets)
        address = None if typed else _find_running(settings.port or programs.PORT, server, confdir)
        log = settings.flags["log"]
        proxy = None if address else stack.enter_context(OwnProxy.start(server, arguments, folder, log, confdir))
        address = address or (proxy.address if proxy else "")
        _report_address(address, proxy.find_page() if proxy and web else "", shown=ui)
        at = address + path
        values = {"address": at, "model": chosen, "key": key, "folder": str(folder / "agent"), "window": window}
        setup = profile.setup(values)
        _write_files(setup, folder / "agent")
        code = _run_agent(program, setup, click.get_current_context().meta["arguments"])
        if proxy:
            proxy.stop(code)
    sys.exit(code)


def _find_program(agent: AgentProfile) -> str:
    """Return the path of an agent's program; raise `LaunchError` if it is not installed."""
    program = next(filter(None, map(shutil.which, agent.commands)), None)
    if program is None:
        advice = f": {agent.install}" if agent.install else ""
        raise LaunchError(f"{agent.title} is not installed; {join_words(agent.commands)} is not on PATH{advice}")
    return program


def _build_arguments(
    options: Iterable[str], sets: Sequence[str], directories: Sequence[Path], *, web: bool
) -> list[str]:
    """Build the arguments of `vtc run` that the user has chosen."""
    arguments = programs.format_sets([*options, *sets])
    if web:
        arguments.append("--web")
    return arguments + [word for directory in directories for word in ("--profiles", str(directory))]


def _choose_local_server(agent: str, *, has_key: bool) -> str:
    """Return the URL of a model server on this machine; raise `LaunchError` if there is none, or a key to send."""
    if has_key:
        raise LaunchError(f"--key-env: name the server of the key: vtc launch {agent} URL")
    server = local_servers.choose_server(f"vtc launch {agent}")
    if not server:
        raise LaunchError(
            f"no model server answers on ports {local_servers.format_ports()} of this machine; "
            f"name one: vtc launch {agent} URL"
        )
    return server


def _choose_model(names: Sequence[str], agent: AgentProfile, server: str) -> str:
    """Return the only model of a server, or ask the user to choose one."""
    if len(names) == 1:
        return names[0]
    command = f"vtc launch {agent.name} {server} --model"
    if not names:
        raise LaunchError(f"{server} lists no models; name one: {command} NAME")
    if not sys.stdin.isatty():
        raise LaunchError(f"{server} has multiple models: {', '.join(names[:9])}; name one: {command} {names[0]}")
    return names[local_servers.prompt_choice(f"{server} has multiple models:", names)]


def _find_running(port: int, server: str, confdir: str) -> str | None:
    """Return the address of a running VTC of this user in front of the same server; None if there is none.

    The ownership matters because any user of this machine can listen at the port, and would receive the key and all
    prompts.
    """
    address = f"http://127.0.0.1:{port}"
    status, _ = request_status(Asker(address, seconds=1), confdir)
    if not (status and status.mode == "rewrite" and status.is_in_front_of(server)):
        return None
    if not status.is_own:
        click.echo(f"vtc: the VTC at {address} is not used: {format_ownership_fault(confdir)}", err=True)
        return None
    click.echo(f"vtc: using the VTC at {address}", err=True)
    return address


def _report_address(address: str, page: str, *, shown: bool) -> None:
    """Print the address of VTC for people: in a terminal, or if a view of its exchanges was asked for."""
    if page or shown or sys.stderr.isatty():
        click.echo(f"vtc: VTC listens at {address}", err=True)
    if page:
        click.echo(f"vtc: its pages are at {page}", err=True)
    if shown:  # this terminal is the agent's
        click.echo(f"vtc: to watch the exchanges, run in another terminal: vtc tail {address}", err=True)


class OwnProxy:
    """A VTC for one run of an agent; its output is written to a file."""

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
        """Start VTC in front of a server at a free port, and stop it when the block ends for any reason.

        Without `own_log`, the user's log of exchanges, VTC writes one into `folder`.
        """
        with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as free_for_pages:
            port, web_port = (server.getsockname()[1] for server in (free, free_for_pages))
        # `-P` excludes the current folder from imports, because a module there could be called `vtc`.
        command = [sys.executable, "-P", "-m", "vtc", "run", server, "--host", "127.0.0.1", "--port", str(port)]
        if "--web" in arguments and not any("web_port=" in argument for argument in arguments):
            command += ["--set", f"web_port={web_port}"]
        command += arguments if own_log else [*arguments, "--log", str(folder / "exchanges.jsonl")]
        with (folder / "vtc.log").open("wb") as log:
            process = children.start_vtc(command, log, folder)
        proxy = cls(process, f"http://127.0.0.1:{port}", folder, confdir)
        try:
            proxy._wait_until_ready(server, web="--web" in arguments)
            yield proxy
        finally:
            children.stop_vtc(process)

    def find_page(self) -> str:
        """Find the address of mitmweb's pages, with its token, in VTC's output; empty if it is not there yet."""
        match = re.search(r"Web server listening at (\S+)", self._log.read_text("utf-8", "replace"))
        return match[1] if match else ""

    def _wait_until_ready(self, server: str, *, web: bool) -> None:
        """Wait until VTC answers; raise `ClickException` with its output if it does not start."""
        started_at = time.monotonic()
        while self._process.poll() is None and time.monotonic() - started_at < STARTUP_SECONDS:
            status, _ = request_status(Asker(self.address, seconds=1), self._confdir)
            is_ready = status and status.is_in_front_of(server) and status.is_own  # not a program that took the port
            if is_ready and (self.find_page() or not web):
                return
            time.sleep(STARTUP_POLL_SECONDS)
        output = self._log.read_text("utf-8", "replace").strip()
        raise click.ClickException(f"VTC did not start:\n{output}" if output else "VTC did not start")

    def stop(self, code: int) -> None:
        """Stop VTC after the agent exited with `code`; if there were faults, save VTC's output and print the path."""
        ended_early = self._process.poll() is not None
        children.stop_vtc(self._process)
        faults = ["VTC ended before the agent"] if ended_early else []
        faults += self._list_faults()
        if 0 < code < 128:  # a higher code denotes a signal
            faults.append(f"the agent ended with {code}")
        if faults:
            _remove_old_logs()
            handle, name = tempfile.mkstemp(prefix="vtc-launch-", suffix=".log")
            os.close(handle)
            shutil.copyfile(self._log, name)
            click.echo(f"vtc: {', '.join(faults)}; the log of VTC is in {name}", err=True)

    def _list_faults(self) -> Iterator[str]:
        """Yield faults that VTC recorded in the log of exchanges, each with its number of occurrences."""
        figures = Figures()
        with suppress(OSError, ValueError):
            for line in self._exchanges.read_text("utf-8").splitlines():
                figures.add(json.loads(line))
        for fault, count in (
            ("possible calls not read", figures.unread),
            ("errors of the server", figures.errors),
            ("errors in VTC", figures.failed),
        ):
            if count:
                yield f"{fault}: {count}"


def _remove_old_logs() -> None:
    """Remove the logs of earlier launches of this user, except the last few."""
    logs = list[tuple[float, Path]]()
    for file in Path(tempfile.gettempdir()).glob("vtc-launch-*.log"):
        with suppress(OSError):  # another launch may have removed it
            facts = file.lstat()
            if stat.S_ISREG(facts.st_mode) and (os.name == "nt" or facts.st_uid == os.getuid()):
                logs.append((facts.st_mtime, file))
    for _, file in sorted(logs)[:-MAX_OLD_LOGS]:
        with suppress(OSError):
            file.unlink()


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _write_files(setup: AgentSetup, folder: Path) -> None:
    """Write the files of an agent so that only this user can read them, because they can contain the key."""
    folder.mkdir(mode=0o700)
    for name, content in setup.files.items():
        path = folder / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(join_phrase(content), "utf-8")


def _build_environment(setup: AgentSetup) -> dict[str, str]:
    """Build the environment of an agent: the user's environment with the changes of the profile."""
    variables = {name: value for name, value in os.environ.items() if name not in (*setup.unset, SECRET_VARIABLE)}
    variables |= {name: join_phrase(words) for name, words in setup.variables.items()}
    for name in ("NO_PROXY", "no_proxy"):  # because requests to VTC must not pass through a proxy of the user
        if any(proxy in variables for proxy in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")):
            variables[name] = ",".join(filter(None, [variables.get(name), "127.0.0.1"]))
    return variables


def _run_agent(program: str, setup: AgentSetup, more: Sequence[str]) -> int:
    """Run an agent in the foreground with `more` arguments of the user.

    Return its exit code, or 128 plus the number of the signal that ended it.
    """
    command = [program, *map(join_phrase, setup.arguments), *more]
    process = subprocess.Popen(command, env=_build_environment(setup))

    def forward_signal(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)

    # The terminal also sends Ctrl-C to the agent, which alone decides how to react.
    before = {number: signal.signal(number, _ignore_signal) for number in TERMINAL_SIGNALS}
    before |= {number: signal.signal(number, forward_signal) for number in children.TERMINATING_SIGNALS}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


TERMINAL_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGQUIT", "SIGBREAK") if hasattr(signal, name)]
"""Signals that keys of the terminal send."""


def _ignore_signal(_: int, __: FrameType | None) -> None:
    """Do nothing. `SIG_IGN` would not work, because the agent would inherit it."""
