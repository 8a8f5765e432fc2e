"""Requests and replies with values of any type in any place."""

from __future__ import annotations

import json
from functools import reduce
from operator import getitem
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.crossings import open_bridge
from tests.exchange.damages import frames_of, no_faults, places, put_value
from tests.exchanges import agent, feed_stream, planner
from vtc.apis import RequestError
from vtc.exchange import Session
from vtc.profiles import Memory

VALUE = st.sampled_from(
    [
        *(None, True, 0, -1.5, 1 << 70, "", "x", "\ud83d", [], {}, [None], [[]], ["a", 1], {"a": [1]}),
        *({"type": "text"}, {"type": "text", "text": 5}, {"type": "tool_use"}, {"type": "thinking"}, {"type": 5}),
        *({"functionCall": {}}, {"functionResponse": None}, {"thoughtSignature": 5}, {"function": None}, {"role": []}),
        *(
            {"role": "tool"},
            {"role": "assistant", "tool_calls": [{}]},
            {"type": "reasoning"},
            {"type": "function_call"},
        ),
    ]
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"server": "mistral"},
    {"tools": "prompt", "dialect": "hermes"},
    {"server": "vllm"},
]
REFUSALS = [
    "messages.1.content: Extra inputs are not permitted",
    "Function call is missing a thought_signature in functionCall parts",
    "System message must be at the beginning.",
    "registry.ollama.ai/library/m does not support tools",
]


def check(client: str, server: str, fields: Any, settings: dict[str, Any], refusal: str) -> None:
    """Send a request and a rejection; an impossible request is answered in the client's API."""
    way = {"upstream_api": (server,)} if server != client else {}
    with no_faults():
        try:
            plans = planner(**way, **settings)
            exchange = Session.open(BY_NAME[client], chat.encode_json(fields), agent(client), plans, "seed", Memory())
        except RequestError:
            return
        sent, own = exchange.encode_request(), exchange.answer()
        if own is None:
            assert isinstance(json.loads(sent), dict)
            again = exchange.encode_after_rejection(chat.encode_json({"error": {"message": refusal}}), 400)
            assert again is None or isinstance(json.loads(again), dict)
        else:
            assert isinstance(json.loads(own.body), dict)


@pytest.mark.parametrize("client", SHAPES)
@over(data=st.data())
def test_a_value_of_any_type_in_any_place_is_no_fault(client: str, data: st.DataObject) -> None:
    fields = json.loads(make_request_body(client, **SHAPES[client].history))
    for _ in range(data.draw(st.integers(1, 2))):
        put_value(fields, data.draw(st.sampled_from([*places(fields)])), json.loads(json.dumps(data.draw(VALUE))))
    server, settings = data.draw(st.sampled_from([*SHAPES])), data.draw(st.sampled_from(SETTINGS))
    check(client, server, fields, settings, data.draw(st.sampled_from(REFUSALS)))


@pytest.mark.parametrize("key", ["role", "name", "id", "call_id", "tool_call_id", "tool_use_id", "type"])
@pytest.mark.parametrize("value", [{}, [], 5, None], ids=str)
@pytest.mark.parametrize("client", SHAPES)
def test_a_name_or_an_id_that_is_no_text_is_no_fault(client: str, value: Any, key: str) -> None:
    whole = make_request_body(client, **SHAPES[client].history)
    for place in [place for place in places(json.loads(whole)) if place[-1] == key]:
        fields = json.loads(whole)
        put_value(fields, place, value)
        for server in ("openai-chat", "ollama-chat"):
            check(client, server, fields, {"server": "mistral"}, REFUSALS[0])


def check_reply(client: str, server: str, number: int, place: tuple[Any, ...], value: Any) -> None:
    """Change or remove a value in one frame of a reply; this must cause no error."""
    frames = frames_of(server)
    before, brace, data = frames[number].partition(b"{")
    fields = json.loads(brace + data)
    if value is ... and isinstance(place[-1], str):
        *above, last = place
        del reduce(getitem, above, fields)[last]
    else:
        put_value(fields, place, value if value is not ... else None)
    frames[number] = before + chat.encode_json(fields) + frames[number][len(frames[number].rstrip()) :]
    stream = open_bridge(client, server, stream=True).stream()
    with no_faults():
        for frame in frames:
            stream.feed(frame)
        stream.finish()


@pytest.mark.parametrize("server", SHAPES)
@over(data=st.data())
def test_a_reply_with_a_value_of_any_type_is_written_without_a_fault(server: str, data: st.DataObject) -> None:
    numbered = [(number, frame.partition(b"{")) for number, frame in enumerate(frames_of(server)) if b"{" in frame]
    number, (_, brace, rest) = data.draw(st.sampled_from(numbered))
    place = data.draw(st.sampled_from([*places(json.loads(brace + rest))]))
    value = data.draw(st.one_of(st.just(...), VALUE))
    check_reply(data.draw(st.sampled_from([*SHAPES, server])), server, number, place, value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("response", "id"), ["a"]),
        (("sequence_number",), ["a"]),
        (("sequence_number",), ...),
        (("response", "model"), {}),
    ],
)
def test_start_of_a_responses_reply_may_contain_any_value(place: tuple[Any, ...], value: Any) -> None:
    check_reply("openai-responses", "openai-responses", 0, place, value)


def test_an_item_that_no_event_began_is_written_with_its_end() -> None:
    out = feed_stream(
        open_bridge("openai-responses", "openai-responses", stream=True).stream(), *frames_of("openai-responses")
    )
    events = chat.events(out)
    (search,) = [one for one in events if one["type"].endswith("item.done") and "search" in one["item"]["type"]]
    assert [item["type"] for item in events[-1]["response"]["output"]][search["output_index"]] == "web_search_call"
