"""One exchange as a page of text: VTC's actions and their reasons, and the conversation as received and as sent.

Takes plain data only: bodies, and the report that is stored with a flow. Both may be incomplete, so that an exchange
that VTC did not process can be shown, too.
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
"""Maximum length of a line of the report, because mitmweb cuts longer ones; the conversation is not wrapped."""

ACTIONS_TITLE = "What VTC did"
CHANGES_TITLE = "Changes of the request"

type Side = Literal["request", "reply"]

SIDE_LABELS: Mapping[Side, tuple[str, str]] = {
    "request": ("as the client sent it", "as the model was given it"),
    "reply": ("as the model wrote it", "as the client received it"),
}
"""Labels of the body as received and as sent, for each side of an exchange."""


@dataclass(frozen=True, slots=True)
class Bodies:
    """A decoded body as VTC received it and as it was sent; `received` is None if it was not stored."""

    received: bytes | None
    sent: bytes
    server: Api | None = None
    """The server's API; None if it is the client's."""

    @property
    def changed(self) -> bool:
        """True if VTC is known to have changed the body."""
        return self.received is not None and self.received != self.sent


def render_pane(api: Api, side: Side, bodies: Bodies, report: Mapping[str, Any] | None, summary: str = "") -> str:
    """Render the pane of a request or a reply; a body that does not belong to this API is shown unchanged."""
    parts = ["\n".join(_wrap_line(summary, "", "  "))] if summary else []
    lines_by_title = dict(list_sections(report or {}))
    changes = lines_by_title.pop(CHANGES_TITLE, [])
    if side == "request" and changes:
        parts.append(_render_section(CHANGES_TITLE, changes))
    elif changes:
        line = f"request: {list_changes(changes)}" if list_changes(changes) else summarize_changes(changes)
        lines_by_title[ACTIONS_TITLE] = [*lines_by_title.get(ACTIONS_TITLE, ()), line]
    if ACTIONS_TITLE in lines_by_title:
        parts.append(_render_section(ACTIONS_TITLE, lines_by_title.pop(ACTIONS_TITLE)))
    try:
        parts.append(_render_conversation(api, side, bodies))
    except ValueError as error:
        parts += [f"({error})", bodies.sent.decode(errors="replace")]
    sizes = report.get("sizes", {}) if report else {}
    if bodies.received is None and sizes.get(f"{side}_came") != sizes.get(f"{side}_went"):
        parts.append(
            f"(The {side} {SIDE_LABELS[side][0]} was not stored; set the option `vtc_keep_bodies` to store it.)"
        )
    # The reasons and figures come last because they are long and rarely needed.
    return "\n\n".join([*parts, *(_render_section(title, lines) for title, lines in lines_by_title.items())])


def render_diff(api: Api, side: Side, bodies: Bodies) -> str:
    """Compare a body as received and as sent: a unified diff of the conversations."""
    if not bodies.changed:
        return ""
    return transcript.render_difference(*read_conversations(api, side, bodies), *SIDE_LABELS[side])


def list_sections(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the non-empty sections of a report: actions, changes of the request, reasons, and figures."""
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
    """Indent and wrap the lines of a section, because a pane cuts long lines (a list of all dialects)."""
    for line in lines:
        depth = " " * (len(line) - len(line.lstrip()))
        yield from _wrap_line(line, "  ", f"    {depth}")


def _wrap_line(line: str, first: str, others: str) -> list[str]:
    return wrap(line, MAX_LINE_CHARS, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def _describe_actions(report: Mapping[str, Any]) -> Iterator[str]:
    form = report.get("form", "tool_calls")
    for call in report.get("calls", ()):
        conversion = f", {call['dialect']} -> {form}" if call["dialect"] != form else ", native"
        yield f"call: {call['name']}{conversion}{_format_count(call)}"
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
            yield f"{side}: {received:,} bytes" + (f" -> {sent:,} bytes" if received != sent else " received and sent")
    if prefix := report.get("prefix"):
        share = f"{prefix['chars']:,} of {prefix['chars_of']:,} characters"
        yield f"prefix shared with the last prompt: {share}, up to message {prefix['kept']} of {prefix['of']}"
    if seconds := report.get("seconds"):
        yield f"time in VTC: {seconds * 1e3:.1f} ms"
    if elapsed := report.get("elapsed"):
        yield f"time from request to end of reply: {elapsed:.2f} s"


def read_blocks(api: Api, side: Side, body: bytes) -> list[TranscriptBlock]:
    """Parse a body as a conversation; raise ValueError if it does not belong to this API."""
    if not body:
        raise ValueError("the body is empty")
    return transcript.read_request(api, body) if side == "request" else transcript.read_reply(api, body)


def _render_conversation(api: Api, side: Side, bodies: Bodies) -> str:
    received, sent = read_conversations(api, side, bodies)
    return (
        transcript.compare_transcripts(received, sent, *SIDE_LABELS[side])
        if bodies.changed
        else transcript.render_blocks(sent)
    )


def read_conversations(api: Api, side: Side, bodies: Bodies) -> tuple[list[TranscriptBlock], list[TranscriptBlock]]:
    """Parse a body as received and as sent; raise ValueError if one does not belong to its API."""
    server = bodies.server or api
    source_api, target_api = (api, server) if side == "request" else (server, api)
    sent = read_blocks(target_api, side, bodies.sent)
    return (sent if bodies.received is None else read_blocks(source_api, side, bodies.received)), sent
