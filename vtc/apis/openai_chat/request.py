"""Reading requests of chat completions. An unchanged field or message keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.calls import format_arguments, make_custom_tool
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import UNSIGNED_CALL_SIGNATURE, BodyLayout, FullError, Shape
from vtc.apis.openai_chat import words
from vtc.apis.openai_chat.words import ChatForm, function_of
from vtc.events import Media, Message, Thought, Tool, ToolCall

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty")
ROLE_ALIASES = {"developer": "system"}
"""Alternative names of roles."""
REASONING_KEYS = (*REASONING_FIELDS, "thinking")
"""Fields of reasoning text, in order of precedence."""
_ALL_REASONING_FIELDS = {*REASONING_KEYS, *words.SEALED_FIELDS}
MESSAGE_FIELDS = frozenset(("role", "content", "tool_calls", "tool_call_id", "name"))
"""Fields that are rendered from a message itself."""


def _fix_tool(entry: Any) -> Any:
    """Convert the declaration of a function to this API's form."""
    if not isinstance(entry, dict) or function_of(entry):
        return entry
    function = shapes.read_function(entry)
    return {"type": "function", "function": function.render_flat("parameters")} if function else entry


def _fix_result(message: Any) -> Any:
    """Convert the result of a tool to text or parts."""
    is_result = isinstance(message, dict) and message.get("role") in ("tool", "function")
    return edit_at(message, ("content",), shapes.fix_result) if is_result else message


def _fix_part(part: Any) -> Any:
    """Convert a part to this API's form."""
    return shapes.fix_part(part, ("input_text", "output_text", "input_image", "image"), "text", words.render_media)


def _drop_empty_tools(fields: Any) -> Any:
    """Remove an empty list of tools, and the fields about them."""
    if fields.get("tools") != [] or fields.get("tool_choice") not in (None, "auto", "none"):
        return fields
    return {key: value for key, value in fields.items() if key not in ("tools", "tool_choice", "parallel_tool_calls")}


TOOL_SHAPES = (
    Shape("tools.*", _fix_tool, shapes.OWN_TOOLS),
    Shape("tools.*.function.parameters", shapes.fix_schema, shapes.SCHEMAS_HAVE_OBJECTS),
    Shape("tools.*.function", shapes.without_null_strict, shapes.NO_STRICT),
)
CONTENT_SHAPES = (
    Shape("messages.*.content", shapes.wrap_part, "contents of one part converted to lists"),
    Shape("messages.*", _fix_result, shapes.RESULTS_ARE_TEXT),
)


class ChatToolFields(tool_fields.ToolFields):
    """The fields about the tools of chat completions."""

    def _read_tools(self) -> list[Tool]:
        tools = (
            read_custom_tool(entry)
            or _read_function(entry.get("function") if entry.get("type", "function") == "function" else None)
            for entry in self.fields.get("tools") or ()
        )
        return [tool for tool in tools if tool]

    @staticmethod
    def get_name(entry: Any) -> str | None:
        name = (function_of(entry) or entry).get("name") if isinstance(entry, dict) else None
        return name if isinstance(name, str) else None


