"""Ids of calls in requests: Kimi's, the server's own, and those that VTC generates."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat
from tests.apis.conversations import make_question
from tests.exchange.crossings import BY_NAME, call_piece
from tests.exchange.remembering.talks import Talk
from tests.exchanges import agent, feed_stream, planner
from vtc.exchange import Session
from vtc.profiles import Memory


def make_call(name: str, id_: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}}


def result(text: str, id_: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


MIXED: list[dict[str, Any]] = [  # as after a change of the model
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": "", "tool_calls": [make_call("read", "toolu_1"), make_call("write", "call_2")]},
    result("a", "toolu_1"),
    result("b", "call_2"),
    {"role": "assistant", "content": "", "tool_calls": [make_call("read", "functions.read:0")]},
    result("c", "functions.read:0"),
]
CANONICAL = ["functions.read:0", "functions.write:1", "functions.read:2"]


def ids_of(sent: bytes) -> tuple[list[str], list[str]]:
    """Return the ids of the calls and results in a request of chat completions."""
    messages = json.loads(sent)["messages"]
    calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    return calls, [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def open_messages(model: str, messages: Any) -> Session:
    body = chat.encode_json(chat.request(model=model, messages=messages, stream=True))
    return Session.open(BY_NAME["openai-chat"], body, agent("openai-chat"), planner(), "seed")


@pytest.mark.parametrize("model", ["moonshotai/Kimi-K2-Thinking", "kimi-k2.5"])
def test_all_ids_of_a_conversation_with_kimi_are_as_its_template_prints_them(model: str) -> None:
    assert ids_of(open_messages(model, MIXED).encode_request() or b"") == (CANONICAL, CANONICAL)
    # Ids of this form keep their bytes.
    canonical = [*MIXED[:1]]
    for number, name in enumerate(("read", "write", "read")):
        id_ = f"functions.{name}:{number}"
        canonical += [{"role": "assistant", "content": "", "tool_calls": [make_call(name, id_)]}, result("a", id_)]
    exchange = open_messages(model, canonical)
    assert exchange.encode_request() == chat.encode_json(chat.request(model=model, messages=canonical, stream=True))


def test_a_repeated_id_of_a_reply_gets_the_next_number() -> None:
    pieces = [call_piece(number, id="functions.read:0", type="function", name="read", arguments='{"filePath": "a"}')
              for number in (0, 1)]  # fmt: skip
    body = b"".join([chat.ROLE, *pieces, chat.chunk({}, "tool_calls"), chat.DONE])
    found = chat.read(feed_stream(open_messages("kimi-k2", MIXED).stream(), body))
    assert found.ids == ["functions.read:3", "functions.read:4"]
    markup = (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{"filePath": "a"}'
    )
    text = f"{markup}<|tool_call_end|><|tool_calls_section_end|>"
    assert chat.read(feed_stream(open_messages("kimi-k2", MIXED).stream(), b"".join(chat.make_stream(text)))).ids == [
        "functions.read:3"
    ]


@pytest.mark.parametrize("client", ["anthropic-messages", "openai-responses"])
def test_ids_of_the_server_return_to_it_unchanged(client: str) -> None:
    """Ids of another server are replaced by a form that all servers accept."""
    id_ = "functions.read:0/x"
    piece = call_piece(0, id=id_, type="function", name="read", arguments='{"filePath": "/a"}')
    talk = Talk(client, "openai-chat", memory=Memory())
    talk.ask(*make_question(client, "Read it"))
    talk.reply(b"".join([chat.ROLE, piece, chat.chunk({}, "tool_calls"), chat.DONE]))
    assert ids_of(json.dumps(talk.ask()).encode()) == ([id_], [id_])
    talk.memory = Memory()
    calls, results = ids_of(json.dumps(talk.ask()).encode())
    assert calls == results != [id_]
    assert calls[0].startswith("call_")
