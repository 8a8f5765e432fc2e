"""Gemini's generateContent: requests, chunks of a stream, whole replies."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import msgspec
import pytest

from tests.apis import chat, gemini
from tests.apis.gemini import call, chunk, model, result, thought, user
from tests.apis.named_events import Json
from tests.exchanges import AGENT, PROFILES, fed
from vtc.apis import BadRequest, find, named, unread
from vtc.events import Asked, Failure, Media, Message, Opaque, Tool, ToolCall
from vtc.exchange import Exchange
from vtc.guards.chain import Guards
from vtc.profiles.planner import Planner
from vtc.profiles.schema import Match, PolicyProfile
from vtc.profiles.settings import Settings

API: Any = named("gemini")
CHAT: Any = named("openai-chat")
CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
READ = [("read", {"filePath": "/a"})]
each = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def exchange(
    *,
    stream: bool = True,
    guards: Json | None = None,
    settings: Any = None,
    upstream_stream: Any = None,
    **fields: Any,
) -> Exchange:
    policy = PolicyProfile(
        name="mine", match=Match(), guards=msgspec.convert(guards or {}, Guards), upstream_stream=upstream_stream
    )
    planner = Planner(dataclasses.replace(PROFILES, policies={"mine": policy}), Settings(**settings or {}))
    facts = dataclasses.replace(AGENT, path=gemini.STREAMED if stream else gemini.PATH)
    return Exchange.open(API, chat.encoded(gemini.request(**fields)), facts, planner, "seed")


def reply(*parts: Any, stream: bool, reason: str = "STOP") -> bytes:
    frames = gemini.streamed(*(chat.frame(chunk(part)) for part in parts), reason=reason)
    return b"".join(frames) if stream else chat.encoded(gemini.reply(*parts, reason=reason))


def through(one: Exchange, body: bytes, *, stream: bool) -> bytes:
    return fed(one.stream(), *(body[at : at + 7] for at in range(0, len(body), 7))) if stream else one.body(body)


def request(path: str = gemini.PATH, **fields: Any) -> Any:
    return API.request(chat.encoded(gemini.request(**fields)), path)


# Requests


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        ("/v1beta/models/gemini-x:generateContent", "gemini-x", False),
        ("/v1/models/qwen/qwen3:8b:streamGenerateContent?alt=sse&key=x", "qwen/qwen3:8b", True),
        ("/v1/projects/p/locations/l/publishers/google/models/m%3AgenerateContent", "m", False),
        ("/v1beta//models/m:STREAMgenerateContent;x?$alt=sse", "m", True),
    ],
)
def test_model_and_stream_are_read_from_the_path(path: str, model: str, stream: bool) -> None:
    assert find("POST", path) is API
    one = request(path)
    assert (one.model, one.stream) == (model, stream)


@pytest.mark.parametrize("path", ["/v1beta/models/m:countTokens", "/v1beta/models", "/v1beta/models/m"])
def test_other_paths_are_no_requests(path: str) -> None:
    assert find("POST", path) is None


def test_requests_that_are_left_alone_say_why() -> None:
    assert "counted" in str(unread("POST", "/v1beta/models/m:countTokens"))
    assert getattr(unread("POST", "/v1internal:streamGenerateContent"), "may_call", False)


@pytest.mark.parametrize("body", [b"[]", b'{"contents": 1}', b'{"contents": [{"parts": "x"}]}', b'{"contents": [1]}'])
def test_body_of_another_kind_is_no_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        _ = API.request(body, gemini.PATH).messages


def test_a_stream_as_one_array_is_not_read() -> None:
    with pytest.raises(BadRequest, match="alt=sse"):
        request(gemini.STREAMED.partition("?")[0])


CONVERSATION = [
    user("Read it", {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
    model(
        thought("Hm."),
        {"text": "Well", "thoughtSignature": "a"},
        {**call("read", filePath="/a"), "thoughtSignature": "b"},
    ),
    user(result("hello"), "And?"),
]


def test_conversation_is_read_and_written_back() -> None:
    one = request(contents=CONVERSATION, systemInstruction={"parts": [{"text": "Be kind."}]})
    assert [(one.role, one.text, one.name, one.reasoning) for one in one.messages] == [
        ("system", "Be kind.", None, ""),
        ("user", "Read it", None, ""),
        ("assistant", "Well", None, "Hm."),
        ("tool", "hello", "read", ""),
        ("user", "And?", None, ""),
    ]
    assert one.messages[2].calls == (ToolCall("read", '{"filePath": "/a"}'),)
    sent = json.loads(one.encode(messages=[msgspec.structs.replace(message) for message in one.messages]))
    assert sent["contents"] == CONVERSATION
    assert sent["systemInstruction"] == {"parts": [{"text": "Be kind."}]}


def test_names_in_snake_case_are_read() -> None:
    """As Google's own examples write them, and its SDK writes some."""
    entry = {"name": "read", "parameters": {"type": "OBJECT", "properties": {"type": {"type": "STRING"}}}}
    contents = [
        model({"function_call": {"name": "read", "args": {}}}),
        user({"function_response": {"name": "read", "response": {"result": 5}}}),
    ]
    config = {
        "max_output_tokens": 9,
        "thinking_config": {"thinking_budget": 0},
        "response_mime_type": "application/json",
    }
    one = request(
        contents=contents,
        tools=[{"function_declarations": [entry]}],
        system_instruction={"parts": [{"text": "Be kind."}]},
        generation_config=config,
    )
    assert one.tools == [Tool("read", "", {"type": "object", "properties": {"type": {"type": "string"}}})]
    assert [message.text for message in one.messages] == ["Be kind.", "", "5"]
    assert (one.effort, one.thinks, one.wants_json) == ("none", False, True)


