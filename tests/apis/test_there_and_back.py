"""A request of one API, rendered for another and decoded there, keeps everything that the other can express."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.apis import chat, conversations, pairs
from tests.apis.shapes import make_request_body as body_of
from tests.apis.turns import turns
from tests.exchange.asking.applied_steps import after, bridge_request
from tests.exchange.asking.applied_steps import make_context as given_request
from tests.exchanges import agent, planner
from vtc.apis import APIS
from vtc.events import Answer, CanonicalRequest, Message, Tool, ToolCall
from vtc.exchange import Session
from vtc.exchange.asking.steps import apply_steps

BY_NAME = {api.name: api for api in APIS}
LIMITS = {
    name: ("max_tokens", "temperature", "top_p", *(() if name == "openai-responses" else ("stop",)))
    for name in pairs.NAMES
}
WORDS = st.text('abc é"\n', min_size=1, max_size=8).map(lambda one: f"x{one}x")
NAME = st.sampled_from(["read", "write", "run"])
ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | WORDS, max_size=3).map(json.dumps)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@st.composite
def talks(draw: st.DrawFn) -> tuple[Message, ...]:
    out = [Message("system", (draw(WORDS),))] if draw(st.booleans()) else []
    count = 0
    for _ in range(draw(st.integers(1, 4))):
        out.append(Message("user", (draw(WORDS),)))
        calls = tuple(
            ToolCall(name, arguments, f"call_{count + at}")
            for at, (name, arguments) in enumerate(draw(st.lists(st.tuples(NAME, ARGUMENTS), max_size=3)))
        )
        count += len(calls)
        content = (draw(WORDS),) if not calls or draw(st.booleans()) else ()
        out.append(Message("assistant", content, calls, reasoning=draw(st.just("") | WORDS)))
        out += [Message("tool", (draw(WORDS),), call_id=call.id, name=call.name) for call in calls]
    return after(*out, Message("user", ("Go on.",)))


@st.composite
def requests(draw: st.DrawFn) -> CanonicalRequest:
    tools = tuple(Tool(name, "What it does.", SCHEMA) for name in draw(st.lists(NAME, unique=True, max_size=3)))
    choices = ["auto", "none", "required", *(tool.name for tool in tools)] if tools else ["auto"]
    limits = st.fixed_dictionaries(
        {"max_tokens": st.integers(1, 999)},
        optional={"temperature": st.floats(0, 1), "top_p": st.floats(0.1, 1), "stop": st.just(["X"])},
    )
    return CanonicalRequest(
        model="m",
        messages=draw(talks()),
        stream=draw(st.booleans()),
        tools=tools,
        choice=draw(st.sampled_from(choices)),
        parallel=draw(st.booleans()) if tools else True,
        limits=draw(limits),
        effort=draw(st.sampled_from([None, "none", "low", "high"])),
        answer=draw(st.sampled_from([None, Answer(SCHEMA, strict=True)])),
    )


def keep_expressible(asked: CanonicalRequest, server: str) -> CanonicalRequest:
    """Return the part of a request that an API can express."""
    limits = {key: one for key, one in asked.limits.items() if key in LIMITS[server]}
    if server in ("anthropic-messages", "openai-responses"):
        asked = replace(asked, messages=tuple(replace(one, reasoning="") for one in asked.messages))
    if server in ("anthropic-messages", "ollama-chat", "gemini-generate") and asked.answer:
        asked = replace(asked, answer=Answer(asked.answer.schema))
    if server in ("ollama-chat", "gemini-generate"):
        asked = replace(asked, parallel=True)
    if server == "anthropic-messages" and asked.choice == "none":
        asked = replace(asked, parallel=True)
    return replace(asked, limits=limits)


@pytest.mark.parametrize("server", pairs.NAMES)
@given(requests())
def test_request_survives_a_round_trip_to_a_server(server: str, asked: CanonicalRequest) -> None:
    if not BY_NAME[server].layout.choice:
        asked, _ = apply_steps(asked, {"choice": True}, given_request())
    body = chat.encode_json(BY_NAME[server].writer.build_request(asked))
    pairs.check_request(server, json.loads(body))
    found = bridge_request(
        server, json.loads(body), path=BY_NAME[server].place.build_path("", asked.model, streams=asked.stream)
    )
    expected = keep_expressible(asked, server)
    same = [replace(one, calls=(*map(_plain, one.calls),)) for one in found.messages]
    assert same == [replace(one, calls=(*map(_plain, one.calls),)) for one in expected.messages]
    # An effort asks for the reasoning in some APIs, and is a budget in one.
    assert replace(found, messages=(), thinking=expected.thinking) == replace(expected, messages=())


def _plain(call: ToolCall) -> ToolCall:
    return ToolCall(call.name, json.dumps(json.loads(call.arguments)), call.id)


@pytest.mark.parametrize(("client", "server"), pairs.CROSSED, ids=lambda name: name)
def test_with_tools_in_the_prompt_a_turn_begins_the_next_one(client: str, server: str) -> None:
    key = conversations.get_history_key(server)
    plan = planner(upstream_api=(server,), tools="prompt", dialect="hermes")
    bodies = [
        json.loads(
            Session.open(BY_NAME[client], body_of(client, **fields), agent(client), plan, f"{turn}").encode_request()
        )
        for turn, fields in enumerate(turns(client))
    ]
    for before, then in pairwise(bodies):
        assert then[key][: len(before[key]) - 1] == before[key][:-1]
        assert {**then, key: 0} == {**before, key: 0}
