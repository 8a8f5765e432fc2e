"""One exchange for people to read: what VTC did and why, and the conversation as it came in beside what went out.

Takes plain data only: the report of the exchange as it is kept with a flow, and bodies. What is missing is left out, so
that an exchange which VTC never saw can be shown, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, Literal

from vtc.apis import Api
from vtc.reporting import transcript
from vtc.reporting.report import (
    describe_broken_prefix,
    describe_fate,
    describe_unread_call,
    format_api_pair,
    list_changes,
    summarize_changes,
)
from vtc.reporting.transcript import TranscriptBlock

MAX_LINE_CHARS = 76
"""Characters of a line of the report, for mitmweb cuts longer ones; what was said keeps its lines."""

ACTIONS_TITLE = "What VTC did"
CHANGES_TITLE = "Changes of the request"

type Side = Literal["request", "reply"]

SIDE_LABELS: Mapping[Side, tuple[str, str]] = {
    "request": ("as the client sent it", "as the model was given it"),
    "reply": ("as the model wrote it", "as the client received it"),
}


@dataclass(frozen=True, slots=True)
class Bodies:
    """A body as it came in and as it went out, decoded; `came` is None where it was not kept."""

    received: bytes | None
    sent: bytes
    server: Api | None = None
    """The API that the server is spoken to in; None for the client's."""

    @property
    def changed(self) -> bool:
        return self.received is not None and self.received != self.sent


def render_pane(api: Api, side: Side, bodies: Bodies, report: Mapping[str, Any] | None, summary: str = "") -> str:
    """Write the pane of a request or a reply; a body that is nothing of this API stands there as it is."""
    parts = ["\n".join(_wrap_line(summary, "", "  "))] if summary else []
    told = dict(list_sections(report or {}))
    changes = told.pop(CHANGES_TITLE, [])
    if side == "request" and changes:
        parts.append(_render_section(CHANGES_TITLE, changes))
    elif changes:
        line = f"request: {list_changes(changes)}" if list_changes(changes) else summarize_changes(changes)
        told[ACTIONS_TITLE] = [*told.get(ACTIONS_TITLE, ()), line]
    parts += [_render_section(ACTIONS_TITLE, told.pop(ACTIONS_TITLE))] if ACTIONS_TITLE in told else []
    try:
        parts.append(_render_conversation(api, side, bodies))
    except ValueError as error:
        parts += [f"({error})", bodies.sent.decode(errors="replace")]
    sizes = report.get("sizes", {}) if report else {}
    if bodies.received is None and sizes.get(f"{side}_came") != sizes.get(f"{side}_went"):
        parts.append(f"(What it was {SIDE_LABELS[side][0]} was not kept; the option `vtc_keep_bodies` keeps it.)")
    # Why, and figures: last, as they are long and wanted least.
    return "\n\n".join([*parts, *(_render_section(title, lines) for title, lines in told.items())])


def render_diff(api: Api, side: Side, bodies: Bodies) -> str:
    """Compare what came in with what went out: a unified diff of both, read as conversations."""
    if not bodies.changed:
        return ""
    return transcript.render_difference(*read_conversations(api, side, bodies), *SIDE_LABELS[side])


