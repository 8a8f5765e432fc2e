"""Chat templates that reject a conversation: with the quirks of their errors they accept it."""

from __future__ import annotations

import json

import jinja2
import pytest

from tests.apis import chat
from tests.apis.shapes import make_request_body
from tests.apis.turns import turns
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.asking.conversations import CONVERSATIONS, count_requests
from tests.exchange.asking.servers import send_until_accepted
from tests.exchange.asking.templates import TEMPLATES, Contents, Json, goes_through_parts, template
from tests.exchanges import AGENT, API, planner
from vtc.exchange import Session
from vtc.profiles import Memory


@pytest.mark.parametrize("contents", ["as sent", "fitted"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_each_conversation_is_taken_in_the_end(name: str, contents: Contents) -> None:
    server = template(TEMPLATES[name], contents)
    counts = {of: count_requests(messages, server) for of, messages in CONVERSATIONS.items()}
    assert contents == "fitted" or max(counts.values()) > 1, "this template refuses nothing"


@pytest.mark.parametrize(
    ("name", "conversation", "most"),
    [
        ("system first", "developer", 2),
        ("gemma", "developer", 2),
        ("gemma", "assistant first", 2),
        ("gemma", "two users", 2),
        ("gemma of no system", "plain", 2),
        ("no tools", "two calls at once", 2),
        ("one call", "two calls at once", 2),
        ("contents added", "call and result", 2),
        ("arguments of text", "call and result", 2),
    ],
)
def test_useful_step_is_learned_at_once(name: str, conversation: str, most: int) -> None:
    assert count_requests(CONVERSATIONS[conversation], template(TEMPLATES[name], "as sent")) == most


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{% for part in message.content %}{% endfor %}", True),
        ("{% for part in message['content'] | list %}{% endfor %}", True),
        ("{% set said = message['content'] %}{% for part in said %}{% endfor %}", True),
        ("{% for one in messages %}{{ one.content }}{% endfor %}", False),
    ],
)
def test_a_template_that_goes_through_parts_is_known(source: str, found: bool) -> None:
    assert goes_through_parts(jinja2.Environment(autoescape=True).parse(source)) is found


@pytest.mark.parametrize("client", ["anthropic-messages", "openai-responses", "ollama-chat"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_clients_of_other_apis_are_retried_equally(name: str, client: str) -> None:
    """There are ten turns of an agent: quirks are learned in the first with calls, and then each begins with the one
    before.
    """
    server, memory, before = template(TEMPLATES[name], "as sent"), Memory(), list[Json]()
    for turn, fields in enumerate(turns(client)):
        opened = Session.open(
            BY_NAME[client],
            make_request_body(client, **fields),
            AGENT,
            planner(upstream_api=("openai-chat",)),
            "seed",
            memory,
        )
        sent = send_until_accepted(opened, server)
        messages = sent[-1]["messages"]
        if turn > 1:
            assert len(sent) == 1
            assert messages[: len(before) - 1] == before[:-1]
        before = messages


@pytest.mark.parametrize(
    "model",
    [
        *("MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M3", "openai/gpt-oss-20b", "microsoft/phi-4"),
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
    ],
)
def test_system_messages_that_a_template_omits_become_user_messages(model: str) -> None:
    """The server sends no error from which this could be learned."""
    body = chat.encode_json({"model": model, "messages": CONVERSATIONS["system amid"]})
    sent = json.loads(Session.open(API, body, AGENT, planner(), "seed").encode_request())["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user", "user"]
    assert "<note>" in sent[3]["content"]


def test_tools_that_the_user_wants_as_fields_do_not_go_into_the_prompt() -> None:
    body = chat.encode_json({"model": "m", "messages": CONVERSATIONS["call and result"], "tools": [chat.tool("read")]})
    exchange = Session.open(API, body, AGENT, planner(tools="native"), "seed", Memory())
    assert exchange.encode_request() == body
    assert exchange.encode_after_rejection(b'{"error": "Unexpected role: tool"}', 400) is None


def test_request_planned_again_is_reported_once() -> None:
    body = chat.encode_json({"model": "m", "messages": CONVERSATIONS["an agent's"], "tools": [chat.tool("read")]})
    memory, server = Memory(), template(TEMPLATES["no tools"], "as sent")
    send_until_accepted(Session.open(API, body, AGENT, planner(), "seed", memory), server)
    exchange = Session.open(API, body, AGENT, planner(), "seed", Memory())
    send_until_accepted(exchange, server)
    reports = exchange.report.request
    assert len(reports) == len(set(reports))
    assert "1 tool -> tag prompt" in reports
    assert any(
        "changed since the server rejected a request: " in line and "prompt" in line for line in exchange.plan.why
    )
    assert exchange.report.why == [*exchange.plan.why]
    assert exchange.report.prefix == {}
