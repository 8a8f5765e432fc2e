"""Which chunks say some text and nothing else that matters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from vtc.apis.openai_chunk import bare, says_nothing_else, text_only, whole, with_delta


def chunk(delta: dict[str, Any], **entry: Any) -> bytes:
    return chat.encoded({"id": "x", "choices": [{"index": 2, "delta": delta, "finish_reason": None, **entry}]})


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (chunk({"content": "a"}), (2, "a", None)),
        (chunk({"role": "assistant", "content": "a"}), (2, "a", "assistant")),
        (chunk({"content": "a", "tool_calls": [], "reasoning": None}, logprobs={"content": []}), (2, "a", None)),
        (b'{"choices":[{"delta":{"content":"a"}}]}', (None, "a", None)),
    ],
)
def test_a_chunk_of_text(data: bytes, said: tuple[int | None, str, str | None]) -> None:
    found = text_only(data)
    assert found is not None
    assert (found.index, found.delta.content, found.delta.role) == said


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


@pytest.mark.parametrize(
    ("delta", "fields", "nothing"),
    [
        ({"content": "a"}, {}, True),
        ({"content": "a", "tool_calls": [], "refusal": None}, {"logprobs": None}, True),
        ({"content": "a", "refusal": "b"}, {}, False),
        ({"content": "a"}, {"logprobs": {}}, False),
        ({"content": "a"}, {"finish_reason": "stop"}, False),
    ],
)
def test_what_else_a_chunk_says(delta: dict[str, Any], fields: dict[str, Any], *, nothing: bool) -> None:
    one = {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None, **fields}]}
    assert says_nothing_else(one, role_sent=False) == nothing
    assert not says_nothing_else({**one, "usage": {}}, role_sent=False)


def test_a_role_is_said_once() -> None:
    one = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]}
    assert [says_nothing_else(one, role_sent=sent) for sent in (True, False)] == [True, False]
