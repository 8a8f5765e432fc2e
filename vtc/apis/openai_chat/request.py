"""Requests of chat completions. An unchanged field or message keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.bridge import REASONING_FIELDS
from vtc.apis.calls import format_arguments, make_custom_tool
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json, Question
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import UNSIGNED_CALL_SIGNATURE, BodyLayout, FullError, Shape
from vtc.apis.openai_chat import words
from vtc.apis.openai_chat.words import ChatForm, entry_of, function_of
from vtc.events import (
    CanonicalRequest,
    Failure,
    ListedModel,
    Media,
    Message,
    Thought,
    Tool,
    ToolCall,
)

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty")
LAYOUT = BodyLayout(
    name="chat completion request",
    full=FullError(
        "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} tokens. "
        "Please reduce the length of the messages.",
        sign=CONTEXT_LENGTH_EXCEEDED,
    ),
    limits={"max_tokens": ("max_tokens", "max_completion_tokens"), **{name: (name,) for name in SAMPLING}},
    carried=(
        *("stream_options", "reasoning_effort", "response_format", "n", "user", "store", "metadata"),
        *("prompt_cache_key", "safety_identifier"),
    ),
    unsigned=Thought(
        encrypted=words.pack_entries((None, [words.make_signature_entry(UNSIGNED_CALL_SIGNATURE)])), on="call"
    ),
)
EFFORT_ALIASES = {"max": "xhigh"}
"""Effort levels that only other APIs have, with the closest one of this API."""


def build_request(canonical: CanonicalRequest) -> Json:
    """Render a request; it always asks for usage, because other APIs send it."""
    fields: dict[str, Any] = {
        "model": canonical.model,
        "messages": [*_render_messages(canonical.messages, canonical.reasoning_field or REASONING_FIELDS[0])],
        **LAYOUT.write_limits(canonical.limits),
        "stream": canonical.stream,
    }
    if canonical.stream:
        fields["stream_options"] = {"include_usage": True}
    if canonical.tools:
        fields["tools"] = [tool.as_openai() for tool in canonical.tools]
        if canonical.choice != "auto":
            fields["tool_choice"] = render_tool_choice(canonical.choice)
        if not canonical.parallel:
            fields["parallel_tool_calls"] = False
    if canonical.effort not in (None, "auto"):
        fields["reasoning_effort"] = EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)
    if answer := canonical.answer:
        schema = {"name": answer.name, "schema": answer.schema, "strict": answer.strict}
        kept = {key: value for key, value in schema.items() if value is not None}
        form = {"type": "json_schema", "json_schema": kept} if answer.schema else {"type": "json_object"}
        fields["response_format"] = form
    return fields


def constrain(form: str, value: Any) -> Json:
    """Set the grammar of a reply, in the server's own field."""
    match form:
        case "structural_tag":
            return {"response_format": {"type": "structural_tag", "format": value}}
        case "gbnf":
            return {"grammar": value}
        case "gbnf_string":
            return {"grammar_string": value}
        case "gbnf_format":
            return {"response_format": {"type": "grammar", "grammar": value}}
    return {
        "response_format": {"type": "json_schema", "json_schema": {"name": "call", "schema": value, "strict": True}}
    }


def render_tool_choice(choice: str) -> Any:
    """Render the choice of a tool."""
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _render_messages(messages: Sequence[Message], reasoning_field: str) -> Iterator[Mapping[str, Any]]:
    """Render messages; images in results follow in a user message, because results contain only text."""
    shown: list[Mapping[str, Any]] = []
    for message in messages:
        if message.role == "tool":
            yield {"role": "tool", "tool_call_id": message.call_id, "content": _join_text(message)}
            if media := [part for part in content.list_parts(message) if isinstance(part, Media)]:
                about = {"type": "text", "text": f"From the result of {message.name or 'the tool'}:"}
                shown += [about, *map(_render_media, media)]
            continue
        entry = _render_entry(message, reasoning_field)
        if shown and message.role == "user":
            text = entry["content"]
            more = [{"type": "text", "text": text}] if isinstance(text, str) else text
            entry = {**entry, "content": [*shown, *more]}
        elif shown:
            yield {"role": "user", "content": shown}
        shown = []
        yield entry
    if shown:
        yield {"role": "user", "content": shown}


