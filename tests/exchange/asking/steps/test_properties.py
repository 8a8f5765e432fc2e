"""Properties of every step, over random conversations."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, settings
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis import chat
from tests.exchange.asking.applied_steps import ALL, BY_NAME, WireNames
from tests.exchanges import AGENT, planner
from vtc.events import CanonicalRequest, Message
from vtc.exchange import Session
from vtc.exchange.asking.steps import REQUEST_STEPS, StepContext, apply_steps
from vtc.profiles import Memory

type Json = dict[str, Any]

OTHERS = {
    "system": "user",
    "ids": "short",
    "something": True,
    "schemas": "grammar",
    "strict": True,
    "empty": "parts",
    "nulls": "wanted",
}
"""Other values of steps that are in `ALL`, and one that a server of plain schemas would reject."""
WITH_OTHERS = pytest.mark.parametrize("steps", [ALL, {**ALL, **OTHERS}], ids=["all", "others"])
FEW = settings(max_examples=30)
"""Fewer examples, for tests of each step."""

WORD = st.text("abc é\n", min_size=1, max_size=6).map(lambda one: f"<{one}>")
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CONTENT = WORD | st.lists(WORD.map(lambda one: {"type": "text", "text": one}) | st.just(IMAGE), max_size=3)
ID = st.sampled_from(["a", "b", "123456789", "toolu_" + "x" * 60])
NAME = st.sampled_from(["read", "a.b", "y" * 70])
SCHEMA = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "integer", ["string", "null"]]),
            "pattern": st.just("x"),
            "maxLength": st.integers(0, 9999),
            "description": WORD,
            "enum": st.just(["a"]),
            "const": st.just(1),
            "$ref": st.sampled_from(["#/$defs/one", "#/nowhere", "https://example.com"]),
        },
    ),
    lambda inner: (
        st.fixed_dictionaries({"anyOf": st.lists(inner | st.just({"type": "null"}), min_size=1, max_size=3)})
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.dictionaries(st.sampled_from("pq"), inner).map(lambda one: {"type": "object", "properties": one})
    ),
    max_leaves=5,
)
_DEFS = {"one": {"type": "string", "minLength": 1}, "two": {"$ref": "#/$defs/two"}}


NO_OBJECTS: Json = {
    "messages": [],
    "tools": [
        {"type": "function", "function": {"name": f"read{number}", "parameters": parameters}}
        for number, parameters in enumerate(
            [{"type": ["string", "null"]}, {"$ref": "#/$defs/one", "maxLength": 0, "$defs": _DEFS}, {"enum": ["a"]}]
        )
    ],
    "tool_choice": "auto",
    "max_tokens": 100,
}
"""Tools whose arguments are no objects."""


@st.composite
def requests(draw: st.DrawFn) -> Json:
    messages: list[Json] = []
    for _ in range(draw(st.integers(0, 6))):
        role = draw(st.sampled_from(["user", "user", "assistant", "tool", "system", "developer"]))
        entry: Json = {"role": role, "content": draw(CONTENT)}
        if role == "tool":
            entry |= {"tool_call_id": draw(ID), "content": draw(WORD | st.sampled_from(["", " "]))}
        if role == "assistant":
            entry["content"] = draw(st.just("") | WORD)
            calls = draw(st.lists(st.tuples(ID, NAME), max_size=2, unique_by=lambda one: one[0]))
            made = [{"id": id_, "type": "function", "function": {"name": of, "arguments": "{}"}} for id_, of in calls]
            entry |= {"tool_calls": made} if made else {}
            entry["content"] = None if made and draw(st.booleans()) else entry["content"]
        messages.append(entry)
    names = draw(st.lists(NAME, unique=True, max_size=3))
    tools = [{"name": one, "parameters": {**draw(SCHEMA), "$defs": _DEFS}} for one in names]
    choices = st.sampled_from(["auto", "none", "required", *({"function": {"name": one}} for one in names)])
    return {
        "messages": messages,
        "tools": [{"type": "function", "function": one} for one in tools],
        "tool_choice": draw(choices) if names else "auto",
        "max_tokens": draw(st.sampled_from([100, 64000])),
    }


def read(fields: Json) -> tuple[CanonicalRequest, StepContext]:
    request = BY_NAME["openai-chat"].request(chat.encode_json(chat.request(**fields)))
    asked = CanonicalRequest(
        model="m",
        messages=tuple(request.messages),
        tools=tuple(request.offer.tools),
        choice=request.offer.choice,
        limits={"max_tokens": fields["max_tokens"]},
    )
    return asked, StepContext(request, BY_NAME["openai-chat"], WireNames(request.offer.declared))


def anew(given: StepContext, asked: CanonicalRequest) -> StepContext:
    """Return the input of a second VTC behind the first."""
    return given._replace(names=WireNames(tool.name for tool in asked.tools))


def test_every_step_is_among_those_that_are_tried() -> None:
    assert REQUEST_STEPS.keys() == ALL.keys() | OTHERS.keys()


@pytest.mark.parametrize(("name", "value"), [*ALL.items(), *OTHERS.items()])
@FEW
@over(fields=requests())
def test_a_step_done_twice_is_a_step_done_once(name: str, value: Any, fields: Json) -> None:
    asked, given = read(fields)
    once, reports = REQUEST_STEPS[name](asked, value, given)
    assert bool(reports) == (once is not asked)
    twice, reports = REQUEST_STEPS[name](once, value, anew(given, once))
    assert twice is once
    assert not reports


@WITH_OTHERS
@over(fields=requests())
@example(fields=NO_OBJECTS)
def test_all_steps_done_twice_are_done_once(steps: Json, fields: Json) -> None:
    asked, given = read(fields)
    once, _ = apply_steps(asked, steps, given)
    twice, reports = apply_steps(once, steps, anew(given, once))
    assert twice.messages == once.messages
    assert (twice.tools, twice.limits, twice.choice, reports) == (once.tools, once.limits, once.choice, {})


@over(fields=requests(), names=st.sets(st.sampled_from([*REQUEST_STEPS])), other=st.booleans())
def test_some_steps_done_twice_are_done_once(fields: Json, names: set[str], other: bool) -> None:
    """Calls are taken apart if their results follow them; no server takes strict tools and only plain words."""
    values = {**ALL, **OTHERS} if other else {**OTHERS, **ALL}
    names |= {"results"} if "single" in names else set()
    steps = {name: values[name] for name in names} | ({"schemas": "object"} if "strict" in names else {})
    asked, given = read(fields)
    once, _ = apply_steps(asked, steps, given)
    twice, _ = apply_steps(once, steps, anew(given, once))
    assert [*map(summarize_message, twice.messages)] == [*map(summarize_message, once.messages)]
    assert (twice.tools, twice.limits, twice.choice) == (once.tools, once.limits, once.choice)


def summarize_message(message: Message) -> tuple[Any, ...]:
    """Return a message's content, with an empty text and none equal."""
    return message.role, [part for part in message.content if part], message.calls, message.call_id, message.name


