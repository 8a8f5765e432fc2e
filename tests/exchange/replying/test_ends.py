"""The end of a reply, for all pairs of APIs: failed replies are never reported as complete, nor the reverse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, pairs, responses
from tests.apis.named_events import StreamError
from tests.apis.pairs import PAIRS, READ, ReplyContent, make_content
from tests.apis.shapes import SHAPES
from tests.exchange.crossings import IN_TEXT, STREAM, call_piece, has_whole_call, open_bridge

WAYS = pytest.mark.parametrize(("client", "server"), PAIRS)
IN_JSON = ("openai-chat", "anthropic-messages", "openai-responses")
"""Servers whose calls have arguments as text, which can be cut off; the others send objects."""
CALLED = pytest.mark.parametrize(("client", "server"), [pair for pair in PAIRS if pair[1] in IN_JSON])
HALF = '{"filePath": "/a'

FAULTS = {
    "openai-chat": ["network_error", "insufficient_system_resource", "abort", "error", "no_such_word"],
    "anthropic-messages": ["error", "no_such_word"],
    "openai-responses": ["no_such_word"],
    "ollama-chat": ["abort", "no_such_word"],
    "gemini-generate": ["OTHER", "MALFORMED_FUNCTION_CALL", "NO_SUCH_WORD"],
}
"""Finish reasons of servers for failed replies."""
LENGTHS = {
    "openai-chat": ["length", "model_length", "MAX_TOKENS"],
    "anthropic-messages": ["max_tokens", "length"],
    "openai-responses": ["max_output_tokens"],
    "ollama-chat": ["length"],
    "gemini-generate": ["MAX_TOKENS"],
}
GOOD = {
    "openai-chat": ["stop", "eos_token", "STOP", "end_turn"],
    "anthropic-messages": ["end_turn", "stop_sequence", "stop"],
    "openai-responses": [""],
    "ollama-chat": ["stop", "load"],
    "gemini-generate": ["STOP"],
}
WORDS = [(*pair, word) for pair in PAIRS for word in FAULTS[pair[1]]]


def stream_text(server: str, word: str, *pieces: str) -> list[bytes]:
    """Encode a stream with text that ends with a finish reason of the server."""
    match server:
        case "openai-chat":
            return chat.make_stream(*pieces, finish=word)
        case "anthropic-messages":
            return messages.make_text_stream(*pieces, stop_reason=word)
        case "gemini-generate":
            return gemini.make_text_stream(*pieces, reason=word)
        case "ollama-chat":
            return ollama.make_text_stream(*pieces, done_reason=word)
    return _incomplete(responses.make_stream(responses.text_events(*pieces)), word)


def _incomplete(frames: list[bytes], word: str) -> list[bytes]:
    """End a reply of the Responses API as incomplete; as completed if there is no reason."""
    end = json.loads(frames[-1].partition(b"data: ")[2])
    if word:
        fields = {"status": "incomplete", "incomplete_details": {"reason": word}}
        end = {**end, "type": "response.incomplete", "response": {**end["response"], **fields}}
    return [*frames[:-1], responses.frame(end)]


def whole(server: str, word: str, text: str) -> bytes:
    """Encode the same as a whole reply."""
    body: Any
    match server:
        case "openai-chat":
            body = chat.completion(text, word)
        case "anthropic-messages":
            body = messages.message(messages.text(text), stop_reason=word)
        case "gemini-generate":
            body = gemini.reply(gemini.text(text), reason=word)
        case "ollama-chat":
            body = {**ollama.message(text), "done_reason": word}
        case _:
            fields = {"status": "incomplete", "incomplete_details": {"reason": word}} if word else {}
            body = {**responses.response(responses.message(text)), **fields}
    return chat.encode_json(body)


def encode_text(server: str, word: str, text: str, *, stream: bool) -> bytes:
    return b"".join(stream_text(server, word, text[:3], text[3:])) if stream else whole(server, word, text)


def receive_reply(client: str, server: str, body: bytes, *, stream: bool = True, breaks: bool = False) -> bytes:
    """Return the client's version of a reply; a stream is fed frame by frame."""
    exchange = open_bridge(client, server, stream=stream)
    if not stream:
        return exchange.whole.rewrite(body)
    out = exchange.stream()
    pieces = [piece + b"\n" for piece in body.split(b"\n")]
    sent = b"".join(data for piece in pieces[:-1] for data in out.feed(piece))
    return sent + b"".join(out.break_off("reset") if breaks else out.finish())


