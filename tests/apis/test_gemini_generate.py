"""Features that only Gemini's API has: two spellings, signed reasoning in parts, a model in the path, blocked prompts.

Features that all APIs share are tested for all of them together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from google import genai
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, gemini
from tests.apis.named_events import Json
from tests.e2e.upstream import JSON, SSE, Reply, serving
from tests.exchange.remembering.talks import Talk
from tests.exchanges import agent, feed_stream, planner
from vtc.apis import Changes, RequestError, explain_unread, match_request, side_questions
from vtc.apis.gemini_generate import API
from vtc.apis.gemini_generate.request import convert_schema
from vtc.exchange import Session
from vtc.json_text import encode_json
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

NAME = "gemini-generate"
IN_TEXT = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
SIGNED = {**gemini.call("read", filePath="/a"), "thoughtSignature": "sig"}


def open_session(*, stream: bool = True, settings: Json | None = None, **fields: Any) -> Session:
    body = chat.encode_json(gemini.request(**fields))
    return Session.open(API, body, agent(NAME, stream=stream), planner(**settings or {}), "seed")


def parts(body: bytes) -> list[Json]:
    frames = [one.removeprefix(b"data: ") for one in body.replace(b"\r\n", b"\n").split(b"\n\n") if one]
    found = [json.loads(one) for one in frames]
    return [part for one in found for candidate in one["candidates"] for part in candidate["content"]["parts"]]


def test_both_spellings_are_read() -> None:
    tools = [{"function_declarations": [{"name": "read", "parameters": {"type": "OBJECT", "properties": {}}}]}]
    body = {
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "x"}, {"inline_data": {"mime_type": "image/png", "data": "AA"}}]},
            {"role": "model", "parts": [{"function_call": {"name": "read", "args": {"some_path": "/a"}}}]},
            {"role": "user", "parts": [{"function_response": {"name": "read", "response": {"result": "A"}}}]},
        ],
        "tools": tools,
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["read"]}},
        "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": 0}},
    }
    request = API.request(chat.encode_json(body), gemini.PATH)
    system, user, called, result = request.messages
    assert (system.text, user.text, result.text, result.name) == ("Be brief.", "x", "A", "read")
    assert [call.arguments for call in called.calls] == ['{"some_path": "/a"}']
    assert (request.offer.choice, request.generation.effort, request.generation.thinks) == ("read", "none", False)
    assert [tool.parameters for tool in request.offer.tools] == [{"type": "object", "properties": {}}]
    (image,) = (request.interpret_part(part.part) for part in user.content if not isinstance(part, str))
    assert (image.kind, image.media_type, image.data) == ("image", "image/png", "AA")  # type: ignore[union-attr]


def test_path_contains_model_and_whether_to_stream() -> None:
    one = API.request(chat.encode_json(gemini.request()), "/v1beta/models/Qwen/Qwen3:8b:streamGenerateContent?alt=sse")
    assert (one.model, one.stream) == ("Qwen/Qwen3:8b", True)
    fields = API.writer.apply_changes(one, Changes(model="other", unstreamed=True))
    assert json.loads(encode_json(fields)) == gemini.request()


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "ARRAY", "items": {"type": "INTEGER"}}, {"type": "array", "items": {"type": "integer"}}),
        (
            {"type": "OBJECT", "properties": {"type": {"type": "STRING", "enum": ["A"]}}, "propertyOrdering": ["type"]},
            {"type": "object", "properties": {"type": {"type": "string", "enum": ["A"]}}},
        ),
    ],
)
def test_schemas_in_googles_spelling_are_json_schemas(schema: Json, read: Json) -> None:
    assert convert_schema(schema) == read


@pytest.mark.parametrize(
    ("config", "effort"),
    [
        ({}, None),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": -1}, "auto"),
        ({"thinkingBudget": 1000}, "low"),
        ({"thinkingBudget": 99_999}, "high"),
        ({"thinkingLevel": "LOW"}, "low"),
        ({"includeThoughts": True}, "auto"),
    ],
)
def test_how_much_to_think(config: Json, effort: str | None) -> None:
    body = gemini.request(generationConfig={"thinkingConfig": config})
    assert API.request(chat.encode_json(body)).generation.effort == effort


def test_an_answer_in_json_is_requested_from_another_api() -> None:
    config = {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT", "properties": {}}}
    exchange = open_session(settings={"upstream_api": ("openai-chat",)}, generationConfig=config)
    sent = json.loads(exchange.encode_request())["response_format"]["json_schema"]["schema"]
    assert sent == {"type": "object", "properties": {}}


def test_content_of_its_own_server_alone_is_rejected_or_reported() -> None:
    kept = open_session(settings={"upstream_api": ("openai-chat",)}, cachedContent="cachedContents/1")
    kept.encode_request()
    refusal = kept.answer()
    assert refusal
    assert json.loads(refusal.body)["error"]["status"] == "INVALID_ARGUMENT"
    exchange = open_session(settings={"upstream_api": ("openai-chat",)}, tools=[*gemini.TOOLS, {"googleSearch": {}}])
    exchange.encode_request()
    assert any("tool googleSearch" in line for line in exchange.report.request)


@pytest.mark.parametrize("body", [{"contents": [{"parts": ["x"]}]}, {"contents": {}}, {"tools": 5}, []])
def test_malformed_request_is_rejected(body: Any) -> None:
    with pytest.raises(RequestError):
        _ = [*API.request(chat.encode_json(body)).messages]


def test_stream_as_json_array_is_ignored() -> None:
    path = gemini.STREAMED
    assert match_request("POST", path) is None
    assert match_request("POST", f"{path}?alt=sse") is API
    assert (found := explain_unread("POST", path)) is not None
    assert found.may_call


def test_a_withheld_tool_is_gone_and_the_others_keep_their_declaration() -> None:
    one = API.request(chat.encode_json(gemini.request(tools=[*gemini.TOOLS, {"googleSearch": {}}])))
    sent = json.loads(encode_json(API.writer.apply_changes(one, Changes(withheld={"read"}))))["tools"]
    assert sent == [{"functionDeclarations": gemini.TOOLS[0]["functionDeclarations"][1:]}, {"googleSearch": {}}]
    assert "tools" not in json.loads(
        encode_json(API.writer.apply_changes(one, Changes(withheld={"read", "write", "list_files", "googleSearch"})))
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_tokens_are_counted_in_either_form(wrapped: bool) -> None:
    path = f"/v1beta/models/{gemini.MODEL}:countTokens"
    aside = side_questions.find_side_question("POST", path, {})
    assert aside is not None
    body = gemini.request()
    found = json.loads(
        side_questions.answer_locally(
            aside, chat.encode_json({"generateContentRequest": body} if wrapped else body), path
        )
    )
    assert found["totalTokens"] > 20


@pytest.mark.parametrize("header", ["x-goog-api-key", "x-goog-api-client"])
def test_googles_clients_are_recognized_by_their_model_requests(header: str) -> None:
    for version in ("/v1beta", "/v1"):
        aside = side_questions.find_side_question("GET", f"{version}/models?pageSize=9", {header: "x"})
        assert aside == side_questions.SideQuestion("models", NAME)
        assert aside.path_at(f"/x{version}/models?pageSize=9", "/v1/models") == "/x/v1/models"


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_a_reply_without_calls_keeps_its_bytes(end: bytes) -> None:
    body = b"".join(gemini.make_text_stream("I look", ".", " Done.")).replace(b"\n\n", end)
    assert feed_stream(open_session().stream(), body) == body
    whole = json.dumps(gemini.reply(gemini.text("I look."))).encode()
    assert open_session(stream=False).whole.rewrite(whole) == whole


def test_signed_parts_keep_their_bytes() -> None:
    body = b"".join(
        gemini.make_stream(gemini.frame(gemini.event(gemini.make_thought("Hm."))), gemini.frame(gemini.event(SIGNED)))
    )
    assert feed_stream(open_session().stream(), body) == body


def test_a_signature_stays_with_its_call_when_the_reply_is_encoded_again() -> None:
    """Google's servers reject the next turn without it."""
    frames = [*gemini.make_text_events(f"I look.\n{IN_TEXT.replace('/a', '/b')}\n"), gemini.frame(gemini.event(SIGNED))]
    found = parts(feed_stream(open_session().stream(), *gemini.make_stream(*frames)))
    assert [part.get("thoughtSignature") for part in found if "functionCall" in part] == [None, "sig"]
    assert json.dumps(found).count("sig") >= 1


