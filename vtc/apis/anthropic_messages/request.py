"""Requests of Anthropic Messages. Fields and messages that are not changed keep their original bytes.

    {"system": "…", "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "…"}, {"type": "text", "text": "…"}]}]}

The system prompt is the first canonical message, and each tool result in a user message becomes a separate message.
In a message that is changed, blocks of unknown types are preserved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.calls import format_arguments
from vtc.apis.contract import Json, Question
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.events import (
    CanonicalRequest,
    Failure,
    ListedModel,
    Media,
    Message,
    Opaque,
    Seal,
    Thought,
    Tool,
    ToolCall,
)


def render_call(call: ToolCall) -> dict[str, Any]:
    """Render a call as a block, with the fields that VTC does not know (`caller`)."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = {}
    source = call.source if isinstance(call.source, dict) else {}
    return {**source, "type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


LAYOUT = BodyLayout(
    model_paths=("model", "message.model"),
    name="request of Anthropic Messages",
    full=FullError("prompt is too long: {prompt} tokens > {window} maximum", sign="prompt is too long"),
    prompt="system",
    parallel=None,  # a field of `tool_choice`
    any_json=False,
    signed=("thinking", "signature"),
    limits={**{name: (name,) for name in ("max_tokens", "temperature", "top_p", "top_k")}, "stop": ("stop_sequences",)},
    carried=(
        *("thinking.type", "thinking.display", "output_config.effort", "output_config.format", "output_format"),
        *("metadata", "cache_control"),
    ),
)
DEFAULT_MAX_TOKENS = 8192
"""Limit of a reply when the client set none, because this API requires one: all of its models accept this number."""
DEFAULT_MAX_TOKENS_WITH_THINKING = 32_000
"""The same for models that think, because thinking counts towards the limit."""
_EFFORTS = {"minimal": "low", "xhigh": "high"}
THINKING_TYPES = ("thinking", "redacted_thinking")
"""Types of thinking blocks. They cannot hold `cache_control`."""
_ERROR_TYPE_OF_STATUS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def build_request(canonical: CanonicalRequest) -> Json:
    """Render a canonical request for this API.

    Reasoning is omitted unless this same server produced it, because the server may check the signature that it made.
    """
    # Step 1: the model, the limits and the messages.
    prompt, messages = canonical.split_system_prompt()
    fields: dict[str, Any] = {
        "model": canonical.model,
        "max_tokens": DEFAULT_MAX_TOKENS,
        **LAYOUT.write_limits(canonical.limits),
    }
    if prompt is not None:
        fields["system"] = prompt
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
        fields["thinking"] = {"type": "adaptive"}
        fields["max_tokens"] = canonical.limits.get("max_tokens", DEFAULT_MAX_TOKENS_WITH_THINKING)
    if canonical.effort not in (None, "none", "auto"):
        config["effort"] = _EFFORTS.get(str(canonical.effort), canonical.effort)
    if canonical.answer and canonical.answer.schema:
        config["format"] = {"type": "json_schema", "schema": canonical.answer.schema}
    return {**fields, "output_config": config} if config else fields


def _render_blocks(message: Message) -> list[Json]:
    if message.role == "tool":
        blocks = [block for part in message.content for block in _render_part(part)]
        return [{"type": "tool_result", "tool_use_id": message.call_id, "content": blocks}]
    thought = [render_thinking(Thought(message.recalled_reasoning))] if message.recalled_reasoning else []
    return [*thought, *(block for part in message.sequence for block in _render_part(part))]


def _render_part(part: str | Opaque | ToolCall) -> Iterator[Json]:
    if isinstance(part, str):
        if part.strip():
            yield {"type": "text", "text": part}
    elif isinstance(part, ToolCall):
        yield render_call(part)
    elif part.media:
        yield _render_media(part.media)
    elif part.thought:
        yield render_thinking(part.thought)


def render_thinking(thought: Thought) -> Json:
    """Render the model's reasoning as a thinking block."""
    if thought.encrypted and not thought.signature:
        return {"type": "redacted_thinking", "data": thought.encrypted}
    return {"type": "thinking", "thinking": thought.text, "signature": thought.signature}


def _render_media(media: Media) -> Json:
    if media.data:
        source = {"type": "base64", "media_type": media.media_type, "data": media.data}
    else:
        source = {"type": "url", "url": media.url}
    return {"type": media.kind, "source": source}


def interpret_part(part: Any) -> str | Media | Seal | None:
    """Return the canonical meaning of a block: text, media or a seal; None if it has none."""
    match part:
        case str():
            return part
        case {"type": ("image" | "document") as kind, "source": {"type": "base64", "data": str(data), **rest}}:
            return Media(kind, str(rest.get("media_type") or ""), data, name=str(part.get("title") or ""))
        case {"type": ("image" | "document") as kind, "source": {"type": "url", "url": url}}:
            return content.parse_media_url(kind, url, str(part.get("title") or ""))
        case {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return _add_description(part, text)
        case {"type": "document", "source": {"type": "content", "content": str(text)}}:
            return _add_description(part, text)
        case {"type": "document", "source": {"type": "content", "content": list(blocks)}} if all(
            isinstance(block, dict) and block.get("type") == "text" for block in blocks
        ):
            return _add_description(part, _join_texts(blocks))
        case {"type": "search_result", "content": list(blocks)}:
            return _add_description(part, _join_texts(blocks))
        case {"type": "tool_reference", "tool_name": str(name)}:
            return f"The tool {name} can be called now."
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "thinking", "signature": str(value)} | {"type": "redacted_thinking", "data": str(value)}:
            return Seal(value)
    return None


def _join_texts(blocks: Sequence[Any]) -> str:
    return "\n".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict))


