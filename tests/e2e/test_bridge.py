"""The official SDKs with servers of other APIs, through a real mitmproxy: a turn with a call, and its result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import ollama as ollama_sdk
import pytest

from tests.apis import chat, gemini, messages, pairs, responses
from tests.apis.named_events import Json
from tests.apis.pairs import PAIRS, READ
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import Start, by_turn
from tests.e2e.sdk_talks import serving, talk
from tests.e2e.upstream import JSON, Reply, Script, Seen

STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@STREAM
@pytest.mark.parametrize("in_text", [False, True], ids=["native", "as text"])
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
async def test_an_sdk_calls_a_tool_and_gets_its_answer(
    client: str, server: str, in_text: bool, stream: bool, start: Start
) -> None:
    lab = await start(serving(server, in_text=in_text), vtc_upstream_api=server)
    assert await talk(client, lab, stream=stream) == ([("read", {"filePath": "/a"})], "It says hello.")
    assert {seen.path for seen in lab.upstream.seen} == {SHAPES[server].build_path(stream=stream)}


@pytest.mark.parametrize(("client", "server"), [pair for pair in PAIRS if pair[0] != pair[1]], ids=lambda name: name)
async def test_without_the_bridge_the_same_server_answers_404(client: str, server: str, start: Start) -> None:
    """Control: without the bridge the requests of these tests fail."""
    lab = await start(serving(server))
    answer = await lab.post(chat.encode_json(SHAPES[client].request()), path=SHAPES[client].path)
    assert answer.status == 404


@STREAM
@pytest.mark.parametrize(("client", "server"), pairs.CROSSED, ids=lambda name: name)
async def test_an_error_of_the_server_is_one_of_the_clients_api(
    client: str, server: str, stream: bool, start: Start
) -> None:
    """The error has the server's status and message, in whichever format the server sent it."""
    bodies = [
        (400, b'{"error": {"message": "no such model"}}', JSON),
        (503, b"<h1>busy</h1>", {"content-type": "text/html"}),
    ]
    for status, body, headers in bodies:
        lab = await start(Reply([body], headers, status, framing="length"), vtc_upstream_api=server)
        answer = await lab.post(
            chat.encode_json(SHAPES[client].request(stream=stream)), path=SHAPES[client].build_path(stream=stream)
        )
        found = json.loads(answer.body)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        message = found["error"] if client == "ollama-chat" else found["error"]["message"]
        assert message == ("no such model" if status == 400 else "busy")
        assert client != "anthropic-messages" or found["type"] == "error"


KEYS = {
    "anthropic-messages": ({"x-api-key": "k", "anthropic-version": "2023-06-01"}, {"authorization": "Bearer k"}),
    "openai-chat": ({"authorization": "Bearer k", "openai-organization": "o"}, {"x-api-key": "k"}),
}