def _render_entry(message: Message, reasoning_field: str) -> Mapping[str, Any]:
    plain = all(isinstance(part, str) for part in message.content) or message.role != "user"
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else _render_media(part)
        for part in content.list_parts(message)
    ]
    entry: dict[str, Any] = {"role": message.role, "content": _join_text(message) if plain else parts}
    past = words.find_past_entries(message)
    if message.reasoning and _strip_whitespace(words.text_of(words.entries_of(past.fields))) != _strip_whitespace(
        message.reasoning
    ):
        entry[reasoning_field] = message.reasoning
    entry |= past.fields
    if message.calls:
        entry["tool_calls"] = past.put_on([call.as_openai() for call in message.calls])
        entry["content"] = entry["content"] or ("" if message.content == ("",) else None)
    return entry


def _strip_whitespace(text: str) -> str:
    return "".join(text.split())


def _join_text(message: Message) -> str:
    return "\n".join(part for part in message.content if isinstance(part, str))


def _render_media(media: Media) -> Mapping[str, Any]:
    if media.kind == "image":
        detail = {"detail": media.detail} if media.detail else {}
        return {"type": "image_url", "image_url": {"url": content.render_media_url(media), **detail}}
    if media.data:
        return {
            "type": "file",
            "file": {"filename": media.name or "document.pdf", "file_data": content.render_media_url(media)},
        }
    return {"type": "text", "text": content.describe_omitted_media(media)}


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


def build_error(failure: Failure, status: int) -> Json:
    """Render an error."""
    return {"error": words.build_error(failure.message, failure.kind, status)}


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
    return shapes.fix_part(part, ("input_text", "output_text", "input_image", "image"), "text", _render_media)


def _drop_empty_tools(fields: Any) -> Any:
    """Remove an empty list of tools, and the fields about them."""
    if fields.get("tools") != [] or fields.get(str(LAYOUT.choice)) not in (None, "auto", "none"):
        return fields
    return {key: value for key, value in fields.items() if key not in ("tools", LAYOUT.choice, LAYOUT.parallel)}


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
            _read_custom_tool(entry)
            or _read_function(entry.get("function") if entry.get("type", "function") == "function" else None)
            for entry in self.fields.get("tools") or ()
        )
        return [tool for tool in tools if tool]

    @staticmethod
    def _get_name(entry: Any) -> str | None:
        name = (function_of(entry) or entry).get("name") if isinstance(entry, dict) else None
        return name if isinstance(name, str) else None

    @staticmethod
    def render_declaration(tool: Tool) -> dict[str, Any]:
        return tool.as_openai()

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> dict[str, Any] | None:
        tool = tools.get(self._get_name(entry) or "")
        if tool is None:
            return None
        function = entry.get("function")
        if _read_custom_tool(entry):
            return {**entry, "custom": {**entry["custom"], "name": tool.name}}
        changes = {"name": tool.name, "parameters": tool.parameters, **({"strict": True} if tool.strict else {})}
        return {**entry, "function": {**function, **changes}} if isinstance(function, dict) else {**entry, **changes}


