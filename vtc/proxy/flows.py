"""A mitmproxy flow as VTC sees it: its API, the facts that profiles match on, its report, its bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary

from mitmproxy import exceptions, http
from mitmproxy.io import FlowReader

from vtc import apis
from vtc.apis.fields import object_of
from vtc.profiles.matching import Facts
from vtc.profiles.planner import Planner
from vtc.reporting.plain import as_report
from vtc.reporting.view import Bodies, Side
from vtc.scrub import escape_invisible, scrub, split_query

METADATA = "vtc"
"""Key of a flow's metadata under which its report is kept, as plain data."""

RECEIVED_BODY: Mapping[Side, str] = {"request": "vtc_request", "reply": "vtc_reply"}
"""Keys of a flow's metadata under which a body that was changed is kept as it came."""


FOLLOW_UP_OF = "vtc.again"
"""Key of the metadata of a flow that asks again for another; its value is that one's id."""


ASKED_PATH = "vtc_path"
"""Key of a flow's metadata under which the path stands that the client asked, where the server was asked another;
without the keys of its query."""


_SECRETS: WeakKeyDictionary[http.HTTPFlow, tuple[str, ...]] = WeakKeyDictionary()
_MOST_READ = 1 << 20
"""Bytes of a request beyond which one that was left alone is not looked through."""


SPEAKER, NOTHING = "vtc", "nothing was changed"
MAX_MODEL_CHARS = 40
"""Characters of a model's name in a comment."""


def find_client_api(flow: http.HTTPFlow) -> apis.Api | None:
    """The API that the client of a flow speaks, or None; what VTC asks by itself has no client."""
    return None if FOLLOW_UP_OF in flow.metadata else apis.match_request(flow.request.method, _get_asked_target(flow))


def find_websocket_api(flow: http.HTTPFlow) -> apis.Api | None:
    """The API on whose path the client of a flow opens a WebSocket; None for any other request."""
    protocols = {name.strip().lower() for name in flow.request.headers.get("upgrade", "").split(",")}
    return apis.match_request("POST", _get_asked_target(flow)) if "websocket" in protocols else None


def get_asked_path(flow: http.HTTPFlow) -> str:
    """The path that the client asked, without the query."""
    return _get_asked_target(flow).partition("?")[0]


def _get_asked_target(flow: http.HTTPFlow) -> str:
    """The path that the client asked, with the query."""
    return str(flow.metadata.get(ASKED_PATH) or flow.request.path)


def move(flow: http.HTTPFlow, path: str) -> None:
    """Send a flow to another path."""
    asked, _, query = flow.request.path.partition("?")
    flow.metadata[ASKED_PATH] = f"{asked}?{'&'.join(split_query(query)[0])}".removesuffix("?")
    flow.request.path = path


def move_back(flow: http.HTTPFlow) -> None:
    """Have a flow sent to the path that the client asked, with the keys that still stand in its query."""
    if target := flow.metadata.pop(ASKED_PATH, ""):
        keys = "&".join(split_query(flow.request.path.partition("?")[2])[1])
        flow.request.path = f"{target}{'&' if '?' in target else '?'}{keys}" if keys else target


def find_server_api(flow: http.HTTPFlow) -> apis.Api | None:
    """The API in which the server was asked, or None."""
    return _find_foreign_api(flow) or find_client_api(flow)


def _find_foreign_api(flow: http.HTTPFlow) -> apis.Api | None:
    """The API in which the server was asked, where that is not the client's."""
    return apis.find_api((get_report(flow) or {}).get("server_api", ""))


def find_unread(flow: http.HTTPFlow) -> apis.UnreadPath | None:
    """Tell why a flow that looks like one of an API is left alone; None for one that looks like none."""
    return apis.explain_unread(flow.request.method, flow.request.path)


def read_facts(flow: http.HTTPFlow) -> Facts:
    """Read the facts that profiles match on, but for those of the body."""
    headers = {name.lower(): value for name, value in flow.request.headers.items()}
    return Facts(
        user_agent=headers.get("user-agent", ""),
        host=flow.request.pretty_host,
        port=flow.request.port,
        path=_get_asked_target(flow),
        query=_get_asked_target(flow).partition("?")[2],
        headers=headers,
        time=int(flow.request.timestamp_start),
    )


