"""Images in the results of tools, as JSON text of parts or with another API's fields, on a server of another API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import pairs
from tests.apis.conversations import get_history_key, make_answer_entries, make_question
from tests.exchange.crossings import BY_NAME, PAIR, open_bridge
from vtc.events import Message, ToolCall

URL = "data:image/png;base64,AAAA"
PARTS: dict[str, tuple[Any, Any]] = {
    "openai-chat": ({"type": "text", "text": "Seen."}, {"type": "image_url", "image_url": {"url": URL}}),
    "openai-responses": ({"type": "input_text", "text": "Seen."}, {"type": "input_image", "image_url": URL}),
    "anthropic-messages": (
        {"type": "text", "text": "Seen."},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ),
    "ollama-chat": ({"type": "text", "text": "Seen."}, {"type": "image_url", "image_url": {"url": URL}}),
    "gemini-generate": ({"text": "Seen."}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}),
}
CHATS_IMAGE = {"type": "input_image", "image_url": {"url": URL, "detail": "original"}}


def send_result(client: str, server: str, result: str) -> Any:
    """Return the conversation that a server receives if a tool returned this text."""
    call = Message("assistant", ("",), (ToolCall("read", '{"filePath": "/a"}', "call_1"),))
    history = [*make_question(client, "Look."), *make_answer_entries(client, call, result)]
    sent = json.loads(open_bridge(client, server, **{get_history_key(client): history}).encode_request())
    if server != "gemini-generate":
        pairs.check_request(server, sent)
    return sent[get_history_key(server)]


def count_images(server: str, conversation: Any) -> int:
    text = json.dumps(conversation)
    marks = {
        "ollama-chat": '"images": ["AAAA"]',
        "anthropic-messages": '"data": "AAAA"',
        "gemini-generate": '"data": "AAAA"',
    }
    return text.count(marks.get(server, f'"{URL}"'))


@PAIR
def test_parts_as_json_text_are_parts(client: str, server: str) -> None:
    conversation = send_result(client, server, json.dumps(PARTS[client]))
    assert count_images(server, conversation) == 1
    assert "Seen." in json.dumps(conversation)
    assert '\\"' not in json.dumps(conversation).replace('{\\"filePath\\": \\"/a\\"}', "")


@PAIR
def test_other_json_stays_text(client: str, server: str) -> None:
    text, image = PARTS[client]
    for parts in ([text], [text, {"type": "note", "image": 1}], [image, 5], [image, None], [[image]], {"image": image}):
        result = json.dumps(parts)
        conversation = send_result(client, server, result)
        assert not count_images(server, conversation)
        assert json.dumps(result)[1:-1] in json.dumps(conversation)
    assert "[image" in json.dumps(send_result(client, server, "[image"))


@pytest.mark.parametrize("server", pairs.NAMES)
@pytest.mark.parametrize("as_text", [False, True])
def test_image_of_responses_may_have_the_object_of_chat_completions(server: str, as_text: bool) -> None:
    output = json.dumps([CHATS_IMAGE]) if as_text and server != "openai-responses" else [CHATS_IMAGE]
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": output}
    exchange = open_bridge("openai-responses", server, input=[{"role": "user", "content": "Look."}, call, result])
    sent = json.loads(exchange.encode_request())
    assert count_images(server, sent[get_history_key(server)]) == 1
    assert BY_NAME[server].request(json.dumps(sent).encode()).messages


@pytest.mark.parametrize(("detail", "expected"), [("low", "low"), ("original", "high"), ("auto", "auto"), ("x", None)])
def test_detail_of_an_image_has_a_level_of_chat_completions(detail: str, expected: str | None) -> None:
    content = [{"type": "input_image", "image_url": URL, "detail": detail}]
    exchange = open_bridge("openai-responses", "openai-chat", input=[{"role": "user", "content": content}])
    (part,) = json.loads(exchange.encode_request())["messages"][-1]["content"]
    assert part["image_url"].get("detail") == expected
