"""A reply as the messages that it adds up to: for people to read, never to rewrite."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vtc.apis import folding
from vtc.apis.base import Api, Reply
from vtc.apis.tool_calls import ToolCallAccumulator
from vtc.events import CUT_OFF, CallDelta, Delta, End, Failure, Finish, Message, ReasoningDelta, TextDelta, Usage


def replies(api: Api, body: bytes) -> list[Reply]:
    """Read each choice of a reply as one message. Raises ValueError if the body is no reply of this API.

    Of a stream that broke off, what had come.
    """
    decoder = api.decoder()
    if not decoder.framing.matches(body):
        body = folding.streamed(api, body)
    reader = decoder.framing.reader()
    choices: dict[int, list[Delta]] = {}
    usage: Usage | None = None
    for frame in [*reader.feed(body), *reader.finish()]:
        decoded = decoder.decode(frame)
        usage = next((one for one in decoded.beside if isinstance(one, Usage)), usage) if decoded else usage
        for delta in decoded.deltas if decoded else ():
            if isinstance(delta, End | Failure):
                continue
            choices.setdefault(delta.choice, []).append(delta)
    if not choices:
        raise ValueError(f"the body is no reply of {api.name}")
    return [_reply(deltas, usage) for _, deltas in sorted(choices.items())]


def text(api: Api, body: bytes) -> str:
    """Return what the first choice says, its calls written as JSON; empty if the body is no reply of this API."""
    try:
        message = replies(api, body)[0].message
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in message.calls]
    return "\n".join(part for part in (message.text, *calls) if part)


def _reply(deltas: Sequence[Delta], usage: Usage | None) -> Reply:
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    message = Message(
        "assistant",
        (said,) if said else (),
        tuple(ToolCallAccumulator(delta for delta in deltas if isinstance(delta, CallDelta)).calls()),
        reasoning="".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
    )
    end = next((delta for delta in reversed(deltas) if isinstance(delta, Finish) and delta.said), None)
    own = next((delta.own for delta in deltas if isinstance(delta, ReasoningDelta) and delta.own), None)
    return Reply(
        message,
        end.said if end else None,
        end is None or end.reason not in CUT_OFF,
        usage,
        all(delta.clean for delta in deltas if isinstance(delta, CallDelta)),
        own.kind.rpartition(".")[2] if own else "",
    )
