"""`vtc doctor`: checks of the installation, the settings and the running proxy, as lines for an issue report."""

from __future__ import annotations

import json
import platform
import socket
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import click
from cryptography import x509

from vtc import __version__
from vtc.cli import common, config
from vtc.cli.common import profile_directories, trust_settings
from vtc.cli.config import Config
from vtc.profiles import loader
from vtc.profiles.document import ProfileError
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings
from vtc.proxy import launch
from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.findings import collect_findings
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.asking.status import STATUS_PATH, format_ownership_fault, request_status
from vtc.proxy.trust import TrustError
from vtc.reporting import hints
from vtc.scrub import escape_invisible, scrub_text

CALL_SECONDS = 120
"""Time limit of the test call in seconds; long, because the server may have to load the model first."""
TEST_TOOL = {
    "type": "function",
    "function": {
        "name": "report_word",
        "description": "Reports a word to the user.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}
TEST_QUESTION = "Call the tool report_word with the word: fine"
OUTCOME_MARKS: dict[CheckOutcome, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "note": ("--", "cyan"),
    "wrong": ("!!", "red"),
}

type CheckOutcome = Literal["ok", "note", "wrong"]


class CheckLine(NamedTuple):
    """One line of the output."""

    outcome: CheckOutcome
    message: str


@click.command(short_help="Check the installation, the settings and the running proxy, and try a call.")
@click.argument("upstream", default="")
@click.option("--port", type=click.IntRange(1, 65535), help=f"The port of VTC. [{launch.PORT}]")
@click.option("--no-call", is_flag=True, help="Send no test call through the running proxy.")
@trust_settings
@profile_directories
def doctor(
    upstream: str, port: int | None, sets: tuple[str, ...], directories: tuple[Path, ...], *, no_call: bool
) -> None:
    """Check versions, settings, profiles, port, certificate and the model server UPSTREAM (or `upstream` of vtc.yaml).

    If VTC runs in front of that server, one request with a made-up tool is sent through it. The output contains no
    secret, so it can be pasted into an issue report. Exits with 1 if a check fails.
    """
    has_failed = False
    for line in _run_checks(upstream, port, sets, directories, call=not no_call):
        has_failed |= line.outcome == "wrong"
        mark, colour = OUTCOME_MARKS[line.outcome]
        click.echo(f"{click.style(mark, fg=colour)}  {_redact(line.message)}")
    sys.exit(has_failed)


def _run_checks(
    upstream: str, port: int | None, sets: Sequence[str], directories: tuple[Path, ...], *, call: bool
) -> Iterator[CheckLine]:
    """Run all checks; `call` allows a test call through the running proxy."""
    # Step 1: versions and settings.
    yield CheckLine("ok", f"VTC {__version__}, mitmproxy {launch.MITMPROXY}, Python {platform.python_version()}")
    yield CheckLine("note", f"{platform.platform()}, {sys.executable}")
    settings = Config()
    if file := config.find_config(None):
        try:
            settings = config.read_config(file)
            yield CheckLine("ok", f"settings from {file}")
        except ProfileError as error:
            yield CheckLine("wrong", str(error))
    else:
        yield CheckLine("note", f"no {config.CONFIG_FILE_NAME} here or in {click.get_app_dir('vtc')}")
    # Step 2: profiles. If they are wrong, the other checks continue with the built-in ones.
    directories = directories or tuple(
        config.resolve_path(file or Path(), directory) for directory in settings.profiles
    )
    try:
        profiles = loader.load_profiles([loader.builtin_directory(), *directories])
        yield CheckLine("ok", f"profiles: {profiles.format_counts()}")
    except ProfileError as error:
        yield CheckLine("wrong", f"profiles: {error}")
        profiles = loader.load_profiles([loader.builtin_directory()])
    # Step 3: the certificate, the model server and the running proxy.
    yield _check_certificate()
    server, models, url = upstream or settings.upstream, list[str](), ""
    if server:
        try:
            url = common.normalize_url(server, "UPSTREAM")
            yield from map(_escape_line, _check_server(Asker(url, trust=settings.build_trust(sets)), profiles, models))
        except click.BadParameter as error:
            yield _escape_line(CheckLine("wrong", error.message))
        except TrustError as error:
            yield _escape_line(CheckLine("wrong", str(error)))
    else:
        yield CheckLine("note", "no model server is named; to check one: vtc doctor http://127.0.0.1:8000")
    at = port or settings.port or launch.PORT
    yield from map(_escape_line, _check_proxy(at, url, models if call else [], settings.choose_confdir(())))


def _check_proxy(port: int, server: str, models: Sequence[str], confdir: str) -> Iterator[CheckLine]:
    """Check the program that listens at VTC's port; try a call with the first of `models` through it."""
    at = f"127.0.0.1:{port}"
    if not _is_listening(port):
        yield CheckLine("note", f"nothing listens at {at}; VTC does not run there")
        return
    status, answer = request_status(Asker(f"http://{at}"), confdir)
    if status is None:
        yield CheckLine("wrong", _describe_stranger(at, answer))
        return
    yield CheckLine("ok", f"VTC {status.version} listens at {at}, mode {status.mode}, in front of {status.upstream}")
    if status.version != __version__:
        yield CheckLine("note", f"it is not this VTC {__version__}; restart it after an update")
    if not status.is_own:
        yield CheckLine("note", f"{format_ownership_fault(confdir)}; `vtc launch` starts another")
    if server and not status.is_in_front_of(server):
        yield CheckLine(
            "wrong", f"it does not run in front of {server}; start another VTC: vtc run {server}, with another --port"
        )
    elif status.mode != "rewrite":
        yield CheckLine("note", f"mode {status.mode} changes nothing, so no call was tried")
    elif models:
        yield _try_call(f"http://{at}", models[0])
    else:
        yield CheckLine("note", "no call was tried")


def _describe_stranger(at: str, answer: ServerAnswer) -> str:
    """Describe the program at VTC's port that is not a VTC in front of a model server."""
    if answer.headers.get("server", "").startswith("mitmproxy"):
        return f"a mitmproxy without a model server listens at {at}; is it an ordinary proxy?"
    received = answer.why if answer.error else f"{answer.status} to GET {STATUS_PATH}"
    return (
        f"another program, or a mitmproxy without VTC, listens at {at} (its answer: {received}); "
        "start VTC with another --port"
    )


def _check_certificate() -> CheckLine:
    """Check the certificate that clients must trust when VTC is an ordinary proxy for HTTPS."""
    file = launch.get_certificate_path()
    try:
        valid_until = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except OSError:
        return CheckLine("note", f"no certificate at {file}; mitmproxy creates it at its first start")
    except ValueError:
        return CheckLine("wrong", f"{file} contains no certificate; remove it, and mitmproxy creates another")
    if valid_until < datetime.now(UTC):
        return CheckLine(
            "wrong", f"the certificate {file} has expired; remove it, and trust the new one that mitmproxy creates"
        )
    return CheckLine("ok", f"certificate {file}, valid until {valid_until:%Y-%m-%d}")


def _check_server(asker: Asker, profiles: Profiles, models: list[str]) -> Iterator[CheckLine]:
    """Identify a model server, and add the names of its models to `models`."""
    found = collect_findings(asker, Planner(profiles, Settings()))
    has_failed = not (found.server or found.has_model_list)
    first, *more = found.lines
    yield CheckLine("wrong" if has_failed else "ok", first)
    yield from (CheckLine("ok", line) for line in more)
    models += found.models.names
    if not (has_failed or models):
        yield CheckLine("note", "it lists no models")


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def _try_call(base: str, model: str) -> CheckLine:
    """Ask the model for one test call through the running proxy."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": TEST_QUESTION}],
        "tools": [TEST_TOOL],
        "max_tokens": 500,
    }
    question = f"asked {model} for a call through {base}"
    headers = {"user-agent": f"vtc-doctor/{__version__}"}
    answer = Asker(base, seconds=CALL_SECONDS).ask(
        ServerQuestion("/v1/chat/completions", json.dumps(body).encode(), headers)
    )
    if answer.error:
        return CheckLine("wrong", f"{question}: no reply ({answer.why})")
    if not answer.ok:
        return CheckLine("wrong", f"{question}: {hints.explain_error(answer.status, answer.body)}")
    try:
        message = answer.json["choices"][0]["message"]
        calls = [call["function"]["name"] for call in message.get("tool_calls") or []]
    except (LookupError, TypeError, AttributeError) as error:
        return CheckLine("wrong", f"{question}: no reply ({type(error).__name__})")
    if "report_word" in calls:
        return CheckLine("ok", f"{question}: received it as `tool_calls`")
    text = " ".join(str(message.get("content") or "").split())
    return CheckLine(
        "wrong", f"{question}: received no call, but {text[:200]!r}; `vtc explain` shows how its replies are parsed"
    )


def _escape_line(line: CheckLine) -> CheckLine:
    """Escape line breaks and control sequences of a terminal, because the text can be from a server."""
    return line._replace(message=escape_invisible(line.message))


def _redact(text: str) -> str:
    """Remove secrets and the path of the user's home from a text."""
    return scrub_text(text.replace(str(Path.home()), "~"))
