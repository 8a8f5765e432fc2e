"""Bytes and frames. Nothing in this package knows what an LLM is.

EventStream, Lines     how a body is cut into frames: server-sent events, or lines of JSON
decoder(coding)        undoes a content coding as the bytes arrive
"""

from vtc.wire.compression import ContentDecoder, CorruptBody, UnsupportedEncoding, make_decoder
from vtc.wire.framing import Frame, FrameTooLong, Framing
from vtc.wire.ndjson import LineReader, Lines
from vtc.wire.sse import EventReader, EventStream

__all__ = [
    "ContentDecoder",
    "CorruptBody",
    "EventReader",
    "EventStream",
    "Frame",
    "FrameTooLong",
    "Framing",
    "LineReader",
    "Lines",
    "UnsupportedEncoding",
    "make_decoder",
]
