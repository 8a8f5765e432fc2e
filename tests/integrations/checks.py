"""What each client asks, and the checks of what it received."""

from __future__ import annotations

import json
from typing import Any

from tests.integrations.model_server import ARGUMENTS, SCHEMA

ASKED: Any = {"messages": [{"role": "user", "content": "Read it."}], "max_tokens": 99}
BLOCKS: Any = [{"name": "read", "input_schema": SCHEMA}]
NO_TOOLS = {"error": {"message": "this model does not support tools", "type": "invalid_request_error"}}


def check_calls(text: str | None, calls: list[tuple[str, Any]], reason: str | None) -> None:
    assert (text, calls) == ("I look.", [("read", ARGUMENTS)])
    assert reason in ("tool_calls", "tool_use")


def check_completion(completion: Any) -> None:
    (choice,) = completion.choices
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls]
    check_calls(choice.message.content, calls, choice.finish_reason)


def check_message(message: Any) -> None:
    text, *calls = message.content
    check_calls(text.text, [(call.name, call.input) for call in calls], message.stop_reason)
