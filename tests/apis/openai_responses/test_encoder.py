"""The encoder of Responses: any events in any order become a stream that the strictest clients accept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, ollama, responses, sdks
from tests.apis.named_events import StreamError, events
from tests.apis.toy import Toy
from vtc.apis import Api, openai_chat
from vtc.apis.contract import ReplyEvent
from vtc.apis.ollama_chat import API as OLLAMA
from vtc.apis.openai_responses import API, ResponseForm
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


def encode_events(
    *groups: Sequence[ReplyEvent] | ReplyEvent, form: ResponseForm | None = None, ends: bool = True
) -> bytes:
    """Encode the events of each frame in order."""
    encoder = API.encoder(form)
    values = [one for group in groups for one in encoder.write(group if isinstance(group, list) else [group], 0)]
    values += encoder.end() if ends else []
    assert encoder.end() == [] or not ends
    return b"".join(encoder.framing.encode(values))


def read(*groups: Any, **how: Any) -> responses.Read:
    return responses.read(encode_events(*groups, **how))


START = Start("c1", "lab", 1)
STOP = Finish("stop", native_reason="stop")


def a_call(name: str, number: int) -> Call:
    return Call("", ToolCall(name, '{"a": 1}', f"call_x{number}"), "toy")


CONTENT_EVENTS = st.one_of(
    st.sampled_from(["a", " b", "", "é\n"]).map(Text),
    st.sampled_from(["x", ""]).map(lambda text: Rewritten("", text)),
    st.sampled_from(["hm", ""]).map(Reasoning),
    st.sampled_from(["hm", ""]).map(ReasoningDelta),
    st.sampled_from(["No", ""]).map(RefusalText),
    st.builds(BlockStart, st.sampled_from(["text", "reasoning"]), st.integers(0, 5), st.sampled_from(["", "msg_1"])),
    st.just(BlockEnd()),
    st.just(Seal("sig")),
    st.just(Usage(3, 5, 1, 2)),
)


def _in_order(numbers: Sequence[int]) -> list[tuple[int, str]]:
    """Interleave the pieces of multiple calls as drawn; the pieces of one call stay in order."""
    remaining = {number: ["{", '"a": "\\', '"b"}'] if not number else ['{"c":', " [1]", "}"] for number in (0, 1)}
    remaining[2] = ["{}"]
    return [(number, remaining[number].pop(0)) for number in numbers]


PIECES = st.permutations([0, 0, 0, 1, 1, 1, 2]).map(_in_order)


def deltas(pieces: Sequence[tuple[int, str]]) -> list[CallDelta]:
    begun: set[int] = set()
    out: list[CallDelta] = []
    for number, piece in pieces:
        if number not in begun:
            begun.add(number)
            out.append(CallDelta(number, f"call_{number}", f"tool{number}"))
        out.append(CallDelta(number, arguments=piece))
    return out


@given(
    content_events=st.lists(CONTENT_EVENTS, max_size=12),
    pieces=PIECES | st.none(),
    calls=st.integers(0, 2),
    end=st.sampled_from(
        [STOP, Finish("length", native_reason="length"), Finish("halted", native_reason="content_filter"), None]
    ),
    data=st.data(),
)
def test_any_events_make_a_stream_that_strict_clients_read(
    content_events: list[ReplyEvent],
    pieces: list[tuple[int, str]] | None,
    calls: int,
    end: Finish | None,
    data: st.DataObject,
) -> None:
    reply_events: list[ReplyEvent] = [*content_events, *(deltas(pieces) if pieces else [])]
    for number in range(calls):
        reply_events.insert(data.draw(st.integers(0, len(content_events))), a_call("read", number))
    out = encode_events(START, *reply_events, *([end] if end else []))
    if not end and not any(one.data["type"].endswith("item.done") for one in events(out)):
        with pytest.raises(StreamError):
            responses.read(out)
        return
    found = responses.read(out)
    texts = "".join(
        one.text if isinstance(one, Rewritten) else one.raw for one in reply_events if isinstance(one, Text | Rewritten)
    )
    said_texts = [
        part.get("text", "") for item in found.items for part in item.get("content") or () if item["type"] == "message"
    ]
    assert sorted("".join(said_texts)) == sorted(texts)
    by_name = dict(one for one in found.calls if one[0].startswith("tool"))
    assert by_name == ({"tool0": {"a": '"b'}, "tool1": {"c": [1]}, "tool2": {}} if pieces else {})
    assert len(found.calls) == calls + (3 if pieces else 0)


def test_a_block_that_gets_no_text_never_begins() -> None:
    encoder = API.encoder()
    encoder.write([START], 0)
    assert encoder.write([BlockStart("text", 0)], 0) == encoder.write([BlockEnd()], 0) == []
    assert read(START, BlockStart("text", 0), BlockEnd(), BlockStart("text", 1), Text("Hi"), STOP).kinds == ["message"]


def test_the_first_of_several_calls_is_not_held_back_and_the_others_wait_for_its_end() -> None:
    encoder = API.encoder()
    encoder.write([START], 0)
    types = [
        [event["type"].removeprefix("response.") for event in encoder.write([one], 0)]
        for one in [
            CallDelta(0, "c0", "a"),
            CallDelta(1, "c1", "b"),
            CallDelta(0, arguments="{"),
            CallDelta(1, arguments="{}"),
            CallDelta(0, arguments="}"),
        ]
    ]
    delta, done = "function_call_arguments.delta", ["function_call_arguments.done", "output_item.done"]
    assert types == [["output_item.added"], [], [delta], [], [delta, *done, "output_item.added", delta]]


def test_late_name_and_id_are_used() -> None:
    found = read(
        START,
        CallDelta(0, arguments="{"),
        CallDelta(0, "c0"),
        CallDelta(0, name="a"),
        CallDelta(0, arguments="}"),
        STOP,
    )
    assert (found.calls, found.ids) == ([("a", {})], ["c0"])


def test_a_call_that_never_gets_a_name_is_text() -> None:
    found = read(START, CallDelta(0, "c0"), CallDelta(0, arguments='{"a": 1}'), STOP)
    assert (found.calls, found.content) == ([], '{"a": 1}')


def test_two_calls_of_one_number_are_two() -> None:
    found = read(START, *(CallDelta(0, f"c{one}", "a", "{}") for one in range(2)), STOP)
    assert found.ids == ["c0", "c1"]


def test_text_between_pieces_of_a_call_is_sent_after_it() -> None:
    found = read(
        START, CallDelta(0, "c0", "a"), CallDelta(0, arguments="{"), Text("Hi"), CallDelta(0, arguments="}"), STOP
    )
    assert (found.kinds, found.content) == (["function_call", "message"], "Hi")


def test_a_cut_call_is_not_completed() -> None:
    found = read(
        START, CallDelta(0, "c0", "a"), CallDelta(0, arguments='{"b'), Finish("length", native_reason="length")
    )
    assert [(item["status"], item["arguments"]) for item in found.items] == [("incomplete", '{"b')]
    assert found.reason == "max_output_tokens"


def test_the_end_waits_for_the_usage_and_has_all_its_counts() -> None:
    encoder = API.encoder(ResponseForm(model="asked"))
    encoder.write([START], 0)
    encoder.write([Text("Hi")], 0)
    assert encoder.write([STOP], 0) == []
    *_, last = encoder.write([Usage(10, 5, 4, 2)], 0)
    assert last["response"]["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 15,
    }
    assert (last["response"]["model"], encoder.end(), encoder.write([Text("late")], 0)) == ("asked", [], [])


@pytest.mark.parametrize(
    ("reply_events", "status"),
    [
        ([Text("Hi"), STOP], "completed"),
        ([STOP], "completed"),
        ([Text("Hi")], "incomplete"),
        ([Text("Hi"), Finish("halted", native_reason="content_filter")], "incomplete"),
        ([Text("Hi"), Finish("length", native_reason="length")], "incomplete"),
        ([], "failed"),
        ([Text("Hi"), Failure("No.", "overloaded"), Text("more")], "failed"),
    ],
)
def test_there_is_one_last_event_always(reply_events: list[ReplyEvent], status: str) -> None:
    types = [event.data["type"] for event in events(encode_events(START, *reply_events))]
    ends = ("response.completed", "response.incomplete", "response.failed")
    assert (types[0], types[-1]) == ("response.created", f"response.{status}")
    assert sum(type_ in ends for type_ in types) == 1


def test_empty_reply_is_a_failure() -> None:
    with pytest.raises(StreamError):
        responses.read(relay_from(openai_chat.API, chat.DONE))


def test_an_error_before_all_else_is_a_reply_that_failed() -> None:
    with pytest.raises(StreamError, match=r"No\."):
        read(Failure("No.", "x"))


def test_sealed_reasoning_is_sent_even_without_text() -> None:
    found = read(START, BlockStart("reasoning", 0), Seal(encrypted="gAAA"), BlockStart("text", 1), Text("Hi"), STOP)
    assert [(item["type"], item.get("encrypted_content")) for item in found.items] == [
        ("reasoning", "gAAA"),
        ("message", None),
    ]


def test_a_custom_tool_gets_its_raw_input_from_pieces() -> None:
    pieces = [CallDelta(0, arguments=one) for one in ('{"inp', 'ut": "a\\', 'n\\"b"}')]
    found = read(
        START, CallDelta(0, "c0", "patch"), *pieces, STOP, form=ResponseForm(custom_tools=frozenset({"patch"}))
    )
    assert found.custom_calls == [("patch", 'a\n"b')]


@given(text=st.text(max_size=8), ascii_=st.booleans(), cuts=st.lists(st.integers(0, 60), max_size=4))
def test_raw_input_is_streamed(text: str, ascii_: bool, cuts: list[int]) -> None:
    written_ = json.dumps({"input": text}, ensure_ascii=ascii_)
    places = [0, *sorted(min(cut, len(written_)) for cut in cuts), len(written_)]
    pieces = [CallDelta(0, arguments=written_[a:b]) for a, b in pairwise(places)]
    form = ResponseForm(custom_tools=frozenset({"patch"}))
    assert read(START, CallDelta(0, "c0", "patch"), *pieces, STOP, form=form).custom_calls == [("patch", text)]


def relay_from(api: Api, *frames: bytes, form: ResponseForm | None = None, **toy: Any) -> bytes:
    """Return the reply of a server of another API as a client of Responses reads it."""
    relay = Relay(api.decoder(), API.encoder(form), lambda: Toy(**toy), same_api=False)
    reader = relay.decoder.framing.make_reader()
    incoming = [*reader.feed(b"".join(frames)), *reader.finish()]
    return b"".join([*(out for one in incoming for out in relay.feed(one)), *relay.finish()])


def native(*pieces: str, index: int = 0) -> list[bytes]:
    """Make a native tool call of chat completions, in pieces."""
    head = chat.native(index, id=f"call_{index}", type="function", name=f"tool{index}", arguments="")
    return [chat.chunk({"tool_calls": [one]}) for one in (head, *(chat.native(index, arguments=one) for one in pieces))]


CHATS: dict[str, list[bytes]] = {
    "text": [chat.ROLE, *chat.make_text_chunks("Hi", " you"), chat.STOP, chat.USED, chat.DONE],
    "reasoning": [
        chat.ROLE,
        chat.chunk({"reasoning_content": "hm"}),
        *chat.make_text_chunks("Hi"),
        chat.STOP,
        chat.DONE,
    ],
    "lifted": [chat.ROLE, *chat.make_text_chunks("Hi[a]", "[b]", "Ho"), chat.STOP, chat.DONE],
    "call": [
        chat.ROLE,
        *chat.make_text_chunks("Hi"),
        *native('{"a"', ": 1}"),
        chat.chunk({}, "tool_calls"),
        chat.USED,
        chat.DONE,
    ],
    "no-done": [chat.ROLE, *chat.make_text_chunks("Hi"), chat.STOP],
    "calls": [chat.ROLE, *native("{}"), *native("{", "}", index=1), chat.chunk({}, "tool_calls"), chat.DONE],
}


@pytest.mark.parametrize("frames", CHATS.values(), ids=CHATS)
@pytest.mark.parametrize("guarded", [False, True])
async def test_chat_completions_are_read_by_the_sdk(frames: list[bytes], guarded: bool) -> None:
    out = relay_from(openai_chat.API, *frames, guarded=guarded)
    found = responses.read(out)
    assert found == await sdks.read_responses([out])
    direct = chat.read(b"".join(frames))
    assert found.content + "".join(f"[{name}]" for name, _ in found.calls if name in "ab") in (
        direct.content,
        "HiHo[a][b]",
    )
    assert found.reasoning == (direct.reasoning or "")
    assert [one for one in found.calls if one[0].startswith("tool")] == direct.calls


async def test_ollama_is_read_by_the_sdk() -> None:
    frames = ollama.make_text_stream("Hi", "[a]", " Ho")
    out = relay_from(OLLAMA, *frames)
    found = responses.read(out)
    assert found == await sdks.read_responses([out])
    assert (found.content, found.calls, found.status) == ("Hi Ho", [("a", {})], "completed")


def test_fields_of_another_apis_call_are_dropped() -> None:
    frames = [chat.ROLE, *native("{}"), chat.chunk({}, "tool_calls"), chat.DONE]
    (item,) = responses.read(relay_from(openai_chat.API, *frames, guarded=True)).items
    assert item.keys() == {"id", "type", "call_id", "name", "arguments", "status"}
