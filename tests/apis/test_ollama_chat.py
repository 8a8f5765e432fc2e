"""Ollama's chat API: requests, lines of a stream, whole replies."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, ollama
from tests.apis.toy import Toy
from tests.bounds import time_limit
from tests.exchanges import AGENT, feed_stream, planner
from vtc.apis import RequestError, convert_to_stream, match_request, render_text_reply
from vtc.apis.ollama_chat import API, Request
from vtc.apis.relay import Relay
from vtc.events import ToolCall
from vtc.exchange import Session
from vtc.json_text import encode_json
from vtc.wire import LineReader

__all__ = ["time_limit"]


def run(*lines: bytes, structured: bool = True, guarded: bool = False, form: bool = False) -> bytes:
    one = Relay(API.decoder(form), API.encoder(form), lambda: Toy(structured, guarded))
    reader = LineReader()
    frames = [frame for line in lines for frame in reader.feed(line)] + reader.finish()
    return b"".join([*(out for frame in frames for out in one.feed(frame)), *one.finish()])


def exchange(*, settings: Any = None, **fields: Any) -> Session:
    body = chat.encode_json(ollama.request(**fields))
    return Session.open(API, body, AGENT, planner(**settings or {}), "seed")


# Requests


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b'{"messages": []}', b'{"model": "m"}', b'{"model": "m", "messages": 1}']
)
def test_body_of_another_kind_is_no_request(body: bytes) -> None:
    with pytest.raises(RequestError):
        API.request(body)


@pytest.mark.parametrize(("fields", "stream"), [({}, True), ({"stream": True}, True), ({"stream": False}, False)])
def test_reply_is_streamed_unless_the_request_disables_it(fields: Any, stream: bool) -> None:
    assert Request(chat.encode_json(ollama.request(**fields))).stream == stream


def test_results_are_matched_by_name_then_by_order() -> None:
    calls = [ollama.call("read", path="a"), ollama.call("list_files"), ollama.call("read", path="b")]
    messages = [
        ollama.user("Go"),
        ollama.assistant("", *calls, thinking="hm"),
        ollama.result("1"),
        ollama.result("2", name=None),
        ollama.result("3", name="read"),
    ]
    request = Request(chat.encode_json(ollama.request(messages=messages)))
    assert [message.name for message in request.messages] == [None, None, "read", "list_files", "read"]
    assert request.messages[1].calls[0] == ToolCall("read", '{"path": "a"}')
    assert request.messages[1].reasoning == "hm"
    assert json.loads(encode_json(API.writer.apply_changes(request)))["messages"] == messages


def test_results_of_calls_in_two_messages_are_matched_in_their_order() -> None:
    calls = [ollama.assistant("", ollama.call("read", path=path)) for path in "ab"]
    results = [ollama.result(text, name=None) for text in "12"]
    calls[1]["tool_calls"].append(ollama.call("list_files"))
    messages = [ollama.user("Go"), *calls, *results, ollama.result("3", name=None)]
    one = Request(chat.encode_json(ollama.request(messages=messages)))
    assert [message.name for message in one.messages[3:]] == ["read", "read", "list_files"]


def test_result_with_an_id_belongs_to_its_call_in_any_order() -> None:
    calls = [{"id": f"call_{n}", **ollama.call(name)} for n, name in enumerate(("read", "list_files"))]
    results = [ollama.result("2", name=None, id="call_1"), ollama.result("1", name=None)]
    one = Request(
        chat.encode_json(ollama.request(messages=[ollama.user("Go"), ollama.assistant("", *calls), *results]))
    )
    assert [(message.name, message.call_id) for message in one.messages[2:]] == [
        ("list_files", "call_1"),
        ("read", "call_0"),
    ]


def test_changed_messages_are_written_as_the_api_has_them() -> None:
    image = {"role": "user", "content": "see", "images": ["aGk="]}
    messages = [image, ollama.assistant("", ollama.call("read", path="a")), ollama.result("1")]
    one = exchange(messages=messages, settings={"tools": "prompt", "dialect": "hermes"})
    sent = json.loads(one.encode_request())
    assert "tools" not in sent
    assert sent["messages"][1] == image
    assert "<tool_call>" in sent["messages"][2]["content"]
    assert all(isinstance(message["content"], str) for message in sent["messages"])


# Replies


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ollama.make_stream(*ollama.make_thinking_lines("Well"), *ollama.make_text_lines("Hello", " world")),
        ollama.make_stream(*ollama.make_text_lines("a", "[", "b"), done_reason="length"),
        ollama.make_stream(ollama.piece("", ollama.call("n", x=1))),
        [ollama.error()],
        [b"\n", b"not json\n", b'{"done": true}\n'],
    ],
)
def test_unchanged_lines_keep_their_bytes(lines: list[bytes]) -> None:
    assert run(*lines) == b"".join(lines)


@pytest.mark.parametrize(
    ("pieces", "content", "reasoning", "calls"),
    [
        (["a[x]b"], "ab", "", [("x", {})]),
        (["[", "x", "]"], "", "", [("x", {})]),
        (["(a", "b)c"], "c", "(ab)", []),
        (["{a}", "~"], "<a>", "", []),
    ],
)
def test_changed_text_is_sent_in_separate_lines(pieces: list[str], content: str, reasoning: str, calls: Any) -> None:
    found = ollama.read(run(*ollama.make_text_stream(*pieces)))
    assert found == ollama.Read(content, reasoning, calls, done_reason="stop")


def test_call_completed_by_the_last_line_is_sent_before_it() -> None:
    found = run(*ollama.make_text_lines("a["), ollama.end(content="x]"))
    assert ollama.read(found) == ollama.Read("a", "", [("x", {})], done_reason="stop")
    assert json.loads(found.splitlines()[-1])["eval_count"] == 5


def test_ids_are_sent_only_to_servers_that_know_them() -> None:
    lines = ollama.make_text_stream("[x]")
    assert ollama.read(run(*lines)).ids == [None]
    assert ollama.read(run(*lines, form=True), ids=True).ids == ["id1"]


def test_own_calls_go_to_a_client_of_text() -> None:
    lines = ollama.make_stream(*ollama.make_text_lines("Hi"), ollama.piece("", ollama.call("n", x=1)))
    assert ollama.read(run(*lines, structured=False)).content == 'Hi[n {"x": 1} None]'


def test_native_call_is_encoded_again_if_policy_changes_it() -> None:
    lines = ollama.make_stream(ollama.piece("", ollama.call("old")), ollama.piece("", ollama.call("n", x=1)))
    assert ollama.read(run(*lines, guarded=True)).calls == [("new", {}), ("n", {"x": 1})]


def test_keep_alive_is_a_line_without_text() -> None:
    relay = Relay(API.decoder(), API.encoder(), Toy)
    assert relay.writer.encoder.keep_alive() is None
    relay.feed(*LineReader().feed(ollama.make_text_lines("a")[0]))
    line = relay.writer.encoder.keep_alive()
    assert line is not None
    assert json.loads(line)["message"] == {"role": "assistant", "content": ""}


WRITTEN = [write("read", {"filePath": "/a"}) for name, write in chat.DIALECTS.items() if name != "bare-json"]
"""Calls in the models' formats except bare JSON, which is a call only if it is the whole reply."""


