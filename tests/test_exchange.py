"""One exchange without any proxy: what holds for the bytes of every reply, the ids, the report, and failing open."""

from __future__ import annotations

import gzip
import json
import logging
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat
from vtc.apis import APIS, BadRequest
from vtc.exchange import Exchange, Stream
from vtc.profiles.loader import builtin_directory, load
from vtc.profiles.matching import Facts
from vtc.profiles.plan import Planner, Settings
from vtc.report import Report
from vtc.wire.compression import UnsupportedEncoding

(API,) = [api for api in APIS if api.name == "openai-chat"]
AGENT = Facts(user_agent="OpenAI/Python 3", host="127.0.0.1", path="/v1/chat/completions")


PROFILES = load([builtin_directory()])


@cache
def planner(**settings: Any) -> Planner:
    return Planner(PROFILES, Settings(**settings))


def opened(seed: str = "seed", settings: dict[str, Any] | None = None, **fields: Any) -> Exchange:
    body = chat.encoded(chat.request(stream=True, **fields))
    return Exchange.open(API, body, AGENT, planner(**settings or {}), seed)


def fed(stream: Stream, *pieces: bytes) -> bytes:
    return b"".join(out for piece in pieces for out in stream.feed(piece)) + b"".join(stream.finish())


TEXT = "Let me look.\n\n<read>\n<filePath>/é</filePath>\n</read>\n"
BODY = b"".join(chat.streamed(*(TEXT[i : i + 11] for i in range(0, len(TEXT), 11))))
CALLED = chat.Read("Let me look.", "", [("read", {"filePath": "/é"})], [], "tool_calls")


# Requests


def test_a_request_that_needs_nothing_keeps_its_bytes() -> None:
    body = b'{ "model":"m", "messages": [], "tools":[ ] }'
    exchange = Exchange.open(API, body, AGENT, planner(tools="prompt"), "seed")
    assert exchange.request() == body
    assert (exchange.reads, exchange.report.request) == (False, [])


def test_tools_that_are_prompted() -> None:
    exchange = opened(settings={"tools": "prompt", "dialect": "hermes"})
    sent = json.loads(exchange.request())
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert "tools" not in sent
    assert exchange.report.request == ["3 tools -> hermes prompt"]
    assert exchange.request() == exchange.request()


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
    """Only those that may hold a call at all."""
    assert opened(**fields).reads == reads


def test_a_fault_of_ours_is_a_bad_request(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """So there is one way in which a request is left alone; the trace is in the log."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Planner, "plan", broken)
    with pytest.raises(BadRequest, match="ZeroDivisionError: planted"):
        opened()
    (record,) = caplog.records
    assert record.exc_info
    assert "passed on as it came" in record.message


# Replies: every cut, any bytes


@pytest.mark.parametrize("coding", ["", "gzip"])
def test_every_cut_of_a_reply_gives_the_same(coding: str) -> None:
    """Byte by byte, and in two pieces at each place."""
    body = gzip.compress(BODY) if coding else BODY
    whole = fed(opened().stream(coding), body)
    assert chat.read(whole) == CALLED
    assert fed(opened().stream(coding), *(body[i : i + 1] for i in range(len(body)))) == whole
    for cut in range(1, len(body)):
        assert fed(opened().stream(coding), body[:cut], body[cut:]) == whole


SNIPPETS = [
    "Hello, ",
    "a < b",
    "\n",
    "  ",
    "é😀",
    "`",
    "```\n",
    "<think>",
    "</think>",
    *(write("read", {"filePath": "/a\n\nb"}) for write in chat.DIALECTS.values()),
    "<read>",
    "<filePath>x</filePath>",
    "</read>",
    "<tool_call>",
    '{"name": "read", "arguments": {"filePath": "x',
    '"}}',
    "</tool_call>",
    "<function_calls><invoke name=\"list_files\"><parameter name='path'>",
    "<tools>",
]
SAID = st.lists(st.sampled_from(SNIPPETS), max_size=10)
SETTINGS = st.sampled_from([{}, {"lenient": "off"}, {"model": "qwen3"}, {"model": "qwen2.5"}])


@given(said=SAID, cuts=st.lists(st.integers(0, 2000), max_size=6), settings=SETTINGS, finish=st.booleans())
def test_any_reply_in_any_cut_says_what_the_whole_says(
    said: list[str], cuts: list[int], settings: dict[str, str], finish: bool
) -> None:
    """Streamed, cut anywhere, and not streamed; the calls' arguments are JSON and their ids differ (`chat.read`)."""
    reason = "stop" if finish else "length"
    body = b"".join(chat.streamed(*said, finish=reason))
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    streamed = chat.read(fed(opened(settings=settings).stream(), *(body[a:b] for a, b in pairwise(places) if a < b)))
    text = "".join(said)
    whole = chat.read(opened(settings=settings).body(chat.encoded(chat.completion(text, reason))))
    assert streamed == whole
    if not whole.calls and "think" not in text:
        assert whole.content == text


@given(pieces=st.lists(st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b"[DONE]", b"{}", chat.STOP])))
def test_any_bytes_pass(pieces: list[bytes]) -> None:
    """Nothing raises, nothing is lost, and nothing that would end the body is returned."""
    stream = opened().stream()
    out = [stream.feed(piece) for piece in pieces]
    out += [stream.finish(), stream.finish()]
    assert all(len(one) <= 1 and b"" not in one for one in out)
    assert b"".join(piece for one in out for piece in one) == b"".join(pieces)


