"""Bytes and frames, independent of any LLM API.

EventStream, Lines     split a body into frames: server-sent events, or lines of JSON
make_decoder(coding)   makes an incremental decoder for a content coding
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
