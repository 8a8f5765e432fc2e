"""The path, a request and a text reply of each API, for tests that run with all APIs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.named_events import Json


@dataclass(frozen=True, slots=True)
class Shape:
    path: str
    request: Callable[..., Json]
    """A function from `stream` and fields to a request."""
    history: Json
    """Fields of a request with the text "Read it", a call of `read` with `filePath` "/a", and its result, "hello"."""
    whole: Callable[[str], Json]
    streamed: Callable[..., list[bytes]]
    """A function from pieces of text to frames."""
    media_type: str = "text/event-stream"
    streaming: str = ""
    """The path of requests for a stream, if it differs from `path`."""

    def build_path(self, *, stream: bool | None = False, model: str | None = None) -> str:
        """Return the path of a request; in some APIs it contains the model, and whether to stream."""
        path = f"{self.streaming}?alt=sse" if stream and self.streaming else self.path
        return path.replace(gemini.MODEL, model or gemini.MODEL)


_CALLED = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}

SHAPES = {
    "openai-chat": Shape(
        "/v1/chat/completions",
        chat.request,
        {
            "messages": [
                {"role": "user", "content": "Read it"},
                {"role": "assistant", "content": None, "tool_calls": [_CALLED]},
                {"role": "tool", "tool_call_id": "c1", "content": "hello"},
            ]
        },
        chat.completion,
        chat.make_stream,
    ),
    "anthropic-messages": Shape(
        messages.PATH,
        messages.request,
        {
            "messages": [
                messages.user("Read it"),
                messages.assistant(messages.call("read", filePath="/a")),
                messages.user([messages.result("hello")]),
            ]
        },
        lambda text: messages.message(messages.text(text)),
        messages.make_text_stream,
    ),
    "openai-responses": Shape(
        responses.PATH,
        responses.request,
        {
            "input": [
                responses.make_input_message("user", "Read it"),
                responses.call("read", filePath="/a"),
                responses.output("hello"),
            ]
        },
        lambda text: responses.response(responses.message(text)),
        responses.make_text_stream,
    ),
    "ollama-chat": Shape(
        ollama.PATH,
        ollama.request,
        {
            "messages": [
                ollama.user("Read it"),
                ollama.assistant("", ollama.call("read", filePath="/a")),
                ollama.result("hello"),
            ]
        },
        ollama.message,
        ollama.make_text_stream,
        ollama.NDJSON["content-type"],
    ),
    "gemini-generate": Shape(
        gemini.PATH,
        gemini.request,
        {
            "contents": [
                gemini.user("Read it"),
                gemini.model(gemini.call("read", filePath="/a")),
                gemini.user(gemini.result("hello")),
            ]
        },
        lambda text: gemini.reply(gemini.text(text)),
        gemini.make_text_stream,
        streaming=gemini.STREAMED,
    ),
}


THINKING: dict[str, Json] = {
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
    "gemini-generate": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
}
"""Fields by which a request asks for the model's reasoning, in APIs that require it."""


def make_request_body(name: str, **fields: Any) -> bytes:
    """Make the body of a request."""
    return chat.encode_json(SHAPES[name].request(**fields))
