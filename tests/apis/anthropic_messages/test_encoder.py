"""Replies of other APIs, and strict replies of Messages: every frame is re-encoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, messages, ollama, sdks
from tests.apis.messages import (
    START,
    call_block,
    delta,
    make_block_start,
    make_block_stop,
    make_stream,
    make_text_deltas,
    read,
    text_block,
)
from tests.apis.named_events import Json, StreamError, events, frame
from tests.apis.replies import REPLIES
from tests.apis.toy import Toy
from vtc.apis import APIS, Api, fold_stream
from vtc.apis.anthropic_messages import API
from vtc.apis.relay import Relay
from vtc.events import (
    BlockEnd,
    BlockStart,
    Call,
    CallDelta,
    Failure,
    Finish,
    Reasoning,
    ReasoningDelta,
    RefusalText,
    Rewritten,
    Seal,
    Start,
    Text,
    ToolCall,
    Usage,
)

BY_NAME = {api.name: api for api in APIS}
CHAT, OLLAMA = BY_NAME["openai-chat"], BY_NAME["ollama-chat"]


def relay_reply(api: Api, *frames: bytes, form: Any = True, strict: bool = False, **toy: Any) -> bytes:
    """Return the reply as a client of Messages reads it; the server may speak any API."""
    encoder = API.encoder(form)
    relay = Relay(api.decoder(), encoder, lambda: Toy(**toy), same_api=api is API, strict=strict)
    reader = relay.decoder.framing.make_reader()
    incoming = [*reader.feed(b"".join(frames)), *reader.finish()]
    return b"".join([*(out for one in incoming for out in relay.feed(one)), *relay.finish()])


def blocks(body: bytes) -> list[Any]:
    """Summarize the blocks: text as such, calls by name, other types in brackets."""
    return [
        one["text"] if "text" in one else {one["name"]: one["input"]} if one["type"] == "tool_use" else [one["type"]]
        for one in read(body).blocks
    ]


def make_call_piece(index: int | None, name: str | None, arguments: str = "", id_: str | None = "") -> Json:
    """Make the first piece of a call, or another one with a name."""
    id_ = f"c{index}" if id_ == "" else id_
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    fields = {"index": index, "id": id_, "type": "function", "function": function}
    return {key: value for key, value in fields.items() if value is not None}


def more(index: int, arguments: str) -> Json:
    return {"index": index, "function": {"arguments": arguments}}


def calling(*pieces: Json, reason: str = "tool_calls") -> list[bytes]:
    """Make a streamed chat completion with one piece of a call in each chunk."""
    return [chat.ROLE, *(chat.chunk({"tool_calls": [piece]}) for piece in pieces), chat.chunk({}, reason), chat.DONE]


def test_text_is_one_block_after_one_start() -> None:
    found = read(
        relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("Hello", " world"), chat.STOP, chat.USED, chat.DONE)
    )
    assert found.blocks == [messages.text("Hello world")]
    assert found.stop_reason == "end_turn"


def test_call_before_any_text_follows_the_start() -> None:
    body = relay_reply(CHAT, *calling(make_call_piece(0, "read", '{"filePath": "a"}'))[1:])
    assert [event.name for event in events(body)][:2] == ["message_start", "content_block_start"]
    assert read(body).calls == [("read", {"filePath": "a"})]


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
def test_stop_reason_follows_the_sent_content(reason: str) -> None:
    assert read(relay_reply(CHAT, *calling(make_call_piece(0, "read", "{}"), reason=reason))).stop_reason == "tool_use"
    assert (
        read(relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a"), chat.chunk({}, reason), chat.DONE)).stop_reason
        == "end_turn"
    )
    assert (
        read(relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("[x]"), chat.chunk({}, reason), chat.DONE)).stop_reason
        == "tool_use"
    )


def test_reply_that_was_cut_is_max_tokens() -> None:
    found = read(relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a"), chat.chunk({}, "length"), chat.DONE))
    assert found.stop_reason == "max_tokens"


def test_filtered_and_refused_replies_are_refusals_that_show_their_text() -> None:
    filtered = read(
        relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a"), chat.chunk({}, "content_filter"), chat.DONE)
    )
    assert (filtered.content, filtered.stop_reason) == ("a", "refusal")
    refused = read(relay_reply(CHAT, chat.ROLE, chat.chunk({"refusal": "No."}), chat.STOP, chat.DONE))
    assert (refused.content, refused.stop_reason) == ("No.", "refusal")


INTERLEAVED = {
    "one after the other": [
        make_call_piece(0, "a"),
        more(0, '{"x"'),
        more(0, ":1}"),
        make_call_piece(1, "b", "{"),
        more(1, '"y":[2]}'),
    ],
    "pieces that are mixed": [
        make_call_piece(0, "a"),
        make_call_piece(1, "b"),
        more(1, '{"y"'),
        more(0, '{"x"'),
        more(1, ":[2]"),
        more(0, ":1}"),
        more(1, "}"),
    ],
    "numbers that are left out": [
        make_call_piece(2, "a"),
        make_call_piece(7, "b"),
        more(7, '{"y":[2]}'),
        more(2, '{"x":1}'),
    ],
    "a name that comes late": [
        make_call_piece(0, None),
        more(0, '{"x":'),
        make_call_piece(0, "a", "1}", None),
        make_call_piece(1, "b", '{"y":[2]}'),
    ],
    "an id that comes late": [
        make_call_piece(0, "a", id_=None),
        make_call_piece(0, None, '{"x":1}'),
        make_call_piece(1, "b", '{"y":[2]}'),
    ],
    "one number for two ids": [
        make_call_piece(0, "a", '{"x":1}', "p"),
        make_call_piece(0, "b", '{"y":[2]}', "q"),
    ],
    "a name in every piece": [
        make_call_piece(0, "a", '{"x"', "p"),
        make_call_piece(0, "a", ":1}", "p"),
        make_call_piece(1, "b", '{"y":[2]}'),
    ],
    "no numbers": [
        make_call_piece(None, "a", '{"x":1}', "p"),
        make_call_piece(None, "b", '{"y":[2]}', "q"),
    ],
    "braces and cut escapes in strings": [
        make_call_piece(0, "a", '{"x":1, "s": "}\\'),
        make_call_piece(1, "b", '{"y":[2]'),
        more(0, '"{"}'),
        more(1, "}"),
    ],
}


@pytest.mark.parametrize("pieces", INTERLEAVED.values(), ids=INTERLEAVED)
def test_calls_have_blocks_one_after_the_other(pieces: list[Json]) -> None:
    found = read(relay_reply(CHAT, *calling(*pieces)))
    assert [(name, {key: made for key, made in made.items() if key != "s"}) for name, made in found.calls] == [
        ("a", {"x": 1}),
        ("b", {"y": [2]}),
    ]
    assert found.stop_reason == "tool_use"


def test_first_call_is_streamed_and_the_next_sent_when_complete() -> None:
    relay = Relay(CHAT.decoder(), API.encoder(), Toy, same_api=False)
    reader = relay.decoder.framing.make_reader()
    out = [b"".join(relay.feed(one)) for one in reader.feed(b"".join(calling(*INTERLEAVED["pieces that are mixed"])))]
    assert [one.count(b"input_json_delta") for one in out[:8]] == [0, 0, 0, 0, 1, 0, 3, 1]
    assert b'"name":"a"' in out[1]
    assert b'"name":"b"' in out[6]


def test_text_between_pieces_of_a_call_is_sent_after_it() -> None:
    pieces = [chat.chunk({"tool_calls": [piece]}) for piece in (make_call_piece(0, "a", '{"x"'), more(0, ":1}"))]
    body = relay_reply(
        CHAT, chat.ROLE, pieces[0], *chat.make_text_chunks("so"), pieces[1], chat.chunk({}, "tool_calls"), chat.DONE
    )
    assert blocks(body) == [{"a": {"x": 1}}, "so"]


def test_arguments_without_a_name_are_text() -> None:
    body = relay_reply(CHAT, *calling(make_call_piece(0, None, '{"x":1}')))
    assert (blocks(body), read(body).stop_reason) == (['{"x":1}'], "end_turn")


def test_call_without_an_id_gets_one() -> None:
    found = read(relay_reply(CHAT, *calling(make_call_piece(0, "a", "{}", None), make_call_piece(1, "b", "{}", None))))
    assert all(id_.startswith("toolu_") for id_ in found.ids)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_before_the_text_if_it_was_asked_for(field: str) -> None:
    frames = [chat.ROLE, chat.chunk({field: "Hm"}), chat.chunk({field: ".", "content": "a"}), chat.STOP, chat.DONE]
    body = relay_reply(CHAT, *frames)
    assert (blocks(body), read(body).reasoning) == ([["thinking"], "a"], "Hm.")
    assert blocks(relay_reply(CHAT, *frames, form=False)) == ["a"]


def test_usage_is_sent_once_without_cached_tokens() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 800}}
    body = relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a"), chat.STOP, chat.chunk({}, usage=usage), chat.DONE)
    deltas = [event.data for event in events(body) if event.name == "message_delta"]
    assert [one["usage"] for one in deltas] == [
        {"input_tokens": 200, "cache_read_input_tokens": 800, "output_tokens": 7}
    ]


def test_error_of_the_server_is_the_last_event() -> None:
    error = chat.frame({"error": {"message": "Too many", "type": "rate_limit_error"}})
    for frames in (
        [error],
        [chat.ROLE, *chat.make_text_chunks("a"), error],
        [chat.ROLE, *chat.make_text_chunks("a["), error, chat.DONE],
    ):
        body = relay_reply(CHAT, *frames)
        with pytest.raises(StreamError) as raised:
            read(body)
        assert raised.value.error == {"type": "rate_limit_error", "message": "Too many"}
        assert [event.name for event in events(body)][-1] == "error"
    other = chat.frame({"error": {"message": "x", "type": "odd"}})
    with pytest.raises(StreamError, match="api_error"):
        read(relay_reply(CHAT, other))


def test_only_the_first_choice_is_sent() -> None:
    body = relay_reply(
        CHAT, chat.ROLE, *chat.make_text_chunks("a"), *chat.make_text_chunks("b", index=1), chat.STOP, chat.DONE
    )
    assert blocks(body) == ["a"]


def test_reply_that_ends_without_a_reason_is_ended() -> None:
    assert read(relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a"), chat.DONE)).stop_reason == "end_turn"
    assert read(relay_reply(CHAT, chat.ROLE, *chat.make_text_chunks("a[x]"), chat.DONE)).stop_reason == "tool_use"


async def test_reply_of_chat_completions_is_read_by_the_sdk() -> None:
    frames = [chat.ROLE, chat.chunk({"reasoning_content": "Hm."}), *chat.make_text_chunks("So", ":")]
    body = relay_reply(CHAT, *frames, *calling(*INTERLEAVED["pieces that are mixed"])[1:])
    assert read(body) == await sdks.read_messages([body])


def test_reply_of_ollama_is_sent() -> None:
    for name in ("calls-with-ids", "cut", "parser-error", "thinking-and-calls"):
        body = REPLIES[name := f"ollama/{name}.ndjson"]
        if name == "ollama/parser-error.ndjson":
            with pytest.raises(StreamError):
                read(relay_reply(OLLAMA, body))
            continue
        was, found = ollama.read(body, ids=True), read(relay_reply(OLLAMA, body))
        assert (found.content, found.reasoning, found.calls) == (was.content, was.reasoning, was.calls), name
        cut = was.done_reason == "length"
        assert found.stop_reason == ("max_tokens" if cut else "tool_use" if was.calls else "end_turn"), name


def test_strict_reply_is_encoded_again_with_the_same_content() -> None:
    for name, body in REPLIES.items():
        if not name.startswith("messages/") or name == "messages/anthropic-overloaded.sse":
            continue
        was = messages.read(body, overlapping=True) if "vllm-done" not in name and "sglang" not in name else None
        found = messages.read(relay_reply(API, body, strict=True))
        assert was is None or (found.blocks, found.usage) == (was.blocks, was.usage), name
        assert json.loads(fold_stream(API, relay_reply(API, body, strict=True)))["content"] == found.blocks


UNKNOWN: dict[str, list[bytes]] = {
    "event": [frame({"type": "odd", "content_block": messages.call("bad")})],
    "block": [
        make_block_start(1, {"type": "odd_call", "name": "bad"}),
        delta(1, "odd_delta", x="bad"),
        make_block_stop(1),
    ],
    "delta of a text": [
        make_block_start(1, messages.text("")),
        *make_text_deltas(1, "b"),
        delta(1, "odd_delta", name="bad"),
        make_block_stop(1),
    ],
    "field of an event": [
        make_block_start(1, messages.text("")),
        frame({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "b"}, "x": "bad"}),
        make_block_stop(1),
    ],
    "field of a delta": [
        make_block_start(1, messages.text("")),
        delta(1, "text_delta", text="b", x="bad"),
        make_block_stop(1),
    ],
    "field of a block": [
        make_block_start(1, {**messages.text(""), "x": "bad"}),
        *make_text_deltas(1, "b"),
        make_block_stop(1),
    ],
    "field of a stop": [
        make_block_start(1, messages.text("")),
        *make_text_deltas(1, "b"),
        frame({"type": "content_block_stop", "index": 1, "x": "bad"}),
    ],
    "arguments of an unknown block": [
        make_block_start(1, {"type": "odd_call"}),
        delta(1, "input_json_delta", partial_json='"bad"'),
        make_block_stop(1),
    ],
}


@pytest.mark.parametrize("frames", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_events_are_forwarded_unless_a_policy_is_strict(frames: list[bytes]) -> None:
    reply = make_stream(text_block(0, "a"), frames, text_block(2 if len(frames) > 1 else 1, "c"))
    assert relay_reply(API, *reply) == b"".join(reply)
    body = relay_reply(API, *reply, strict=True)
    assert b"bad" not in body
    found = read(body)
    assert (found.content.replace("b", ""), found.stop_reason) == ("ac", "end_turn")


@pytest.mark.parametrize("frames", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_events_are_encoded_again_if_numbers_have_shifted(frames: list[bytes]) -> None:
    body = relay_reply(API, *make_stream(text_block(0, "a[x]"), frames, text_block(2, "c")))
    assert b"bad" in body or b"content_block_stop" in frames[-1]
    indexes = [event.data["index"] for event in events(body) if event.name == "content_block_start"]
    assert indexes == [*range(len(indexes))]


def test_unknown_fields_of_start_and_end_are_dropped_under_strict_policy() -> None:
    odd = {"type": "message_start", "message": messages.message(messages.call("bad"), stop_reason=None)}
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "x": "bad"}, "usage": {"output_tokens": 5}}
    stop = {"type": "message_stop", "content_block": messages.call("bad")}
    body = relay_reply(API, frame(odd), *text_block(0, "a"), frame(last), frame(stop), strict=True)
    assert b"bad" not in body
    assert (blocks(body), read(body).stop_reason) == (["a"], "end_turn")
    error = relay_reply(API, START, frame({**messages.error(), "content_block": messages.call("bad")}), strict=True)
    assert b"bad" not in error
    with pytest.raises(StreamError):
        read(error)


def test_calls_of_the_server_are_sent_under_a_strict_policy() -> None:
    """The client runs none of these calls, and the next request is rejected if either block is missing."""
    found = read(relay_reply(API, REPLIES["messages/anthropic-web-search.sse"], strict=True))
    assert found.kinds == ["text", "server_tool_use", "web_search_tool_result", "text", "text", "text"]


def test_call_next_to_unknown_blocks_gets_the_next_number() -> None:
    odd = [make_block_start(0, {"type": "odd"}), make_block_stop(0)]
    body = relay_reply(API, *make_stream(odd, call_block(1, "read", "{}"), stop_reason="tool_use"), strict=True)
    assert blocks(body) == [{"read": {}}]


def test_reply_of_messages_is_sent_to_a_client_of_chat_completions() -> None:
    relay = Relay(API.decoder(), CHAT.encoder(), Toy, same_api=False)
    frames = [*relay.decoder.framing.make_reader().feed(REPLIES["messages/anthropic.sse"])]
    found = chat.read(b"".join([*(out for one in frames for out in relay.feed(one)), *relay.finish()]))
    was = messages.read(REPLIES["messages/anthropic.sse"])
    assert (found.content, found.reasoning, found.calls) == (was.content, was.reasoning, was.calls)
    assert found.finish_reason == "tool_calls"


def test_thinking_is_returned_with_its_signature() -> None:
    thought = [*messages.thinking_block(0, "Hm", signature="sig"), *text_block(2, "a")]
    secret = [make_block_start(1, {"type": "redacted_thinking", "data": "x"}), make_block_stop(1)]
    for strict in (False, True):
        found = read(relay_reply(API, *make_stream(thought[:4], secret, thought[4:]), strict=strict))
        assert found.blocks == [
            messages.thinking("Hm", "sig"), {"type": "redacted_thinking", "data": "x"}, messages.text("a"),
        ]  # fmt: skip
    empty = read(relay_reply(API, *make_stream(messages.thinking_block(0), text_block(1, "a[x]")), strict=True))
    assert empty.blocks[0] == messages.thinking("", "sig")


PIECES = st.sampled_from(["a", " b", "é", "{"])
CONTENT_EVENTS = st.one_of(
    st.builds(Text, PIECES),
    st.builds(Rewritten, st.just("x"), PIECES),
    st.builds(RefusalText, PIECES),
    st.builds(Reasoning, PIECES),
    st.builds(ReasoningDelta, PIECES),
    st.builds(BlockStart, st.sampled_from(["text", "reasoning"]), st.integers(0, 3)),
    st.builds(BlockEnd),
    st.builds(Seal, st.sampled_from(["", "sig"]), st.sampled_from(["", "secret"])),
    st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    st.just("call"),
    st.builds(lambda number, name: ("begun", number, name), st.integers(0, 2), st.booleans()),
    st.builds(lambda number: ("piece", number), st.integers(0, 2)),
)
ARGUMENTS = ['{"a": "', "}\\", '"', '"', "}"]


@given(st.lists(CONTENT_EVENTS, max_size=20), st.sampled_from(["stop", "length", "tool_calls", "other"]), st.booleans())
def test_any_events_make_a_valid_stream(some: list[Any], reason: Any, thinks: bool) -> None:
    """Calls are complete at the end, in any order of their pieces."""
    encoder, made = API.encoder(thinks), 0
    remaining: dict[int, list[str]] = {}
    given: list[Any] = [Start("m", "model")]
    expected = 0
    for one in some:
        match one:
            case "call":
                made, expected = made + 1, expected + 1
                given.append(Call("", ToolCall("made", '{"a": 1}', f"made{made}"), "toy"))
            case ("begun", number, name) if number not in remaining:
                remaining[number], expected = [*ARGUMENTS], expected + 1
                given.append(CallDelta(number, f"id{number}" if name else None, "read"))
                given.append(CallDelta(number, f"id{number}"))
            case ("piece", number) if remaining.get(number):
                given.append(CallDelta(number, arguments=remaining[number].pop(0)))
            case ("begun", *_) | ("piece", *_):
                pass
            case _:
                given.append(one)
    given += [CallDelta(number, arguments="".join(rest)) for number, rest in remaining.items()]
    given.append(Finish(reason))
    framing = encoder.framing
    encoded = [value for one in given for value in encoder.write([one], 0)] + encoder.end()
    assert encoder.end() == []
    body = b"".join(framing.encode(encoded))
    if any(isinstance(one, Text | RefusalText | Rewritten) for one in given):
        body = body.replace(b'" b"', b'"b"')  # blank replies are not handled by the encoder
    found = read(body)
    assert len(found.calls) == expected
    assert [made for name, made in found.calls if name == "read"] == [{"a": '}"'}] * len(remaining)
    was = [getattr(one, "raw", "") if isinstance(one, Text) else one.text for one in given
           if isinstance(one, Text | Rewritten | RefusalText)]  # fmt: skip
    assert found.content.replace(" ", "") == "".join(was).replace(" ", "")
    assert API.fold([json.loads(json.dumps(value)) for value in encoded])["stop_reason"] == found.stop_reason


TEXTS = st.lists(st.sampled_from(["a", " b", "[x]", "[", "]", "(t)", "{u}", "~", "Hm.", "No."]), max_size=8)


@given(TEXTS, st.sampled_from(["stop", "length", "tool_calls"]), st.booleans(), st.booleans(), st.booleans())
def test_replies_of_other_apis_in_any_order_are_good_streams(
    texts: list[str], reason: str, calls: bool, thinks: bool, structured: bool
) -> None:
    fields = {"Hm.": "reasoning_content", "No.": "refusal"}
    frames = [chat.ROLE, *(chat.chunk({fields.get(text, "content"): text}) for text in texts)]
    frames += calling(*INTERLEAVED["pieces that are mixed"], reason=reason)[1:] if calls else [chat.chunk({}, reason)]
    reply = read(relay_reply(CHAT, *frames, chat.USED, chat.DONE, form=thinks, structured=structured))
    assert (len(reply.calls) >= 2) is (calls and structured) or "[x]" in "".join(texts)
    lines = [
        ollama.make_thinking_lines(text)[0] if text == "Hm." else ollama.make_text_lines(text)[0] for text in texts
    ]
    lines += [ollama.piece("", ollama.call("a", x=1), ollama.call("b"))] * calls
    lines = ollama.make_stream(*lines, done_reason="length" if reason == "length" else "stop")
    found = read(relay_reply(OLLAMA, *lines, form=thinks, structured=structured))
    cut = reason == "length"
    assert (reply.stop_reason, found.stop_reason) == tuple(
        "max_tokens" if cut else "tool_use" if one.calls else "refusal" if refused else "end_turn"
        for one, refused in ((reply, "No." in texts), (found, False))
    )


@pytest.mark.parametrize("failure", [Failure("Gone"), Failure("Gone", "overloaded_error")])
def test_nothing_is_sent_after_a_failure(failure: Failure) -> None:
    encoder = API.encoder()
    assert encoder.write([Start("m"), Text("a")], 0)
    assert [one["type"] for one in encoder.write([failure], 0)] == ["error"]
    assert encoder.write([Text("b"), Finish("stop")], 0) == encoder.end() == []
