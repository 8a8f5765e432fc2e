"""Malformed native calls: in each API with pieces of calls, to the same API and over each bridge."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis import chat, messages, pairs, responses
from tests.apis.shapes import SHAPES
from tests.exchange.disordered import CASES, encode_frames, in_cuts, open_with_tools
from tests.exchanges import feed_stream, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Facts

IN_PIECES = [
    api.name for api in APIS if api.in_pieces and api.name in ("openai-chat", "anthropic-messages", "openai-responses")
]


def calling(api: str, name: str, pieces: Sequence[str]) -> bytes:
    match api:
        case "openai-chat":
            first = chat.chunk({"tool_calls": [chat.native(0, id="c1", name=name, arguments="")]})
            more = [chat.chunk({"tool_calls": [chat.native(0, arguments=piece)]}) for piece in pieces]
            return b"".join([chat.ROLE, first, *more, chat.chunk({}, "tool_calls"), chat.USED, chat.DONE])
        case "anthropic-messages":
            return b"".join(messages.make_stream(messages.call_block(0, name, *pieces), stop_reason="tool_use"))
    return b"".join(responses.make_stream(responses.call_events(name, *pieces)))


def list_repairs(exchange: Session) -> list[str]:
    return [repair for call in exchange.report.calls for repair in call["repairs"]]


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("api", IN_PIECES)
@pytest.mark.parametrize("case", CASES["pieces"], ids=lambda case: case["name"])
def test_arguments_in_pieces_leave_in_order(case: dict[str, Any], api: str, client: str) -> None:
    name = case.get("tool", "write")
    expected = pairs.make_content("", [(name, case["arguments"])])
    body = calling(api, name, case["pieces"])
    for size in (len(body), 11):
        exchange = open_with_tools(client, api, stream=True)
        assert pairs.read(client, in_cuts(exchange, body, size), stream=True) == expected
        assert {*list_repairs(exchange)} == {*case.get("repairs", ())}


@pytest.mark.parametrize("api", IN_PIECES)
@pytest.mark.parametrize(
    "case",
    [case for case in CASES["pieces"] if "snapshots" not in case.get("repairs", ())],
    ids=lambda case: case["name"],
)
def test_no_cut_of_the_arguments_matters(case: dict[str, Any], api: str) -> None:
    """Pieces that are snapshots of the object are an exception, because their cuts matter."""
    name, arguments = case.get("tool", "write"), "".join(case["pieces"])
    expected = pairs.make_content("", [(name, case["arguments"])])
    for pieces in ([*arguments], *([arguments[:at], arguments[at:]] for at in range(1, len(arguments)))):
        exchange = open_with_tools(api, api, stream=True)
        assert pairs.read(api, in_cuts(exchange, calling(api, name, pieces), 1 << 20), stream=True) == expected
        assert {*list_repairs(exchange)} == {*case.get("repairs", ())}


def by_number(body: bytes) -> list[tuple[str, str]]:
    """Join the calls of a stream of chat completions as SDKs do: by number, in the order of their starts."""
    calls: dict[int, tuple[str, str]] = {}
    for piece in (piece for delta in chat.deltas(body) for piece in delta.get("tool_calls", ())):
        name, arguments = calls.get(piece["index"], ("", ""))
        function = piece["function"]
        calls[piece["index"]] = (name + (function.get("name") or ""), arguments + (function.get("arguments") or ""))
    return [(name, json.dumps(json.loads(arguments))) for name, arguments in calls.values()]


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("case", CASES["frames"], ids=lambda case: case["name"])
def test_frames_of_calls_leave_in_order(case: dict[str, Any], client: str) -> None:
    calls = [(name, arguments) for call in case.get("calls", ()) for name, arguments in call.items()]
    expected = pairs.make_content(case.get("text", ""), calls, end=case.get("end", ""))
    body = encode_frames(case)
    for size in (len(body), 7, 1):
        exchange = open_with_tools(client, case["api"], stream=True)
        out = in_cuts(exchange, body, size)
        if case.get("mixed") and client == "openai-chat":  # its pieces have numbers, and can be interleaved
            assert by_number(out) == [*expected.calls]
        else:
            assert pairs.read(client, out, stream=True) == expected
        assert [refusal["reason"] for refusal in exchange.report.refusals] == case.get("told", [])
        assert exchange.report.failures == []


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", SHAPES)
def test_a_reply_in_an_envelope_is_one_of_its_api(api: str, stream: bool) -> None:
    calls = [("write", {"filePath": "a"})]
    exchange = open_with_tools(api, api, stream=stream)
    if stream:
        lines = pairs.make_stream(api, ["Hello."], calls).splitlines(keepends=True)
        out = in_cuts(exchange, b"".join(map(_wrap_line, lines)), 50)
    else:
        out = exchange.whole.rewrite(_wrap_line(pairs.make_whole_reply(api, "Hello.", calls)))
    assert pairs.read(api, out, stream=stream) == pairs.make_content("Hello.", calls)


def _wrap_line(line: bytes) -> bytes:
    """Wrap the JSON of a line in a gateway's envelope."""
    name, brace, rest = line.partition(b"{")
    return name + b'{"data": ' + brace + rest.rstrip() + b', "success": true}\n' if brace else line


def test_a_call_that_is_encoded_twice_leaves_as_the_next_one_begins() -> None:
    """The next call is sent piece by piece."""
    encoded = chat.native(0, id="c1", name="write", arguments=json.dumps('{"filePath": "a"}'))
    second = [chat.native(1, id="c2", name="write", arguments=""), chat.native(1, arguments='{"filePath": "b')]
    exchange = open_with_tools("openai-chat", "openai-chat", stream=True)
    stream = exchange.stream()
    left = [b"".join(stream.feed(chat.chunk({"tool_calls": [piece]}))) for piece in (encoded, *second)]
    assert left[0] == b""
    assert b'"a' in left[1] + left[2]
    assert b'\\"b' in left[2]
    rest = b"".join(stream.feed(chat.chunk({"tool_calls": [chat.native(1, arguments='"}')]}, "tool_calls")))
    found = chat.read(b"".join([*left, rest, *stream.finish()]))
    assert found.calls == [("write", {"filePath": "a"}), ("write", {"filePath": "b"})]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_choices_stay_apart_for_a_client_that_asked_for_several(stream: bool) -> None:
    (api,) = [api for api in APIS if api.name == "openai-chat"]
    body = chat.encode_json(chat.request(stream=stream, n=2))
    exchange = Session.open(api, body, Facts(path=SHAPES[api.name].path), planner(), "seed")
    choices = [
        {"index": index, "message": {"role": "assistant", "content": f"{index}"}, "finish_reason": "stop"}
        for index in (0, 1)
    ]
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("0"),
        *chat.make_text_chunks("1", index=1),
        chat.STOP,
        chat.chunk({}, "stop", index=1),
        chat.DONE,
    ]
    sent = b"".join(frames) if stream else chat.encode_json(chat.completion("") | {"choices": choices})
    assert (feed_stream(exchange.stream(), sent) if stream else exchange.whole.rewrite(sent)) == sent
