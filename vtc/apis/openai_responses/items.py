r"""Items: the parts of a conversation and of a reply of Responses.

    {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": …}]}
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "namespace": "fs", "arguments": "{…}"}
    {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "apply_patch", "input": "*** Begin…"}
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": …}], "content": […]}

A tool in a namespace is known as `fs.read`; servers that know no namespaces also write `fs__read`. The raw input
of a custom tool is its one argument, `input`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vtc.apis.calls import arguments_text, is_cut, raw_input
from vtc.apis.clean import get_text
from vtc.apis.contract import Json
from vtc.apis.fields import text_at
from vtc.events import ToolCall, Usage
from vtc.wire.sse import EventStream

NAME = "openai-responses"
FRAMING = EventStream(named_by="type")
END_EVENTS = ("response.completed", "response.incomplete")
FAILED_STATUSES = ("failed", "cancelled", "canceled")
"""The states of a response that is none: the server failed, or was told to stop."""
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
"""How ids of items begin."""
CALL_KINDS = {
    "function_call": ("function_call_arguments", "arguments"),
    "custom_tool_call": ("custom_tool_call_input", "input"),
}
"""The kinds of calls: how their events are called, the field with their arguments."""
PART_KINDS: dict[Any, tuple[str, str, str]] = {
    "output_text": ("content_part", "output_text", "text"),
    "refusal": ("content_part", "refusal", "refusal"),
    "reasoning_text": ("content_part", "reasoning_text", "text"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "text"),
}
"""The kinds of parts: how the events of the part and those of its text are called, the field with its text."""


SERVER_KINDS = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_call", "mcp_list_tools", "compaction"),
)
"""The kinds of items that the server carries out itself, and does not ask the client for (`mcp_approval_request`)."""
CLIENT_KINDS = (*CALL_KINDS, "shell_call", "local_shell_call", "apply_patch_call", "computer_call", "tool_search_call")
"""The kinds of items by which the client is to do something. Under a strict policy no unknown kind leaves."""
_ACTION_FIELDS = ("action", "operation", "arguments", "input")
_IDENTITY_FIELDS = ("id", "call_id", "type", "status")
CALL_FIELDS = frozenset(
    (
        *(
            *_IDENTITY_FIELDS,
            *_ACTION_FIELDS,
            "actions",
            "name",
            "namespace",
            "caller",
            "created_by",
            "environment",
            "execution",
        ),
        *("pending_safety_checks", "server_label"),
    )
)
"""The fields of a call in which no client finds another one."""


class ResponseForm(msgspec.Struct, frozen=True):
    """The part of a request that decoder and encoder of its reply must know."""

    flat_names: Mapping[str, tuple[str, str]] = {}
    """Namespace, empty for none, and name of a tool, by each flat name for both."""
    custom: frozenset[str] = frozenset()
    """Names of custom tools."""
    max_tokens: int | None = None
    """Tokens that the reply may have."""
    model: str = ""


DEFAULT_NAMESPACE = "functions"
"""The namespace of tools that have none: of these the name alone is told."""


def split_namespace(item: Json, form: ResponseForm) -> Json:
    """Part the flat name of a call into namespace and name."""
    space, name = ("", "") if item.get("namespace") else form.flat_names.get(str(item.get("name")), ("", ""))
    if not name:
        return item
    return {**item, "name": name, **({"namespace": space} if space else {})}


def is_as_declared(item: Json, form: ResponseForm) -> bool:
    """True unless a call has a flat name, or is one of a function where its tool is a custom one."""
    is_function = item.get("type") == "function_call"
    return split_namespace(item, form) is item and not (is_function and name_of(item, form) in form.custom)


def name_of(item: Json, form: ResponseForm) -> str:
    """Return the name of the tool that an item calls, with its namespace."""
    item = split_namespace(item, form)
    namespace, name = item.get("namespace"), get_text(item.get("name"))
    return f"{namespace}.{name}" if namespace and namespace != DEFAULT_NAMESPACE else name


def is_call(kind: str) -> bool:
    """True for a kind of item by which the client is to do something."""
    return kind in CLIENT_KINDS


def read_call(item: Json, form: ResponseForm) -> ToolCall:
    """Read an item that is a call."""
    arguments = item.get(CALL_KINDS[item["type"]][1]) or ""
    arguments = arguments_text({"input": arguments} if item["type"] == "custom_tool_call" else arguments)
    return ToolCall(name_of(item, form), arguments or "{}", text_at(item, "call_id") or text_at(item, "id"), item)


def render_action(item: Json) -> str:
    """Write the arguments of a call of a tool that has a kind of its own (`shell_call`), as JSON."""
    action = next((item[key] for key in _ACTION_FIELDS if isinstance(item.get(key), dict)), None)
    rest = {key: value for key, value in item.items() if key in CALL_FIELDS and key not in _IDENTITY_FIELDS}
    return json.dumps(rest if action is None else action, ensure_ascii=False)


def render_item(call: ToolCall, form: ResponseForm) -> dict[str, Any]:
    """Write a call as an item of a conversation, with the fields that VTC does not know."""
    kind = str(call.source.get("type")) if isinstance(call.source, dict) else ""
    source = call.source if is_call(kind) else {}
    if source and kind not in CALL_KINDS:
        if kind == f"{call.name}_call":
            return _render_special_call(source, call.arguments)
        source = {}
    rest = {key: value for key, value in source.items() if key not in ("arguments", "input", "name", "namespace")}
    if call.name in form.custom or kind == "custom_tool_call":
        call_item = {"type": "custom_tool_call", "name": call.name, "input": raw_input(call.arguments)}
    else:
        call_item = {"type": "function_call", "name": call.name, "arguments": call.arguments}
    if source.get("namespace") and name_of(source, form) == call.name:
        named = {key: source[key] for key in ("name", "namespace")}  # also where no such namespace is declared
        return {**rest, **call_item, **named, "call_id": call.id}
    return {**rest, **split_namespace({**call_item, "call_id": call.id}, form)}


def _render_special_call(item: Json, arguments: str) -> dict[str, Any]:
    """Write a call of a tool that has a kind of its own: as it came, unless its arguments were changed."""
    if arguments == render_action(item):
        return {**item}
    field = next((key for key in _ACTION_FIELDS if isinstance(item.get(key), dict)), None)
    return {**item, field: json.loads(arguments)} if field else {**item, **json.loads(arguments)}


def render_done_item(call: ToolCall, form: ResponseForm) -> dict[str, Any]:
    """Write a call as a reply has it, with an id of its own, which is made of the call's."""
    item = render_item(call, form)
    status = "incomplete" if is_cut(call.arguments) else "completed"
    return {**item, "id": item.get("id") or make_item_id(item), "status": status}


