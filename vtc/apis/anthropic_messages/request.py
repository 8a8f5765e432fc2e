"""Reading requests of Anthropic Messages. Fields and messages that are not changed keep their original bytes.

    {"system": "…", "messages": [{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "…"}, {"type": "text", "text": "…"}]}]}

The system prompt is the first canonical message, and each tool result in a user message becomes a separate message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.anthropic_messages.blocks import THINKING_TYPES, Block, is_thinking, list_blocks, render_media
from vtc.apis.calls import format_arguments
from vtc.apis.contract import Json
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.events import Media, Message, Opaque, Seal, Tool, ToolCall

_THINKING_ON = ("enabled", "adaptive")


def _normalize_result(value: Any) -> Any:
    """Convert a tool's result to a text or a list of blocks; bare strings in a list become text blocks."""
    return edit_at(
        shapes.fix_result(value),
        ("*",),
        lambda part: {"type": "text", "text": part} if isinstance(part, str) else _normalize_part(part),
    )


def _normalize_part(part: Any) -> Any:
    """Convert a part in the shape of another API to a block."""
    return shapes.fix_part(part, ("input_text", "output_text", "input_image", "image_url"), "text", render_media)


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


class Request(request.Request):
    """A request; `form` is True if it asks for thinking, since the reply must not show thinking otherwise."""

    LAYOUT = BodyLayout(
        model_paths=("model", "message.model"),
        name="request of Anthropic Messages",
        full=FullError("prompt is too long: {prompt} tokens > {window} maximum", sign="prompt is too long"),
        prompt="system",
        parallel=None,  # a field of `tool_choice`
        any_json=False,
        signed=("thinking", "signature"),
        limits={
            **{name: (name,) for name in ("max_tokens", "temperature", "top_p", "top_k")},
            "stop": ("stop_sequences",),
        },
        carried=(
            *(
                "thinking.type",
                "thinking.budget_tokens",
                "thinking.display",
                "output_config.effort",
                "output_config.format",
                "output_format",
            ),
            *("metadata", "cache_control"),
        ),
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
    TOOL_FIELDS = MessagesToolFields

    def _decode(self, path: str) -> None:
        blocks = (block for entry in self.fields["messages"] for block in list_blocks(entry["content"]))
        calls = (block.get("id") for block in blocks if block.get("type") == "tool_use")
        self.call_ids = frozenset(id_ for id_ in calls if isinstance(id_, str))
        tools = self.fields.get("tools") or ()
        self.offer = replace(
            self.offer,
            parallel=(self.fields.get("tool_choice") or {}).get("disable_parallel_tool_use") is not True,
            deferred=frozenset(str(entry.get("name")) for entry in tools if entry.get("defer_loading") is True),
        )
        self.form = (self.fields.get("thinking") or {}).get("type") in _THINKING_ON

    def _read(self) -> Iterator[request.MessageGroup]:
        return ((_read_messages(entry), (place,)) for place, entry in enumerate(self.entries))

    @staticmethod
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

    def name_part(self, part: Any) -> str:
        """Name a block that other APIs cannot express; empty for thinking blocks, which are omitted silently."""
        kind = super().name_part(part)
        return "" if kind in THINKING_TYPES else kind

    def get_loaded_tool(self, part: Any) -> str:
        return str(part.get("tool_name") or "") if part.get("type") == "tool_reference" else ""

    def is_failed_result(self, message: Message) -> bool:
        return isinstance(message.source, dict) and message.source.get("is_error") is True

    def list_untranslated(self, message: Message) -> Iterable[str]:
        return (name for part in message.content if isinstance(part, Opaque) for name in _find_lost_fields(part.part))

    def _is_reasoning(self, part: Any) -> bool:
        return is_thinking(part)


def _read_messages(entry: Mapping[str, Any]) -> list[Message]:
    """Parse a message into canonical ones: each tool result in a user message becomes a separate message."""
    role, blocks = str(entry["role"]), list_blocks(entry["content"])
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
    return ToolCall(
        str(block.get("name") or ""), format_arguments(block.get("input")) or "{}", text_at(block, "id"), block
    )


def _join_texts(blocks: Sequence[Any]) -> str:
    return "\n".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict))


def _add_description(part: Json, text: str) -> str:
    """Render the text of a document or a search result, preceded by its title, source and context."""
    about = [part.get(key) for key in ("title", "source", "context")]
    return "\n".join(line for line in (*about, text) if isinstance(line, str))


def _find_lost_fields(part: Any) -> Iterator[str]:
    """Name the fields of a document or a search result that no other API can express."""
    if isinstance(part, dict) and part.get("type") in ("document", "search_result"):
        if part_of(part, "citations").get("enabled"):
            yield "citations"
        if part.get("context") and not isinstance(Request.interpret_part(part), str):
            yield "context of documents"
