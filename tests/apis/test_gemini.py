"""Gemini's generateContent: streamed and whole, calls in text, calls of its own, policies."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from tests.exchanges import PROFILES, fed
from vtc.apis import APIS, find
from vtc.exchange import Exchange
from vtc.guards.chain import Guards
from vtc.profiles.matching import Facts
from vtc.profiles.planner import Planner
from vtc.profiles.schema import Match, PolicyProfile
from vtc.profiles.settings import Settings

(API,) = [api for api in APIS if api.name == "gemini"]
SCHEMA = {"type": "object", "properties": {"filePath": {"type": "string"}}, "required": ["filePath"]}
TOOLS = [{"functionDeclarations": [{"name": name, "parameters": SCHEMA} for name in ("read", "bash")]}]
HEAD = {"modelVersion": "gemini-x", "responseId": "r1"}
USAGE = {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8}
CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'

type Json = dict[str, Any]


def frame(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(*parts: Json, **fields: Any) -> Json:
    return {"candidates": [{"content": {"role": "model", "parts": [*parts]}, "index": 0, **fields}], **HEAD}


def streamed(*parts: Json) -> bytes:
    last = {**chunk({"text": ""}, finishReason="STOP"), "usageMetadata": USAGE}
    return b"".join([*(frame(chunk(part)) for part in parts), frame(last)])


def whole(*parts: Json) -> bytes:
    return json.dumps({**chunk(*parts, finishReason="STOP"), "usageMetadata": USAGE}).encode()


def exchange(*, stream: bool = True, guards: Json | None = None, **fields: Any) -> Exchange:
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    path = f"/v1beta/models/gemini-x:{method}"
    assert find("POST", path) is API
    said = [{"role": "user", "parts": [{"text": "Read it"}]}]
    body = json.dumps({"contents": said, "tools": TOOLS, **fields}).encode()
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(guards or {}, Guards))
    one = Planner(dataclasses.replace(PROFILES, policies={"mine": policy}), Settings())
    return Exchange.open(API, body, Facts(user_agent="Any/1", host="127.0.0.1", path=path), one, "seed")


def through(one: Exchange, *parts: Json, stream: bool) -> tuple[str, str, list[Json]]:
    body = streamed(*parts) if stream else whole(*parts)
    return read(fed(one.stream(), *(body[at : at + 7] for at in range(0, len(body), 7))) if stream else one.body(body))


def read(body: bytes) -> tuple[str, str, list[Json]]:
    """The text, the thoughts and the calls of a reply, as a client reads them."""
    text = thoughts = ""
    calls: list[Json] = []
    values = (
        [json.loads(body)] if body.startswith(b"{") else [json.loads(one[6:]) for one in body.split(b"\n\n") if one]
    )
    for value in values:
        for entry in value["candidates"]:
            for part in entry.get("content", {}).get("parts", []):
                if "functionCall" in part:
                    calls.append(part["functionCall"])
                elif part.get("thought"):
                    thoughts += part["text"]
                else:
                    text += part.get("text", "")
    assert values[-1]["usageMetadata"] == USAGE
    return text, thoughts, calls


each = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@each
def test_reply_of_which_nothing_changes_keeps_its_bytes(stream: bool) -> None:
    parts: list[Json] = [
        {"text": "Hm.", "thought": True},
        {"text": "a < b and ", "thoughtSignature": "abc"},
        {"functionCall": {"name": "read", "args": {"filePath": "/a"}}, "thoughtSignature": "x"},
    ]
    body = streamed(*parts) if stream else whole(*parts)
    one = exchange(stream=stream)
    assert (fed(one.stream(), body) if stream else one.body(body)) == body


@each
def test_call_in_text_becomes_a_call(stream: bool) -> None:
    parts: list[Json] = [{"text": "Let me look.\n"}, *({"text": one} for one in CALL)]
    found = through(exchange(stream=stream), *parts, stream=stream)
    assert found == ("Let me look.", "", [{"name": "read", "args": {"filePath": "/a"}}])


@each
@pytest.mark.parametrize("text", [True, False])
def test_denied_call_does_not_leave(stream: bool, text: bool) -> None:
    native = [{"functionCall": {"name": "bash", "args": {"filePath": "/a"}}}]
    parts: list[Json] = [{"text": CALL.replace("read", "bash")}] if text else native
    one = exchange(stream=stream, guards={"denied_tools": ["bash"], "on_denied": "steer"})
    said, _, calls = through(one, {"text": "Hi."}, *parts, stream=stream)
    assert calls == []
    assert said.startswith("Hi.")
    assert "bash" in said


@each
def test_where_a_policy_is_strict_what_is_not_known_does_not_leave(stream: bool) -> None:
    """A part, or a field, in which some client may find a call."""
    odd: Json = {"executableCode": {"language": "PYTHON", "code": "x"}, "toolCalls": [{"name": "bash"}]}
    body = streamed({"text": "Hi"}, odd) if stream else whole({"text": "Hi"}, odd)
    body = body.replace(b'"index": 0', b'"index": 0, "function_calls": [{"name": "bash"}]')
    one = exchange(stream=stream, guards={"denied_tools": ["bash"]})
    out = fed(one.stream(), body) if stream else one.body(body)
    assert b"bash" not in out
    assert read(out)[0] == "Hi"


def test_tools_are_written_into_the_prompt_and_denied_ones_are_not_offered() -> None:
    one = exchange(guards={"denied_tools": ["bash"]}, systemInstruction={"parts": [{"text": "Be kind."}]})
    sent = json.loads(one.request())
    assert [tool["name"] for tool in sent["tools"][0]["functionDeclarations"]] == ["read"]
    assert sent["systemInstruction"] == {"parts": [{"text": "Be kind."}]}


def test_conversation_is_read_and_written_back() -> None:
    call = {"functionCall": {"name": "read", "args": {"filePath": "/a"}}}
    result = {"functionResponse": {"name": "read", "response": {"output": "hello"}}}
    contents = [
        {"role": "user", "parts": [{"text": "Read it"}]},
        {"role": "model", "parts": [{"text": "Well"}, call]},
        {"role": "user", "parts": [result, {"text": "And?"}]},
    ]
    request = API.request(json.dumps({"contents": contents, "tools": TOOLS}).encode(), path="/models/m:generateContent")
    assert [(one.role, one.text, len(one.calls), one.name) for one in request.messages] == [
        ("user", "Read it", 0, None),
        ("assistant", "Well", 1, None),
        ("tool", "hello", 0, "read"),
        ("user", "And?", 0, None),
    ]
    changed = [msgspec.structs.replace(one) for one in request.messages]
    assert json.loads(request.encode(messages=changed))["contents"] == contents
