"""Model replies that a user passes to a command, as plain text or in any file format that contains replies."""

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
from vtc.json_text import decode_json, encode_json
from vtc.profiles.loader import Profiles
from vtc.profiles.planner import Planner
from vtc.profiles.settings import Settings
from vtc.proxy import launch
from vtc.reporting.case import Case, parse_cases

HAR_START = re.compile(rb'\s*\{\s*"log"\s*:')  # used with match
"""The start of a HAR file."""
FLOWS_START = re.compile(rb"\d+:")  # used with match
"""The start of a file of flows that mitmproxy saved."""
CASES_START = re.compile(rb"(?:[^\S\n]*+(?:#[^\n]*+)?\n)*+- name:")  # used with match
"""The start of a file of cases."""
SHORT_ID_CHARS = 8
"""Characters of a flow's id that are shown to people, and with which the name of a case ends."""


@dataclass(frozen=True, slots=True)
class GivenReply:
    """A reply of a model, with its source and how to parse it."""

    text: str
    source: str = ""
    """The origin of the reply, for people; empty for plain text."""
    reasoning: str = ""
    """The reasoning that the server separated from the text."""
    calls: tuple[ToolCall, ...] = ()
    """Native tool calls."""
    complete: bool = True
    case: Case | None = None
    """The offered tools and the parser settings of the reply; None if unknown."""

    @classmethod
    def from_reply(cls, reply: Reply, source: str, case: Case | None = None) -> GivenReply:
        """Create a reply from the one that the server sent."""
        message = reply.message
        return cls(message.text, source, message.reasoning, message.calls, reply.complete, case)

    @property
    def id(self) -> str:
        """The id with which `--flow` selects the reply; empty if the reply has no case."""
        return self.case.name.rpartition(" ")[2] if self.case else ""


def add_reply_options[F: Callable[..., Any]](command: F) -> F:
    """Add the options that select one of multiple replies and name the port of the VTC that stores it."""
    about = "The id of a flow (or case) in FILE; without FILE, of a flow in a running VTC, whose log shows the id."
    command = click.option("--flow", default="", metavar="ID", help=about)(command)
    ports = click.IntRange(1, 65535)
    return click.option(
        "--port",
        type=ports,
        default=launch.PORT,
        show_default=True,
        help="The port of the running VTC.",
    )(command)


def get_file_name(file: Any) -> str:
    """Return the name of an open file, for messages."""
    return str(getattr(file, "name", "<stdin>"))


def load_replies(file: Any, profiles: Profiles, flow: str = "", port: int = launch.PORT) -> list[GivenReply]:
    """Parse the replies of a file in any supported format; `flow` selects one by its id.

    Without a file, the reply is fetched from a running VTC at `port`. Exits with an error if there is no reply, or
    none with this id.
    """
    if file is None and flow:
        return _parse_cases(_fetch_unread_reply(flow, port))
    if file is None:
        raise click.UsageError("give FILE, or --flow ID for a reply of a running VTC")
    name = get_file_name(file)
    try:
        replies = [*_parse_replies(file.read(), name, profiles)]
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise click.ClickException(f"{name}: {error}") from None
    if not replies:
        raise click.ClickException(f"{name}: the file contains no exchange with a model")
    if not flow:
        return replies
    if chosen := [reply for reply in replies if reply.id.startswith(flow[:SHORT_ID_CHARS])]:
        return chosen
    ids = (
        ", ".join(filter(None, (reply.id for reply in replies))) or "none, because the file contains no flows or cases"
    )
    raise click.ClickException(f"{name}: no flow {flow}; available ids: {ids}")


