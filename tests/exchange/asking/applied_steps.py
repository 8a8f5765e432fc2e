"""Steps that are applied one by one, or all together as over a bridge to a chat server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.apis import chat
from tests.exchanges import AGENT, API, PROFILES, planner
from vtc.apis import APIS, bridge
from vtc.apis.bridge import WireNames
from vtc.dialects.constrain import Demand
from vtc.events import CanonicalRequest, Message, Tool, ToolCall
from vtc.exchange import Session
from vtc.exchange.asking.steps import BRIDGE_STEPS, DEFAULT_STEPS, StepContext, apply_steps
from vtc.profiles.reply_constraint import ReplyConstraint

BY_NAME = {api.name: api for api in APIS}
ALL: dict[str, Any] = {
    **DEFAULT_STEPS,
    **BRIDGE_STEPS,
    **dict.fromkeys(
        ("declared", "developer", "single", "after_results", "nulls", "choice", "signatures", "user_last", "streamed"),
        True,
    ),
    "something": "first",
    "ids": "alphanumeric9",
    "images": "noted",
    "schemas": "plain",
    "thinking": "unsaid",
    "context": 65536,
    "max_tokens": 8192,
    "constrain": ReplyConstraint("gbnf", PROFILES.dialects["hermes"], (Tool("now"),), Demand(calls_only=True)),
}
"""Every step, with a value."""


def make_context(client: str = "openai-chat", server: str = "openai-chat", **fields: Any) -> StepContext:
    from tests.apis.shapes import make_request_body

    request = BY_NAME[client].request(make_request_body(client, **fields))
    return StepContext(request, BY_NAME[server], WireNames(request.offer.declared))


def after(*messages: Message, **steps: Any) -> tuple[Message, ...]:
    """Return the messages after some steps; after those of a bridge by default."""
    return apply_steps(CanonicalRequest(model="m", messages=messages), steps or BRIDGE_STEPS, make_context())[
        0
    ].messages


def bridge_request(
    client: str, body: Any, server: str = "openai-chat", path: str = "", **steps: Any
) -> CanonicalRequest:
    """Return the request to a server of another API."""
    request = BY_NAME[client].request(chat.encode_json(body), path)
    found = bridge.to_canonical(request, request.messages, request.offer.tools, request.offer.choice)
    context = StepContext(request, BY_NAME[server], WireNames(request.offer.declared))
    return apply_steps(found, {**BRIDGE_STEPS, **steps}, context)[0]


def make_message(role: str, text: str = "", *calls: ToolCall) -> Message:
    return Message(role, (text,) if text else (), calls)


def result(text: str, call_id: str | None = "c1", name: str | None = None) -> Message:
    return Message("tool", (text,), call_id=call_id, name=name)


DEVELOPER_MESSAGES = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Go."}]


def list_roles(model: str, *, host: str = "127.0.0.1") -> list[str]:
    """Return the roles that a server without a profile receives for a message of the developer and one of the user."""
    body = chat.encode_json(chat.request(messages=DEVELOPER_MESSAGES, model=model))
    exchange = Session.open(API, body, replace(AGENT, host=host), planner(), "seed")
    sent = exchange.encode_request()
    found = [one["role"] for one in json.loads(sent)["messages"]]
    assert (sent == body) == (found == ["developer", "user"])
    return found
