"""The APIs of the scripted model: its view of each request, and its replies.

This module does not use VTC; the frames are written by the helpers in `tests/apis`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.named_events import frame

type Json = dict[str, Any]

MODEL = "scripted-model"


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its main argument, which is a string in text calls, and other arguments that the agent requires.

    Some fields exist only in Responses: `namespace` is the group of the tool in a native call, `flat` is one name for
    both, as in text and in servers without groups, and a `custom` tool receives the bare value instead of arguments.
    """

    name: str
    key: str
    value: Any
    namespace: str = ""
    flat: str = ""
    custom: bool = False
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def written(self) -> str:
        """The name that the model writes."""
        return self.flat or self.name

    @property
    def arguments(self) -> str:
        return json.dumps({**self.more, self.key: self.value})


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    call: Call | None = None  # a native call after the text

    @property
    def pieces(self) -> list[str]:
        """Pieces of four characters, as real models stream tokens."""
        return [self.text[start : start + 4] for start in range(0, len(self.text), 4)]


@dataclass(frozen=True, slots=True)
class Heard:
    """The model's view of a request."""

    tools: list[str] | None
    """The names of the declared tools; None if the request has no such field."""
    system: str
    user: str
    results: str | None
    """Results in the API's own form, None if there are none."""


@dataclass(frozen=True, slots=True)
class Api:
    """One HTTP API of the scripted model; `hear` parses a request, `stream` yields the frames of a reply to it.

    `media` is the content type of its streams; some APIs stream `by_default`, unless the request disables it. `whole`
    is for agents that retry without `stream` after a stream broke off, which the frames `broken` do.
    """

    path: str
    hear: Callable[[Json], Heard]
    stream: Callable[[Reply, Json], Iterable[bytes]]
    _: KW_ONLY
    media: str = "text/event-stream"
    by_default: bool = False
    whole: Callable[[Reply], Json] | None = None
    broken: Sequence[bytes] = ()


def _text(content: Any) -> str:
    """Return the text of a content, whichever parts it has."""
    if isinstance(content, list):
        return "\n".join(_text(part.get("text") or part.get("content")) for part in content)
    return content or ""


def _join_texts(entries: Iterable[Json], *roles: str) -> str:
    return "\n".join(_text(entry.get("content")) for entry in entries if entry.get("role") in roles)


def _hear_chat(request: Json) -> Heard:
    messages = request["messages"]
    tools = [tool["function"]["name"] for tool in request["tools"]] if "tools" in request else None
    has_results = any(message["role"] == "tool" for message in messages)
    results = _join_texts(messages, "tool") if has_results else None
    return Heard(tools, _join_texts(messages, "system"), _join_texts(messages, "user"), results)


