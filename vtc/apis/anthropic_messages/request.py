"""Requests of Anthropic Messages. A request keeps the bytes of every field and message that is not changed.

    {"system": "…", "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "…"}, {"type": "text", "text": "…"}]}]}

The system prompt is the first canonical message, and each result in a user's message is one of its own. A message
of which nothing changed keeps its bytes; in any other the blocks of unknown types stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from vtc.apis import base, fields
from vtc.apis.anthropic_messages.reply import block_of
from vtc.events import Message, Opaque, Tool, ToolCall

BILLING = "x-anthropic-billing-header:"
"""Begins a system block of Claude Code that differs in each request and must stay the first."""
_THINKING = ("enabled", "adaptive")
_UNCACHED = ("thinking", "redacted_thinking")
"""Blocks that cannot hold `cache_control`."""

type Block = dict[str, Any]


class SystemPrompt(msgspec.Struct, frozen=True):
    """The `source` of a message that is the field `system`."""

    content: Any


class Request(fields.FieldsRequest):
    """A request; `form` is True if it asks for thinking, which else the reply must not show."""

    TOOL_FIELDS = ("tools", "tool_choice")

    NAME = "request of Anthropic Messages"

    def _decode(self, body: bytes, cache: base.Cache | None) -> None:
        self._raw, self.fields, self.tools = fields.raws(body, ("tools",), _tools, cache)
        messages = self.fields["messages"]
        if not isinstance(messages, list):
            raise TypeError("`messages` is no list")
        self.call_ids = frozenset(
            block["id"]
            for entry in messages
            for block in _blocks(entry["content"])
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
        )
        choice = self.fields.get("tool_choice") or {}
        kind = choice.get("type") or "auto"
        self.declared = [name for one in self.fields.get("tools") or () if isinstance(name := one.get("name"), str)]
        self.form = (self.fields.get("thinking") or {}).get("type") in _THINKING
        self.model = str(self.fields.get("model") or "")
        self.stream = self.fields.get("stream") is True
        self.tool_choice = {"any": "required", "tool": str(choice.get("name") or "required")}.get(kind, str(kind))
        self.parallel = choice.get("disable_parallel_tool_use") is not True

    def _read(self) -> Iterator[fields.Group]:
        system = self.fields.get("system")
        if system:
            yield (Message("system", _content(system), source=SystemPrompt(system)),), ()
        names: dict[Any, str] = {}
        for place, entry in enumerate(self.fields["messages"]):
            yield _messages(entry, names), (place,)

    def _declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        if tools:
            kept["tools"] = [_declared(tool) for tool in tools]

    def _withhold(self, kept: dict[str, Any], names: Collection[str]) -> None:
        """Leave out what declares the tools named, and what demands one of them."""
        if "tools" in kept:
            kept["tools"] = [one for one in self.fields["tools"] or () if one.get("name") not in names]
        if self.tool_choice in names or not kept.get("tools"):
            kept.pop("tool_choice", None)
        if not kept.get("tools"):
            kept.pop("tools", None)

    def _put(self, kept: dict[str, Any], messages: Sequence[Message]) -> None:
        """Write the messages into the fields `system` and `messages`."""
        opening = len([*takewhile(lambda message: message.role == "system", messages)])
        system = [
            message
            for place, message in enumerate(messages)
            if isinstance(message.source, SystemPrompt) or (message.source is None and place < opening)
        ]
        if [*map(id, system)] != [id(one) for one in self.messages if isinstance(one.source, SystemPrompt)]:
            kept["system"] = _system(system)
            if not system:
                del kept["system"]
        called = {call.id for message in messages for call in message.calls if call.id}
        rest = [message for message in messages if not any(message is one for one in system)]
        raws = fields.items(self._raw["messages"], self.fields["messages"])
        entries = self._entries(raws, rest, lambda out, message: _add(out, _entry(message, called)))
        kept["messages"] = [entry for entry in entries if not isinstance(entry, dict) or _finished(entry)]


# Reading


def _blocks(content: Any) -> list[Block]:
    """The blocks of a content. Raises TypeError if it is none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise TypeError("`content` is neither text nor a list of blocks")
    return content


def _content(content: Any) -> tuple[str | Opaque, ...]:
    return tuple(map(_part, _blocks(content or [])))


def _part(block: Block) -> str | Opaque:
    text = block.get("text")
    if block.get("type") == "text" and isinstance(text, str) and not text.startswith(BILLING):
        return text
    return Opaque(block)


def _messages(entry: Mapping[str, Any], names: dict[Any, str]) -> list[Message]:
    """Read a message as canonical ones; `names` are those of calls by id, to which it adds."""
    role, blocks = str(entry["role"]), _blocks(entry["content"])
    if role == "assistant":
        calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
        names.update({call.id: call.name for call in calls})
        said = tuple(_part(block) for block in blocks if block.get("type") != "tool_use")
        thoughts = "".join(str(block.get("thinking")) for block in blocks if block.get("type") == "thinking")
        return [Message(role, said, tuple(calls), source=entry, reasoning=thoughts)]
    out: list[Message] = []
    rest: list[str | Opaque] = []

    def add() -> None:
        if rest or not out:
            out.append(Message(role, tuple(rest), source=entry))
            rest.clear()

    for block in blocks:
        if block.get("type") == "tool_result" and role == "user":
            if rest:
                add()
            id_ = block.get("tool_use_id")
            out.append(Message("tool", _content(block.get("content")), (), id_, names.get(id_), block))
        else:
            rest.append(_part(block))
    add()
    return out


