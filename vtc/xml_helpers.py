"""Functions for programs that use VTC without the proxy, in one dialect: `<function_calls><invoke name="…">`.

They wrap the reader and the writer of the addon, so a text gives the same calls as a stream. Calls have the form of the
OpenAI API: `{"id": …, "type": "function", "function": {"name": …, "arguments": "<JSON text>"}}`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from vtc.dialects.builtin import load_dialect
from vtc.dialects.reading.reader import Reader, ReaderOptions
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.dialects.user_agent import CLIENT_PATTERNS, find_agent_pattern
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Text, Tool, ToolCall

DIALECT = "invoke"


def detect_vtc_client(agent: str | None, patterns: Iterable[str] = CLIENT_PATTERNS) -> bool:
    """True if a User-Agent belongs to a client that parses calls from text.

    Patterns are substrings, without regard to case. Without patterns or a User-Agent the result is False.
    """
    return find_agent_pattern(agent or "", patterns) is not None


def parse_vtc_xml(content: str, allowed_tools: Collection[str] | None = None) -> tuple[str, list[dict[str, Any]]]:
    """Return the text without its calls, and the calls in order with ids `call_0`, `call_1` ….

    Parses `<function_calls><invoke name="…"><parameter name="…">…`, the bare `<invoke …>`, and both with a namespace.
    With `allowed_tools`, calls of other tools stay text.
    """
    events = _make_reader(allowed_tools, lenient=True).read_whole(content)
    calls = [event.call for event in events if isinstance(event, Call)]
    text = "".join(event.raw for event in events if isinstance(event, Text))
    if allowed_tools is None:  # without a list of tools the namespace of a name is only visible here
        calls = [replace(call, name=call.name.rpartition(":")[2]) for call in calls]
    return text, [replace(call, id=f"call_{index}").as_openai() for index, call in enumerate(calls)]


def serialize_tool_calls_to_xml(tool_calls: Sequence[Mapping[str, Any]]) -> str:
    """Render calls as one `<function_calls>` block; empty for none. Arguments may be JSON text or an object.

    Raises ValueError for a call without a name.
    """
    return write_calls(make_tool_calls(tool_calls), load_dialect(DIALECT), {})


def make_tool_calls(entries: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """Convert calls from OpenAI's form; arguments may be JSON text or an object.

    Raises ValueError for a call without a name.
    """
    calls = []
    for number, entry in enumerate(entries, start=1):
        function = entry.get("function") or entry
        if not function.get("name"):
            raise ValueError(f"call {number} of {len(entries)} has no function name")
        arguments = function.get("arguments") or "{}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append(ToolCall(function["name"], text, entry.get("id")))
    return calls


def has_partial_xml_pattern(text: str) -> bool:
    """True if a text ends inside a call or a possible beginning of one."""
    reader = _make_reader(None, lenient=False)
    has_call = any(isinstance(event, Call) for event in reader.feed(text))
    unread = ""
    for event in reader.finish():
        has_call = has_call or isinstance(event, Call)
        unread = "" if isinstance(event, Call) else unread + event.raw
    # `unread` is the text that the reader buffered up to the end. It also buffers code fences and closing tags, which
    # begin no call.
    unread = unread.strip(" \t\r\n`~")
    return bool(unread) and (has_call or not unread.startswith("</"))


def detect_complete_tool_call(text: str) -> bool:
    """True if a text holds at least one complete call."""
    return any(isinstance(event, Call) for event in _make_reader(None, lenient=False).read_whole(text))


def _make_reader(allowed_tools: Collection[str] | None, *, lenient: bool) -> Reader:
    """Make a reader of this dialect; `lenient` repairs malformed calls."""
    tools = {name: Tool(name) for name in sorted(allowed_tools or ())}
    grammar = compile_grammar((load_dialect(DIALECT),))
    return Reader(grammar, tools, ReaderOptions(lenient, "allow" if allowed_tools is None else "text"))