EMPTY_ORPHAN: list[Json] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "ok"},
    {"role": "tool", "tool_call_id": "zz", "content": ""},
    {"role": "assistant", "content": "done"},
    {"role": "user", "content": "go"},
]


BLANK_ORPHAN: Json = {
    "messages": [{"role": "tool", "tool_call_id": "a", "content": " "}],
    "tools": [],
    "tool_choice": "auto",
    "max_tokens": 100,
}


@pytest.mark.parametrize("server", sorted(BY_NAME.keys() - {"openai-chat"}))
def test_an_empty_result_of_no_call_parts_no_turn(server: str) -> None:
    body = chat.encode_json(chat.request(messages=EMPTY_ORPHAN))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(upstream_api=(server,)), "seed")
    sent = json.loads(exchange.encode_request())
    roles = [entry["role"] for entry in sent.get("messages") or sent.get("contents") or sent["input"]]
    assert roles[-3:] in (["user", "assistant", "user"], ["user", "model", "user"])


UNRELATED = [
    *combinations(["developer", "names", "schemas", "context", "text"], 2),
    *((one, other) for one in ("alternate", "ids") for other in ("names", "schemas", "max_tokens")),
    ("results", "schemas"),
]


@pytest.mark.parametrize(("one", "other"), UNRELATED)
@FEW
@over(fields=requests())
def test_two_steps_that_have_nothing_in_common_may_be_in_any_order(one: str, other: str, fields: Json) -> None:
    asked, given = read(fields)

    def after(*names: str) -> CanonicalRequest:
        found = asked
        for name in names:
            found, _ = REQUEST_STEPS[name](found, ALL[name], given)
        return found

    assert after(one, other) == after(other, one)


