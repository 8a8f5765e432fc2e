"""Which chunks say some text and nothing else that matters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from vtc.apis.openai_chunk import Said, bare, text_only, whole, with_delta


def chunk(delta: dict[str, Any], **entry: Any) -> bytes:
    return chat.encoded({"id": "x", "choices": [{"index": 2, "delta": delta, "finish_reason": None, **entry}]})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (chunk({"content": "a"}), Said(2, "a", has_role=False)),
        (chunk({"role": "assistant", "content": "a"}), Said(2, "a", has_role=True)),
        (chunk({"content": "a", "tool_calls": [], "reasoning": None}, logprobs={"content": []}), Said(2, "a", False)),
        (b'{"choices":[{"delta":{"content":"a"}}]}', Said(0, "a", has_role=False)),
    ],
)
def test_a_chunk_of_text(data: bytes, said: Said) -> None:
    assert text_only(data) == said


@pytest.mark.parametrize(
    "data",
    [
        chunk({}),
        chunk({"content": ""}),
        chunk({"content": None}),
        chunk({"content": [{"type": "text", "text": "a"}]}),
        chunk({"content": "a"}, finish_reason="stop"),
        chunk({"content": "a", "tool_calls": [{"index": 0}]}),
        chunk({"content": "a", "function_call": {"name": "f"}}),
        chunk({"content": "a", "reasoning_content": "b"}),
        chunk({"content": "a", "reasoning": "b"}),
        chat.encoded({"choices": []}),
        chat.encoded({"choices": [{"delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}),
        chat.encoded({"choices": [{"delta": None}]}),
        chat.encoded([]),
        b"[DONE]",
        b"",
        b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\xff"}}]}',
    ],
)
def test_any_other_chunk_is_to_be_looked_at(data: bytes) -> None:
    assert text_only(data) is None


def test_a_chunk_is_made_of_what_another_says_of_the_reply() -> None:
    one = whole({"id": "x", "model": "m", "choices": [{}], "usage": {}})
    assert with_delta(bare(one, 2), {"content": "a"}) == {
        "id": "x",
        "model": "m",
        "choices": [{"index": 2, "delta": {"content": "a"}, "finish_reason": None}],
    }
