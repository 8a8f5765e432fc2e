"""Malformed native calls of every API, and their normalized form for the client."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, pairs, responses
from tests.apis.shapes import SHAPES, make_request_body
from tests.exchange.ready.steps import BY_NAME
from tests.exchanges import agent, feed_stream, planner
from vtc.apis import APIS
from vtc.apis.calls import RAW_INPUT_SCHEMA
from vtc.dialects import Repair
from vtc.events import Tool, ToolCall
from vtc.exchange import Session
from vtc.exchange.replying.native_calls import MalformedCall, normalize_call
from vtc.profiles import Facts

READ = {
    "type": "object",
    "properties": {"filePath": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["filePath"],
}
TOOLS = {name: Tool(name, "", READ) for name in ("read", "run", "run_2")} | {"list": Tool("list", "", {})}
A = {"filePath": "/a"}

MENDED = {
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
HOPELESS = {
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


@pytest.mark.parametrize("name", MENDED)
def test_broken_arguments_are_mended_as_in_text_and_told(name: str) -> None:
    written, repairs = MENDED[name]
    found = normalize_call(ToolCall("read", written, "c"), TOOLS, lenient=True)
    assert [(call.name, json.loads(call.arguments), call.id) for call in found.calls] == [("read", A, "c")]
    assert list(found.repairs) == repairs


@pytest.mark.parametrize("name", [*HOPELESS, "a brace is missing", "single quotes"])
def test_arguments_of_which_it_is_not_sure_what_they_are_are_refused(name: str) -> None:
    """This includes repairable arguments if repairs are disabled, and an object cut off by the end of a reply."""
    written = HOPELESS.get(name) or MENDED[name][0]
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("read", written), TOOLS, lenient=name in HOPELESS)


def test_an_object_is_not_closed_where_the_reply_was_cut_off() -> None:
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("list", '{"path": "/a"'), TOOLS, lenient=True, complete=False)


def test_an_object_that_broke_off_after_a_value_is_replaced_by_the_whole_one() -> None:
    """An object that broke off elsewhere could contain the following one, so it is read as before."""
    whole = {"filePath": "/a", "limit": 3}
    found = normalize_call(ToolCall("read", '{"filePath": "/a"' + json.dumps(whole)), TOOLS, lenient=True)
    assert ([json.loads(call.arguments) for call in found.calls], found.repairs) == ([whole], (Repair.SNAPSHOTS,))
    inner = normalize_call(ToolCall("list", '{"path":{"path":"a"}'), TOOLS, lenient=True)
    assert [json.loads(call.arguments) for call in inner.calls] == [{"path": {"path": "a"}}]


def test_an_empty_object_is_a_call_where_nothing_is_required() -> None:
    found = normalize_call(ToolCall("list", '{}{"path": "/a"}'), TOOLS, lenient=True)
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
def test_arguments_that_may_be_meant_so_stay(written: str) -> None:
    found = normalize_call(ToolCall("read", written), TOOLS, lenient=True)
    assert ([call.arguments for call in found.calls], found.repairs) == ([written], ())


@pytest.mark.parametrize("inner", ["{ echo 1; }", '"quoted"', '{"x": 1}', "json{1}"])
def test_the_one_required_text_stays_text_that_looks_like_an_object(inner: str) -> None:
    found = normalize_call(ToolCall("read", json.dumps(inner)), TOOLS, lenient=True)
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
def test_a_name_means_the_one_tool_that_it_can_mean(written: str, name: str | None) -> None:
    found = normalize_call(ToolCall(written, '{"filePath": "/a"}'), TOOLS, lenient=True)
    assert (found.calls[0].name, found.repairs) == ((name, (Repair.TOOL_NAME,)) if name else (written, ()))


@pytest.mark.parametrize("written", ["read<arg_key>filePath", "read(filePath=/a)", 'read" filePath="/a"'])
def test_a_name_that_holds_more_than_a_name_is_refused(written: str) -> None:
    """Otherwise an argument would be lost."""
    with pytest.raises(MalformedCall, match="more than a name"):
        normalize_call(ToolCall(written, "{}"), TOOLS, lenient=True)


# All APIs


def exchange(api: str, *, stream: bool) -> Session:
    (found,) = [one for one in APIS if one.name == api]
    body = chat.encode_json(SHAPES[api].request(stream=stream))
    facts = Facts(user_agent="Any/1", host="127.0.0.1", path=SHAPES[api].build_path(stream=stream))
    return Session.open(found, body, facts, planner(), "seed")


def calling(api: str, name: str, arguments: str, *, stream: bool) -> bytes:
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
                said: Any = json.loads(arguments)
            except ValueError:
                said = arguments
            if api == "gemini-generate":
                part = {"functionCall": {"name": name, "args": said}}
                made = gemini.make_stream(gemini.frame(gemini.event(part)))
                return b"".join(made) if stream else chat.encode_json(gemini.reply(part))
            call = {"function": {"name": name, "arguments": said}}
            return (
                b"".join(ollama.make_stream(ollama.piece("", call)))
                if stream
                else chat.encode_json(ollama.message("", call))
            )


def list_calls(api: str, body: bytes, *, stream: bool) -> list[tuple[str, Any]]:
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


NAMES = {
    "an id for a name": ("functions.read:0", '{"filePath": "/a"}'),
    "the call in its name": ("read<arg_key>filePath</arg_key><arg_value>/a</arg_value>", "{}"),
    "the call in its name, with line breaks": ("read\n<arg_key>filePath</arg_key>\n<arg_value>/a</arg_value>", "{}"),
    "the call in its name and its arguments": ("read<arg_key>filePath</arg_key><arg_value>/a", "</arg_value>"),
    "the call in its name with other tags": ("read>\n<parameter=filePath>\n/a\n</parameter>\n</function>", "{}"),
}


CASES = [
    (name, api, stream)
    for name in (*NAMES, *MENDED)
    for api in SHAPES
    for stream in (False, True)
    # In these APIs arguments are an object, not text.
    if not (api == "anthropic-messages" and not stream and (name in MENDED or NAMES[name][1] != "{}"))
    if not (api in ("ollama-chat", "gemini-generate") and name in NAMES and NAMES[name][1][0] != "{")
]


@pytest.mark.parametrize(("name", "api", "stream"), CASES)
def test_a_troubled_call_reaches_every_client_in_order(name: str, api: str, stream: bool) -> None:
    called, arguments = NAMES[name] if name in NAMES else ("read", MENDED[name][0])
    one = exchange(api, stream=stream)
    body = calling(api, called, arguments, stream=stream)
    out = feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)
    assert list_calls(api, out, stream=stream) == [("read", A)]
    assert one.report.failures == []
    assert one.report.calls[0]["repairs"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
def test_a_clean_call_keeps_its_bytes(api: str, stream: bool) -> None:
    one = exchange(api, stream=stream)
    body = calling(api, "read", '{ "filePath":  "/a</tool_call>" }', stream=stream)
    assert (feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)) == body


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
def test_a_call_in_a_name_that_cannot_be_read_passes_and_is_told(api: str, stream: bool) -> None:
    one = exchange(api, stream=stream)
    body = calling(api, "read<arg_key>filePath</arg_key>", "{}", stream=stream)
    assert (feed_stream(one.stream(), body) if stream else one.whole.rewrite(body)) == body
    assert [(told["name"], told["reason"]) for told in one.report.refusals] == [
        ("read", "its name holds more than a name, and cannot be read")
    ]


@pytest.mark.parametrize(
    "arguments", ['{"filePath": "/a", "limit": 1', '{"filePath": "/a", "li', '{"filePath": "/a", "limit":']
)
def test_arguments_that_end_within_a_number_or_a_name_are_not_completed(arguments: str) -> None:
    with pytest.raises(MalformedCall):
        normalize_call(ToolCall("read", arguments, "c1"), {"read": Tool("read")}, lenient=True)


def custom(said: str, **source: Any) -> ToolCall:
    return ToolCall("run", json.dumps({"input": said}), "c", {"type": "custom", "custom": {}, **source})


@pytest.mark.parametrize(
    ("said", "arguments"), [("/a", A), ('{"filePath": "/a"}', A), ('{"filePath": "/a"', A), ('{"filePath": 1}', None)]
)
def test_a_custom_call_of_a_function_is_one_of_the_function(said: str, arguments: Any) -> None:
    (call,), repairs = normalize_call(custom(said, extra_content="x"), TOOLS, lenient=True)
    assert not call.is_custom
    assert call.source == {"extra_content": "x"}
    assert json.loads(call.arguments) == arguments or arguments is None
    assert repairs


def test_a_custom_call_of_a_custom_tool_or_of_none_is_left_alone() -> None:
    call = custom("/a")
    for tools in ({"run": Tool("run", "", RAW_INPUT_SCHEMA)}, {}):
        assert normalize_call(call, tools, lenient=True).calls == [call]
    with pytest.raises(MalformedCall):
        normalize_call(custom("/a"), {"run": Tool("run", "", {"properties": {"a": {}, "b": {}}})}, lenient=True)


@pytest.mark.parametrize("stream", [True, False])
def test_a_custom_call_of_a_function_reaches_the_client_as_one_of_the_function(stream: bool) -> None:
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
def test_an_id_that_a_past_call_has_is_made_anew(server: str, client: str, stream: bool) -> None:
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
    exchange.request()
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert pairs.read(client, out, stream=stream) == pairs.make_content("I look.", pairs.READ)
    assert f'"{used}"'.encode() not in out
