"""A client of any API with a server of any other: requests and replies of every pair, parsed by strict SDKs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.apis import chat, gemini, pairs, responses
from tests.apis.named_events import StreamError
from tests.apis.pairs import CROSSED, READ, Calls, make_content
from tests.apis.shapes import SHAPES, THINKING, make_request_body
from tests.exchange.crossings import (
    BY_NAME,
    HEAD,
    IN_TEXT,
    PAIR,
    STREAM,
    TWO,
    call_piece,
    open_bridge,
    read_client_reply,
)
from tests.exchanges import agent, feed_stream, planner
from vtc.apis import convert_to_stream
from vtc.exchange import Session


@PAIR
@STREAM
@pytest.mark.parametrize("calls", [[], READ, TWO], ids=["text", "call", "two calls"])
def test_client_receives_the_same_reply(client: str, server: str, stream: bool, calls: Calls) -> None:
    exchange = open_bridge(client, server, stream=stream)
    exchange.encode_request()
    body = pairs.make_stream(server, ["Hel", "lo"], calls) if stream else pairs.make_whole_reply(server, "Hello", calls)
    assert read_client_reply(exchange, client, body, stream=stream) == make_content("Hello", calls)


@PAIR
@pytest.mark.parametrize("cuts", [1, 7])
def test_reply_has_the_same_result_in_any_cut(client: str, server: str, cuts: int) -> None:
    exchange = open_bridge(client, server, stream=True)
    body = pairs.make_stream(server, ["Hel", "lo"], TWO)
    assert read_client_reply(exchange, client, body, stream=True, cuts=cuts) == make_content("Hello", TWO)


@PAIR
@STREAM
def test_a_call_in_text_is_a_call_for_the_client(client: str, server: str, stream: bool) -> None:
    exchange = open_bridge(client, server, stream=stream)
    pieces = ["I look.\n", *IN_TEXT.partition("name")]
    body = pairs.make_stream(server, pieces) if stream else pairs.make_whole_reply(server, "".join(pieces))
    assert read_client_reply(exchange, client, body, stream=stream) == make_content("I look.", READ)


@PAIR
@STREAM
def test_the_form_of_a_reply_is_the_one_that_the_client_asked_for(client: str, server: str, stream: bool) -> None:
    """The server streams although a whole reply was requested, or the reverse."""
    exchange = open_bridge(client, server, stream=stream)
    body = pairs.make_whole_reply(server, "Hello", READ) if stream else pairs.make_stream(server, ["Hello"], READ)
    assert pairs.read(client, exchange.whole.rewrite(body), stream=stream) == make_content("Hello", READ)


@PAIR
def test_truncated_reply_is_marked_as_truncated(client: str, server: str) -> None:
    exchange = open_bridge(client, server, stream=True)
    body = pairs.make_stream(server, ["Hel"], cut=True)
    assert read_client_reply(exchange, client, body, stream=True) == make_content("Hel", end="length")


@PAIR
def test_reasoning_of_the_server_is_reasoning_for_the_client(client: str, server: str) -> None:
    fields: dict[str, Any] = THINKING.get(client, {})
    exchange = open_bridge(client, server, stream=True, **fields)
    body = pairs.make_stream(server, ["Hello"], READ, reasoning="Hm.")
    assert read_client_reply(exchange, client, body, stream=True) == make_content("Hello", READ, reasoning="Hm.")


@PAIR
def test_a_conversation_is_one_that_the_server_takes(client: str, server: str) -> None:
    exchange = open_bridge(client, server, **SHAPES[client].history)
    body = json.loads(exchange.encode_request())
    pairs.check_request(server, body)
    sent = BY_NAME[server].request(chat.encode_json(body))
    _, called, result = sent.messages[-3:]
    assert [(call.name, json.loads(call.arguments)) for call in called.calls] == [("read", {"filePath": "/a"})]
    assert (result.role, result.text, result.name) == ("tool", "hello", "read")
    assert [tool.name for tool in sent.offer.tools] == [tool.name for tool in exchange.plan.protocol.tools]
    assert [tool.parameters for tool in sent.offer.tools] == [tool.parameters for tool in exchange.plan.protocol.tools]


@PAIR
def test_tools_in_the_prompt_and_calls_back_as_text(client: str, server: str) -> None:
    """For a model without tools, the request contains no tools, and calls are read from the text."""
    settings = {"tools": "prompt", "dialect": "hermes"}
    exchange = open_bridge(client, server, settings=settings, stream=True, **SHAPES[client].history)
    body = json.loads(exchange.encode_request())
    assert "tools" not in body
    assert "<tool_call>" in json.dumps(body)
    assert read_client_reply(exchange, client, pairs.make_stream(server, [IN_TEXT]), stream=True) == make_content(
        "", READ
    )


@PAIR
@STREAM
def test_a_forbidden_tool_is_called_by_no_pair(client: str, server: str, stream: bool, tmp_path: Any) -> None:
    from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

    policy = "kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read]}\n"
    (tmp_path / "mine.yaml").write_text(policy)
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings(upstream_api=(server,)))  # type: ignore[arg-type]
    exchange = Session.open(
        BY_NAME[client], make_request_body(client, stream=stream), agent(client, stream=stream), strict, "seed"
    )
    offered = {tool.name for tool in BY_NAME[server].request(exchange.encode_request()).offer.tools}
    assert "read" not in offered
    body = pairs.make_stream(server, ["Hello"], TWO) if stream else pairs.make_whole_reply(server, "Hello", TWO)
    found = read_client_reply(exchange, client, body, stream=stream)
    assert [name for name, _ in found.calls] == ["write"]


@PAIR
@pytest.mark.parametrize("frames", range(12))
def test_a_server_that_breaks_off_after_any_frame(client: str, server: str, frames: int) -> None:
    """No exception is raised, and no event states that the reply is complete."""
    stream = open_bridge(client, server, stream=True).stream()
    body = pairs.make_stream(server, ["Hel", "lo"], READ)
    end = b"\n" if server == "ollama-chat" else b"\n\n"
    pieces = [piece + end for piece in body.split(end) if piece][:frames]
    out = b"".join([*(one for piece in pieces for one in stream.feed(piece)), *stream.break_off("reset")])
    if len(pieces) < 4:
        assert b"broke off" in out
    done = (b"[DONE]", b"message_stop", b"response.completed", b'"done":true')
    if len(pieces) < len([piece for piece in body.split(end) if piece]) - 3:
        assert not any(word in out for word in done)


# Replies of chat servers that other clients must not get unchanged


OTHERS = pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-chat"])


def chat_reply(client: str, *frames: bytes, ends: bool = True) -> pairs.ReplyContent:
    end = [chat.chunk({}, "tool_calls"), chat.DONE] if ends else []
    return read_client_reply(
        open_bridge(client, "openai-chat", stream=True), client, b"".join([*frames, *end]), stream=True
    )


@OTHERS
def test_interleaved_parallel_calls_are_complete_and_in_order(client: str) -> None:
    pieces = [
        call_piece(0, id="a", type="function", name="read", arguments=""),
        call_piece(1, id="b", type="function", name="list_files", arguments='{"path"'),
        call_piece(0, arguments='{"filePath": '),
        call_piece(1, arguments=': "."}'),
        call_piece(0, arguments='"/a"}'),
    ]
    calls: Calls = [*READ, ("list_files", {"path": "."})]
    assert chat_reply(client, chat.ROLE, *pieces) == make_content("", calls)


@OTHERS
def test_numbers_of_calls_may_have_gaps(client: str) -> None:
    pieces = [
        call_piece(at, id=f"c{at}", type="function", name="read", arguments='{"filePath": "/a"}') for at in (0, 2)
    ]
    assert chat_reply(client, chat.ROLE, *pieces) == make_content("", READ * 2)


@OTHERS
def test_a_call_in_the_chunk_of_the_finish_and_one_in_the_first(client: str) -> None:
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a"}'}}
    only = chat.chunk({"role": "assistant", "content": "", "tool_calls": [entry]}, "tool_calls")
    assert chat_reply(client, only, chat.DONE, ends=False) == make_content("", READ)


@OTHERS
def test_call_with_a_late_or_missing_name(client: str) -> None:
    late = [
        call_piece(0, id="a", type="function", arguments=""),
        call_piece(0, name="read"),
        call_piece(0, arguments='{"filePath": "/a"}'),
    ]
    assert chat_reply(client, chat.ROLE, *late) == make_content("", READ)
    none = call_piece(0, id="a", type="function", name="", arguments='{"filePath": "/a"}')
    assert chat_reply(client, chat.ROLE, none) == make_content('{"filePath": "/a"}')


@OTHERS
def test_calls_of_one_id_or_number_are_two_in_order(client: str) -> None:
    for numbers, ids in (((0, 1), "aa"), ((0, 0), "ab")):
        pieces = [
            call_piece(number, id=id_, type="function", name="read", arguments=f'{{"filePath": "/{at}"}}')
            for at, (number, id_) in enumerate(zip(numbers, ids, strict=True))
        ]
        expected: Calls = [("read", {"filePath": f"/{at}"}) for at in (0, 1)]
        assert chat_reply(client, chat.ROLE, *pieces) == make_content("", expected)


@pytest.mark.parametrize("reason", ["length", "tool_calls"])
def test_a_cut_call_is_none_for_ollamas_clients(reason: str) -> None:
    """They accept only whole calls, so the reply ends regularly, and the text of the incomplete call is shown."""
    piece = call_piece(0, id="a", type="function", name="read", arguments='{"filePath": "/a')
    frames = [chat.ROLE, piece, chat.chunk({}, reason), chat.DONE]
    if reason == "tool_calls":
        with pytest.raises(StreamError, match="in the middle of a tool call"):
            chat_reply("ollama-chat", *frames, ends=False)
        return
    found = chat_reply("ollama-chat", *frames, ends=False)
    assert not found.calls
    assert "/a" in found.text
    assert found.end == "length"


@OTHERS
@pytest.mark.parametrize("body", [[], [chat.DONE]], ids=["empty", "end"])
def test_a_reply_of_nothing_is_an_error(client: str, body: list[bytes]) -> None:
    with pytest.raises(StreamError, match="before it sent any content"):
        chat_reply(client, *body, ends=False)


@OTHERS
def test_a_reply_that_just_stops_broke_off(client: str) -> None:
    with pytest.raises(StreamError, match="broke off"):
        chat_reply(client, chat.ROLE, *chat.make_text_chunks("Hi"), ends=False)
    ended = [chat.ROLE, *chat.make_text_chunks("Hi"), chat.chunk({}, "stop")]
    assert chat_reply(client, *ended, ends=False) == make_content("Hi")


@OTHERS
def test_an_error_is_no_whole_reply(client: str) -> None:
    """This covers an error inside of a stream that replaced the whole reply, and a reply without any choice."""
    error = chat.frame({"error": {"message": "out of memory", "type": "server_error"}})
    for body in (b"".join([chat.ROLE, *chat.make_text_chunks("Hi"), error]), chat.encode_json({**HEAD, "choices": []})):
        with pytest.raises(StreamError, match=r"out of memory|before it sent any content"):
            read_client_reply(open_bridge(client, "openai-chat", stream=False), client, body, stream=False)


def test_a_call_that_the_limit_cut_is_text_in_a_whole_message() -> None:
    function = {"name": "read", "arguments": '{"filePath": "/a'}
    call = {"id": "a", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = chat.encode_json(chat.completion(None, "length", message=message))
    found = read_client_reply(
        open_bridge("anthropic-messages", "openai-chat", stream=False), "anthropic-messages", body, stream=False
    )
    assert found == make_content('read {"filePath": "/a', end="length")


@OTHERS
@pytest.mark.parametrize("nothing", [[], None])
def test_an_empty_list_of_calls_is_none(client: str, nothing: Any) -> None:
    frames = [
        chat.chunk({"role": "assistant", "content": "Hi", "tool_calls": nothing}),
        chat.chunk({}, "stop"),
        chat.DONE,
    ]
    assert chat_reply(client, *frames, ends=False) == make_content("Hi")


@OTHERS
@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_finish_reason_follows_the_sent_content(client: str, reason: str) -> None:
    """The server's finish reason does not matter."""
    frames = [chat.ROLE, *chat.make_text_chunks("Hi"), chat.chunk({}, reason), chat.DONE]
    assert chat_reply(client, *frames, ends=False) == make_content("Hi")
    call = call_piece(0, id="a", type="function", name="read", arguments='{"filePath": "/a"}')
    assert chat_reply(client, chat.ROLE, call, chat.chunk({}, reason), chat.DONE, ends=False) == make_content("", READ)


