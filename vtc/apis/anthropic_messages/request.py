"""Requests of Anthropic Messages. A request keeps the bytes of every field and message that is not changed.

    {"system": "…", "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "…"}, {"type": "text", "text": "…"}]}]}

The system prompt is the first canonical message, and each result in a user's message is one of its own. A message
of which nothing changed keeps its bytes; in any other the blocks of unknown types stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from vtc.apis import content, request
from vtc.apis.anthropic_messages import asking
from vtc.apis.anthropic_messages.answer import block_of
from vtc.apis.fields import part_of
from vtc.apis.tool_calls import arguments_text
from vtc.events import Message, Opaque, Tool, ToolCall

_THINKING = ("enabled", "adaptive")
type Block = dict[str, Any]


class Request(request.Request):
    """A request; `form` is True if it asks for thinking, which else the reply must not show."""

    NAME = "request of Anthropic Messages"
    PROMPT = "system"
    LIMITS = asking.LIMITS
    CARRIED = asking.CARRIED
    meaning = staticmethod(asking.meaning)
    kind = staticmethod(asking.kind)

    def _decode(self) -> None:
        blocks = (block for entry in self.fields["messages"] for block in _blocks(entry["content"]))
        calls = (block.get("id") for block in blocks if block.get("type") == "tool_use")
        self.call_ids = frozenset(id_ for id_ in calls if isinstance(id_, str))
        self.parallel = (self.fields.get("tool_choice") or {}).get("disable_parallel_tool_use") is not True
        self.deferred = frozenset(
            str(one.get("name")) for one in self.fields.get("tools") or () if one.get("defer_loading") is True
        )
        self.form = (self.fields.get("thinking") or {}).get("type") in _THINKING

    def loads(self, part: Any) -> str:
        return str(part.get("tool_name") or "") if part.get("type") == "tool_reference" else ""

    def has_thoughts(self, message: Message) -> bool:
        return any(isinstance(one, Opaque) and one.part.get("type") in asking.QUIET for one in message.content)

    def has_seal(self, message: Message) -> bool:
        blocks = (one.part for one in message.content if isinstance(one, Opaque))
        return any(one.get("type") in asking.QUIET and (one.get("signature") or one.get("data")) for one in blocks)

    def with_thoughts(self, message: Message, field: str) -> Message:
        said = (one for one in message.content if isinstance(one, str) or one.part.get("type") not in asking.QUIET)
        return replace(message, content=(Opaque(asking.thinking(message)), *said))

    def unsaid(self, message: Message) -> Iterable[str]:
        return (name for one in message.content if isinstance(one, Opaque) for name in asking.unsaid(one.part))

    def failed(self, message: Message) -> bool:
        return isinstance(message.source, dict) and message.source.get("is_error") is True

    @staticmethod
    def _tools(fields: Mapping[str, Any]) -> list[Tool]:
        """Read the tools that are functions; the others have a dated type."""
        return [
            Tool(entry["name"], str(entry.get("description") or ""), part_of(entry, "input_schema"))
            for entry in fields.get("tools") or ()
            if isinstance(entry.get("name"), str) and entry.get("type") in (None, "custom")
        ]

    @staticmethod
    def _declaration(tool: Tool) -> Block:
        schema = {"type": "object", **tool.parameters}
        return {"name": tool.name, "description": tool.description, "input_schema": schema}

    def _redeclared(self, entry: Any, tools: Mapping[str, Tool]) -> Block | None:
        tool = tools.get(self._name(entry) or "")
        if tool is None:
            return None
        strict = {"strict": True} if tool.strict else {}
        return {**entry, "name": tool.name, "input_schema": tool.parameters, **strict}

    def _read(self) -> Iterator[request.Group]:
        return ((_messages(entry), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Add a message; of those of the user in a row that were written anew, one is made, its results first."""
        entry, last = _entry(message, called), entries[-1] if entries else None
        if isinstance(last, dict) and last["role"] == entry["role"] == "user":
            _join(last["content"], entry["content"])
        elif entry["content"]:
            entries.append(entry)
        if isinstance(entries[-1] if entries else None, dict):
            entries[-1]["content"].sort(key=lambda block: block.get("type") != "tool_result")

    def _prompt(self, messages: Sequence[Message]) -> Any:
        """Write the system prompt: a text if it was one."""
        sources = [one.source.content if isinstance(one.source, request.Prompt) else "" for one in messages]
        blocks: list[Block] = []
        for message, source in zip(messages, sources, strict=True):
            _join(blocks, _written(message.content, _blocks(source)))
        is_text = len(blocks) == 1 and content.is_text(blocks[0]) and not any(isinstance(one, list) for one in sources)
        return blocks[0]["text"] if is_text else blocks


