"""OpenAI chat completions (`POST …/chat/completions`), the form that model servers share.

Requests and whole replies; `openai_stream.py` has streamed ones. A request keeps the bytes of every field and message
that is not changed, a reply without calls all of its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from vtc.apis import openai_message
from vtc.apis.base import BadRequest, Cache, Channel, Reply
from vtc.apis.base import Request as BaseRequest
from vtc.apis.openai_answer import completion, reply_text, streamed
from vtc.apis.openai_calls import calls_of, entry_of, function_of
from vtc.apis.openai_json import (
    CUT_OFF,
    call,
    cleaned,
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
ROLES = {"developer": "system", "function": "tool"}
"""Roles by another name."""
OWN_FIELDS = ("role", "content", "tool_calls", "function_call", "tool_call_id", "name")
"""What a message says of itself."""
UNFIT = (ValueError, UnicodeError, AttributeError, TypeError, KeyError, RecursionError)
"""What a body raises that is no request."""
_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class OpenAIChat:
    name = "openai-chat"

    def handles(self, method: str, path: str) -> bool:
        return method == "POST" and path.partition("?")[0].rstrip("/").endswith("/chat/completions")

    def request(self, body: bytes, cache: Cache | None = None) -> Request:
        return Request(body, cache)

    def rewriter(self, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()) -> StreamRewriter:
        return StreamRewriter(channel, legacy=legacy, drop=drop)

    def rewrite(
        self, body: bytes, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()
    ) -> bytes:
        return rewrite_body(body, channel, legacy=legacy, drop=drop)

    def unstreamed(self) -> tuple[Mapping[str, Any], Sequence[str]]:
        return {"stream": False}, ("stream_options",)

    def streamed(self, body: bytes, request: BaseRequest) -> bytes:
        asked = request.fields.get("stream_options")
        return streamed(body, usage=isinstance(asked, dict) and bool(asked.get("include_usage")))

    def reply(self, request: BaseRequest, text: str, *, id_: str, created: int) -> bytes:
        return completion(text, id_=id_, model=request.model, created=created)

    def reply_text(self, body: bytes) -> str:
        return reply_text(body)

    def replies(self, body: bytes) -> list[Reply]:
        return openai_message.replies(body)

    def reasoning(self, message: Message) -> str:
        return openai_message.reasoning(message)


# Requests


class Request(BaseRequest):
    """A chat completion request."""

    def __init__(self, body: bytes, cache: Cache | None = None) -> None:
        try:
            self._raw, self.fields, self.tools = _raws(body, cache)
            messages = self.fields.get("messages", [])
            if not isinstance(messages, list):
                raise TypeError("`messages` is no list")
            self.call_ids = _call_ids(messages)
        except UNFIT as error:
            raise BadRequest(f"the body is no chat completion request: {error}") from None
        self.model = str(self.fields.get("model") or "")
        self.stream = self.fields.get("stream") is True
        self.legacy = not self.fields.get("tools") and bool(self.fields.get("functions"))
        self.declared = _declared_names(self.fields)
        self.tool_choice = _tool_choice(self.fields)
        self.parallel = self.fields.get("parallel_tool_calls") is not False

    @cached_property
    def messages(self) -> Sequence[Message]:  # type: ignore[override]  # made when asked for, as most are left alone
        try:
            return _messages(self.fields.get("messages", []))
        except UNFIT as error:
            raise BadRequest(f"the body is no chat completion request: {error}") from None

    @cached_property
    def _raw_messages(self) -> list[msgspec.Raw]:
        """The bytes of every message."""
        try:
            return _raw_list.decode(self._raw.get("messages", b"[]"))
        except msgspec.DecodeError:
            return [msgspec.Raw(encode(message)) for message in self.fields["messages"]]

    def forget(self) -> None:
        self.fields, self.messages, self._raw, self._raw_messages = {}, [], {}, []

    def encode(
        self,
        *,
        messages: Sequence[Message] | None = None,
        drop: Sequence[str] = (),
        set_: Mapping[str, Any] | None = None,
        tools: Sequence[Tool] | None = None,
        withheld: Collection[str] = (),
    ) -> bytes:
        gone = {*drop, *(() if tools is None else TOOL_FIELDS)}
        fields: dict[str, Any] = {key: raw for key, raw in self._raw.items() if key not in gone}
        if withheld and tools is None:
            self._withhold(fields, withheld)
        if messages is not None:
            originals = {id(message): raw for message, raw in zip(self.messages, self._raw_messages, strict=True)}
            fields["messages"] = [originals.get(id(message)) or _encoded(message) for message in messages]
        if tools:
            fields["tools"] = [tool.as_openai() for tool in tools]
        for path in drop:
            key, _, rest = path.partition(".")
            if rest and key in fields:
                fields[key] = _without(decode(encode(fields[key])), rest.split("."))
        return encode({**fields, **(set_ or {})})

    def _withhold(self, fields: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""
        for key in ("tools", "functions"):
            entries = self.fields.get(key)
            if isinstance(entries, list) and key in fields:
                kept = [one for one in entries if _name(one) not in names]
                fields[key] = kept
                if not kept:
                    for gone in TOOL_FIELDS:
                        fields.pop(gone, None)
        if self.tool_choice in names:
            fields.pop("tool_choice", None)
            fields.pop("function_call", None)


def _declared_names(fields: Mapping[str, Any]) -> list[str]:
    lists = (fields.get(key) for key in ("tools", "functions"))
    return [name for entries in lists if isinstance(entries, list) for one in entries if (name := _name(one))]


def _name(declared: Any) -> str | None:
    """The name of a declared tool, in any form."""
    name = (function_of(declared) or declared).get("name") if isinstance(declared, dict) else None
    return name if isinstance(name, str) else None


def _without(value: Any, path: Sequence[str]) -> Any:
    """JSON without what stands at a dotted path; `*` is any key or index."""
    key, *rest = path
    if isinstance(value, list):
        is_this = [key in ("*", str(index)) for index in range(len(value))]
        if rest:
            return [_without(one, rest) if this else one for this, one in zip(is_this, value, strict=True)]
        return [one for this, one in zip(is_this, value, strict=True) if not this]
    if isinstance(value, dict):
        if rest:
            return {name: _without(one, rest) if key in ("*", name) else one for name, one in value.items()}
        return {name: one for name, one in value.items() if key not in ("*", name)}
    return value


def _raws(body: bytes, cache: Cache | None) -> tuple[dict[str, msgspec.Raw], dict[str, Any], Sequence[Tool]]:
    """The bytes of every field, what the fields say, and the tools they declare.

    Raises ValueError.
    """
    try:
        raw = _raw_object.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # It takes Python's own decoder, so there are no bytes to keep: JavaScript cuts emoji in two when it cuts text.
        fields: dict[str, Any] = decode(body)
        return {key: msgspec.Raw(encode(value)) for key, value in fields.items()}, fields, _tools(fields)
    known: dict[str, bytes] = {key: bytes(raw[key]) for key in ("tools", "functions") if key in raw}
    if known and cache is not None:
        key = ("declared", *(part for entry in known.items() for part in entry))
        declared, tools = cache.get_or_make(key, lambda: _declared(known))
    else:
        declared, tools = _declared(known)
    fields = {key: declared[key] if key in declared else decode(bytes(one)) for key, one in raw.items()}
    return raw, fields, tools


def _declared(fields: Mapping[str, bytes]) -> tuple[dict[str, Any], Sequence[Tool]]:
    """Decode declarations of tools. Agents send the same ones with every request, and exchanges share them."""
    declared = {key: decode(raw) for key, raw in fields.items()}
    return declared, _tools(declared)


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
        choice = (choice.get("function") or choice.get("custom") or choice).get("name") or "auto"
    return "required" if choice == "any" else str(choice)  # as Mistral calls it


def _call_ids(entries: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(
        one["id"] for entry in entries for one in entry.get("tool_calls") or () if isinstance(one.get("id"), str)
    )


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
                role=ROLES.get(role, role),
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
    role, parts = source.get("role", message.role), source.get("content")
    same_role = ROLES.get(role, role) == message.role
    entry: dict[str, Any] = {"role": role if same_role else message.role}
    if isinstance(parts, list) or any(isinstance(part, Opaque) for part in message.content):
        entry["content"] = _parts(message, parts if isinstance(parts, list) else [])
    else:
        entry["content"] = message.text
    if message.calls:
        entry["tool_calls"] = [call.as_openai() for call in message.calls]
        entry["content"] = entry["content"] or None
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    if same_role:
        entry.update((key, value) for key, value in source.items() if key not in OWN_FIELDS)
    return entry


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


def rewrite_body(body: bytes, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()) -> bytes:
    """A chat completion, its calls lifted out of the text; the same bytes when there are none."""
    reply = decode(body, "replace")
    changed = False
    for choice in (reply.get("choices") or []) if isinstance(reply, dict) else []:
        message = choice.get("message")
        if not isinstance(message, dict):
            continue
        content, reason, one = message.get("content"), choice.get("finish_reason"), channel()
        native = calls_of(message)
        if not (native or isinstance(content, str)):
            continue
        if has_reasoning(message):
            one.reasoned()
        if native and one.structured:
            one.release()
        taken = native if one.takes_calls else []
        events = [*one.feed(content or ""), *one.finish(complete=reason != CUT_OFF, calls=taken)]
        if native and one.structured and [event.call for event in events if isinstance(event, Call)] == taken:
            native, taken, events = [], [], [event for event in events if not isinstance(event, Call)]
        if taken:
            message.pop("tool_calls", None)
            message.pop("function_call", None)
            choice["finish_reason"] = reason = text_reason(reason)
        text = "".join(map(said, events))
        thoughts = "".join(event.raw for event in events if isinstance(event, Reasoning))
        calls = [event.call for event in events if isinstance(event, Call)]
        if text == (content or "") and not calls and not taken:
            continue
        changed = True
        message["content"] = text or None if calls else text
        if thoughts:
            message["reasoning_content"] = (message.get("reasoning_content") or "") + thoughts
        if calls and legacy:
            message["function_call"] = calls[0].as_openai()["function"]
        elif calls:
            message["tool_calls"] = [entry_of(call) for call in calls]
        if calls:
            choice["finish_reason"] = finish_reason(reason, legacy=legacy)
    if drop and isinstance(reply, dict) and (clean := cleaned(reply, drop)) != reply:
        reply, changed = clean, True
    return encode(reply) if changed else body
