"""Limits of VTC up to which tests go, and texts that VTC inserts and tests look for."""

from vtc.apis.relay.choice import MAX_BUFFERED_CALLS
from vtc.dialects.text_client.documented_tools import MAX_PROMPT_LENGTH
from vtc.dialects.writing.history import NAMELESS_TOOL, PLACEHOLDER
from vtc.exchange.asking.request import MAX_REQUESTS
from vtc.exchange.asking.steps.calls import MISSING_RESULT_TEXT
from vtc.exchange.replying.stream import MAX_JSON_BYTES
from vtc.profiles.memory import AGREEING, EXPIRES
from vtc.wire.framing import MAX_FRAME_BYTES as MOST_FRAME

__all__ = [
    "AGREEING",
    "CORE_REQUIREMENTS",
    "EXPIRES",
    "MAX_BUFFERED_CALLS",
    "MAX_JSON_BYTES",
    "MAX_PROMPT_LENGTH",
    "MAX_REQUESTS",
    "MISSING_RESULT_TEXT",
    "MOST_FRAME",
    "NAMELESS_TOOL",
    "PLACEHOLDER",
]
CORE_REQUIREMENTS = {"jinja2", "markupsafe", "msgspec", "regex", "yaml"}
"""Packages of others that `import vtc` may import, and that reading and rendering need."""
