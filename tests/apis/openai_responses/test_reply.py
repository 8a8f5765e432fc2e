"""Streamed replies of Responses: reordering, frames forwarded unchanged, and strict clients."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, responses, sdks
from tests.apis.named_events import Json, StreamError, events, frame
from tests.apis.replies import DEVIATIONS, REPLIES
from tests.apis.responses import (
    all_events,
    call_events,
    custom_call_events,
    error,
    make_stream,
    number_events,
    reasoning_events,
    text_events,
)
from tests.apis.toy import Toy
from tests.exchanges import PROFILES, feed_stream
from vtc.apis.openai_responses import API, Encoder, ResponseForm
from vtc.apis.relay import Relay
from vtc.events import BlockEnd, Call, CallDelta, Finish, ReasoningDelta, TextDelta
from vtc.exchange import Fate, Session, Stream
from vtc.profiles import Facts, Planner, Settings
from vtc.reporting import Report
from vtc.wire import EventReader, Frame

NAMES = dict.fromkeys(("mcp__fs.read", "mcp__fs__read"), ("mcp__fs", "read"))
RECORDED = {name: body for name, body in REPLIES.items() if name.startswith("responses/")}
CALL = call_events("read", '{"filePath"', ': "a"}')


def run(*frames: bytes, form: ResponseForm | None = None, drop: tuple[str, ...] = (), **toy: Any) -> bytes:
    """Return the reply that is sent, with the toy reader."""
    relay = Relay(API.decoder(form, drop), API.encoder(form, drop), lambda: Toy(**toy))
    reader = EventReader()
    incoming = [*reader.feed(b"".join(frames)), *reader.finish()]
    return b"".join([*(out for one in incoming for out in relay.feed(one)), *relay.finish()])


def read(*frames: bytes, **how: Any) -> responses.Read:
    return responses.read(run(*frames, **how))


def summarize_items(found: responses.Read) -> list[Any]:
    """Summarize the items."""
    return [
        responses._join_text(item) if item["type"] in ("message", "reasoning") else (item["name"], item["type"])
        for item in found.items
    ]


@pytest.mark.parametrize("name", [name for name in RECORDED if name not in DEVIATIONS])
def test_a_recorded_stream_in_which_nothing_is_lifted_passes_byte_for_byte(name: str) -> None:
    assert run(RECORDED[name]) == RECORDED[name]


@pytest.mark.parametrize("name", [name for name in RECORDED if name in DEVIATIONS])
async def test_recorded_stream_that_a_client_rejects_is_reordered(name: str) -> None:
    out = run(RECORDED[name], form=ResponseForm(model="lab"))
    found = responses.read(out)
    assert found == await sdks.read_responses([out])
    assert [item["type"] for item in found.items] == ["message", "function_call"]
    assert found.calls == [("read", {"filePath": "a.txt"})]
    assert found.content.startswith(("Reading", "Looking"))


@pytest.mark.parametrize(
    "frames",
    [
        make_stream(text_events("H", "i"), CALL, text_events("more", id="msg_2")),
        make_stream(text_events(), CALL),
        make_stream(text_events("a"), text_events("b", id="msg_2")),
        make_stream(custom_call_events("patch", "raw\n", '"text"')),
        [frame(event) for event in all_events(text_events("Hi"), CALL)],
        make_stream(text_events("Hi"), status="incomplete"),
        [*make_stream(text_events("Hi")), b"data: [DONE]\n\n"],
        [b": comment\n\n", *make_stream(text_events("Hi"))],
        make_stream(text_events("Hi", "Ho"), CALL)[:9],
        make_stream(text_events("Hi", "Ho"))[:4],
        number_events([*all_events(text_events("Hi"))[:-1], error()]),
        number_events([*all_events(text_events("Hi"))[:5], {"type": "keepalive"}, *all_events(text_events("Hi"))[5:]]),
    ],
    ids=[
        "call between texts",
        "empty text",
        "two messages",
        "custom call",
        "no numbers",
        "cut",
        "done marker",
        "comment",
        "breaks off after a message",
        "breaks off in a message",
        "error",
        "keep-alive",
    ],
)
def test_a_clean_stream_passes_byte_for_byte(frames: list[bytes]) -> None:
    assert run(*frames) == b"".join(frames)


def test_the_beginning_of_a_message_waits_for_its_first_text() -> None:
    relay = Relay(API.decoder(), API.encoder(), Toy)
    frames = [Frame(one, one.partition(b"data: ")[2].strip()) for one in make_stream(text_events("H", "i"))]
    assert [relay.feed(one) for one in frames[2:4]] == [[], []]
    assert relay.feed(frames[4]) == [one.raw for one in frames[2:5]]


def test_kept_frames_are_given_back_after_a_failure() -> None:
    relay = Relay(API.decoder(), API.encoder(), Toy)
    frames = make_stream(text_events("H", "[x"))
    for one in frames[:4]:
        relay.feed(Frame(one, one.partition(b"data: ")[2].strip()))
    assert relay.release() == frames[2:4]


def test_a_call_closes_the_message_and_text_after_it_begins_another() -> None:
    found = read(*make_stream(text_events("Look", "[a]", "Wait", "[b]", "[c]")))
    assert summarize_items(found) == [
        "Look",
        ("a", "function_call"),
        "Wait",
        ("b", "function_call"),
        ("c", "function_call"),
    ]
    assert found.status == "completed"
    assert [item["id"] for item in found.items][:2] == ["msg_1", "fc_id1"]
    assert found.ids == ["id1", "id2", "id3"]


def test_a_message_that_is_all_calls_gets_no_item() -> None:
    assert summarize_items(read(*make_stream(text_events("[a]", "[", "b]")))) == [
        ("a", "function_call"),
        ("b", "function_call"),
    ]


def test_items_after_an_inserted_call_are_renumbered() -> None:
    out = run(*make_stream(text_events("Hi[a]"), CALL, reasoning_events("hm"), text_events("Bye", id="msg_2")))
    found = responses.read(out)
    assert found.kinds == ["message", "function_call", "function_call", "reasoning", "message"]
    numbers = [event.data["sequence_number"] for event in events(out)]
    assert numbers == [*range(len(numbers))]


def test_a_stream_without_numbers_gets_none() -> None:
    out = run(*(frame(event) for event in all_events(text_events("Hi[a]"))))
    assert b"sequence_number" not in out
    assert responses.read(out).calls == [("a", {})]


def test_inserted_text_has_a_part_if_the_server_began_none() -> None:
    begun, _, *rest = text_events("Hi[a]")
    assert summarize_items(read(*make_stream([begun, *rest]))) == ["Hi", ("a", "function_call")]
    *refused, end = all_events(call_events("bad", "{}"))
    assert summarize_items(read(*number_events([*refused, {**begun, "output_index": 1}, end]), guarded=True)) == [
        "[bad {} call_1]"
    ]


def test_annotations_are_sent_only_with_unchanged_text() -> None:
    note = {"type": "response.output_text.annotation.added", "item_id": "msg_1", "content_index": 0, "annotation": {}}
    for text, kept in (["Hi", True], ["Hi~", False]):
        item = text_events(text)
        item[-2]["part"]["annotations"] = item[-1]["item"]["content"][0]["annotations"] = [{"type": "url"}]
        item.insert(3, {**note, "annotation_index": 0})
        out = run(*make_stream(item))
        (message,) = responses.read(out).items
        assert bool(message["content"][0]["annotations"]) is kept


def test_reasoning_in_the_text_becomes_an_item_ahead_of_the_message() -> None:
    found = read(*make_stream(text_events("(hm)", "Hi")))
    assert (found.kinds, found.reasoning, found.content) == (["reasoning", "message"], "(hm)", "Hi")
    assert found.items[1]["id"] == "msg_1"


def test_reasoning_that_the_client_is_not_sent_is_dropped_with_its_item() -> None:
    frames = make_stream(reasoning_events("hm"), text_events("(hm)", "Hi"))
    assert summarize_items(read(*frames, drop=("reasoning",))) == ["Hi"]


def test_fields_that_the_client_is_not_sent_are_dropped() -> None:
    out = run(*make_stream(text_events("Hi")), drop=("usage", "tools"))
    assert responses.read(out).content == "Hi"
    assert b'"usage"' not in out
    assert b'"tools"' not in out


def test_a_cut_reply_gives_an_open_call_back_as_text() -> None:
    found = read(*make_stream(text_events("Hi[a"), status="incomplete"))
    assert (summarize_items(found), found.reason) == (["Hi[a"], "max_output_tokens")


@pytest.mark.parametrize(("most", "reason"), [(5, "length"), (6, "other"), (None, "other")])
def test_a_reply_as_long_as_was_allowed_was_cut_off(most: int | None, reason: str) -> None:
    """llama.cpp and Ollama report `completed` nevertheless."""
    last = make_stream(text_events("Hi"))[-1]
    decoded = API.decoder(ResponseForm(max_tokens=most)).decode(Frame(last, last.partition(b"data: ")[2].strip()))
    assert decoded
    # No event started its text, so it is sent at the end.
    finish = Finish(reason, native_reason="completed")  # type: ignore[arg-type]
    assert decoded.deltas == (TextDelta("Hi"), BlockEnd(), finish)


def test_unchanged_calls_that_a_policy_looks_at_pass_byte_for_byte() -> None:
    frames = make_stream(text_events("Hi"), CALL, custom_call_events("patch", 'raw\n"x"', call_id="call_2"))
    assert run(*frames, guarded=True) == b"".join(frames)


def test_a_denied_call_is_reported_in_the_message_before_it() -> None:
    found = read(*make_stream(text_events("Hi"), call_events("bad", "{}")), guarded=True)
    assert summarize_items(found) == ["Hi[bad {} call_1]"]


def test_a_changed_call_keeps_its_ids() -> None:
    found = read(*make_stream(call_events("old", "{}", id="fc_9")), guarded=True)
    assert (summarize_items(found), found.items[0]["id"], found.ids) == ([("new", "function_call")], "fc_9", ["call_1"])


def test_a_text_client_reads_calls_in_the_message_before_them() -> None:
    found = read(*make_stream(text_events("Hi"), CALL), structured=False)
    assert summarize_items(found) == ['Hi[read {"filePath": "a"} call_1]']


@pytest.mark.parametrize("flat", NAMES)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_flat_name_is_parted_into_namespace_and_name(flat: str, guarded: bool) -> None:
    found = read(*make_stream(call_events(flat, "{}")), form=ResponseForm(NAMES), guarded=guarded)
    assert (found.calls, found.namespaces) == ([("read", {})], ["mcp__fs"])


OWN_END = {
    "an-empty-piece": ("",),
    "less-than-the-whole": ('{"filePath"', ': "a"'),
    "other-white-space": ('{"filePath":"a"}',),
}


@pytest.mark.parametrize("pieces", OWN_END.values(), ids=OWN_END)
def test_done_event_of_a_call_overrides_its_pieces(pieces: tuple[str, ...]) -> None:
    begun, *_ = CALL
    deltas = [{**CALL[1], "delta": piece} for piece in pieces]
    frames = make_stream([begun, *deltas, *CALL[-2:]])
    assert run(*frames) == b"".join(frames)
    lifted = run(*make_stream(text_events("Hi[x]"), [begun, *deltas, *CALL[-2:]]))
    assert responses.read(lifted).calls[-1] == ("read", {"filePath": "a"})
    last = events(lifted)[-1].data["response"]["output"][-1]
    assert json.loads(last.pop("arguments")) == {"filePath": "a"}
    assert last == {key: value for key, value in CALL[-1]["item"].items() if key != "arguments"}


def test_an_event_about_a_call_that_is_not_known_passes() -> None:
    news = {"type": "response.function_call.news", "item_id": "fc_1"}
    frames = make_stream([CALL[0], news, *CALL[-2:]])
    assert run(*frames) == b"".join(frames)


def test_a_message_that_is_ended_in_its_server_s_place_has_all_fields() -> None:
    """llama.cpp starts a part without these fields, and ends it only at the end of the reply."""
    begun, part, piece, *_ = text_events("Hi")
    bare = {**part, "part": {"type": "output_text", "text": ""}}
    found = read(*make_stream([begun, bare, piece, {"type": "response.news", "item": {}}], CALL))
    assert found.items[0]["content"] == [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}]


def test_a_lifted_call_of_a_custom_tool_has_raw_input() -> None:
    found = read(*make_stream(text_events("[patch]")), form=ResponseForm(custom_tools=frozenset({"patch"})))
    assert found.custom_calls == [("patch", "")]


def test_interleaved_calls_are_written_one_after_the_other() -> None:
    other = [{**event, "output_index": 1} for event in call_events("b", "{", "}", id="fc_2", call_id="call_2")]
    begun, one, two, *ends = ({**event, "output_index": 0} for event in CALL)
    frames = [*all_events()[:2], begun, one, *other[:2], two, *other[2:3], *ends, *other[3:]]
    end = all_events(CALL, call_events("b", "{", "}", id="fc_2", call_id="call_2"))[-1]
    found = read(*number_events([*frames, end]))
    assert (found.calls, found.ids) == ([("read", {"filePath": "a"}), ("b", {})], ["call_1", "call_2"])


def test_events_are_decoded_into_deltas() -> None:
    codec = API.decoder()

    def deltas(event: Json) -> tuple[Any, ...] | None:
        decoded = codec.decode(Frame(b"", json.dumps(event).encode()))
        return decoded.deltas if decoded else None

    found = [deltas(event) for event in all_events(reasoning_events("h"), text_events("a"), CALL)]
    assert [one for one in found if one] == [
        (ReasoningDelta("h"),),
        (TextDelta("a"),),
        (BlockEnd(),),
        (CallDelta(2, "call_1", "read", "", CALL[0]["item"]),),
        (CallDelta(2, arguments='{"filePath"'),),
        (CallDelta(2, arguments=': "a"}'),),
        (CallDelta(2, last=True),),
        (CallDelta(2, source=CALL[-1]["item"], last=True, complete=True),),
        (Finish("other", native_reason="completed"),),
    ]
    assert deltas({"type": "keepalive"}) is None
    assert codec.decode(Frame(b"", b"[DONE]")) == codec.decode(Frame(b"", b" [DONE] "))
    assert codec.decode(Frame(b"", b"[DONE]")).ends  # type: ignore[union-attr]


def test_a_call_without_deltas_has_the_arguments_of_its_end() -> None:
    events_ = [event for event in all_events(CALL) if not event["type"].endswith("delta")]
    assert summarize_items(read(*number_events(events_), structured=False)) == ['[read {"filePath": "a"} call_1]']


def test_a_keep_alive_is_numbered_and_a_comment_before_the_first_event() -> None:
    relay = Relay(API.decoder(), API.encoder(), Toy)
    assert relay.writer.encoder.keep_alive() == b": keep-alive\n\n"
    frames = [Frame(one, one.partition(b"data: ")[2].strip()) for one in make_stream(text_events("Hi", "[a]"))]
    out = [piece for one in frames[:5] for piece in relay.feed(one)]
    out += [relay.writer.encoder.keep_alive() or b"", *(piece for one in frames[5:] for piece in relay.feed(one))]
    assert events(b"".join(out))[5].data["type"] == "keepalive"
    assert responses.read(b"".join(out)).calls == [("a", {})]


def test_repeated_end_and_later_frames_are_accepted() -> None:
    """An empty frame of HTTP/2 looks like the end of the body."""
    relay = Relay(API.decoder(), API.encoder(), Toy)
    frames = [Frame(one, one.partition(b"data: ")[2].strip()) for one in make_stream(text_events("Hi", " you[x]"))]
    out = [piece for one in frames[:5] for piece in relay.feed(one)]
    assert relay.finish() == relay.finish() == []
    out += [piece for one in frames[5:] for piece in relay.feed(one)]
    assert responses.read(b"".join(out)).content == "Hi you[x]"


@pytest.mark.parametrize("end", [[], [b"data: [DONE]\n\n"]])
def test_a_reply_with_a_lifted_call_has_an_end_even_if_upstream_has_none(end: list[bytes]) -> None:
    found = read(*make_stream(text_events("Hi[a]"))[:-1], *end)
    assert (found.calls, found.status) == ([("a", {})], "completed")


@pytest.mark.parametrize("after", range(12))
@pytest.mark.parametrize(
    "items",
    [
        [text_events("Hi", " you"), CALL],
        [reasoning_events("hm", "so"), text_events("Hi")],
        [custom_call_events("patch", "raw\n", '"x"'), text_events("Hi")],
    ],
    ids=["call", "reasoning", "custom"],
)
def test_keep_alive_is_accepted_anywhere(items: list[list[Json]], after: int) -> None:
    """Each event after it has another number, and is sent once."""
    relay = Relay(API.decoder(), API.encoder(), Toy)
    frames = [Frame(one, one.partition(b"data: ")[2].strip()) for one in make_stream(*items)]
    out = [piece for one in frames[:after] for piece in relay.feed(one)]
    out += [relay.writer.encoder.keep_alive() or b"", *(piece for one in frames[after:] for piece in relay.feed(one))]
    found = responses.read(b"".join(out))
    assert found == responses.read(b"".join(make_stream(*items)))
    types = [event.data["type"] for event in events(b"".join(out)) if event.data["type"] != "keepalive"]
    assert types == [event["type"] for event in all_events(*items)]


def exchange(settings: dict[str, Any] | None = None, **fields: Any) -> Session:
    body = json.dumps(responses.request(stream=True, **fields)).encode()
    facts = Facts(user_agent="codex", host="127.0.0.1", path=responses.PATH)
    return Session.open(API, body, facts, Planner(PROFILES, Settings(**settings or {})), "seed")


def with_calls_as_text(body: bytes) -> bytes:
    """Return a recorded stream whose calls are moved, as text, to the end of the message before them."""
    data = [event.data for event in events(body)]
    calls = [e["item"] for e in data if e["type"].endswith("item.done") and e["item"]["type"] == "function_call"]
    text = "".join("\n" + chat.DIALECTS["hermes"](one["name"], json.loads(one["arguments"])) for one in calls)
    indices = {e["output_index"] for e in data if e.get("item", {}).get("type") == "function_call"}
    remaining = [e for e in data if e.get("output_index") not in indices]
    first = next(place for place, e in enumerate(remaining) if e["type"] == "response.output_text.done")
    item_text = remaining[first]["text"]
    raw = json.dumps(
        [*remaining[:first], *({**remaining[first - 1], "delta": piece} for piece in pieces(text)), *remaining[first:]]
    )
    spelled = json.dumps(item_text)[1:-1]
    after: list[Json] = json.loads(raw.replace(f'"text": "{spelled}"', f'"text": "{spelled}{json.dumps(text)[1:-1]}"'))
    output = [item for item in after[-1]["response"]["output"] if item["type"] != "function_call"]
    after[-1]["response"]["output"] = output
    return b"".join(number_events(after))


def pieces(text: str, size: int = 5) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


@pytest.mark.parametrize("name", ["responses/openai.sse", "responses/lm-studio.sse"])
async def test_recorded_calls_as_text_add_up_to_the_recording(name: str) -> None:
    one = exchange()
    out = feed_stream(one.stream(), with_calls_as_text(RECORDED[name]))
    assert one.report.failures == []
    wanted = await sdks.read_responses([RECORDED[name]])
    assert await sdks.read_responses([out]) == wanted == responses.read(out)
    assert len(one.report.calls) == len(wanted.calls) > 0


async def test_a_recorded_leak_is_lifted() -> None:
    one = exchange()
    out = feed_stream(one.stream(), RECORDED["responses/vllm-leak.sse"])
    found = await sdks.read_responses([out])
    assert found == responses.read(out)
    assert found.calls == [("read", {"filePath": "a.txt"})]


TEXT = "Let me look. It is a long text, so that some frames are not read.\n" * 3
LONG = b"".join(
    make_stream(reasoning_events(*pieces("Thinking it over and over.")), text_events(*pieces(TEXT + "<read>é</read>")))
)
LIFTED = b"".join(
    make_stream(text_events(*pieces(TEXT + chat.DIALECTS["hermes"]("read", {"filePath": "/é"}) + "\nDone.")))
)


@pytest.mark.parametrize("body", [LONG, LIFTED])
@given(cuts=st.lists(st.integers(0, 20_000), max_size=5))
def test_no_cut_matters(body: bytes, cuts: list[int]) -> None:
    whole = feed_stream(exchange().stream(), body)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert feed_stream(exchange().stream(), *(body[a:b] for a, b in pairwise(places) if a < b)) == whole
    assert feed_stream(exchange().stream(), *FRAMES(body)) == whole
    responses.read(whole)


def FRAMES(body: bytes) -> list[bytes]:
    return [one.raw for one in EventReader().feed(body)]


def test_text_forwarded_unread_is_in_the_events_that_repeat_it() -> None:
    """The fast path forwards most frames of this reply, and the encoder must repeat their text."""
    one = exchange()
    stream = one.stream()
    out = [piece for part in FRAMES(LIFTED) for piece in stream.feed(part)]
    body = b"".join([*out, *stream.finish()])
    found = responses.read(body)
    assert found.items[0]["content"][0]["text"] == TEXT.rstrip()
    assert (found.calls, found.items[2]["content"][0]["text"]) == ([("read", {"filePath": "/é"})], "\nDone.")
    assert sum(part in LIFTED for part in out) > 30


def test_long_text_forwarded_unread_is_stored_as_text() -> None:
    body = b"".join(make_stream(text_events(*pieces("word " * 3000), "\n[x]" + chat.DIALECTS["hermes"]("read", {}))))
    stream = exchange().stream()
    out = b"".join([piece for part in FRAMES(body) for piece in stream.feed(part)] + stream.finish())
    assert responses.read(out).content == "word " * 3000 + "\n[x]"


def test_a_keep_alive_stops_the_fast_path() -> None:
    """The frames after it have other numbers."""
    stream = exchange().stream()
    parts = FRAMES(LIFTED)
    out = [piece for part in parts[:30] for piece in stream.feed(part)]
    out += [stream.keep_alive() or b"", *(piece for part in parts[30:] for piece in stream.feed(part))]
    assert responses.read(b"".join([*out, *stream.finish()])).calls == [("read", {"filePath": "/é"})]


def test_an_error_of_the_server_ends_the_reply() -> None:
    out = run(*number_events([*all_events(text_events("Hi[a"))[:5], error()]))
    with pytest.raises(StreamError):
        responses.read(out)
    assert b"[a" in out


class Broken(Encoder):
    """An encoder that fails at a call of `b`."""

    def write(self, events: Any, choice: int) -> Any:
        if any(isinstance(one, Call) and one.call.name == "b" for one in events):
            raise RuntimeError("planted")
        return super().write(events, choice)


def test_frames_after_a_failure_keep_the_numbers_that_the_client_needs() -> None:
    """An earlier text tool call was converted, so all later numbers have moved."""
    report = Report()
    pipeline: Any = Toy
    own: Any = None  # not called
    stream = Stream(Relay(API.decoder(), Broken(), pipeline), report, Fate(strict=False, bridged=False, own=own))
    frames = make_stream(text_events("Hi", "[a]", "more", "[b]", "end"), CALL, text_events("Bye", id="msg_2"))
    found = responses.read(b"".join([*(out for one in frames for out in stream.feed(one)), *stream.finish()]))
    assert report.failures == ["RuntimeError: planted"]
    assert summarize_items(found) == ["Hi", ("a", "function_call"), "more[b]end", ("read", "function_call"), "Bye"]