def _add_description(part: Json, text: str) -> str:
    """Render the text of a document or a search result, preceded by its title, source and context."""
    about = [part.get(key) for key in ("title", "source", "context")]
    return "\n".join(line for line in (*about, text) if isinstance(line, str))


def find_lost_fields(part: Any) -> Iterator[str]:
    """Name the fields of a document or a search result that no other API can express."""
    if isinstance(part, dict) and part.get("type") in ("document", "search_result"):
        if part_of(part, "citations").get("enabled"):
            yield "citations"
        if part.get("context") and not isinstance(interpret_part(part), str):
            yield "context of documents"


def build_error(failure: Failure, status: int) -> Json:
    """Render an error for an HTTP status."""
    words = re.match(r"(\w+)_error$", failure.kind)
    known = _ERROR_TYPE_OF_STATUS.get(status, "invalid_request_error" if status < 500 else "api_error")
    return {
        "type": "error",
        "error": {"type": failure.kind if words and status == 200 else known, "message": failure.message},
    }


_THINKING_ON = ("enabled", "adaptive")
type Block = dict[str, Any]


def _normalize_result(value: Any) -> Any:
    """Convert a tool's result to a text or a list of blocks; bare strings in a list become text blocks."""
    return edit_at(
        shapes.fix_result(value),
        ("*",),
        lambda part: {"type": "text", "text": part} if isinstance(part, str) else _normalize_part(part),
    )


def _normalize_part(part: Any) -> Any:
    """Convert a part in the shape of another API to a block."""
    return shapes.fix_part(part, ("input_text", "output_text", "input_image", "image_url"), "text", _render_media)


def _drop_blank_texts(blocks: Any) -> Any:
    """Remove blank text blocks unless all are blank; a cache mark on one moves to the block before it."""
    if not isinstance(blocks, list) or not any(map(_is_blank, blocks)) or all(map(_is_blank, blocks)):
        return blocks
    kept: list[Any] = []
    pending_mark = None  # a mark that no earlier block can hold; it moves to the next block that can
    for block in blocks:
        if not _is_blank(block):
            if pending_mark is not None and _can_hold_cache_mark(block):
                block, pending_mark = {**block, "cache_control": pending_mark}, None
            kept.append(block)
        elif mark := block.get("cache_control"):
            place = next((n for n in reversed(range(len(kept))) if kept[n].get("type") not in THINKING_TYPES), None)
            if place is None:
                pending_mark = mark
            else:
                kept[place] = {"cache_control": mark, **kept[place]}
    return kept


