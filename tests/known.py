"""Bounds of VTC up to which tests go, and words of its own that they look for."""

from vtc.apis.relay.choice import MOST_CALLS
from vtc.dialects.text_client.documented_tools import MAX_PROMPT_LENGTH
from vtc.dialects.writing.history import NAMELESS_TOOL, PLACEHOLDER
from vtc.exchange.asking.request import MOST_ASKED
from vtc.exchange.asking.steps.calls import NO_RESULT
from vtc.exchange.replying.stream import MOST_JSON
from vtc.profiles.memory import AGREEING, EXPIRES
from vtc.wire.framing import MAX_FRAME_BYTES as MOST_FRAME

__all__ = [
    "AGREEING",
    "EXPIRES",
    "MAX_PROMPT_LENGTH",
    "MOST_ASKED",
    "MOST_CALLS",
    "MOST_FRAME",
    "MOST_JSON",
    "NAMELESS_TOOL",
    "NO_RESULT",
    "PLACEHOLDER",
]