# Reading


def _blocks(content: Any) -> list[Block]:
    """The blocks of a content. Raises TypeError if it is none."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise TypeError("`content` is neither text nor a list of blocks")
    return content


def _messages(entry: Mapping[str, Any]) -> list[Message]:
    """Read a message as canonical ones: each result in one of the user's is one of its own."""
    role, blocks = str(entry["role"]), _blocks(entry["content"])
    if role == "assistant":
        calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
        said = content.read([block for block in blocks if block.get("type") != "tool_use"])
        thoughts = "".join(str(block.get("thinking")) for block in blocks if block.get("type") == "thinking")
        return [Message(role, said, calls, source=entry, reasoning=thoughts)]
    out: list[Message] = []
    for is_result, some in groupby(blocks, lambda block: block.get("type") == "tool_result" and role == "user"):
        if is_result:
            results = [(content.read(block.get("content")), block) for block in some]
            out += [Message("tool", text, call_id=block.get("tool_use_id"), source=block) for text, block in results]
        else:
            out.append(Message(role, content.read([*some]), source=entry))
    return out or [Message(role, source=entry)]


def _call(block: Block) -> ToolCall:
    return ToolCall(str(block.get("name")), arguments_text(block.get("input")) or "{}", block.get("id"), block)


# Writing


def _entry(message: Message, called: Collection[str | None]) -> Block:
    """Write one canonical message as an entry of its own; a result of no call is said by the user."""
    source = message.source if isinstance(message.source, dict) else {}
    if message.role == "tool" and message.call_id in called:
        said = source.get("content")
        listed = isinstance(said, list) or any(isinstance(part, Opaque) for part in message.content)
        written = _written(message.content, _blocks(said or [])) if listed else message.text
        result = {**source, "type": "tool_result", "tool_use_id": message.call_id, "content": written}
        return {"role": "user", "content": [result]}
    role = "user" if message.role == "tool" else message.role
    mark = source.get("cache_control") if source.get("type") == "tool_result" else None
    if role != source.get("role"):
        source = {}
    # Calls that stay, and all results, are written apart.
    originals = [
        block
        for block in _blocks(source.get("content") or [])
        if block.get("type") != "tool_result" and not any(call.source is block for call in message.calls)
    ]
    said = [*_written(message.content, originals), *map(block_of, message.calls)]
    if mark and said:
        said[-1] = {"cache_control": mark, **said[-1]}
    return {**source, "role": role, "content": said}


def _written(parts: Iterable[str | Opaque], originals: Sequence[Block]) -> list[Block]:
    """Write the parts of a content.

    New text continues the block before it. A mark for the cache whose block is gone moves to the last.
    """
    blocks: list[Block] = []
    for block in content.parts(parts, originals, {"type": "text"}):
        is_new = content.is_text(block) and not any(block is one for one in originals)
        if is_new and blocks and content.is_text(blocks[-1]):
            blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"] + block["text"]}
        else:
            blocks.append(block)
    blocks = [block for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
    marks = [block["cache_control"] for block in originals if block.get("cache_control")]
    kept = [block for block in blocks if block.get("cache_control")]
    if len(kept) < len(marks) and blocks and blocks[-1].get("type") not in asking.QUIET:
        blocks[-1] = {"cache_control": marks[-1], **blocks[-1]}
    return blocks


def _join(blocks: list[Block], more: Iterable[Block]) -> None:
    """Add what another message says; text is set off from text by an empty line."""
    for place, block in enumerate(more):
        last = blocks[-1] if blocks else {}
        if not place and block.get("type") == "text" and content.is_text(last):
            blocks[-1] = {**last, **block, "text": f"{last['text']}\n\n{block['text']}"}
        else:
            blocks.append(block)