def list_sections(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield a report as titles with lines below: what was done, how the request was changed, why, and the figures.

    Empty sections are left out.
    """
    for title, lines in (
        (ACTIONS_TITLE, [*_describe_actions(report)]),
        (CHANGES_TITLE, [*report.get("request", ())]),
        ("Why", [*report.get("why", ())]),
        ("Figures", [*_describe_figures(report)]),
    ):
        if lines:
            yield title, lines


def _render_section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *_indent_lines(lines)])


def _indent_lines(lines: Iterable[str]) -> Iterator[str]:
    """Break the lines below a title: a list of all dialects would be cut off at the pane's edge."""
    for line in lines:
        depth = " " * (len(line) - len(line.lstrip()))
        yield from _wrap_line(line, "  ", f"    {depth}")


def _wrap_line(line: str, first: str, others: str) -> list[str]:
    return wrap(line, MAX_LINE_CHARS, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def _describe_actions(report: Mapping[str, Any]) -> Iterator[str]:
    form = report.get("form", "tool_calls")
    for call in report.get("calls", ()):
        became = f", {call['dialect']} -> {form}" if call["dialect"] != form else ", the server's own"
        yield f"call: {call['name']}{became}{_format_count(call)}"
        yield from (f"  repaired: {repair}" for repair in call.get("repairs", ()))
        yield from (f"  lacks: {parameter}, which the tool requires" for parameter in call.get("lacks", ()))
    for refusal in report.get("refusals", ()):
        name = f"{refusal['name']}, " if refusal.get("name") else ""
        yield f"{describe_fate(refusal)}: {name}{refusal['dialect']}: {refusal['reason']}{_format_count(refusal)}"
        if excerpt := refusal.get("excerpt"):
            yield f"  {' '.join(excerpt.split())}"
    for policy in report.get("policies", ()):
        tool = f", {policy['tool']}" if policy.get("tool") else ""
        reason = f": {policy['reason']}" if policy.get("reason") else ""
        yield f"policy: {policy['policy']}{tool} -> {policy['action']}{_format_count(policy)}{reason}"
        if detail := policy.get("detail"):
            yield f"  {' '.join(detail.split())}"
    yield from (f"error in VTC: {failure}" for failure in report.get("failures", ()))
    yield from report.get("errors", ())
    if unread := report.get("unread"):
        yield describe_unread_call(unread)
        if isinstance(unread, Mapping):
            yield f"  {unread['text']}"
    prefix = report.get("prefix", {})
    if broken := describe_broken_prefix(prefix):
        yield broken
        for label, key in (("before: ", "before"), ("now:    ", "now")):
            if quoted := prefix.get(key):
                yield f"  {label}{' '.join(quoted.split())}"
    yield from report.get("notes", ())
    yield from filter(None, [format_api_pair(report)])


def _format_count(entry: Mapping[str, Any]) -> str:
    return f" ({entry['count']} times)" if entry.get("count", 1) > 1 else ""


def _describe_figures(report: Mapping[str, Any]) -> Iterator[str]:
    sizes = report.get("sizes", {})
    for side in SIDE_LABELS:
        received, sent = sizes.get(f"{side}_came"), sizes.get(f"{side}_went")
        if received is not None and sent is not None:
            yield f"{side}: {received:,} bytes" + (f" -> {sent:,} bytes" if received != sent else ", as it came")
    if prefix := report.get("prefix"):
        share = f"{prefix['chars']:,} of {prefix['chars_of']:,} characters"
        yield f"kept of the prompt before: {share}, up to message {prefix['kept']} of {prefix['of']}"
    if seconds := report.get("seconds"):
        yield f"time in VTC: {seconds * 1e3:.1f} ms"
    if elapsed := report.get("elapsed"):
        yield f"time from request to end of reply: {elapsed:.2f} s"


def read_blocks(api: Api, side: Side, body: bytes) -> list[TranscriptBlock]:
    """Read a body as a conversation; raises ValueError if it does not belong to this API."""
    if not body:
        raise ValueError("it is empty")
    return transcript.read_request(api, body) if side == "request" else transcript.read_reply(api, body)


def _render_conversation(api: Api, side: Side, bodies: Bodies) -> str:
    received, sent = read_conversations(api, side, bodies)
    return (
        transcript.compare_transcripts(received, sent, *SIDE_LABELS[side])
        if bodies.changed
        else transcript.render_blocks(sent)
    )


def read_conversations(api: Api, side: Side, bodies: Bodies) -> tuple[list[TranscriptBlock], list[TranscriptBlock]]:
    """Read a body as it came and as it went; raises ValueError if it is nothing of its API."""
    server = bodies.server or api
    came_as, went_as = (api, server) if side == "request" else (server, api)
    sent = read_blocks(went_as, side, bodies.sent)
    return (sent if bodies.received is None else read_blocks(came_as, side, bodies.received)), sent