def test_a_demanded_tool_and_those_allowed() -> None:
    def demanded(mode: str, *names: str) -> tuple[str, list[str]]:
        config = {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": [*names]}}
        one = request(toolConfig=config)
        return one.tool_choice, [tool.name for tool in one.tools]

    assert demanded("ANY", "read") == ("read", ["read"])
    assert demanded("ANY", "read", "write") == ("required", ["read", "write"])
    assert demanded("NONE")[0] == "none"


def test_denied_tools_are_not_offered_and_those_of_the_server_stay() -> None:
    tools = [*gemini.TOOLS, {"googleSearch": {}}, {"codeExecution": {}}]
    config = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["read"]}}
    one = exchange(guards={"denied_tools": ["read", "codeExecution"]}, tools=tools, toolConfig=config)
    sent = json.loads(one.request())
    assert [tool["name"] for tool in sent["tools"][0]["functionDeclarations"]] == ["list_files", "write"]
    assert sent["tools"][1:] == [{"googleSearch": {}}]
    assert "toolConfig" not in sent


def test_tools_in_the_prompt_and_calls_back() -> None:
    config = {"functionCallingConfig": {"mode": "AUTO"}}
    one = exchange(settings={"tools": "prompt", "dialect": "hermes"}, contents=CONVERSATION, toolConfig=config)
    sent = json.loads(one.request())
    assert not {"tools", "toolConfig"} & sent.keys()
    assert "list_files" in sent["systemInstruction"]["parts"][0]["text"]
    assert "<tool_call>" in json.dumps(sent["contents"][1])
    assert "<tool_response>" in sent["contents"][2]["parts"][0]["text"]
    assert sent["contents"][0] == CONVERSATION[0]
    assert gemini.read(through(one, reply(CALL, stream=True), stream=True)).calls == READ