@OTHERS
def test_a_marker_of_the_end_without_a_reason_completes_the_reply(client: str) -> None:
    assert chat_reply(client, chat.ROLE, *chat.make_text_chunks("Hi"), chat.DONE, ends=False) == make_content("Hi")


@OTHERS
def test_content_after_the_end_is_not_sent(client: str) -> None:
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("Hi"),
        chat.chunk({}, "stop"),
        chat.DONE,
        *chat.make_text_chunks(" again"),
        chat.DONE,
    ]
    assert chat_reply(client, *frames, ends=False) == make_content("Hi")


@OTHERS
def test_an_error_in_a_stream_is_one_of_the_clients_api(client: str) -> None:
    """No event states that the reply is complete."""
    error = chat.frame({"error": {"message": "out of memory", "type": "server_error"}})
    with pytest.raises(StreamError, match="out of memory"):
        chat_reply(client, chat.ROLE, *chat.make_text_chunks("Hi"), error, chat.DONE, ends=False)


@OTHERS
def test_the_tokens_of_the_prompt_are_counted_as_the_clients_api_counts_them(client: str) -> None:
    """The Messages API excludes cached tokens."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 800}}
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("Hi"),
        chat.chunk({}, "stop"),
        chat.frame({**HEAD, "choices": [], "usage": usage}),
    ]
    out = feed_stream(open_bridge(client, "openai-chat", stream=True).stream(), *frames, chat.DONE)
    expected = {
        "anthropic-messages": [b'"input_tokens":200', b'"cache_read_input_tokens":800', b'"output_tokens":7'],
        "openai-responses": [b'"input_tokens":1000', b'"cached_tokens":800', b'"output_tokens":7'],
        "ollama-chat": [b'"prompt_eval_count":1000', b'"eval_count":7'],
        "gemini-generate": [b'"promptTokenCount":1000', b'"candidatesTokenCount":7'],
    }
    assert all(part in out for part in expected[client]), out


def test_chat_client_gets_token_counts_only_on_request() -> None:
    body = pairs.make_stream("anthropic-messages", ["Hi"])
    quiet, asking = (
        feed_stream(open_bridge("openai-chat", "anthropic-messages", stream=True, **fields).stream(), body)
        for fields in ({}, {"stream_options": {"include_usage": True}})
    )
    assert b'"usage"' not in quiet
    assert asking.count(b'"usage"') == 1


COUNTED = {"promptTokenCount": 13, "candidatesTokenCount": 10, "thoughtsTokenCount": 2}
"""The final counts of a server of Gemini's API; earlier ones are lower."""
COUNTS: dict[str, dict[str, int]] = {
    "openai-chat": {"prompt_tokens": 13, "completion_tokens": 12},
    "anthropic-messages": {"input_tokens": 13, "output_tokens": 12},
    "openai-responses": {"input_tokens": 13, "output_tokens": 12},
    "ollama-chat": {"prompt_eval_count": 13, "eval_count": 12},
}
"""The same counts in other APIs."""


