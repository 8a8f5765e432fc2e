"""Requests with values of any type in any place: they are asked, or refused in the words of the client's API."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.shapes import SHAPES, asked
from tests.exchange.ready.steps import BY_NAME
from tests.exchanges import agent, planner
from vtc.apis import BadRequest
from vtc.exchange import Exchange
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


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, part in inside:
        yield (*above, key)
        yield from places(part, (*above, key))


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    *above, last = place
    for key in above:
        value = value[key]
    value[last] = new


@contextmanager
def no_faults() -> Iterator[None]:
    """Fail on what is logged as a fault of ours: then the request would leave as it came."""
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("vtc").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("vtc").removeHandler(handler)
    assert not logged, logged[0]


def check(client: str, server: str, fields: Any, settings: dict[str, Any], refusal: str) -> None:
    """Ask, and be refused; what cannot be asked is told in the client's API."""
    way = {"upstream_api": (server,)} if server != client else {}
    with no_faults():
        try:
            plans = planner(**way, **settings)
            exchange = Exchange.open(BY_NAME[client], chat.encoded(fields), agent(client), plans, "seed", Memory())
        except BadRequest:
            return
        sent, own = exchange.request(), exchange.answer()
        if own is None:
            assert isinstance(json.loads(sent), dict)
            again = exchange.again(chat.encoded({"error": {"message": refusal}}), 400)
            assert again is None or isinstance(json.loads(again), dict)
        else:
            assert isinstance(json.loads(own.body), dict)


@pytest.mark.parametrize("client", SHAPES)
@over(data=st.data())
def test_a_value_of_any_type_in_any_place_is_no_fault(client: str, data: st.DataObject) -> None:
    fields = json.loads(asked(client, **SHAPES[client].history))
    for _ in range(data.draw(st.integers(1, 2))):
        put(fields, data.draw(st.sampled_from([*places(fields)])), json.loads(json.dumps(data.draw(VALUE))))
    server, settings = data.draw(st.sampled_from([*SHAPES])), data.draw(st.sampled_from(SETTINGS))
    check(client, server, fields, settings, data.draw(st.sampled_from(REFUSALS)))


@pytest.mark.parametrize("key", ["role", "name", "id", "call_id", "tool_call_id", "tool_use_id", "type"])
@pytest.mark.parametrize("value", [{}, [], 5, None], ids=str)
@pytest.mark.parametrize("client", SHAPES)
def test_a_name_or_an_id_that_is_no_text_is_no_fault(client: str, value: Any, key: str) -> None:
    whole = asked(client, **SHAPES[client].history)
    for place in [place for place in places(json.loads(whole)) if place[-1] == key]:
        fields = json.loads(whole)
        put(fields, place, value)
        for server in ("openai-chat", "ollama-chat"):
            check(client, server, fields, {"server": "mistral"}, REFUSALS[0])