def test_signatures_return_to_their_server_through_another_client() -> None:
    talk = Talk("anthropic-messages", NAME)
    talk.ask({"role": "user", "content": "Read it"}, thinking={"type": "adaptive"})
    reply = gemini.make_stream(
        gemini.frame(gemini.event(gemini.make_thought("Hm."))), gemini.frame(gemini.event(SIGNED))
    )
    talk.reply(b"".join(reply))
    sent = talk.ask(thinking={"type": "adaptive"})
    calls = [part for entry in sent["contents"] for part in entry["parts"] if "functionCall" in part]
    assert [part["thoughtSignature"] for part in calls] == ["sig"]


def test_a_prompt_that_the_server_blocks_ends_the_reply_for_every_client() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, **gemini.HEAD}
    body = chat.encode_json(chat.request(stream=True))
    api = match_request("POST", "/chat/completions")
    assert api is not None
    exchange = Session.open(api, body, agent("openai-chat"), planner(upstream_api=(NAME,)), "seed")
    exchange.encode_request()
    assert chat.read(feed_stream(exchange.stream(), gemini.frame(blocked))).finish_reason == "content_filter"
    own = open_session()
    assert feed_stream(own.stream(), gemini.frame(blocked)) == gemini.frame(blocked)


def test_a_cut_call_of_another_server_is_seen_and_none() -> None:
    exchange = open_session(settings={"upstream_api": ("openai-chat",)})
    exchange.encode_request()
    piece = {"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": '{"filePath": "/a'}}
    frames = [chat.ROLE, chat.chunk({"tool_calls": [piece]}), chat.chunk({}, "length"), chat.DONE]
    found = gemini.read(feed_stream(exchange.stream(), *frames))
    assert (found.calls, found.reason) == ([], "MAX_TOKENS")
    assert "/a" in found.content