@over(fields=requests(), steps=st.sets(st.sampled_from([*REQUEST_STEPS])), other=st.booleans())
@example(fields=BLANK_ORPHAN, steps={"results"}, other=False)
def test_no_content_is_lost(fields: Json, steps: set[str], other: bool) -> None:
    """An image is replaced by a note; a blank result without a call is dropped, because it has no content."""
    body = chat.encode_json(chat.request(**fields))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed")
    values = {**ALL, **OTHERS} if other else ALL
    exchange._encoder._steps.update({name: values[name] for name in steps & values.keys()})
    sent = json.loads(exchange.encode_request())
    for entry in fields["messages"]:
        parts = [entry["content"]] if isinstance(entry["content"], str) else entry["content"] or ()
        for part in parts:
            text = part if isinstance(part, str) else part.get("text", "image")
            assert not text.strip() or json.dumps(text)[1:-1] in json.dumps(sent["messages"])
    if not steps:
        assert exchange.encode_request() == body or fields["tools"] == []


@over(kinds=st.lists(st.sampled_from(["asks", "calls", "calls and is told"]), min_size=2, max_size=6))
def test_once_tools_stand_in_the_prompt_a_turn_begins_the_next_one(kinds: list[str]) -> None:
    """Except for the turn in which the server rejected them."""
    history: list[Json] = [{"role": "user", "content": "Go."}]
    memory, before = Memory(), list[Json]()
    error = b'{"error": {"message": "registry.ollama.ai/library/m does not support tools"}}'
    for number, kind in enumerate(kinds):
        history = [*history, *turn(number, kind)]
        body = chat.encode_json(chat.request(messages=history))
        exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed", memory)
        sent = exchange.encode_request()
        if not number:
            sent = exchange.encode_after_rejection(error, 400) or b""
            exchange.confirm_quirks()
        fields = json.loads(sent)
        assert "tools" not in fields
        messages = fields["messages"]
        assert messages[: max(0, len(before) - 1)] == before[:-1]
        before = messages


def turn(number: int, kind: str) -> list[Json]:
    """Generate the messages of one turn of an agent; the last one is not the model's."""
    call = {"id": "same", "type": "function", "function": {"name": "a.b", "arguments": "{}"}}
    calls = [{**call, "id": f"functions.read:{number}"}, call]
    found = [{"role": "tool", "tool_call_id": one["id"], "content": f"found {number}"} for one in calls]
    called = {"role": "assistant", "content": f"so {number}", "tool_calls": calls}
    note = {"role": "system", "content": f"note {number}"}
    message = {"role": "user", "content": [{"type": "text", "text": f"do {number}"}, IMAGE]}
    return {
        "asks": [{"role": "assistant", "content": f"done {number}"}, message],
        "calls": [called, *found],
        "calls and is told": [called, *found, note],
        "is interrupted": [called, *found, message],
        "says nothing": [{"role": "assistant", "content": ""}, message, note],
        "results late": [called, message, *found],
    }[kind]


KINDS = ["asks", "calls", "calls and is told", "is interrupted", "says nothing", "results late"]


@WITH_OTHERS
@over(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=10))
def test_with_every_step_a_turn_begins_the_next_one(steps: Json, kinds: list[str]) -> None:
    messages: list[Json] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Go."}]
    before: list[Json] = []
    for number, kind in enumerate(kinds):
        messages = [*messages, *turn(number, kind)]
        exchange = Session.open(
            BY_NAME["openai-chat"], chat.encode_json(chat.request(messages=messages)), AGENT, planner(), "seed"
        )
        exchange._encoder._steps.update(steps)
        sent = json.loads(exchange.encode_request())["messages"]
        assert sent[: max(0, len(before) - 1)] == before[:-1]
        before = sent