def _stream_chat(reply: Reply, request: Json) -> Iterable[bytes]:
    yield chat.ROLE
    yield from chat.make_text_chunks(*reply.pieces)
    if call := reply.call:
        ident = f"call_{len(request['messages'])}"
        yield chat.chunk({"tool_calls": [chat.native(0, id=ident, name=call.name, arguments=call.arguments)]})
    yield chat.chunk({}, "tool_calls" if reply.call else "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        yield chat.USED
    yield chat.DONE


def _whole_chat(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text}
    if call := reply.call:
        function = {"name": call.name, "arguments": call.arguments}
        ident = re.sub(r"\W+", "_", f"call_{call.arguments.rpartition('/')[2]}")  # a different one in each turn
        message["tool_calls"] = [{"id": ident, "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.call else "stop"}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}


def _hear_messages(request: Json) -> Heard:
    messages = request["messages"]
    tools = [tool["name"] for tool in request["tools"]] if "tools" in request else None
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    results = [_text(part["content"]) for part in parts if part["type"] == "tool_result"]
    user = [
        {**message, "content": [part for part in message["content"] if part["type"] != "tool_result"]}
        if isinstance(message["content"], list)
        else message
        for message in messages
    ]
    system = f"{_text(request.get('system'))}\n{_join_texts(messages, 'system')}"
    return Heard(tools, system, _join_texts(user, "user"), "\n".join(results) if results else None)


def _stream_messages(reply: Reply, request: Json) -> Iterable[bytes]:
    blocks = [messages.text_block(0, *reply.pieces)] if reply.text else []
    if call := reply.call:
        ident = f"toolu_{len(request['messages'])}"
        blocks.append(messages.call_block(len(blocks), call.name, call.arguments, id=ident))
    return messages.make_stream(*blocks, stop_reason="tool_use" if reply.call else "end_turn")


def _whole_message(reply: Reply) -> Json:
    content = [messages.text(reply.text)] if reply.text else []
    if call := reply.call:
        content.append(messages.call(call.name, **{call.key: call.value}))
    return messages.message(*content, stop_reason="tool_use" if reply.call else "end_turn")


def _hear_responses(request: Json) -> Heard:
    items = request["input"]
    if isinstance(items, str):
        items = [responses.make_input_message("user", items)]
    tools = None
    if "tools" in request:
        groups = [tool["tools"] if tool["type"] == "namespace" else [tool] for tool in request["tools"]]
        tools = [tool["name"] for group in groups for tool in group if tool["type"] in ("function", "custom")]
    results = [_text(item["output"]) for item in items if item.get("type") in responses.CALLS.values()]
    system = f"{request.get('instructions') or ''}\n{_join_texts(items, 'system', 'developer')}"
    return Heard(tools, system, _join_texts(items, "user"), "\n".join(results) if results else None)


def _stream_responses(reply: Reply, request: Json) -> Iterable[bytes]:
    turn = len(request["input"])
    items = [responses.text_events(*reply.pieces, id=f"msg_{turn}")] if reply.text else []
    if call := reply.call:
        ids = {"id": f"fc_{turn}", "call_id": f"call_{turn}"}
        if call.custom:
            items.append(responses.custom_call_events(call.name, call.value, **ids))
        else:
            items.append(responses.call_events(call.written, call.arguments, namespace=call.namespace, **ids))
    return responses.make_stream(*items)


def _stream_ollama(reply: Reply, request: Json) -> Iterable[bytes]:
    yield from ollama.make_text_lines(*reply.pieces)
    if call := reply.call:
        yield ollama.piece("", ollama.call(call.name, **json.loads(call.arguments)))
    yield ollama.end()


def _whole_ollama(reply: Reply) -> Json:
    calls = [ollama.call(call.name, **json.loads(call.arguments))] if (call := reply.call) else []
    return ollama.message(reply.text, *calls)


def _parts(request: Json, role: str) -> Iterable[Json]:
    return (part for entry in request["contents"] if entry["role"] == role for part in entry["parts"])


def _hear_gemini(request: Json) -> Heard:
    tools = None
    if "tools" in request:
        tools = [declared["name"] for tool in request["tools"] for declared in tool.get("functionDeclarations", ())]
    results = [json.dumps(part["functionResponse"]) for part in _parts(request, "user") if "functionResponse" in part]
    system = _text((request.get("systemInstruction") or {}).get("parts"))
    user = _text([part for part in _parts(request, "user") if "text" in part])
    return Heard(tools, system, user, "\n".join(results) if results else None)


def signature(call: Json) -> str:
    """Sign a call of Gemini's API, so that the server recognizes its own."""
    return base64.b64encode(hashlib.sha256(json.dumps(call, sort_keys=True).encode()).digest()).decode()


def find_unsigned_call(request: Json) -> str | None:
    """Return the name of a call that is the first of its turn and lacks its original signature, if there is one."""
    for entry in request["contents"]:
        called = [part for part in entry["parts"] if "functionCall" in part]
        call = {key: called[0]["functionCall"][key] for key in ("name", "args")} if called else {}
        if called and called[0].get("thoughtSignature") != signature(call):
            return str(call["name"])
    return None


def _stream_gemini(reply: Reply, _: Json) -> Iterable[bytes]:
    """Sign the call, show no reasoning, and count the tokens in each event, as Gemini 3 does."""
    parts = [gemini.text(piece) for piece in reply.pieces]
    if made := reply.call:
        call = gemini.call(made.name, **{made.key: made.value})
        parts.append({**call, "thoughtSignature": signature(call["functionCall"])})
    for number, part in enumerate(parts, 1):
        counted = {**gemini.USAGE, "candidatesTokenCount": number, "thoughtsTokenCount": 7}
        counted["totalTokenCount"] = sum(counted.values()) - gemini.USAGE["totalTokenCount"]
        yield gemini.frame(gemini.event(part, reason="STOP" if number == len(parts) else None, usageMetadata=counted))


CHAT = Api("/v1/chat/completions", _hear_chat, _stream_chat, whole=_whole_chat)
MESSAGES = Api(
    messages.PATH,
    _hear_messages,
    _stream_messages,
    whole=_whole_message,
    broken=[messages.START, *messages.text_block(0, "I will")[:-1], frame(messages.error())],
)
RESPONSES = Api(responses.PATH, _hear_responses, _stream_responses)
OLLAMA = Api(
    ollama.PATH,
    _hear_chat,
    _stream_ollama,
    media=ollama.NDJSON["content-type"],
    by_default=True,
    whole=_whole_ollama,
)
GEMINI = Api(f"/v1beta/models/{MODEL}:streamGenerateContent", _hear_gemini, _stream_gemini, by_default=True)