def _call(block: Block) -> ToolCall:
    said = block.get("input") or {}
    arguments = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return ToolCall(str(block.get("name")), arguments, block.get("id"), block)


def _tools(said: Mapping[str, Any]) -> list[Tool]:
    """Read the tools that are functions; the others have a dated type and no schema."""
    return [
        Tool(entry["name"], str(entry.get("description") or ""), entry["input_schema"])
        for entry in said.get("tools") or ()
        if isinstance(entry.get("name"), str)
        and isinstance(entry.get("input_schema"), dict)
        and entry.get("type") in (None, "custom")
    ]


# Writing


def _declared(tool: Tool) -> Block:
    schema = {"type": "object", **tool.parameters}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


def _system(messages: Iterable[Message]) -> Any:
    """Write the system prompt: a text if it was one."""
    entry: Block = {"role": "system", "content": []}
    for message in messages:
        source = message.source.content if isinstance(message.source, SystemPrompt) else ""
        if isinstance(source, str) and not any(isinstance(part, Opaque) for part in message.content):
            _join(entry, [{"type": "text", "text": message.text}])
        else:
            _join(entry, _written(message.content, _blocks(source)))
            entry["listed"] = True
    content: list[Block] = entry["content"]
    return content if "listed" in entry or len(content) != 1 else content[0]["text"]


def _entry(message: Message, called: Collection[str | None]) -> Block:
    """Write one canonical message as an entry of its own."""
    source = message.source if isinstance(message.source, dict) else {}
    if message.role == "tool" and message.call_id in called:
        content = source.get("content")
        listed = isinstance(content, list) or any(isinstance(part, Opaque) for part in message.content)
        said = _written(message.content, _blocks(content or [])) if listed else message.text
        result = {**source, "type": "tool_result", "tool_use_id": message.call_id, "content": said}
        return {"role": "user", "content": [result]}
    role = "user" if message.role == "tool" else message.role
    same_role = role == source.get("role")
    # Calls and results that stay are written apart.
    originals = [
        block
        for block in _blocks(source.get("content") or [] if same_role else [])
        if block.get("tool_use_id") not in called and not any(call.source is block for call in message.calls)
    ]
    content = [*_written(message.content, originals), *map(block_of, message.calls)]
    others = {key: value for key, value in source.items() if key not in ("role", "content")} if same_role else {}
    return {"role": role, "content": content, **others}


def _written(content: Iterable[str | Opaque], originals: Sequence[Block]) -> list[Block]:
    """Write the parts of a content; those that say what they said before stay the blocks they were.

    New text continues the block before it. A mark for the cache whose block is gone moves to the last.
    """
    known = [block for block in originals if isinstance(_part(block), str)]
    blocks: list[Block] = []
    for part in content:
        if isinstance(part, Opaque):
            blocks.append(part.part)
        elif part.strip() and (same := [place for place, block in enumerate(known) if block["text"] == part]):
            blocks.append(known.pop(same[0]))
        elif blocks and blocks[-1].get("type") == "text" and isinstance(_part(blocks[-1]), str):
            blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"] + part}
        elif part:
            blocks.append({"type": "text", "text": part})
    blocks = [block for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
    marks = [block["cache_control"] for block in originals if block.get("cache_control")]
    kept = [block for block in blocks if block.get("cache_control")]
    if len(kept) < len(marks) and blocks and blocks[-1].get("type") not in _UNCACHED:
        blocks[-1] = {"cache_control": marks[-1], **blocks[-1]}
    return blocks


def _add(entries: list[Any], entry: Block) -> None:
    """Add an entry; of those of one role in a row that were written anew, one is made."""
    last = entries[-1] if entries else None
    if isinstance(last, dict) and last["role"] == entry["role"] == "user":
        _join(last, entry["content"])
    else:
        entries.append(entry)


def _join(entry: Block, blocks: Iterable[Block]) -> None:
    """Add what another message says; text is set off from text by an empty line."""
    content: list[Block] = entry["content"]
    for place, block in enumerate(blocks):
        last = content[-1] if content else {}
        if not place and block.get("type") == last.get("type") == "text" and isinstance(_part(last), str):
            content[-1] = {**last, **block, "text": f"{last['text']}\n\n{block['text']}"}
        else:
            content.append(block)


def _finished(entry: Block) -> bool:
    """Put results ahead of the rest, as they must be; False if the message says nothing."""
    entry["content"].sort(key=lambda block: block.get("type") != "tool_result")
    return bool(entry["content"])
