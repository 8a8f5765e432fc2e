"""Results, where servers want them: right after their calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given

NO_RESULT = "(The call was not answered.)"
"""Stands for the result of a call that has none."""
DONE = "Done."
"""What the model says between results and the user; other clients write the same."""


def results(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Put results right after their calls, in their order, one for each.

    One of no call is said by the user, as is a second one of the same call that says something else.
    """
    messages = tuple(_answered(asked.messages))
    came = asked.messages
    if len(messages) == len(came) and all(one is other for one, other in zip(messages, came, strict=True)):
        return asked, ""
    return replace(asked, messages=messages), "results put in the order of their calls"


def after_results(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Let the model say a word between results and what the user says."""
    out: list[Message] = []
    for message in asked.messages:
        if message.role == "user" and out and out[-1].role == "tool":
            out.append(Message("assistant", (DONE,)))
        out.append(message)
    if not (more := len(out) - len(asked.messages)):
        return asked, ""
    return replace(asked, messages=tuple(out)), f"`{DONE}` said between results and the user {more} times"


def _answered(messages: Sequence[Message]) -> Iterator[Message]:
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        after: list[Message] = []
        if message.role == "assistant" and message.calls:
            end = next((at + n for n, one in enumerate(messages[at:]) if one.role == "assistant"), len(messages))
            after, at = [*messages[at:end]], end
        elif message.role == "tool":
            yield _orphan(message)
            continue
        yield message
        if len({call.id for call in message.calls}) < len(message.calls):
            yield from after  # which result is whose is told by ids alone
            continue
        found: dict[str | None, Message] = {}
        for one in after:
            if one.role == "tool" and one.call_id in {call.id for call in message.calls}:
                found.setdefault(one.call_id, one)
        for call in message.calls:
            yield found.get(call.id) or Message("tool", (NO_RESULT,), call_id=call.id, name=call.name)
        for one in after:
            if one.role != "tool":
                yield one
            elif one.call_id not in found or found[one.call_id].content != one.content:
                yield _orphan(one)


def _orphan(result: Message) -> Message:
    of = f" of {result.name}" if result.name else ""
    return Message("user", (f"Result{of}:", *result.content)) if result.content else Message("user")
