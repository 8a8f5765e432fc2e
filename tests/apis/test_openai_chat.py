"""Chat completions: requests as messages and tools and back, and whole replies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.toy import Toy
from vtc.apis import BadRequest
from vtc.apis.openai_chat import OpenAIChat, Request
from vtc.events import Message, Opaque, Tool, ToolCall

API = OpenAIChat()
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}


def request(**fields: Any) -> Request:
    return Request(chat.encoded({"model": "m", "messages": [], **fields}))


def said(entry: Any) -> tuple[Any, ...]:
    """The last message, without its source."""
    *_, message = request(messages=entry if isinstance(entry, list) else [entry]).messages
    return message.role, message.content, message.calls, message.call_id, message.name


CACHED = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
CALL = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"x": 1}'}}
READ = ToolCall("read", '{"x": 1}', "a")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"role": "user", "content": "hi"}, ("user", ("hi",), (), None, None)),
        ({"role": "user", "content": ""}, ("user", (), (), None, None)),
        ({"role": "developer", "content": "hi"}, ("system", ("hi",), (), None, None)),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
            ("user", ("a", Opaque(IMAGE)), (), None, None),
        ),
        (
            {"role": "user", "content": ["x", {"type": "text"}]},
            ("user", (Opaque("x"), Opaque({"type": "text"})), (), None, None),
        ),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, ("assistant", (), (READ,), None, None)),
        ({"role": "assistant", "content": None, "tool_calls": None}, ("assistant", (), (), None, None)),
        (
            {"role": "assistant", "function_call": CALL["function"]},
            ("assistant", (), (ToolCall("read", '{"x": 1}'),), None, None),
        ),
        (
            [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "a", "content": "r"}],
            ("tool", ("r",), (), "a", "read"),
        ),
        ({"role": "tool", "tool_call_id": "b", "name": "n", "content": "r"}, ("tool", ("r",), (), "b", "n")),
        ({"role": "tool", "tool_call_id": "b", "content": None}, ("tool", (), (), "b", None)),
        ({"role": "function", "name": "read", "content": "r"}, ("tool", ("r",), (), None, "read")),
        ({"role": "odd"}, ("odd", (), (), None, None)),
        ({}, ("", (), (), None, None)),
    ],
)
def test_messages(entry: Any, message: tuple[Any, ...]) -> None:
    assert said(entry) == message


@pytest.mark.parametrize(
    ("fields", "tools", "legacy"),
    [
        ({}, [], False),
        ({"tools": None}, [], False),
        ({"tools": [{"type": "function", "function": {"name": "a"}}]}, [Tool("a")], False),
        (
            {"tools": [{"function": {"name": "a", "description": None, "parameters": SCHEMA}}]},
            [Tool("a", "", SCHEMA)],
            False,
        ),
        (
            {"tools": [{"type": "web_search"}, {"type": "function"}, {"type": "function", "function": {"name": 5}}]},
            [],
            False,
        ),
        ({"functions": [{"name": "a", "description": "d"}]}, [Tool("a", "d")], True),
        ({"tools": [{"function": {"name": "a"}}], "functions": [{"name": "b"}]}, [Tool("a"), Tool("b")], False),
    ],
)
def test_tools(fields: dict[str, Any], tools: list[Tool], legacy: bool) -> None:
    found = request(**fields)
    assert (found.tools, found.legacy) == (tools, legacy)


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, "auto"),
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, "a"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}, "auto"),
        ({"function_call": {"name": "a"}}, "a"),
        ({"function_call": "none"}, "none"),
    ],
)
def test_tool_choice(fields: dict[str, Any], choice: str) -> None:
    assert request(**fields).tool_choice == choice


def test_the_other_fields() -> None:
    found = request(stream=True, parallel_tool_calls=False, temperature=1)
    assert (found.model, found.stream, found.parallel) == ("m", True, False)
    assert found.fields["temperature"] == 1
    bare = Request(b"{}")
    assert (bare.model, bare.stream, bare.parallel, bare.messages, bare.tool_choice) == ("", False, True, [], "auto")


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"5", b'{"messages": 5}', b'{"messages": null}', b'{"messages": [[]]}', b'{"tools": 5}']
)
def test_what_is_no_request(body: bytes) -> None:
    with pytest.raises(BadRequest, match="the body is no chat completion request"):
        Request(body)


# Encoding

BODY = b"""{ "model": "m",
  "messages": [ {"role" : "system", "content": "\\u00e9"}, {"role":"user","content":[{"type":"text"}], "x":1.0} ],
  "tools" : [{"type":"function","function":{"name":"a"}}], "tool_choice":"auto", "n": 1e0, "z":{ } }"""


def test_what_is_not_changed_keeps_its_bytes() -> None:
    found = Request(BODY)
    messages = [*found.messages[:1], Message("user", ("new",)), *found.messages[1:]]
    encoded = found.encode(messages=messages, tools=(), set_={"seed": 5}, drop=["z"])
    assert encoded == (
        b'{"model":"m","messages":[{"role" : "system", "content": "\\u00e9"},{"role":"user","content":"new"},'
        b'{"role":"user","content":[{"type":"text"}], "x":1.0}],"n":1e0,"seed":5}'
    )


def test_tools_are_kept_replaced_or_dropped() -> None:
    found = request(tools=[{"type": "function", "function": {"name": "a"}}], tool_choice="auto", functions=[])
    assert {"tools", "tool_choice", "functions"} <= set(json.loads(found.encode()))
    assert set(json.loads(found.encode(tools=()))) == {"model", "messages"}
    replaced = json.loads(found.encode(tools=[Tool("b", "d", SCHEMA)]))
    assert replaced["tools"] == [
        {"type": "function", "function": {"name": "b", "description": "d", "parameters": SCHEMA}}
    ]
    assert "tool_choice" not in replaced


@pytest.mark.parametrize(
    ("source", "message", "entry"),
    [
        ({}, Message("user", ("a", "b")), {"role": "user", "content": "ab"}),
        ({}, Message("assistant", (), (READ,)), {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        ({}, Message("assistant", ("a",), (READ,)), {"role": "assistant", "content": "a", "tool_calls": [CALL]}),
        ({}, Message("tool", ("r",), call_id="a", name="n"), {"role": "tool", "content": "r", "tool_call_id": "a"}),
        ({}, Message("user", ("r",), call_id="a", name="n"), {"role": "user", "content": "r"}),
        (
            {},
            Message("user", ("a", Opaque(IMAGE))),
            {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE]},
        ),
        (
            {"role": "developer", "name": "n", "x": 1},
            Message("system", ("a",)),
            {"role": "developer", "content": "a", "name": "n", "x": 1},
        ),
        (
            {"role": "assistant", "tool_calls": [CALL], "refusal": None},
            Message("assistant", ("a",)),
            {"role": "assistant", "content": "a", "refusal": None},
        ),
        ({"role": "tool", "tool_call_id": "a", "x": 1}, Message("user", ("a",)), {"role": "user", "content": "a"}),
        (
            {"content": [CACHED]},
            Message("user", ("a", "b")),
            {"role": "user", "content": [CACHED, {"type": "text", "text": "b"}]},
        ),
        ({"content": []}, Message("user", ()), {"role": "user", "content": []}),
    ],
)
def test_a_changed_message(source: Any, message: Message, entry: Any) -> None:
    """It says what it says now, and keeps what of its source says nothing of that."""
    changed = Message(message.role, message.content, message.calls, message.call_id, message.name, source)
    assert json.loads(request().encode(messages=[changed]))["messages"] == [entry]


def test_half_a_character() -> None:
    """Only Python's own decoder takes it; what is sent says the same."""
    body = b'{"messages":[{"role":"user","content":"\\ud83d"}], "x": "\\ud83d"}'
    found = Request(body)
    assert [message.text for message in found.messages] == ["\ud83d"]
    messages = [Message("system", ("\ud83d!",)), *found.messages]
    assert json.loads(found.encode(messages=messages)) == {
        "messages": [{"role": "system", "content": "\ud83d!"}, {"role": "user", "content": "\ud83d"}],
        "x": "\ud83d",
    }


