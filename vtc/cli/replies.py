"""Replies that a user gives to a command: what a model wrote, as text or in any file in which replies are kept."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from vtc.apis import APIS, Api, whole
from vtc.apis.contract import Reply
from vtc.events import ToolCall
from vtc.json_text import decode, encode
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings
from vtc.proxy import launch
from vtc.reporting.case import Case, parse_cases

HAR = re.compile(rb'\s*\{\s*"log"\s*:')  # used with match
FLOWS = re.compile(rb"\d+:")  # used with match
"""How the files begin in which flows are saved."""
CASES = re.compile(rb"(?:[^\S\n]*+(?:#[^\n]*+)?\n)*+- name:")  # used with match
"""How a file of cases begins."""
SHORT = 8
"""Characters of a flow's id that people are shown, and that the name of a case ends with."""


@dataclass(frozen=True, slots=True)
class GivenReply:
    """One reply of a model."""

    text: str
    source: str = ""
    """Where it is from, for people; empty for plain text."""
    reasoning: str = ""
    """The reasoning that the server parted off."""
    calls: tuple[ToolCall, ...] = ()
    """The server's own."""
    complete: bool = True
    case: Case | None = None
    """The tools that were offered, and how it was read."""

    @classmethod
    def of(cls, reply: Reply, source: str, case: Case | None = None) -> GivenReply:
        """Give a reply as its server sent it."""
        message = reply.message
        return cls(message.text, source, message.reasoning, message.calls, reply.complete, case)

    @property
    def id(self) -> str:
        """Return the id by which `--flow` chooses it; empty if it has none."""
        return self.case.name.rpartition(" ")[2] if self.case else ""


def reply_options[F: Callable[..., Any]](command: F) -> F:
    """Give a command the options that choose one of several replies, and where VTC runs that keeps it."""
    about = "The flow (or case) of FILE with this id; without FILE of a running VTC, whose line names it."
    command = click.option("--flow", default="", metavar="ID", help=about)(command)
    ports = click.IntRange(1, 65535)
    return click.option("--port", type=ports, default=launch.PORT, show_default=True, help="Where VTC listens.")(
        command
    )


def name_of(file: Any) -> str:
    """Return the name of a file that is open."""
    return str(getattr(file, "name", "<stdin>"))


def load_replies(file: Any, profiles: Profiles, flow: str = "", port: int = launch.PORT) -> list[GivenReply]:
    """Read the replies of a file, in whichever form they are; with `flow` that of one id, without a file of a VTC.

    Ends the program with an error where there are none, or none of this id.
    """
    if file is None and flow:
        return _of_cases(_fetch_unread_reply(flow, port))
    if file is None:
        raise click.UsageError("name FILE, or a flow of a running VTC (--flow ID)")
    name = name_of(file)
    try:
        replies = [*_replies(file.read(), name, profiles)]
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise click.ClickException(f"{name}: {error}") from None
    if not replies:
        raise click.ClickException(f"{name}: no exchange with a model in it")
    if not flow:
        return replies
    if chosen := [reply for reply in replies if reply.id.startswith(flow[:SHORT])]:
        return chosen
    ids = ", ".join(filter(None, (reply.id for reply in replies))) or "none, it is no file of flows or cases"
    raise click.ClickException(f"{name}: no flow {flow} in it; there are: {ids}")


def _fetch_unread_reply(flow: str, port: int) -> bytes:
    """Ask a VTC of this machine for a reply that it could not read."""
    from vtc.proxy.asker import Asker  # mitmproxy takes a second to load
    from vtc.proxy.unread_calls import MAX_CASES, UNREAD_PATH

    answer = Asker(f"http://127.0.0.1:{port}").ask(f"{UNREAD_PATH}{quote(flow)}")
    if answer.error:
        raise click.ClickException(
            f"nothing answers at 127.0.0.1:{port} ({answer.why}): name the --port of VTC, or the file of saved flows"
        )
    if not answer.ok:
        raise click.ClickException(
            f"VTC at 127.0.0.1:{port} keeps no reply with the id {flow} (only the last {MAX_CASES} that "
            "it could not read): name the file of saved flows"
        )
    return answer.body


def _replies(data: bytes, name: str, profiles: Profiles) -> Iterator[GivenReply]:
    """Read a file; raises ValueError."""
    if FLOWS.match(data) or HAR.match(data):
        yield from _of_flows(data, Planner(profiles, Settings()))
    elif Path(name).suffix in (".yaml", ".yml"):
        yield from _of_cases(data)
    elif replies := _of_api(data):
        yield from replies
    else:
        try:
            cases = _of_cases(data) if CASES.match(data) else []
        except ValueError:  # a model may write a list in YAML, too
            cases = []
        yield from cases or [GivenReply(io.TextIOWrapper(io.BytesIO(data), "utf-8").read())]


def _of_cases(data: bytes) -> list[GivenReply]:
    """Read cases, each of which has its tools written out; raises ValueError."""
    cases = parse_cases(data.decode())
    for case in cases:
        case.resolve_tools()
    return [GivenReply(case.text, f"case {case.name}", case=case) for case in cases]


def _of_flows(data: bytes, planner: Planner) -> Iterator[GivenReply]:
    from vtc.proxy import captured, flows  # mitmproxy takes a second to load

    for flow in flows.load_flows(io.BytesIO(data)):
        if not flows.find_client_api(flow):
            continue
        try:
            reply = captured.read_reply(flow)
            case = captured.make_case(flow, planner, reply)
        except ValueError as error:
            click.echo(f"vtc: flow {flow.id[:SHORT]} is skipped: {error}", err=True)
            continue
        yield GivenReply.of(reply, f"flow {flow.id[:SHORT]}, {flow.request.pretty_host}{flows.format_path(flow)}", case)


def _of_api(data: bytes) -> list[GivenReply]:
    """Read a reply as an API sends it; empty if it is none of any."""
    for api in APIS:
        try:
            replies = whole.read_replies(api, _body(api, data))
        except (ValueError, LookupError):
            continue
        return [GivenReply.of(reply, f"a reply of {api.name}") for reply in replies]
    return []


def _body(api: Api, data: bytes) -> bytes:
    """Return a whole reply on one line, however it was laid out, and a list as the stream that says the same."""
    try:
        value = decode(data)
    except ValueError:
        return data
    if isinstance(value, list) and all(isinstance(event, dict) for event in value):
        return b"".join(api.framing.encode(value))
    return encode(value)


def of_lines(file: Iterable[bytes]) -> Iterator[tuple[GivenReply, str]]:
    """Read replies of JSON Lines, each with its finish reason."""
    for number, line in enumerate(file, 1):
        try:
            entry = decode(line)
            text, reason = entry["text"] if "text" in entry else entry["content"], entry.get("finish_reason") or ""
            if not (isinstance(text, str) and isinstance(reason, str)):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise click.BadParameter(
                f"line {number}: no JSON object with `text` or `content`", param_hint="FILE"
            ) from None
        yield GivenReply(text), reason
