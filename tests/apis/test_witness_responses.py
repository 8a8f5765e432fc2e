"""The test parser of Responses agrees with OpenAI's SDK, and fails if some client fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import responses, sdks
from tests.apis.named_events import Json, StreamError, frame
from tests.apis.responses import (
    all_events,
    call,
    call_events,
    custom_call,
    custom_call_events,
    error,
    make_cut_reply,
    make_input_message,
    make_stream,
    message,
    number_events,
    open_reasoning,
    open_reasoning_events,
    output,
    reasoning,
    reasoning_events,
    request,
    response,
    text_events,
)

ARGUMENTS = '{"filePath": "a.txt"}'
HI = text_events("H", "i")
CALL = call_events("read", ARGUMENTS[:9], ARGUMENTS[9:])
ALL_KINDS = [
    reasoning_events("I will ", "look."),
    text_events("Looking"),
    CALL,
    call_events("find", "{}", id="fc_2", call_id="call_2", namespace="files"),
    custom_call_events("apply_patch", "*** Begin", " Patch", call_id="call_3"),
    text_events("Wait", id="msg_2"),
]


def but(events: list[Json], *leave_out: str, **change: Any) -> list[Json]:
    """Return the events except those whose type has the suffix; `change` updates events that have the field."""
    remaining = [event for event in events if not event["type"].endswith(leave_out or ("-",))]
    return [{**event, **{key: value for key, value in change.items() if key in event}} for event in remaining]


def with_parts(done: Json, *texts: str) -> Json:
    """Return the last event of a message with multiple parts."""
    return {**done, "item": {**done["item"], "content": [message(text)["content"][0] for text in texts]}}


def frame_without_numbers(events: list[Json]) -> list[bytes]:
    return [frame(event) for event in events]


def frame_without_names(events: list[Json]) -> list[bytes]:
    return [frame(event).partition(b"\n")[2] for event in events]


GOOD = {
    "text": make_stream(HI),
    "call": make_stream(CALL),
    "all-kinds": make_stream(*ALL_KINDS),
    "open-reasoning": make_stream(open_reasoning_events("Hm", "m"), HI),
    "call-without-deltas": number_events(but(all_events(CALL), "arguments.delta")),
    "call-at-once": number_events(but(all_events(CALL), "arguments.delta", "arguments.done")),
    "no-numbers": frame_without_numbers(all_events(HI, CALL)),
    "no-event-lines": frame_without_names(all_events(HI, CALL)),
    "nothing-said": make_stream(),
    "unknown-events": number_events([*all_events(HI)[:2], {"type": "keepalive"}, *all_events(HI)[2:]]),
    "comments": [b": a comment\n\n", *make_stream(HI), b": more\n\n"],
    "done-marker": [*make_stream(HI), b"data: [DONE]\n\n"],
    "two-parts": make_stream([*HI[:-1], *but(HI[1:-1], content_index=1), with_parts(HI[-1], "Hi", "Hi")]),
}


@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
async def test_a_good_stream_is_read_as_the_sdk_reads_it(pieces: list[bytes]) -> None:
    assert responses.read(b"".join(pieces)) == await sdks.read_responses(pieces)


WHOLE = response(
    reasoning("Hm"), message("Hi"), call("read", filePath="a"), custom_call("patch", "x", call_id="call_2")
)


@pytest.mark.parametrize("whole", [WHOLE, make_cut_reply(message("H"))], ids=["completed", "incomplete"])
async def test_a_whole_reply_is_read_as_the_sdk_reads_it(whole: Json) -> None:
    body = json.dumps(whole).encode()
    assert responses.read(body) == await sdks.read_responses([body], stream=False)


def test_stream_and_whole_reply_of_equal_content_are_equal() -> None:
    whole = response(open_reasoning("Hm"), message("Hi"), call("read", filePath="a.txt"))
    other_ids = call_events("read", ARGUMENTS, id="fc_9", call_id="call_9")
    pieces = make_stream(open_reasoning_events("Hm"), HI, other_ids)
    assert responses.read(json.dumps(whole).encode()) == responses.read(b"".join(pieces))


def test_parsed_reply_lists_its_parts() -> None:
    found = responses.read(b"".join(GOOD["all-kinds"]))
    assert (found.content, found.reasoning, found.status) == ("LookingWait", "I will look.", "completed")
    assert found.calls == [("read", {"filePath": "a.txt"}), ("find", {})]
    assert found.namespaces == [None, "files"]
    assert found.custom_calls == [("apply_patch", "*** Begin Patch")]
    assert found.ids == ["call_1", "call_2", "call_3"]
    assert found.kinds == [item[0]["item"]["type"] for item in ALL_KINDS]


def test_truncated_reply_has_its_reason() -> None:
    found = responses.read(b"".join(make_stream(HI, status="incomplete")))
    assert (found.content, found.status, found.reason) == ("Hi", "incomplete", "max_output_tokens")


TEXT = all_events(HI)
CREATED, BEGUN, END = TEXT[0], TEXT[1], TEXT[-1]


def change_event(event: Json, **fields: Any) -> Json:
    """Return the event with other fields in its response or item."""
    key = "item" if "item" in event else "response"
    inner = {**event[key], **fields}
    return {**event, key: {name: value for name, value in inner.items() if value is not Ellipsis}}


def with_last(item: list[Json], **fields: Any) -> list[Json]:
    """Return the events of an item whose last event differs."""
    return [*item[:-1], change_event(item[-1], **fields)]


BAD = {
    "another-event-line": [frame(TEXT[0], "response.in_progress"), *frame_without_numbers(TEXT[1:])],
    "no-created": number_events(TEXT[1:]),
    "created-without-id": number_events([change_event(CREATED, id=...), *TEXT[1:]]),
    "created-without-created-at": number_events([change_event(CREATED, created_at=...), *TEXT[1:]]),
    "created-without-model": number_events([change_event(CREATED, model=...), *TEXT[1:]]),
    "two-created": number_events([CREATED, *TEXT]),
    "keepalive-ahead-of-created": number_events([{"type": "keepalive"}, *TEXT]),
    "id-of-the-response-changes": number_events([*TEXT[:-1], change_event(END, id="resp_2")]),
    "no-output-index": number_events([{k: v for k, v in event.items() if k != "output_index"} for event in TEXT]),
    "output-index-gap": number_events(
        [CREATED, *but(TEXT[2:-1], output_index=0), *({**e, "output_index": 2} for e in CALL), END]
    ),
    "output-index-twice": number_events(but(all_events(HI, CALL), output_index=0)),
    "delta-ahead-of-added": number_events(but(TEXT, "item.added")),
    "no-content-part": number_events(but(TEXT, "part.added")),
    "content-index-begins-at-1": number_events(but(TEXT, content_index=1)),
    "item-id-changes-in-a-delta": number_events(but(TEXT, item_id="msg_2")),
    "item-id-changes-at-the-end": number_events(all_events(with_last(HI, id="msg_2"))),
    "call-id-changes": number_events(all_events(with_last(CALL, call_id="call_2"))),
    "name-changes": number_events(all_events(with_last(CALL, name="write"))),
    "type-changes": number_events(all_events(with_last(HI, type="reasoning", summary=[]))),
    "ids-in-the-end-differ": number_events([*TEXT[:-1], change_event(END, output=[message("Hi", "msg_2")])]),
    "item-is-never-done": number_events([*but(TEXT[:-1], "item.done"), change_event(END, output=[])]),
    "item-is-missing-at-the-end": number_events([*TEXT[:-1], change_event(END, output=[])]),
    "text-at-the-end-differs": number_events([*TEXT[:-1], change_event(END, output=[message("Ho")])]),
    "items-at-the-end-in-another-order": number_events(
        [*all_events(HI, CALL)[:-1], change_event(END, output=[CALL[-1]["item"], HI[-1]["item"]])]
    ),
    "item-without-id": number_events(all_events([change_event(e, id=...) if "item" in e else e for e in CALL])),
    "call-done-without-status": number_events(all_events(with_last(CALL, status=...))),
    "call-without-arguments": number_events(all_events([change_event(CALL[0], arguments=...), *CALL[1:]])),
    "call-without-call-id": number_events(
        all_events([change_event(e, call_id=...) if "item" in e else e for e in CALL])
    ),
    "message-without-role": number_events(all_events([change_event(HI[0], role=...), *HI[1:]])),
    "message-without-content": number_events(all_events([change_event(HI[0], content=...), *HI[1:]])),
    "reasoning-without-summary": number_events(
        all_events([change_event(e, summary=...) if "item" in e else e for e in open_reasoning_events("Hm")])
    ),
    "no-terminal-event": number_events(TEXT[:-1]),
    "usage-is-no-number": number_events([*TEXT[:-1], change_event(END, usage={"input_tokens": 1.5})]),
    "numbers-begin-at-1": number_events([{"type": "x"}, *TEXT])[1:],
    "a-number-is-missing": [*number_events(TEXT)[:3], *number_events(TEXT)[4:]],
    "some-events-have-no-number": [*number_events(TEXT)[:-1], frame(END)],
    "text-done-differs": number_events([{**e, "text": "Ho"} if "text" in e else e for e in TEXT]),
    "part-done-differs": number_events(all_events([*HI[:-2], {**HI[-2], "part": message("Ho")["content"][0]}, HI[-1]])),
    "item-done-differs": number_events(all_events(with_last(HI, content=message("Ho")["content"]))),
    "part-is-never-closed": number_events(but(TEXT, "part.done")),
    "arguments-done-differ": number_events(all_events(but(CALL, arguments="{}"))),
    "item-arguments-differ": number_events(all_events(with_last(CALL, arguments="{}"))),
    "arguments-twice": number_events(all_events([change_event(CALL[0], arguments=ARGUMENTS), *CALL[1:]])),
    "broken-arguments": make_stream(call_events("read", ARGUMENTS[:-1])),
    "arguments-are-a-list": make_stream(call_events("read", "[1]")),
    "delta-of-another-kind": number_events(all_events([*HI[:-1], *but(CALL[1:2], item_id="msg_1"), HI[-1]])),
    "two-items-open": number_events([CREATED, *but(TEXT[2:4]), *({**e, "output_index": 1} for e in CALL), *TEXT[4:]]),
    "two-items-of-one-id": make_stream(HI, HI),
    "two-calls-of-one-id": make_stream(CALL, call_events("read", ARGUMENTS, id="fc_2")),
    "something-after-the-end": number_events([*TEXT, {"type": "keepalive"}]),
    "done-marker-in-the-middle": [*make_stream(HI)[:-1], b"data: [DONE]\n\n", make_stream(HI)[-1]],
    "completed-says-incomplete": number_events([*TEXT[:-1], change_event(END, status="incomplete")]),
    "incomplete-without-a-reason": number_events(
        [*TEXT[:-1], {**change_event(END, status="incomplete"), "type": "response.incomplete"}]
    ),
    "cut-in-a-frame": [*make_stream(HI)[:-1], make_stream(HI)[-1][:-9]],
}


@pytest.mark.parametrize("pieces", BAD.values(), ids=BAD)
def test_a_stream_that_some_client_fails_at_is_refused(pieces: list[bytes]) -> None:
    with pytest.raises((AssertionError, KeyError, ValueError)) as raised:
        responses.read(b"".join(pieces))
    assert not isinstance(raised.value, StreamError)


FAILED = {"type": "response.failed", "response": response(status="failed", error={"code": "x", "message": "No."})}


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(response(status="failed", error={"code": "x", "message": "No."})).encode(),
        b"".join(number_events([*TEXT[:4], error()])),
        b"".join(number_events([error()])),
        b"".join(number_events([*TEXT[:2], FAILED])),
    ],
    ids=["whole", "in-an-item", "at-the-start", "failed"],
)
def test_an_error_of_the_server_is_raised_as_such(body: bytes) -> None:
    with pytest.raises(StreamError):
        responses.read(body)


def test_a_failure_without_a_number_is_refused() -> None:
    with pytest.raises(KeyError):
        responses.read(b"".join(frame_without_numbers([*TEXT[:2], FAILED])))


HISTORY = [make_input_message("user", "Read a"), message("Yes"), call("read", filePath="a")]
GOOD_HISTORIES: Json = {
    "string": "Hi",
    "message-without-type": [{"role": "user", "content": "Hi"}],
    "result": [*HISTORY, output("A")],
    "custom": [make_input_message("user", "Patch"), custom_call("patch", "x"), output("Done", custom=True)],
    "two-calls": [*HISTORY, call("read", "fc_2", "call_2"), output("B", "call_2"), output("A")],
}
BAD_HISTORIES: Json = {
    "no-output": HISTORY,
    "output-of-no-call": [make_input_message("user", "Hi"), output("A")],
    "two-outputs": [*HISTORY, output("A"), output("A")],
    "output-of-another-kind": [*HISTORY, output("A", custom=True)],
    "two-calls-of-one-id": [*HISTORY, call("read", "fc_2"), output("A")],
    "arguments-are-an-object": [{**call("read"), "arguments": {}}, output("A")],
    "empty-message": [{"role": "user", "content": []}],
}


@pytest.mark.parametrize("history", GOOD_HISTORIES.values(), ids=GOOD_HISTORIES)
def test_a_history_of_pairs_passes(history: Any) -> None:
    responses.check_request(request(input=history))


@pytest.mark.parametrize("history", BAD_HISTORIES.values(), ids=BAD_HISTORIES)
def test_a_history_whose_calls_and_outputs_do_not_match_is_refused(history: Any) -> None:
    with pytest.raises(AssertionError):
        responses.check_request(request(input=history))
