"""Markup that may be no part of the message: how much of it is buffered."""

from __future__ import annotations

import pytest

from tests.dialects.material import DIALECTS, TOOLS, content
from tests.rules import MOST_IN_DOUBT
from vtc.dialects import Reader, compile_grammar

HERMES = DIALECTS["hermes"]
CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'


def test_openers_that_text_follows_are_text_though_closers_stand_before_them() -> None:
    """The closers may be those of a malformed call."""
    text = (
        "Look.\n</steptml:invoke><｜tool_call_end｜><｜tool_calls_begin｜>\n<｜tool_call_begin｜>function<｜tool_sep｜>"
    )
    reader = Reader(compile_grammar((DIALECTS["step-3"],)), TOOLS["agent"])
    assert content([*reader.feed(text), *reader.finish()]) == text


@pytest.mark.parametrize(
    "markup", ["</tool_call>", "</tool_call>\n", "<|im_end|>", "<tool_calls>", "</tool_call><|im_end|>\n"]
)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_markup_in_doubt_is_held_up_to_a_limit(markup: str, size: int) -> None:
    tools = TOOLS["agent"]
    reader = Reader(compile_grammar((HERMES,)), tools)
    text, events, held = f"Look.\n{markup * 600}{CALL}", [], 0
    for at in range(0, len(text), size):
        events += reader.feed(text[at : at + size])
        held = max(held, reader.held_characters)
    events += reader.finish()
    assert held < 2 * MOST_IN_DOUBT
    assert "".join(event.raw for event in events) == text
    assert content(events).startswith("Look.\n" + markup * (MOST_IN_DOUBT // len(markup)))
    assert CALL not in content(events)