def is_error(client: str, body: bytes, *, stream: bool = True) -> bool:
    """Return True if a client sees an error, and no successful end."""
    if not stream:
        return bool(json.loads(body).get("error"))
    good = (b'"finish_reason":"', b'"message_delta"', b'"response.completed"', b'"done":true', b'"finishReason"')
    assert not any(mark in body for mark in good), body
    return b'"error":{' in body or b'{"error":"' in body


# The server's finish reason


@pytest.mark.parametrize(("client", "server", "word"), WORDS)
@STREAM
def test_a_word_that_is_on_no_list_is_an_error_on_a_bridge(client: str, server: str, word: str, stream: bool) -> None:
    body = encode_text(server, word, "Hello", stream=stream)
    out = receive_reply(client, server, body, stream=stream)
    if client == server:
        assert out == body
        return
    assert is_error(client, out, stream=stream), out
    assert word.encode() in out
    assert not stream or (b"Hel" in out and b"lo" in out)


@WAYS
@STREAM
def test_a_word_on_the_list_means_the_same_to_all(client: str, server: str, stream: bool) -> None:
    for words, end in ((GOOD, "stop"), (LENGTHS, "length")):
        for word in words[server]:
            body = encode_text(server, word, "Hello", stream=stream)
            out = receive_reply(client, server, body, stream=stream)
            if client == server:
                assert out == body
            else:
                assert pairs.read(client, out, stream=stream) == make_content("Hello", end=end), word


@WAYS
def test_text_calls_stay_and_the_fault_is_reported(client: str, server: str) -> None:
    for text, calls in ((IN_TEXT, True), (IN_TEXT[:-20], False)):
        body = b"".join(stream_text(server, FAULTS[server][-1], text))
        out = receive_reply(client, server, body)
        assert (b"filePath" in out) is True
        if client == server:
            assert FAULTS[server][-1].encode() in out
        else:
            assert is_error(client, out), out
        if client != "openai-chat":
            assert has_whole_call(client, out) == calls


# A stream without a reason

MARKS = {
    "openai-chat": (b"[DONE]",),
    "anthropic-messages": (b"message_stop",),
    "openai-responses": (b"response.completed",),
    "ollama-chat": (b'"done": true',),
    "gemini-generate": (),
}


def ending(server: str, frames: Sequence[bytes], *, marked: bool) -> bytes:
    """Remove the finish reason, and the end mark unless it is to stay."""
    remaining = []
    for frame in frames:
        is_mark = any(mark in frame for mark in MARKS[server])
        is_reason = b"message_delta" in frame or b'finish_reason": "' in frame or b"finishReason" in frame
        if not (is_reason or is_mark) or (marked and is_mark):
            remaining.append(frame.replace(b'"done_reason": "stop"', b'"done_reason": null'))
    return b"".join(remaining)


@WAYS
def test_a_stream_without_a_reason_and_an_end_mark_broke_off(client: str, server: str) -> None:
    body = ending(server, SHAPES[server].streamed("Hel", "lo"), marked=False)
    out = receive_reply(client, server, body)
    if client == server:
        assert out == body
        return
    assert is_error(client, out), out
    assert b"broke off" in out
    assert b"[DONE]" not in out
    assert b"lo" in out


@pytest.mark.parametrize(("client", "server"), [pair for pair in PAIRS if MARKS[pair[1]]])
def test_with_the_end_mark_it_ended_well(client: str, server: str) -> None:
    body = ending(server, SHAPES[server].streamed("Hel", "lo"), marked=True)
    out = receive_reply(client, server, body)
    if client == server:
        assert out == body
    else:
        assert pairs.read(client, out, stream=True) == make_content("Hello")


# Native calls that lack their end


