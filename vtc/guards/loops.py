"""Find out whether an agent goes round in circles, from the conversation that it sends.

An agent resends everything with every request, so nothing is remembered here, and any process may answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec

from vtc.events import Message, ToolCall

DEFAULT_RESULTS = 20

type Count = Annotated[int, msgspec.Meta(ge=1)]


class Loop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much is too much; null is no limit."""

    max_tool_messages: Count | None = None
    """Results of calls since the user last spoke; 20 where no limit is given at all."""
    repeated_calls: Count | None = None
    """The same call with the same arguments, so many times in a row."""
    malformed_calls: Count | None = None
    """Replies in a row that held a call which could not be read, and none that could."""
    action: Literal["stop", "steer"] = "stop"
    """`stop`: the request is not forwarded, the client is told so. `steer`: the model is told so."""

    @property
    def results(self) -> int | None:
        is_bare = self.repeated_calls is None and self.malformed_calls is None
        return self.max_tool_messages or (DEFAULT_RESULTS if is_bare else None)


def fault(
    loop: Loop, messages: Sequence[Message], is_turn: Callable[[Message], bool], is_malformed: Callable[[Message], bool]
) -> str:
    """Say what there is too much of, in words for user and model; empty if nothing is.

    `messages` hold calls and results as such. `is_turn` tells what the user said from what a client adds to results,
    `is_malformed` an assistant's message with a call that could not be read.
    """
    last = next((i for i in reversed(range(len(messages))) if is_turn(messages[i])), -1)
    recent = messages[last + 1 :]
    results = sum(message.role == "tool" for message in recent)
    limit = loop.results
    if limit and results >= limit:
        return f"{results} tool calls were made since the last message of the user (the limit is {limit})"
    calls = [call for message in recent for call in message.calls]
    if loop.repeated_calls and len(calls) >= loop.repeated_calls:
        row = calls[-loop.repeated_calls :]
        if all(_same(call) == _same(row[0]) for call in row):
            return f"`{row[0].name}` was called {len(row)} times in a row with the same arguments"
    if loop.malformed_calls:
        replies = [message for message in messages if message.role == "assistant"][-loop.malformed_calls :]
        if len(replies) == loop.malformed_calls and all(is_malformed(message) for message in reversed(replies)):
            return f"{len(replies)} replies in a row held a tool call that could not be read"
    return ""


def _same(call: ToolCall) -> tuple[str, Any]:
    """Return what makes two calls the same: name and arguments, however they are laid out."""
    try:
        return call.name, json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.name, call.arguments