def collect_secrets(flow: http.HTTPFlow) -> tuple[str, ...]:
    """Collect what the request of a flow carries as a credential, once: some of it may not go on to the server."""
    if flow not in _SECRETS:
        content = flow.request.raw_content or b""
        body = object_of(content) if len(content) <= _MOST_READ else None
        _SECRETS[flow] = replace(read_facts(flow), body=body).secrets
    return _SECRETS[flow]


def format_path(flow: http.HTTPFlow) -> str:
    """The path of a request for people: without its query, and without keys that stand in it."""
    return escape_invisible(scrub(flow.request.path.partition("?")[0], collect_secrets(flow)))


def keep_secrets(flow: http.HTTPFlow, secrets: tuple[str, ...]) -> None:
    """Keep what was found to be secret in the request of a flow, as long as there is the flow."""
    _SECRETS[flow] = secrets


def restore_settings(flow: http.HTTPFlow, planner: Planner) -> Planner:
    """A planner with the options that the flow was captured with, but for those that `planner` was given."""
    settings = (get_report(flow) or {}).get("settings")
    return planner.with_settings(settings) if isinstance(settings, Mapping) and settings else planner


def get_report(flow: http.HTTPFlow) -> Mapping[str, Any] | None:
    """Return the report of a flow; None if VTC did not see it, or if what a file holds in its place is none."""
    return as_report(flow.metadata.get(METADATA))


def format_comment(summary: str, model: str) -> str:
    """The line for the list of flows, which has no column for the model: `vtc: qwen3: read, hermes -> tool_calls`."""
    speaker, _, text = (summary or f"{SPEAKER}: {NOTHING}").partition(": ")
    return ": ".join(filter(None, (speaker, _shorten(model), text)))


def strip_comment_prefix(flow: http.HTTPFlow) -> str:
    """The comment without its speaker and the model; as it is, where a person wrote it."""
    speaker, _, text = flow.comment.partition(": ")
    if not speaker.startswith(SPEAKER):
        return flow.comment
    text = text.removeprefix(f"{_shorten((get_report(flow) or {}).get('asked', ''))}: ")
    return f"{speaker.removeprefix(SPEAKER)} {text}".strip()


def _shorten(model: str) -> str:
    return model if len(model) <= MAX_MODEL_CHARS else f"{model[: MAX_MODEL_CHARS - 1]}…"


def get_bodies(flow: http.HTTPFlow, side: Side, data: bytes | None = None) -> Bodies | None:
    """Both sides of a flow's body (`data` if it is at hand); None if there is none."""
    message = flow.request if side == "request" else flow.response
    if data is None and message is not None:
        data = message.get_content(strict=False)
    if data is None:
        return None
    received = flow.metadata.get(RECEIVED_BODY[side])
    return Bodies(received if isinstance(received, bytes) else None, data, _find_foreign_api(flow))


def get_original(flow: http.HTTPFlow, side: Side) -> bytes:
    """A body as it came; raises ValueError if it was changed and not kept, or if there is none."""
    pair = get_bodies(flow, side)
    if pair is None:
        raise ValueError(f"the flow has no {side}")
    if pair.came is not None:
        return pair.came
    sizes = (get_report(flow) or {}).get("sizes", {})
    if sizes.get(f"{side}_came") != sizes.get(f"{side}_went"):
        raise ValueError(f"the {side} was changed and not kept as it came; set vtc_keep_bodies to on")
    return pair.went


def load_flows(file: BinaryIO) -> Iterator[http.HTTPFlow]:
    """The HTTP flows of a file that mitmproxy saved, or of a HAR file; raises ValueError."""
    try:
        for flow in FlowReader(file).stream():
            if isinstance(flow, http.HTTPFlow):
                yield flow
    except exceptions.FlowReadException as error:
        raise ValueError(f"cannot be read as flows: {error}") from None