def test_a_request_for_a_client_of_another_api() -> None:
    image = Opaque(media=Media("image", "image/png", "aGk="))
    asked = Asked(
        model="m",
        messages=(
            Message("system", ("Be kind.",)),
            Message("user", ("See", image)),
            Message("assistant", (), (ToolCall("read", "{}", "c1"), ToolCall("read", "{}", "c2"))),
            Message("tool", ("1", image), call_id="c1", name="read"),
            Message("tool", ("2",), call_id="c2", name="read"),
        ),
        tools=(Tool("read", "Reads.", {"type": "object"}),),
        choice="read",
        limits={"max_tokens": 9, "stop": ["x"], "min_p": 1},
        effort="low",
    )
    sent: Any = API.ask(asked)
    gemini.check_request(sent)
    assert sent["contents"][2]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "aGk="}}
    assert ["thoughtSignature" in part for part in sent["contents"][1]["parts"]] == [True, False]
    assert sent["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["read"]}
    thinking = {"thinkingBudget": 1024, "includeThoughts": True}
    assert sent["generationConfig"] == {"maxOutputTokens": 9, "stopSequences": ["x"], "thinkingConfig": thinking}


def test_a_server_that_is_asked_without_streaming_is_asked_at_another_path() -> None:
    one = exchange(upstream_stream="never")
    assert json.loads(one.request()) == gemini.request()
    assert one.path(f"/x{gemini.STREAMED}&key=k") == f"/x{gemini.PATH}?key=k"
    out = one.body(reply("Hi.\n", CALL, stream=False))
    assert gemini.read(out, stream=True) == gemini.Read("Hi.", "", READ, finish_reason="STOP")


# Replies


@each
@pytest.mark.parametrize("guards", [None, {"denied_tools": ["write"]}], ids=["free", "strict"])
def test_reply_of_which_nothing_changes_keeps_its_bytes(stream: bool, guards: Json | None) -> None:
    parts = [thought("Hm."), "a < b and ", {"text": "c", "thoughtSignature": "abc"}]
    parts += [] if guards else [{**call("read", filePath="/a"), "thoughtSignature": "x"}]
    body = reply(*parts, stream=stream)
    assert through(exchange(stream=stream, guards=guards), body, stream=stream) == body


@each
@pytest.mark.parametrize("guards", [None, {"denied_tools": ["write"]}], ids=["free", "strict"])
def test_call_in_text_becomes_a_call(stream: bool, guards: Json | None) -> None:
    one = exchange(stream=stream, guards=guards)
    found = gemini.read(through(one, reply(thought("Hm."), "Let me look.\n", *CALL, stream=stream), stream=stream))
    assert found == gemini.Read("Let me look.", "Hm.", READ, finish_reason="STOP")
    assert found.usage == gemini.COUNTS


@each
@pytest.mark.parametrize("text", [True, False], ids=["text", "native"])
def test_denied_call_does_not_leave(stream: bool, text: bool) -> None:
    one = exchange(stream=stream, guards={"denied_tools": ["read"], "on_denied": "steer"})
    said: Any = CALL if text else call("read", "id1", filePath="/a")
    found = gemini.read(through(one, reply("Hi.", said, call("write", "id2"), stream=stream), stream=stream))
    assert [name for name, _ in found.calls] == ["write"]
    assert found.content.startswith("Hi.")
    assert "read" in found.content


@each
def test_a_signature_comes_back_with_what_was_written_anew(stream: bool) -> None:
    signed = {**call("write", "id2", content="x"), "thoughtSignature": "b"}
    parts = [{"text": "Hi. ", "thoughtSignature": "a"}, call("read", "id1", filePath="/a"), signed]
    out = through(
        exchange(stream=stream, guards={"denied_tools": ["read"]}), reply(*parts, stream=stream), stream=stream
    )
    assert sorted(re.findall(rb'"thoughtSignature": ?"(.)"', out)) == [b"a", b"b"]
    assert gemini.read(out).calls == [("write", {"content": "x"})]


@each
def test_where_a_policy_is_strict_what_is_not_known_does_not_leave(stream: bool) -> None:
    """A part, or a field, in which some client may find a call."""
    odd: Json = {"executableCode": {"language": "PYTHON", "code": "read()"}, "toolCalls": [{"name": "read"}]}
    body = reply("Hi", odd, stream=stream).replace(b'"index": 0', b'"index": 0, "function_calls": [{"name": "read"}]')
    body = body.replace(b'"index":0', b'"index":0,"function_calls":[{"name":"read"}]')
    out = through(exchange(stream=stream, guards={"denied_tools": ["read"]}), body, stream=stream)
    assert b"read" not in out
    assert gemini.read(out).content == "Hi"


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "content_filter"),
        ("STOP", "stop"),
    ],
)
def test_why_it_ended(reason: str, end: str) -> None:
    """For a client of its own, and for one of another API; a call that was cut off is none."""
    body = reply("Hi. ", CALL[:-20], stream=True, reason=reason)
    assert gemini.read(through(exchange(), body, stream=True)).finish_reason == reason
    asked = chat.encoded(chat.request(stream=True))
    crossed = Exchange.open(CHAT, asked, AGENT, Planner(PROFILES, Settings(upstream_api=("gemini",))), "seed")
    found = chat.read(through(crossed, reply("Hi.", stream=True, reason=reason), stream=True))
    assert (found.content, found.finish_reason) == ("Hi.", end)


