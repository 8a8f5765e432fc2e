"""Agents that go round in circles: stopped, or told so, by what the conversation of a request shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vtc.apis import Request
from vtc.dialects.reading.reader import Reader
from vtc.dialects.text_client import conversation
from vtc.events import Call, Message, Refusal
from vtc.guards import loops
from vtc.profiles.plan import Plan
from vtc.reporting.report import Report


def answer_to_loops(
    plan: Plan,
    request: Request,
    reader: Callable[[], Reader],
    report: Report,
) -> tuple[str, str]:
    """Say why the agent is stopped, and what the model is told to get it out of a loop; empty if all is well.

    `reader` makes the reader of a whole reply.
    """
    stop = steer = ""
    configured = [guards.loop for guards in plan.stack.guards if guards.loop]
    client = plan.protocol.client_text
    if not configured:
        return stop, steer
    messages: Sequence[Message] = request.messages
    own = {id(message) for message in messages}
    if client:
        messages = conversation.structured(messages, client.dialect, plan.protocol.by_name)

    def is_turn(message: Message) -> bool:
        return message.role == "user" and id(message) in own  # what a client adds to results is no turn

    def is_malformed(message: Message) -> bool:
        """True if an assistant's message holds a call that could not be read, and none that could."""
        if message.calls or not plan.reading.dialects:
            return False
        kinds = {type(event) for event in reader().whole(message.text)}
        return Refusal in kinds and Call not in kinds

    for loop in configured:
        fault = loops.fault(loop, messages, is_turn, is_malformed)
        if not fault:
            continue
        if loop.action == "stop":
            stop = fault
        else:
            steer = f"({fault[0].upper()}{fault[1:]}. Do something else, or answer without a tool.)"
        report.intervened("loop", "stopped" if loop.action == "stop" else "steered", "", fault)
    return stop, steer
