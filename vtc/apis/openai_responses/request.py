"""Requests of Responses. Fields and items that are not changed keep their original bytes.

A turn of the model can consist of multiple items: reasoning, text, calls. Here they are one message; items that are
neither text nor calls are opaque parts of it, in order. `instructions` are the first message.

Tools can also be declared in the conversation, by dedicated items (Codex declares all of its tools in this way).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.calls import make_custom_tool
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json, Question
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.apis.openai_chat import request as openai_chat
from vtc.apis.openai_responses.items import (
    CALL_KINDS,
    DEFAULT_NAMESPACE,
    ResponseForm,
    read_call,
    render_item,
)
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
from vtc.json_text import decode_json, encode_json

LAYOUT = BodyLayout(
    model_paths=("model", "response.model"),
    name="request for a response",
    full=FullError(
        "Your input exceeds the context window of this model. Please adjust your input and try again. ({prompt} tokens "
        "of {window})",
        sign=CONTEXT_LENGTH_EXCEEDED,
        streamed=True,
    ),
    entries="input",
    prompt="instructions",
    limits={"max_tokens": ("max_output_tokens",), "temperature": ("temperature",), "top_p": ("top_p",)},
    carried=(
        *("stream_options", "reasoning.effort", "reasoning.summary", "text.format", "store", "include", "metadata"),
        *("user", "prompt_cache_key", "client_metadata", "safety_identifier", "service_tier"),
    ),
)


def build_request(canonical: CanonicalRequest) -> Json:
    """Render a canonical request for this API, with `store` off.

    Reasoning is omitted unless this same server produced it, because the server may require the content that it
    encrypted.
    """
    prompt, messages = canonical.split_system_prompt()
    fields: dict[str, Any] = {"model": canonical.model}
    if prompt is not None:
        fields["instructions"] = prompt
    fields |= {
        "input": [item for message in messages for item in _render_canonical_items(message)],
        **LAYOUT.write_limits(canonical.limits),
    }
    fields |= {"stream": canonical.stream, "store": False}
    if canonical.tools:
        declared = ({**tool.as_openai()["function"], "strict": tool.strict} for tool in canonical.tools)
        fields["tools"] = [{"type": "function", **tool} for tool in declared]
        if canonical.choice != "auto":
            is_word = canonical.choice in ("none", "required")
            fields["tool_choice"] = canonical.choice if is_word else {"type": "function", "name": canonical.choice}
        if not canonical.parallel:
            fields["parallel_tool_calls"] = False
    if canonical.effort not in (None, "auto"):
        fields["reasoning"] = {"effort": openai_chat.EFFORT_ALIASES.get(str(canonical.effort), canonical.effort)}
    if canonical.effort not in (None, "none"):
        fields["include"] = ["reasoning.encrypted_content"]  # without `store`, the client must send it back itself
    if answer := canonical.answer:
        form: dict[str, Any] = {"type": "json_object"}
        if answer.schema:
            form = {"type": "json_schema", "name": answer.name, "schema": answer.schema, "strict": bool(answer.strict)}
        fields["text"] = {"format": form}
    return fields


def _render_canonical_items(message: Message) -> Iterator[Json]:
    if message.role == "tool":
        plain = all(isinstance(part, str) for part in message.content)
        output = "\n".join(map(str, message.content)) if plain else _render_parts(message, "input_text")
        yield {"type": "function_call_output", "call_id": message.call_id, "output": output}
        return
    if message.recalled_reasoning:
        yield render_reasoning(Thought(message.recalled_reasoning))
    kind = "output_text" if message.role == "assistant" else "input_text"
    for is_content, some in groupby(message.sequence, _is_content_part):
        if is_content:
            content_ = tuple(part for part in some if not isinstance(part, ToolCall))
            yield {
                "type": "message",
                "role": message.role,
                "content": _render_parts(replace(message, content=content_), kind),
            }
        else:
            yield from map(_render_part_item, some)


def _is_content_part(part: str | Opaque | ToolCall) -> bool:
    """True for a part that belongs in the content of a message item."""
    return not isinstance(part, ToolCall) and (isinstance(part, str) or part.thought is None)


def _render_part_item(part: str | Opaque | ToolCall) -> Json:
    """Render a call or reasoning as an item."""
    if isinstance(part, ToolCall):
        return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
    return render_reasoning((part.thought if isinstance(part, Opaque) else None) or Thought())


def render_reasoning(thought: Thought) -> Json:
    """Render the model's reasoning as an item: encrypted if possible, otherwise as text.

    The id is a hash of the text, so it is the same in every turn. Encrypted reasoning has no id, because its server
    would recognize a made-up one as foreign.
    """
    if thought.encrypted or not thought.text:
        return {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted}
    id_ = hashlib.sha256(thought.text.encode(errors="surrogatepass")).hexdigest()[:24]
    return {
        "type": "reasoning",
        "id": f"rs_{id_}",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": thought.text}],
    }


def _render_parts(message: Message, kind: str) -> list[Json]:
    return [
        {"type": kind, "text": part} if isinstance(part, str) else _render_media(part)
        for part in content.list_parts(message)
    ]


def _render_media(media: Media) -> Json:
    if media.kind == "image":
        return {
            "type": "input_image",
            "image_url": content.render_media_url(media),
            **({"detail": media.detail} if media.detail else {}),
        }
    if media.url:
        return {"type": "input_file", "file_url": media.url}
    return {
        "type": "input_file",
        "filename": media.name or "document.pdf",
        "file_data": content.render_media_url(media),
    }


def interpret_part(part: Any) -> str | Media | Seal | None:
    """Return the canonical meaning of a part or an item: text, media or a seal; None if it has none."""
    match part:
        case str():
            return part
        case {"type": "input_image", "image_url": url, **rest}:
            return content.parse_media_url("image", url, detail=rest.get("detail"))
        case {"type": "input_file", **rest}:
            url = rest.get("file_data") or rest.get("file_url")
            return content.parse_media_url("document", url, str(rest.get("filename") or ""))
        case {"type": "refusal", "refusal": str(text)} | {"text": str(text)}:
            return text
        case {"type": str(kind), "content": str(text)} if kind != "reasoning":
            return text
        case {"type": str(kind), "content": list(parts)} if kind != "reasoning":
            return "\n".join(inner for part in parts if isinstance(inner := interpret_part(part), str)) or None
        case {"type": "reasoning", "encrypted_content": str(value)}:
            return Seal(encrypted=value)
        case {"type": str(kind), "output": str(text)} if kind.endswith("_output"):
            return text
    return None


def build_error(failure: Failure, status: int) -> Json:
    """Render an error, in the form of chat completions."""
    return openai_chat.build_error(failure, status)


OUTPUT_KINDS = {f"{kind}_output": kind for kind in CALL_KINDS}
"""Kinds of tool results, each with the kind of its call."""
CANONICAL_ROLES = {"developer": "system"}
STATE_FIELDS = ("previous_response_id", "conversation")
REFERENCE_KIND = "item_reference"
"""The kind of an item that refers to an item stored by the server."""
STATE_REASON = (
    "the server stores the conversation (`{}`) and would not know of a call that it did not make, so text tool calls "
    "are not read"
)
_TOOL_KINDS = ("function", "custom", "namespace")
_FOREIGN_FIELDS = {"function", "input_schema"}
"""Fields of a function declaration that only other APIs have."""
_TOOLS_KIND = "additional_tools"
"""The kind of an item that declares tools."""
_INPUT_SUFFIXES = ("_output", "_response", _TOOLS_KIND, "agent_message")
"""Suffixes of the kinds of items that are not from the model."""


class _OpaqueItem(dict[str, Any]):
    """An item that is an opaque part of a message."""


def _normalize_tool(entry: Any) -> Any:
    """Convert the declaration of a function to this API's shape, which has no nested `function` object."""
    if not isinstance(entry, dict) or (entry.get("type") in _TOOL_KINDS and not entry.keys() & _FOREIGN_FIELDS):
        return entry
    function = shapes.read_function(entry)
    return entry if function is None else {"type": "function", **function.render_flat("parameters")}