# Whole replies


def rewritten(body: Any, *, legacy: bool = False, structured: bool = True) -> Any:
    return json.loads(API.rewrite(chat.encoded(body), lambda: Toy(structured), legacy=legacy))


@pytest.mark.parametrize("content", ["", None, "Hello", "a [", "[ x] é", 5, [{"type": "text", "text": "[x]"}]])
def test_a_reply_without_calls_keeps_its_bytes(content: Any) -> None:
    body = json.dumps(chat.completion(content), indent=3).encode()
    assert API.rewrite(body, Toy, legacy=False) == body


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"choices": null}', b'{"choices": [{}]}', b'{"choices": [{"message": []}]}', b'"x"']
)
def test_what_is_no_completion_keeps_its_bytes(body: bytes) -> None:
    assert API.rewrite(body, Toy, legacy=False) == body


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a[x]", chat.Read("a", calls=[("x", {})], finish_reason="tool_calls")),
        ("[x][y]", chat.Read(calls=[("x", {}), ("y", {})], finish_reason="tool_calls")),
        ("a~b", chat.Read("ab", finish_reason="stop")),
        ("(a)b", chat.Read("b", "(a)", finish_reason="stop")),
        ("{a}", chat.Read("<a>", finish_reason="stop")),
    ],
)
def test_what_is_read_of_a_reply(content: str, message: chat.Read) -> None:
    found = rewritten(chat.completion(content, message={"refusal": None, "x": 1}, y=2))
    assert chat.read(chat.encoded(found)) == message
    assert (found["usage"], found["y"], found["choices"][0]["message"]["x"]) == (chat.USAGE, 2, 1)


