"""Replies decoded as single messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat, messages
from vtc.apis import Reply, anthropic_messages, openai_chat
from vtc.apis import whole as summary
from vtc.events import ToolCall


def replies(body: bytes) -> list[Reply]:
    return summary.read_replies(openai_chat.API, body)


def test_stream_of_messages_is_the_message_it_adds_up_to() -> None:
    blocks = [
        messages.thinking_block(0, "We", "ll."),
        messages.text_block(1, "Let", " me"),
        messages.call_block(2, "read", '{"filePath"', ': "/a"}'),
    ]
    (reply,) = summary.read_replies(
        anthropic_messages.API, b"".join(messages.make_stream(*blocks, stop_reason="tool_use"))
    )
    message = reply.message
    assert (message.text, message.reasoning, reply.finish_reason, reply.complete) == (
        "Let me",
        "Well.",
        "tool_use",
        True,
    )
    assert message.calls == (ToolCall("read", '{"filePath": "/a"}', "toolu_1"),)
    whole = chat.encode_json(messages.message(messages.text("Let me"), messages.call("read"), stop_reason="max_tokens"))
    (reply,) = summary.read_replies(anthropic_messages.API, whole)
    assert (reply.message.text, reply.finish_reason, reply.complete) == ("Let me", "max_tokens", False)
    with pytest.raises(ValueError, match="not a reply of anthropic-messages"):
        summary.read_replies(anthropic_messages.API, chat.encode_json(messages.error()))


def test_a_stream_is_the_message_it_adds_up_to() -> None:
    frames = [
        chat.ROLE,
        chat.chunk({"reasoning_content": "We"}),
        chat.chunk({"reasoning_content": "ll."}),
        *chat.make_text_chunks("Let", " me"),
        chat.chunk({"tool_calls": [chat.native(0, id="a", name="read", arguments="")]}),
        chat.chunk({"tool_calls": [chat.native(0, arguments='{"filePath"')]}),
        chat.chunk({"tool_calls": [chat.native(0, arguments=': "/a"}'), chat.native(1, id="b", name="list_files")]}),
        chat.chunk({"tool_calls": [chat.native(1, arguments="{}")]}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ]
    (reply,) = replies(b"".join(frames))
    message = reply.message
    assert (message.role, message.text, message.reasoning, reply.finish_reason) == (
        "assistant",
        "Let me",
        "Well.",
        "tool_calls",
    )
    assert message.calls == (ToolCall("read", '{"filePath": "/a"}', "a"), ToolCall("list_files", "{}", "b"))


def test_whole_and_streamed_summaries_are_equal() -> None:
    entry = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
    whole = chat.encode_json(chat.completion("Hi", "tool_calls", message={"tool_calls": [entry]}))
    call = chat.native(0, id="a", name="read", arguments='{"filePath": "/a"}')
    streamed = [
        chat.ROLE,
        *chat.make_text_chunks("H", "i"),
        chat.chunk({"tool_calls": [call]}, "tool_calls"),
        chat.DONE,
    ]
    first, second = replies(whole)[0], replies(b"".join(streamed))[0]
    assert (first.message.text, first.message.calls, first.finish_reason) == (
        second.message.text,
        second.message.calls,
        second.finish_reason,
    )


def test_every_choice_is_a_message() -> None:
    body = b"".join(
        [
            *chat.make_text_chunks("b", index=1),
            *chat.make_text_chunks("a", index=0),
            *chat.make_text_chunks("c", index=1),
        ]
    )
    assert [reply.message.text for reply in replies(body)] == ["a", "bc"]


@pytest.mark.parametrize(
    "entries",
    [
        [{"function": {"name": "a", "arguments": "{}"}}, {"function": {"name": "b", "arguments": {"x": 1}}}],
        [
            {"index": 0, "function": {"name": "a", "arguments": "{}"}},
            {"index": 1, "function": {"name": "b", "arguments": '{"x": 1}'}},
        ],
    ],
    ids=["unnumbered", "numbered"],
)
def test_calls_with_and_without_numbers(entries: list[Any]) -> None:
    (reply,) = replies(chat.chunk({"tool_calls": entries}))
    assert [(call.name, call.arguments) for call in reply.message.calls] == [("a", "{}"), ("b", '{"x": 1}')]


def test_summary_of_a_truncated_stream_has_all_received_content() -> None:
    body = b"".join(chat.make_text_chunks("a", "b")) + b'data: {"choices": [{"del'
    (reply,) = replies(body)
    assert (reply.message.text, reply.finish_reason) == ("ab", None)


@pytest.mark.parametrize("body", [b"", b"{", b'{"error": {"message": "no"}}', b"[1]", b"<html>", b"data: [DONE]\n\n"])
def test_body_that_is_no_chat_completion(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        replies(body)
    assert summary.get_first_text(openai_chat.API, body) == ""


CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"a": 1}'}}


def test_text_of_a_reply_has_its_calls() -> None:
    def text(content: Any, **message: Any) -> str:
        return summary.get_first_text(openai_chat.API, chat.encode_json(chat.completion(content, message=message)))

    assert text("Hi") == "Hi"
    assert text(None, tool_calls=[CALL]) == '{"name": "read", "arguments": "{\\"a\\": 1}"}'
    assert text("Hi", tool_calls=[CALL]).startswith("Hi\n{")
    assert text([{"type": "text", "text": "x"}]) == "x"