def calling(server: str, *pieces: str, end: str = "calls", name: str = "read") -> bytes:
    """Encode a call with these arguments, and its end: successful, by a limit, by an end mark alone, or missing."""
    match server:
        case "openai-chat":
            frames = [chat.ROLE, call_piece(0, id="call_0", type="function", name=name, arguments="")]
            frames += [call_piece(0, arguments=piece) for piece in pieces]
            last = {"calls": "tool_calls", "stop": "stop", "limit": "length"}.get(end)
            return b"".join([*frames, *([chat.chunk({}, last)] if last else []), *[chat.DONE] * (end != "none")])
        case "anthropic-messages":
            block = messages.call_block(0, name, *pieces)
            last = {"calls": "tool_use", "stop": "end_turn", "limit": "max_tokens"}.get(end)
            frames = messages.make_stream(block if end != "open" else block[:-1], stop_reason=last or "tool_use")
            if end in ("none", "mark"):
                frames = [*frames[:-2], *frames[-1:] * (end == "mark")]
            return b"".join(frames)
    events = responses.call_events(name, *pieces, id="fc_0", call_id="call_0")
    *frames, last_frame = responses.make_stream(events)
    if end in ("none", "mark"):
        frames = [frame for frame in frames if b".done" not in frame]
    if end == "mark":
        event = json.loads(last_frame.partition(b"data: ")[2])
        last_frame = responses.frame({**event, "response": {**event["response"], "output": []}})
    if end == "limit":
        (last_frame,) = _incomplete(
            [last_frame.replace(b'"status": "completed", "arg', b'"status": "incomplete", "arg')], "max_output_tokens"
        )
        frames = [frame.replace(b'"status": "completed"', b'"status": "incomplete"') for frame in frames]
    return b"".join([*frames, *[last_frame] * (end != "none")])


def end_of(client: str, body: bytes) -> str:
    """Return the client's finish reason; empty if there is none."""
    events = [json.loads(line.removeprefix(b"data: ")) for line in body.splitlines() if line[-1:] == b"}"]
    match client:
        case "openai-chat":
            ends = [choice["finish_reason"] for one in events for choice in one.get("choices", ())]
        case "anthropic-messages":
            ends = [one["delta"]["stop_reason"] for one in events if one["type"] == "message_delta"]
        case "openai-responses":
            ends = [
                one["response"]["status"]
                for one in events
                if one["type"] in ("response.completed", "response.incomplete")
            ]
        case "gemini-generate":
            ends = [one["candidates"][0].get("finishReason") for one in events if "candidates" in one]
        case _:
            ends = [one["done_reason"] for one in events if one.get("done")]
    return next((end for end in ends if end), "")


LENGTH = {"openai-chat": "length", "anthropic-messages": "max_tokens", "openai-responses": "incomplete"}
CUT: list[tuple[str, ...]] = [(), (HALF[:14], HALF[14:]), ('{"filePath": 1', "2"), ('"/a',), ('[{"a"',)]
NAMES = pytest.mark.parametrize("name", ["read", "not_offered"])


@CALLED
@NAMES
@pytest.mark.parametrize("arguments", CUT[1:], ids=str)
def test_half_a_call_never_ends_a_reply_well(client: str, server: str, name: str, arguments: tuple[str, ...]) -> None:
    for end in ("calls", "stop"):
        out = receive_reply(client, server, calling(server, *arguments, end=end, name=name))
        if client == server:
            assert end_of(client, out) == LENGTH[client], out
        else:
            assert is_error(client, out), out
            assert not has_whole_call(client, out)
            assert json.dumps(arguments[-1])[1:-1].encode() in out or arguments[-1].encode() in out


@CALLED
@pytest.mark.parametrize("arguments", CUT, ids=str)
def test_a_call_in_which_the_stream_just_ends_is_cut(client: str, server: str, arguments: tuple[str, ...]) -> None:
    """In the client's own API the stream is unchanged."""
    for end in ("none", "mark"):
        body = calling(server, *arguments, end=end)
        out = receive_reply(client, server, body)
        if client != server:
            assert is_error(client, out), out
            assert not has_whole_call(client, out)
        elif end == "none" or client == "openai-chat":
            assert out == body
        else:
            assert end_of(client, out) != "tool_use"
        assert b'"{}"' not in out
    out = receive_reply(client, server, calling(server, *arguments, end="none"), breaks=True)
    assert client == server or (is_error(client, out) and not has_whole_call(client, out))


@CALLED
@pytest.mark.parametrize("arguments", CUT[:2], ids=str)
def test_a_call_that_the_limit_cut_ends_so(client: str, server: str, arguments: tuple[str, ...]) -> None:
    out = receive_reply(client, server, calling(server, *arguments, end="limit"))
    ends = {**LENGTH, "gemini-generate": "MAX_TOKENS", "ollama-chat": "length"}
    assert end_of(client, out) == ends[client]
    assert b'"{}"' not in out or server == "openai-responses"


@CALLED
@pytest.mark.parametrize("end", ["calls", "stop"])
def test_call_without_arguments_is_complete_if_the_server_reports_it(client: str, server: str, end: str) -> None:
    body = calling(server, end=end)
    out = receive_reply(client, server, body)
    if client == server == "openai-responses":
        assert out == body
    else:
        assert pairs.read(client, out, stream=True) == make_content("", [("read", {})])


