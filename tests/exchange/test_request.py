"""What goes upstream; the whole of it is tested through the exchange and end to end."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.apis import chat
from tests.exchanges import opened
from vtc.apis import APIS
from vtc.apis.crossing import WireNames
from vtc.exchange.asking.request import encoded, prepared
from vtc.exchange.asking.steps import StepContext
from vtc.profiles import Facts, Plan, Planner, Settings, builtin_directory, load

(API,) = [api for api in APIS if api.name == "openai-chat"]
PROFILES = load([builtin_directory()])


def sent(remark: str = "", settings: dict[str, Any] | None = None, plan: Plan | None = None, **fields: Any) -> bytes:
    body = chat.encoded(chat.request(stream=True, **fields))
    request = API.request(body)
    plan = plan or Planner(PROFILES, Settings(**settings or {})).plan(Facts(), request)
    messages = prepared(request, request.messages, plan, remark, [])
    return encoded(request, body, plan, messages, {}, StepContext(request, API, WireNames(()))).body


def test_what_need_not_change_is_the_very_bytes() -> None:
    assert sent() == chat.encoded(chat.request(stream=True))


def test_a_remark_stands_behind_what_was_said_last() -> None:
    assert json.loads(sent("(Mind.)"))["messages"] == [{"role": "user", "content": "hello\n\n(Mind.)"}]
    said = [{"role": "assistant", "content": "a"}]
    assert json.loads(sent("(Mind.)", messages=said))["messages"] == [*said, {"role": "user", "content": "(Mind.)"}]


def test_tools_that_are_withheld_are_not_prompted_and_nothing_demands_them() -> None:
    request = API.request(chat.encoded(chat.request(tool_choice="required")))
    plan = Planner(PROFILES, Settings(tools="prompt")).plan(Facts(), request)
    offered = tuple(tool for tool in plan.offered if tool.name == "list_files")
    withheld = frozenset({"write", "read"})
    body = json.loads(sent(plan=msgspec.structs.replace(plan, offered=offered, withheld=withheld)))
    assert "<list_files>" in body["messages"][0]["content"]
    assert "<write>" not in body["messages"][0]["content"]


def test_a_reply_that_is_wanted_whole_is_asked_for_so() -> None:
    body = json.loads(sent(plan=Plan(buffered=True), stream_options={"include_usage": True}))
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
def test_past_call_with_broken_arguments_is_mended_and_told(arguments: str, sent: Any) -> None:
    """Or a server refuses every request of the conversation from then on."""
    function = {"name": "read", "arguments": arguments}
    call = {"id": "c", "type": "function", "function": function, "extra_content": {"signature": "s"}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    one = opened(messages=turns)
    body = json.loads(one.request())
    (entry,) = body["messages"][0]["tool_calls"]
    assert (json.loads(entry["function"]["arguments"]) if sent is not None else entry) == (
        sent if sent is not None else call
    )
    assert entry["extra_content"] == call["extra_content"]
    assert any("broken arguments" in line for line in one.report.request) == (sent is not None)
