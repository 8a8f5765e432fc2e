"""Chat completion requests that VTC renders for clients of other APIs."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis.openai_chat import API, Request
from vtc.events import Answer, CanonicalRequest, Failure, Media, Message, Opaque, Tool, ToolCall

USER = Message("user", ("hi",))
IMAGE = Opaque(media=Media("image", "image/png", "AA"))
URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}


def render_request(*messages: Message, **fields: Any) -> Any:
    return API.writer.build_request(CanonicalRequest(model="m", messages=messages or (USER,), **fields))


def test_a_plain_request() -> None:
    assert render_request() == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": False}
    assert render_request(stream=True)["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("message", "entries"),
    [
        (Message("user", ("a", IMAGE)), [{"role": "user", "content": [{"type": "text", "text": "a"}, URL]}]),
        (
            Message("assistant", (), (ToolCall("read", '{"b": 1, "a": 2}', "c1"),), reasoning="hm"),
            [
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"b": 1, "a": 2}'}}
                    ],
                }
            ],
        ),
        (
            Message("tool", ("seen", IMAGE), call_id="c1", name="look"),
            [
                {"role": "tool", "tool_call_id": "c1", "content": "seen"},
                {"role": "user", "content": [{"type": "text", "text": "From the result of look:"}, URL]},
            ],
        ),
    ],
)
def test_messages(message: Message, entries: list[Any]) -> None:
    """Images of a result reach the model in a user message; arguments keep their bytes."""
    assert render_request(message)["messages"] == entries


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({"limits": {"max_tokens": 5, "stop": ["x"], "num_ctx": 1}}, {"max_tokens": 5, "stop": ["x"]}),
        ({"effort": "high"}, {"reasoning_effort": "high"}),
        ({"answer": Answer()}, {"response_format": {"type": "json_object"}}),
        (
            {"answer": Answer({"type": "object"}, "a", True)},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
        ({"choice": "required"}, {}),
        (
            {"tools": (Tool("go"),), "choice": "go", "parallel": False},
            {"tool_choice": {"type": "function", "function": {"name": "go"}}, "parallel_tool_calls": False},
        ),
        ({"tools": (Tool("go"),), "choice": "none"}, {"tool_choice": "none"}),
    ],
)
def test_other_fields_of_a_request(fields: Any, written: Any) -> None:
    found = render_request(**fields)
    rest = {key: value for key, value in found.items() if key not in ("model", "messages", "stream", "tools")}
    assert rest == written


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (URL, Media("image", "image/png", "AA")),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
            Media("document", "application/pdf", "AA", name="a.pdf"),
        ),
        ({"type": "refusal", "refusal": "no"}, "no"),
        ({"type": "input_audio", "input_audio": {}}, None),
        ("bare", "bare"),
    ],
)
def test_meaning_of_a_part(part: Any, found: Any) -> None:
    assert Request.interpret_part(part) == found


def test_an_error() -> None:
    assert API.build_error(Failure("no"), 404)["error"] == {
        "message": "no",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }
