"""Streamed replies of Anthropic Messages: the frames sent for each frame received, with a toy reader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.apis import messages
from tests.apis.messages import (
    START,
    call_block,
    delta,
    end,
    make_block_start,
    make_block_stop,
    make_stream,
    make_text_deltas,
    read,
    text_block,
)
from tests.apis.named_events import Json, StreamError, events, frame
from tests.apis.replies import MIXED, REPLIES
from tests.apis.rewriting import rewrite_reply
from tests.apis.toy import Toy, White
from vtc.apis.anthropic_messages import API
from vtc.apis.relay import Relay
from vtc.events import Call, Event
from vtc.wire import EventReader


class Repairing(Toy):
    """A reader that repairs: it completes an open call at the end of its block."""

    def pause(self) -> list[Event]:
        if not self.held.startswith("["):
            return super().pause()
        held, self.held = self.held, ""
        return [replace(event, raw=held) for event in Toy().feed(f"{held}]") if isinstance(event, Call)]


def relay(
    toy: type[Toy] = Toy, *, structured: bool = True, guarded: bool = False, thinks: bool = False, drop: Any = ()
) -> Relay[Toy]:
    return Relay(API.decoder(thinks, drop), API.encoder(thinks, drop), lambda: toy(structured, guarded))


def feed(one: Relay[Toy], raw: bytes) -> list[bytes]:
    return [out for frame in EventReader().feed(raw) for out in one.feed(frame) if out]


def run(*frames: bytes, toy: type[Toy] = Toy, **how: Any) -> bytes:
    one = relay(toy, **how)
    out = [piece for frame in frames for piece in feed(one, frame)]
    return b"".join([*out, *one.finish()])


def blocks(body: bytes) -> list[Any]:
    """Summarize the blocks as the strictest client reads them: text as such, calls by name, reasoning in brackets."""
    of = {"text": lambda one: one["text"], "tool_use": lambda one: {one["name"]: one["input"]}}
    return [of.get(one["type"], lambda one: [one["type"]])(one) for one in read(body).blocks]


THINKING = messages.thinking_block(0, "Hm.")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [START],
        make_stream(text_block(0, "Hello", " world")),
        make_stream(text_block(0, "a", "[", "b"), text_block(1, "(", "x")),
        make_stream(text_block(0, "Hi"), stop_reason="max_tokens"),
        make_stream(THINKING, text_block(1, "a"), call_block(2, "x", "{}"), stop_reason="tool_use"),
        make_stream(text_block(0, "a"), messages.thinking_block(1, "b"), text_block(2, "c")),
        [
            START,
            make_block_start(0, messages.text("")),
            messages.PING,
            *make_text_deltas(0, "a"),
            make_block_stop(0),
            messages.PING,
            *end(),
        ],
        [START, make_block_start(0, messages.text("")), make_block_stop(0), *end()],
        [START, make_block_start(0, messages.text("")), messages.PING, make_block_stop(0), *text_block(1, "a"), *end()],
        [START, make_block_start(0, messages.text("whole")), make_block_stop(0), *end()],
        [
            START,
            make_block_start(0, {"type": "redacted_thinking", "data": "x"}),
            make_block_stop(0),
            *text_block(1, "b"),
            *end(),
        ],
        [START, *text_block(0, "a"), frame(messages.error())],
        [START, make_block_start(0, messages.text("")), frame(messages.error())],
        [START, *text_block(0, "a")],
        [*make_stream(text_block(0, "a")), b"data: [DONE]\n\n", *end()],
        [frame({"type": "message_delta", "delta": {}}), frame({"type": "odd", "index": "x"}), frame({"type": "y"})],
        [frame({"type": "content_block_start", "index": 0}), frame({"type": "content_block_delta", "index": 0})],
        [b"data: not json\n\n", b"data: []\n\n", b": comment\n\n", b"event: ping\ndata: {}\n\n"],
    ],
)
def test_unchanged_frames_keep_their_bytes(frames: list[bytes]) -> None:
    assert run(*frames) == b"".join(frames)


@pytest.mark.parametrize("name", [name for name in REPLIES if name.startswith("messages/") and name not in MIXED])
@pytest.mark.parametrize("guarded", [False, True])
def test_recorded_replies_keep_their_bytes(name: str, guarded: bool) -> None:
    frames = EventReader().feed(REPLIES[name])
    assert run(*(one.raw for one in frames), guarded=guarded) == REPLIES[name]


def test_frames_are_sent_as_soon_as_they_are_decided() -> None:
    """A block's start is sent with its first text, and its stop once the next event is known."""
    one = relay()
    assert feed(one, START) == [START]
    first = text_block(0, "a", "b")
    assert [feed(one, frame) for frame in first] == [[], first[:2], [first[2]], []]
    assert feed(one, messages.PING) == []
    call = call_block(1, "x", "{}")
    assert feed(one, call[0]) == [first[3], messages.PING, call[0]]
    assert [feed(one, frame) for frame in call[1:]] == [[frame] for frame in call[1:]]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a[", "x", "]"], ["a", {"x": {}}]),
        (["a[x]b"], ["a", {"x": {}}, "b"]),
        (["[x][y]"], [{"x": {}}, {"y": {}}]),
        (["[x", "]"], [{"x": {}}]),
        (["[x]", "a", "[y]", "b", "c"], [{"x": {}}, "a", {"y": {}}, "bc"]),
        (["a~b"], ["ab"]),
        (["a{", "b}c"], ["a<b>c"]),
        (["a(b)c"], ["ac"]),
    ],
)
def test_text_that_changes(pieces: list[str], expected: list[Any]) -> None:
    body = run(*make_stream(text_block(0, *pieces)))
    assert blocks(body) == expected
    assert read(body).stop_reason == ("tool_use" if any(isinstance(one, dict) for one in expected) else "end_turn")


def test_a_call_is_a_block_of_its_own() -> None:
    out = run(*make_stream(text_block(0, "a[x]")))
    found = [event.data for event in events(out)][3:-2]
    assert found == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": messages.call("x", "id1")},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "content_block_stop", "index": 1},
    ]


def test_blocks_after_a_call_have_other_indexes() -> None:
    """If a block never started, the frames are forwarded unchanged."""
    search = [make_block_start(1, {"type": "web_search_tool_result", "content": []}), make_block_stop(1)]
    assert blocks(run(*make_stream(text_block(0, "a[x]"), search, text_block(2, "b")))) == [
        "a",
        {"x": {}},
        ["web_search_tool_result"],
        "b",
    ]
    out = run(*make_stream(text_block(0, "[x]"), search, text_block(2, "b")))
    assert b"".join([*search, *text_block(2, "b")[:-1]]) in out
    assert blocks(out) == [{"x": {}}, ["web_search_tool_result"], "b"]
    assert blocks(run(*make_stream(text_block(0, "~"), text_block(1, "b"), text_block(2, "[x]")))) == ["b", {"x": {}}]
    assert blocks(run(*make_stream(text_block(0, "~"), stop_reason="max_tokens"))) == []


def test_frames_are_out_of_step_from_the_first_shift() -> None:
    one = relay()
    for raw in make_stream(text_block(0, "a", "[x]"))[:-4]:
        feed(one, raw)
        assert one.writer.in_step
    feed(one, make_text_deltas(0, "[x]")[0])
    assert not one.writer.in_step
    feed(one, make_block_start(1, messages.thinking("")))
    assert not one.writer.in_step


def test_call_at_the_end_of_a_block_is_completed_with_it() -> None:
    body = run(*make_stream(text_block(0, "a[x"), text_block(1, "b[y")), toy=Repairing)
    assert blocks(body) == ["a", {"x": {}}, "b[y"]  # `finish` tests the end


def test_buffered_white_space_at_the_end_of_a_block_is_sent_unchanged() -> None:
    frames = make_stream(text_block(0, "a", " \n"), text_block(1, "b "), messages.thinking_block(2, "c"))
    assert run(*frames, toy=White) == b"".join(frames)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "tool_use"),
        ("stop_sequence", "tool_use"),
        ("tool_use", "tool_use"),
        ("max_tokens", "max_tokens"),
        ("refusal", "refusal"),
        ("pause_turn", "pause_turn"),
        ("model_context_window_exceeded", "model_context_window_exceeded"),
    ],
)
def test_the_stop_reason(reason: str, expected: str) -> None:
    sequence = "###" if reason == "stop_sequence" else None
    found = read(run(START, *text_block(0, "a[x]"), *end(reason, sequence)))
    assert (found.stop_reason, found.stop_sequence, found.usage) == (expected, None, messages.USAGE)
    plain = run(START, *text_block(0, "a"), *end(reason, sequence))
    if reason == "tool_use":  # the reply states a call and has none
        assert read(plain).stop_reason == "end_turn"
    else:
        assert plain.endswith(b"".join(end(reason, sequence)))


def test_thoughts_parted_from_the_text_have_a_block_ahead_of_it() -> None:
    """Reasoning in text, as chat models write it, is sent if the request asked for thinking, otherwise removed."""
    frames = make_stream(text_block(0, "(b", "c)", "(d)a[x]"))
    body = run(*frames, thinks=True)
    assert blocks(body) == [["thinking"], "a", {"x": {}}]
    assert read(body).reasoning == "(bc)(d)"
    assert blocks(run(*frames)) == ["a", {"x": {}}]
    assert blocks(run(*make_stream(text_block(0, "(b)")), thinks=True)) == [["thinking"]]
    assert blocks(run(*make_stream(text_block(0, "a(b)c")), thinks=True)) == ["a", ["thinking"], "c"]


def test_thinking_is_dropped_by_any_of_its_names() -> None:
    frames = make_stream(THINKING, text_block(1, "(b)a[x]"), text_block(2, "c"))
    for name in ("thinking", "reasoning_content"):
        assert blocks(run(*frames, thinks=True, drop=frozenset({name}))) == ["a", {"x": {}}, "c"]
    assert blocks(run(*frames, drop=frozenset({"redacted_thinking"}))) == [["thinking"], "a", {"x": {}}, "c"]


def test_fields_are_dropped() -> None:
    start = frame({"type": "message_start", "message": messages.message(stop_reason=None, x=1, usage=messages.USAGE)})
    used = frame({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3, "x": 1}})
    out = run(start, *text_block(0, "a[y]"), used, *end()[1:], drop=frozenset({"x", "type", "message"}))
    assert b'"x"' not in out
    assert blocks(out) == ["a", {"y": {}}]


def test_a_client_of_text_is_given_calls_in_the_same_block() -> None:
    calling = make_stream(
        text_block(0, "a"),
        call_block(1, "x", '{"p":', "1}"),
        call_block(2, "y", "{}", id="toolu_2"),
        stop_reason="tool_use",
    )
    body = run(*calling, structured=False)
    assert blocks(body) == ['a[x {"p":1} toolu_1][y {} toolu_2]']
    assert read(body).stop_reason == "end_turn"
    assert blocks(run(*make_stream(call_block(0, "x", "{}"), stop_reason="tool_use"), structured=False)) == [
        "[x {} toolu_1]"
    ]
    assert blocks(run(*make_stream(text_block(0, "a{b}"), text_block(1, "{c}")), structured=False)) == ["a<b>", "<c>"]


def test_native_calls_disable_reading_and_follow_text_calls() -> None:
    frames = make_stream(
        text_block(0, "[x]a[y"), call_block(1, "z", "{}"), text_block(2, "[b]"), stop_reason="tool_use"
    )
    assert blocks(run(*frames)) == [{"x": {}}, "a[y", {"z": {}}, "[b]"]
    assert blocks(run(*frames, guarded=True)) == [{"x": {}}, "a[y", {"z": {}}, "[b]"]


def test_native_call_is_encoded_again_if_policy_changes_it() -> None:
    block = [
        make_block_start(1, {**messages.call("old"), "caller": {"type": "direct"}}),
        delta(1, "input_json_delta", partial_json='{"p": 1}'),
        make_block_stop(1),
    ]
    frames = make_stream(text_block(0, "a"), block, call_block(2, "y", "{}", id="toolu_2"), stop_reason="tool_use")
    body = run(*frames, guarded=True)
    assert blocks(body) == ["a", {"new": {"p": 1}}, {"y": {}}]
    assert read(body).ids == ["toolu_1", "toolu_2"]
    assert read(body).blocks[1]["caller"] == {"type": "direct"}


def test_native_call_that_a_policy_denies_becomes_its_message() -> None:
    frames = make_stream(text_block(0, "a"), call_block(1, "bad", "{}"), stop_reason="tool_use")
    assert read(run(*frames, guarded=True)) == messages.Read([messages.text("a[bad {} toolu_1]")], "end_turn")
    both = make_stream(call_block(0, "bad", "{}"), call_block(1, "y", "{}", id="t2"), stop_reason="tool_use")
    assert blocks(run(*both, guarded=True)) == ["[bad {} toolu_1]", {"y": {}}]


@pytest.mark.parametrize("text", [[], text_block(0, "a")])
@pytest.mark.parametrize(("name", "expected"), [("bad", ["b[bad {} toolu_1]"]), ("old", ["b", {"new": {}}])])
def test_text_in_a_call_that_is_encoded_again_gets_a_text_block(
    text: list[bytes], name: str, expected: list[Any]
) -> None:
    """SGLang writes text after a call into the block of the call."""
    at = int(bool(text))
    *call, stop = call_block(at, name, "{}")
    found = blocks(
        run(*make_stream(text, [*call, *make_text_deltas(at, "b"), stop], stop_reason="tool_use"), guarded=True)
    )
    assert found == ([f"a{expected[0]}", *expected[1:]] if text else expected)


def test_arguments_in_the_start_of_a_call_are_read() -> None:
    block = [make_block_start(0, messages.call("old", p=1)), make_block_stop(0)]
    assert blocks(run(*make_stream(block, stop_reason="tool_use"), guarded=True)) == [{"new": {"p": 1}}]
    twice = [block[0], delta(0, "input_json_delta", partial_json='{"p":2}'), block[1]]
    assert blocks(run(*make_stream(twice, stop_reason="tool_use"), guarded=True)) == [{"new": {"p": 2}}]


def test_events_without_a_name_and_a_last_done_are_read() -> None:
    """Encoded events have names."""
    frames = [b"data: " + one.partition(b"data: ")[2] for one in make_stream(text_block(0, "a[x]"))]
    out = run(*frames, b"data: [DONE]\n\n")
    assert b"event: content_block_start\ndata:" in out
    assert b'"tool_use"' in out
    assert out.endswith(frames[-1] + b"data: [DONE]\n\n")
    assert b'"stop_reason":"tool_use"' in run(START, *text_block(0, "a[x]"), b"data: [DONE]\n\n")


def test_blocks_that_stay_open_to_the_end() -> None:
    """llama.cpp writes such blocks."""
    frames = [
        START,
        make_block_start(0, messages.thinking("")),
        delta(0, "thinking_delta", thinking="Hm"),
        make_block_start(1, messages.text("")),
        *make_text_deltas(1, "a[x", "]b"),
        delta(0, "signature_delta", signature=""),
        make_block_stop(0),
        make_block_stop(1),
        *end(),
    ]
    found = messages.read(run(*frames))
    assert [one.get("text", one["type"]) for one in found.blocks] == ["thinking", "a", "tool_use", "b"]
    closed = [*frames[:4], *make_text_deltas(1, "a[x]"), *frames[-4:]]
    assert messages.read(run(*closed)).kinds == ["thinking", "text", "tool_use"]


def test_a_block_that_is_not_ended_ends_before_the_message_does() -> None:
    assert messages.read(
        run(START, make_block_start(0, messages.text("")), *make_text_deltas(0, "a"), *end())
    ).kinds == ["text"]


def test_an_index_that_is_used_again_gets_another() -> None:
    out = run(START, *text_block(0, "a"), *text_block(0, "b[x]"), *call_block(1, "y", "{}"), *end("tool_use"))
    assert blocks(out) == ["a", "b", {"x": {}}, {"y": {}}]
    assert blocks(run(START, *text_block(1, "a"), *text_block(3, "b"), *end())) == ["a", "b"]


def test_text_in_the_start_of_a_block_is_read() -> None:
    block = [make_block_start(0, messages.text("a[x")), *make_text_deltas(0, "]b"), make_block_stop(0)]
    assert blocks(run(*make_stream(block))) == ["a", {"x": {}}, "b"]
    assert blocks(run(*make_stream([make_block_start(0, messages.text("[x]")), make_block_stop(0)]))) == [{"x": {}}]


def test_citations_keep_their_block() -> None:
    cited = [
        make_block_start(0, messages.text("")),
        delta(0, "citations_delta", citation={"a": 1}),
        *make_text_deltas(0, "b[x]"),
    ]
    found = read(run(*make_stream([*cited, make_block_stop(0)])))
    assert found.blocks[0] == {"type": "text", "text": "b", "citations": [{"a": 1}]}


def test_error_inside_a_block_is_sent_last_after_all_received_text() -> None:
    error = frame(messages.error())
    out = run(START, *text_block(0, "a[x]b[")[:-1], error)
    assert out.endswith(
        make_text_deltas(2, "[")[0].replace(b": ", b":").replace(b", ", b",").split(b"data:")[1] + error
    )
    with pytest.raises(StreamError):
        read(out)


@pytest.mark.parametrize("ending", [[], end()[1:]])
def test_however_it_ends_calls_have_a_stop_reason(ending: list[bytes]) -> None:
    found = [event.data for event in events(run(START, *text_block(0, "a[x]"), *ending))]
    (reason,) = [one for one in found if one["type"] == "message_delta"]
    assert (reason["delta"]["stop_reason"], reason["usage"]) == ("tool_use", {"output_tokens": 1})


def test_buffered_frames_are_released_in_order_and_once() -> None:
    one = relay()
    frames = [START, *text_block(0, "a"), *text_block(1, "[", "b")]
    out = [piece for raw in frames for piece in feed(one, raw)]
    assert b"".join([*out, *one.release()]) == b"".join(frames)
    assert one.release() == []


def test_other_lines_of_a_frame_are_sent_with_its_replacement() -> None:
    raw = b"id: 7\n" + make_text_deltas(0, "a[x]")[0]
    out = run(START, make_block_start(0, messages.text("")), raw, make_block_stop(0), *end())
    assert out.count(b"id: 7\n") == 1
    assert blocks(out) == ["a", {"x": {}}]


PIECES = st.lists(st.sampled_from(["a", " b", "[x]", "[", "x", "]", "(t)", "(", "~", "{u}", "é"]), max_size=6)
BLOCKS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), PIECES),
        st.tuples(st.just("thinking"), st.just(["Hm."])),
        st.tuples(st.just("old"), st.just(['{"p": ', "1}"])),
        st.tuples(st.just("bad"), st.just([])),
        st.tuples(st.just("redacted_thinking"), st.just([])),
    ),
    max_size=5,
)


def make_block(index: int, kind: str, pieces: list[str]) -> list[bytes]:
    match kind:
        case "text":
            return text_block(index, *pieces)
        case "thinking":
            return messages.thinking_block(index, *pieces)
        case "redacted_thinking":
            return [make_block_start(index, {"type": kind, "data": "x"}), make_block_stop(index)]
    return call_block(index, kind, *pieces, id=f"toolu_{index}")


def entry(index: int, kind: str, pieces: list[str]) -> Json:
    match kind:
        case "text":
            return messages.text("".join(pieces))
        case "thinking":
            return messages.thinking("Hm.", "sig")
        case "redacted_thinking":
            return {"type": kind, "data": "x"}
    return messages.call(kind, f"toolu_{index}", **json.loads("".join(pieces) or "{}"))


@given(blocks=BLOCKS, guarded=st.booleans(), structured=st.booleans(), thinks=st.booleans(), cut_off=st.booleans())
def test_streamed_replies_are_valid_and_equal_whole_ones(
    blocks: list[tuple[str, list[str]]], guarded: bool, structured: bool, thinks: bool, cut_off: bool
) -> None:
    blocks = [(kind, pieces) for kind, pieces in blocks if kind != "text" or "".join(pieces)]
    calls = any(kind in ("old", "bad") for kind, _ in blocks)
    reason = "max_tokens" if cut_off else "tool_use" if calls else "end_turn"
    frames = make_stream(*(make_block(i, *one) for i, one in enumerate(blocks)), stop_reason=reason)
    how: dict[str, Any] = {"guarded": guarded, "structured": structured}
    out = run(*frames, thinks=thinks, **how)
    found = read(out)
    body = json.dumps(messages.message(*(entry(i, *one) for i, one in enumerate(blocks)), stop_reason=reason)).encode()
    assert read(rewrite_reply(API, body, lambda: Toy(structured, guarded), thinks)) == found
