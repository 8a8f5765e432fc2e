"""Renders a conversation for a model without native tools: tools, calls and results as text.

The example of a call in a prompt has no meaningful content, because small models copy examples: they use realistic
values, and call the tool of the example too often (see benchmarks/README.md for measurements). So every value is `...`.
Names are `...`, too, if the call is a JSON object, whose keys explain themselves; otherwise models need to see the
position of real names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vtc import json_schema
from vtc.dialects.arguments.json_object import dump_json
from vtc.dialects.syntax import description, pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.writing.calls import RoundTrip, write_calls, write_result
from vtc.events import Message, Opaque, Tool, ToolCall

PLACEHOLDER = "..."
SAMPLE_ID = "a1b2c3d4e5"
"""As long as the ids of the dialect that writes them into its calls (Solar)."""
NAMELESS_TOOL = Tool(PLACEHOLDER, parameters={"properties": {PLACEHOLDER: {"type": "string"}}})
ENOUGH_TEXTS = 2
"""Number of text parameters that show how one argument follows another."""


def render_example(dialect: Description, tools: Sequence[Tool]) -> str:
    """Render a call of a nameless tool, or of the offered tool that best shows text parameters.

    Empty if there are no tools.
    """
    if not tools:
        return ""
    is_object = pattern.find_body_slot(dialect.calls[0]) == "json"
    tool = NAMELESS_TOOL if is_object else max(tools, key=_fitness)
    return render_sample_call(dialect, tool, dict.fromkeys(list_shown_parameters(tool), PLACEHOLDER))


def render_sample_call(dialect: Description, tool: Tool, arguments: Mapping[str, Any]) -> str:
    """Render a call of a tool with placeholders or plain words.

    Every dialect reads these back unchanged, so it need not be checked for each set of tools.
    """
    # The id is omitted if it is not part of the pattern (as in JSON), so that the model need not invent one.
    call = ToolCall(tool.name, dump_json(arguments), SAMPLE_ID if "{id}" in dialect.calls[0] else "")
    return write_calls([call], replace(dialect, json_body=False), {tool.name: tool}).strip()


def _fitness(tool: Tool) -> int:
    """Return the number of text parameters (at most `ENOUGH_TEXTS`) minus the number of others."""
    names = list_shown_parameters(tool)
    texts = sum(map(tool.schema.is_text, names))
    return min(texts, ENOUGH_TEXTS) - (len(names) - texts)


def list_shown_parameters(tool: Tool) -> list[str]:
    """Return the required parameters of a tool, or all of them if none is required."""
    declared, required = tool.schema.properties, tool.schema.required
    return [name for name in declared if name in required] or list(declared)


def convert_to_text(messages: Iterable[Message], dialect: Description, tools: Mapping[str, Tool]) -> list[Message]:
    """Render every call and result in `dialect`; other messages stay the same objects."""
    round_trip = RoundTrip(dialect, tools)
    return [_render_message(message, dialect, round_trip) for message in messages]


def _render_message(message: Message, dialect: Description, round_trip: RoundTrip) -> Message:
    if message.role == "tool":
        before, after = _split_result(message, dialect)
        pictures = tuple(part for part in message.content if isinstance(part, Opaque))
        text = write_result(message.name or "tool", message.call_id or "", message.text, dialect)
        if not pictures:
            return replace(message, role=dialect.result_role, content=(text,))
        return replace(message, role=dialect.result_role, content=(before, *message.content, after), call_id=None)
    if message.calls:
        content, text = message.text, _render_calls(message, dialect, round_trip)
        gap = ("\n\n",) if content and not content.endswith("\n\n") else ()
        return replace(message, content=(*message.content, *gap, text), calls=())
    return message


def _render_calls(message: Message, dialect: Description, round_trip: RoundTrip) -> str:
    """Render the calls of a message; arguments that are nested too deeply are included as JSON text."""
    try:
        return write_calls(message.calls, dialect, round_trip.tools, round_trip)
    except RecursionError:
        raw = [json.dumps({"_raw": call.arguments}, ensure_ascii=False) for call in message.calls]
        calls = [replace(call, arguments=text) for call, text in zip(message.calls, raw, strict=True)]
        return write_calls(calls, dialect, round_trip.tools, round_trip)


def _split_result(message: Message, dialect: Description) -> tuple[str, str]:
    """Return the text before and after a result, for a result that is not all text."""
    marker = "\x00"
    text = write_result(message.name or "tool", message.call_id or "", marker, dialect)
    before, _, after = text.partition(marker)
    return before, after


def join_user_turns(messages: Iterable[Message]) -> list[Message]:
    """Merge adjacent user turns, which were one before results were separated from the rest.

    Many chat templates reject two turns of one role in a row.
    """
    out: list[Message] = []
    for message in messages:
        if out and message.role == out[-1].role == "user":
            *before, last = out[-1].content or ("",)
            gap = (f"{last}\n\n",) if isinstance(last, str) else (last,)
            out[-1] = replace(message, content=(*before, *gap, *message.content))
        else:
            out.append(message)
    return out


def append_note(messages: Sequence[Message], text: str) -> list[Message]:
    """Append a note for the model to the last message, or as a new user message after a model's."""
    if messages and messages[-1].role != "assistant":
        last = messages[-1]
        gap = ("\n\n",) if last.content else ()
        return [*messages[:-1], replace(last, content=(*last.content, *gap, text))]
    return [*messages, Message("user", (text,))]


