"""Access a mitmproxy flow: its API, the facts that profiles match on, its report, its bodies."""

from __future__ import annotations

import re
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
from vtc.reporting import LEFT_ALONE
from vtc.reporting.plain import validate_report
from vtc.reporting.view import Bodies, Side
from vtc.scrub import escape_invisible, scrub_text, split_query

METADATA = "vtc"
"""Metadata key of the report of a flow, as plain data."""

RECEIVED_BODY: Mapping[Side, str] = {"request": "vtc_request", "reply": "vtc_reply"}
"""Metadata keys of bodies as they were received, set if they were changed."""


FOLLOW_UP_OF = "vtc.again"
"""Metadata key of a follow-up request; its value is the id of the original flow."""


ASKED_PATH = "vtc_path"
"""Metadata key of the client's path, without credentials in the query, set if the flow was sent to another path."""


_SECRETS: WeakKeyDictionary[http.HTTPFlow, tuple[str, ...]] = WeakKeyDictionary()
_MAX_SEARCHED_BYTES = 1 << 20
"""Maximum size of a request body that is searched for credentials if the request is not processed."""


COMMENT_PREFIX, NOTHING_CHANGED = "vtc", "nothing was changed"
_COMMENT_SEPARATOR = "; "
_find_own_comment = re.compile(rf"(?:\A|{_COMMENT_SEPARATOR})({COMMENT_PREFIX}(?: \(\w+\))?: )").search
MARKERS = {
    "rewritten": ":hammer:",
    "repaired": ":wrench:",
    "refused": ":warning:",
    "unread": ":warning:",
    "denied": ":no_entry:",
    "failed": ":boom:",
    "error": ":x:",
    LEFT_ALONE: ":zzz:",
}
"""Markers by outcome, for the flow list and for the filter `~marker`."""
BUFFERING_MARKER = ":hourglass_flowing_sand:"
OWN_MARKERS = {*MARKERS.values(), BUFFERING_MARKER}
MAX_MODEL_CHARS = 40
"""Maximum length of a model's name in a comment."""


def find_client_api(flow: http.HTTPFlow) -> apis.Api | None:
    """Find the API of a flow's client, or None; follow-up requests have no client."""
    return None if FOLLOW_UP_OF in flow.metadata else apis.match_request(flow.request.method, _get_asked_target(flow))


def find_websocket_api(flow: http.HTTPFlow) -> apis.Api | None:
    """Find the API on whose path a client opens a WebSocket; None for any other request."""
    protocols = {name.strip().lower() for name in flow.request.headers.get("upgrade", "").split(",")}
    return apis.match_request("POST", _get_asked_target(flow)) if "websocket" in protocols else None


def get_asked_path(flow: http.HTTPFlow) -> str:
    """Return the client's path without its query."""
    return _get_asked_target(flow).partition("?")[0]


def _get_asked_target(flow: http.HTTPFlow) -> str:
    """Return the client's path with its query."""
    return str(flow.metadata.get(ASKED_PATH) or flow.request.path)


def change_path(flow: http.HTTPFlow, path: str) -> None:
    """Change the path of a flow, and store the client's path in its metadata."""
    asked, _, query = flow.request.path.partition("?")
    flow.metadata[ASKED_PATH] = f"{asked}?{'&'.join(split_query(query)[0])}".removesuffix("?")
    flow.request.path = path


def restore_path(flow: http.HTTPFlow) -> None:
    """Restore the client's path, keeping the credentials in the current query."""
    if target := flow.metadata.pop(ASKED_PATH, ""):
        keys = "&".join(split_query(flow.request.path.partition("?")[2])[1])
        flow.request.path = f"{target}{'&' if '?' in target else '?'}{keys}" if keys else target


def find_server_api(flow: http.HTTPFlow) -> apis.Api | None:
    """Find the API of the request to the server, or None."""
    return _find_bridged_api(flow) or find_client_api(flow)


def _find_bridged_api(flow: http.HTTPFlow) -> apis.Api | None:
    """Find the API of the request to the server if it differs from the client's; else None."""
    return apis.find_api((get_report(flow) or {}).get("server_api", ""))


def find_unread_path(flow: http.HTTPFlow) -> apis.UnreadPath | None:
    """Find the path that the flow resembles, and why it is not processed; None if it resembles no API's."""
    return apis.explain_unread(flow.request.method, flow.request.path)


def read_facts(flow: http.HTTPFlow) -> Facts:
    """Collect the facts that profiles match on, except those of the body."""
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
    """Collect the credentials of a request, once, because some are not forwarded to the server."""
    if flow not in _SECRETS:
        content = flow.request.raw_content or b""
        body = object_of(content) if len(content) <= _MAX_SEARCHED_BYTES else None
        _SECRETS[flow] = replace(read_facts(flow), body=body).secrets
    return _SECRETS[flow]


