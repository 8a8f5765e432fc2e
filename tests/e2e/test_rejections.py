"""Rejected requests are retried with the quirks learned from the rejection, through a real mitmproxy."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mitmproxy.http import HTTPFlow
from mitmproxy.io import FlowWriter

from tests.apis import chat, messages, pairs
from tests.apis.pairs import READ
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import Answer, Start
from tests.e2e.upstream import JSON, SSE, Reply, Script, Seen
from tests.exchange.asking.servers import RULES, Server
from vtc.cli import main

STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
NARROW = {"type": "string", "pattern": "a", "maxLength": 65536}
TOOL = {"name": "read", "parameters": {"type": "object", "properties": {"filePath": NARROW}}}
ASKED: dict[str, Any] = {
    "tools": [{"type": "function", "function": TOOL}],
    "messages": [{"role": "user", "content": "one"}, {"role": "system", "content": "two"}],
}


def keeping(*rules: str, status: int = 500) -> Script:
    """Return a server that enforces some rules, and answers valid requests with a call."""
    servers: list[Server] = [RULES[one] for one in rules]

    def script(seen: Seen) -> Reply:
        words = next(filter(None, (serve(seen.json) for serve in servers)), "")
        if words:
            error = {"error": {"code": status, "message": words, "type": "server_error"}}
            return Reply([json.dumps(error).encode()], JSON, status, framing="length")
        if seen.json.get("stream"):
            return Reply([pairs.make_stream("openai-chat", ["I look."], READ)], SSE)
        return Reply([pairs.make_whole_reply("openai-chat", "I look.", READ)], JSON)

    return script


@STREAM
async def test_a_refusal_teaches_steps_that_are_taken_at_once_from_then_on(stream: bool, start: Start) -> None:
    lab = await start(keeping("grammar", "system first"))
    for expected in (3, 1):
        before = len(lab.upstream.seen)
        answer = await lab.post(chat.request(stream=stream, **ASKED))
        assert answer.status == 200
        assert pairs.read("openai-chat", answer.body, stream=stream) == pairs.make_content("I look.", READ)
        assert len(lab.upstream.seen) - before == expected
    flows = [await lab.flow() for _ in range(4)]  # two of them retried
    assert any("applied at once from now on: schemas: grammar, system: folded" in flow.comment for flow in flows)
    assert any("1 schema simplified (read: pattern, maxLength)" in str(flow.metadata) for flow in flows)


@STREAM
async def test_a_server_that_names_one_field_at_a_time_takes_the_next_request(stream: bool, start: Start) -> None:
    """There are more fields than retries: the client gets the last error. The next request of the conversation begins
    with the corrections so far; other conversations get them once a request was accepted.
    """
    fields = {"top_k": 1, "seed": 1, "top_p": 0.5, "temperature": 0.5, "presence_penalty": 1, "frequency_penalty": 1}

    def script(seen: Seen) -> Reply:
        if named := next((name for name in fields if name in seen.json), ""):
            error = {"error": {"message": f"Unrecognized request argument supplied: {named}"}}
            return Reply([json.dumps(error).encode()], JSON, 400, framing="length")
        return keeping()(seen)

    lab = await start(script)
    asked_for = []
    for expected in (400, 200, 200):
        before = len(lab.upstream.seen)
        answer = await lab.post(chat.request(stream=stream, **fields))
        assert answer.status == expected
        assert (b"supplied: temperature" in answer.body) is (expected == 400)
        asked_for.append(len(lab.upstream.seen) - before)
    assert asked_for == [4, 4, 1]


@STREAM
async def test_tools_move_into_the_prompt_of_the_same_request_if_a_template_has_none(
    stream: bool, start: Start
) -> None:
    """The call in the text of the reply is read."""
    rule, text = RULES["no tools"], chat.DIALECTS["tag"]("read", {"filePath": "/a"})

    def script(seen: Seen) -> Reply:
        if words := rule(seen.json):
            return Reply([json.dumps({"error": {"code": 400, "message": words}}).encode()], JSON, 400, framing="length")
        texts = [] if "tools" in seen.json else ["I look.\n\n", text]
        if seen.json.get("stream"):
            return Reply([pairs.make_stream("openai-chat", texts, [])], SSE)
        return Reply([pairs.make_whole_reply("openai-chat", "".join(texts), [])], JSON)

    lab = await start(script)
    call = {"id": "call_0", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/b"}'}}
    past = [
        *({"role": "user", "content": "one"}, {"role": "assistant", "content": None, "tool_calls": [call]}),
        {"role": "tool", "tool_call_id": "call_0", "content": "found"},
    ]
    for expected in (2, 3):
        answer = await lab.post(chat.request(stream=stream, tools=ASKED["tools"], messages=past))
        assert (answer.status, len(lab.upstream.seen)) == (200, expected)
        (called,) = pairs.read("openai-chat", answer.body, stream=stream).calls
        assert called == ("read", '{"filePath": "/a"}')


def without_tools(server: str, words: str, status: int) -> Script:
    """Return a server of an API that rejects `tools`; its model writes a call as prompted, and reads the result."""

    def script(seen: Seen) -> Reply:
        body = seen.json
        if "tools" in body:
            error = {"error": words} if server == "ollama-chat" else {"error": {"message": words, "code": status}}
            return Reply([json.dumps(error).encode()], JSON, status, framing="length")
        asked_for = json.dumps(body["messages"], ensure_ascii=False)
        assert "filePath" in asked_for
        call = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
        text = "It says hello." if "Read it" in asked_for else f"I look.\n\n{call}"
        if body.get("stream", server == "ollama-chat"):
            return Reply([pairs.make_stream(server, [text])], {"content-type": SHAPES[server].media_type})
        return Reply([pairs.make_whole_reply(server, text)], JSON)

    return script


NO_TOOLS = {
    "openai-chat": ('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', 400),
    "ollama-chat": ("registry.ollama.ai/library/gemma:2b does not support tools", 400),
}


@STREAM
@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("server", NO_TOOLS)
async def test_tools_that_a_server_refuses_stand_in_the_prompt_of_the_same_exchange(
    server: str, client: str, stream: bool, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Later requests do so at once; the first is reported with the profile setting that makes it permanent."""
    caplog.set_level(logging.INFO, "vtc")
    lab, shape = await start(without_tools(server, *NO_TOOLS[server]), vtc_upstream_api=server), SHAPES[client]
    for fields, expected, is_reported in (({}, 2, True), ({}, 3, False), (shape.history, 4, False)):
        answer = await lab.post(
            make_request_body(client, stream=stream, **fields), path=shape.build_path(stream=stream)
        )
        assert (answer.status, len(lab.upstream.seen)) == (200, expected)
        reply = pairs.read(client, answer.body, stream=stream)
        assert reply == (pairs.make_content("It says hello.") if fields else pairs.make_content("I look.", READ))
        report = (await lab.next_client_flow()).metadata["vtc"]
        assert not report.get("errors")
        assert any("`tools: prompt`, `dialect: tag`" in line for line in report["notes"]) == is_reported
    assert len([line for line in caplog.messages if "rejected `tools`" in line]) == 1


