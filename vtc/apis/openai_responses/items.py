r"""Items, of which a conversation and a reply of Responses consist.

    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": …}]}
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "namespace": "fs", "arguments": "{…}"}
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin…"}
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": …}], "content": […]}

A tool in a namespace is called `fs.read` here; servers without support for namespaces also write `fs__read`. The raw
input of a custom tool becomes its single argument, `input`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vtc.apis import content
from vtc.apis.calls import format_arguments, is_cut, parse_raw_input
from vtc.apis.clean import get_text
from vtc.apis.contract import Json
from vtc.apis.fields import split_entries, text_at
from vtc.apis.openai_chat.words import CACHE_WRITES
from vtc.events import Media, ToolCall, Usage
from vtc.wire.sse import EventStream

NAME = "openai-responses"
FRAMING = EventStream(named_by="type")
END_EVENTS = ("response.completed", "response.incomplete")
FAILED_STATUSES = ("failed", "cancelled", "canceled")
"""Statuses of a response that failed or was cancelled."""
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ANNOTATION_ADDED = "response.output_text.annotation.added"
ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
"""Prefixes of item ids, by kind."""
CALL_KINDS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
"""Kinds of calls: the name of their events, the field with their arguments."""
PART_KINDS: dict[str, tuple[str, str, str]] = {
    "output_text": ("content_part", "output_text", "text"),
    "refusal": ("content_part", "refusal", "refusal"),
    "reasoning_text": ("content_part", "reasoning_text", "text"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "text"),
}
"""Kinds of parts: the name of the part's events, the name of its text's events, the field with its text."""

SERVER_KINDS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "compaction"),
)
"""Kinds of items that the server runs itself, without asking the client (unlike `mcp_approval_request`)."""
CLIENT_KINDS = (*CALL_KINDS, "shell_call", "local_shell_call", "apply_patch_call", "computer_call", "tool_search_call")
"""Kinds of items that ask the client to run something. Under a strict policy no unknown kind is sent."""
_ACTION_FIELDS = ("action", "operation", "arguments", "input")
_IDENTITY_FIELDS = ("id", "call_id", "type", "status")
SAFE_CALL_FIELDS = frozenset(
    (
        *(*_IDENTITY_FIELDS, *_ACTION_FIELDS, "actions", "name", "namespace", "caller", "created_by"),
        *("environment", "execution", "pending_safety_checks", "server_label"),
    )
)
"""Fields of a call in which no client finds another call."""


class ResponseForm(msgspec.Struct, frozen=True):
    """The part of a request that the decoder and the encoder of its reply need."""

    flat_names: Mapping[str, tuple[str, str]] = {}
    """Namespace (or an empty string) and name of a tool, by each flat name that joins them."""
    custom_tools: frozenset[str] = frozenset()
    """Names of custom tools."""
    max_tokens: int | None = None
    """Limit of the reply in tokens, as the request set it."""
    model: str = ""


DEFAULT_NAMESPACE = "functions"
"""The namespace that servers use for tools without one; it is omitted from their names."""


def split_namespace(item: Json, form: ResponseForm) -> Json:
    """Split the flat name of a call into namespace and name."""
    space, name = ("", "") if item.get("namespace") else form.flat_names.get(str(item.get("name")), ("", ""))
    if not name:
        return item
    return {**item, "name": name, **({"namespace": space} if space else {})}


def is_as_declared(item: Json, form: ResponseForm) -> bool:
    """True unless a call has a flat name, or calls a custom tool as a function."""
    is_function = item.get("type") == "function_call"
    return split_namespace(item, form) is item and not (is_function and name_of(item, form) in form.custom_tools)


def name_of(item: Json, form: ResponseForm) -> str:
    """Return the name of the tool that an item calls, with its namespace."""
    item = split_namespace(item, form)
    namespace, name = item.get("namespace"), get_text(item.get("name"))
    return f"{namespace}.{name}" if namespace and namespace != DEFAULT_NAMESPACE else name


def is_call(kind: str) -> bool:
    """True for a kind of item that asks the client to run something."""
    return kind in CLIENT_KINDS


def read_call(item: Json, form: ResponseForm) -> ToolCall:
    """Parse the item of a function or custom tool call."""
    arguments = item.get(CALL_KINDS[item["type"]][1]) or ""
    arguments = format_arguments({"input": arguments} if item["type"] == "custom_tool_call" else arguments)
    return ToolCall(name_of(item, form), arguments or "{}", text_at(item, "call_id") or text_at(item, "id"), item)


def render_action(item: Json) -> str:
    """Serialize the arguments of a call that has a dedicated kind (`shell_call`) as JSON."""
    action = next((item[key] for key in _ACTION_FIELDS if isinstance(item.get(key), dict)), None)
    rest = {key: value for key, value in item.items() if key in SAFE_CALL_FIELDS and key not in _IDENTITY_FIELDS}
    return json.dumps(rest if action is None else action, ensure_ascii=False)


def render_item(call: ToolCall, form: ResponseForm) -> dict[str, Any]:
    """Render a call as an item of a conversation, with the fields that VTC does not know."""
    kind = str(call.source.get("type")) if isinstance(call.source, dict) else ""
    source = call.source if is_call(kind) else {}
    if source and kind not in CALL_KINDS:
        if kind == f"{call.name}_call":
            return _render_special_call(source, call.arguments)
        source = {}
    rest = {key: value for key, value in source.items() if key not in ("arguments", "input", "name", "namespace")}
    if call.name in form.custom_tools or kind == "custom_tool_call":
        call_item = {"type": "custom_tool_call", "name": call.name, "input": parse_raw_input(call.arguments)}
    else:
        call_item = {"type": "function_call", "name": call.name, "arguments": call.arguments}
    if source.get("namespace") and name_of(source, form) == call.name:
        named = {key: source[key] for key in ("name", "namespace")}  # even if the namespace is not declared
        return {**rest, **call_item, **named, "call_id": call.id}
    return {**rest, **split_namespace({**call_item, "call_id": call.id}, form)}


def _render_special_call(item: Json, arguments: str) -> dict[str, Any]:
    """Render a call that has a dedicated kind: unchanged, unless its arguments were changed."""
    if arguments == render_action(item):
        return {**item}
    field = next((key for key in _ACTION_FIELDS if isinstance(item.get(key), dict)), None)
    return {**item, field: json.loads(arguments)} if field else {**item, **json.loads(arguments)}


def render_done_item(call: ToolCall, form: ResponseForm) -> dict[str, Any]:
    """Render a call as an item of a reply, with an item id that is derived from the call's id."""
    item = render_item(call, form)
    status = "incomplete" if is_cut(call.arguments) else "completed"
    return {**item, "id": item.get("id") or make_item_id(item), "status": status}