@pytest.mark.parametrize("client", COUNTS)
@pytest.mark.parametrize("counted", ["in each event", "before the end", "with the end", "after the end"])
@STREAM
def test_token_counts_are_sent_once_and_last_for_any_server(client: str, counted: str, stream: bool) -> None:
    """Clients add up the counts of all frames, treat a frame with counts as the last, or show the first."""
    events = [gemini.event(gemini.text("Hel")), gemini.event(gemini.text("lo")), gemini.event(reason="STOP")]
    events += [{**gemini.HEAD}]
    for event in events:
        event.pop("usageMetadata", None)
    at = {"in each event": range(3), "before the end": [1], "with the end": [2], "after the end": [3]}[counted]
    for place in at:
        tokens = {**COUNTED, "candidatesTokenCount": 10 - max(at) + place}
        events[place] = {**events[place], "usageMetadata": tokens}
    exchange = open_bridge(client, "gemini-generate", stream=stream, stream_options={"include_usage": True})
    reply = b"".join(map(gemini.frame, events))
    sent = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert pairs.read(client, sent, stream=stream) == make_content("Hello")
    for name, tokens in COUNTS[client].items():
        figures = [int(figure) for figure in re.findall(rf'"{name}": ?(\d+)', sent.decode())]
        assert figures[-1] == tokens, sent
        assert not any(figures[:-1])
    if client == "openai-chat" and stream:
        *_, last, done = re.findall(rb"data: (.*)", sent)
        assert (done, json.loads(last)["choices"]) == (b"[DONE]", [])


