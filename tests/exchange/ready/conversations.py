"""Conversations as clients send them, each with an item that some chat template rejects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.apis import chat
from tests.exchange.ready.servers import until_taken
from tests.exchange.ready.templates import Json, Server
from tests.exchanges import AGENT, API, planner
from vtc.exchange import Session
from vtc.profiles import Memory


def _said(role: str, content: Any, *ids: str) -> Json:
    function = {"name": "read", "arguments": '{"filePath": "/path"}'}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def _found(id_: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": text}


SYSTEM, USER, MORE = _said("system", "<rules>"), _said("user", "<one>"), _said("user", "<two>")
CALL = "call_of_the_server_0"
CONVERSATIONS: Mapping[str, list[Json]] = {
    "plain": [SYSTEM, USER],
    "without system": [USER],
    "developer": [_said("developer", "<rules>"), USER],
    "system amid": [SYSTEM, USER, _said("assistant", "<said>"), _said("system", "<note>"), MORE],
    "two users": [SYSTEM, USER, MORE],
    "call and result": [SYSTEM, USER, _said("assistant", None, CALL), _found(CALL, "<found>"), MORE],
    "two calls at once": [
        *(SYSTEM, USER, _said("assistant", "", CALL, "call_2")),
        *(_found(CALL, "<found>"), _found("call_2", "<other>")),
    ],
    "no result": [USER, _said("assistant", "", CALL), MORE],
    "parts": [
        _said("system", [{"type": "text", "text": "<rules>"}]),
        _said("user", [{"type": "text", "text": "<one>"}, {"type": "text", "text": "<two>"}]),
    ],
    "an empty turn": [USER, _said("assistant", ""), MORE],
    "assistant last": [USER, _said("assistant", "<said>")],
    "assistant first": [_said("assistant", "<said>"), USER],
    "nobody asks": [SYSTEM, _said("assistant", "<said>")],
    "an agent's": [
        *(_said("developer", "<rules>"), USER, _said("assistant", None, CALL, "call_2")),
        *(_found(CALL, "<found>"), _found("call_2", "<other>"), _said("system", "<note>"), MORE),
    ],
}
WORDS = ("<rules>", "<one>", "<two>", "<said>", "<note>", "<found>", "<other>", "/path")


def taken(messages: list[Json], server: Server) -> int:
    """Count the requests until a server accepts a conversation. Fails if it does not, or if text of it is lost.

    A repetition must be accepted at once, with the quirks learned before.
    """
    memory, body = Memory(), chat.encoded({"model": "m", "messages": messages, "tools": [chat.tool("read")]})

    def asked() -> list[Json]:
        return until_taken(Session.open(API, body, AGENT, planner(), "seed", memory), server)

    sent = asked()
    last, came = json.dumps(sent[-1]["messages"]), json.dumps(messages)
    assert [word for word in WORDS if word in came] == [word for word in WORDS if word in last]
    assert asked() == sent[-1:]
    if len(sent) == 1:
        assert sent == [json.loads(body)]
    return len(sent)
