"""Text next to native calls: leftover markup is no content."""

from __future__ import annotations

import json

import pytest

from tests.apis import chat
from tests.exchanges import feed_stream, open_session
from tests.known import AGREEING
from vtc.profiles import Memory

CALL = {"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
TEXT = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
OTHER = TEXT.replace("/a", "/b")


def read_around_call(before: str, after: str, *, pieces: int = 0) -> chat.Read:
    """Return the reply to a stream with text on both sides of a call, or the same reply whole."""
    cut = [text[at : at + pieces] for text in (before,) for at in range(0, len(text), pieces or 1)] if pieces else []
    rest = [after[at : at + pieces] for at in range(0, len(after), pieces)] if pieces else []
    frames = [
        *chat.make_text_chunks(*cut),
        chat.chunk({"tool_calls": [CALL]}),
        *chat.make_text_chunks(*rest),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    return chat.read(feed_stream(open_session().stream(), *frames))


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("<tool_call>", "", ""),
        ("I read.\n<tool_call>\n", "", "I read.\n"),
        ("I read.<functio", "", "I read."),
        ("I read.", "\n</parameter>\n</function>\n</tool_call>", "I read."),
        ("", "</tool_ca", ""),
        ("I read.", "\n</function> it is", "I read.\n</function> it is"),
        ("a <", "", "a <"),
        ("", TEXT, ""),
        ("", OTHER, OTHER),
        ("", f"{TEXT} or so", f"{TEXT} or so"),
        ("", "Done.", "Done."),
    ],
)
def test_tags_around_calls_of_upstream_are_no_speech(before: str, after: str, expected: str, pieces: int) -> None:
    found = read_around_call(before, after, pieces=pieces)
    assert found.calls == [("read", {"filePath": "/a"})]
    assert found.content.rstrip() == expected.rstrip()


@pytest.mark.parametrize(
    ("content", "expected"),
    [("<tool_call>", ""), ("Hi.", "Hi."), (TEXT, ""), (OTHER, OTHER), ("<think>hm</think>Hi.", "Hi.")],
)
def test_whole_replies_have_the_same_result(content: str, expected: str) -> None:
    message = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    body = chat.encode_json({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    found = json.loads(open_session().whole.rewrite(body))["choices"][0]["message"]
    assert [call["function"] for call in found["tool_calls"]] == [CALL["function"]]
    assert (found["content"] or "") == expected


@pytest.mark.parametrize("pieces", [1, 100])
def test_text_after_calls_is_no_reasoning_if_the_prompt_opened_it(pieces: int) -> None:
    """The reasoning ended before the calls, and the beginning that the reply revealed is used for the next one."""
    thoughts, answer = "I read.\n</think>Now:", "\nThat was it."
    frames = [
        *chat.make_text_chunks(*(thoughts[at : at + pieces] for at in range(0, len(thoughts), pieces))),
        chat.chunk({"tool_calls": [CALL]}),
        *chat.make_text_chunks(answer),
        chat.chunk({}, "tool_calls"),
        chat.DONE,
    ]
    memory = Memory()
    for _ in range(AGREEING):
        exchange = open_session(model="qwen3.5:9b", memory=memory)
        found = chat.read(feed_stream(exchange.stream(), *frames))
        assert (found.reasoning.strip(), found.content) == ("I read.", "Now:\nThat was it.")
        assert found.calls == [("read", {"filePath": "/a"})]
    learned = exchange.plan.reading.thinking.learned
    assert learned is not None
    assert learned.begins_inside is True


def test_tags_without_end_are_given_back() -> None:
    """This bounds the text that is buffered and scanned again."""
    tags = "</tool_call>" * 1000
    assert read_around_call("", tags, pieces=500).content == tags