def _fetch_unread_reply(flow: str, port: int) -> bytes:
    """Fetch an unread reply from a VTC on this machine, as a file of cases."""
    from vtc.proxy.asking.asker import Asker  # mitmproxy takes a second to load
    from vtc.proxy.asking.question import ServerQuestion
    from vtc.proxy.showing.unread_calls import MAX_CASES, UNREAD_PATH

    answer = Asker(f"http://127.0.0.1:{port}").ask(ServerQuestion(f"{UNREAD_PATH}{quote(flow)}"))
    if answer.error:
        raise click.ClickException(
            f"nothing answers at 127.0.0.1:{port} ({answer.why}): give the --port of VTC, or the file of saved flows"
        )
    if not answer.ok:
        raise click.ClickException(
            f"VTC at 127.0.0.1:{port} has no reply with the id {flow} (it stores the last {MAX_CASES} unread "
            "replies): give the file of saved flows"
        )
    return answer.body


def _parse_replies(data: bytes, name: str, profiles: Profiles) -> Iterator[GivenReply]:
    """Detect the format of a file and yield its replies. Raises ValueError."""
    if FLOWS_START.match(data) or HAR_START.match(data):
        yield from _parse_flows(data, Planner(profiles, Settings()))
    elif Path(name).suffix in (".yaml", ".yml"):
        yield from _parse_cases(data)
    elif replies := _parse_api_reply(data):
        yield from replies
    else:
        try:
            cases = _parse_cases(data) if CASES_START.match(data) else []
        except ValueError:  # plain text: a model can also write a YAML list
            cases = []
        yield from cases or [GivenReply(io.TextIOWrapper(io.BytesIO(data), "utf-8").read())]


def _parse_cases(data: bytes) -> list[GivenReply]:
    """Parse a file of cases. Raises ValueError, also if a case names a set of tools that does not exist."""
    cases = parse_cases(data.decode())
    for case in cases:
        case.resolve_tools()
    return [GivenReply(case.text, f"case {case.name}", case=case) for case in cases]


def _parse_flows(data: bytes, planner: Planner) -> Iterator[GivenReply]:
    """Yield the replies in saved flows; print a warning for each flow without a readable reply."""
    from vtc.proxy import flows  # mitmproxy takes a second to load
    from vtc.proxy.showing import captured  # mitmproxy takes a second to load

    for flow in flows.load_flows(io.BytesIO(data)):
        if not flows.find_client_api(flow):
            continue
        try:
            reply = captured.read_reply(flow)
            case = captured.make_case(flow, planner, reply)
        except ValueError as error:
            click.echo(f"vtc: flow {flow.id[:SHORT_ID_CHARS]} is skipped: {error}", err=True)
            continue
        yield GivenReply.from_reply(
            reply, f"flow {flow.id[:SHORT_ID_CHARS]}, {flow.request.pretty_host}{flows.format_path(flow)}", case
        )


def _parse_api_reply(data: bytes) -> list[GivenReply]:
    """Parse a reply as an API sends it; return an empty list if no API recognizes it."""
    for api in APIS:
        try:
            replies = whole.read_replies(api, _normalize_body(api, data))
        except (ValueError, LookupError):
            continue
        return [GivenReply.from_reply(reply, f"a reply of {api.name}") for reply in replies]
    return []


def _normalize_body(api: Api, data: bytes) -> bytes:
    """Return the body of a reply as the API sends it: a JSON object on one line, and a list of events as a stream."""
    try:
        value = decode_json(data)
    except ValueError:
        return data
    if isinstance(value, list) and all(isinstance(event, dict) for event in value):
        return b"".join(api.framing.encode(value))
    return encode_json(value)


def parse_json_lines(file: Iterable[bytes]) -> Iterator[tuple[GivenReply, str]]:
    """Parse replies in JSON Lines; yield each with its finish reason, which may be empty."""
    for number, line in enumerate(file, 1):
        try:
            entry = decode_json(line)
            text, reason = entry["text"] if "text" in entry else entry["content"], entry.get("finish_reason") or ""
            if not (isinstance(text, str) and isinstance(reason, str)):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise click.BadParameter(
                f"line {number}: not a JSON object with `text` or `content`", param_hint="FILE"
            ) from None
        yield GivenReply(text), reason