@PAIR
@STREAM
def test_reply_has_a_time_even_if_the_server_sends_none(client: str, server: str, stream: bool) -> None:
    facts = replace(agent(client, stream=stream), time=1_790_000_000)
    body = make_request_body(client, stream=stream)
    exchange = Session.open(BY_NAME[client], body, facts, planner(upstream_api=(server,)), "seed")
    reply = pairs.make_stream(server, ["Hello"]) if stream else pairs.make_whole_reply(server, "Hello")
    reply = reply.replace(b'"created": 1,', b"").replace(b'"created_at": 1,', b"")
    sent = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    times = re.findall(rb'"created(?:_at)?": ?"?([\d-]+)', sent)
    assert {*times} <= {b"1790000000", b"2026-09-21"}, sent
    assert bool(times) == (client not in ("anthropic-messages", "gemini-generate"))
    assert not re.search(rb'"model(?:Version)?": ?""', sent)


NAMED = st.sampled_from(["read", "write", "list_files"])
CALLS = st.lists(
    st.tuples(
        NAMED, st.dictionaries(st.sampled_from(["filePath", "content", "path"]), st.text(max_size=20), min_size=1)
    ),
    max_size=3,
)


@example(("anthropic-messages", "openai-chat"), [" "], [], 0)
@given(st.sampled_from(CROSSED), st.lists(st.text(min_size=1, max_size=12), max_size=3), CALLS, st.integers(0, 40))
def test_any_reply_streamed_is_the_whole_one(pair: tuple[str, str], pieces: list[str], calls: Any, cuts: int) -> None:
    client, server = pair
    streamed_ = open_bridge(client, server, stream=True)
    whole = open_bridge(client, server, stream=False)
    one = read_client_reply(streamed_, client, pairs.make_stream(server, pieces, calls), stream=True, cuts=cuts)
    other = read_client_reply(whole, client, pairs.make_whole_reply(server, "".join(pieces), calls), stream=False)
    assert one == other