def make_item_id(item: Json) -> str:
    """Make the id of an item that is a call."""
    return (
        f"{ID_PREFIXES.get(item['type'], 'item')}_{str(item.get('call_id')).removeprefix('call_').removeprefix('fc_')}"
    )


def unfold_item(item: Json, index: int) -> Iterator[dict[str, Any]]:
    """Write the events by which a stream tells of an item, without their numbers."""
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
    """Return the names for a part: what stands around it, of the events of its text, and of its field."""
    return PART_KINDS.get((part or {}).get("type"), ("content_part", "", ""))


def _unfold_part(part: Json, at: Json) -> Iterator[dict[str, Any]]:
    around, events, field = part_names_of(part)
    yield {"type": f"response.{around}.added", **at, "part": clear_part({**part, field: ""}) if field else part}
    if field:
        text, more = part.get(field) or "", {"logprobs": list[Any]()} if events == "output_text" else {}
        yield {"type": f"response.{events}.delta", **at, "delta": text, **more}
        yield {"type": f"response.{events}.done", **at, field: text, **more}
    yield {"type": f"response.{around}.done", **at, "part": part}


def clear_part(part: Json) -> dict[str, Any]:
    """Leave out of a part what repeats its text, or is about places in it."""
    return {**part, **{key: [] for key in ("annotations", "logprobs") if key in part}}


def text_of(part: Any) -> Any:
    """Return the text of a part, whatever its kind calls it."""
    return part.get("text", part.get("refusal")) if isinstance(part, Mapping) else None


def compared_fields(item: Json) -> tuple[Any, ...]:
    """Return what a client takes from an item that is done: one that was told otherwise is another."""
    about = [item.get(key) for key in ("type", "id", "call_id", "name", "namespace", "arguments", "input")]
    lists = (item.get(key) for key in ("summary", "content"))
    parts = [[text_of(part) for part in listed] if isinstance(listed, list) else [] for listed in lists]
    return (*about, *parts)


def make_response(id_: str, model: str, created: int) -> dict[str, Any]:
    """Write the fields of a response that clients demand from its beginning."""
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
    """Write the counts of a response, with those that some servers leave out."""
    counts = {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
    own = usage.own.value if usage.own else {}
    return counts | {key: count for key, count in own.items() if count is not None}
