"""Errors that name nothing: suspected parts are changed one at a time, and never again for the same error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis.shapes import make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchanges import AGENT, planner
from tests.known import MAX_REQUESTS
from vtc.exchange import Session
from vtc.profiles import Memory

type Json = dict[str, Any]

USER = {"role": "user", "content": "one"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
SEEN = {**RESULT, "content": [{"type": "text", "text": "found"}, IMAGE]}
LISTED = {"role": "user", "content": [{"type": "text", "text": "two"}]}
SCHEMA = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object", "properties": {}}}}
STRICT = {"type": "function", "function": {**TOOL["function"], "strict": True}}
UNION = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
VAGUE = ["Bad Request", "", "Provider returned error", "Invalid request", "The request is malformed.", "请求参数错误"]


def call(content: str | None = None) -> Json:
    made = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return {"role": "assistant", "content": content, "tool_calls": [made]}


DELICATE: dict[str, tuple[Json, str]] = {
    "null content": ({"messages": [USER, call(), RESULT]}, '"content": null'),
    "an orphan result": ({"messages": [USER, RESULT]}, '"role": "tool"'),
    "a list of texts": ({"messages": [LISTED]}, '"content": ['),
    "strict": ({"tools": [STRICT]}, '"strict"'),
    "a union schema": ({"tools": [UNION]}, '"anyOf"'),
    "an image in a result": ({"messages": [USER, call(""), SEEN]}, "image_url"),
}


def open_session(memory: Memory | None = None, **fields: Any) -> Session:
    body = make_request_body("openai-chat", **{"tools": [TOOL], **fields})
    return Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed", memory)


def ask(exchange: Session, sign: str, words: str = "Bad Request", status: int = 400) -> list[Json]:
    """Send requests until one lacks the text that the server rejects without naming it; return all of them."""
    body, sent = exchange.encode_request(), list[Json]()
    while True:
        sent.append(json.loads(body))
        if sign not in json.dumps(sent[-1]):
            exchange.confirm_quirks()
            return sent
        again = exchange.encode_after_rejection(json.dumps({"error": {"message": words}}).encode(), status)
        if again is None:
            return sent
        body = again


def is_accepted(sent: list[Json], sign: str) -> bool:
    return sign not in json.dumps(sent[-1])


@pytest.mark.parametrize("words", VAGUE)
@pytest.mark.parametrize("case", DELICATE)
def test_part_that_a_vague_error_means_is_found(case: str, words: str) -> None:
    fields, sign = DELICATE[case]
    sent = ask(open_session(**fields), sign, words)
    assert is_accepted(sent, sign)
    assert len(sent) <= MAX_REQUESTS


@pytest.mark.parametrize("case", DELICATE)
def test_what_helped_holds_if_it_changes_only_the_form(case: str) -> None:
    fields, sign = DELICATE[case]
    memory = Memory()
    ask(open_session(memory, **fields), sign)
    again = ask(open_session(memory, **fields), sign)
    assert len(again) == (2 if "image" in case else 1)


ALL = {"messages": [USER, call(), SEEN, {**RESULT, "tool_call_id": "c9"}, LISTED], "tools": [STRICT, UNION]}


def test_suspects_are_tried_once_for_an_error_and_then_undone() -> None:
    memory, tried = Memory(), 0
    for _turn in range(6):
        exchange = open_session(memory, **ALL)
        sent = ask(exchange, "model", "Bad Request at message 7")
        assert sent[0] == json.loads(open_session(**ALL).encode_request())
        assert len(sent) <= 9
        assert not exchange.learned_quirks
        tried += len(sent) - 1
    assert 3 <= tried <= 7
    assert len(ask(open_session(memory, **ALL), "model", "Bad Request at message 9")) == 1


OTHERS = [
    *((words, 400) for words in ("invalid api key", "insufficient quota", "flagged by moderation", "prompt too long")),
    *((words, 400) for words in ("unknown model m", "no route for this path", "内容违规", "余额不足", "无可用渠道")),
    *(("Bad Request", status) for status in (401, 402, 403, 404, 405, 408, 409, 429, 500, 502, 503)),
    ("messages[0].content: looks odd", 400),
]


@pytest.mark.parametrize(("words", "status"), OTHERS)
def test_nothing_is_suspected_if_the_error_has_another_cause(words: str, status: int) -> None:
    assert len(ask(open_session(**ALL), "model", words, status)) == 1


def test_a_part_of_an_accepted_turn_is_not_suspected() -> None:
    memory = Memory()
    turn = [USER, call(), RESULT]
    open_session(memory, messages=turn).encode_request()
    more = [*turn, {"role": "assistant", "content": "done"}, {"role": "user", "content": "more"}]
    assert len(ask(open_session(memory, messages=more), '"content": null')) == 1
    sent = ask(open_session(memory, messages=[*more, LISTED]), '"content": [')
    assert is_accepted(sent, '"content": [')
    assert sent[-1]["messages"][1]["content"] is None


def test_report_names_what_the_model_no_longer_sees() -> None:
    fields, sign = DELICATE["an image in a result"]
    exchange = open_session(**fields)
    ask(exchange, sign)
    assert any("image" in line for line in exchange.report.request)