def _normalize_parts(item: Any) -> Any:
    """Convert the parts of a message or a tool result to this API's shape; text of the model is `output_text`."""
    if not isinstance(item, dict):
        return item
    role = item.get("role")
    text, foreign = ("output_text", "input_text") if role == "assistant" else ("input_text", "output_text")
    own = partial(shapes.fix_part, kinds=("text", foreign, "image_url", "image"), text=text, write=_render_media)
    field = "content" if role else "output" if item.get("type") in OUTPUT_KINDS else ""
    return edit_at(item, (field, "*"), own)


class ResponsesToolFields(tool_fields.ToolFields):
    """The fields about the tools of Responses, which items of the conversation can declare, too."""

    def _read_tools(self) -> list[Tool]:
        return [
            _read_tool(declared.full_name, declared.entry)
            for entries in (self.fields.get("tools"), *_find_tool_lists(self.fields))
            for declared in _list_declarations(entries)
            if declared.name and declared.entry.get("type") in ("function", "custom")
        ]

    def find_declarations(self) -> Iterator[list[Any]]:
        return chain(super().find_declarations(), _find_tool_lists(self.fields))

    def _find_chosen_tool(self, choice: Json, declared: Sequence[str]) -> str:
        """Return the chosen tool's name with its namespace, which the choice may omit."""
        name, space = str(choice.get("name") or choice.get("type")), choice.get("namespace")
        if space:
            return f"{space}.{name}"
        nested = [whole for whole in declared if whole.endswith(f".{name}")]
        return nested[0] if name not in declared and len(nested) == 1 else name

    def list_names(self, entries: Sequence[Any]) -> Iterator[str]:
        return (declared.full_name for declared in _list_declarations(entries))

    def withhold_entries(self, entries: Sequence[Any], names: Collection[str]) -> Iterator[Json]:
        for entry in entries:
            declared = _list_declarations([entry])
            remaining = [tool.entry for tool in declared if tool.full_name not in names]
            if remaining:
                yield {**entry, "tools": remaining} if entry.get("type") == "namespace" else entry

    def rewrite_declaration(self, entry: Any, tools: Mapping[str, Tool]) -> Json | None:
        """Rewrite the parameters of the functions in a declaration.

        Names in a namespace are preserved; a custom tool has no parameters.
        """
        declared = [*_list_declarations([entry])]
        written: list[Json] = []
        for one in declared:
            tool = tools.get(one.full_name)
            if tool and one.entry.get("type") == "function":
                strict = {"strict": True} if tool.strict else {}
                written.append({**one.entry, "parameters": tool.parameters, **strict})
            else:
                written.append(one.entry)
        if entry.get("type") == "namespace":
            return {**entry, "tools": written} if any(one.full_name in tools for one in declared) else None
        (sole,) = declared
        tool = tools.get(sole.full_name)
        return {**written[0], "name": tool.name} if tool and sole.name else None

    def declare(self, kept: dict[str, Any], tools: Sequence[Tool]) -> None:
        super().declare(kept, tools)
        hosted = [entry for entry in self.fields.get("tools") or () if entry.get("type") not in _TOOL_KINDS]
        if hosted:
            kept["tools"] = [*hosted, *kept.get("tools", ())]

    @staticmethod
    def render_declaration(tool: Tool) -> Json:
        """Declare a function as not strict, because the API's default is strict and a text client's tools are not."""
        return {"type": "function", **tool.as_openai()["function"], "strict": False}


