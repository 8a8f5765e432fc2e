"""Reading requests of Responses. Fields and items that are not changed keep their original bytes.

A turn of the model can consist of multiple items: reasoning, text, calls. Here they are one message; items that are
neither text nor calls are opaque parts of it, in order. `instructions` are the first message.

Tools can also be declared in the conversation, by dedicated items (Codex declares all of its tools in this way).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from vtc.apis import content, request, shapes, tool_fields
from vtc.apis.calls import make_custom_tool
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED, Json
from vtc.apis.fields import part_of, text_at
from vtc.apis.json_path import edit_at
from vtc.apis.layout import BodyLayout, FullError, Shape
from vtc.apis.openai_responses.items import CALL_KINDS, DEFAULT_NAMESPACE, ResponseForm, read_call, render_media
from vtc.events import Media, Message, Opaque, Seal, Tool, flatten_name
from vtc.json_text import encode_json

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
TOOL_KINDS = ("function", "custom", "namespace")
_FOREIGN_FIELDS = {"function", "input_schema"}
"""Fields of a function declaration that only other APIs have."""
_TOOLS_KIND = "additional_tools"
"""The kind of an item that declares tools."""
_INPUT_SUFFIXES = ("_output", "_response", _TOOLS_KIND, "agent_message")
"""Suffixes of the kinds of items that are not from the model."""


class OpaqueItem(dict[str, Any]):
    """An item that is an opaque part of a message."""


def _normalize_tool(entry: Any) -> Any:
    """Convert the declaration of a function to this API's shape, which has no nested `function` object."""
    if not isinstance(entry, dict) or (entry.get("type") in TOOL_KINDS and not entry.keys() & _FOREIGN_FIELDS):
        return entry
    function = shapes.read_function(entry)
    return entry if function is None else {"type": "function", **function.render_flat("parameters")}


def _normalize_parts(item: Any) -> Any:
    """Convert the parts of a message or a tool result to this API's shape; text of the model is `output_text`."""
    if not isinstance(item, dict):
        return item
    role = item.get("role")
    text, foreign = ("output_text", "input_text") if role == "assistant" else ("input_text", "output_text")
    kinds = ("text", foreign, "image_url", "image")

    def fix_part(part: Any) -> Any:
        own = ("input_image",) if part_of(part, "image_url") else ()  # with the object of chat completions
        return shapes.fix_part(part, (*kinds, *own), text, render_media)

    field = "content" if role else "output" if item.get("type") in OUTPUT_KINDS else ""
    return edit_at(item, (field, "*"), fix_part)


class ResponsesToolFields(tool_fields.ToolFields):
    """The fields about the tools of Responses, which items of the conversation can declare, too."""

    def _read_tools(self) -> list[Tool]:
        return [
            _read_tool(declared.full_name, declared.entry)
            for entries in (self.fields.get("tools"), *find_tool_lists(self.fields))
            for declared in list_declarations(entries)
            if declared.name and declared.entry.get("type") in ("function", "custom")
        ]

    def find_declarations(self) -> Iterator[list[Any]]:
        return chain(super().find_declarations(), find_tool_lists(self.fields))

    def list_names(self, entries: Sequence[Any]) -> Iterator[str]:
        return (declared.full_name for declared in list_declarations(entries))

    def _find_chosen_tool(self, choice: Json, declared: Sequence[str]) -> str:
        """Return the chosen tool's name as declared: the choice may omit the namespace, or have the flat name."""
        given = part_of(choice, "function") or choice
        name, space = str(given.get("name") or given.get("type")), given.get("namespace")
        written = f"{space}.{name}" if space else name
        tools = [tool for entries in self.find_declarations() for tool in list_declarations(entries)]
        return (
            written if written in declared else ".".join(filter(None, _map_flat_names(tools).get(written, (written,))))
        )