@given(st.binary(max_size=100))
def test_any_body_passes(body: bytes) -> None:
    assert opened().body(body) == body


def test_a_body_of_events_is_read_as_one() -> None:
    """Whatever the server called it; and a whole stream is a stream that is fed once."""
    assert opened().body(BODY) == fed(opened().stream(), BODY)
    assert opened().body(b"\r\n: hi\n\n" + BODY).startswith(b"\r\n: hi\n\n")


def test_what_leaves_leaves_in_one_piece() -> None:
    """Each piece that is returned costs mitmproxy a write."""
    stream = opened().stream()
    assert stream.feed(chat.ROLE + b"".join(chat.said("a", "b"))) == [chat.ROLE + b"".join(chat.said("a", "b"))]
    assert stream.feed(b"") == []
    assert stream.feed(chat.said("<rea")[0]) == []


def test_an_unknown_coding_is_refused() -> None:
    with pytest.raises(UnsupportedEncoding, match="'x-secret' is not supported"):
        opened().stream("x-secret")


def test_a_broken_coding_is_told_once_and_nothing_raises(caplog: pytest.LogCaptureFixture) -> None:
    exchange = opened()
    stream = exchange.stream("gzip")
    assert fed(stream, b"\x1f\x8b\xff\xff", b"\xff" * 10, b"") == b""
    assert [failure.partition(":")[0] for failure in exchange.report.failures] == ["CorruptBody"]
    assert len(caplog.records) == 1


# Ids


def calls_of(exchange: Exchange) -> list[str]:
    return chat.read(fed(exchange.stream(), BODY)).ids


def test_ids_are_stable_and_differ_between_exchanges() -> None:
    """They are derived from the exchange's seed: no clock and no chance."""
    assert calls_of(opened("one")) == calls_of(opened("one"))
    assert calls_of(opened("one")) != calls_of(opened("two"))


def test_ids_differ_from_those_of_the_conversation_and_of_other_choices() -> None:
    (taken,) = calls_of(opened("one"))
    call = {"id": taken, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    exchange = opened("one", messages=[{"role": "assistant", "tool_calls": [call]}])
    frames = [*(chat.said(TEXT, index=index)[0] for index in (0, 1)), chat.DONE]
    body = fed(exchange.stream(), *frames)
    ids = [*chat.read(body, 0).ids, *chat.read(body, 1).ids]
    assert len({taken, *ids}) == 3


# The report


def test_the_report_is_plain_data() -> None:
    exchange = opened(settings={"tools": "prompt"})
    fed(exchange.stream(), BODY)
    told = exchange.report.as_dict()
    assert json.loads(json.dumps(told)) == told
    assert [(call["name"], call["dialect"], call["repairs"]) for call in told["calls"]] == [("read", "tag", [])]
    assert told["client"] == "openai-sdk"
    assert any("prompt" in line or "knows no tools" in line for line in told["why"])


def call(dialect: str, *repairs: str) -> dict[str, Any]:
    return {"name": "n", "id": "i", "dialect": dialect, "repairs": list(repairs)}


@pytest.mark.parametrize(
    ("report", "summary"),
    [
        (Report(), ""),
        (Report(why=["x"], client="c", model="m"), ""),
        (Report(calls=[call("tag")]), "vtc: tag -> tool_calls, 1 call"),
        (
            Report(calls=[call("hermes"), call("tag", "a", "b"), call("hermes")]),
            "vtc: hermes, tag -> tool_calls, 3 calls, 1 repaired (recovered 1 call: a, b)",
        ),
        (
            Report(request=["3 tools -> tag prompt"], refusals=[{"reason": "r"}, {"reason": "s"}]),
            "vtc: 2 left as text (r), 3 tools -> tag prompt",
        ),
        (Report(failures=["E: x"]), "vtc: failed open: E: x"),
        (Report(form="cline", calls=[call("hermes")]), "vtc: hermes -> cline, 1 call"),
    ],
)
def test_the_report_in_one_line(report: Report, summary: str) -> None:
    """B8: what was done, for the list of flows; empty where nothing was."""
    assert report.summary() == summary


def test_a_refusal_says_what_was_refused_and_why() -> None:
    exchange = opened()
    fed(exchange.stream(), *chat.streamed('<tool_call>{"name": "rm", "arguments": {}}</tool_call>'))
    (refusal,) = exchange.report.refusals
    assert "'rm'" in refusal["reason"]
    assert refusal["dialect"] == "hermes"
    assert refusal["excerpt"].startswith("<tool_call>")


def test_what_is_read_and_why_is_logged_nowhere_but_by_the_proxy(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fed(opened().stream(), BODY)
    assert caplog.records == []
