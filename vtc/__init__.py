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
    from vtc.apis import RequestError
    from vtc.library import Parsed, parse, render_calls, render_prompt
    from vtc.library import ReplyReader as Reader
    from vtc.library.session import LibrarySession as Session

__version__ = "0.1.0"

_LIBRARY = {
    "Parsed": "vtc.library.Parsed",
    "Reader": "vtc.library.ReplyReader",
    "RequestError": "vtc.apis.RequestError",
    "Session": "vtc.library.session.LibrarySession",
    "parse": "vtc.library.parse",
    "render_calls": "vtc.library.render_calls",
    "render_prompt": "vtc.library.render_prompt",
}
"""Public names, and where they are defined."""


def __getattr__(name: str) -> Any:
    if name not in _LIBRARY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, defined = _LIBRARY[name].rpartition(".")
    return getattr(import_module(module), defined)


__all__ = [
    "Call",
    "Parsed",
    "Reader",
    "Reasoning",
    "RequestError",
    "Session",
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
