"""Requests of generateContent. A request keeps the bytes of every field and content that is not changed.

    {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "systemInstruction": {"parts": [{"text": …}]},
     "tools": [{"functionDeclarations": [{"name": "read", "parameters": {…}}]}]}

Each result (`functionResponse`) in a user's content is a message of its own; calls and results often have no ids, and
are matched by name and order. Servers take all names in snake case, too, as Google's own examples write them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from vtc.apis import request
from vtc.apis.fields import part_of, raws
from vtc.apis.gemini import asking
from vtc.apis.gemini.decoder import parts_of
from vtc.apis.gemini.words import camel, part_of_call
from vtc.apis.tool_calls import arguments_text
from vtc.events import Message, Opaque, Tool, ToolCall

_MODES = {"ANY": "required", "NONE": "none"}
_DECLARED = "functionDeclarations"


class Request(request.Request):
    """A request; the model, and whether a stream is asked for, stand in its path."""

    NAME = "request of generateContent"
    ENTRIES = "contents"
    PROMPT = "systemInstruction"
    IN_PATH = True
    LIMITS = asking.LIMITS
    CARRIED = asking.CARRIED
    meaning = staticmethod(asking.meaning)
    kind = staticmethod(asking.kind)

    @staticmethod
    def _split(body: bytes) -> tuple[dict[str, msgspec.Raw], dict[str, Any]]:
        raw, fields = raws(body)
        fields = camel(fields)
        return camel(raw), {**fields, "generationConfig": camel(fields.get("generationConfig") or {})}

    def _decode(self) -> None:
        path, _, query = self.path.partition("?")
        model, _, method = unquote(path.partition("/models/")[2]).rpartition(":")
        self.model, self.stream = model, method.casefold().startswith("stream")
        if self.stream and not {"alt=sse", "$alt=sse", "%24alt=sse"} & {*query.split("&")}:
            raise ValueError("its stream is one JSON array: VTC reads those asked for with `?alt=sse`")
        parts = (camel(part) for entry in self._conversation for part in parts_of(entry))
        ids = (part_of(part, "functionCall").get("id") for part in parts)
        self.call_ids = frozenset(id_ for id_ in ids if isinstance(id_, str))
        config = self.fields.get("generationConfig", {})
        self.several = config.get("candidateCount") not in (None, 1)
        self.effort, self.answer = asking.effort(config), asking.answer(config)
        self.thinks = None if self.effort is None else self.effort != "none"
        self.refers = "cachedContent" if self.fields.get("cachedContent") else ""
        mode, allowed = self._calling()
        self.tool_choice = allowed[0] if mode == "required" and len(allowed) == 1 else mode
        self.tools = [one for one in self.tools if not allowed or one.name in allowed]

    def _calling(self) -> tuple[str, list[str]]:
        """Read which tools may or must be called; no names for all."""
        said = camel(camel(self.fields.get("toolConfig") or {}).get("functionCallingConfig") or {})
        return _MODES.get(str(said.get("mode")), "auto"), [*(said.get("allowedFunctionNames") or ())]

    # Tools

    @staticmethod
    def _tools(fields: Mapping[str, Any]) -> list[Tool]:
        return [
            Tool(
                one["name"],
                str(one.get("description") or ""),
                part_of(camel(one), "parametersJsonSchema") or asking.lowered(part_of(one, "parameters")),
            )
            for entry in fields.get("tools") or ()
            for one in _functions(entry)
        ]

    @staticmethod
    def _declaration(tool: Tool) -> Mapping[str, Any]:
        return {"name": tool.name, "description": tool.description, "parametersJsonSchema": dict(tool.parameters)}

    def _redeclared(self, entry: Any, tools: Mapping[str, Tool]) -> Mapping[str, Any] | None:
        functions = _functions(entry)
        if not any(one["name"] in tools for one in functions):
            return None
        said = [_anew(one, tools[one["name"]]) if one["name"] in tools else one for one in functions]
        return {**camel(entry), _DECLARED: said}

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        hosted = self._offered(self.fields.get("tools") or (), {tool.name for tool in self._tools(self.fields)})
        said = [{_DECLARED: [*map(self._declaration, tools)]}] if tools else []
        if entries := [*hosted, *said]:
            kept["tools"] = entries

    def _names(self, entries: Sequence[Any]) -> Iterator[str]:
        """Tell the names of functions, and of tools that the server runs."""
        for entry in entries:
            yield from (one["name"] for one in _functions(entry))
            yield from camel(entry).keys() - {_DECLARED}

    def _offered(self, entries: Sequence[Any], names: Collection[str]) -> Iterator[Any]:
        for entry in entries:
            left = {key: value for key, value in camel(entry).items() if key not in {_DECLARED, *names}}
            if functions := [one for one in _functions(entry) if one["name"] not in names]:
                left[_DECLARED] = functions
            if left:
                yield left

    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        super()._withhold(kept, names)
        if "toolConfig" in kept and {*names} & {*self._calling()[1]}:
            del kept["toolConfig"]

    # Messages

    @staticmethod
    def _content(prompt: Any) -> tuple[str | Opaque, ...]:
        return tuple(_said(part) for part in parts_of(prompt))

    def _prompt(self, messages: Sequence[Message]) -> Any:
        return {"parts": [part for one in messages for part in _written(one, ())]}

    def _read(self) -> Iterator[request.Group]:
        return ((_messages(entry), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        role = "model" if message.role == "assistant" else "user"
        if message.role == "tool" and message.name:
            said = [_result(message)]
        else:
            originals = parts_of(message.source) if isinstance(message.source, dict) else []
            said = [*_written(message, originals), *map(part_of_call, message.calls)]
        if entries and isinstance(entries[-1], dict) and entries[-1]["role"] == role == "user":
            entries[-1]["parts"] += said
        elif said:
            entries.append({"role": role, "parts": said})

    def failed(self, message: Message) -> bool:
        return "error" in part_of(_response(message.source), "response")


def _functions(entry: Any) -> list[dict[str, Any]]:
    """The functions that an entry of `tools` declares."""
    found = camel(entry).get(_DECLARED)
    return [one for one in found or () if isinstance(one.get("name"), str)]


def _anew(function: Mapping[str, Any], tool: Tool) -> dict[str, Any]:
    """Write a declaration with the name and the parameters of a tool; all else stays."""
    kept = {key: one for key, one in camel(function).items() if key not in ("parameters", "parametersJsonSchema")}
    return {**kept, "name": tool.name, "parametersJsonSchema": dict(tool.parameters)}


def _said(part: Mapping[str, Any]) -> str | Opaque:
    """Read a part that is neither a call nor a result."""
    text = part.get("text")
    return text if isinstance(text, str) and not part.get("thought") else Opaque(part)


def _response(part: Any) -> Mapping[str, Any]:
    """The result that a part is; empty if it is none."""
    return part_of(camel(part), "functionResponse") if isinstance(part, dict) else {}


def _messages(entry: Mapping[str, Any]) -> list[Message]:
    """Read a content as canonical messages."""
    said: list[str | Opaque] = []
    calls: list[ToolCall] = []
    results: list[Message] = []
    thoughts = ""
    for part in parts_of(entry):
        call = camel(part).get("functionCall")
        if isinstance(call, dict):
            arguments = arguments_text(call.get("args", {})) or ("{}" if call.get("args", {}) == {} else "")
            calls.append(ToolCall(str(call.get("name")), arguments, call.get("id"), part))
        elif found := _response(part):
            parts = [_said(one) for one in found.get("parts") or ()]
            answer = _answer(found.get("response"))
            results.append(Message("tool", (answer, *parts), (), found.get("id"), str(found.get("name")), part))
        else:
            said.append(_said(part))
            thoughts += str(part.get("text") or "") if part.get("thought") else ""
    role = "assistant" if entry.get("role") == "model" else "user"
    own = [Message(role, (*said,), (*calls,), source=entry, reasoning=thoughts)] if said or calls or not results else []
    return [*results, *own]


def _answer(response: Any) -> str:
    """The text of a result, which stands in an object, under one of several names."""
    if isinstance(response, dict) and len(response) == 1:
        response = next((response[key] for key in ("output", "result", "error") if key in response), response)
    return response if isinstance(response, str) else arguments_text(response)


def _result(message: Message) -> dict[str, Any]:
    """Write a result, in the place of its own part."""
    known = {key: value for key, value in _response(message.source).items() if key != "parts"}
    parts = [one.part for one in message.content if isinstance(one, Opaque)]
    more = {"parts": parts} if parts else {}
    return {"functionResponse": {**known, "name": message.name, "response": {"output": message.text}, **more}}


def _written(message: Message, originals: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Write what a message says; a text that stays keeps its signature."""
    known = {part["text"]: part for part in originals if isinstance(_said(part), str)}
    return [one.part if isinstance(one, Opaque) else known.get(one, {"text": one}) for one in message.content]
