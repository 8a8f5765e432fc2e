"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share.

Requests and whole replies; `openai_stream.py` has streamed ones. A request keeps the bytes of every field and message
that is not changed, a reply without calls all of its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vtc.apis.base import BadRequest, Channel
from vtc.apis.base import Request as BaseRequest
from vtc.apis.openai_json import (
    CUT_OFF,
    call,
    calls_of,
    decode,
    encode,
    finish_reason,
    has_reasoning,
    said,
    text_reason,
)
from vtc.apis.openai_stream import StreamRewriter
from vtc.events import Call, Message, Opaque, Reasoning, Tool, ToolCall

TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class OpenAIChat:
    name = "openai-chat"

    def handles(self, method: str, path: str) -> bool:
        return method == "POST" and path.partition("?")[0].rstrip("/").endswith("/chat/completions")

    def request(self, body: bytes) -> Request:
        return Request(body)

    def rewriter(self, channel: Callable[[], Channel], *, legacy: bool) -> StreamRewriter:
        return StreamRewriter(channel, legacy=legacy)

    def rewrite(self, body: bytes, channel: Callable[[], Channel], *, legacy: bool) -> bytes:
        return rewrite_body(body, channel, legacy=legacy)


# Requests


class Request(BaseRequest):
    """A chat completion request."""

    def __init__(self, body: bytes) -> None:
        try:
            self.fields = decode(body)
            self._raw, self._raw_messages = _raws(body, self.fields)
            self.messages = _messages(self.fields.get("messages") or [])
            self.tools = _tools(self.fields)
        except (ValueError, UnicodeError, AttributeError, TypeError, KeyError) as error:
            raise BadRequest(f"the body is no chat completion request: {error}") from None
        self.model = str(self.fields.get("model") or "")
        self.stream = self.fields.get("stream") is True
        self.legacy = not self.fields.get("tools") and bool(self.fields.get("functions"))
        self.tool_choice = _tool_choice(self.fields)
        self.parallel = self.fields.get("parallel_tool_calls") is not False
        self._originals = {id(message): raw for message, raw in zip(self.messages, self._raw_messages, strict=True)}

    def encode(
        self,
        *,
        messages: Sequence[Message] | None = None,
        drop: Sequence[str] = (),
        set_: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
    ) -> bytes:
        gone = {*drop, *(() if tools is None else TOOL_FIELDS)}
        fields: dict[str, Any] = {key: raw for key, raw in self._raw.items() if key not in gone}
        if messages is not None:
            fields["messages"] = [self._originals.get(id(message)) or _encoded(message) for message in messages]
        if tools:
            fields["tools"] = [tool.as_openai() for tool in tools]
        return encode({**fields, **(set_ or {})})


def _raws(body: bytes, fields: Mapping[str, Any]) -> tuple[dict[str, msgspec.Raw], list[msgspec.Raw]]:
    """The bytes of every field, and of every message."""
    try:
        raw = _raw_object.decode(body)
        return raw, _raw_list.decode(raw.get("messages", msgspec.Raw(b"[]")))
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It takes Python's own decoder, so there are no bytes to keep: JavaScript cuts emoji in two when it cuts text.
        messages = [msgspec.Raw(encode(message)) for message in fields.get("messages") or []]
        return {key: msgspec.Raw(encode(value)) for key, value in fields.items()}, messages


def _tools(fields: Mapping[str, Any]) -> list[Tool]:
    entries = [
        entry.get("function") for entry in fields.get("tools") or [] if entry.get("type", "function") == "function"
    ]
    tools = []
    for entry in [*entries, *(fields.get("functions") or [])]:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str):
            description, parameters = entry.get("description"), entry.get("parameters")
            tools.append(
                Tool(
                    entry["name"],
                    description if isinstance(description, str) else "",
                    parameters if isinstance(parameters, dict) else {},
                )
            )
    return tools


def _tool_choice(fields: Mapping[str, Any]) -> str:
    choice = fields.get("tool_choice") or fields.get("function_call") or "auto"
    if isinstance(choice, dict):
        choice = (choice.get("function") or choice).get("name") or "auto"
    return str(choice)


