"""Detect from a conversation that an agent repeats itself.

An agent resends the whole conversation with every request, so this needs no memory, and any process may answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from vtc.events import Message, ToolCall

DEFAULT_TOOL_MESSAGES = 20
"""Value of `max_tool_messages` if a profile has a `loop` without any limit."""

type Count = Annotated[int, msgspec.Meta(ge=1)]


class Loop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits on an agent that repeats itself; null is no limit."""

    max_tool_messages: Count | None = None
    """Maximum number of tool results since the user's last message; 20 if no limit is given at all."""
    repeated_calls: Count | None = None
    """Maximum number of consecutive calls with the same arguments and the same result. A call whose result changes
    (polling a job) does not count."""
    malformed_calls: Count | None = None
    """Maximum number of consecutive replies with a call that could not be parsed, and none that could."""
    action: Literal["stop", "steer", "tell"] = "stop"
    """`stop`: the request is not forwarded, and the client receives the reason. `steer`: the model receives it. `tell`:
    it is only reported. If no profile sets limits, three identical calls are reported."""

    @property
    def result_limit(self) -> int | None:
        """Maximum number of tool results since the user's last message; None for no limit."""
        is_bare = self.repeated_calls is None and self.malformed_calls is None
        return self.max_tool_messages or (DEFAULT_TOOL_MESSAGES if is_bare else None)


DEFAULT_LOOP = Loop(repeated_calls=3, action="tell")
"""The limits if no profile sets any."""


def describe_exceeded_limit(
    loop: Loop, messages: Sequence[Message], is_turn: Callable[[Message], bool], is_malformed: Callable[[Message], bool]
) -> str:
    """Describe the limit that a conversation exceeds, for the user or the model; return an empty string if none.

    `messages` contain calls and results in canonical form. `is_turn` distinguishes user turns from text that a client
    adds to results, `is_malformed` finds an assistant's message with a call that could not be parsed.
    """
    last = next((i for i in reversed(range(len(messages))) if is_turn(messages[i])), -1)
    recent = messages[last + 1 :]
    results = sum(message.role == "tool" for message in recent)
    limit = loop.result_limit
    if limit and results >= limit:
        return f"{results} tool calls were made since the last message of the user (the limit is {limit})"
    if count := loop.repeated_calls:
        latest = [*islice(_pair_results(recent), count)]
        if len(latest) == count and all(_is_same(answered, latest[0]) for answered in latest[1:]):
            name = latest[0].call.name
            return f"`{name}` was called {count} times in a row with the same arguments and the same result"
    if loop.malformed_calls:
        replies = [message for message in messages if message.role == "assistant"][-loop.malformed_calls :]
        if len(replies) == loop.malformed_calls and all(is_malformed(message) for message in reversed(replies)):
            return f"{len(replies)} replies in a row contained a tool call that could not be read"
    return ""


class AnsweredCall(NamedTuple):
    """A call and the content of its result: texts, and other parts in the API's form."""

    call: ToolCall
    result: tuple[Any, ...]


def _pair_results(messages: Sequence[Message]) -> Iterator[AnsweredCall]:
    """Pair calls with their results, the last one first: by id, or else by order."""
    results: list[Message] = []
    for message in reversed(messages):
        if message.role == "tool":
            results.insert(0, message)
        elif message.calls:
            by_id = {result.call_id: result for result in results}
            for place, call in reversed([*enumerate(message.calls)]):
                in_order = results[place] if place < len(results) else None
                result = (by_id.get(call.id) if call.id else None) or in_order
                yield AnsweredCall(call, result.content if result else ())
            results = []


def _is_same(answered: AnsweredCall, last: AnsweredCall) -> bool:
    """Return True if two calls have the same name, result and arguments, regardless of their layout."""
    if (answered.call.name, answered.result) != (last.call.name, last.result):
        return False
    return answered.call.sorted_arguments == last.call.sorted_arguments
