"""Conversations rendered for people."""

from __future__ import annotations

import pytest

from tests.apis import chat
from vtc import apis
from vtc.apis import RequestError
from vtc.reporting.transcript import (
    TranscriptBlock,
    compare_transcripts,
    read_reply,
    read_request,
    render_blocks,
    render_difference,
)

API = next(api for api in apis.APIS if api.name == "openai-chat")
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "write", "arguments": '{"path": "a", "text": "x\\n  y\\n", "n": [1]}'},
}
BODY = chat.encode_json(
    chat.request(
        messages=[
            {"role": "system", "content": "Be brief.\nBe kind."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "x"}}],
            },
            {"role": "assistant", "content": None, "reasoning_content": "Well. " * 40, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
        tools=[chat.READ],
        tool_choice="required",
    )
)


def test_a_request() -> None:
    assert render_blocks(read_request(API, BODY)).splitlines() == [
        "[system]",
        "  Be brief.",
        "  Be kind.",
        "",
        "[user]",
        "  See",
        "  (image_url, 48 characters)",
        "",
        "[assistant]",
        f'  (thought: "{"Well. " * 12} …", 240 characters)',
        "  -> write  c1",
        "       path: a",
        "       text: |",
        "         x",
        "           y",
        "       n: [1]",
        "",
        "[tool write c1]",
        "  done",
        "",
        "[tools]",
        "  read(filePath): Does read.",
        "  tool_choice: required",
    ]


def test_stream_is_shown_joined() -> None:
    assert (
        render_blocks(read_reply(API, b"".join(chat.make_stream("Hel", "lo"))))
        == "[assistant]\n  Hello\n  finish_reason: stop"
    )


def test_arguments_that_are_no_object_are_shown_as_they_are() -> None:
    body = chat.chunk({"tool_calls": [chat.native(0, id="i", name="f", arguments='{"a": ')]}, "length")
    assert render_blocks(read_reply(API, body)) == '[assistant]\n  -> f  i\n       {"a": \n  finish_reason: length'


def test_common_lines_are_printed_once_and_others_are_marked() -> None:
    same, old, new = (
        TranscriptBlock("user", "hi"),
        TranscriptBlock("system", "x\n\na\r"),
        TranscriptBlock("system", "x\n\nb"),
    )
    assert compare_transcripts([old, same], [new, same], "before", "after").split("\n") == [
        "[system, before]",
        "  x",
        "",
        "- a\r",
        "",
        "[system, after]",
        "  x",
        "",
        "+ b",
        "",
        "[user]",
        "  hi",
    ]


def test_a_difference() -> None:
    lines = render_difference(
        [TranscriptBlock("user", "a\nb")], [TranscriptBlock("user", "a\nc")], "in", "out"
    ).splitlines()
    assert lines == ["--- in", "+++ out", "@@ -1,3 +1,3 @@", " [user]", "   a", "-  b", "+  c"]
    assert render_difference([TranscriptBlock("user", "a")], [TranscriptBlock("user", "a")], "in", "out") == ""


def test_other_body_has_no_transcript() -> None:
    with pytest.raises(RequestError):
        read_request(API, b"x")
    with pytest.raises(ValueError, match="not a reply of openai-chat"):
        read_reply(API, b'{"error": 1}')
