"""Writing requests of Anthropic Messages. In a message that is changed, blocks of unknown types are preserved."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vtc.apis import content, request_writer, tool_writer
from vtc.apis.anthropic_messages.blocks import THINKING_TYPES, Block, list_blocks, render_media
from vtc.apis.anthropic_messages.request import Request
from vtc.apis.contract import Json
from vtc.apis.request import PromptField
from vtc.events import CanonicalRequest, Message, Opaque, Thought, Tool, ToolCall

DEFAULT_MAX_TOKENS = 8192
"""Limit of a reply when the client set none, because this API requires one: all of its models accept this number."""
DEFAULT_MAX_TOKENS_WITH_THINKING = 32_000
"""The same for models that think, because thinking counts towards the limit."""
MIN_BUDGET = 1024
"""The smallest token budget for thinking that the API accepts."""
_EFFORTS = {"minimal": "low", "xhigh": "high"}


class MessagesToolWriter(tool_writer.ToolWriter):
    """Writes the fields about the tools of Anthropic Messages."""

    @staticmethod
    def render_declaration(tool: Tool) -> Block:
        schema = {"type": "object", **tool.parameters}
        return {"name": tool.name, "description": tool.description, "input_schema": schema}

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Block | None:
        tool = tools.get(self.received.get_name(entry) or "")
        if tool is None:
            return None
        strict = {"strict": True} if tool.strict else {}
        return {**entry, "name": tool.name, "input_schema": tool.parameters, **strict}


class MessagesRequestWriter(request_writer.RequestWriter):
    """Writes requests of Anthropic Messages."""

    TOOL_WRITER = MessagesToolWriter
    RESULT_ID = "tool_use_id"
    HAS_CACHE_MARKS = True

    @staticmethod
    def build_request(canonical: CanonicalRequest) -> Json:
        """Render a canonical request.

        Reasoning is omitted unless this same server produced it, because the server may check the signature.
        """
        # Step 1: the model, the limits and the messages.
        prompt, messages = canonical.split_system_prompt()
        fields: dict[str, Any] = {
            "model": canonical.model,
            "max_tokens": DEFAULT_MAX_TOKENS,
            **Request.LAYOUT.write_limits(canonical.limits),
        }
        if prompt is not None:
            mark = canonical.messages[0].cache_mark
            fields["system"] = content.put_cache_mark([{"type": "text", "text": prompt}], mark) if mark else prompt
        fields["messages"] = content.group_turns(messages, _render_blocks, model="assistant", key="content")
        fields["stream"] = canonical.stream
        # Step 2: the tools and the choice among them.
        if canonical.tools:
            fields["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": dict(tool.parameters),
                    **({"strict": True} if tool.strict else {}),
                }
                for tool in canonical.tools
            ]
            fields["tools"] = content.put_cache_mark(fields["tools"], canonical.tools_mark)
            choice: dict[str, Any] = {"type": {"required": "any"}.get(canonical.choice, canonical.choice)}
            if canonical.choice not in ("auto", "none", "required"):
                choice = {"type": "tool", "name": canonical.choice}
            if not canonical.parallel and canonical.choice != "none":
                choice["disable_parallel_tool_use"] = True
            if choice != {"type": "auto"}:
                fields["tool_choice"] = choice
        # Step 3: thinking, its effort and the form of the answer.
        config: dict[str, Any] = {}
        if canonical.effort == "none":
            fields["thinking"] = {"type": "disabled"}
        elif canonical.effort and canonical.choice in ("auto", "none"):  # the API rejects thinking with a forced call
            fields["max_tokens"] = canonical.limits.get("max_tokens", DEFAULT_MAX_TOKENS_WITH_THINKING)
            fields["thinking"] = _render_thinking_config(canonical.thinking.budget, fields["max_tokens"])
        is_counted = "budget_tokens" in fields.get("thinking", {})
        if canonical.effort not in (None, "none", "auto") and not is_counted:
            config["effort"] = _EFFORTS.get(str(canonical.effort), canonical.effort)
        if canonical.answer and canonical.answer.schema:
            config["format"] = {"type": "json_schema", "schema": canonical.answer.schema}
        return {**fields, "output_config": config} if config else fields

    def _add_message(self, entries: list[Any], message: Message, called: Collection[str | None], form: Any) -> None:
        """Append a message; consecutive re-encoded user messages are merged, with tool results first."""
        entry, last = _render_entry(message, called), entries[-1] if entries else None
        if isinstance(last, dict) and last["role"] == entry["role"] == "user":
            _append_blocks(last["content"], entry["content"])
        elif entry["content"]:
            entries.append(entry)
        if isinstance(entries[-1] if entries else None, dict):
            entries[-1]["content"].sort(key=lambda block: block.get("type") != "tool_result")

    def _render_system_prompt(self, messages: Sequence[Message]) -> Any:
        """Render the system prompt, as a string if it was a string."""
        sources = [message.source.content if isinstance(message.source, PromptField) else "" for message in messages]
        blocks: list[Block] = []
        for message, source in zip(messages, sources, strict=True):
            _append_blocks(blocks, _render_parts(message.content, list_blocks(source)))
        if len(blocks) == 1 and content.is_text(blocks[0]) and list not in map(type, sources):
            return blocks[0]["text"]
        return blocks


def _render_thinking_config(budget: int | None, max_tokens: Any) -> Json:
    """Render the budget of the client if this API accepts it: at least 1024, and less than the reply's limit."""
    if budget is None or not isinstance(max_tokens, int) or max_tokens <= MIN_BUDGET:
        return {"type": "adaptive"}
    return {"type": "enabled", "budget_tokens": max(MIN_BUDGET, min(budget, max_tokens - 1))}


