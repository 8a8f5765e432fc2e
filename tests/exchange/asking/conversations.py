"""Conversations as clients send them, each with an item that some chat template rejects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.apis import chat
from tests.exchange.asking.servers import send_until_accepted
from tests.exchange.asking.templates import Json, Server
from tests.exchanges import AGENT, API, planner
from vtc.exchange import Session
from vtc.profiles import Memory


def _make_message(role: str, content: Any, *ids: str) -> Json:
    function = {"name": "read", "arguments": '{"filePath": "/path"}'}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def _make_result(id_: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": text}


SYSTEM, USER, MORE = _make_message("system", "<rules>"), _make_message("user", "<one>"), _make_message("user", "<two>")
CALL = "call_of_the_server_0"
CONVERSATIONS: Mapping[str, list[Json]] = {
    "plain": [SYSTEM, USER],
    "without system": [USER],
    "developer": [_make_message("developer", "<rules>"), USER],
    "system amid": [SYSTEM, USER, _make_message("assistant", "<said>"), _make_message("system", "<note>"), MORE],
    "two users": [SYSTEM, USER, MORE],
    "call and result": [SYSTEM, USER, _make_message("assistant", None, CALL), _make_result(CALL, "<found>"), MORE],
    "two calls at once": [
        *(SYSTEM, USER, _make_message("assistant", "", CALL, "call_2")),
        *(_make_result(CALL, "<found>"), _make_result("call_2", "<other>")),
    ],
    "no result": [USER, _make_message("assistant", "", CALL), MORE],
    "parts": [
        _make_message("system", [{"type": "text", "text": "<rules>"}]),
        _make_message("user", [{"type": "text", "text": "<one>"}, {"type": "text", "text": "<two>"}]),
    ],
    "an empty turn": [USER, _make_message("assistant", ""), MORE],
    "assistant last": [USER, _make_message("assistant", "<said>")],
    "assistant first": [_make_message("assistant", "<said>"), USER],
    "nobody asks": [SYSTEM, _make_message("assistant", "<said>")],
    "an agent's": [
        *(_make_message("developer", "<rules>"), USER, _make_message("assistant", None, CALL, "call_2")),
        *(_make_result(CALL, "<found>"), _make_result("call_2", "<other>"), _make_message("system", "<note>"), MORE),
    ],
}
WORDS = ("<rules>", "<one>", "<two>", "<said>", "<note>", "<found>", "<other>", "/path")


def count_requests(messages: list[Json], server: Server) -> int:
    """Count the requests until a server accepts a conversation. Fails if it does not, or if text of it is lost.

    A repetition must be accepted at once, with the quirks learned before.
    """
    memory, body = Memory(), chat.encode_json({"model": "m", "messages": messages, "tools": [chat.tool("read")]})

    def send_all() -> list[Json]:
        return send_until_accepted(Session.open(API, body, AGENT, planner(), "seed", memory), server)

    sent = send_all()
    last, original = json.dumps(sent[-1]["messages"]), json.dumps(messages)
    assert [word for word in WORDS if word in original] == [word for word in WORDS if word in last]
    assert send_all() == sent[-1:]
    if len(sent) == 1:
        assert sent == [json.loads(body)]
    return len(sent)
