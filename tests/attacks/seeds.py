"""Seeds for the fuzzer: every attack of the suite, and a forbidden call in replies of each API."""

from __future__ import annotations

from tests.apis import chat, gemini, messages, ollama, responses
from tests.attacks.lab import make_text_stream
from tests.attacks.test_model import JOINED
from tests.attacks.test_server import ODD, WHOLE

MOST = 3_000
"""Maximum bytes of a seed; replies that are long on purpose are not for the fuzzer."""

CALLS: dict[str, tuple[bytes, bool]] = {
    "messages": (b"".join(messages.make_stream(messages.call_block(0, "bash", "{}"), stop_reason="tool_use")), False),
    "messages, whole": (chat.encode_json(messages.message(messages.call("bash"), stop_reason="tool_use")), True),
    "messages, no number": (chat.frame({"type": "content_block_start", "content_block": messages.call("bash")}), False),
    "messages, from the start": (
        chat.frame({"type": "message_start", "message": messages.message(messages.call("bash"))}),
        False,
    ),
    "responses": (b"".join(responses.make_stream(responses.call_events("bash", "{}"))), False),
    "responses, whole": (chat.encode_json(responses.response(responses.call("bash"))), True),
    "responses, at the end": (
        chat.frame({"type": "response.completed", "response": responses.response(responses.call("bash"))}),
        False,
    ),
    "responses, at the start": (
        chat.frame({"type": "response.created", "response": responses.response(responses.call("bash"))}),
        False,
    ),
    "responses, an item alone": (
        chat.frame({"type": "response.output_item.done", "output_index": 0, "item": responses.call("bash")}),
        False,
    ),
    "responses, an event that nobody knows": (
        chat.frame({"type": "response.thing", "item": responses.call("bash")}),
        False,
    ),
    "responses, done under another name": (
        b"".join(
            responses.make_stream(
                [
                    {"type": "response.output_item.added", "item": responses.call("read")},
                    {"type": "response.output_item.done", "item": responses.call("bash")},
                ]
            )
        ),
        False,
    ),
    "responses, done as another item": (
        b"".join(
            responses.make_stream(
                [
                    {"type": "response.output_item.added", "item": responses.message("a", id="fc_1")},
                    {"type": "response.output_item.done", "item": responses.call("bash")},
                ]
            )
        ),
        False,
    ),
    "responses, begun as what the server carries out": (
        b"".join(
            responses.make_stream(
                [
                    {"type": "response.output_item.added", "item": {"type": "web_search_call", "id": "fc_1"}},
                    {"type": "response.output_item.done", "item": responses.call("bash")},
                ]
            )
        ),
        False,
    ),
    "ollama": (b"".join(ollama.make_stream(ollama.piece("", ollama.call("bash")))), False),
    "ollama, whole": (ollama.piece("", ollama.call("bash")), True),
    "gemini": (b"".join(gemini.make_stream(gemini.frame(gemini.event(gemini.call("bash"))))), False),
    "gemini, whole": (chat.encode_json(gemini.reply(gemini.call("bash"))), True),
    "gemini, in snake case": (
        b"".join(gemini.make_stream(gemini.frame(gemini.event({"function_call": {"name": "bash", "args": {}}})))),
        False,
    ),
    "gemini, in snake case, whole": (
        chat.encode_json(gemini.reply({"function_call": {"name": "bash", "args": {}}})),
        True,
    ),
}
"""By API, replies with a call of a forbidden tool, and True if they are whole."""
_ALL = [
    *((b"".join(pieces), False) for pieces in ODD.values()),
    *((body, True) for body in WHOLE.values()),
    *((b"".join(make_text_stream(text, size=40)), False) for _, text in JOINED.values()),
    *CALLS.values(),
]
SEEDS = [(body, whole) for body, whole in _ALL if len(body) <= MOST]
"""Replies, and True if they are whole."""