def test_a_denied_call_is_never_sent(tmp_path: Any) -> None:
    policy = "{kind: policy, name: mine, match: {}, guards: {denied_tools: [read]}}"
    (tmp_path / "mine.yaml").write_text(policy)
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    spelled = {"function_call": {"name": "read", "args": {"filePath": "/a"}}}
    odd = {"functionCalls": [{"name": "read", "args": {"filePath": "/a"}}]}
    for part in (gemini.call("read", filePath="/a"), SIGNED, spelled, {"toolCall": odd}, {**gemini.text("x"), **odd}):
        for stream in (True, False):
            exchange = Session.open(API, chat.encode_json(gemini.request()), agent(NAME, stream=stream), strict, "seed")
            exchange.encode_request()
            sent = gemini.make_stream(gemini.frame(gemini.event(part)))
            out = (
                feed_stream(exchange.stream(), *sent)
                if stream
                else exchange.whole.rewrite(chat.encode_json(gemini.reply(part)))
            )
            assert not re.search(b"function_?[cC]all|toolCall", out), part


async def read_by_sdk(pieces: Iterable[bytes], *, stream: bool) -> gemini.Read:
    """Parse the reply with google-genai, which has no accumulator, so its events are added up here."""
    reply = Reply(pieces, SSE if stream else JSON)
    async with serving(lambda _: reply) as upstream:
        options: Any = {"base_url": upstream.url, "async_client_args": {"trust_env": False, "verify": False}}
        async with genai.Client(api_key="sk-none", http_options=options).aio as sdk:
            asked: Any = {"model": gemini.MODEL, "contents": "x"}
            if stream:
                events = [one async for one in await sdk.models.generate_content_stream(**asked)]
            else:
                events = [await sdk.models.generate_content(**asked)]
    found = gemini.Read()
    for one in events:
        for candidate in one.candidates or ():
            for part in (candidate.content.parts if candidate.content else None) or ():
                if call := part.function_call:
                    found.calls.append((call.name, call.args))
                elif part.thought:
                    found.reasoning += part.text
                else:
                    found.content += part.text or ""
            found.reason = candidate.finish_reason.value if candidate.finish_reason else None
    return found


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_googles_client_and_the_witness_read_our_output_equally(stream: bool) -> None:
    text = f"I look.\n{IN_TEXT}"
    exchange = open_session(stream=stream)
    if stream:
        body = feed_stream(exchange.stream(), *gemini.make_text_stream(text[:9], text[9:]))
    else:
        body = exchange.whole.rewrite(chat.encode_json(gemini.reply(gemini.text(text))))
    found = await read_by_sdk([body], stream=stream)
    assert found == gemini.read(body)
    assert (found.calls, found.content) == ([("read", {"filePath": "/a"})], "I look.")


TEXTS = st.lists(st.text("ab <>\n\"'", min_size=1, max_size=6), max_size=5)


@given(TEXTS, st.booleans(), st.integers(1, 60))
def test_cuts_do_not_change_the_result(texts: list[str], called: bool, cut: int) -> None:
    streamed = [*texts, *(["\n", *IN_TEXT.partition("name")] if called else [])]
    body = b"".join(gemini.make_text_stream(*streamed))
    pieces = [body[at : at + cut] for at in range(0, len(body), cut)]
    found = gemini.read(feed_stream(open_session().stream(), *pieces))
    assert found == gemini.read(feed_stream(open_session().stream(), body))
    assert len(found.calls) == called
