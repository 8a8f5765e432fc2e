"""Replies of Responses with other items than text and calls: under a strict policy, and re-encoded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import responses
from tests.apis.named_events import Json, events
from tests.apis.toy import Toy
from vtc.apis import convert_to_stream
from vtc.apis.openai_responses import API, ResponseForm
from vtc.apis.relay import Relay


def strict(*frames: bytes, form: ResponseForm | None = None, **toy: Any) -> bytes:
    relay = Relay(API.decoder(form), API.encoder(form), lambda: Toy(**toy), strict=True)
    reader = relay.decoder.framing.make_reader()
    incoming = [*reader.feed(b"".join(frames)), *reader.finish()]
    return b"".join([*(out for one in incoming for out in relay.feed(one)), *relay.finish()])


def item_events(item: Json, **begun: Any) -> list[Json]:
    return [
        {"type": "response.output_item.added", "item": {**item, **begun}},
        {"type": "response.output_item.done", "item": item},
    ]


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "call_s", "action": {"commands": ["ls"]}, "status": "completed"}
ODD = {"type": "odd_thing", "id": "od_1", "evil": {"name": "bash"}}
CALL = responses.call_events("read", '{"filePath"', ': "a"}')
MARK = "evil"


def add_unknown_fields(events_: list[Json]) -> list[Json]:
    """Make events with an unknown field in each possible place, except in calls."""
    out: list[Json] = []
    for event in events_:
        event = {**event, MARK: {"name": "bash"}}
        for key in ("item", "part", "response"):
            if key in event and not str(event[key].get("type")).endswith("_call"):
                event[key] = {**event[key], MARK: {"name": "bash"}}
        out.append(event)
    return out


def test_under_strict_only_unknown_content_is_removed() -> None:
    items = [
        responses.reasoning_events("hm"),
        responses.open_reasoning_events("so", id="rs_2"),
        responses.text_events("Hi", " you"),
        item_events(SEARCH, status="in_progress"),
        item_events(ODD),
        CALL,
    ]
    whole = responses.all_events(*items)
    out = strict(*responses.number_events(add_unknown_fields(whole)))
    found = responses.read(out)
    assert MARK.encode() not in out
    assert found.kinds == ["reasoning", "reasoning", "message", "web_search_call", "function_call"]
    assert (found.content, found.reasoning, found.calls) == ("Hi you", "hmso", [("read", {"filePath": "a"})])
    fields = {key: one for key, one in events(out)[-1].data["response"].items() if key != "output"}
    wanted = {key: one for key, one in whole[-1]["response"].items() if key != "output"}
    assert {key: fields[key] for key in wanted} == wanted


def test_under_strict_a_whole_reply_is_preserved() -> None:
    sealed = {**responses.reasoning("hm"), "encrypted_content": "gAAA", "status": "completed"}
    others = [responses.open_reasoning("so", "rs_2"), responses.message("Hi"), SEARCH, responses.call("read", a="b")]
    whole = responses.response(sealed, *others, responses.custom_call("patch", "raw\n", call_id="call_2"), SHELL)
    sent = [one.data for one in events(strict(convert_to_stream(API, json.dumps({**whole, MARK: 1}).encode())))]
    assert API.fold(sent) == whole
    sent = [one.data for one in events(strict(convert_to_stream(API, json.dumps(whole).encode()), guarded=True))]
    assert API.fold(sent) == whole


def test_unknown_events_are_dropped_under_strict_policy() -> None:
    text = responses.all_events(responses.text_events("Hi"))
    out = strict(*responses.number_events([*text[:5], {"type": "response.news", "call": {"name": "bash"}}, *text[5:]]))
    assert b"bash" not in out
    assert responses.read(out).content == "Hi"


def test_under_strict_known_streams_keep_their_bytes() -> None:
    frames = responses.make_stream(responses.reasoning_events("hm"), responses.text_events("Hi", " you"))
    assert strict(*frames).startswith(b"".join(frames[:-4]))


@pytest.mark.parametrize("place", ["output_text.done", "content_part.done", "output_item.done", "completed"])
def test_text_that_only_a_repeating_event_contains_is_dropped_under_strict_policy(place: str) -> None:
    out = []
    for event in responses.all_events(responses.text_events("Hi")):
        raw = json.dumps(event)
        out.append(
            json.loads(raw.replace('"text": "Hi"', '"text": "Hi evil"')) if event["type"].endswith(place) else event
        )
    sent = strict(*responses.number_events(out))
    assert (responses.read(sent).content, MARK.encode() in sent) == ("Hi", False)


def test_policies_check_a_call_that_only_the_last_event_contains() -> None:
    """Like an item with its own events, it is sent by such events, or not at all."""
    events_ = responses.all_events(responses.text_events("Hi"))
    events_[-1]["response"]["output"].append(responses.call("evil"))
    found = responses.read(strict(*responses.number_events(events_)))
    assert (found.content, found.calls) == ("Hi", [("evil", {})])
    events_[-1]["response"]["output"][-1]["name"] = "bad"
    refused = responses.read(strict(*responses.number_events(events_), guarded=True))
    own = responses.make_stream(responses.text_events("Hi"), responses.call_events("bad", "{}"))
    assert (refused.content, refused.calls) == ("Hi[bad {} call_1]", [])
    assert refused.content == responses.read(strict(*own, guarded=True)).content


def test_call_hidden_by_another_end_is_dropped_under_strict_policy() -> None:
    """The items that were sent differ from those that the last event repeats."""
    events_ = responses.all_events(responses.text_events("Hi"))
    events_[-1]["response"]["output"].insert(0, responses.call("evil"))
    sent = strict(*responses.number_events(events_))
    found = responses.read(sent)
    assert (found.content, found.calls, b"evil" in sent) == ("Hi", [], False)


def test_a_call_of_a_tool_with_a_kind_of_its_own_passes_byte_for_byte() -> None:
    frames = responses.make_stream(responses.text_events("Hi"), item_events(SHELL, status="in_progress"))
    assert run_same(*frames) == run_same(*frames, guarded=True) == b"".join(frames)


def run_same(*frames: bytes, **toy: Any) -> bytes:
    relay = Relay(API.decoder(), API.encoder(), lambda: Toy(**toy))
    reader = relay.decoder.framing.make_reader()
    incoming = [*reader.feed(b"".join(frames)), *reader.finish()]
    return b"".join([*(out for one in incoming for out in relay.feed(one)), *relay.finish()])


@pytest.mark.parametrize(
    ("item", "name", "arguments"),
    [
        (SHELL, "shell", {"commands": ["ls"]}),
        ({**SHELL, "type": "local_shell_call"}, "local_shell", {"commands": ["ls"]}),
        (
            {"type": "apply_patch_call", "id": "p", "call_id": "c", "operation": {"diff": "x"}},
            "apply_patch",
            {"diff": "x"},
        ),
        ({"type": "computer_call", "id": "p", "call_id": "c", "actions": [1]}, "computer", {"actions": [1]}),
    ],
)
def test_a_call_of_a_tool_with_a_kind_of_its_own_is_judged_by_the_name(item: Json, name: str, arguments: Json) -> None:
    frames = responses.make_stream(item_events(item, status="in_progress"))
    found = responses.read(run_same(*frames, structured=False))
    assert found.content == f"[{name} {json.dumps(arguments)} {item['call_id']}]"
    sent = strict(*frames, guarded=True)
    if name == "bad":
        assert responses.read(sent).kinds == ["message"]
    else:
        assert responses.read(sent).items == [{**item, "status": "completed"}]


SERVERS = [
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "compaction"),
]
"""Kinds of items that the server runs itself."""


@pytest.mark.parametrize("kind", SERVERS)
def test_server_item_that_ends_as_a_call_is_dropped_under_strict_policy(kind: str) -> None:
    begun, done = item_events(SHELL, status="in_progress")
    begun["item"] = {"type": kind, "id": SHELL["id"], "status": "in_progress"}
    out = strict(*responses.number_events(responses.all_events(responses.text_events("Hi"), [begun, done])))
    assert b'"ls"' not in out


def test_a_call_of_a_kind_of_its_own_is_written_again_unchanged() -> None:
    frames = responses.make_stream(responses.text_events("[a]"), item_events(SHELL, status="in_progress"), CALL)
    for guarded in (False, True):
        found = responses.read(run_same(*frames, guarded=guarded))
        assert (found.kinds, found.items[1]) == (["function_call", "shell_call", "function_call"], SHELL)


def test_calls_run_by_the_server_keep_their_events_with_new_numbers() -> None:
    search = item_events(SEARCH, status="in_progress")
    search.insert(1, {"type": "response.web_search_call.searching", "item_id": "ws_1"})
    out = run_same(
        *responses.make_stream(responses.text_events("Hi[a]"), search, responses.text_events("Bye", id="msg_2"))
    )
    found = responses.read(out)
    assert (found.kinds, found.items[2]) == (["message", "function_call", "web_search_call", "message"], SEARCH)
    event_data = next(event.data for event in events(out) if event.data["type"].endswith("searching"))
    assert (event_data["output_index"], event_data["item_id"]) == (2, "ws_1")


def test_unknown_item_keeps_its_place_without_a_strict_policy() -> None:
    out = run_same(*responses.make_stream(responses.text_events("Hi[a]"), item_events(ODD)))
    assert responses.read(out).items[-1] == ODD


def test_encrypted_reasoning_is_preserved_when_all_is_encoded_again() -> None:
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    empty = {"type": "reasoning", "id": "rs_2", "summary": []}
    frames = responses.make_stream(responses.text_events("[a]"), item_events(sealed), item_events(empty))
    assert responses.read(run_same(*frames)).items[1:] == [sealed, empty]


def test_logprobs_are_sent_with_their_text() -> None:
    probs = [{"token": "Hi", "logprob": 0.0}]
    item = responses.text_events("[a]", "Hi")
    item[3]["logprobs"] = probs
    out = run_same(*responses.make_stream(item))
    assert [event.data["logprobs"] for event in events(out) if event.data["type"].endswith("text.delta")] == [probs]


def test_an_event_without_a_type_is_an_error_of_the_server() -> None:
    out = run_same(*responses.make_stream()[:2], b'data: {"error": {"message": "No.", "code": "x"}}\n\n')
    assert out.endswith(b'data: {"error": {"message": "No.", "code": "x"}}\n\n')


def test_an_unknown_kind_of_call_is_sent_unless_a_policy_is_strict() -> None:
    odd = {"type": "odd_call", "id": "p", "call_id": "c", "status": "completed", "x": 1}
    frames = responses.make_stream(responses.text_events("Hello"), item_events(odd, status="in_progress"))
    assert run_same(*frames) == b"".join(frames)
    found = responses.read(strict(*frames))
    assert (found.content, found.kinds) == ("Hello", ["message"])


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_call_encoded_again_keeps_an_undeclared_namespace(kind: str) -> None:
    made = responses.call_events("run", "{}") if kind == "function" else responses.custom_call_events("run", "ls")
    for event in made:
        if item := event.get("item"):
            item["namespace"] = "x"
    items = responses.read(strict(*responses.make_stream(made), guarded=True)).items
    assert [(one["name"], one["namespace"]) for one in items] == [("run", "x")]


def test_approval_request_is_dropped_under_strict_policy() -> None:
    asks = {"type": "mcp_approval_request", "id": "a", "name": MARK, "server_label": "s", "arguments": "{}"}
    frames = responses.make_stream(responses.text_events("Hi"), item_events(asks))
    assert MARK.encode() not in strict(*frames)
    assert responses.read(strict(*frames)).content == "Hi"


def test_arguments_of_an_item_that_is_no_call_are_no_text() -> None:
    events_ = responses.text_events("Hi")
    astray = {"type": "response.function_call_arguments.delta", "item_id": "msg_1", "delta": MARK}
    frames = responses.make_stream([*events_[:3], astray, *events_[3:]])
    assert MARK.encode() not in strict(*frames)
    assert responses.read(strict(*frames)).content == "Hi"
    assert run_same(*frames) == b"".join(frames)
