"""Decode, count and record bodies.

mitmproxy stores a request and a reply as sent. Received bodies that are kept are bytes in the flow's metadata, so that
they are saved with the flow. mitmproxy stores nothing of a streamed reply unless configured to.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cached_property

from mitmproxy import ctx, http

from vtc.proxy.flows import RECEIVED_BODY
from vtc.wire import compression

_SLICE_BYTES = 1 << 10
"""Number of bytes of an encoded body that are decoded between two checks of the decoded length."""
BEGINNING_BYTES = 1 << 14
"""Length of the excerpt of a body for reports."""
MAX_KEPT_BYTES = 4 << 20
"""Maximum number of bytes that are kept of a body; a longer one is truncated."""
MAX_LAST_CHUNKS = 256
"""Maximum number of last chunks that are recorded of a body that is not kept, to inspect its end."""
LONG_CHUNK_BYTES = 1 << 12
"""Size of a chunk beyond which the earlier chunks are dropped, because its own end is long enough to inspect."""
MAX_LAST_CHUNK_BYTES = 1 << 17
"""Maximum number of bytes recorded of one of the last chunks: its end."""
STREAMED_MEDIA_TYPES = ("text/event-stream", "application/x-ndjson")
"""Media types of replies that are streamed even if VTC does not read them."""


class TooLong(ValueError):
    """An encoded body that expands to too many bytes; `beginning` has the first of them."""

    def __init__(self, reason: str, beginning: bytes) -> None:
        super().__init__(reason)
        self.beginning = beginning


def decode_body(message: http.Message, max_bytes: int) -> bytes | None:
    """Decode a body from its content coding; None if there is none. Raises ValueError if the body is invalid.

    A few bytes of a crafted body can expand to gigabytes, so decoding stops with a ValueError after `most` bytes.
    """
    body, coding = message.raw_content, message.headers.get("content-encoding", "")
    if not body or not coding:
        return body
    decoder, plain = compression.make_decoder(coding), bytearray()
    for start in range(0, len(body), _SLICE_BYTES):
        plain += decoder.feed(body[start : start + _SLICE_BYTES])
        if len(plain) > max_bytes:
            raise TooLong(
                f"it expands from {len(body)} bytes to more than vtc_max_body_bytes",
                bytes(plain[:BEGINNING_BYTES]),
            )
    return bytes(plain + decoder.finish())


def replace_request_body(flow: http.HTTPFlow, body: bytes, received: bytes, *, keep: bool) -> None:
    """Replace the body of a request; store the received one if `keep`."""
    flow.request.content = body
    if keep and len(received) <= MAX_KEPT_BYTES:
        flow.metadata.setdefault(RECEIVED_BODY["request"], received)


class DecodedBody:
    """The body of a whole reply or an error, decoded once on first use."""

    def __init__(self, response: http.Response) -> None:
        self._response = response

    @property
    def content(self) -> bytes:
        """The whole body; empty if it cannot be decoded."""
        return self._decoded[0]

    @property
    def fault(self) -> str:
        """The reason why the body cannot be decoded; empty if it can."""
        return self._decoded[1]

    @property
    def beginning(self) -> bytes:
        """The first bytes of the body, for reports; available even if it is too long."""
        return self._decoded[2]

    @cached_property
    def _decoded(self) -> tuple[bytes, str, bytes]:
        try:
            body = decode_body(self._response, ctx.options.vtc_max_body_bytes) or b""
        except ValueError as error:
            return b"", str(error), error.beginning if isinstance(error, TooLong) else b""
        return body, "", body[:BEGINNING_BYTES]


def get_media_type(message: http.Message) -> str:
    """Return the media type of a body, without its parameters."""
    return str(message.headers.get("content-type", "")).partition(";")[0].strip().lower()


def drop_other_charset(response: http.Response) -> None:
    """Remove a charset other than UTF-8 from the headers, because VTC decoded the reply as UTF-8."""
    type_, *parameters = str(response.headers.get("content-type", "")).split(";")
    kept = [part for part in parameters if not re.match(r"\s*charset\s*=(?!\s*\"?utf-8\"?\s*$)", part, re.I)]
    if kept != parameters:
        response.headers["content-type"] = ";".join([type_, *kept])


class BodyRecorder:
    """Records the size of a passing body, and its beginning if bodies are kept, else its last chunks."""

    def __init__(self, *, keep: bool) -> None:
        self.size = 0
        self._kept: bytearray | None = bytearray() if keep else None
        self.last_chunks: deque[bytes] = deque(maxlen=MAX_LAST_CHUNKS)

    def add(self, data: bytes) -> None:
        if self._kept is None:
            if len(data) > LONG_CHUNK_BYTES:
                self.last_chunks.clear()
            self.last_chunks.append(data[-MAX_LAST_CHUNK_BYTES:])
        elif self.size < MAX_KEPT_BYTES:
            self._kept += data[: MAX_KEPT_BYTES - self.size]
        self.size += len(data)

    def pass_on(self, data: bytes) -> list[bytes]:
        """Record the data and pass it through unchanged; for `http.Response.stream`."""
        self.add(data)
        return [data] if data else []

    def get_recorded(self, content_encoding: str = "") -> bytes | None:
        """Return the kept bytes, decoded; None if bodies are not kept or cannot be decoded."""
        return None if self._kept is None else _decode(bytes(self._kept), content_encoding)

    def decode_end(self, content_encoding: str = "") -> bytes | None:
        """Decode the recorded end of the body, from the start of a frame; None if that fails."""
        if self._kept is not None:
            return self.get_recorded(content_encoding)
        data = b"".join(self.last_chunks)
        if len(data) == self.size:
            return _decode(data, content_encoding)
        if content_encoding not in ("", "identity"):
            return None
        _, empty_line, frames = data.partition(b"\n\n")
        return frames if empty_line else data.partition(b"\n")[2]


def _decode(data: bytes, content_encoding: str) -> bytes | None:
    try:
        decoder = compression.make_decoder(content_encoding)
        return decoder.feed(data) + decoder.finish()
    except Exception:  # a truncated body may fail in any way
        return None


def keeps_bodies() -> bool:
    """True if bodies are kept, by `vtc_keep_bodies`; `auto` means if flows are listed or saved."""
    choice = ctx.options.vtc_keep_bodies
    if choice != "auto":
        return bool(choice == "on")
    # mitmweb and mitmproxy list flows with this addon, mitmdump has no list and forgets them.
    listed = ctx.master.addons.get("view") is not None
    return listed or ("save_stream_file" in ctx.options and bool(ctx.options.save_stream_file))


def streams_large_bodies() -> bool:
    """True if mitmproxy is configured to stream large bodies."""
    return bool("stream_large_bodies" in ctx.options and ctx.options.stream_large_bodies)


def replace_reply_body(response: http.Response, body: bytes, media_type: str) -> None:
    """Replace the body of a reply, and its type."""
    response.headers.pop("content-encoding", None)
    response.content = body
    response.headers["content-type"] = media_type


def send_chunked(request: http.Request, response: http.Response) -> None:
    """Set the headers for the chunked transfer coding, so that a client notices if the body breaks off.

    HTTP/1.0 has no chunks; its clients read up to the end of the connection.
    """
    ends_by_closing = not {"content-length", "transfer-encoding"} & {*map(str.lower, response.headers)}
    response.headers.pop("content-length", None)
    if response.http_version != "HTTP/1.1" or request.http_version == "HTTP/1.0":
        return
    response.headers["transfer-encoding"] = "chunked"
    if ends_by_closing:  # otherwise mitmproxy would keep the connection to the server, which ends with the body
        response.headers["connection"] = "close"
