"""Virtual Tool Calling: a mitmproxy addon that turns tool calls written as text into `tool_calls`, and back.

Importing this package loads the core only: events, dialects and their arguments. The names of `vtc.library` load
profiles and APIs when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vtc.events import Call, Reasoning, Text
from vtc.xml_helpers import (
    detect_complete_tool_call,
    detect_vtc_client,
    has_partial_xml_pattern,
    parse_vtc_xml,
    serialize_tool_calls_to_xml,
)

if TYPE_CHECKING:
    from vtc.library import Parsed, parse, render_calls, render_prompt
    from vtc.library import ReplyReader as Reader

__version__ = "0.1.0"

_LIBRARY = {
    "Parsed": "Parsed",
    "Reader": "ReplyReader",
    "parse": "parse",
    "render_calls": "render_calls",
    "render_prompt": "render_prompt",
}
"""Public names, and their names in `vtc.library`."""


def __getattr__(name: str) -> Any:
    if name not in _LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("vtc.library"), _LIBRARY[name])


__all__ = [
    "Call",
    "Parsed",
    "Reader",
    "Reasoning",
    "Text",
    "__version__",
    "detect_complete_tool_call",
    "detect_vtc_client",
    "has_partial_xml_pattern",
    "parse",
    "parse_vtc_xml",
    "render_calls",
    "render_prompt",
    "serialize_tool_calls_to_xml",
]
