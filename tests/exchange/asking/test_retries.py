"""Requests that a server rejects: retried with the quirks of each rejection, which later requests include at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.shapes import make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.asking.servers import RULES, send_until_accepted
from tests.exchanges import AGENT, agent, feed_stream, planner
from tests.known import EXPIRES, MAX_REQUESTS
from vtc.events import Tool
from vtc.exchange import Session
from vtc.profiles import Memory

type Json = dict[str, Any]


def function(name: str = "read", /, **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties or {"filePath": {"type": "string"}}, "required": []}
    return {"type": "function", "function": {"name": name, "description": "Does.", "parameters": schema}}


def call(id_: str, name: str = "read") -> Json:
    made = {"id": id_, "type": "function", "function": {"name": name, "arguments": '{"filePath": "/a"}'}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(id_: str, text: str = "found") -> Json:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def user(text: Any) -> Json:
    return {"role": "user", "content": text}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SYSTEM = {"role": "system", "content": "note"}
LISTED = [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]
NARROW = [
    function("fetch", url={"type": "string", "pattern": "^(?!x).*$"}, any={"description": "No type."}),
    function("create", body={"type": "string", "maxLength": 65536}, of={"$ref": "https://example.com/other"}),
]
ASKED: dict[str, tuple[str, Json]] = {
    "system amid": ("system first", {"messages": [user("one"), {"role": "system", "content": "note"}, user("two")]}),
    "developer": ("system first", {"messages": [{"role": "developer", "content": "Be brief."}, user("one")]}),
    "developer amid": ("system first", {"messages": [user("one"), {"role": "developer", "content": "note"}]}),
    "two users": ("mistral", {"messages": [user("one"), user("two")]}),
    "user after result": ("mistral", {"messages": [user("one"), call("123456789"), result("123456789"), user("two")]}),
    "foreign ids": ("mistral", {"messages": [user("one"), call("toolu_01ABC"), result("toolu_01ABC")]}),
    "three rules": (
        "mistral",
        {"messages": [user("one"), user("two"), call("123456789"), result("123456789"), SYSTEM]},
    ),
    "gemma": ("gemma", {"messages": [user("one"), user(LISTED)]}),
    "lists": ("no empty turn", {"messages": [user(LISTED)]}),
    "an empty turn": ("no empty turn", {"messages": [user("one"), {"role": "assistant", "content": ""}, user("two")]}),
    "schemas": ("grammar", {"tools": NARROW}),
    "strange names": ("deepseek", {"tools": [function("a.b/c"), function("x" * 80)]}),
    "images": ("deepseek", {"messages": [user([{"type": "text", "text": "one"}, IMAGE])]}),
    "too long a reply": ("deepseek", {"max_tokens": 64000}),
    "all of DeepSeek": (
        "deepseek",
        {"messages": [{"role": "developer", "content": "x"}], "max_tokens": 64000, "tools": [function("a.b")]},
    ),
    "user after result at Mistral": ("mistral's API", {"messages": [user("one"), call("a"), result("a"), user("two")]}),
    "results elsewhere": ("order", {"messages": [user("one"), call("a"), user("two"), result("a")]}),
    "a result of no call": ("order", {"messages": [user("one"), result("a", "lost")]}),
    "lists for Ollama": ("strings", {"messages": [user(LISTED)]}),
}


def open_client(
    memory: Memory | None = None, client: str = "openai-chat", settings: Json | None = None, **fields: Any
) -> Session:
    return Session.open(
        BY_NAME[client],
        make_request_body(client, **fields),
        agent(client, stream=fields.get("stream")),
        planner(**settings or {}),
        "seed",
        memory,
    )


def texts(body: Json) -> str:
    return json.dumps(body["messages"], ensure_ascii=False)


@pytest.mark.parametrize("case", ASKED)
def test_a_refused_request_is_asked_until_it_is_taken_and_the_next_one_at_once(case: str) -> None:
    rule, fields = ASKED[case]
    memory = Memory()
    first = send_until_accepted(open_client(memory, **fields), RULES[rule])
    assert 1 < len(first) <= MAX_REQUESTS
    for word in ("one", "two", "parts", "note", "lost", "found", "Be brief."):
        assert (word in texts(first[0])) == (word in texts(first[-1]))
    (again,) = send_until_accepted(open_client(memory, **fields), RULES[rule])
    assert again == first[-1]


EVERYTHING = [
    user("one"),
    user("two"),
    call("toolu_1"),
    result("toolu_1"),
    SYSTEM,
    {"role": "developer", "content": "x"},
]


@pytest.mark.parametrize(
    ("rule", "settings", "fields"),
    [
        ("mistral", {"model": "mistral", "server": "vllm"}, {"messages": EVERYTHING}),
        ("mistral's API", {"server": "mistral"}, {"messages": EVERYTHING}),
        ("gemma", {"model": "gemma", "server": "vllm"}, {"messages": [user("one"), SYSTEM, user("two")]}),
        ("system first", {"model": "qwen3.5", "server": "vllm"}, {"messages": EVERYTHING}),
        ("grammar", {"server": "llama.cpp"}, {"tools": NARROW}),
        ("grammar", {"server": "lm-studio"}, {"tools": NARROW}),
        ("deepseek", {"server": "deepseek"}, {"messages": EVERYTHING, "tools": [function("a.b")]}),
    ],
)
def test_profile_prevents_the_rejections_of_its_server(rule: str, settings: Json, fields: Json) -> None:
    assert len(send_until_accepted(open_client(settings=settings, **fields), RULES[rule])) == 1


@pytest.mark.parametrize(
    "server", ["hosted", "vllm", "sglang", "llama.cpp", "lm-studio", "ollama", "mistral", "deepseek"]
)
def test_a_request_of_which_a_server_takes_all_is_the_very_bytes(server: str) -> None:
    fields = {"messages": [SYSTEM, user("one"), call("123456789"), result("123456789")], "tools": [function()]}
    exchange = open_client(settings={"server": server}, **fields)
    exchange.report.request.clear()
    given = json.loads(make_request_body("openai-chat", **fields))
    fields_set = exchange.plan.stack.request.set
    assert fields_set or exchange.encode_request() == make_request_body("openai-chat", **fields)
    assert {**json.loads(exchange.encode_request()), **fields_set} == {
        **given,
        **fields_set,
    }
    assert not exchange.report.request


@pytest.mark.parametrize("case", ASKED)
def test_request_that_no_server_rejects_keeps_its_bytes(case: str) -> None:
    """The server accepts everything, although another one taught the same client many quirks."""
    memory = Memory()
    _, fields = ASKED[case]
    assert open_client(memory, **fields).encode_request() == make_request_body("openai-chat", **fields)


def test_quirk_changes_nothing_in_a_request_without_its_subject() -> None:
    memory = Memory()
    for rule, fields in ASKED.values():
        send_until_accepted(open_client(memory, **fields), RULES[rule])
    plain: Json = {
        "messages": [{"role": "system", "content": "s"}, user("one"), {"role": "assistant", "content": "two"}]
    }
    assert open_client(memory, **plain).encode_request() == make_request_body("openai-chat", **plain)


def test_quirk_is_reported_and_forgotten_after_a_day() -> None:
    now = [0.0]
    memory = Memory(clock=lambda: now[0])
    rule, fields = ASKED["schemas"]
    exchange = open_client(memory, **fields)
    send_until_accepted(exchange, RULES[rule], status=500)
    reports = ", ".join(exchange.report.request)
    assert "2 schemas simplified (fetch: pattern, no type; create: maxLength, $ref, no type)" in reports
    assert "applied at once from now on: schemas" in str(exchange.report.notes)
    now[0] = EXPIRES - 1
    assert "changed since the server rejected a request: schemas" in open_client(memory, **fields).plan.why
    now[0] = EXPIRES + 1
    assert open_client(memory, **fields).encode_request() == make_request_body("openai-chat", **fields)


def test_useless_quirk_is_forgotten() -> None:
    memory = Memory()
    _, fields = ASKED["schemas"]
    exchange = open_client(memory, **fields)
    exchange.encode_request()
    assert exchange.encode_after_rejection(b'{"error": "failed to parse grammar"}', 400) is not None
    assert exchange.encode_after_rejection(b'{"error": "failed to parse grammar"}', 400) is None
    assert open_client(memory, **fields).encode_request() == make_request_body("openai-chat", **fields)


def test_other_client_learns_from_its_own_rejections() -> None:
    memory = Memory()
    rule, fields = ASKED["schemas"]
    send_until_accepted(open_client(memory, **fields), RULES[rule])
    from dataclasses import replace

    other = replace(AGENT, headers={"authorization": "Bearer other"})
    exchange = Session.open(
        BY_NAME["openai-chat"], make_request_body("openai-chat", **fields), other, planner(), "seed", memory
    )
    assert exchange.encode_request() == make_request_body("openai-chat", **fields)


@pytest.mark.parametrize("client", ["anthropic-messages", "openai-responses", "ollama-chat"])
def test_clients_of_other_apis_are_retried_equally(client: str) -> None:
    memory, settings = Memory(), {"upstream_api": ("openai-chat",)}
    tools = BY_NAME["openai-chat"].request(chat.encode_json(chat.request(tools=NARROW))).offer.tools
    declared = [BY_NAME[client].writer.TOOL_WRITER.render_declaration(one) for one in tools]
    assert len(send_until_accepted(open_client(memory, client, settings, tools=declared), RULES["grammar"])) == 2
    assert len(send_until_accepted(open_client(memory, client, settings, tools=declared), RULES["grammar"])) == 1


def test_a_call_is_fitted_to_the_whole_schema() -> None:
    """This holds although the server received a simplified schema."""
    count = {"anyOf": [{"type": "integer"}, {"type": "null"}], "maximum": 5}
    exchange = open_client(settings={"server": "llama.cpp"}, tools=[function("count", n=count)])
    sent = json.loads(exchange.encode_request())["tools"][0]["function"]["parameters"]["properties"]["n"]
    assert sent == {"type": "integer", "description": "(maximum: 5)"}
    body = chat.encode_json(
        chat.completion(None, "tool_calls", message=_calling("count", '{"n": "null"}')),
    )
    (found,) = json.loads(exchange.whole.rewrite(body))["choices"][0]["message"]["tool_calls"]
    assert json.loads(found["function"]["arguments"]) == {"n": None}


def _calling(name: str, arguments: str) -> Json:
    entry = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [entry]}


# Shortened names


LONG = "mcp__" + "x" * 80
WIRE = f"{LONG[:55]}_"


def open_long_name(**fields: Any) -> tuple[Session, str]:
    exchange = open_client(settings={"server": "deepseek"}, tools=[function(LONG)], **fields)
    (tool,) = json.loads(exchange.encode_request())["tools"]
    assert tool["function"]["name"].startswith(WIRE)
    return exchange, tool["function"]["name"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("form", ["call", "text"])
def test_a_tool_whose_name_was_shortened_is_called_by_its_own(stream: bool, form: str) -> None:
    exchange, wire = open_long_name(stream=stream)
    text = f'<tool_call>\n{{"name": "{wire}", "arguments": {{"filePath": "/a"}}}}\n</tool_call>'
    calls = [(wire, {"filePath": "/a"})] if form == "call" else []
    texts = [] if calls else [text]
    if stream:
        body = pairs.make_stream("openai-chat", texts, calls)
        output = feed_stream(exchange.stream(), *(body[at : at + 7] for at in range(0, len(body), 7)))
    else:
        output = exchange.whole.rewrite(pairs.make_whole_reply("openai-chat", "".join(texts), calls))
    assert pairs.read("openai-chat", output, stream=stream).calls == ((LONG, '{"filePath": "/a"}'),)


def test_names_are_the_same_in_history_and_in_the_choice() -> None:
    choice = {"type": "function", "function": {"name": LONG}}
    exchange, wire = open_long_name(messages=[user("one"), call("a", LONG), result("a")], tool_choice=choice)
    body = json.loads(exchange.encode_request())
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == wire
    assert body["tool_choice"]["function"]["name"] == wire


# The choice of a tool


@pytest.mark.parametrize(
    ("choice", "expected", "line"),
    [
        ("none", [], "no tools offered"),
        ({"type": "function", "function": {"name": "write"}}, ["write"], "expressed in the prompt"),
        ("required", ["read", "write"], "tool_choice required: expressed in the prompt"),
        ("auto", ["read", "write"], ""),
    ],
)
def test_a_choice_that_a_server_does_not_heed_is_carried_out_here(choice: Any, expected: list[str], line: str) -> None:
    exchange = open_client(
        settings={"server": "ollama"}, tools=[function("read"), function("write")], tool_choice=choice
    )
    body = json.loads(exchange.encode_request())
    assert [one["function"]["name"] for one in body.get("tools", [])] == expected
    assert ("tool_choice" in body) == (not line)
    assert line in ", ".join(exchange.report.request)


# The window


def make_windowed_opener(tmp: Any, context: int = 65536) -> Callable[..., Session]:
    from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

    (tmp / "mine.yaml").write_text(f"kind: server\nname: mine\nmatch: {{}}\nready: {{context: {context}}}\n")
    profiles = load_profiles([builtin_directory(), tmp])

    def open_windowed(client: str, server: str, **fields: Any) -> Session:
        settings = Settings(server="mine", upstream_api=(server,))
        return Session.open(
            BY_NAME[client],
            make_request_body(client, **fields),
            agent(client, stream=fields.get("stream")),
            Planner(profiles, settings),
            "seed",
        )

    return open_windowed


@pytest.mark.parametrize("client", pairs.NAMES)
def test_ollamas_api_gets_the_window(client: str, tmp_path: Any) -> None:
    body = json.loads(make_windowed_opener(tmp_path)(client, "ollama-chat").encode_request())
    assert (body["options"]["num_ctx"], body["truncate"]) == (65536, False)


def test_window_of_the_client_is_kept(tmp_path: Any) -> None:
    exchange = make_windowed_opener(tmp_path)("ollama-chat", "ollama-chat", options={"num_ctx": 8192, "temperature": 0})
    assert json.loads(exchange.encode_request())["options"] == {"num_ctx": 8192, "temperature": 0}


def test_a_limit_beyond_the_window_is_lowered_at_once_after_a_refusal() -> None:
    memory = Memory()

    def serve(body: Json) -> str:
        if body["max_tokens"] + 100 <= 32768:
            return ""
        return (
            f"'max_tokens' or 'max_completion_tokens' is too large: {body['max_tokens']}. This model's maximum context "
            "length is 32768 tokens and your request has 100 input tokens"
        )

    assert [one["max_tokens"] for one in send_until_accepted(open_client(memory, max_tokens=64000), serve)] == [
        64000,
        32668,
    ]
    (body,) = send_until_accepted(open_client(memory, max_tokens=64000), serve)
    assert 32768 / 2 < body["max_tokens"] < 32768
    assert open_client(memory, max_tokens=1000).encode_request() == make_request_body("openai-chat", max_tokens=1000)


FULL = b'{"error":{"code":400,"message":"request (5000 tokens) exceeds the available context size (4096 tokens), try"}}'


@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("server", ["openai-chat", "same"])
def test_a_full_window_is_the_error_that_the_client_knows(client: str, server: str) -> None:
    exchange = open_client(client=client, settings={"upstream_api": (server,)})
    exchange.encode_request()
    reply = exchange.whole.translate_error(FULL, 500)
    assert reply
    error = json.loads(reply.body)["error"]
    message = error if client == "ollama-chat" else error["message"]
    assert reply.status == 400
    assert message.startswith(pairs.TOO_LONG[client])
    if client.startswith("openai"):
        assert error["code"] == "context_length_exceeded"
    if client == "anthropic-messages":
        assert error["type"] == "invalid_request_error"


def test_errors_of_hosted_apis_stay() -> None:
    exchange = open_client(settings={"server": "hosted"})
    exchange.encode_request()
    assert exchange.whole.translate_error(FULL, 400) is None


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("tokens", "line"), [(2050, "the server cut the prompt: it read 2050 tokens of 60 KB"), (15000, "")]
)
def test_truncated_prompt_is_reported(stream: bool, tokens: int, line: str) -> None:
    exchange = open_client(stream=stream, messages=[user("word " * 12000)])
    exchange.encode_request()
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    if stream:
        frames = [
            chat.ROLE,
            *chat.make_text_chunks("Hi"),
            chat.chunk({}, "stop"),
            chat.frame({**pairs.USAGE, "id": "x", "usage": usage}),
        ]
        feed_stream(exchange.stream(), *frames, chat.DONE)
    else:
        exchange.whole.rewrite(chat.encode_json({**chat.completion("Hi"), "usage": usage}))
    notes = ", ".join(exchange.report.notes)
    assert (line in notes) if line else ("cut" not in notes)


# A server that cannot parse its own model's calls


def test_after_a_call_that_the_server_could_not_read_the_tools_stand_in_the_prompt() -> None:
    memory = Memory()
    exchange = open_client(memory)
    assert b'"tools"' in exchange.encode_request()
    words = "The model produced output that does not match the expected peg-native format"
    sent = exchange.encode_after_rejection(json.dumps({"error": {"code": 500, "message": words}}).encode(), 500)
    assert b'"tools"' in open_client(memory).encode_request()  # not before the server accepted it
    exchange.confirm_quirks()
    reports = ", ".join(exchange.report.request)
    assert "3 tools -> tag prompt" in reports
    assert "in the prompt, as are later requests" in str(exchange.report.notes)
    assert "`tools: prompt`, `dialect: tag`" in str(exchange.report.notes)
    for body in (json.loads(sent or b""), json.loads(open_client(memory).encode_request())):
        assert "tools" not in body
        assert "filePath" in texts(body)


# Ten turns


@pytest.mark.parametrize("server", ["llama.cpp", "mistral", "deepseek", "ollama", "vllm"])
@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages", "openai-responses"])
def test_with_the_steps_of_a_server_a_turn_begins_the_next_one(server: str, client: str) -> None:
    from tests.apis.turns import turns

    settings = {"server": server, "upstream_api": ("openai-chat",), "model": "mistral"}
    bodies = [
        json.loads(open_client(client=client, settings=settings, **fields).encode_request()) for fields in turns(client)
    ]
    for before, after in pairwise(bodies):
        assert after["messages"][: len(before["messages"]) - 1] == before["messages"][:-1]
        assert after["tools"] == before["tools"]


# Clients of a server's own API


@pytest.mark.parametrize(("server", "count"), [("vllm", 1), ("llama.cpp", 1), ("hosted", 2)])
def test_claude_codes_billing_line_goes_to_its_own_server_alone(server: str, count: int) -> None:
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.5; cch=65abc;"}
    prompt = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    exchange = open_client(client="anthropic-messages", settings={"server": server}, system=[line, prompt])
    body = json.loads(exchange.encode_request())
    assert body["system"] == [line, prompt][2 - count :]
    given = json.loads(make_request_body("anthropic-messages", system=[line, prompt]))
    assert {key: one for key, one in body.items() if key in given and key != "system"} == {
        key: one for key, one in given.items() if key != "system"
    }


@pytest.mark.parametrize("client", ["anthropic-messages", "openai-responses"])
def test_schemas_and_names_are_repaired_in_every_api(client: str) -> None:
    memory, settings = Memory(), {"server": "llama.cpp"}
    make = BY_NAME[client].writer.TOOL_WRITER.render_declaration
    schema = {"type": "object", "properties": {"p": {"type": "string", "pattern": "a"}}}
    declared = [{**make(Tool("a/b", "Does.", schema)), "own": 1}, {**make(Tool("plain", "Does.", {"type": "object"}))}]
    given = json.loads(make_request_body(client, tools=declared))["tools"]
    exchange = open_client(memory, client, settings, tools=declared)
    exchange._encoder._steps["names"] = True
    first, second = json.loads(exchange.encode_request())["tools"]
    key = "input_schema" if client == "anthropic-messages" else "parameters"
    assert first == {**given[0], "name": "a_b", key: {"type": "object", "properties": {"p": PATTERN}}}
    assert second["name"] == "plain"


PATTERN = {"type": "string", "description": "(pattern: a)"}