@pytest.mark.parametrize("text", WRITTEN)
def test_cuts_and_whole_replies_have_the_same_result(text: str, some: Any) -> None:
    lines = ollama.make_text_stream(*(f"It works.\n\n{text}"))
    body = b"".join(lines)
    whole = ollama.read(feed_stream(exchange().stream(), body))
    assert whole == ollama.Read("It works.", "", [("read", {"filePath": "/a"})], done_reason="stop")
    assert ollama.read(feed_stream(exchange().stream(), *(body[at : at + 1] for at in range(len(body))))) == whole
    for cut in some(range(1, len(body), 97), 4):
        assert ollama.read(feed_stream(exchange().stream(), body[:cut], body[cut:])) == whole
    reply = exchange(stream=False).whole.rewrite(chat.encode_json(ollama.message(f"It works.\n\n{text}")))
    assert ollama.read(reply, stream=False) == whole


@given(st.lists(st.text("ab[]x(){}~ ", max_size=6), max_size=8), st.lists(st.integers(0, 900), max_size=4))
def test_no_character_is_lost_in_any_cut(pieces: list[str], cuts: list[int]) -> None:
    body = b"".join(ollama.make_text_stream(*pieces))
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert run(*(body[a:b] for a, b in pairwise(places))) == run(body)
    found, expected = ollama.read(run(body)), Toy()
    events = [*expected.feed("".join(pieces)), *expected.finish(complete=True)]
    assert len(found.calls) == sum(type(event).__name__ == "Call" for event in events)


