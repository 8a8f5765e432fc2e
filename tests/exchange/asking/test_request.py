"""Requests to the server; most of them are tested through the session and end to end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.apis import chat
from tests.exchanges import API, open_session
from vtc.exchange import PlannedExchange, PlannedRequest, Session
from vtc.profiles import Plan, PolicyProfile


def send_plan(plan: Plan, **fields: Any) -> Any:
    body = chat.encode_json(chat.request(stream=True, **fields))
    return json.loads(
        Session(PlannedRequest(API, API.request(body), body, PlannedExchange(plan), "seed")).encode_request()
    )


def test_unchanged_request_keeps_its_bytes() -> None:
    assert open_session().encode_request() == chat.encode_json(chat.request(stream=True))


@pytest.mark.parametrize("last", [{"role": "user", "content": "Go on."}, None])
def test_remark_follows_the_last_message(last: dict[str, str] | None) -> None:
    policy = {"name": "mine", "match": {}, "guards": {"loop": {"malformed_calls": 2, "action": "steer"}}}
    broken = {"role": "assistant", "content": '<tool_call>\n{"name": "read", "arguments": {{{\n</tool_call>'}
    messages = [{"role": "user", "content": "Go."}, broken, broken, *([last] if last else [])]
    plan = open_session(messages=messages).plan
    stack = msgspec.structs.replace(plan.stack, policies=(msgspec.convert(policy, PolicyProfile),))
    *before, remark = send_plan(msgspec.structs.replace(plan, stack=stack), messages=messages)["messages"]
    assert before == messages[:-1] if last else messages
    assert remark["role"] == "user"
    assert remark["content"].startswith("Go on.\n\n(2 replies in a row" if last else "(2 replies in a row")


def test_tools_that_are_withheld_are_not_prompted_and_nothing_demands_them() -> None:
    plan = open_session(settings={"tools": "prompt"}, tool_choice="required").plan
    offered = tuple(tool for tool in plan.offered if tool.name == "list_files")
    body = send_plan(msgspec.structs.replace(plan, offered=offered, withheld=frozenset({"write", "read"})))
    assert "<list_files>" in body["messages"][0]["content"]
    assert "<write>" not in body["messages"][0]["content"]


def test_a_reply_that_is_wanted_whole_is_asked_for_so() -> None:
    body = send_plan(Plan(buffered=True), stream_options={"include_usage": True})
    assert (body["stream"], "stream_options" in body) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"filePath": "a"}', None),
        ("", {}),
        ('{"filePath":"a', {"_raw": '{"filePath":"a'}),
        ('{"filePath": "a",}', {"filePath": "a"}),
        ('"{\\"filePath\\": \\"a\\"}"', {"filePath": "a"}),
        ("[1]", {"_raw": "[1]"}),
    ],
)
def test_past_call_with_malformed_arguments_is_repaired_and_reported(arguments: str, sent: Any) -> None:
    """Otherwise a server would reject every later request of the conversation."""
    function = {"name": "read", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function, "extra_content": {"signature": "s"}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    one = open_session(messages=turns)
    body = json.loads(one.encode_request())
    (entry,) = body["messages"][0]["tool_calls"]
    assert (json.loads(entry["function"]["arguments"]) if sent is not None else entry) == (
        sent if sent is not None else call
    )
    assert entry["extra_content"] == call["extra_content"]
    assert any("broken arguments" in line for line in one.report.request) == (sent is not None)