def append_rule(messages: Sequence[Message], text: str) -> list[Message]:
    """Append a rule to the system message, or add a system message with it."""
    if messages and messages[0].role == "system":
        first = messages[0]
        gap = ("\n\n",) if first.content else ()
        return [replace(first, content=(*first.content, *gap, text)), *messages[1:]]
    return [Message("system", (text,)), *messages]


def append_tools(
    messages: Sequence[Message], dialect: Description, tools: Sequence[Tool], tool_choice: str
) -> list[Message]:
    """Append the tools and the rules of `dialect` to the system message, or add one.

    The same tools give the same text, so that prompt caches stay valid.
    """
    must_call = {"auto": "", "required": "at least one function"}.get(tool_choice, f"the function {tool_choice}")
    return append_rule(messages, render_tool_list(dialect, tools, must_call))


def render_tool_list(dialect: Description, tools: Sequence[Tool], must_call: str = "") -> str:
    """Render the prompt of `dialect` for some tools; `must_call` states in words which of them the reply must call."""
    return description.render_template(
        dialect.prompt, tools, {"must_call": must_call, "example": render_example(dialect, tools)}
    )


# A retry shows the model a call of its own tool with sample values that the schema allows. Prompts show `...` instead
# (`render_example`), because there models copied realistic values (benchmarks/README.md).


MAX_SAMPLE_DEPTH = 4
"""Maximum nesting of objects and lists that are filled."""
_PLAIN = re.compile(r"\w(?:[\w .,:/@+-]{0,60}\w)?")
"""Matches a value in a client's schema that contains no dialect's markup."""
_WORDS = (
    (r"dir|folder", "src"),
    (r"path|file", "notes.txt"),
    (r"command|cmd|script", "ls"),
    (r"city|location|place|town", "Paris"),
    (r"ur[il]|link", "https://example.com/"),
    (r"country", "France"),
    (r"date", "2026-01-31"),
    (r"mail", "ada@example.com"),
    (r"language", "English"),
    (r"pattern|query|search|term|keyword", "apple"),
    (r"content|text|body|message", "Hello"),
    (r"old|before|from", "apple"),
    (r"new|after|to", "pear"),
    (r"name|user|author", "Ada"),
)
"""Sample texts, by words in the name of the parameter."""


def render_usage(dialect: Description, tool: Tool) -> str:
    """Render a call of a tool with sample values."""
    return render_sample_call(dialect, tool, make_sample_arguments(tool))


def make_sample_arguments(tool: Tool) -> dict[str, Any]:
    """Make a sample value for each required parameter, or for all of them if none is required."""
    declared = tool.schema.properties
    return {name: _make_sample_value(name, declared[name], tool.parameters, 0) for name in list_shown_parameters(tool)}


def _make_sample_value(name: str, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    schema = json_schema.resolve_schema(schema, root)
    # Step 1: prefer a plain value that the schema names.
    options = [schema.get(key) for key in ("const", "default")]
    for key in ("examples", "enum"):
        listed = schema.get(key)
        if isinstance(listed, list):
            options += listed[:1]
    for option in options:
        if isinstance(option, bool | int | float) or (isinstance(option, str) and _PLAIN.fullmatch(option)):
            return option
    # Step 2: otherwise make a value of the first type other than null.
    types = json_schema.list_types(schema, root)
    kind, entry = next((pair for pair in types if pair[0] != "null"), ("string", schema))
    match kind:
        case "boolean":
            return True
        case "integer" | "number":
            minimum = entry.get("minimum")
            return minimum if isinstance(minimum, int) and not isinstance(minimum, bool) else 1
        case "array":
            return [_make_sample_value(name, entry.get("items"), root, depth + 1)] if depth < MAX_SAMPLE_DEPTH else []
        case "object":
            members = json_schema.ObjectSchema(entry)
            declared, required = members.properties, members.required
            keys = [key for key in declared if key in required] if depth < MAX_SAMPLE_DEPTH else []
            return {key: _make_sample_value(key, declared[key], root, depth + 1) for key in keys}
    return next((word for words, word in _WORDS if re.search(words, name.lower())), "apple")