@pytest.mark.parametrize(
    ("client", "server"), [("anthropic-messages", "openai-chat"), ("openai-chat", "anthropic-messages")]
)
async def test_headers_are_those_of_the_servers_api(client: str, server: str, start: Start) -> None:
    lab = await start(serving(server), vtc_upstream_api=server)
    received, expected = KEYS[client]
    body = chat.encode_json(SHAPES[client].request())
    await lab.post(body, path=SHAPES[client].path, headers=received)
    (seen,) = lab.upstream.seen
    assert expected.items() <= dict(seen.headers).items()
    assert not {"openai-organization", *(received.keys() - {"anthropic-version"})} & seen.headers.keys()
    assert ("anthropic-version" in seen.headers) == (server == "anthropic-messages")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/messages?beta=true", "/v1/chat/completions"),
        ("/x/v1/messages", "/x/v1/chat/completions"),
        ("/v1/messages?beta=true&route=a", "/v1/chat/completions?route=a"),
    ],
)
async def test_the_path_is_that_of_the_servers_api(path: str, expected: str, start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    await lab.post(messages.request(), path=path)
    assert lab.upstream.seen[0].path == expected


@pytest.mark.parametrize("query", ["", "&key=sk-1&route=a"])
async def test_key_of_googles_client_is_sent_in_the_servers_place(query: str, start: Start) -> None:
    """A key in the query is moved out of the query."""
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    headers = {"x-goog-api-client": "x"} if query else {"x-goog-api-key": "sk-1"}
    await lab.post(gemini.request(), path=f"{gemini.STREAMED}?alt=sse{query}", headers=headers)
    (seen,) = lab.upstream.seen
    assert seen.path == ("/v1/chat/completions?route=a" if query else "/v1/chat/completions")
    assert seen.headers["authorization"] == "Bearer sk-1"
    assert not [name for name in seen.headers if name.lower().startswith("x-goog")]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_model_in_the_path_is_requested_by_the_servers_name(stream: bool, start: Start) -> None:
    lab = await start(serving("gemini-generate"), vtc_models=["gemini-*=lab-model"])
    path = SHAPES["gemini-generate"].build_path(stream=stream, model="gemini-9-pro")
    answer = await lab.post(gemini.request("Read it"), path=path)
    assert gemini.read(answer.body).calls == [*READ]
    assert [seen.path for seen in lab.upstream.seen] == [SHAPES["gemini-generate"].build_path(stream=stream)]
    flow = await lab.flow()
    assert "gemini-9-pro" in flow.comment


async def test_path_for_a_stream_becomes_one_for_a_whole_reply_if_the_profile_requires_it(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("kind: server\nname: mine\nmatch: {}\nupstream_stream: never\n")
    lab = await start(serving("gemini-generate", in_text=True), vtc_profiles=[str(tmp_path)], vtc_server="mine")
    answer = await lab.post(gemini.request("Read it"), path=f"{gemini.STREAMED}?alt=sse&route=a")
    assert [seen.path for seen in lab.upstream.seen] == [f"{gemini.PATH}?route=a"]
    assert answer.headers["content-type"] == "text/event-stream"
    assert gemini.read(answer.body).calls == [*READ]


async def test_a_model_is_asked_for_by_the_name_that_the_server_has(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat", vtc_models=["claude-*=qwen3-coder"])
    answer = await lab.post(messages.request(model="claude-sonnet-4"), path=messages.PATH)
    assert lab.upstream.seen[0].json["model"] == "qwen3-coder"
    assert json.loads(answer.body)["model"] == "claude-sonnet-4"


# Side questions


async def test_models_are_listed_in_the_form_of_the_clients_api(start: Start) -> None:
    owned = b'{"object": "list", "data": [{"id": "qwen3-coder", "object": "model", "owned_by": "vllm"}]}'
    lab = await start(
        Reply([owned], JSON, framing="length"),
        vtc_upstream_api="openai-chat",
        vtc_models=["claude-sonnet-4-5=qwen3-coder", "claude-*=qwen3-coder"],
    )
    key: Any = {"base_url": lab.proxy.url, "api_key": "sk-none", "max_retries": 0}
    async with anthropic.AsyncAnthropic(
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False), **key
    ) as sdk:
        assert [one.id async for one in sdk.models.list()] == ["claude-sonnet-4-5", "qwen3-coder"]
    client = ollama_sdk.AsyncClient(lab.proxy.url, trust_env=False, verify=False)
    try:
        assert [one.model for one in (await client.list()).models] == ["claude-sonnet-4-5", "qwen3-coder"]
    finally:
        await client.close()
    async with lab.sdk() as own:
        assert [one.id async for one in own.models.list()] == ["qwen3-coder"]
    assert {seen.path for seen in lab.upstream.seen} == {"/v1/models"}


async def test_tokens_are_counted_without_the_server(start: Start) -> None:
    """The estimate grows with text, tools and results, because clients compact their conversation by it."""
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    history: Any = SHAPES["anthropic-messages"].history["messages"]
    counted = []
    longer = [messages.user("word " * 700), *history[1:]]
    for fields in ({"tools": None}, {}, {"messages": history}, {"messages": longer}):
        body = {key: value for key, value in messages.request(**fields).items() if key != "stream"}
        answer = await lab.post(body, path=f"{messages.PATH}/count_tokens?beta=true")
        assert answer.status == 200
        counted.append(json.loads(answer.body)["input_tokens"])
    assert counted == sorted({*counted})
    assert 700 <= counted[3] - counted[2] <= 1400
    assert lab.upstream.seen == []


@pytest.mark.parametrize(
    ("answer", "status", "count"),
    [({"count": 77, "tokens": [1]}, 200, 77), ({"tokens": [1, 2, 3]}, 200, 3), ({"error": "no"}, 404, None)],
)
async def test_tokens_are_counted_by_a_server_that_can(
    answer: Json, status: int, count: int | None, start: Start
) -> None:
    """The count is estimated if the server does not count."""
    reply = Reply([json.dumps(answer).encode()], JSON, status, framing="length")
    lab = await start(reply, vtc_upstream_api="openai-chat", vtc_server="vllm", vtc_models=["claude-*=mine"])
    body = {key: value for key, value in messages.request("hello", model="claude-x").items() if key != "stream"}
    found = await lab.post(body, path=f"{messages.PATH}/count_tokens?beta=true")
    assert found.status == 200
    assert json.loads(found.body)["input_tokens"] == count or (
        count is None and json.loads(found.body)["input_tokens"] > 9
    )
    (seen,) = lab.upstream.seen
    assert (seen.path, seen.json["model"], seen.json["messages"][-1]["content"]) == ("/tokenize", "mine", "hello")
    assert len(seen.json["tools"]) == 3
    assert "hello" in seen.json["content"]


async def test_signs_of_life_are_answered(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    assert (await lab.client.head("/", headers={"user-agent": "claude-cli/2.1"})).status_code == 200
    assert (await lab.client.get("/api/version")).json().keys() == {"version"}


async def test_a_server_of_several_apis_serves_each_client_in_its_own(start: Start) -> None:
    """A client of any other API is served by the first API of the list."""
    lab = await start(
        lambda seen: serving(find_spoken_api(seen))(seen), vtc_upstream_api="openai-chat, anthropic-messages"
    )
    for client, path in (
        ("openai-chat", "/v1/chat/completions"),
        ("anthropic-messages", messages.PATH),
        ("openai-responses", "/v1/chat/completions"),
    ):
        calls, _ = await talk(client, lab, stream=True)
        assert calls == READ
        assert lab.upstream.seen[-1].path == path


def find_spoken_api(seen: Seen) -> str:
    return "anthropic-messages" if seen.path == messages.PATH else "openai-chat"


async def test_an_api_that_there_is_not_is_an_error_that_names_the_nearest(start: Start) -> None:
    with pytest.raises(Exception, match=r"no API 'openai-chats'.*openai-chat"):
        await start(serving("openai-chat"), vtc_upstream_api="openai-chats")


async def test_observing_proxy_does_not_translate(start: Start) -> None:
    lab = await start(serving("anthropic-messages"), vtc_upstream_api="openai-chat", vtc_mode="observe")
    answer = await lab.post(messages.request(), path=messages.PATH)
    assert (answer.status, lab.upstream.seen[0].path) == (200, messages.PATH)


@pytest.mark.parametrize(
    ("named", "fields"),
    [
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("prompt", {"prompt": {"id": "pmpt_1", "version": "2"}}),
        (
            "item_reference",
            {"input": [{"type": "item_reference", "id": "msg_1"}, responses.make_input_message("user", "x")]},
        ),
    ],
)
async def test_a_conversation_that_only_its_server_knows_is_an_error(
    named: str, fields: dict[str, Any], start: Start
) -> None:
    """The client must not get a reply as if its server had seen that conversation."""
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    answer = await lab.post(responses.request(**fields), path=responses.PATH)
    assert answer.status == 400
    assert named in json.loads(answer.body)["error"]["message"]
    assert lab.upstream.seen == []


async def test_profile_defines_api_place_and_names(start: Start, tmp_path: Path) -> None:
    profile = {"kind": "server", "name": "mine", "match": {"host": ["127.0.0.1:*"]}}
    profile |= {"api": "anthropic-messages", "api_path": "/anthropic/v1/messages", "models": {"gpt-*": "qwen3-coder"}}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json(profile))
    lab = await start(
        lambda _: Reply([pairs.make_whole_reply("anthropic-messages", "Hello")], JSON), vtc_profiles=[str(tmp_path)]
    )
    answer = await lab.post(chat.request(model="gpt-5"))
    assert answer.message.content == "Hello"
    (seen,) = lab.upstream.seen
    assert (seen.path, seen.json["model"]) == ("/anthropic/v1/messages", "qwen3-coder")


async def test_profile_defines_the_field_for_returned_reasoning(start: Start, tmp_path: Path) -> None:
    profile = {"kind": "server", "name": "mine", "match": {"host": ["127.0.0.1:*"]}, "thoughts": "reasoning"}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json({**profile, "api": "openai-chat"}))
    lab = await start(serving("openai-chat"), vtc_profiles=[str(tmp_path)])
    thought = messages.assistant(messages.thinking("Hm.", "sig"), messages.text("So."))
    await lab.post(messages.request(messages=[messages.user("a"), thought, messages.user("b")]), path=messages.PATH)
    assert [entry.get("reasoning") for entry in lab.upstream.seen[0].json["messages"]] == [None, "Hm.", None]


async def test_a_reply_in_a_coding_that_cannot_be_undone_is_an_error_of_the_clients_api(start: Start) -> None:
    body = pairs.make_whole_reply("openai-chat", "Hello")
    reply = Reply([body], {**JSON, "content-encoding": "gzip"}, framing="length")
    lab = await start(by_turn(reply), vtc_upstream_api="openai-chat")
    answer = await lab.post(messages.request(), path="/v1/messages")
    assert (answer.status, answer.headers.get("content-encoding")) == (502, None)
    assert json.loads(answer.body)["error"]["message"] == "The reply of the server could not be read"
    assert "the body cannot be decoded" in str((await lab.report())["failures"])


async def test_untranslatable_fields_are_reported(start: Start) -> None:
    lab = await start(serving("anthropic-messages"), vtc_upstream_api="anthropic-messages")
    await lab.post(chat.request(n=2, logit_bias={"1": 1}))
    flow = await lab.flow()
    assert flow.metadata["vtc"]["request"][-1].endswith("has no such field: logit_bias, more than one choice")
    assert "openai-chat -> anthropic-messages, " in flow.comment


# Rejected requests


def refusing(server: str, words: str, until: Callable[[Any], bool]) -> Script:
    """Return a server that rejects each request until `until` is true for it."""

    def script(seen: Seen) -> Reply:
        if until(seen.json):
            return serving(server)(seen)
        return Reply([json.dumps({"error": {"message": words}}).encode()], JSON, 400, framing="length")

    return script


ROOM = (
    "'max_tokens' is too large: 64000. This model's maximum context length is 32768 tokens and your request has 2768 "
    "input tokens"
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
NO_IMAGES = "This model does not support image inputs"


@STREAM
async def test_a_limit_beyond_the_servers_window_is_lowered_once(stream: bool, start: Start) -> None:
    script = refusing("openai-chat", ROOM, lambda body: body["max_tokens"] <= 30000)
    lab = await start(script, vtc_upstream_api="openai-chat")
    answer = await lab.post(messages.request("Read it", stream=stream, max_tokens=64000), path=messages.PATH)
    assert answer.status == 200
    assert pairs.read("anthropic-messages", answer.body, stream=stream) == pairs.make_content("I look.", READ)
    assert [seen.json["max_tokens"] for seen in lab.upstream.seen] == [64000, 30000]
    flows = [await lab.flow(), await lab.flow()]  # of the second question, and of both
    assert "max_tokens 30000" in flows[1].comment


@STREAM
async def test_images_that_the_server_refuses_become_notes(stream: bool, start: Start) -> None:
    script = refusing("openai-chat", NO_IMAGES, lambda body: "base64" not in json.dumps(body))
    lab = await start(script, vtc_upstream_api="openai-chat")
    answer = await lab.post(messages.request([IMAGE], stream=stream), path=messages.PATH)
    assert answer.status == 200
    assert "image/png: left out" in json.dumps(lab.upstream.seen[1].json)


async def test_second_rejection_is_the_servers_error(start: Start) -> None:
    lab = await start(refusing("openai-chat", NO_IMAGES, lambda _: False), vtc_upstream_api="openai-chat")
    answer = await lab.post(messages.request([IMAGE]), path=messages.PATH)
    assert (answer.status, len(lab.upstream.seen)) == (400, 2)
    assert json.loads(answer.body)["error"]["message"] == NO_IMAGES


async def test_rejection_of_an_unsent_field_is_not_retried(start: Start) -> None:
    lab = await start(refusing("openai-chat", NO_IMAGES, lambda _: False), vtc_upstream_api="openai-chat")
    assert (await lab.post(messages.request(), path=messages.PATH)).status == 400
    assert len(lab.upstream.seen) == 1


@STREAM
async def test_model_that_cannot_think_gets_no_further_demand_to_think(stream: bool, start: Start) -> None:
    """The server rejects only the first request, so later replies are streamed without a retry."""
    script = refusing("ollama-chat", '"m" does not support thinking', lambda body: "think" not in body)
    lab = await start(script, vtc_upstream_api="ollama-chat")
    for _ in range(2):
        body = responses.request("Read it", stream=stream, reasoning={"effort": "high"})
        answer = await lab.post(body, path=responses.PATH)
        assert pairs.read("openai-responses", answer.body, stream=stream) == pairs.make_content("I look.", READ)
    assert [seen.json.get("think") for seen in lab.upstream.seen] == ["high", None, None]
    flows = [await lab.flow() for _ in range(3)]  # the first of the second question
    assert all("reasoning effort left out (high)" in flow.comment for flow in flows[1:])