@pytest.mark.parametrize("client", pairs.NAMES)
def test_a_block_that_did_not_end_is_no_whole_call(client: str) -> None:
    out = receive_reply(client, "anthropic-messages", calling("anthropic-messages", end="open"))
    if client == "anthropic-messages":
        assert end_of(client, out) == "max_tokens"
    else:
        assert is_error(client, out)
        assert not has_whole_call(client, out)


@CALLED
def test_half_a_call_in_a_whole_reply(client: str, server: str) -> None:
    match server:
        case "openai-chat":
            calls = [{"id": "c", "type": "function", "function": {"name": "read", "arguments": HALF}}]
            body = chat.completion(None, "tool_calls", message={"tool_calls": calls})
        case "openai-responses":
            body = responses.response({**responses.call("read"), "arguments": HALF})
        case _:
            body = messages.message({**messages.call("read"), "input": HALF}, stop_reason="tool_use")
    out = json.loads(receive_reply(client, server, chat.encode_json(body), stream=False))
    if client != server:
        assert out["error"]
    elif client == "openai-chat":
        assert out["choices"][0]["finish_reason"] == "length"
    elif client == "openai-responses":
        assert (out["status"], out["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


# The last event of Responses

BEGUN = {"type": "response.output_item.added", "item": {**responses.call("read"), "arguments": ""}}
PIECE = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"filePath"'}
NAMELESS = {**BEGUN, "item": {**BEGUN["item"], "name": ""}}
OTHER = responses.call("write", "fc_2", "call_2", filePath="b", content="c")
OPEN = {
    "nothing": ([BEGUN], {}),
    "a piece": ([BEGUN, PIECE], {}),
    "no name": ([NAMELESS], {}),
    "a piece without a name": ([NAMELESS, PIECE], {}),
    "no id": ([{**BEGUN, "item": {**BEGUN["item"], "id": None, "call_id": None}}], {}),
    "other ids": ([BEGUN], {"id": "other"}),
    "by its place": ([BEGUN], {"id": "other", "call_id": "another"}),
}


def last(events: Sequence[Any], *output: Any, **fields: Any) -> bytes:
    frames = responses.make_stream([*events, *responses.call_events("x")])
    frames = [*frames[: 2 + len(events)], frames[-1]]
    end = json.loads(frames[-1].partition(b"data: ")[2])
    end["response"] = {**end["response"], "output": output, **fields}
    end["response"] = {key: value for key, value in end["response"].items() if value is not None}
    return b"".join([*frames[:-1], responses.frame(end)])


@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("case", OPEN)
@pytest.mark.parametrize("more", [(), (OTHER,)], ids=["one", "two"])
def test_data_of_the_last_event_completes_the_call(client: str, case: str, more: tuple[Any, ...]) -> None:
    events, fields = OPEN[case]
    out = receive_reply(
        client, "openai-responses", last(events, {**responses.call("read", filePath="/a"), **fields}, *more)
    )
    calls = [*READ, *([("write", {"filePath": "b", "content": "c"})] if more else [])]
    assert pairs.read(client, out, stream=True) == make_content("", calls), out


@pytest.mark.parametrize("client", pairs.NAMES)
@STREAM
def test_a_reply_of_responses_without_a_status_has_that_of_its_end(client: str, stream: bool) -> None:
    done = responses.call_events("read", '{"filePath": "/a"}')
    call = responses.call("read", filePath="/a")
    for why, end in ((None, ""), ("max_output_tokens", "length"), ("content_filter", "filter")):
        details = {"reason": why} if why else None
        if stream:
            body = last(done, call, status=None, incomplete_details=details)
            body = body.replace(b"response.completed", b"response.incomplete") if why else body
        else:
            body = chat.encode_json({**responses.response(call), "incomplete_details": details, "status": None})
        found: ReplyContent = read_any(
            client, receive_reply(client, "openai-responses", body, stream=stream), stream=stream
        )
        if client != "openai-responses":
            assert found == make_content("", READ, end=end if client != "ollama-chat" or end != "filter" else "")


def read_any(client: str, body: bytes, *, stream: bool) -> ReplyContent:
    try:
        return pairs.read(client, body, stream=stream)
    except (StreamError, AssertionError):
        if client == "openai-responses":
            return make_content()
        raise