def _is_blank(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return isinstance(text, str) and not text.strip()


def _can_hold_cache_mark(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") not in THINKING_TYPES and not block.get("cache_control")


def _normalize_tool(entry: Any) -> Any:
    """Convert the declaration of a function to this API's shape, with an object schema."""
    function = None if not isinstance(entry, dict) or "input_schema" in entry else shapes.read_function(entry)
    if function:
        return _normalize_tool(function.render_flat("input_schema"))
    if not isinstance(entry, dict) or entry.get("type", "custom") != "custom" or not isinstance(entry.get("name"), str):
        return entry
    schema = entry.get("input_schema")
    own = shapes.fix_schema([] if schema is None else schema)
    if isinstance(own, dict) and "type" not in own:
        own = {**shapes.NO_PARAMETERS_SCHEMA, **own}
    return entry if own is schema else {**entry, "input_schema": own}


class MessagesToolFields(tool_fields.ToolFields):
    """The fields about the tools of Anthropic Messages."""

    def _read_tools(self) -> list[Tool]:
        """Parse the tools that are functions; the others have a dated type."""
        return [
            Tool(entry["name"], str(entry.get("description") or ""), part_of(entry, "input_schema"))
            for entry in self.fields.get("tools") or ()
            if isinstance(entry.get("name"), str) and entry.get("type") in (None, "custom")
        ]

    @staticmethod
    def render_declaration(tool: Tool) -> Block:
        schema = {"type": "object", **tool.parameters}
        return {"name": tool.name, "description": tool.description, "input_schema": schema}

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Block | None:
        tool = tools.get(self._get_name(entry) or "")
        if tool is None:
            return None
        strict = {"strict": True} if tool.strict else {}
        return {**entry, "name": tool.name, "input_schema": tool.parameters, **strict}


class Request(request.Request):
    """A request; `form` is True if it asks for thinking, since the reply must not show thinking otherwise."""

    LAYOUT = replace(
        LAYOUT,
        shapes=(
            Shape("messages.*.content", shapes.wrap_part, "contents of one block converted to lists"),
            Shape("messages.*.content.*", _normalize_part, shapes.OWN_PARTS),
            Shape("messages.*.content.*.[tool_use].input", shapes.arguments_object, shapes.ARGUMENTS_ARE_OBJECTS),
            Shape("messages.*.content.*.[tool_result].content", _normalize_result, shapes.RESULTS_ARE_TEXT),
            Shape("messages.*.content", _drop_blank_texts, "empty text blocks removed"),
            Shape("messages.*.content.*.[tool_result].content", _drop_blank_texts, "empty text blocks removed"),
            Shape("system", _drop_blank_texts, "empty text blocks removed"),
            Shape("tools.*", _normalize_tool, shapes.OWN_TOOLS),
            Shape("tools.*", shapes.without_null_strict, shapes.NO_STRICT),
            Shape("metadata", shapes.object_for_list, "an empty list in metadata converted to an object"),
        ),
    )
    interpret_part = staticmethod(interpret_part)

    @property
    def _tool_fields(self) -> MessagesToolFields:
        return MessagesToolFields(self.fields, self.LAYOUT)

    def name_part(self, part: Any) -> str:
        """Name a block that other APIs cannot express; empty for thinking blocks, which are omitted silently."""
        kind = super().name_part(part)
        return "" if kind in THINKING_TYPES else kind

    def _decode(self, path: str) -> None:
        blocks = (block for entry in self.fields["messages"] for block in _list_blocks(entry["content"]))
        calls = (block.get("id") for block in blocks if block.get("type") == "tool_use")
        self.call_ids = frozenset(id_ for id_ in calls if isinstance(id_, str))
        tools = self.fields.get("tools") or ()
        self.offer = replace(
            self.offer,
            parallel=(self.fields.get("tool_choice") or {}).get("disable_parallel_tool_use") is not True,
            deferred=frozenset(str(entry.get("name")) for entry in tools if entry.get("defer_loading") is True),
        )
        self.form = (self.fields.get("thinking") or {}).get("type") in _THINKING_ON

    def get_loaded_tool(self, part: Any) -> str:
        return str(part.get("tool_name") or "") if part.get("type") == "tool_reference" else ""

    def _is_reasoning(self, part: Any) -> bool:
        return is_thinking(part)

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.call_id) and not result.source.get("tool_use_id")

    def list_untranslated(self, message: Message) -> Iterable[str]:
        return (name for part in message.content if isinstance(part, Opaque) for name in find_lost_fields(part.part))

    def is_failed_result(self, message: Message) -> bool:
        return isinstance(message.source, dict) and message.source.get("is_error") is True

    def _read(self) -> Iterator[request.MessageGroup]:
        return ((_read_messages(entry), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        """Append a message; consecutive re-encoded user messages are merged, with tool results first."""
        entry, last = _render_entry(message, called), entries[-1] if entries else None
        if isinstance(last, dict) and last["role"] == entry["role"] == "user":
            _append_blocks(last["content"], entry["content"])
        elif entry["content"]:
            entries.append(entry)
        if isinstance(entries[-1] if entries else None, dict):
            entries[-1]["content"].sort(key=lambda block: block.get("type") != "tool_result")

    def _prompt(self, messages: Sequence[Message]) -> Any:
        """Render the system prompt, as a string if it was a string."""
        sources = [
            message.source.content if isinstance(message.source, request.PromptField) else "" for message in messages
        ]
        blocks: list[Block] = []
        for message, source in zip(messages, sources, strict=True):
            _append_blocks(blocks, _render_parts(message.content, _list_blocks(source)))
        if len(blocks) == 1 and content.is_text(blocks[0]) and list not in map(type, sources):
            return blocks[0]["text"]
        return blocks


def _list_blocks(content: Any) -> list[Block]:
    """Return the blocks of a `content` field. Raises TypeError if it is neither text nor a list of blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise TypeError("`content` is neither text nor a list of blocks")
    return content


def is_thinking(block: Any) -> bool:
    """True for a thinking block."""
    return isinstance(block, dict) and block.get("type") in THINKING_TYPES


def _read_messages(entry: Mapping[str, Any]) -> list[Message]:
    """Parse a message into canonical ones: each tool result in a user message becomes a separate message."""
    role, blocks = str(entry["role"]), _list_blocks(entry["content"])
    if role == "assistant":
        rest, calls = content.split_calls(
            blocks, lambda block: block.get("type") == "tool_use", _read_call, is_thinking
        )
        thoughts = "".join(str(block.get("thinking")) for block in blocks if block.get("type") == "thinking")
        return [Message(role, content.read(rest), calls, source=entry, reasoning=thoughts)]
    out: list[Message] = []
    for is_result, some in groupby(blocks, lambda block: block.get("type") == "tool_result" and role == "user"):
        if is_result:
            results = [(content.read(block.get("content")), block) for block in some]
            out += [
                Message("tool", text, call_id=text_at(block, "tool_use_id"), source=block) for text, block in results
            ]
        else:
            out.append(Message(role, content.read([*some]), source=entry))
    return out or [Message(role, source=entry)]


def _read_call(block: Block) -> ToolCall:
    return ToolCall(str(block.get("name")), format_arguments(block.get("input")) or "{}", text_at(block, "id"), block)


def _render_entry(message: Message, called: Collection[str | None]) -> Block:
    """Render one canonical message as an entry; a tool result without its call becomes text of the user."""
    source = message.source if isinstance(message.source, dict) else {}
    if message.role == "tool" and message.call_id in called:
        original = source.get("content")
        listed = isinstance(original, list) or any(isinstance(part, Opaque) for part in message.content)
        written = _render_parts(message.content, _list_blocks(original or [])) if listed else message.text
        result = {**source, "type": "tool_result", "tool_use_id": message.call_id, "content": written}
        return {"role": "user", "content": [result]}
    role = "user" if message.role == "tool" else message.role
    mark = source.get("cache_control") if source.get("type") == "tool_result" else None
    if role != source.get("role"):
        source = {}
    # Tool results, and calls that are preserved, are rendered separately.
    originals = [
        block
        for block in _list_blocks(source.get("content") or [])
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
        return render_call(part)
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


def render_model(model: ListedModel) -> Json:
    """Render a model for the answer to a side question."""
    limits = {"max_input_tokens": model.window, "max_tokens": model.max_reply_tokens}
    head = {"type": "model", "id": model.name, "display_name": model.name, "created_at": model.date}
    return {**head, **{key: tokens for key, tokens in limits.items() if tokens}}


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    ends: Sequence[str | None] = [model.name for model in models] or (None,)
    return {"data": [*map(render_model, models)], "has_more": False, "first_id": ends[0], "last_id": ends[-1]}


def _is_anthropic_client(_: str, headers: Mapping[str, str]) -> bool:
    return "anthropic-version" in headers


QUESTIONS = (
    Question(
        "alive", "HEAD", "/", lambda _: {}, lambda _, headers: "claude" in headers.get("user-agent", "").casefold()
    ),
    Question("models", "GET", "/v1/models", render_model_list, _is_anthropic_client),
    Question("model", "GET", "/v1/models/{model}", render_model, _is_anthropic_client),
    Question("count", "POST", "/v1/messages/count_tokens", lambda count: {"input_tokens": count}),
)