def test_a_prompt_that_is_blocked_is_a_reply_that_was_filtered() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, **gemini.HEAD, "usageMetadata": gemini.COUNTS}
    planner = Planner(PROFILES, Settings(upstream_api=("gemini",)))
    one = Exchange.open(CHAT, chat.encoded(chat.request(stream=True)), AGENT, planner, "seed")
    assert chat.read(through(one, chat.frame(blocked), stream=True)).finish_reason == "content_filter"
    strict = through(exchange(guards={"denied_tools": ["read"]}), chat.frame(blocked), stream=True)
    assert b'"blockReason"' in strict


def test_a_call_in_pieces_passes_and_is_withheld_where_a_policy_is_strict() -> None:
    """Vertex sends one only if it is asked to."""
    part = {
        "functionCall": {
            "name": "read",
            "partialArgs": [{"jsonPath": "$.filePath", "stringValue": "/a"}],
            "willContinue": True,
        }
    }
    body = reply("Hi", part, stream=True)
    assert through(exchange(), body, stream=True) == body
    assert b"read" not in through(exchange(guards={"denied_tools": ["read"]}), body, stream=True)


def test_errors_are_written_as_googles_are() -> None:
    assert API.error(Failure("busy", "server_error"), 503) == gemini.error("busy")
    stream = exchange().stream()
    body = b"".join([*gemini.said("Hi"), chat.frame(gemini.error())])
    assert b"".join([*stream.feed(body), *stream.finish()]) == body


def test_what_keeps_a_client_waiting_is_json() -> None:
    """Google's SDK reads a comment as JSON, and fails."""
    encoder = API.encoder()
    assert encoder.keep_alive() is None
    decoded = API.decoder().decode(next(iter(encoder.framing.reader().feed(gemini.said("Hi")[0]))))
    assert decoded
    encoder.follow(decoded.beside, 0)
    assert json.loads((encoder.keep_alive() or b"").removeprefix(b"data: "))["candidates"] == []


def test_a_text_client_reads_calls_of_the_server_as_text() -> None:
    prompt = "\n".join(
        ["TOOL USE", "## read_file", "Description: Reads.", "Parameters:", "- path: (required) The path."]
    )
    one = exchange(
        tools=None,
        systemInstruction={"parts": [{"text": f"{prompt}\nUsage:\n<read_file>\n<path>x</path>\n</read_file>"}]},
        settings={"client": "cline"},
    )
    found = gemini.read(through(one, reply("Hi.", call("read_file", path="/a"), stream=True), stream=True))
    assert found.calls == []
    assert "<read_file>\n<path>/a</path>\n</read_file>" in found.content