class Request(request.Request):
    """A chat completion request."""

    LAYOUT = BodyLayout(
        name="chat completion request",
        full=FullError(
            "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} "
            "tokens. Please reduce the length of the messages.",
            sign=CONTEXT_LENGTH_EXCEEDED,
        ),
        limits={"max_tokens": ("max_tokens", "max_completion_tokens"), **{name: (name,) for name in SAMPLING}},
        carried=(
            *("stream_options", "reasoning_effort", "response_format", "n", "user", "store", "metadata"),
            *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "verbosity"),
        ),
        unsigned=Thought(
            encrypted=words.pack_entries((None, [words.make_signature_entry(UNSIGNED_CALL_SIGNATURE)])), on="call"
        ),
        bridged_form=ChatForm(wants_one_choice=True),
        shapes=(
            *CONTENT_SHAPES,
            Shape("messages.*.content.*", _fix_part, shapes.OWN_PARTS),
            Shape(
                "messages.*.tool_calls.*.function.arguments",
                shapes.arguments_string,
                shapes.ARGUMENTS_ARE_TEXT,
            ),
            *TOOL_SHAPES,
            Shape("", _drop_empty_tools, "an empty list of tools removed"),
            *(
                Shape(key, shapes.object_for_list, f"an empty list in {key} converted to an object")
                for key in ("metadata", "logit_bias", "stream_options")
            ),
        ),
    )
    TOOL_FIELDS = ChatToolFields
    TRANSLATED_FIELDS: ClassVar[Collection[str]] = ("refusal", *words.SEALED_FIELDS, "cache_control")
    """Further fields of a message that are translated for other APIs, or mean nothing to them."""

    def _decode(self, path: str) -> None:
        calls = (call for entry in self.entries for call in entry.get("tool_calls") or ())
        self.call_ids = frozenset(call["id"] for call in calls if isinstance(call.get("id"), str))
        usage = not self.stream or part_of(self.fields, "stream_options").get("include_usage") is True
        custom = frozenset(tool.name for tool in map(read_custom_tool, self.fields.get("tools") or ()) if tool)
        self.form: Any = ChatForm(usage, custom_tools=custom, wants_one_choice=self.fields.get("n") in (None, 1))
        self.unread = "functions" if self.fields.get("functions") else ""

    def _read(self) -> Iterator[request.MessageGroup]:
        return (((_read_message(entry),), (place,)) for place, entry in enumerate(self.entries))

    @staticmethod
    def interpret_part(part: Any) -> str | Media | None:
        """Interpret a part of a message."""
        match part:
            case str():
                return part
            case {"type": "image_url", "image_url": {"url": url, **rest}}:
                return content.parse_media_url("image", url, detail=rest.get("detail"))
            case {"type": "image_url", "image_url": str(url)}:
                return content.parse_media_url("image", url)
            case {"type": "file", "file": {"file_data": url, **rest}}:
                return content.parse_media_url("document", url, str(rest.get("filename") or ""))
            case {"text": str(text)} | {"refusal": str(text)}:
                return text
        return None

    def get_refusal(self, message: Message) -> str:
        text = message.source.get("refusal") if isinstance(message.source, dict) else None
        return text if isinstance(text, str) else ""

    def list_untranslated(self, message: Message) -> Iterable[str]:
        source = message.source if isinstance(message.source, dict) else {}
        known = {*MESSAGE_FIELDS, *REASONING_KEYS, *self.TRANSLATED_FIELDS}
        if message.role != "tool" and source.get("name"):
            yield "name"
        yield from (key for key, value in source.items() if key not in known and value)

    def get_call_seals(self, call: ToolCall) -> Sequence[str]:
        signature = words.signature_on(call.source) if isinstance(call.source, dict) else ""
        return signature.split(words.SEAL_SEPARATOR) if signature else ()

    def list_seals(self, message: Message) -> Iterator[str]:
        source = message.source if isinstance(message.source, dict) else {}
        yield from words.seals_in(words.entries_of(source))
        yield from super().list_seals(message)

    def without_reasoning(self, message: Message) -> Message:
        message = super().without_reasoning(message)
        gone = (*REASONING_KEYS, *words.SEALED_FIELDS)
        if isinstance(message.source, dict) and any(key in message.source for key in gone):
            source = {key: value for key, value in message.source.items() if key not in gone}
            message = replace(message, source=source)
        return replace(message, calls=tuple(map(_drop_call_seal, message.calls)))

    def _is_reasoning(self, part: Any) -> bool:
        return isinstance(part, dict) and part.get("type") == "thinking"

    def form_with(self, reasoning_fields: tuple[str, ...]) -> Any:
        return replace(self.form, reasoning_fields=reasoning_fields) if isinstance(self.form, ChatForm) else self.form


def _read_function(entry: Any) -> Tool | None:
    """Read the declaration of a function; None if it is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    return Tool(entry["name"], str(entry.get("description") or ""), part_of(entry, "parameters"))


def read_custom_tool(entry: Mapping[str, Any]) -> Tool | None:
    """Read the declaration of a custom tool; None if it is none."""
    tool = _read_function(entry.get("custom")) if entry.get("type") == "custom" else None
    if tool is None:
        return None
    grammar = part_of(part_of(part_of(entry, "custom"), "format"), "grammar")
    return make_custom_tool(tool.name, tool.description, grammar.get("definition"))


def _read_message(entry: Mapping[str, Any]) -> Message:
    """Decode a message, including Ollama's fields."""
    role = str(entry.get("role") or "")
    reasoning: Any = ""
    if not entry.keys().isdisjoint(_ALL_REASONING_FIELDS):
        texts = (entry[key] for key in REASONING_KEYS if entry.get(key))
        reasoning = next(texts, None) or words.text_of(words.entries_of(entry))
    return Message(
        role=ROLE_ALIASES.get(role, role),
        content=content.read(entry.get("content")),
        calls=tuple(map(_read_call, entry.get("tool_calls") or ())),
        call_id=text_at(entry, "tool_call_id"),
        name=text_at(entry, "name") or text_at(entry, "tool_name"),
        source=entry,
        reasoning=reasoning if isinstance(reasoning, str) else "",
    )


def _read_call(entry: Mapping[str, Any]) -> ToolCall:
    """Decode a call; the raw input of a custom tool becomes its only argument."""
    function = function_of(entry)
    arguments = {"input": function.get("input") or ""} if entry.get("custom") else function.get("arguments")
    return ToolCall(str(function.get("name") or ""), format_arguments(arguments) or "{}", text_at(entry, "id"), entry)


def _drop_call_seal(call: ToolCall) -> ToolCall:
    """Remove the seal of reasoning from a call."""
    if not (isinstance(call.source, dict) and words.signature_on(call.source)):
        return call
    return replace(call, source={key: value for key, value in call.source.items() if key != words.EXTRA_CONTENT})
