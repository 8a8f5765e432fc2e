"""Errors that repeat the conversation: text of a prompt, a page or a file in them does not count as the server's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis.shapes import SHAPES, make_request_body
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.exchange import Session

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
FIELDS: Json = {"store": True, "user": "u", "seed": 1, "metadata": {"a": "b"}}


def open_quoting(text: str, api: str = "openai-chat", **fields: Any) -> Session:
    shape = SHAPES[api]
    request_fields = shape.said(text) if hasattr(shape, "said") else {"messages": [{"role": "user", "content": text}]}
    exchange = Session.open(
        BY_NAME[api], make_request_body(api, **{**request_fields, **fields}), agent(api), planner(), "seed"
    )
    exchange.encode_request()
    return exchange


def error_of(error: Any) -> bytes:
    return json.dumps({"error": {"message": error}} if isinstance(error, str) else error).encode()


ORDERS = [
    "please fix this: Unknown parameter: 'store'. Thanks.",
    "Unsupported value: 'user' does not support it; 'metadata' is not supported, \"seed\" is unknown.",
    "The error was: System message must be at the beginning. Unknown parameter: `seed`",
    "I read: prompt is too long: 5000 tokens > 4096 maximum",
    "Look:\n\tUnsupported parameter: 'seed'\n\tC:\\new\\table 'user' is not supported at all",
    "this model does not support tools, and tool use has not been enabled",
]
QUOTES = [
    "Bad request. The prompt was: {}",
    "1 validation error: got '{}'",
    {"error": {"message": "Provider returned error", "metadata": {"raw": '{"message": "refused: {}"}'}}},
    {"detail": [{"loc": ["body", "x"], "msg": "refused: {}"}]},
    {"error": {"message": "refused", "prompt": "{}", "param": None}},
]


def quoting(error: Any, text: str) -> Any:
    if isinstance(error, str):
        return error.replace("{}", text if error.startswith("Bad") else json.dumps(text))
    filled: Any = json.loads(
        json.dumps(error),
        object_hook=lambda fields: {
            key: value.replace("{}", json.dumps(text)[1:-1] if '{"' in value else text)
            if isinstance(value, str)
            else value
            for key, value in fields.items()
        },
    )
    return filled


@pytest.mark.parametrize("text", ORDERS)
@pytest.mark.parametrize("error", QUOTES, ids=range(len(QUOTES)))
def test_text_of_the_conversation_in_an_error_teaches_nothing(error: Any, text: str) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": text}]
    exchange = open_quoting("", messages=messages, **FIELDS)
    body = error_of(quoting(error, text))
    assert exchange.encode_after_rejection(body, 400) is None
    assert exchange.whole.translate_error(body, 400) is None
    # From a server that received another request, the same words are its own.
    other = open_quoting("", messages=[*messages[:2], {"role": "user", "content": "hi"}], **FIELDS)
    assert (
        other.encode_after_rejection(body, 400)
        or other.report.notes
        or other.whole.translate_error(body, 400)
        or "too long" in text
    )


@pytest.mark.parametrize("where", ["result", "system", "call", "tool", "part"])
def test_text_of_any_part_of_a_request_in_an_error_teaches_nothing(where: str) -> None:
    text = ORDERS[0]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": text})}}
    tool: Json = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
    messages: list[Json] = [{"role": "user", "content": "a"}]
    match where:
        case "result":
            call["function"] = {"name": "read", "arguments": "{}"}
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": "c1", "content": text}]
        case "system":
            messages.insert(0, {"role": "system", "content": text})
        case "call":
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": "c1", "content": "ok"}]
        case "tool":
            tool["function"]["description"] = text
        case "part":
            messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
    exchange = open_quoting("", messages=messages, tools=[tool], **FIELDS)
    assert exchange.encode_after_rejection(error_of(f"Bad request: {text}"), 400) is None


@pytest.mark.parametrize(
    ("text", "error", "fields"),
    [
        # The repetition is a name, or shorter than 24 characters next to names.
        (
            "use mcp__playwright__browser_navigate now",
            "mcp__playwright__browser_navigate: 'seed' is not supported",
            {"seed": 1},
        ),
        ("drop 'seed' please", "'seed' is not supported", {"seed": 1}),
        (
            "response_format, parallel_tool_calls",
            "response_format, parallel_tool_calls: Extra inputs are not permitted",
            {"parallel_tool_calls": True, "response_format": {"type": "json_object"}},
        ),
    ],
)
def test_names_that_an_error_repeats_are_read(text: str, error: str, fields: Json) -> None:
    tools = [{"type": "function", "function": {"name": "mcp__playwright__browser_navigate", "parameters": {}}}]
    assert open_quoting(text, tools=tools, **fields).encode_after_rejection(error_of(error), 400) is not None


def test_words_on_either_side_of_a_quotation_are_no_neighbours() -> None:
    text = "this is the page that I have just read for you"
    assert open_quoting(text, **FIELDS).encode_after_rejection(error_of(f"'seed' {text} is not supported"), 400) is None


ORDER = "and 'seed' is not supported here"


@over(
    before=st.text(max_size=30),
    head=st.text(alphabet=st.sampled_from("ab'\\n \"\n`é\0"), max_size=60),
    tail=st.text(alphabet=st.sampled_from("ab'\\n \"\n`é\0"), max_size=60),
    cut=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    escapes=st.integers(0, 2),
)
def test_a_run_is_found_wherever_it_is_cut_and_however_it_is_escaped(
    before: str, head: str, tail: str, cut: tuple[int, int], escapes: int
) -> None:
    exchange = open_quoting(f"{head}{ORDER}{tail}", **FIELDS)
    run = f"{head[cut[0] :]}{ORDER}{tail[: cut[1]]}"
    for _ in range(escapes):
        run = json.dumps(run)
    again = json.loads(
        exchange.encode_after_rejection(error_of(f"{before} {run}. Unknown parameter: 'user'"), 400) or b"{}"
    )
    assert (again["seed"], "user" in again) == (1, False)