class Request(request.Request):
    """A request for a response."""

    LAYOUT = replace(
        LAYOUT,
        shapes=(
            Shape("input.*.[function_call].arguments", shapes.arguments_string, shapes.ARGUMENTS_ARE_TEXT),
            Shape(f"input.*.[{'|'.join(OUTPUT_KINDS)}].output", shapes.fix_result, shapes.RESULTS_ARE_TEXT),
            Shape("input.*.content", shapes.wrap_part, "contents of one part converted to lists"),
            Shape("input.*", _normalize_parts, shapes.OWN_PARTS),
            Shape("tools.*", _normalize_tool, shapes.OWN_TOOLS),
            Shape("tools.*.parameters", shapes.fix_schema, shapes.SCHEMAS_HAVE_OBJECTS),
            Shape("tools.*.tools.*.parameters", shapes.fix_schema, shapes.SCHEMAS_HAVE_OBJECTS),
            Shape("tools.*", shapes.without_null_strict, shapes.NO_STRICT),
            Shape("tools.*.tools.*", shapes.without_null_strict, shapes.NO_STRICT),
            Shape("metadata", shapes.object_for_list, "an empty list in metadata converted to an object"),
        ),
    )
    interpret_part = staticmethod(interpret_part)

    @property
    def _tool_fields(self) -> ResponsesToolFields:
        return ResponsesToolFields(self.fields, self.LAYOUT)

    def name_part(self, part: Any) -> str:
        """Name an item that other APIs cannot express; empty for reasoning and tool declarations, which are handled."""
        kind = super().name_part(part)
        return "" if kind in ("reasoning", "additional_tools") else kind

    @property
    def _conversation(self) -> Any:
        input_ = self.fields["input"]
        return [{"role": "user", "content": input_}] if isinstance(input_, str) else input_

    def _decode(self, path: str) -> None:
        self.call_ids = frozenset(
            str(item.get("call_id")) for item in self._conversation if item.get("type") in CALL_KINDS
        )
        declared = [entry for entries in self._tool_fields.find_declarations() for entry in _list_declarations(entries)]
        max_tokens = self.fields.get("max_output_tokens")
        self.form = ResponseForm(
            _map_flat_names(declared),
            frozenset(tool.full_name for tool in declared if tool.name and tool.entry.get("type") == "custom"),
            max_tokens if isinstance(max_tokens, int) else None,
            self.model,
        )
        state_field = next((key for key in STATE_FIELDS if self.fields.get(key)), "")
        self.unliftable = STATE_REASON.format(state_field) if state_field else ""
        self.refers = state_field
        if not state_field and any(item.get("type") == REFERENCE_KIND for item in self._conversation):
            self.refers = REFERENCE_KIND

    def apply_changes(self, changes: request.Changes = request.NO_CHANGES) -> dict[str, Any]:
        kept = super().apply_changes(changes)
        keeps_tools = changes.tools is None
        if not any(_find_tool_lists(self.fields)) or (keeps_tools and not changes.withheld and not changes.redeclared):
            return kept

        tools = self._tool_fields

        def rewrite_tools(entries: Sequence[Json]) -> list[Json]:
            remaining = tools.withhold_entries(entries, changes.withheld)
            return [tools.rewrite_declaration(entry, changes.redeclared) or entry for entry in remaining]

        items = decode_json(encode_json(kept["input"]))
        items = [{**item, "tools": rewrite_tools(item["tools"])} if _is_tools_item(item) else item for item in items]
        return {
            **kept,
            "input": [item for item in items if not _is_tools_item(item) or (keeps_tools and item["tools"])],
        }

    def _read(self) -> Iterator[request.MessageGroup]:
        items: Sequence[Json] = self._conversation
        # Consecutive items of the model are one turn, and so have the same key; each other item has its own.
        turns = groupby(enumerate(items), lambda numbered: -1 if _is_from_model(numbered[1]) else numbered[0])
        for key, numbered_items in turns:
            places = [place for place, _ in numbered_items]
            is_turn = key < 0
            message = (
                _read_turn([items[place] for place in places], self.form) if is_turn else _read_input_item(items[key])
            )
            yield [message], places

    def _is_reasoning(self, part: Any) -> bool:
        return _is_reasoning(part)

    def _add(self, entries: list[Any], message: Message, called: Collection[str | None]) -> None:
        entries += _render_items(message, self.form)

    def _lacks_call(self, result: Message) -> bool:
        return bool(result.call_id) and not result.source.get("call_id")

    def with_usual_role(self, message: Message) -> Message:
        source = message.source
        if isinstance(source, dict) and text_at(source, "role") in CANONICAL_ROLES:
            return replace(message, source={**source, "role": message.role})
        return message