class Request(request.Request):
    """A chat completion request."""

    LAYOUT = replace(
        LAYOUT,
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
    TRANSLATED_FIELDS: ClassVar[Collection[str]] = ("refusal", *words.SEALED_FIELDS, "cache_control")
    """Further fields of a message that are translated for other APIs, or mean nothing to them."""
    interpret_part = staticmethod(interpret_part)

    @property
    def _tool_fields(self) -> ChatToolFields:
        return ChatToolFields(self.fields, self.LAYOUT)

    def _decode(self, path: str) -> None:
        calls = (call for entry in self._conversation for call in entry.get("tool_calls") or ())
        self.call_ids = frozenset(call["id"] for call in calls if isinstance(call.get("id"), str))
        usage = not self.stream or part_of(self.fields, "stream_options").get("include_usage") is True
        custom = frozenset(tool.name for tool in map(_read_custom_tool, self.fields.get("tools") or ()) if tool)
        self.form: Any = ChatForm(usage, custom_tools=custom, wants_one_choice=self.fields.get("n") in (None, 1))
        self.unread = "functions" if self.fields.get("functions") else ""

    def _read(self) -> Iterator[request.MessageGroup]:
        return (((_read_message(entry),), (place,)) for place, entry in enumerate(self._conversation))

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        entries.append(_render_message(message))

    def form_with(self, reasoning_fields: tuple[str, ...]) -> Any:
        return replace(self.form, reasoning_fields=reasoning_fields) if isinstance(self.form, ChatForm) else self.form

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

    def with_reasoning(self, message: Message, field: str) -> Message:
        if not message.reasoning or words.find_past_entries(message).fields:  # the fields already contain it
            return message
        source = message.source if isinstance(message.source, dict) else {}
        return replace(message, source={**source, field: message.reasoning})

    def with_usual_role(self, message: Message) -> Message:
        source = message.source
        if isinstance(source, dict) and text_at(source, "role") in ROLE_ALIASES and "content" in source:
            return replace(message, source={**source, "role": message.role})
        return message

    def as_text(self, message: Message, *, or_null: bool = False) -> Message:
        source = message.source if isinstance(message.source, dict) else {}
        sent = source.get("content")
        is_null = or_null and sent is not None
        listed = isinstance(sent, list) and all(isinstance(part, str) for part in message.content)
        empty = "" if listed and not (message.content or or_null) else None
        return replace(message, source={**source, "content": empty}) if listed or is_null else message

    @staticmethod
    def _stream_fields() -> dict[str, Any]:
        return {"stream": True, "stream_options": {"include_usage": True}}

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.call_id) and not result.source.get("tool_call_id")

    def has_null_content(self, message: Message) -> bool:
        if not isinstance(message.source, dict):
            return super().has_null_content(message)
        return not message.content and message.source.get("content") is None


def _read_function(entry: Any) -> Tool | None:
    """Read the declaration of a function; None if it is none."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    return Tool(entry["name"], str(entry.get("description") or ""), part_of(entry, "parameters"))


def _read_custom_tool(entry: Mapping[str, Any]) -> Tool | None:
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


def _drop_call_seal(call: ToolCall) -> ToolCall:
    """Remove the seal of reasoning from a call."""
    if not (isinstance(call.source, dict) and words.signature_on(call.source)):
        return call
    return replace(call, source={key: value for key, value in call.source.items() if key != words.EXTRA_CONTENT})


def _read_call(entry: Mapping[str, Any]) -> ToolCall:
    """Decode a call; the raw input of a custom tool becomes its only argument."""
    function = function_of(entry)
    arguments = {"input": function.get("input") or ""} if entry.get("custom") else function.get("arguments")
    return ToolCall(str(function.get("name")), format_arguments(arguments) or "{}", text_at(entry, "id"), entry)


_TEXT = {"type": "text"}


def _render_message(message: Message) -> dict[str, Any]:
    """Render a changed message: its current content, and the other fields of its source."""
    # Step 1: render the content. If the role was changed (a result became text), the source's own fields are dropped.
    source = message.source if isinstance(message.source, dict) else {}
    role = str(source.get("role", message.role))
    same_role = ROLE_ALIASES.get(role, role) == message.role
    was_result = role == "tool" and not same_role
    past = words.find_past_entries(message)
    written = content.render_content(
        words.drop_reasoning(message), None if was_result else source.get("content"), _TEXT
    )
    entry: dict[str, Any] = {"role": role if same_role else message.role, "content": written}
    source = {**source, **past.fields} if past.fields else source
    # Step 2: render the calls, the id of the result and the name.
    if message.calls:
        entry["tool_calls"] = past.put_on([*map(entry_of, message.calls)])
        is_text = source.get("content") == "" or message.content == ("",)
        entry["content"] = entry["content"] or ("" if is_text else None)
    if message.role == "tool" and message.call_id:
        entry["tool_call_id"] = message.call_id
        if source.get("name"):
            entry["name"] = message.name
    elif message.role != "tool" and same_role and "name" in source:
        entry["name"] = source["name"]
    # Step 3: copy the other fields of the source.
    if same_role:
        for key in source:
            if key not in MESSAGE_FIELDS:
                entry[key] = source[key]
    return entry


def render_model(model: ListedModel) -> Json:
    """Render a model; its window has the field names of vLLM and OpenRouter."""
    window = dict.fromkeys(("context_length", "max_model_len"), model.window) if model.window else {}
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "vtc", **window}


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models."""
    return {"object": "list", "data": [*map(render_model, models)]}


QUESTIONS = (
    Question("models", "GET", "/v1/models", render_model_list),
    Question("model", "GET", "/v1/models/{model}", render_model),
)