IN_RESPONSES_ALONE = [
    ('model "gpt-5.6" is not accessible via the /chat/completions endpoint', 400),
    ("This model is only supported in v1/responses and not in v1/chat/completions.", 404),
    (
        "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. To use function "
        "tools, use /v1/responses or set reasoning_effort to 'none'.",
        400,
    ),
]


def in_responses(words: str, status: int, *, has_it: bool = True) -> Script:
    """Return a server that serves its model by Responses only, and only if it has that API."""

    def script(seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        if path.endswith("/chat/completions") and seen.json.get("reasoning_effort") != "none":
            error = {"error": {"message": words, "type": "invalid_request_error", "param": None}}
            return Reply([json.dumps(error).encode()], JSON, status, framing="length")
        if path.endswith("/responses") and not has_it:
            return Reply([b'{"detail": "Not Found"}'], JSON, 404, framing="length")
        api = "openai-responses" if path.endswith("/responses") else "openai-chat"
        if seen.json.get("stream"):
            return Reply([pairs.make_stream(api, ["I look."], READ)], SSE)
        return Reply([pairs.make_whole_reply(api, "I look.", READ)], JSON)

    return script


@STREAM
@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize(
    "script",
    [without_tools("openai-chat", *NO_TOOLS["openai-chat"]), in_responses(*IN_RESPONSES_ALONE[0])],
    ids=["tools", "another API"],
)
async def test_replayed_exchange_repeats_its_retry(
    script: Script, client: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    lab, flows = await start(script, vtc_upstream_api="openai-chat", vtc_keep_bodies="on"), list[HTTPFlow]()
    file = tmp_path / "flows"
    for _ in range(2):
        await lab.post(make_request_body(client, stream=stream), path=SHAPES[client].build_path(stream=stream))
        flows.append(await lab.flow())
        while "vtc" not in flows[-1].metadata:  # VTC's retries
            flows.append(await lab.flow())
    with file.open("wb") as opened:
        for flow in flows:
            FlowWriter(opened).add(flow)
    result = await asyncio.to_thread(CliRunner().invoke, main, ["replay", str(file)])
    assert result.output.splitlines()[-1] == "2 same, 0 changed, 0 skipped", result.output


@STREAM
@pytest.mark.parametrize(("words", "status"), IN_RESPONSES_ALONE, ids=["Copilot", "OpenAI", "OpenAI, tools"])
@pytest.mark.parametrize("base", ["", "/v1", "/api/v1"])
async def test_a_model_that_a_server_has_in_another_api_is_asked_in_that(
    words: str, status: int, base: str, stream: bool, start: Start
) -> None:
    """This happens in the same exchange, and in later ones at once; the path changes only in its last part."""
    lab = await start(in_responses(words, status))
    headers = {"authorization": "Bearer sk-mine", "openai-organization": "org-1"}
    body = chat.request(stream=stream, reasoning_effort="high", **ASKED)
    for expected in (2, 1):
        before = len(lab.upstream.seen)
        answer = await lab.post(body, path=f"{base}/chat/completions", headers=headers)
        assert answer.status == 200
        assert pairs.read("openai-chat", answer.body, stream=stream) == pairs.make_content("I look.", READ)
        asked_for = lab.upstream.seen[before:]
        assert len(asked_for) == expected
        assert asked_for[-1].path == f"{base}/responses"
        assert asked_for[-1].json["reasoning"] == {"effort": "high"}
        assert {name: asked_for[-1].headers.get(name) for name in headers} == headers
    flows = [await lab.flow() for _ in range(3)]
    assert any("retried by openai-responses, as are later requests" in str(flow.metadata) for flow in flows)


@STREAM
@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("fields", [{}, {"tools": None}], ids=["tools", "none"])
async def test_so_is_a_model_whose_clients_speak_any_api(
    client: str, fields: dict[str, Any], stream: bool, start: Start
) -> None:
    """This also works if the user states that the server speaks chat completions."""
    lab, shape = await start(in_responses(*IN_RESPONSES_ALONE[0]), vtc_upstream_api="openai-chat"), SHAPES[client]
    asked_for = {key: value for key, value in shape.request(stream=stream, **fields).items() if value is not None}
    for expected in (2, 1):
        before = len(lab.upstream.seen)
        answer = await lab.post(chat.encode_json(asked_for), path=shape.build_path(stream=stream))
        assert answer.status == 200
        assert pairs.read(client, answer.body, stream=stream) == pairs.make_content("I look.", READ)
        assert lab.upstream.seen[-1].path == "/v1/responses"
        assert len(lab.upstream.seen) - before == expected


@STREAM
@pytest.mark.parametrize(
    ("client", "path", "words"),
    [
        ("openai-responses", "/responses", "model claude-haiku-4.5 does not support Responses API."),
        ("anthropic-messages", "/v1/messages", "Anthropic Messages API is not supported for model gpt-5.5"),
        ("anthropic-messages", "/v1/messages", 'model "m" is not accessible via the /v1/messages endpoint'),
        ("anthropic-messages", "/api/v1/messages", "This model does not support the Messages API."),
    ],
)
async def test_so_is_one_that_the_server_has_by_chat_completions_alone(
    client: str, path: str, words: str, stream: bool, start: Start
) -> None:
    def script(seen: Seen) -> Reply:
        if seen.path.endswith(("/responses", "/messages")):
            return Reply([chat.encode_json({"error": {"message": words}})], JSON, 400, framing="length")
        return keeping()(seen)

    lab, shape = await start(script), SHAPES[client]
    for expected in (2, 1):
        before = len(lab.upstream.seen)
        answer = await lab.post(chat.encode_json(shape.request(stream=stream)), path=path)
        assert (answer.status, len(lab.upstream.seen) - before) == (200, expected)
        assert pairs.read(client, answer.body, stream=stream) == pairs.make_content("I look.", READ)
        assert lab.upstream.seen[-1].path == f"{path.rpartition('/')[0]}/chat/completions"


async def test_a_model_that_a_server_has_in_neither_api_is_asked_in_each_once(start: Start) -> None:
    def script(seen: Seen) -> Reply:
        name = "/responses" if seen.path.endswith("/responses") else "/chat/completions"
        error = {"error": {"message": f'model "m" is not accessible via the {name} endpoint'}}
        return Reply([json.dumps(error).encode()], JSON, 400, framing="length")

    lab = await start(script)
    answer = await lab.post(chat.request(**ASKED))
    assert (answer.status, b"/chat/completions endpoint" in answer.body) == (400, True)
    assert [seen.path for seen in lab.upstream.seen] == [
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/chat/completions",
    ]


@STREAM
async def test_a_server_without_that_api_is_asked_again_in_the_clients(stream: bool, start: Start) -> None:
    """Path, query and headers are the client's, including headers that the other API does not use."""
    lab = await start(in_responses(*IN_RESPONSES_ALONE[2], has_it=False))
    own, other = "/v1/chat/completions?a=b&api_key=q", "/v1/responses?a=b&api_key=q"
    headers = {"x-api-key": "own-key", "anthropic-version": "2023-06-01", "x-goog-api-client": "c", "openai-beta": "o"}
    for paths in ([own, other, own, own], [own]):
        before = len(lab.upstream.seen)
        ask = chat.request(stream=stream, reasoning_effort="high", **ASKED)
        answer = await lab.post(ask, path=own, headers=headers)
        asked_for = lab.upstream.seen[before:]
        assert (answer.status, [one.path for one in asked_for]) == (200, paths)
        assert asked_for[-1].json["reasoning_effort"] == "none"
        for one in (seen for seen in asked_for if seen.path == own):
            assert headers.items() <= one.headers.items()
            assert "authorization" not in one.headers


async def test_a_server_that_has_that_api_no_longer_is_asked_in_the_clients(start: Start) -> None:
    scripts = [in_responses(*IN_RESPONSES_ALONE[2]), keeping()]

    def script(seen: Seen) -> Reply:
        is_gone = len(scripts) == 1 and seen.path == "/v1/responses"
        return Reply([b"404 page not found"], JSON, 404, framing="length") if is_gone else scripts[0](seen)

    lab = await start(script)
    assert (await lab.post(chat.request(**ASKED))).status == 200
    scripts.pop(0)
    assert (await lab.post(chat.request(**ASKED))).status == 200
    paths = [seen.path.removeprefix("/v1/") for seen in lab.upstream.seen]
    assert paths == ["chat/completions", "responses", "responses", "chat/completions"]


async def test_profile_that_names_the_clients_api_excludes_other_apis(start: Start) -> None:
    lab = await start(in_responses(*IN_RESPONSES_ALONE[0]), vtc_upstream_api="same")
    answer = await lab.post(chat.request(**ASKED))
    assert (answer.status, len(lab.upstream.seen)) == (400, 1)
    assert b"is not accessible via" in answer.body


STREAMS_ALONE = {
    "openai-chat": {"message": "This model only support stream mode, please enable the stream parameter to access it."},
    "openai-responses": {"message": "Stream must be set to true"},
    "anthropic-messages": {"type": "invalid_request_error", "message": "Non-streaming requests are not supported."},
}


def in_streams(api: str, calls: pairs.Calls) -> Script:
    """Return a server that answers only with streams."""

    def script(seen: Seen) -> Reply:
        if not seen.json.get("stream"):
            return Reply([json.dumps({"error": STREAMS_ALONE[api]}).encode()], JSON, 400, framing="length")
        return Reply([pairs.make_stream(api, ["I ", "look."], calls)], SSE)

    return script


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("server", STREAMS_ALONE)
@pytest.mark.parametrize("calls", [READ, []], ids=["calls", "no calls"])
async def test_who_wants_a_whole_reply_of_a_server_of_streams_gets_it(
    server: str, calls: pairs.Calls, client: str, start: Start
) -> None:
    """Later requests use a stream at once, with or without tools; streaming clients get frames as they arrive."""
    lab, shape = await start(in_streams(server, calls), vtc_upstream_api=server), SHAPES[client]
    for stream, fields, expected in ((False, {}, 2), (False, {} if calls else {"tools": None}, 1), (True, {}, 1)):
        before = len(lab.upstream.seen)
        answer = await lab.post(
            make_request_body(client, stream=stream, **fields), path=shape.build_path(stream=stream)
        )
        assert (answer.status, len(lab.upstream.seen) - before) == (200, expected)
        media_type = answer.headers["content-type"].partition(";")[0]
        assert media_type == (shape.media_type if stream else "application/json")
        assert pairs.read(client, answer.body, stream=stream) == pairs.make_content("I look.", calls)


async def test_profile_with_native_tools_gets_the_servers_own_rejection(start: Start) -> None:
    words, status = NO_TOOLS["openai-chat"]
    lab = await start(without_tools("openai-chat", words, status), vtc_tools="native")
    answer = await lab.post(chat.request(**ASKED))
    assert (answer.status, len(lab.upstream.seen)) == (status, 1)
    assert json.loads(answer.body)["error"]["message"] == words
    assert "--tools prompt" in (await lab.flow()).comment


async def test_nothing_is_kept_without_the_cache(start: Start) -> None:
    lab = await start(keeping("grammar"), vtc_cache="off")
    for _ in range(2):
        await lab.post(chat.request(**ASKED))
    assert len(lab.upstream.seen) == 4


async def test_a_request_is_asked_four_times_at_most(start: Start) -> None:
    """After that, the client gets the last error."""
    lab = await start(keeping("grammar", "system first", "strings", "deepseek", status=400))
    parts = [{"type": "text", "text": "three"}]
    answer = await lab.post(
        chat.request(tools=ASKED["tools"], messages=[*ASKED["messages"], messages.user(parts)], max_tokens=64000)
    )
    assert (answer.status, len(lab.upstream.seen)) == (400, 4)
    assert "valid range of max_tokens" in json.loads(answer.body)["error"]["message"]


RENAMED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
ONE = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
UNSUPPORTED = "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported"


def naming(body: Any) -> str:
    """Return the rejection that hosted servers of chat completions send, which names the field."""
    if "max_tokens" in body:
        return RENAMED
    if "temperature" in body and "top_p" in body:
        return ONE
    return UNSUPPORTED if any("reasoning_content" in message for message in body["messages"]) else ""


@STREAM
@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages"])
async def test_named_fields_are_corrected_in_the_same_exchange_and_later(
    client: str, stream: bool, start: Start
) -> None:
    def script(seen: Seen) -> Reply:
        if words := naming(seen.json):
            error = {"error": {"message": words, "type": "invalid_request_error"}}
            return Reply([json.dumps(error).encode()], JSON, 400, framing="length")
        if seen.json.get("stream"):
            return Reply([pairs.make_stream("openai-chat", ["I look."], READ)], SSE)
        return Reply([pairs.make_whole_reply("openai-chat", "I look.", READ)], JSON)

    lab = await start(script, vtc_upstream_api="openai-chat")
    fields: dict[str, Any] = {"max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "stream": stream}
    history = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    if client == "openai-chat":
        history[1]["reasoning_content"] = "I think so."
    for turn, expected in enumerate((4 if client == "openai-chat" else 3, 1)):
        before = len(lab.upstream.seen)
        past = [*history, *({"role": "user", "content": str(number)} for number in range(turn + 1))]
        ask = messages.request if client == "anthropic-messages" else chat.request
        path = {"path": messages.PATH} if client == "anthropic-messages" else {}
        answer = await lab.post(ask(messages=past, **fields), **path)
        assert answer.status == 200
        assert pairs.read(client, answer.body, stream=stream).text == "I look."
        assert len(lab.upstream.seen) - before == expected
        sent = lab.upstream.seen[-1].json
        assert (sent["max_completion_tokens"], sent["temperature"], sent.get("top_p")) == (50, 0.5, None)
        assert sent["messages"][1] == {"role": "assistant", "content": "two"}
    flows = [await lab.flow() for _ in lab.upstream.seen]
    assert any(
        "applied at once from now on: max_tokens sent as max_completion_tokens" in flow.comment for flow in flows
    )


SENT = {
    "authorization": "Bearer sk-secret-0123456789abcdef",
    "x-api-key": "sk-ant-secret-0123456789",
    "cookie": "session=s-0123456789abcdef",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,prompt-caching-scope-2026-01-05,effort-2025-11-24",
    "x-app": "prompt-caching-scope-2026-01-05",
}


def like_vertex(seen: Seen) -> Reply:
    """Reject flags that the model does not know by name, and `claude-code` as Bedrock does."""
    flags = seen.headers.get("anthropic-beta", "").split(",")
    unknown = [flag for flag in flags if flag.startswith(("prompt-", "effort-"))]
    words = "Unexpected value(s) {} for the `anthropic-beta` header. Please try again without the header."
    if unknown:
        return make_refusal(words.format(", ".join(f"`{flag}`" for flag in unknown)))
    if "claude-code-20250219" in flags and seen.json["max_tokens"] == 7:
        return make_refusal("invalid beta flag")
    if seen.json.get("stream"):
        return Reply([pairs.make_stream("anthropic-messages", ["I look."], READ)], SSE)
    return Reply([pairs.make_whole_reply("anthropic-messages", "I look.", READ)], JSON)


def make_refusal(words: str) -> Reply:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    return Reply([json.dumps(error).encode()], JSON, 400, framing="length")


@STREAM
@pytest.mark.parametrize(("limit", "remaining"), [(50, "claude-code-20250219"), (7, None)])
async def test_rejected_header_flags_are_removed_from_later_requests(
    limit: int, remaining: str | None, stream: bool, start: Start
) -> None:
    """No other header changes; if no flag remains, or the server names none, the header is removed."""
    lab = await start(like_vertex)
    body = messages.request(stream=stream, max_tokens=limit)
    for expected, is_reported in ((2 if remaining else 3, True), (1, False)):
        before = len(lab.upstream.seen)
        answer = await lab.post(body, path=messages.PATH, headers=SENT)
        assert pairs.read("anthropic-messages", answer.body, stream=stream) == pairs.make_content("I look.", READ)
        assert (answer.status, len(lab.upstream.seen) - before) == (200, expected)
        first, last = lab.upstream.seen[0], lab.upstream.seen[-1]
        assert last.headers.get("anthropic-beta") == remaining
        assert {**last.headers, "anthropic-beta": ""} == {**first.headers, "anthropic-beta": ""}
        assert (last.body, last.path) == (first.body, first.path)
        report = (await lab.next_client_flow()).metadata["vtc"]
        line = "header anthropic-beta: prompt-caching-scope-2026-01-05 left out"
        assert (f"{line}, as the server requires it" in report["request"]) != is_reported
        assert any(f"from now on: {line}" in note for note in report["notes"]) == is_reported
        assert not [name for name in ("authorization", "x-api-key", "cookie") if SENT[name][-10:] in json.dumps(report)]
    assert lab.upstream.seen[0].headers["anthropic-beta"] == SENT["anthropic-beta"]
    # The request of another client, which can have another credential, is sent unchanged.
    before = len(lab.upstream.seen)
    await lab.post(body, path=messages.PATH, headers={**SENT, "x-api-key": "sk-ant-other-0123456789"})
    assert lab.upstream.seen[before].headers["anthropic-beta"] == SENT["anthropic-beta"]


@STREAM
async def test_of_a_clients_headers_a_server_of_another_api_gets_no_flags(stream: bool, start: Start) -> None:
    lab = await start(keeping(), vtc_upstream_api="openai-chat")
    answer = await lab.post(messages.request(stream=stream), path=messages.PATH, headers=SENT)
    assert (answer.status, len(lab.upstream.seen)) == (200, 1)
    assert not [name for name in lab.upstream.seen[0].headers if name.startswith("anthropic-")]


async def test_who_wants_no_corrections_gets_the_refusal_of_a_flag(start: Start, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("kind: server\nname: own\nmatch: {host: ['*']}\nready: {corrections: false}\n")
    lab = await start(like_vertex, vtc_profiles=[str(tmp_path)], vtc_server="own")
    answer = await lab.post(messages.request(), path=messages.PATH, headers=SENT)
    assert (answer.status, len(lab.upstream.seen)) == (400, 1)


async def test_who_observes_asks_nothing_again(start: Start) -> None:
    lab = await start(keeping("grammar"), vtc_mode="observe")
    answer = await lab.post(chat.request(**ASKED))
    assert (answer.status, len(lab.upstream.seen)) == (500, 1)


WINDOW = "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"
FULL = {"error": {"code": 400, "message": WINDOW, "type": "exceed_context_size_error"}}


def check_full_window_error(client: str, answer: Answer, *, stream: bool) -> None:
    """Check that the error, status and place are the ones by which the client's agents recognize a full window."""
    in_stream = stream and client == "openai-responses"
    assert answer.status == (200 if in_stream else 400)
    assert answer.headers["content-type"].startswith("text/event-stream" if in_stream else "application/json")
    errors = errors_in(answer.body) if in_stream else [json.loads(answer.body)["error"]]
    for error in errors:
        assert (error if client == "ollama-chat" else error["message"]).startswith(pairs.TOO_LONG[client])
        assert client == "ollama-chat" or error.get("code", error.get("type")) == KNOWN_BY[client]


def errors_in(stream: bytes) -> list[Any]:
    """Return the errors of a stream, including both of Responses: in the event, and in the response that failed."""
    lines = [line.removeprefix(b"data: ") for line in stream.splitlines() if line[:1] == b"{" or b"data: {" in line]
    values = [json.loads(line) for line in lines]
    found = [value.get("error") or value.get("response", {}).get("error") for value in values]
    return [*filter(None, found)]


KNOWN_BY = {
    "openai-chat": "context_length_exceeded",
    "openai-responses": "context_length_exceeded",
    "anthropic-messages": "invalid_request_error",
    "gemini-generate": 400,
}


@STREAM
@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("status", [200, 400, 500])
async def test_full_window_is_reported_in_the_clients_words(
    status: int, client: str, stream: bool, start: Start
) -> None:
    """This holds also for an error with status 200, as LM Studio and OpenRouter send it."""
    error = json.dumps(FULL).encode()
    lab = await start(lambda _: Reply([error], JSON, status, framing="length"), vtc_upstream_api="openai-chat")
    answer = await lab.post(make_request_body(client, stream=stream), path=SHAPES[client].build_path(stream=stream))
    assert len(lab.upstream.seen) == 1
    check_full_window_error(client, answer, stream=stream)
    assert "longer than the model's window: 5000 tokens of 4096" in (await lab.flow()).comment


@pytest.mark.parametrize("client", SHAPES)
@pytest.mark.parametrize("server", ["openai-chat", "same"])
async def test_full_window_in_a_stream_is_reported_in_the_clients_words(client: str, server: str, start: Start) -> None:
    """A server of chat completions or of the client's API sends an event with the error after status 200."""
    speaks = client if server == "same" else server
    own = {"type": "error", **FULL} if speaks in ("anthropic-messages", "openai-responses") else FULL
    own = {"error": WINDOW} if speaks == "ollama-chat" else own
    data, media_type = json.dumps(own).encode(), SHAPES[speaks].media_type
    frame = data + b"\n" if speaks == "ollama-chat" else b"event: error\ndata: " + data + b"\n\n"
    lab = await start(lambda _: Reply([frame], {"content-type": media_type}), vtc_upstream_api=server)
    answer = await lab.post(make_request_body(client, stream=True), path=SHAPES[client].build_path(stream=True))
    assert answer.status == 200
    errors = errors_in(answer.body)
    assert errors
    for error in errors:
        assert (error if client == "ollama-chat" else error["message"]).startswith(pairs.TOO_LONG[client])
        assert client == "ollama-chat" or error.get("code", error.get("type")) == KNOWN_BY[client]


@STREAM
@pytest.mark.parametrize("client", SHAPES)
async def test_rate_limit_is_never_reported_as_a_full_window(client: str, stream: bool, start: Start) -> None:
    """Groq sends status 413 and asks for a smaller message."""
    words = (
        "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 12000, Requested 14137, "
        "please reduce your message size and try again."
    )
    error = json.dumps({"error": {"message": words, "type": "tokens", "code": "rate_limit_exceeded"}}).encode()
    lab = await start(lambda _: Reply([error], JSON, 413, framing="length"), vtc_upstream_api="openai-chat")
    answer = await lab.post(make_request_body(client, stream=stream), path=SHAPES[client].build_path(stream=stream))
    assert (answer.status, len(lab.upstream.seen)) == (413, 1)
    reported_error = json.loads(answer.body)["error"]
    assert words in (reported_error if client == "ollama-chat" else reported_error["message"])
    assert b"context_length_exceeded" not in answer.body


async def test_tools_rejected_in_a_stream_are_in_the_prompt_of_later_requests(start: Start) -> None:
    """The client has received a status already, so a retry is impossible."""
    words, status = NO_TOOLS["openai-chat"]
    script = without_tools("openai-chat", words, status)

    def late(seen: Seen) -> Reply:
        error = json.dumps({"error": {"message": words, "code": status}})
        return Reply([f"data: {error}\n\n".encode()], SSE) if "tools" in seen.json else script(seen)

    lab = await start(late)
    assert words.encode() in (await lab.post(chat.request(stream=True))).body.replace(b'\\"', b'"')
    assert "inside its reply" in (await lab.flow()).comment
    answer = await lab.post(chat.request(stream=True))
    assert pairs.read("openai-chat", answer.body, stream=True) == pairs.make_content("I look.", READ)
    assert len(lab.upstream.seen) == 2
