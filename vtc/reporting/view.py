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
from vtc.reporting.report import api_pair, broken_prefix, counted_changes, fate, named_changes, unread_call
from vtc.reporting.transcript import TranscriptBlock

WIDTH = 76
"""Characters of a line of the report, for mitmweb cuts longer ones; what was said keeps its lines."""

DONE = "What VTC did"
CHANGES = "Changes of the request"

type Side = Literal["request", "reply"]

SIDES: Mapping[Side, tuple[str, str]] = {
    "request": ("as the client sent it", "as the model was given it"),
    "reply": ("as the model wrote it", "as the client received it"),
}


@dataclass(frozen=True, slots=True)
class Bodies:
    """A body as it came in and as it went out, decoded; `came` is None where it was not kept."""

    came: bytes | None
    went: bytes
    server: Api | None = None
    """The API that the server is spoken to in; None for the client's."""

    @property
    def changed(self) -> bool:
        return self.came is not None and self.came != self.went


def pane(api: Api, side: Side, bodies: Bodies, report: Mapping[str, Any] | None, summary: str = "") -> str:
    """Write the pane of a request or a reply; a body that is nothing of this API stands there as it is."""
    parts = ["\n".join(_wrap(summary, "", "  "))] if summary else []
    told = dict(sections(report or {}))
    changes = told.pop(CHANGES, [])
    if side == "request" and changes:
        parts.append(_section(CHANGES, changes))
    elif changes:
        line = f"request: {named_changes(changes)}" if named_changes(changes) else counted_changes(changes)
        told[DONE] = [*told.get(DONE, ()), line]
    parts += [_section(DONE, told.pop(DONE))] if DONE in told else []
    try:
        parts.append(_conversation(api, side, bodies))
    except ValueError as error:
        parts += [f"({error})", bodies.went.decode(errors="replace")]
    sizes = report.get("sizes", {}) if report else {}
    if bodies.came is None and sizes.get(f"{side}_came") != sizes.get(f"{side}_went"):
        parts.append(f"(What it was {SIDES[side][0]} was not kept; the option `vtc_keep_bodies` keeps it.)")
    # Why, and figures: last, as they are long and wanted least.
    return "\n\n".join([*parts, *(_section(title, lines) for title, lines in told.items())])


def diff(api: Api, side: Side, bodies: Bodies) -> str:
    """Compare what came in with what went out: a unified diff of both, read as conversations."""
    if not bodies.changed:
        return ""
    return transcript.difference(*conversations(api, side, bodies), *SIDES[side])


def sections(report: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield a report as titles with lines below: what was done, how the request was changed, why, and the figures.

    Empty sections are left out.
    """
    for title, lines in (
        (DONE, [*_describe_outcome(report)]),
        (CHANGES, [*report.get("request", ())]),
        ("Why", [*report.get("why", ())]),
        ("Figures", [*_figures(report)]),
    ):
        if lines:
            yield title, lines


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *_indent(lines)])


def _indent(lines: Iterable[str]) -> Iterator[str]:
    """Break the lines below a title: a list of all dialects would be cut off at the pane's edge."""
    for line in lines:
        depth = " " * (len(line) - len(line.lstrip()))
        yield from _wrap(line, "  ", f"    {depth}")


def _wrap(line: str, first: str, others: str) -> list[str]:
    return wrap(line, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def _describe_outcome(report: Mapping[str, Any]) -> Iterator[str]:
    form = report.get("form", "tool_calls")
    for call in report.get("calls", ()):
        became = f", {call['dialect']} -> {form}" if call["dialect"] != form else ", the server's own"
        yield f"call: {call['name']}{became}{_times(call)}"
        yield from (f"  repaired: {repair}" for repair in call.get("repairs", ()))
        yield from (f"  lacks: {parameter}, which the tool requires" for parameter in call.get("lacks", ()))
    for refusal in report.get("refusals", ()):
        name = f"{refusal['name']}, " if refusal.get("name") else ""
        yield f"{fate(refusal)}: {name}{refusal['dialect']}: {refusal['reason']}{_times(refusal)}"
        if excerpt := refusal.get("excerpt"):
            yield f"  {' '.join(excerpt.split())}"
    for policy in report.get("policies", ()):
        tool = f", {policy['tool']}" if policy.get("tool") else ""
        reason = f": {policy['reason']}" if policy.get("reason") else ""
        yield f"policy: {policy['policy']}{tool} -> {policy['action']}{_times(policy)}{reason}"
        if detail := policy.get("detail"):
            yield f"  {' '.join(detail.split())}"
    yield from (f"error in VTC: {failure}" for failure in report.get("failures", ()))
    yield from report.get("errors", ())
    if unread := report.get("unread"):
        yield unread_call(unread)
        if isinstance(unread, Mapping):
            yield f"  {unread['text']}"
    prefix = report.get("prefix", {})
    if broken := broken_prefix(prefix):
        yield broken
        for label, key in (("before: ", "before"), ("now:    ", "now")):
            if quoted := prefix.get(key):
                yield f"  {label}{' '.join(quoted.split())}"
    yield from report.get("notes", ())
    yield from filter(None, [api_pair(report)])


def _times(entry: Mapping[str, Any]) -> str:
    return f" ({entry['count']} times)" if entry.get("count", 1) > 1 else ""


def _figures(report: Mapping[str, Any]) -> Iterator[str]:
    sizes = report.get("sizes", {})
    for side in SIDES:
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


def blocks(api: Api, side: Side, body: bytes) -> list[TranscriptBlock]:
    """Read a body as a conversation; raises ValueError if it does not belong to this API."""
    if not body:
        raise ValueError("it is empty")
    return transcript.read_request(api, body) if side == "request" else transcript.read_reply(api, body)


def _conversation(api: Api, side: Side, bodies: Bodies) -> str:
    received, sent = conversations(api, side, bodies)
    return (
        transcript.compare_transcripts(received, sent, *SIDES[side])
        if bodies.changed
        else transcript.render_blocks(sent)
    )


def conversations(api: Api, side: Side, bodies: Bodies) -> tuple[list[TranscriptBlock], list[TranscriptBlock]]:
    """Read a body as it came and as it went; raises ValueError if it is nothing of its API."""
    server = bodies.server or api
    came_as, went_as = (api, server) if side == "request" else (server, api)
    sent = blocks(went_as, side, bodies.went)
    return (sent if bodies.came is None else blocks(came_as, side, bodies.came)), sent