KEPT: dict[str, Any] = {
    "openai-chat": {"type": "file", "file": {"file_id": "file-1"}},
    "anthropic-messages": {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
    "openai-responses": {"type": "input_image", "file_id": "file-1"},
}
HEARD: dict[str, Any] = {
    "openai-chat": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "anthropic-messages": {"type": "container_upload", "file_id": "file-1"},
    "openai-responses": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
}


@pytest.mark.parametrize(("client", "server"), [pair for pair in CROSSED if pair[0] in KEPT])
@pytest.mark.parametrize("parts", [KEPT, HEARD], ids=["file", "other"])
def test_omitted_content_is_replaced_by_a_note_and_reported(client: str, server: str, parts: Any) -> None:
    """Otherwise the model would answer without knowing that a part is missing."""
    part, text = parts[client], {"type": "input_text" if client == "openai-responses" else "text", "text": "See this."}
    key = "input" if client == "openai-responses" else "messages"
    exchange = open_bridge(client, server, **{key: [{"role": "user", "content": [text, part]}]})
    said_ = BY_NAME[server].request(exchange.encode_request()).messages[-1].text
    of_file = "file_id" in json.dumps(part)
    assert "See this." in said_
    assert f"[{part['type']}{' file-1' * of_file}: left out, as this server cannot be given it]" in said_
    (line,) = [one for one in exchange.report.request if "left out, because the server" in one]
    assert line.endswith(f": {part['type']}{' by file_id' * of_file}")


@pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-responses"])
def test_file_in_a_result_is_replaced_by_a_note(server: str) -> None:
    history = [responses.make_input_message("user", "x"), responses.call("read", filePath="/a")]
    output = {**responses.output("x"), "output": [KEPT["openai-responses"]]}
    exchange = open_bridge("openai-responses", server, input=[*history, output])
    result = BY_NAME[server].request(exchange.encode_request()).messages[-1]
    assert (result.role, result.text) == (
        "tool",
        "[input_image file-1: left out, as this server cannot be given it]",
    )


@PAIR
def test_tools_of_one_name_are_sent_once(client: str, server: str) -> None:
    """Servers reject two: `Tool names must be unique`, `Duplicate function declaration found`."""
    fields = json.loads(make_request_body(client))
    tools = fields["tools"] * 2
    if client == "gemini-generate":
        tools = [{"functionDeclarations": fields["tools"][0]["functionDeclarations"] * 2}]
    exchange = open_bridge(client, server, tools=tools)
    declared = BY_NAME[server].request(exchange.encode_request()).offer.declared
    assert len(declared) == len({*declared}) > 1


@pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-responses"])
@pytest.mark.parametrize("end", ["length", "filter"])
@STREAM
def test_last_item_of_an_incomplete_response_is_incomplete(server: str, end: str, stream: bool) -> None:
    reasons = {
        "openai-chat": ("length", "content_filter"),
        "anthropic-messages": ("max_tokens", "refusal"),
        "ollama-chat": ("length", "content_filter"),
        "gemini-generate": ("MAX_TOKENS", "SAFETY"),
    }[server]
    kinds = {"openai-chat": "stop", "anthropic-messages": "end_turn", "ollama-chat": "stop", "gemini-generate": "STOP"}
    body = pairs.make_stream(server, ["Hel", "lo"]) if stream else pairs.make_whole_reply(server, "Hello")
    body = body.replace(f'"{kinds[server]}"'.encode(), f'"{reasons[end == "filter"]}"'.encode())
    exchange = open_bridge("openai-responses", server, stream=stream)
    if not stream:
        response = json.loads(exchange.whole.rewrite(body))
    else:
        lines = feed_stream(exchange.stream(), body).splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
        response = events[-1]["response"]
        (done,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert done["status"] == "incomplete"
    assert (response["status"], [item["status"] for item in response["output"]]) == ("incomplete", ["incomplete"])


CACHE_USAGE = {
    "openai-chat": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}},
    "openai-responses": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3}},
    "anthropic-messages": {
        "input_tokens": 4,
        "cache_read_input_tokens": 2,
        "cache_creation_input_tokens": 3,
    },
}


