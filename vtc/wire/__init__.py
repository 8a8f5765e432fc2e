"""Bytes and frames, independent of any LLM API.

EventStream, Lines     the two framings: each splits a body into frames and encodes new ones (server-sent events,
                       lines of JSON)
make_decoder(coding)   makes an incremental decoder for a content coding (gzip, br …)
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
