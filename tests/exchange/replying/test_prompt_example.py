"""The sample call in VTC's prompt: a model that repeats it, or a part of it, makes no call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat
from tests.dialects.material import DIALECTS
from tests.exchanges import feed_stream, open_session
from tests.known import PLACEHOLDER
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
SAVE = {"type": "function", "function": {"name": "write_file", "description": "Writes.", "parameters": SCHEMA}}


def read(dialect: str, size: int, **arguments: str) -> tuple[int, list[Any]]:
    """Read a reply with a call, in frames of `size` characters; return the number of calls, and the parse failures."""
    tool = Tool("write_file", parameters=SCHEMA)
    text = write_calls([ToolCall("write_file", json.dumps(arguments), "call_1")], DIALECTS[dialect], {tool.name: tool})
    exchange = open_session(settings={"tools": "prompt", "dialect": dialect}, tools=[SAVE])
    frames = chat.make_stream(*(text[at : at + size] for at in range(0, len(text), size)))
    found = chat.read(feed_stream(exchange.stream(), *frames))
    return len(found.calls), [refusal["reason"] for refusal in exchange.report.refusals]


@pytest.mark.every
@pytest.mark.parametrize("dialect", ["bare-json", "hermes", "invoke", "json-in-tags", "qwen3-coder", "tag"])
@pytest.mark.parametrize("size", [3, 1 << 20])
def test_call_with_a_value_of_the_example_stays_text_and_is_reported(dialect: str, size: int) -> None:
    calls, refused = read(dialect, size, path="a.txt", content=PLACEHOLDER)
    assert calls == 0
    assert "its 'content' is '...', as in the example of the prompt" in refused
    assert read(dialect, size, path="a.txt", content=f"a{PLACEHOLDER}")[0] == 1


def test_values_are_unrestricted_if_the_client_wrote_the_prompt() -> None:
    exchange = open_session(tools=[SAVE])
    call = json.dumps({"name": "write_file", "arguments": {"path": "a.txt", "content": PLACEHOLDER}})
    found = chat.read(feed_stream(exchange.stream(), *chat.make_stream(f"<tool_call>\n{call}\n</tool_call>")))
    assert len(found.calls) == 1
