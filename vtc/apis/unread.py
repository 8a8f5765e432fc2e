"""Frames that cannot be read, where nothing may leave that was not: JavaScript reads what is too much for us."""

from __future__ import annotations

from vtc.apis.base import Codec, Decoded
from vtc.json_text import decode
from vtc.wire import sse
from vtc.wire.framing import Frame

SAYING = ("choices", "message", "delta", "content", "content_block", "output", "item", "response", "tool_calls")
"""Keys of all APIs under which a client may find a call."""

_NO_JSON = [bytes([one]) for one in (*b"<", *range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1))]
"""How data begin that no client takes for JSON, in whatever encoding: a page of HTML, a word."""


class Unread(ValueError):
    """A frame that is not passed on."""


def decoded(codec: Codec, frame: Frame) -> Decoded | None:
    """Decode a frame; None for one in which no client finds a call. Raises `Unread` for any other that is not read."""
    if isinstance(codec.framing, sse.EventStream) and b"data:" in sse.other_lines(frame.raw):
        raise Unread("data stand in a comment")  # some clients end lines where no server does
    try:
        found = codec.decode(frame)
    except Exception as error:
        raise Unread(type(error).__name__) from error
    if found is None and frame.data and not _says_nothing(frame.data):
        raise Unread("it is nothing of this API")
    return found


def _says_nothing(data: bytes) -> bool:
    """True for a ping, an error and the like."""
    try:
        value = decode(data, "replace")
    except ValueError:
        return data.lstrip()[:1] in _NO_JSON
    return not isinstance(value, dict) or not any(value.get(key) for key in SAYING)
