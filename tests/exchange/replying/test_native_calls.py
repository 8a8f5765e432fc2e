"""Native calls of every API: malformed, truncated and disordered ones are normalized; valid ones are sent in pieces."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, gemini, messages, ollama, pairs, responses
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.crossings import STREAM, call_piece, has_whole_call, open_bridge, read_client_reply
from tests.exchange.replying.native_calls import CASES, IN_PIECES, encode_frames, in_cuts, open_with_tools, stream_calls
from tests.exchanges import agent, declare_tools, feed_stream, planner
from vtc.apis import APIS
from vtc.apis.calls import RAW_INPUT_SCHEMA
from vtc.dialects import Repair
from vtc.events import Tool, ToolCall
from vtc.exchange import Session, Stream
from vtc.exchange.replying.native_calls import MalformedCall, normalize_call
from vtc.profiles import Facts, Planner, Settings, builtin_directory, load_profiles

READ_SCHEMA = {
    "type": "object",
    "properties": {"filePath": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["filePath"],
}
KNOWN_TOOLS = {name: Tool(name, "", READ_SCHEMA) for name in ("read", "run", "run_2")} | {"list": Tool("list", "", {})}
A = {"filePath": "/a"}

REPAIRABLE = {
    "a brace is missing": ('{"filePath": "/a"', [Repair.JSON_CUT]),
    "a brace too many": ('{"filePath": "/a"}}', [Repair.EXTRA_BRACE]),
    "a special token follows": ('{"filePath": "/a"}<|call|>', [Repair.MARKUP_AROUND]),
    "a closing tag follows": ('{"filePath": "/a"}\n</tool_call>', [Repair.MARKUP_AROUND]),
    "closing tags follow a cut object": (
        '{"filePath": "/a"\n</tool_call></x>',
        [Repair.MARKUP_AROUND, Repair.JSON_CUT],
    ),
    "a special token stands before": ('<|message|>{"filePath": "/a"}', [Repair.MARKUP_AROUND]),
    "the word json stands before": ('json{"filePath": "/a"}', [Repair.MARKUP_AROUND]),
    "single quotes": ("{'filePath': '/a'}", [Repair.PYTHON_LITERAL]),
    "no quotes": ('{filePath: "/a"}', [Repair.JSON_MISSING_QUOTE]),
    "a code block": ('```json\n{"filePath": "/a"}\n```', [Repair.CODE_FENCE]),
    "a list of one": ('[{"filePath": "/a"}]', [Repair.ARRAY_OF_CALLS]),
    "an empty object before": ('{}{"filePath": "/a"}', [Repair.EMPTY_OBJECT]),
    "empty objects before": ('{} {}\n{"filePath": "/a"}', [Repair.EMPTY_OBJECT]),
    "the call again in its arguments": (
        '{"name": "read", "arguments": {"filePath": "/a"}}',
        [Repair.ARGUMENTS_KEY],
    ),
    "the arguments under a key": ('{"input": {"filePath": "/a"}}', [Repair.ARGUMENTS_KEY]),
    "encoded too often": (json.dumps(json.dumps(json.dumps(A))), [Repair.ARGUMENTS_ENCODED_TWICE]),
    "written twice": ('{"filePath": "/a"}{"filePath": "/a"}', [Repair.WRITTEN_TWICE]),
    "the object so far, again and again": ('{"file{"filePath":{"filePath":"/a"}', [Repair.SNAPSHOTS]),
    "its id before the arguments": (
        ".functions.read:0 {“filePath”: “/a”}",
        [Repair.NAME_BEFORE, Repair.JSON_TYPOGRAPHIC_QUOTES],
    ),
    "its name before the arguments": ('read {"filePath": "/a"}', [Repair.NAME_BEFORE]),
    "written twice after an empty object": (
        '{}{"filePath": "/a"}{"filePath": "/a"}',
        [Repair.EMPTY_OBJECT, Repair.WRITTEN_TWICE],
    ),
}
UNREPAIRABLE = {
    "a string that is cut": '{"filePath": "/home/me/pro',
    "a string that is cut, encoded twice": json.dumps('{"filePath": "/home/me/pro'),
    "a string that is cut after a brace": '{"filePath": "a}',
    "a string that is cut before a tag": '{"filePath": "a</tool_call>',
    "text between tags": '{"filePath": "/a"}<arg_key>limit</arg_key>',
    "text": "filePath = /a",
    "a number": "1",
    "a list of something else": '[{"content": "x"}]',
    "the object so far again and again, and cut": '{"file{"filePath":{"filePath":"a"',
    "cut before what the tool requires": '{"limit": 3',
}


@pytest.mark.parametrize("name", REPAIRABLE)
def test_malformed_arguments_are_repaired_and_reported_as_in_text(name: str) -> None:
    written, repairs = REPAIRABLE[name]
    found = normalize_call(ToolCall("read", written, "c"), KNOWN_TOOLS, lenient=True)
    assert [(call.name, json.loads(call.arguments), call.id) for call in found.calls] == [("read", A, "c")]
    assert list(found.repairs) == repairs


@pytest.mark.parametrize("name", [*UNREPAIRABLE, "a brace is missing", "single quotes"])
def test_ambiguous_arguments_are_rejected(name: str) -> None:
    """This includes repairable arguments if repairs are disabled, and an object cut off by the end of a reply."""
    written = UNREPAIRABLE.get(name) or REPAIRABLE[name][0]
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("read", written), KNOWN_TOOLS, lenient=name in UNREPAIRABLE)


def test_object_is_not_closed_if_reply_is_truncated() -> None:
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("list", '{"path": "/a"'), KNOWN_TOOLS, lenient=True, complete=False)


def test_object_truncated_after_value_is_replaced_by_complete_object() -> None:
    """An object that broke off elsewhere could contain the following one, so it is read as before."""
    whole = {"filePath": "/a", "limit": 3}
    found = normalize_call(ToolCall("read", '{"filePath": "/a"' + json.dumps(whole)), KNOWN_TOOLS, lenient=True)
    assert ([json.loads(call.arguments) for call in found.calls], found.repairs) == ([whole], (Repair.SNAPSHOTS,))
    inner = normalize_call(ToolCall("list", '{"path":{"path":"a"}'), KNOWN_TOOLS, lenient=True)
    assert [json.loads(call.arguments) for call in inner.calls] == [{"path": {"path": "a"}}]


def test_empty_object_is_a_call_if_no_argument_is_required() -> None:
    found = normalize_call(ToolCall("list", '{}{"path": "/a"}'), KNOWN_TOOLS, lenient=True)
    assert [call.arguments for call in found.calls] == ["{}", '{"path": "/a"}']


@pytest.mark.parametrize(
    "written",
    [
        '{"filePath": "/a", "input": {"filePath": "/b"}}',
        '{"input": {"limit": 3}}',
        '{"name": "run", "arguments": {"filePath": "/a"}}',
        '{"args": {"filePath": "/a"}, "input": {"filePath": "/b"}}',
        '{"args": {"filePath": "/a"}, "more": 1}',
    ],
)
def test_plausible_arguments_are_unchanged(written: str) -> None:
    found = normalize_call(ToolCall("read", written), KNOWN_TOOLS, lenient=True)
    assert ([call.arguments for call in found.calls], found.repairs) == ([written], ())


@pytest.mark.parametrize("inner", ["{ echo 1; }", '"quoted"', '{"x": 1}', "json{1}"])
def test_only_required_string_is_not_parsed_as_object(inner: str) -> None:
    found = normalize_call(ToolCall("read", json.dumps(inner)), KNOWN_TOOLS, lenient=True)
    assert [json.loads(call.arguments) for call in found.calls] == [{"filePath": inner}]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("functions.read:0", "read"),
        ("functions_read_2", "read"),
        ("function=read", "read"),
        ("functions/read", "read"),
        ("functions.Read:0", "read"),
        ("read:12", "read"),
        ("functions.run_2", "run_2"),
        ("read</arg_value>", "read"),
        ("read<|channel|>commentary", "read"),
        ("read<|channel|>commentary<|constrain|>json", "read"),
        ("functions_run_2", None),  # the second call of run, or run_2?
        ("read_2", None),
        ("reader", None),
        ("functions.", None),
    ],
)
def test_decorated_name_resolves_to_the_only_matching_tool(written: str, name: str | None) -> None:
    found = normalize_call(ToolCall(written, '{"filePath": "/a"}'), KNOWN_TOOLS, lenient=True)
    assert (found.calls[0].name, found.repairs) == ((name, (Repair.TOOL_NAME,)) if name else (written, ()))


@pytest.mark.parametrize("written", ["read<arg_key>filePath", "read(filePath=/a)", 'read" filePath="/a"'])
def test_name_with_arguments_inside_is_rejected(written: str) -> None:
    """Otherwise an argument would be lost."""
    with pytest.raises(MalformedCall, match="more than a name"):
        normalize_call(ToolCall(written, "{}"), KNOWN_TOOLS, lenient=True)


# All APIs


def open_without_tools(api: str, *, stream: bool) -> Session:
    (found,) = [one for one in APIS if one.name == api]
    body = chat.encode_json(SHAPES[api].request(stream=stream))
    facts = Facts(user_agent="Any/1", host="127.0.0.1", path=SHAPES[api].build_path(stream=stream))
    return Session.open(found, body, facts, planner(), "seed")


def encode_reply(api: str, name: str, arguments: str, *, stream: bool) -> bytes:
    """Encode a reply with one call; the arguments are not always an object."""
    match api, stream:
        case "openai-chat", False:
            function = {"name": name, "arguments": arguments}
            calls = [{"id": "a", "type": "function", "function": function}]
            return chat.encode_json(chat.completion(None, "tool_calls", message={"tool_calls": calls}))
        case "openai-chat", True:
            half = len(arguments) // 2
            first = chat.native(0, id="a", name=name, arguments=arguments[:half])
            rest = chat.native(0, arguments=arguments[half:])
            pieces = [chat.chunk({"tool_calls": [one]}) for one in (first, rest)]
            return b"".join([chat.ROLE, *pieces, chat.chunk({}, "tool_calls"), chat.USED, chat.DONE])
        case "anthropic-messages", False:
            call = {**messages.call(name), "input": json.loads(arguments)}
            return chat.encode_json(messages.message(call, stop_reason="tool_use"))
        case "anthropic-messages", True:
            return b"".join(messages.make_stream(messages.call_block(0, name, arguments), stop_reason="tool_use"))
        case "openai-responses", False:
            return chat.encode_json(responses.response({**responses.call(name), "arguments": arguments}))
        case "openai-responses", True:
            return b"".join(responses.make_stream(responses.call_events(name, arguments)))
        case _:
            try:
                value: Any = json.loads(arguments)
            except ValueError:
                value = arguments
            if api == "gemini-generate":
                part = {"functionCall": {"name": name, "args": value}}
                made = gemini.make_stream(gemini.frame(gemini.event(part)))
                return b"".join(made) if stream else chat.encode_json(gemini.reply(part))
            call = {"function": {"name": name, "arguments": value}}
            return (
                b"".join(ollama.make_stream(ollama.piece("", call)))
                if stream
                else chat.encode_json(ollama.message("", call))
            )


def list_calls(api: str, body: bytes, *, stream: bool = True) -> list[tuple[str, Any]]:
    """Return the calls that a strict client reads."""
    match api:
        case "openai-chat":
            return chat.read(body).calls
        case "anthropic-messages":
            return messages.read(body).calls
        case "openai-responses":
            return responses.read(body).calls
        case "gemini-generate":
            return gemini.read(body).calls
        case _:
            return ollama.read(body, stream=stream).calls


MALFORMED_NAMES = {
    "an id for a name": ("functions.read:0", '{"filePath": "/a"}'),
    "the call in its name": ("read<arg_key>filePath</arg_key><arg_value>/a</arg_value>", "{}"),
    "the call in its name, with line breaks": ("read\n<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>", "{}"),
    "the call in its name and its arguments": ("read<arg_key>filePath</arg_key><arg_value>/a", "</arg_value>"),
    "tags in its arguments": ("read", "<parameter=filePath>\n/a\n</parameter>"),
    "tags in its arguments, and the closing tag": ("read", "<parameter=filePath>\n/a\n</parameter>\n</function>"),
    "pairs of tags in its arguments": ("read", "<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>\n</tool_call>"),
    "the call in its name with other tags": ("read>\n<parameter=filePath>\n/a\n</parameter>\n</function>", "{}"),
}


MALFORMED_CALLS = [
    (name, api, stream)
    for name in (*MALFORMED_NAMES, *REPAIRABLE)
    for api in SHAPES
    for stream in (False, True)
    # In these APIs arguments are an object, not text.
    if not (api == "anthropic-messages" and not stream and (name in REPAIRABLE or MALFORMED_NAMES[name][1] != "{}"))
    if not (
        api in ("ollama-chat", "gemini-generate") and name in MALFORMED_NAMES and MALFORMED_NAMES[name][1][0] != "{"
    )
]


@pytest.mark.parametrize(("name", "api", "stream"), MALFORMED_CALLS)
def test_malformed_call_is_normalized_for_every_client(name: str, api: str, stream: bool) -> None:
    called, arguments = MALFORMED_NAMES[name] if name in MALFORMED_NAMES else ("read", REPAIRABLE[name][0])
    one = open_without_tools(api, stream=stream)
    body = encode_reply(api, called, arguments, stream=stream)
    out = feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)
    assert list_calls(api, out, stream=stream) == [("read", A)]
    assert one.report.failures == []
    assert one.report.calls[0]["repairs"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
def test_valid_call_keeps_its_bytes(api: str, stream: bool) -> None:
    one = open_without_tools(api, stream=stream)
    body = encode_reply(api, "read", '{ "filePath":  "/a</tool_call>" }', stream=stream)
    assert (feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)) == body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
def test_unreadable_call_in_name_is_forwarded_and_reported(api: str, stream: bool) -> None:
    one = open_without_tools(api, stream=stream)
    body = encode_reply(api, "read<arg_key>filePath</arg_key>", "{}", stream=stream)
    assert (feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)) == body
    assert [(refusal["name"], refusal["reason"]) for refusal in one.report.refusals] == [
        ("read", "its name holds more than a name, and cannot be read")
    ]


@pytest.mark.parametrize(
    "arguments", ['{"filePath": "/a", "limit": 1', '{"filePath": "/a", "li', '{"filePath": "/a", "limit":']
)
def test_arguments_truncated_inside_number_or_key_are_not_completed(arguments: str) -> None:
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("read", arguments, "c1"), {"read": Tool("read")}, lenient=True)


def make_custom_call(text: str, **source: Any) -> ToolCall:
    return ToolCall("run", json.dumps({"input": text}), "c", {"type": "custom", "custom": {}, **source})


@pytest.mark.parametrize(
    ("text", "arguments"), [("/a", A), ('{"filePath": "/a"}', A), ('{"filePath": "/a"', A), ('{"filePath": 1}', None)]
)
def test_custom_call_of_function_tool_becomes_function_call(text: str, arguments: Any) -> None:
    (call,), repairs = normalize_call(make_custom_call(text, extra_content="x"), KNOWN_TOOLS, lenient=True)
    assert not call.is_custom
    assert call.source == {"extra_content": "x"}
    assert json.loads(call.arguments) == arguments or arguments is None
    assert repairs


def test_custom_call_of_custom_or_unknown_tool_is_unchanged() -> None:
    call = make_custom_call("/a")
    for tools in ({"run": Tool("run", "", RAW_INPUT_SCHEMA)}, {}):
        assert normalize_call(call, tools, lenient=True).calls == [call]
    with pytest.raises(MalformedCall):
        normalize_call(
            make_custom_call("/a"), {"run": Tool("run", "", {"properties": {"a": {}, "b": {}}})}, lenient=True
        )


@pytest.mark.parametrize("stream", [True, False])
def test_client_receives_custom_call_of_function_tool_as_function_call(stream: bool) -> None:
    entry = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "read", "input": "/a"}}
    body = chat.request(stream=stream, tools=[chat.tool("read", ["filePath"], filePath="string")])
    (api,) = (one for one in APIS if one.name == "openai-chat")
    exchange = Session.open(api, chat.encode_json(body), Facts(path=SHAPES[api.name].path), planner(), "seed")
    frames = [chat.ROLE, chat.chunk({"tool_calls": [entry]}), chat.chunk({}, "tool_calls"), chat.DONE]
    whole = chat.encode_json(chat.completion(None, "tool_calls", message={"tool_calls": [entry]}))
    out = feed_stream(exchange.stream(), *frames) if stream else exchange.whole.rewrite(whole)
    assert chat.read(out).calls == [("read", A)]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages", "openai-responses"])
@pytest.mark.parametrize("server", pairs.NAMES)
def test_id_of_a_past_call_is_replaced(server: str, client: str, stream: bool) -> None:
    """Servers number the calls of each reply from zero, or reuse one id; agents match results by id, and lose them."""
    reply = (
        pairs.make_stream(server, ["I look."], pairs.READ)
        if stream
        else pairs.make_whole_reply(server, "I look.", pairs.READ)
    )
    written = re.search(rb'"(?:call_id|id)": ?"((?:call|toolu)_[^"]*)"', reply)
    used = written[1].decode() if written else "call_0"
    history = json.dumps(SHAPES[client].history)
    past = re.search('"(?:tool_call_id|tool_use_id|call_id)": "([^"]*)"', history)
    assert past
    history = history.replace(past[1], used)
    exchange = Session.open(
        BY_NAME[client],
        make_request_body(client, stream=stream, **json.loads(history)),
        agent(client, stream=stream),
        planner(**({} if client == server else {"upstream_api": (server,)})),
        "seed",
    )
    exchange.encode_request()
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert pairs.read(client, out, stream=stream) == pairs.make_content("I look.", pairs.READ)
    assert f'"{used}"'.encode() not in out


# Truncated calls

PAIR = pytest.mark.parametrize(("client", "server"), [one for one in pairs.CROSSED if one[1] in IN_PIECES])
HALF = '{"filePath": "/a'


@PAIR
@STREAM
@pytest.mark.parametrize("arguments", ["nonsense", '{"a" 1}'])
def test_arguments_without_object_become_text_if_client_needs_object(
    client: str, server: str, stream: bool, arguments: str
) -> None:
    """Clients of the other APIs answer that the arguments are no JSON, and their agent continues."""
    exchange = open_bridge(client, server, stream=stream)
    body = b"".join(stream_calls(server, ("read", [arguments])))
    if client in ("anthropic-messages", "ollama-chat"):
        assert read_client_reply(exchange, client, body, stream=stream) == pairs.make_content(f"read {arguments}")
    else:
        out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        assert json.dumps(arguments)[1:-1].encode() in out


ERRORS = {
    "openai-chat": chat.frame({"error": {"message": "boom"}}),
    "anthropic-messages": b"event: error\ndata: " + chat.encode_json(messages.error("boom")) + b"\n\n",
    "openai-responses": responses.number_events([{"type": "error", "code": "server_error", "message": "boom"}])[0],
}


@PAIR
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_call_is_never_complete_if_server_breaks_off_inside_it(client: str, server: str, error: bool) -> None:
    """The received part is visible, and the client gets the error."""
    frames = b"".join(stream_calls(server, ("read", [HALF]))).split(b"\n\n")
    cut = next(place for place, frame in enumerate(frames) if b"/a" in frame)
    stream = open_bridge(client, server, stream=True).stream()
    out = b"".join(stream.feed(b"\n\n".join([*frames[: cut + 1], b""])))
    out += b"".join([*stream.feed(ERRORS[server]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b'"done":true' not in out
    assert b"/a" in out
    assert (b"boom" if error else b"broke off") in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-chat"])
@pytest.mark.parametrize("error", [True, False], ids=["error", "reset"])
def test_buffered_call_becomes_text_if_server_breaks_off(client: str, error: bool) -> None:
    """Its pieces lack the `type`, so they are buffered until it arrives."""
    stream = open_bridge(client, "openai-chat", stream=True).stream()
    out = b"".join(stream.feed(chat.ROLE + call_piece(0, id="a", name="read", arguments=HALF)))
    out += b"".join([*stream.feed(ERRORS["openai-chat"]), *stream.finish()] if error else stream.break_off("reset"))
    assert not has_whole_call(client, out), out
    assert b"read {" in out


@pytest.mark.parametrize("client", [name for name in pairs.NAMES if name != "openai-responses"])
@pytest.mark.parametrize("status", ["failed", "cancelled", "canceled"])
def test_abandoned_whole_reply_is_an_error(client: str, status: str) -> None:
    body = chat.encode_json({**responses.response(responses.message("Hel")), "status": status, "error": None})
    out = open_bridge(client, "openai-responses", stream=False).whole.rewrite(body)
    assert json.loads(out)["error"]
    assert status.encode() in out


# Disordered calls


def list_repairs(exchange: Session) -> list[str]:
    return [repair for call in exchange.report.calls for repair in call["repairs"]]


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("api", IN_PIECES)
@pytest.mark.parametrize("case", CASES["pieces"], ids=lambda case: case["name"])
def test_arguments_in_pieces_are_normalized(case: dict[str, Any], api: str, client: str) -> None:
    name = case.get("tool", "write")
    expected = pairs.make_content("", [(name, case["arguments"])])
    body = b"".join(stream_calls(api, (name, case["pieces"])))
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
def test_cuts_of_arguments_do_not_change_the_call(case: dict[str, Any], api: str) -> None:
    """Pieces that are snapshots of the object are an exception, because their cuts matter."""
    name, arguments = case.get("tool", "write"), "".join(case["pieces"])
    expected = pairs.make_content("", [(name, case["arguments"])])
    for pieces in ([*arguments], *([arguments[:at], arguments[at:]] for at in range(1, len(arguments)))):
        exchange = open_with_tools(api, api, stream=True)
        assert (
            pairs.read(api, in_cuts(exchange, b"".join(stream_calls(api, (name, pieces))), 1 << 20), stream=True)
            == expected
        )
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
def test_malformed_frames_of_calls_are_normalized(case: dict[str, Any], client: str) -> None:
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
def test_reply_in_gateway_envelope_is_read(api: str, stream: bool) -> None:
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


def test_doubly_encoded_call_is_sent_when_next_call_begins() -> None:
    """The next call is sent piece by piece."""
    encoded = chat.native(0, id="c1", name="write", arguments=json.dumps('{"filePath": "a"}'))
    second = [chat.native(1, id="c2", name="write", arguments=""), chat.native(1, arguments='{"filePath": "b')]
    exchange = open_with_tools("openai-chat", "openai-chat", stream=True)
    stream = exchange.stream()
    sent = [b"".join(stream.feed(chat.chunk({"tool_calls": [piece]}))) for piece in (encoded, *second)]
    assert sent[0] == b""
    assert b'"a' in sent[1] + sent[2]
    assert b'\\"b' in sent[2]
    rest = b"".join(stream.feed(chat.chunk({"tool_calls": [chat.native(1, arguments='"}')]}, "tool_calls")))
    found = chat.read(b"".join([*sent, rest, *stream.finish()]))
    assert found.calls == [("write", {"filePath": "a"}), ("write", {"filePath": "b"})]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_choices_are_separate_if_client_requested_several(stream: bool) -> None:
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


# Calls sent in pieces

each = pytest.mark.parametrize("api", IN_PIECES)


def feed_frames(stream: Stream, frames: list[bytes]) -> list[bytes]:
    """Return the bytes sent for each frame, and at the end."""
    return [b"".join(stream.feed(frame)) for frame in frames] + [b"".join(stream.finish())]


_COMMA = re.compile(r",\s*([}\]])")
WRITE = ("write", ['{"file', 'Path": "a.py", ', '"content": "x = ', '\\"1\\"\\n', 'y = 2\\n"', "}"])


@each
def test_repeated_special_token_at_end_of_value_is_removed_in_linear_time(api: str) -> None:
    """All tokens of a looping model are removed, in time that is linear in their number."""
    text = '{"filePath": "/a' + "</｜DSML｜parameter>" * 10_000 + '"}'
    frames = stream_calls(api, ("read", [text[at : at + 200] for at in range(0, len(text), 200)]))
    body = b"".join(feed_frames(open_with_tools(api, api).stream(), frames))
    assert list_calls(api, body) == [("read", {"filePath": "/a"})]


@each
def test_pieces_of_valid_call_are_forwarded_at_once(api: str) -> None:
    frames = stream_calls(api, WRITE, WRITE)
    sent = feed_frames(open_with_tools(api, api).stream(), frames)
    assert b"".join(sent) == b"".join(frames)
    late = [place for place, (frame, out) in enumerate(zip(frames, sent, strict=False)) if frame not in out]
    assert all(b"y = 2" not in frames[place] and frames[place] != b"1" for place in late)
    assert len(late) <= 4 * 2  # the beginnings, until the first key is known, and a comma


@each
@pytest.mark.parametrize(
    ("pieces", "arguments", "repair"),
    [
        (['{"limit', '": "', "4", '2", "filePath": "a', '"}'], {"limit": 42, "filePath": "a"}, "typed:limit"),
        (['{"filePath": "a", "limit": "4', "2", '"}'], {"filePath": "a", "limit": 42}, "typed:limit"),
        (['{"tags": "[\\"x\\"', ', \\"y\\"]", ', '"limit": 1}'], {"tags": ["x", "y"], "limit": 1}, "typed:tags"),
        (['{"filePath": "a"', '}{"filePath": "a"}'], {"filePath": "a"}, "written-twice"),
        (['{"filePath": "a"', "}", "</tool_call>"], {"filePath": "a"}, "markup-around"),
        (['{"filePath": "a"', "}", "}"], {"filePath": "a"}, "extra-brace"),
        (['{"limit": 1, "file', 'Path": "a"'], {"filePath": "a", "limit": 1}, "json-cut"),
        (['{"filePath": "a" "lim', 'it": 1}'], {"filePath": "a", "limit": 1}, "json-missing-comma"),
        (['{"filePath": ', "Pura", '90"}'], {"filePath": "Pura90"}, "json-missing-quote"),
        (['{"limit": 1, "filePath": a', '"}'], {"filePath": "a", "limit": 1}, "json-missing-quote"),
        (["{}", '{"filePath"', ': "a"}'], {"filePath": "a"}, "empty-object"),
        (["{'filePath'", ": 'a'}"], {"filePath": "a"}, "python-literal"),
        (['{"input": {"file', 'Path": "a"}}'], {"filePath": "a"}, "arguments-key"),
    ],
)
def test_late_fault_in_arguments_is_repaired(
    api: str, pieces: list[str], arguments: dict[str, Any], repair: str
) -> None:
    one = open_with_tools(api, api)
    body = b"".join(feed_frames(one.stream(), stream_calls(api, ("read", pieces))))
    assert list_calls(api, body) == [("read", arguments)]
    assert [repair] == [name for call in one.report.calls for name in call["repairs"]]


@each
@pytest.mark.parametrize(
    "pieces",
    [
        ['{"filePath": "a"', ",}"],
        ['{"filePath": "a"', ",", "}"],
        ['{"filePath"', ': "a",', " \n", " }"],
        ['{"filePath"', ': "a",', "", "}", ""],
        ['{"filePath": "a", "tags": ["x"', ",", "]", "}"],
        ['{"filePath": "a", "tags"', ': ["x"],', "}"],
    ],
)
@pytest.mark.parametrize("others", [[], [WRITE]], ids=["alone", "before another"])
def test_trailing_comma_is_never_sent_in_any_cut(api: str, pieces: list[str], others: list[Any]) -> None:
    one = open_with_tools(api, api)
    body = b"".join(feed_frames(one.stream(), stream_calls(api, ("read", pieces), *others)))
    name, arguments = list_calls(api, body)[0]
    assert (name, arguments) == ("read", json.loads(_COMMA.sub(r"\1", "".join(pieces))))
    assert [call for call, _ in list_calls(api, body)] == ["read", *(name for name, _ in others)]
    assert "json-trailing-comma" in {name for call in one.report.calls for name in call["repairs"]}
    assert one.report.refusals == []


@pytest.mark.parametrize(
    "pieces", [['{"filePath": "a",', "}"], ['{"filePath": "a"', ",", "}"], ['{"filePath": "a"', ",}"]]
)
def test_trailing_comma_is_not_sent_if_its_frame_has_the_finish_reason(pieces: list[str]) -> None:
    *frames, _, used, done = stream_calls("openai-chat", ("read", pieces[:-1]))
    end = chat.chunk({"tool_calls": [chat.native(0, arguments=pieces[-1])]}, "tool_calls")
    one = open_with_tools("openai-chat", "openai-chat")
    body = b"".join(feed_frames(one.stream(), [*frames, end, used, done]))
    assert list_calls("openai-chat", body) == [("read", {"filePath": "a"})]
    assert chat.read(body).finish_reason == "tool_calls"


@each
def test_frames_with_valid_comma_are_forwarded_unchanged(api: str) -> None:
    pieces = ['{"filePath": "a"', ",", " ", '"tags"', ': ["x",', '"y"', ",", '"z"], ', '"limit"', ": 1}"]
    frames = stream_calls(api, ("read", pieces), WRITE)
    sent = feed_frames(open_with_tools(api, api).stream(), frames)
    assert b"".join(sent) == b"".join(frames)
    assert len([out for out in sent[:-1] if not out]) <= 5 + 3 * 2  # commas, and the beginnings of two calls


@each
@pytest.mark.parametrize("pieces", [['{"filePath": "a <', 'b"}'], ['{"filePath": "</', "<", 'b", "limit": 9', "0}"]])
def test_frames_with_partial_marker_that_is_none_are_forwarded_unchanged(api: str, pieces: list[str]) -> None:
    frames = stream_calls(api, ("read", pieces), WRITE)
    assert b"".join(feed_frames(open_with_tools(api, api).stream(), frames)) == b"".join(frames)


@each
@pytest.mark.parametrize("begun", [[], ['{"filePath": "a", '], ['{"filePath": "a", "limit": "4']])
def test_long_piece_is_parsed_completely_at_end_of_call(api: str, begun: list[str]) -> None:
    """Parsing it as it arrives would block all other streams: one of 100,000 keys took a second."""
    rest = ", ".join(f'"k{number}": {number}' for number in range(5000)) + "}"
    pieces = [*begun, ('2", ' if len(begun[-1:]) and "limit" in begun[-1] else "" if begun else "{") + rest]
    one = open_with_tools(api, api)
    (call,) = list_calls(api, b"".join(feed_frames(one.stream(), stream_calls(api, ("read", pieces)))))
    expected = {"filePath": "a"} if begun else {}
    expected |= {"limit": 42} if "limit" in "".join(begun) else {}  # type: ignore[dict-item]
    assert call == ("read", expected | {f"k{number}": number for number in range(5000)})
    assert one.report.refusals == []


def test_replacement_of_denied_call_is_sent_after_undecided_text(tmp_path: Path) -> None:
    """A lone backtick can begin a code block; it was sent after the message about a later call."""
    policy = {"kind": "policy", "name": "mine", "match": {}, "guards": {"denied_tools": ["read"], "on_denied": "steer"}}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json(policy))
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    body = chat.encode_json(SHAPES["openai-chat"].request(stream=True))
    (api,) = [one for one in APIS if one.name == "openai-chat"]
    stream = Session.open(api, body, Facts(user_agent="Any/1"), strict, "seed").stream()
    calls = [("read", ['{"filePath": "/a"}']), ("list_files", ['{"path": "."}'])]
    first, *frames = stream_calls("openai-chat", *calls)
    found = chat.read(b"".join(feed_frames(stream, [first, *chat.make_text_chunks("`"), *frames])))
    assert found.content == "`\n\nThe tool `read` may not be used here, so the call was not carried out."
    assert found.calls == [("list_files", {"path": "."})]


@each
def test_repair_of_call_is_sent_before_next_call(api: str) -> None:
    """It was sent at the end of the reply, after the next call had begun."""
    frames = stream_calls(api, ("read", ['{"filePath": "a', '\nb"', ', "limit": 1}']), WRITE)
    calls = list_calls(api, b"".join(feed_frames(open_with_tools(api, api).stream(), frames)))
    assert calls == [("read", {"filePath": "a\nb", "limit": 1}), ("write", json.loads("".join(WRITE[1])))]


def test_cost_of_text_after_buffered_call_does_not_depend_on_its_length() -> None:
    def copies(size: int) -> int:
        """Count the values that are copied for text after a call in `size` pieces, which is buffered until its end."""
        count = 0

        def note(_: object, event: str, function: Any) -> None:
            nonlocal count
            count += event == "c_call" and function.__name__ == "replace"

        stream = open_with_tools("openai-chat", "openai-chat").stream()
        call = stream_calls("openai-chat", ("read", ['{"unknown": "', *["x"] * size, '"}']))[:-3]
        *texts, last = chat.make_text_chunks("One ", "two ", "three ", "four ")
        for frame in [*call, *texts]:
            stream.feed(frame)
        sys.setprofile(note)
        try:
            stream.feed(last)
        finally:
            sys.setprofile(None)
        return count

    assert 0 < copies(200) == copies(20)


@each
def test_further_objects_in_arguments_are_separate_calls(api: str) -> None:
    pieces = ['{"filePath": ', '"a"}', '{"filePath"', ': "b"}']
    body = b"".join(feed_frames(open_with_tools(api, api).stream(), stream_calls(api, ("read", pieces))))
    assert list_calls(api, body) == [("read", {"filePath": "a"}), ("read", {"filePath": "b"})]


@each
@pytest.mark.parametrize("last", [["{}"], ['{"filePath": "c"}'], ['{"file', 'Path": "c"', "}"]])
def test_further_objects_in_arguments_are_calls_before_later_calls(api: str, last: list[str]) -> None:
    for pieces in (['{"filePath": "a"}', '{"filePath": "b"}'], ['{"filePath": "a"}{"filePath"', ': "b"}']):
        frames = stream_calls(api, ("read", pieces), ("write", last), ("read", ['{"filePath": "d"}']))
        calls = list_calls(api, b"".join(feed_frames(open_with_tools(api, api).stream(), frames)))
        later = [("write", json.loads("".join(last))), ("read", {"filePath": "d"})]
        assert calls == [("read", {"filePath": "a"}), ("read", {"filePath": "b"}), *later]


@each
def test_fault_after_sent_pieces_is_reported_and_rest_is_forwarded(api: str) -> None:
    pieces = ['{"filePath": "a", ', '"limit": 1', ": 2", "}"]
    one = open_with_tools(api, api)
    body = b"".join(feed_frames(one.stream(), stream_calls(api, ("read", pieces))))
    assert [refusal["name"] for refusal in one.report.refusals] == ["read"]
    assert one.report.failures == []
    with pytest.raises(json.JSONDecodeError):
        list_calls(api, body)


@each
def test_buffered_call_is_sent_when_next_call_begins(api: str) -> None:
    waits = ("read", ["{}", '{"filePath": "a"}'])
    frames = stream_calls(api, ("read", ['{"unknown": 1}']), WRITE)
    sent = feed_frames(open_with_tools(api, api).stream(), frames)
    whole = b"".join(sent)
    assert [name for name, _ in list_calls(api, whole)] == ["read", "write"]
    until = next(place for place, frame in enumerate(frames) if b"y = 2" in frame)
    assert b"unknown" in b"".join(sent[:until])
    body = b"".join(feed_frames(open_with_tools(api, api).stream(), stream_calls(api, waits, WRITE)))
    assert [name for name, _ in list_calls(api, body)] == ["read", "write"]


def _texts(arguments: dict[str, Any]) -> list[str]:
    return [arguments["filePath"], arguments.get("content", ""), *arguments.get("tags", ())]


VALUES = st.fixed_dictionaries(
    {"filePath": st.text(max_size=8)},
    optional={
        "content": st.text(max_size=30) | st.text("</1,a", max_size=8),
        "limit": st.integers(-5, 5_000),
        "tags": st.lists(st.text(max_size=5), max_size=3),
    },
)


@each
@given(data=st.data())
def test_joined_pieces_equal_arguments_in_any_cut(api: str, data: st.DataObject) -> None:
    arguments = [data.draw(VALUES) for _ in range(data.draw(st.integers(1, 3)))]
    calls = []
    for one in arguments:
        text = json.dumps(one, ensure_ascii=data.draw(st.booleans()))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        calls.append(("write", [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]))
    frames = stream_calls(api, *calls)
    body = b"".join(feed_frames(open_with_tools(api, api).stream(), frames))
    if not any(
        re.search("</?[|｜]", value) for one in arguments for value in _texts(one)
    ):  # more than one special token
        assert body == b"".join(frames)
    assert list_calls(api, body) == [("write", one) for one in arguments]


NAVIGATE = "mcp__web__navigate"
NAVIGATION_TOOLS = {
    NAVIGATE: {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
    "mcp__web__close": {"type": "object"},
    "mcp__db__close": {"type": "object"},
}


@pytest.mark.every
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize(
    ("written", "arguments", "name"),
    [
        ("navigate", {"url": "x"}, NAVIGATE),
        ("web:navigate", {"url": "x"}, NAVIGATE),
        ("db:navigate", {"url": "x"}, "db:navigate"),
        ("navigate", {"href": "x"}, "navigate"),
        ("close", {}, "close"),
    ],
)
def test_tool_without_its_server_is_resolved_and_judged(
    api: str, written: str, arguments: Any, name: str, tmp_path: Path, *, stream: bool
) -> None:
    guards = {"denied_tools": [NAVIGATE], "on_denied": "steer"}
    (tmp_path / "mine.yaml").write_text(json.dumps({"kind": "policy", "name": "mine", "match": {}, "guards": guards}))
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    (found,) = [one for one in APIS if one.name == api]
    request = SHAPES[api].request(stream=stream, tools=declare_tools(api, NAVIGATION_TOOLS))
    text = f"<tool_call>\n{json.dumps({'name': written, 'arguments': arguments})}\n</tool_call>"
    as_text = b"".join(SHAPES[api].streamed(*text)) if stream else chat.encode_json(SHAPES[api].whole(text))
    in_text = [] if name == "db:navigate" else [(name, arguments)]  # no tool that is not offered has such a name
    for body, calls in (
        (encode_reply(api, written, json.dumps(arguments), stream=stream), [(name, arguments)]),
        (as_text, in_text),
    ):
        for plans, made in ((planner(), calls), (strict, [] if name == NAVIGATE else calls)):
            facts = Facts(user_agent="Any/1", host="127.0.0.1", path=SHAPES[api].build_path(stream=stream))
            one = Session.open(found, chat.encode_json(request), facts, plans, "seed")
            out = feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)
            assert list_calls(api, out, stream=stream) == made
            assert one.report.failures == []