class Request(request.Request):
    """A request for a response."""

    LAYOUT = BodyLayout(
        model_paths=("model", "response.model"),
        name="request for a response",
        full=FullError(
            "Your input exceeds the context window of this model. Please adjust your input and try again. ({prompt} "
            "tokens of {window})",
            sign=CONTEXT_LENGTH_EXCEEDED,
            streamed=True,
        ),
        entries="input",
        prompt="instructions",
        limits={"max_tokens": ("max_output_tokens",), "temperature": ("temperature",), "top_p": ("top_p",)},
        carried=(
            *("stream_options", "reasoning.effort", "reasoning.summary", "text.format", "store", "include", "metadata"),
            *("user", "prompt_cache_key", "prompt_cache_retention", "client_metadata", "safety_identifier"),
            *("service_tier", "text.verbosity"),
        ),
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
    TOOL_FIELDS = ResponsesToolFields

    @property
    def entries(self) -> Any:
        input_ = self.fields["input"]
        return [{"role": "user", "content": input_}] if isinstance(input_, str) else input_

    def _decode(self, path: str) -> None:
        self.call_ids = frozenset(str(item.get("call_id")) for item in self.entries if item.get("type") in CALL_KINDS)
        declared = [entry for entries in self.tool_fields.find_declarations() for entry in list_declarations(entries)]
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
        if not state_field and any(map(_is_reference, self.entries)):
            self.refers = REFERENCE_KIND
        elif not state_field and part_of(self.fields, "prompt").get("id"):
            self.refers = "prompt"

    @property
    def storable_items(self) -> list[Any] | None:
        return None if self.fields.get("store") is False or self.refers else self.entries

    def resolve_references(self, find: Callable[[str], Sequence[Any] | None]) -> bytes | None:
        if self.fields.get("conversation"):
            return None
        previous = self.fields.get("previous_response_id")
        parts = [find(previous)] if previous else []
        parts += [find(str(item.get("id"))) if _is_reference(item) else [item] for item in self.entries]
        if None in parts:
            return None
        rest = {key: value for key, value in self.fields.items() if key != "previous_response_id"}
        return encode_json({**rest, "input": [*chain.from_iterable(filter(None, parts))]})

    def _read(self) -> Iterator[request.MessageGroup]:
        items: Sequence[Json] = self.entries
        # Consecutive items of the model are one turn, and so have the same key; each other item has its own.
        turns = groupby(enumerate(items), lambda numbered: -1 if _is_from_model(numbered[1]) else numbered[0])
        for key, numbered_items in turns:
            places = [place for place, _ in numbered_items]
            is_turn = key < 0
            message = (
                _read_turn([items[place] for place in places], self.form) if is_turn else _read_input_item(items[key])
            )
            yield [message], places

    @staticmethod
    def interpret_part(part: Any) -> str | Media | Seal | None:
        """Return the canonical meaning of a part or an item: text, media or a seal; None if it has none."""
        match part:
            case str():
                return part
            case {"type": "input_image"}:
                return shapes.read_foreign_part(part, ("input_image",))
            case {"type": "input_file", **rest}:
                url = rest.get("file_data") or rest.get("file_url")
                return content.parse_media_url("document", url, str(rest.get("filename") or ""))
            case {"type": "refusal", "refusal": str(text)} | {"text": str(text)}:
                return text
            case {"type": str(kind), "content": str(text)} if kind != "reasoning":
                return text
            case {"type": str(kind), "content": list(parts)} if kind != "reasoning":
                return (
                    "\n".join(inner for part in parts if isinstance(inner := Request.interpret_part(part), str)) or None
                )
            case {"type": "reasoning", "encrypted_content": str(value)}:
                return Seal(encrypted=value)
            case {"type": str(kind), "output": str(text)} if kind.endswith("_output"):
                return text
        return None

    def name_part(self, part: Any) -> str:
        """Name an item that other APIs cannot express; empty for reasoning and tool declarations, which are handled."""
        kind = super().name_part(part)
        return "" if kind in ("reasoning", "additional_tools") else kind

    def _is_reasoning(self, part: Any) -> bool:
        return _is_reasoning(part)


def _is_reference(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == REFERENCE_KIND


def is_tools_item(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == _TOOLS_KIND and isinstance(item.get("tools"), list)


def find_tool_lists(fields: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Find the lists of tools that items of the conversation declare."""
    items = fields.get("input")
    return (item["tools"] for item in items if is_tools_item(item)) if isinstance(items, list) else iter(())


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


def list_declarations(entries: Any) -> Iterator[_Declaration]:
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
        dotted = f"{prefix}.{tool.name}"
        for flat in (dotted, flatten_name(dotted), tool.name):
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


def kind_of(item: Json) -> str:
    return item.get("type") or "message"


def _is_from_model(item: Json) -> bool:
    """True for an item of a turn of the model."""
    kind = kind_of(item)
    return item.get("role") == "assistant" if kind == "message" else not kind.endswith(_INPUT_SUFFIXES)


def _read_turn(items: Sequence[Json], form: ResponseForm) -> Message:
    """Parse the items of one turn of the model into a message."""
    spoken: list[str | Opaque] = []
    thoughts: list[str] = []
    opaque_items: Sequence[Json] = [*map(OpaqueItem, items)]
    rest, calls = content.split_calls(
        opaque_items, lambda item: item.get("type") in CALL_KINDS, lambda item: read_call(item, form), _is_reasoning
    )
    for item in rest:
        spoken += content.read(item.get("content")) if kind_of(item) == "message" else (Opaque(item),)
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
    if kind_of(item) == "message":
        return Message(CANONICAL_ROLES.get(role, role), content.read(item.get("content")), source=item)
    return Message("system" if is_tools_item(item) else "user", (Opaque(OpaqueItem(item)),), source=item)


def _is_reasoning(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") == "reasoning"
