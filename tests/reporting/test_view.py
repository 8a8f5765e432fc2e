"""The panes of an exchange."""

from __future__ import annotations

import pytest

from tests.apis import chat
from vtc import apis
from vtc.reporting import Bodies, render_diff, render_pane
from vtc.reporting.view import MAX_LINE_CHARS

API = next(api for api in apis.APIS if api.name == "openai-chat")
TAG = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
CAME = b"".join(chat.make_stream("I look.\n\n", TAG))
CALL = chat.native(0, id="call_1", name="read", arguments='{"filePath":"/a"}')
WENT = b"".join(
    [chat.ROLE, *chat.make_text_chunks("I look."), chat.chunk({"tool_calls": [CALL]}, "tool_calls"), chat.DONE]
)
REPORT = {
    "client": "c",
    "model": "m",
    "form": "tool_calls",
    "why": ["because of this"],
    "request": ["3 tools -> tag prompt"],
    "calls": [{"name": "read", "id": "call_1", "dialect": "tag", "repairs": ["missing-closer"]}],
    "refusals": [{"name": "rm", "dialect": "tag", "reason": "no tool 'rm' is offered", "excerpt": "<rm>\n<x>"}],
    "failures": ["ValueError: planted"],
    "policies": [{"policy": "denied_tools", "action": "steer", "tool": "bash", "reason": "bash is denied"}],
    "sizes": {"request_came": 1200, "request_went": 2400, "reply_came": 10, "reply_went": 10},
    "seconds": 0.0042,
    "elapsed": 1.5,
}


def test_all_actions_are_listed_with_reasons() -> None:
    assert render_pane(API, "reply", Bodies(CAME, WENT), REPORT, "vtc: a summary").splitlines() == [
        "vtc: a summary",
        "",
        "What VTC did",
        "  call: read, tag -> tool_calls",
        "    repaired: missing-closer",
        "  left as text: rm, tag: no tool 'rm' is offered",
        "    <rm> <x>",
        "  policy: denied_tools, bash -> steer: bash is denied",
        "  error in VTC: ValueError: planted",
        "  request: 3 tools -> tag prompt",
        "",
        "[assistant, as the model wrote it]",
        "  I look.",
        "",
        "- <read>",
        "- <filePath>/a</filePath>",
        "- </read>",
        "- finish_reason: stop",
        "",
        "[assistant, as the client received it]",
        "  I look.",
        "+ -> read  call_1",
        "+      filePath: /a",
        "+ finish_reason: tool_calls",
        "",
        "Why",
        "  because of this",
        "",
        "Figures",
        "  request: 1,200 bytes -> 2,400 bytes",
        "  reply: 10 bytes received and sent",
        "  time in VTC: 4.2 ms",
        "  time from request to end of reply: 1.50 s",
    ]


def test_a_long_summary_is_broken_into_lines() -> None:
    """mitmweb cuts a line at the edge of its pane."""
    summary = "vtc: the server answered 400: " + "word " * 60
    first, *more = render_pane(API, "reply", Bodies(CAME, WENT), None, summary).partition("\n\n")[0].splitlines()
    assert more
    assert " ".join([first, *map(str.strip, more)]) == summary.strip()
    assert all(len(line) <= MAX_LINE_CHARS for line in [first, *more])


def test_without_a_report_the_body_is_read() -> None:
    """For a flow from a file that VTC did not process."""
    assert render_pane(API, "reply", Bodies(None, WENT), None).startswith("[assistant]\n  I look.\n  -> read  call_1\n")
    assert render_pane(API, "request", Bodies(None, chat.encode_json(chat.request("hi"))), None).startswith(
        "[user]\n  hi\n"
    )


def test_unstored_body_is_reported_as_missing() -> None:
    changed = {**REPORT, "sizes": {"reply_came": 2, "reply_went": 1}}
    shown = render_pane(API, "reply", Bodies(None, WENT), changed)
    assert "[assistant, as the model wrote it]" not in shown
    assert "vtc_keep_bodies" in shown
    assert "vtc_keep_bodies" not in render_pane(API, "reply", Bodies(CAME, WENT), changed)
    assert "vtc_keep_bodies" not in render_pane(API, "reply", Bodies(None, WENT), REPORT)


def test_a_diff() -> None:
    lines = render_diff(API, "reply", Bodies(CAME, WENT)).splitlines()
    assert lines[:2] == ["--- as the model wrote it", "+++ as the client received it"]
    assert "-  <read>" in lines
    assert "+  -> read  call_1" in lines
    assert render_diff(API, "reply", Bodies(WENT, WENT)) == render_diff(API, "reply", Bodies(None, WENT)) == ""


@pytest.mark.parametrize("body", ['{"error": {"message": "no"}}', "<html>", "\ufffd"])
def test_other_body_is_shown_unchanged(body: str) -> None:
    """For example an error page of the server."""
    shown = render_pane(API, "reply", Bodies(None, body.encode()), REPORT)
    assert "What VTC did" in shown
    assert body in shown.splitlines()