def _is_tools_item(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == _TOOLS_KIND and isinstance(item.get("tools"), list)


def _find_tool_lists(fields: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Find the lists of tools that items of the conversation declare."""
    items = fields.get("input")
    return (item["tools"] for item in items if _is_tools_item(item)) if isinstance(items, list) else iter(())


class _Declaration(NamedTuple):
    """A declared tool."""

    full_name: str
    """The name with its namespace (`fs.read`); for a tool that the server runs, which has no name, its type."""
    namespace: str
    """Empty without a namespace, and for the default one."""
    name: str
    """The name in the namespace; empty for a tool that the server runs."""
    entry: Json
    """The object that declares it."""


def _list_declarations(entries: Any) -> Iterator[_Declaration]:
    """List the tools of a list of declarations, also those inside namespaces."""
    for entry in entries or ():
        is_space = entry.get("type") == "namespace"
        space = str(entry["name"]) if is_space and entry["name"] != DEFAULT_NAMESPACE else ""
        for function in entry["tools"] if is_space else (entry,):
            own_name = function.get("name")
            name = str(own_name or function.get("type"))
            full_name = f"{space}.{name}" if space else name
            yield _Declaration(full_name, space, own_name if isinstance(own_name, str) else "", function)


def _map_flat_names(declared: Sequence[_Declaration]) -> Mapping[str, tuple[str, str]]:
    """Map each flat name to its namespace and name, except ambiguous ones and full names of other tools."""
    full_names = {tool.full_name for tool in declared}
    names: dict[str, set[tuple[str, str]]] = {}
    for tool in declared:
        if not tool.name:  # the server runs it
            continue
        prefix = tool.namespace or DEFAULT_NAMESPACE
        for flat in (f"{prefix}.{tool.name}", f"{prefix}__{tool.name}", tool.name):
            names.setdefault(flat, set()).add((tool.namespace, tool.name))
    return {
        flat: name
        for flat, (name, *others) in names.items()
        if not others and (flat not in full_names or flat == ".".join(name))
    }


def _read_tool(name: str, entry: Json) -> Tool:
    about = str(entry.get("description") or "")
    if entry["type"] == "custom":
        return make_custom_tool(name, about, part_of(entry, "format").get("definition"))
    return Tool(name, about, part_of(entry, "parameters"))


def _kind_of(item: Json) -> str:
    return item.get("type") or "message"


def _is_from_model(item: Json) -> bool:
    """True for an item of a turn of the model."""
    kind = _kind_of(item)
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith(_INPUT_SUFFIXES)


def _read_turn(items: Sequence[Json], form: ResponseForm) -> Message:
    """Parse the items of one turn of the model into a message."""
    spoken: list[str | Opaque] = []
    thoughts: list[str] = []
    opaque_items: Sequence[Json] = [*map(_OpaqueItem, items)]
    rest, calls = content.split_calls(
        opaque_items, lambda item: item.get("type") in CALL_KINDS, lambda item: read_call(item, form), _is_reasoning
    )
    for item in rest:
        spoken += content.read(item.get("content")) if _kind_of(item) == "message" else (Opaque(item),)
    for item in items:
        if _is_reasoning(item):
            parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
            thoughts += [str(part.get("text") or "") for part in parts]
    return Message("assistant", tuple(spoken), calls, source=items, reasoning="\n".join(thoughts))


def _read_input_item(item: Json) -> Message:
    """Parse an item that is not from the model."""
    role = str(item.get("role") or "")
    if item.get("type") in OUTPUT_KINDS:
        return Message("tool", content.read(item.get("output")), (), text_at(item, "call_id"), None, item)
    if _kind_of(item) == "message":
        return Message(CANONICAL_ROLES.get(role, role), content.read(item.get("content")), source=item)
    return Message("system" if _is_tools_item(item) else "user", (Opaque(_OpaqueItem(item)),), source=item)


def _render_items(message: Message, form: ResponseForm) -> Iterable[Json]:
    """Render a changed message as items."""
    source = message.source
    first = source if isinstance(source, dict) else {}
    if isinstance(source, list):
        first = next((item for item in source if _kind_of(item) == "message"), {})
    first = {"role": first.get("role") or "developer"} if _is_tools_item(first) else first
    if message.role == "tool":
        custom = first.get("type") == "custom_tool_call_output" or message.name in form.custom_tools
        kind = "custom_tool_call_output" if custom else "function_call_output"
        output = content.render_content(message.content, first.get("output"), {"type": "input_text"})
        rest = first if first.get("type") in OUTPUT_KINDS else {}
        return [{**rest, "type": kind, "call_id": message.call_id, "output": output}]
    role = str(first.get("role"))
    if CANONICAL_ROLES.get(role, role) != message.role:
        first, role = {}, message.role
    new = {"type": "output_text", "annotations": []} if role == "assistant" else {"type": "input_text"}
    items: list[Json] = []
    kept = first  # fields of the original, for the first message item only
    for is_item, some in groupby(message.sequence, _is_item):
        if is_item:
            items += [_render_own_item(part, form) for part in some]
        else:
            spoken = [part for part in some if not isinstance(part, ToolCall)]
            parts = content.render_parts(spoken, first.get("content"), new)
            items.append({**kept, "type": "message", "role": role, "content": parts})
            kept = {}
    return items


def _is_item(part: str | Opaque | ToolCall) -> bool:
    """True for a part that is rendered as a separate item."""
    return isinstance(part, ToolCall) or (
        isinstance(part, Opaque) and (part.thought is not None or isinstance(part.part, _OpaqueItem))
    )


def _render_own_item(part: str | Opaque | ToolCall, form: ResponseForm) -> Json:
    """Render a part as an item; an item from the client is returned unchanged."""
    if isinstance(part, ToolCall):
        return render_item(part, form)
    return part.part if isinstance(part, Opaque) and part.thought is None else _render_part_item(part)


def _is_reasoning(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "reasoning"


def render_model_list(models: Sequence[ListedModel]) -> Json:
    """Render a list of models.

    Codex reads the list under `models`, which is empty, because an entry there would replace its prompt.
    """
    return {**openai_chat.render_model_list(models), "models": []}


QUESTIONS = (Question("models", "GET", "/v1/models", render_model_list, lambda query, _: "client_version=" in query),)
"""Side questions: Codex sends its version when it asks for the models."""