def test_plain_lines_are_not_read() -> None:
    """Each has a different time, as Ollama's lines have."""
    stream = exchange().stream()
    head = {"model": "m", "message": ollama.assistant(" word"), "done": False}
    times = [f"2026-01-01T00:00:00.{number:06}Z" for number in range(50)]
    lines = [json.dumps({**head, "created_at": time}).encode() + b"\n" for time in times]
    assert stream.feed(lines[0]) == [lines[0]]
    assert stream.feed(lines[1]) == [lines[1]]
    stream._relay.feed = None  # type: ignore[assignment, method-assign]
    assert [stream.feed(line) for line in lines[2:]] == [[line] for line in lines[2:]]
    assert not stream.failed  # otherwise they would pass, too


@pytest.mark.parametrize("thinking", [None, "Well"])
def test_whole_reply_as_a_stream(thinking: str | None) -> None:
    body = ollama.message("Hi", ollama.call("n", x=1), thinking=thinking)
    stream = convert_to_stream(API, chat.encode_json(body), Request(chat.encode_json(ollama.request())))
    assert ollama.read(stream) == ollama.read(chat.encode_json(body), stream=False)


@pytest.mark.parametrize("text", ["a", "a[b", "[x]a", "a[x", "[x]"])
def test_error_is_sent_last_after_all_received_text(text: str) -> None:
    relay, error = Relay(API.decoder(), API.encoder(), Toy), ollama.error()
    frames = [*LineReader().feed(b"".join([*ollama.make_text_lines(text), error]))]
    *before, last = b"".join([*(out for frame in frames for out in relay.feed(frame)), *relay.finish()]).splitlines()
    assert json.loads(last) == json.loads(error)
    found = ollama.read(b"".join(line + b"\n" for line in before) + ollama.end(), ids=True)
    assert found.content + "[x]" * len(found.calls) == text.replace("[x]a", "a[x]")


def test_reply_of_our_own() -> None:
    request = Request(chat.encode_json(ollama.request()))
    body = render_text_reply(API, request, "Stopped.", "0" * 64, 0)
    assert (
        ollama.read(body, stream=False).content
        == ollama.read(convert_to_stream(API, body, request)).content
        == "Stopped."
    )
    assert json.loads(body)["created_at"].startswith("1970-01-01T00:00:00")


def test_calls_without_numbers_have_some_for_a_client_of_chat_completions() -> None:
    api = match_request("POST", "/v1/chat/completions")
    assert api is not None
    relay = Relay(API.decoder(), api.encoder(), Toy, same_api=False)
    lines = ollama.make_stream(
        ollama.piece("", ollama.call("a", x=1)), ollama.piece("", ollama.call("b"), ollama.call("c"))
    )
    out = [piece for frame in LineReader().feed(b"".join(lines)) for piece in relay.feed(frame)]
    entries = [entry for delta in chat.deltas(b"".join(out)) for entry in delta.get("tool_calls", ())]
    assert [(entry["index"], entry["function"]["name"]) for entry in entries] == [(0, "a"), (1, "b"), (2, "c")]


def test_calls_among_entries_without_a_function_are_found_in_linear_time() -> None:
    """Each entry was compared with each call: the time limit interrupts that."""
    calls = [{"function": {"name": f"f{number}", "arguments": {}}} for number in range(40_000)]
    others = [{"id": f"x{number}"} for number in range(40_000)]
    message = {"role": "assistant", "content": "", "tool_calls": [*calls, *others]}
    (frame,) = LineReader().feed(encode_json({"model": "m", "message": message, "done": False}) + b"\n")
    decoded = API.decoder(False).decode(frame)
    assert decoded is not None
    assert len(decoded.deltas) == len(calls)
    assert others in [getattr(item, "value", None) for item in decoded.metadata]