def _render_blocks(message: Message) -> list[Json]:
    if message.role == "tool":
        blocks = [block for part in message.content for block in _render_part(part)]
        result = {"type": "tool_result", "tool_use_id": message.call_id, "content": blocks}
        return content.put_cache_mark([result], message.cache_mark)
    thought = [_render_thinking(Thought(message.recalled_reasoning))] if message.recalled_reasoning else []
    blocks = [*thought, *(block for part in message.sequence for block in _render_part(part))]
    return content.put_cache_mark(blocks, message.cache_mark, THINKING_TYPES)


def _render_part(part: str | Opaque | ToolCall) -> Iterator[Json]:
    if isinstance(part, str):
        if part.strip():
            yield {"type": "text", "text": part}
    elif isinstance(part, ToolCall):
        yield _render_call(part)
    elif part.media:
        yield render_media(part.media)
    elif part.thought:
        yield _render_thinking(part.thought)


def _render_thinking(thought: Thought) -> Json:
    """Render the model's reasoning as a thinking block."""
    if thought.encrypted and not thought.signature:
        return {"type": "redacted_thinking", "data": thought.encrypted}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def _render_call(call: ToolCall) -> dict[str, Any]:
    """Render a call as a block, with the fields that VTC does not know (`caller`)."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    source = call.source if isinstance(call.source, dict) else {}
    return {**source, "type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _render_entry(message: Message, called: Collection[str | None]) -> Block:
    """Render one canonical message as an entry; a tool result without its call becomes text of the user."""
    source = message.source if isinstance(message.source, dict) else {}
    if message.role == "tool" and message.call_id in called:
        original = source.get("content")
        listed = isinstance(original, list) or any(isinstance(part, Opaque) for part in message.content)
        written = _render_parts(message.content, list_blocks(original or [])) if listed else message.text
        result = {**source, "type": "tool_result", "tool_use_id": message.call_id, "content": written}
        return {"role": "user", "content": [result]}
    role = "user" if message.role == "tool" else message.role
    mark = source.get("cache_control") if source.get("type") == "tool_result" else None
    if role != source.get("role"):
        source = {}
    # Tool results, and calls that are preserved, are rendered separately.
    originals = [
        block
        for block in list_blocks(source.get("content") or [])
        if block.get("type") != "tool_result" and not any(call.source is block for call in message.calls)
    ]
    blocks = [
        *_render_parts(message.content, originals),
        *(_render_own_part(part) for part in message.sequence[len(message.content) :]),
    ]
    if mark and blocks:
        blocks[-1] = {"cache_control": mark, **blocks[-1]}
    return {**source, "role": role, "content": blocks}


def _render_own_part(part: str | Opaque | ToolCall) -> Any:
    """Render a part other than new text as a block; an original block is returned as it is."""
    if isinstance(part, ToolCall):
        return _render_call(part)
    return part.part if isinstance(part, Opaque) and not part.thought else next(_render_part(part))


def _render_parts(parts: Iterable[str | Opaque], originals: Sequence[Block]) -> list[Block]:
    """Render the parts of a message as blocks.

    New text is appended to the text block before it. A cache mark whose block is gone moves to the last block.
    """
    # Step 1: render the parts, and join new text to the text before it.
    blocks: list[Block] = []
    parts = (Opaque(_render_own_part(part)) if isinstance(part, Opaque) else part for part in parts)
    for block in content.render_parts(parts, originals, {"type": "text"}):
        is_new = content.is_text(block) and not any(block is original for original in originals)
        if is_new and blocks and content.is_text(blocks[-1]):
            blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"] + block["text"]}
        else:
            blocks.append(block)
    # Step 2: remove blank texts, because the server rejects them.
    blocks = [block for block in blocks if block.get("type") != "text" or str(block.get("text")).strip()]
    # Step 3: restore a lost cache mark.
    marks = [block["cache_control"] for block in originals if block.get("cache_control")]
    kept = [block for block in blocks if block.get("cache_control")]
    if len(kept) < len(marks) and blocks and blocks[-1].get("type") not in THINKING_TYPES:
        blocks[-1] = {"cache_control": marks[-1], **blocks[-1]}
    return blocks


def _append_blocks(blocks: list[Block], more: Iterable[Block]) -> None:
    """Append the blocks of another message; an empty line separates its text from the text before."""
    for place, block in enumerate(more):
        last = blocks[-1] if blocks else {}
        if not place and block.get("type") == "text" and content.is_text(last):
            blocks[-1] = {**last, **block, "text": f"{last['text']}\n\n{block['text']}"}
        else:
            blocks.append(block)