def make_item_id(item: Json) -> str:
    """Make the item id of a call from its call id."""
    return (
        f"{ID_PREFIXES.get(item['type'], 'item')}_{str(item.get('call_id')).removeprefix('call_').removeprefix('fc_')}"
    )


def unfold_item(item: Json, index: int) -> Iterator[dict[str, Any]]:
    """Unfold an item to the events of a stream, without sequence numbers."""
    at, kind = {"item_id": item["id"], "output_index": index}, item.get("type")
    lists = {key: item[key] for key in ("summary", "content") if isinstance(item.get(key), list)}
    begun = {**item, **dict.fromkeys(lists, ())}
    if "status" in item:
        begun["status"] = "in_progress"
    if kind in CALL_KINDS:
        events, field = CALL_KINDS[kind]
        begun[field] = ""
    yield {"type": ITEM_ADDED, "output_index": index, "item": begun}
    if kind in CALL_KINDS:
        yield {"type": f"response.{events}.delta", **at, "delta": item[field]}
        yield {"type": f"response.{events}.done", **at, "name": item.get("name"), field: item[field]}
    for key, parts in lists.items():
        for place, part in enumerate(parts):
            yield from _unfold_part(part, {**at, f"{key}_index": place})
    yield {"type": ITEM_DONE, "output_index": index, "item": item}


def part_names_of(part: Json | None) -> tuple[str, str, str]:
    """Return the `PART_KINDS` names of a part: of its events, of its text's events, and of its text field."""
    return PART_KINDS.get(str((part or {}).get("type")), ("content_part", "", ""))


def _unfold_part(part: Json, at: Json) -> Iterator[dict[str, Any]]:
    around, events, field = part_names_of(part)
    yield {"type": f"response.{around}.added", **at, "part": clear_part({**part, field: ""}) if field else part}
    if field:
        text, more = part.get(field) or "", {"logprobs": list[Any]()} if events == "output_text" else {}
        yield {"type": f"response.{events}.delta", **at, "delta": text, **more}
        for number, annotation in enumerate(split_entries(part.get("annotations"))[0]):
            yield {"type": ANNOTATION_ADDED, **at, "annotation_index": number, "annotation": annotation}
        yield {"type": f"response.{events}.done", **at, field: text, **more}
    yield {"type": f"response.{around}.done", **at, "part": part}


def clear_part(part: Json) -> dict[str, Any]:
    """Empty the annotations and logprobs of a part, because they refer to its original text."""
    return {**part, **{key: [] for key in ("annotations", "logprobs") if key in part}}


def text_of(part: Any) -> Any:
    """Return the text of a part, under the field name of its kind."""
    return part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None


def compared_fields(item: Json) -> tuple[Any, ...]:
    """Return the values that a client reads from a finished item; two items are the same if these are equal."""
    about = [item.get(key) for key in ("type", "id", "call_id", "name", "namespace", "arguments", "input")]
    lists = (item.get(key) for key in ("summary", "content"))
    parts = [[text_of(part) for part in listed] if isinstance(listed, list) else [] for listed in lists]
    return (*about, *parts)


def make_response(id_: str, model: str, created: int) -> dict[str, Any]:
    """Make a response with all fields that clients require in its first event."""
    return {
        "id": id_,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def render_usage(usage: Usage) -> dict[str, Any]:
    """Render the token counts of a response, including those that some servers omit."""
    written = {CACHE_WRITES: usage.written} if usage.written else {}
    counts = {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, **written},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
    own = usage.own.value if usage.own else {}
    return counts | {key: count for key, count in own.items() if count is not None}


def render_media(media: Media) -> Json:
    """Render media as a part."""
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