def test_content_is_null_where_only_calls_are_left() -> None:
    """As the API has it: an empty text beside calls looks like an answer to some clients."""
    assert rewritten(chat.completion("[x]"))["choices"][0]["message"]["content"] is None
    assert rewritten(chat.completion("~"))["choices"][0]["message"]["content"] == ""


def test_thoughts_join_those_that_were_there() -> None:
    found = rewritten(chat.completion("(b)", message={"reasoning_content": "a"}))
    assert found["choices"][0]["message"]["reasoning_content"] == "a(b)"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_reason_to_stop_early_stays(reason: str) -> None:
    assert rewritten(chat.completion("[x]", reason))["choices"][0]["finish_reason"] == reason


def test_every_choice_is_read_apart() -> None:
    reply = chat.completion("[x]")
    reply["choices"] += [{**reply["choices"][0], "index": 1, "message": {"role": "assistant", "content": "a["}}]
    found = chat.encoded(rewritten(reply))
    assert chat.read(found, 0).calls == [("x", {})]
    assert chat.read(found, 1) == chat.Read("a[", finish_reason="stop")


def test_the_older_form() -> None:
    (choice,) = rewritten(chat.completion("[x]"), legacy=True)["choices"]
    assert choice["message"]["function_call"] == {"name": "x", "arguments": "{}"}
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "function_call"


def test_own_calls_switch_the_reading_off() -> None:
    body = chat.encoded(chat.completion("[x]", "tool_calls", message={"tool_calls": [CALL]}))
    assert API.rewrite(body, Toy, legacy=False) == body


@pytest.mark.parametrize("calls", [{"tool_calls": [CALL]}, {"function_call": CALL["function"]}])
@pytest.mark.parametrize("content", [None, "", "Hi"])
def test_own_calls_are_text_for_a_client_of_text(content: str | None, calls: Any) -> None:
    (choice,) = rewritten(chat.completion(content, "tool_calls", message=calls), structured=False)["choices"]
    id_ = "a" if "tool_calls" in calls else "call_0"
    assert choice["message"] == {"role": "assistant", "content": f'{content or ""}[read {{"x": 1}} {id_}]'}
    assert choice["finish_reason"] == "stop"


@given(st.text("ab[]x(){}~ é", max_size=30), st.sampled_from(["stop", "length", None]))
def test_whole_and_streamed_replies_say_the_same(content: str, reason: str | None) -> None:
    whole = chat.read(chat.encoded(rewritten(chat.completion(content, reason))))
    rewriter = API.rewriter(Toy, legacy=False)
    frames = [*chat.said(content), *[chat.chunk({}, reason)] * bool(reason)]
    out = [piece for frame in frames for piece in rewriter.feed(frame, frame[6:-2])]
    streamed = chat.read(b"".join([*out, *rewriter.finish()]))
    if reason is None and not whole.calls:
        streamed.finish_reason = None
    if reason is None and whole.calls:
        assert streamed.finish_reason == whole.finish_reason == "tool_calls"
    assert streamed == whole


def test_reasoning_beside_the_text_is_not_looked_for_in_it() -> None:
    toy = Toy()
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "so"}
    body = chat.encoded({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    assert API.rewrite(body, lambda: toy, legacy=False) == body
    assert toy.reasoning_seen