def format_path(flow: http.HTTPFlow) -> str:
    """Format the path of a request for people: without its query and without secrets."""
    return escape_invisible(scrub_text(flow.request.path.partition("?")[0], collect_secrets(flow)))


def store_secrets(flow: http.HTTPFlow, secrets: tuple[str, ...]) -> None:
    """Store the credentials of a request for the lifetime of its flow."""
    _SECRETS[flow] = secrets


def restore_settings(flow: http.HTTPFlow, planner: Planner) -> Planner:
    """Return a planner with the options of the flow's capture, except those set in `planner`."""
    settings = (get_report(flow) or {}).get("settings")
    return planner.with_settings(settings) if isinstance(settings, Mapping) and settings else planner


def get_report(flow: http.HTTPFlow) -> Mapping[str, Any] | None:
    """Return the report of a flow; None if VTC did not process it or the stored report is invalid."""
    return validate_report(flow.metadata.get(METADATA))


def has_client_left(flow: http.HTTPFlow) -> bool:
    """Return True if the exchange ended because its client closed the connection or the stream."""
    message = flow.error.msg if flow.error else ""
    closed = message == "peer closed connection" and not flow.client_conn.connected
    return closed or message.startswith("Client disconnected") or "reset by client" in message


def format_comment(summary: str, model: str) -> str:
    """Format the comment in the list of flows, which has no column for the model: `vtc: qwen3: read, …`."""
    prefix, _, text = (summary or f"{COMMENT_PREFIX}: {NOTHING_CHANGED}").partition(": ")
    return ": ".join(filter(None, (prefix, _shorten(model), text)))


def annotate(flow: http.HTTPFlow, comment: str, mark: str) -> None:
    """Set VTC's comment and mark of a flow, or remove them if they are empty.

    A comment of a person or of another addon stays before VTC's, and their mark stays in place of VTC's.
    """
    others, own = _split_comment(flow)
    flow.comment = _join_comments(others, comment)
    if not flow.marked or (own and flow.marked in OWN_MARKERS):
        flow.marked = mark


def _split_comment(flow: http.HTTPFlow) -> tuple[str, str]:
    """Split a flow's comment into that of others and VTC's own."""
    if found := _find_own_comment(flow.comment):
        return flow.comment[: found.start()], flow.comment[found.start(1) :]
    return flow.comment, ""


def _join_comments(*comments: str) -> str:
    return _COMMENT_SEPARATOR.join(filter(None, comments))


def strip_comment_prefix(flow: http.HTTPFlow) -> str:
    """Return the comment without VTC's prefix and the model; unchanged if others wrote it."""
    others, own = _split_comment(flow)
    prefix, _, text = own.partition(": ")
    text = text.removeprefix(f"{_shorten((get_report(flow) or {}).get('asked', ''))}: ")
    return _join_comments(others, f"{prefix.removeprefix(COMMENT_PREFIX)} {text}".strip())


def _shorten(model: str) -> str:
    return model if len(model) <= MAX_MODEL_CHARS else f"{model[: MAX_MODEL_CHARS - 1]}…"


def get_bodies(flow: http.HTTPFlow, side: Side, data: bytes | None = None) -> Bodies | None:
    """Return a body as received and as sent; None if there is none. Pass `data` if it is already decoded."""
    message = flow.request if side == "request" else flow.response
    if data is None and message is not None:
        data = message.get_content(strict=False)
    if data is None:
        return None
    received = flow.metadata.get(RECEIVED_BODY[side])
    return Bodies(received if isinstance(received, bytes) else None, data, _find_bridged_api(flow))


def get_original(flow: http.HTTPFlow, side: Side) -> bytes:
    """Return a body as received; raises ValueError if there is none, or it was changed and not stored."""
    bodies = get_bodies(flow, side)
    if bodies is None:
        raise ValueError(f"the flow has no {side}")
    if bodies.received is not None:
        return bodies.received
    sizes = (get_report(flow) or {}).get("sizes", {})
    if sizes.get(f"{side}_came") != sizes.get(f"{side}_went"):
        raise ValueError(f"the {side} was changed and its original not stored; set vtc_keep_bodies to on")
    return bodies.sent


def load_flows(file: BinaryIO) -> Iterator[http.HTTPFlow]:
    """Load the HTTP flows of a file that mitmproxy saved, or of a HAR file; raises ValueError."""
    try:
        for flow in FlowReader(file).stream():
            if isinstance(flow, http.HTTPFlow):
                yield flow
    except exceptions.FlowReadException as error:
        raise ValueError(f"cannot be read as flows: {error}") from None
