"""A server with unusual JSON cannot bypass a policy: real clients find no forbidden call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from tests.attacks.clients import cline, find_chat_calls, join_texts, parse_json
from tests.attacks.lab import RULES, actions, native, open_under, stream_reply, whole
from tests.known import MAX_JSON_BYTES
from vtc.exchange import WITHHELD

pytestmark = pytest.mark.every

DENY = {"denied_tools": ["bash"], "on_denied": "drop"}
ENTRY = {"index": 0, "id": "c0", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
READ = {**ENTRY, "function": {"name": "read", "arguments": '{"filePath": "a"}'}}
CUSTOM = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "bash", "input": "rm"}}
DEEP = "[" * 3_000 + "]" * 3_000
LONG = "1" * 5_000


def calls(*entries: Any, **fields: Any) -> bytes:
    return chat.chunk({"tool_calls": [*entries]}, **fields)


def choices(*entries: Any, **fields: Any) -> bytes:
    return chat.frame({**chat.HEAD, "choices": [*entries], **fields})


def raw(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


DELTA = {"delta": {"tool_calls": [ENTRY]}, "finish_reason": None}
ONE = json.dumps({"index": 0, **DELTA})
FOLDED = ("TOOL_CALLS", "Tool_calls", "tool_call\u017f")
"""Keys that clients with case folding treat as `tool_calls`."""
ODD: dict[str, list[bytes]] = {
    **{f"the key {key}": [chat.chunk({"content": "Hi", key: [ENTRY]})] for key in FOLDED},
    "a message in the place of a delta": [choices({"index": 0, "message": {"tool_calls": [ENTRY]}})],
    # frames after which a stream failed open
    "nested 3,000 deep": [raw(f'{{"x": {DEEP}, "choices": []}}'), calls(ENTRY)],
    "null among calls": [calls(None), calls(ENTRY)],
    "calls that are text": [chat.chunk({"tool_calls": "x"}), calls(ENTRY)],
    "a function call that is text": [chat.chunk({"function_call": "x"}), calls(ENTRY)],
    "a list for an index of a choice": [choices({"index": [0], "delta": {"content": "x"}}), calls(ENTRY)],
    "an object for an index of a call": [calls({**ENTRY, "index": {}}), calls(ENTRY)],
    "a name that is a list": [calls({**ENTRY, "function": {"name": ["bash"]}}), calls(ENTRY)],
    "choices as an object": [chat.frame({**chat.HEAD, "choices": {"0": {"index": 0, **DELTA}}})],
    "choices as a number": [chat.frame({**chat.HEAD, "choices": 5}), calls(ENTRY)],
    "calls as an object": [chat.chunk({"tool_calls": {"0": ENTRY}})],
    "16 MiB without a blank line": [b"data: " + b"x" * (17 << 20), b"x" * 100, b"\n\n", calls(ENTRY)],
    # frames that passed
    "beside a number of 5,000 digits": [raw(f'{{"x": {LONG}, "choices": [{ONE}]}}')],
    "beside something nested": [raw(f'{{"x": {DEEP}, "choices": [{ONE}]}}')],
    "beside a null choice": [choices(None, {"index": 0, **DELTA})],
    "its name over two choices": [
        calls({**ENTRY, "function": {"name": "ba", "arguments": ""}}),
        calls({**ENTRY, "function": {"name": "sh", "arguments": "{}"}}, index=1),
    ],
    "its name in two pieces": [
        calls({**ENTRY, "function": {"name": "bash"}}),
        calls({"index": 0, "function": {"name": "_x", "arguments": "{}"}}),
    ],
    "its name in two pieces, the second denied": [
        calls({**ENTRY, "function": {"name": "read"}}),
        calls({"index": 0, "function": {"name": "bash", "arguments": "{}"}}),
    ],
    "a function and a custom tool": [calls({**ENTRY, **CUSTOM, "function": READ["function"]})],
    "a name beside the function": [calls({**READ, "name": "bash"})],
    "in a comment that some clients cut": [b": \xe2\x80\xa8data: " + calls(ENTRY)[6:]],
    "beside text, in a comment": [b": \x0bdata: " + calls(ENTRY)[6:-2] + b"\n" + chat.make_text_chunks("x")[0]],
    "cut off": [calls(ENTRY)[:-9]],
    "without a blank line": [calls(ENTRY)[:-2]],
    # frames that were withheld
    "twice": [calls(ENTRY), calls(ENTRY)],
    "in both forms": [chat.chunk({"tool_calls": [READ], "function_call": ENTRY["function"]})],
    "a custom tool": [calls(CUSTOM)],
    "behind the end": [chat.STOP, calls(ENTRY)],
    "behind [DONE]": [chat.STOP, chat.DONE, calls(ENTRY)],
    "another choice behind [DONE]": [chat.STOP, chat.DONE, calls(ENTRY, index=1)],
    "index null": [calls({**ENTRY, "index": None})],
    "index text": [calls({**ENTRY, "index": "0"})],
    "index -1": [calls({**ENTRY, "index": -1})],
    "no index": [calls({key: ENTRY[key] for key in ("id", "type", "function")})],
    "choice as text": [choices({"index": "0", **DELTA})],
    "choice as a float": [choices({"index": 0.5, **DELTA})],
    "arguments as an object": [calls({**ENTRY, "function": {"name": "bash", "arguments": {}}})],
    "arguments as a list": [calls({**ENTRY, "function": {"name": "bash", "arguments": [1]}})],
    "an id that is a number": [calls({**ENTRY, "id": 5})],
    "prefixed": [calls({**ENTRY, "function": {"name": "functions.bash", "arguments": "{}"}})],
    "in capitals": [calls({**ENTRY, "function": {"name": "BASH", "arguments": "{}"}})],
    "a delta null": [choices({"index": 0, "delta": None}), calls(ENTRY)],
    "a delta list": [choices({"index": 0, "delta": [1]}), calls(ENTRY)],
    "a byte order mark": [b"\xef\xbb\xbf" + calls(ENTRY)],
    "CR alone": [calls(ENTRY).replace(b"\n", b"\r")],
    "several data lines": [calls(ENTRY).replace(b', "object"', b',\ndata: "object"')],
    "keys twice": [raw(f'{{"choices": [], "choices": [{ONE}]}}')],
    "escaped keys": [raw(ONE.join(['{"choices": [', "]}"]).replace("tool_calls", "tool\\u005fcalls"))],
    "NaN": [raw(f'{{"x": NaN, "choices": [{ONE}]}}')],
    "half a character": [raw(f'{{"x": "\\ud83d", "choices": [{ONE}]}}')],
}  # fmt: skip


@pytest.mark.rest
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("end", [[chat.chunk({}, "tool_calls"), chat.DONE], []], ids=["ended", "not ended"])
def test_no_denied_call_is_sent_in_an_odd_stream(what: str, end: list[bytes]) -> None:
    pieces = [chat.ROLE, *chat.make_text_chunks("Hi"), *ODD[what], *end]
    for guards in (DENY, {"allowed_tools": ["read", "bash_x", "ba", "sh"], "on_denied": "drop"}):
        for cut in (pieces, [bytes([byte]) for byte in b"".join(pieces)] if len(b"".join(pieces)) < 9_000 else pieces):
            exchange = open_under(guards)
            body = stream_reply(exchange, cut)
            found = {name.casefold().rpartition(".")[2] for name in find_chat_calls(body)}
            assert "bash" not in found, body[-3_000:]
            assert b"\xe2\x80\xa8data" not in body
            assert exchange.report.failures == []
    text = join_texts(stream_reply(open_under(DENY), pieces))
    assert text.startswith("Hi")


@pytest.mark.parametrize("what", ODD)
def test_without_a_policy_a_stream_fails_open(what: str) -> None:
    pieces = [chat.ROLE, *chat.make_text_chunks("Hi"), *ODD[what], chat.chunk({}, "tool_calls"), chat.DONE]
    body = stream_reply(open_under(None), pieces)
    assert body.startswith(chat.ROLE)
    assert "bash" in str(find_chat_calls(body)) or "bash" not in find_chat_calls(b"".join(pieces))


def test_omitted_item_is_reported_and_the_rest_is_read() -> None:
    exchange = open_under(DENY)
    body = stream_reply(
        exchange,
        [chat.ROLE, calls(None), *chat.make_text_chunks("Hi"), calls(READ), chat.chunk({}, "tool_calls"), chat.DONE],
    )
    assert chat.read(body).calls == [("read", {"filePath": "a"})]
    assert actions(exchange) == [("unread_calls", "dropped")]


def test_errors_pings_and_comments_pass() -> None:
    frames = [
        b": OPENROUTER PROCESSING\n\n",
        raw('{"error": {"message": "busy", "code": 429}}'),
        raw('{"choices": [], "prompt_filter_results": [1]}'),
        raw('{"choices": [], "usage": {"total_tokens": 5}}'),
        raw("keep-alive"),
    ]
    assert stream_reply(open_under(DENY), [*frames, raw("null")]) == b"".join(frames)


def message(**fields: Any) -> bytes:
    return whole(**{"content": "Hi", **fields})


HI = chat.completion("Hi")["choices"][0]
BAD = chat.completion("x", message={"tool_calls": [ENTRY]})["choices"][0]
WHOLE: dict[str, bytes] = {
    "content in parts": whole(("bash", "{}"), content=[{"type": "text", "text": "Hi"}]),
    "null among calls": message(tool_calls=[None, {**ENTRY, "index": 0}]),
    "a function call that is text": message(function_call="x", tool_calls=[ENTRY]),
    "a name that is a list": message(tool_calls=[{**ENTRY, "function": {"name": ["bash"], "arguments": "{}"}}, ENTRY]),
    "content a number": whole(("bash", "{}"), content=5),
    "a null choice": chat.encode_json({"choices": [None, BAD]}),
    "nested": whole(("bash", "{}")).replace(b'"model"', f'"x": {DEEP}, "model"'.encode()),
    "5,000 digits": whole(("bash", "{}")).replace(b'"model"', f'"x": {LONG}, "model"'.encode()),
    "UTF-16": whole(("bash", "{}")).decode().encode("utf-16"),
    "choices as an object": chat.encode_json({"choices": {"0": {"message": {"tool_calls": [ENTRY]}}}}),
    "calls as an object": message(tool_calls={"0": ENTRY}),
    "a second choice": chat.encode_json({"choices": [*chat.completion("x")["choices"], {**BAD, "index": 1}]}),
    "a delta beside the message": chat.encode_json({"choices": [{**HI, "delta": {"tool_calls": [ENTRY]}}]}),
    **{f"the key {key}": message(**{key: [ENTRY]}) for key in FOLDED},
    "as it should be": whole(("bash", "{}")),
}  # fmt: skip


@pytest.mark.parametrize("what", WHOLE)
def test_no_denied_call_is_sent_in_an_odd_reply(what: str) -> None:
    """The replacement is a reply that any client can parse."""
    body = WHOLE[what]
    for sent in (body, b"\xef\xbb\xbf" + body):
        for exchange in (open_under(DENY), open_under(DENY, stream=False)):
            found = exchange.whole.rewrite(sent)
            assert "bash" not in find_chat_calls(found)
            assert exchange.report.failures == []
            assert isinstance(parse_json(found.decode("utf-8-sig")), dict)
        exchange = open_under(DENY)  # declared as a stream
        found = stream_reply(exchange, [sent[at : at + 999] for at in range(0, len(sent), 999)])
        assert "bash" not in find_chat_calls(found)


def test_withheld_reply_states_that() -> None:
    exchange = open_under(DENY, stream=False)
    read = chat.read(exchange.whole.rewrite(WHOLE["nested"]))
    assert (read.content, read.finish_reason) == (WITHHELD, "stop")
    assert actions(exchange) == [("unread_calls", "refused")]
    assert exchange.report.outcome == "denied"


@pytest.mark.parametrize("begun", [[], [chat.ROLE]])
def test_text_in_a_message_of_a_chunk_is_not_sent_to_a_text_client(begun: list[bytes]) -> None:
    text = "<execute_command>\n<command>rm</command>\n</execute_command>"
    exchange = open_under({"denied_tools": ["execute_command"], "on_denied": "drop"}, text=True)
    out = stream_reply(exchange, [*begun, choices({"index": 0, "message": {"content": text}}), chat.DONE])
    assert b"<execute_command>" not in out


def test_text_in_parts_is_read_for_a_text_client() -> None:
    text = "<execute_command><command>rm</command></execute_command>"
    for body in (whole(content=[{"type": "text", "text": text}]),):
        found = open_under({"denied_tools": ["execute_command"]}, text=True).whole.rewrite(body)
        assert (
            cline("".join(str(part) for part in [parse_json(found.decode())["choices"][0]["message"]["content"]])) == []
        )


@pytest.mark.parametrize("text", [False, True])
def test_a_request_with_deep_arguments_keeps_its_policies(text: bool) -> None:
    """The content of a past call does not disable VTC."""
    arguments = '{"filePath": ' + "[" * 600 + "]" * 600 + "}"
    past = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**READ, "function": {"name": "read", "arguments": arguments}}],
    }
    messages = [{"role": "user", "content": "x"}, past, {"role": "tool", "tool_call_id": "c0", "content": "y"}]
    for dialect in ("gemma4", "minimax-m3", "hermes", "qwen3-coder", "cline"):
        settings = {"tools": "prompt", "dialect": dialect}
        exchange = open_under(DENY, model=settings, messages=messages)
        sent = json.loads(exchange.encode_request())
        assert "tools" not in sent
        assert find_chat_calls(stream_reply(exchange, native(("bash", "{}"), ("read", "{}")))) == {"read"}


SCHEMAS = [
    {"properties": {"a": {"type": "object", "required": True, "properties": {"b": {"type": "string"}}}}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": 5},
    {"type": "object", "properties": {"a": {"anyOf": 7}}},
    {"type": "object", "properties": [1]},
    {"type": "object", "properties": {"a": [1], "b": 5, "c": None}},
    {"type": ["object", 5], "properties": {"a": {"type": 5, "enum": 5, "items": 5, "$ref": 5}}},
    {"properties": {"a": {"oneOf": {}, "allOf": "x", "items": [], "description": 5, "default": []}}, "$defs": 5},
    5,
]  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_odd_schema_costs_that_schema_alone(schema: Any) -> None:
    odd = {"type": "function", "function": {"name": "odd", "description": "Does.", "parameters": schema}}
    for dialect in RULES:
        exchange = open_under(DENY, model={"tools": "prompt", "dialect": dialect}, tools=[odd, chat.READ])
        sent = json.loads(exchange.encode_request())
        assert "tools" not in sent
        assert "odd" in str(sent["messages"])
        text = chat.DIALECTS["hermes"]("odd", {"a": "x"}) + chat.DIALECTS["hermes"]("read", {"filePath": "x"})
        body = stream_reply(open_under(DENY, tools=[odd, chat.READ]), chat.make_stream(text))
        assert [name for name, _ in chat.read(body).calls] == ["odd", "read"]


KEYS = (
    *("choices", "delta", "message", "tool_calls", "function", "function_call", "custom", "name", "index", "id"),
    *("type", "arguments", "content", "finish_reason"),
)
JSON = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, "0", "bash", "read", "x", "{}", "", 0.5, [], {}]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(KEYS),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip
SHAPES = st.one_of(
    JSON.map(lambda value: chat.frame(value)),
    JSON.map(lambda value: chat.chunk({"tool_calls": value})),
    JSON.map(lambda value: calls({**ENTRY, "function": value})),
    JSON.map(lambda value: calls({**ENTRY, "index": value})),
    JSON.map(lambda value: choices({"index": value, **DELTA})),
    JSON.map(lambda value: choices({"index": 0, **DELTA, "finish_reason": value})),
    JSON.map(lambda value: chat.chunk({"content": value, "tool_calls": [ENTRY]})),
    st.sampled_from(
        [calls(ENTRY), calls(READ), chat.STOP, chat.DONE, *chat.make_text_chunks("a <tool_call>"), b"\n", b": x\n\n"]
    ),
)


@given(st.lists(SHAPES, max_size=6), st.sampled_from([1, 7, 1 << 20]))
def test_no_denied_call_is_sent_in_any_stream(frames: list[bytes], size: int) -> None:
    data = b"".join([chat.ROLE, *frames])
    exchange = open_under(DENY)
    body = stream_reply(exchange, [data[at : at + size] for at in range(0, len(data), size)])
    assert "bash" not in find_chat_calls(body)
    assert exchange.report.failures == []


@given(JSON, JSON)
def test_no_denied_call_is_sent_in_any_reply(odd: Any, calls: Any) -> None:
    bodies = [
        odd,
        {"choices": odd},
        {"choices": [{"message": odd}]},
        {"choices": [{"message": {"tool_calls": calls, "content": odd}}, odd]},
    ]
    for body in bodies:
        exchange = open_under(DENY, stream=False)
        assert "bash" not in find_chat_calls(exchange.whole.rewrite(chat.encode_json(body)))
        assert exchange.report.failures == []


def test_json_that_is_declared_a_stream_is_read_up_to_a_size() -> None:
    """It is parsed at once while all others wait; a longer one is withheld under a policy, and reported."""
    entry = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    for size in (100, MAX_JSON_BYTES):
        body = chat.encode_json(chat.completion("x" * size, "tool_calls", message={"tool_calls": [entry]}))
        pieces = [body[at : at + 10_000] for at in range(0, len(body), 10_000)]
        one = open_under({"denied_tools": ["bash"]})
        assert find_chat_calls(stream_reply(one, pieces)) == set()
        assert one.report.policies
        free = open_under(None)
        assert stream_reply(free, pieces) == body
        assert [("KiB" in failure) for failure in free.report.failures] == [True] * (size == MAX_JSON_BYTES)


@pytest.mark.parametrize("size", [1, 64, 1 << 20])
def test_a_last_frame_that_is_too_deep_and_never_ends_arrives(size: int) -> None:
    last = b'data: {"choices": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"
    body = b"".join(chat.make_stream("Hello.")[:-1]) + last
    stream = open_under(None, tools=[chat.READ]).stream()
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    assert b"".join([out for piece in pieces for out in stream.feed(piece)] + stream.finish()) == body
