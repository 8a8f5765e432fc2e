"""Virtual Tool Calling: a mitmproxy addon that turns tool calls written as text into `tool_calls`, and back.

Importing this package loads the core only: events, dialects and their arguments.
"""

from vtc.xml_helpers import (
    detect_complete_tool_call,
    detect_vtc_client,
    has_partial_xml_pattern,
    parse_vtc_xml,
    serialize_tool_calls_to_xml,
)

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "detect_complete_tool_call",
    "detect_vtc_client",
    "has_partial_xml_pattern",
    "parse_vtc_xml",
    "serialize_tool_calls_to_xml",
]