@pytest.mark.parametrize(("client", "server"), [pair for pair in CROSSED if {*pair} <= CACHE_USAGE.keys()])
@STREAM
def test_tokens_written_to_the_cache_are_reported(client: str, server: str, stream: bool) -> None:
    reply = json.loads(pairs.make_whole_reply(server, "Hello"))
    body = json.dumps({**reply, "usage": {**reply["usage"], **CACHE_USAGE[server]}}).encode()
    asks = {"stream_options": {"include_usage": True}} if stream and client == "openai-chat" else {}
    exchange = open_bridge(client, server, stream=stream, **asks)
    if stream:
        lines = feed_stream(exchange.stream(), convert_to_stream(BY_NAME[server], body)).splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        usages = [usage for event in events for usage in (event.get("usage"), event.get("response", {}).get("usage"))]
        usage = [usage for usage in usages if usage][-1]
    else:
        usage = json.loads(exchange.whole.rewrite(body))["usage"]
    assert CACHE_USAGE[client].items() <= usage.items()


@pytest.mark.parametrize(
    "function", [{}, {"function": {"name": "", "arguments": '{"a": 1}'}}, {"function": {"name": None}}]
)
@pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-chat"])
def test_past_call_without_a_name_is_text(server: str, function: dict[str, Any]) -> None:
    call = {"id": "c1", "type": "function", **function}
    history = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Seen."},
    ]
    sent = open_bridge("openai-chat", server, messages=history).encode_request()
    pairs.check_request(server, json.loads(sent))
    messages = BY_NAME[server].request(sent).messages
    assert not any(message.calls for message in messages)
    assert b"Seen." in sent
    assert b"None" not in sent


@pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "openai-responses"])
@STREAM
def test_custom_tool_called_without_arguments_gets_no_input(server: str, stream: bool) -> None:
    exchange = open_bridge("openai-responses", server, stream=stream, tools=[{"type": "custom", "name": "exec"}])
    exchange.encode_request()
    body = (
        pairs.make_stream(server, [], [("exec", {})]) if stream else pairs.make_whole_reply(server, "", [("exec", {})])
    )
    out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
    assert b'"input":""' in out
    assert b'{}"' not in out


@pytest.mark.parametrize(
    ("client", "server"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_description_of_an_answer_is_sent(client: str, server: str) -> None:
    form = {"name": "a", "description": "An answer.", "schema": {"type": "object"}}
    fields = {
        "openai-chat": {"response_format": {"type": "json_schema", "json_schema": form}},
        "openai-responses": {"text": {"format": {"type": "json_schema", **form}}},
    }[client]
    sent = json.loads(open_bridge(client, server, **fields).encode_request())
    found = sent["text"]["format"] if server == "openai-responses" else sent["response_format"]["json_schema"]
    assert found["description"] == "An answer."


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "gemini-generate"])
def test_reply_without_content_is_an_error_in_json(client: str) -> None:
    out = open_bridge(client, "gemini-generate").whole.rewrite(b'{"usageMetadata": {"promptTokenCount": 3}}')
    assert "'usageMetadata'" not in json.dumps(json.loads(out))


@pytest.mark.parametrize("server", [name for name in pairs.NAMES if name != "gemini-generate"])
def test_answer_that_is_a_word_of_an_enum_is_reported_as_left_out(server: str) -> None:
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", "b"]}}
    exchange = open_bridge("gemini-generate", server, generationConfig=config)
    exchange.encode_request()
    assert [line for line in exchange.report.request if "form of the answer" in line]
