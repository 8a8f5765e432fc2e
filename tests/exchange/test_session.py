"""One session without a proxy: the request to the server, ids, the report, and failing open."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from tests.apis import chat
from tests.exchanges import AGENT, API, BODY, TEXT, feed_stream, open_session, planner
from vtc.apis import RequestError
from vtc.exchange import Session
from vtc.exchange.asking import prompt
from vtc.profiles import Planner
from vtc.reporting import Parties, Report

# Requests


def test_a_request_that_needs_nothing_keeps_its_bytes() -> None:
    body = b'{ "model":"m", "messages": [], "stop":[ ] }'
    exchange = Session.open(API, body, AGENT, planner(tools="prompt"), "seed")
    assert exchange.encode_request() == body
    assert (exchange.may_change_reply, exchange.report.request) == (False, [])


def test_tools_that_are_prompted() -> None:
    exchange = open_session(settings={"tools": "prompt", "dialect": "hermes"})
    sent = json.loads(exchange.encode_request())
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert "tools" not in sent
    assert exchange.report.request == ["3 tools -> hermes prompt"]
    assert exchange.encode_request() == exchange.encode_request()


def test_a_request_is_rewritten_once_and_not_before_it_is_asked_for() -> None:
    exchange = open_session(settings={"tools": "prompt"})
    assert exchange.report.request == []
    assert exchange.encode_request() is exchange.encode_request()
    assert exchange.report.request == ["3 tools -> tag prompt"]


def test_a_fault_in_rewriting_is_a_bad_request_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exchange = open_session()
    monkeypatch.setattr(prompt, "prepare_messages", lambda *_: 1 / 0)
    with pytest.raises(RequestError, match="ZeroDivisionError"):
        exchange.encode_request()
    (record,) = caplog.records
    assert "forwarded unchanged" in record.message


@pytest.mark.parametrize(
    ("fields", "reads"),
    [
        ({}, True),
        ({"tool_choice": "required"}, True),
        ({"tool_choice": "none"}, False),
        ({"tools": None}, False),
        ({"tools": []}, False),
        ({"tools": [{"type": "web_search"}]}, False),
    ],
)
def test_which_replies_are_read(fields: dict[str, Any], reads: bool) -> None:
    """Only replies that may contain a call."""
    assert open_session(**fields).may_change_reply == reads


def test_a_fault_of_ours_is_a_bad_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Such a request is always forwarded unchanged; the trace is in the log."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Planner, "plan", broken)
    with pytest.raises(RequestError, match="ZeroDivisionError: planted"):
        open_session()
    (record,) = caplog.records
    assert "test_session.py" in record.message
    assert "forwarded unchanged" in record.message


# Ids


def calls_of(exchange: Session) -> list[str]:
    return chat.read(feed_stream(exchange.stream(), BODY)).ids


def test_ids_are_stable_and_differ_between_exchanges() -> None:
    """They derive from the exchange's seed, without clock or chance."""
    assert calls_of(open_session("one")) == calls_of(open_session("one"))
    assert calls_of(open_session("one")) != calls_of(open_session("two"))


def test_ids_differ_from_those_of_the_conversation_and_of_other_choices() -> None:
    (taken,) = calls_of(open_session("one"))
    call = {"id": taken, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    exchange = open_session("one", n=2, messages=[{"role": "assistant", "tool_calls": [call]}])
    frames = [*(chat.make_text_chunks(TEXT, index=index)[0] for index in (0, 1)), chat.DONE]
    body = feed_stream(exchange.stream(), *frames)
    ids = [*chat.read(body, 0).ids, *chat.read(body, 1).ids]
    assert len({taken, *ids}) == 3


# The report


def test_the_report_is_plain_data() -> None:
    exchange = open_session(settings={"tools": "prompt"})
    feed_stream(exchange.stream(), BODY)
    report = exchange.report.as_dict()
    assert json.loads(json.dumps(report)) == report
    assert [(call["name"], call["dialect"], call["repairs"]) for call in report["calls"]] == [("read", "tag", [])]
    assert report["client"] == "openai-sdk"
    assert any("prompt" in line or "knows no tools" in line for line in report["why"])


def call(dialect: str, *repairs: str) -> dict[str, Any]:
    return {"name": "n", "id": "i", "dialect": dialect, "repairs": list(repairs)}


@pytest.mark.parametrize(
    ("report", "summary"),
    [
        (Report(), ""),
        (Report(Parties(client="c", model="m"), why=["x"]), ""),
        (Report(calls=[call("tag")]), "vtc: n, tag -> tool_calls"),
        (
            Report(calls=[call("hermes"), call("tag", "a", "b"), call("hermes")]),
            "vtc: n x3, 1 repaired (a, b), hermes, tag -> tool_calls",
        ),
        (
            Report(request=["3 tools -> tag prompt"], refusals=[{"reason": "r"}, {"reason": "s"}]),
            "vtc: 2 left as text (r), 3 tools -> tag prompt",
        ),
        (
            Report(calls=[{**call("tag"), "name": name} for name in "abcdefg"]),
            "vtc: a, b, c, d, 3 more, tag -> tool_calls",
        ),
        (Report(errors=["the server answered 400"]), "vtc: the server answered 400"),
        (Report(failures=["E: x"]), "vtc: error in VTC: E: x"),
        (Report(Parties(form="cline"), calls=[call("hermes")]), "vtc: n, hermes -> cline"),
    ],
)
def test_the_report_in_one_line(report: Report, summary: str) -> None:
    """VTC's actions for the list of flows; empty if there are none."""
    assert report.summarize() == summary


def test_refusal_states_its_subject_and_reason() -> None:
    exchange = open_session()
    feed_stream(exchange.stream(), *chat.make_stream('<tool_call>{"name": "sh.rm", "arguments": {}}</tool_call>'))
    (refusal,) = exchange.report.refusals
    assert refusal["reason"] == "no tool 'sh.rm' is offered; offered: read, list_files, write"
    assert refusal["dialect"] == "hermes"
    assert refusal["excerpt"].startswith("<tool_call>")


def test_text_and_reasons_are_logged_only_by_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    feed_stream(open_session().stream(), BODY)
    assert caplog.records == []