def _messages(entries: Sequence[Mapping[str, Any]]) -> list[Message]:
    messages: list[Message] = []
    names: dict[str, str] = {}  # a result names its call by id, or in the older form not at all
    for entry in entries:
        role = str(entry.get("role") or "")
        calls = tuple(call(one) for one in entry.get("tool_calls") or ())
        if legacy := entry.get("function_call"):
            calls = (*calls, ToolCall(str(legacy.get("name")), legacy.get("arguments") or "{}"))
        names.update({one.id: one.name for one in calls if one.id})
        call_id = entry.get("tool_call_id")
        messages.append(
            Message(
                role={"developer": "system", "function": "tool"}.get(role, role),
                content=_content(entry.get("content")),
                calls=calls,
                call_id=call_id,
                name=names.get(call_id or "") or entry.get("name"),
                source=entry,
            )
        )
    return messages


def _content(content: Any) -> tuple[str | Opaque, ...]:
    if isinstance(content, str):
        return (content,) if content else ()
    return tuple(
        part["text"]
        if isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type") == "text"
        else Opaque(part)
        for part in content or ()
    )


def _encoded(message: Message) -> dict[str, Any]:
    """A message that was changed: what it says now, and every field of its source that says nothing of that."""
    source = message.source if isinstance(message.source, dict) else {}
    own = ("role", "content", "tool_calls", "function_call", "tool_call_id", "name")
    role = source.get("role", message.role)
    same_role = {"developer": "system", "function": "tool"}.get(role, role) == message.role
    entry: dict[str, Any] = {"role": role if same_role else message.role}
    parts = source.get("content")
    if all(isinstance(part, str) for part in message.content) and not isinstance(parts, list):
        entry["content"] = "".join(str(part) for part in message.content)
    else:
        entry["content"] = _parts(message, parts if isinstance(parts, list) else [])
    if message.calls:
        entry["tool_calls"] = [call.as_openai() for call in message.calls]
        entry["content"] = entry["content"] or None
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    return {**entry, **{key: value for key, value in source.items() if key not in own and same_role}}


def _parts(message: Message, originals: Sequence[Any]) -> list[Any]:
    """The parts of a message's content; one that says what it said before keeps its fields (`cache_control`)."""
    parts: list[Any] = []
    for index, part in enumerate(message.content):
        original = originals[index] if index < len(originals) else None
        if isinstance(part, Opaque):
            parts.append(part.part)
        elif isinstance(original, dict) and original.get("text") == part:
            parts.append(original)
        else:
            parts.append({"type": "text", "text": part})
    return parts


# Whole replies


def rewrite_body(body: bytes, channel: Callable[[], Channel], *, legacy: bool) -> bytes:
    """A chat completion, its calls lifted out of the text; the same bytes when there are none."""
    reply = decode(body)
    changed = False
    for choice in (reply.get("choices") or []) if isinstance(reply, dict) else []:
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        content, reason, one = message.get("content"), choice.get("finish_reason"), channel()
        native = calls_of(message)
        if (native and one.structured) or not (native or isinstance(content, str)):
            continue
        if has_reasoning(message):
            one.reasoned()
        events = [*one.feed(content or ""), *one.finish(complete=reason != CUT_OFF)]
        if native:
            events += one.calls(native)
            message.pop("tool_calls", None)
            message.pop("function_call", None)
            choice["finish_reason"] = reason = text_reason(reason)
        text = "".join(map(said, events))
        thoughts = "".join(event.raw for event in events if isinstance(event, Reasoning))
        calls = [event.call for event in events if isinstance(event, Call)]
        if text == content and not calls and not native:
            continue
        changed = True
        message["content"] = text or None if calls else text
        if thoughts:
            message["reasoning_content"] = (message.get("reasoning_content") or "") + thoughts
        if calls and legacy:
            message["function_call"] = calls[0].as_openai()["function"]
        elif calls:
            message["tool_calls"] = [call.as_openai() for call in calls]
        if calls:
            choice["finish_reason"] = finish_reason(reason, legacy=legacy)
    return encode(reply) if changed else body
