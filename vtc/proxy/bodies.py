"""Bodies as they pass: counted always, and kept where somebody can look at them.

mitmproxy keeps a request and a reply as they leave. What they were when they came stands in the flow's metadata, as
bytes, so that it is saved with the flow; of a streamed reply mitmproxy keeps nothing unless told to.
"""

from __future__ import annotations

import re
from collections import deque
from functools import cached_property

from mitmproxy import ctx, http

from vtc.proxy.flows import RECEIVED_BODY
from vtc.wire import compression

_SLICE = 1 << 10
"""Bytes of a coded body that are decoded between two looks at its length."""
BEGINNING_BYTES = 1 << 14
"""Bytes of a body that is only to be told of."""
MAX_KEPT_BYTES = 4 << 20
"""Bytes of one body that are kept; of a longer one the beginning."""
LAST_CHUNKS = 256
"""Chunks of a body that is not kept whose end is looked at when it is over."""
LONG_CHUNK_BYTES = 1 << 12
"""Bytes of a chunk that takes the place of all before it."""
LAST_BYTES = 1 << 17
"""Bytes of that one: those of a chunk from the network, or of a whole reply."""
STREAMED_MEDIA_TYPES = ("text/event-stream", "application/x-ndjson")
"""Media types of replies that are forwarded as they arrive, even if VTC does not read them."""


class TooLong(ValueError):
    """A coded body that stands for too many bytes; these are the first of them."""

    def __init__(self, reason: str, beginning: bytes) -> None:
        super().__init__(reason)
        self.beginning = beginning


def decode_body(message: http.Message, most: int) -> bytes | None:
    """Decode a body from its content coding; None if there is none. Raises ValueError if it is not what that says.

    A few bytes of a crafted body stand for gigabytes: of one that grows longer than `most` no more is decoded than
    shows that, and that is a ValueError, too.
    """
    body, coding = message.raw_content, message.headers.get("content-encoding", "")
    if not body or not coding:
        return body
    decoder, plain = compression.make_decoder(coding), bytearray()
    for start in range(0, len(body), _SLICE):
        plain += decoder.feed(body[start : start + _SLICE])
        if len(plain) > most:
            raise TooLong(
                f"it is longer than vtc_max_body_bytes, though it came in {len(body)} bytes",
                bytes(plain[:BEGINNING_BYTES]),
            )
    return bytes(plain + decoder.finish())


def send_instead(flow: http.HTTPFlow, body: bytes, received: bytes, *, keep: bool) -> None:
    """Give a request another body than the one that was received, which is kept as it came, if any is."""
    flow.request.content = body
    if keep and len(received) <= MAX_KEPT_BYTES:
        flow.metadata.setdefault(RECEIVED_BODY["request"], received)


class DecodedBody:
    """A whole reply, or an error, which is decoded once, and only if it is looked at."""

    def __init__(self, response: http.Response) -> None:
        self._response = response

    @property
    def content(self) -> bytes:
        """Return all of it; empty if it cannot be decoded."""
        return self._decoded[0]

    @property
    def fault(self) -> str:
        """Tell why it cannot be decoded; empty if it can be."""
        return self._decoded[1]

    @property
    def beginning(self) -> bytes:
        """Return its first bytes, for people; of one that is too long, too."""
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
    """Have a reply taken for UTF-8, which it is for us: a client may believe a header that says another charset."""
    type_, *parameters = str(response.headers.get("content-type", "")).split(";")
    kept = [part for part in parameters if not re.match(r"\s*charset\s*=(?!\s*\"?utf-8\"?\s*$)", part, re.I)]
    if kept != parameters:
        response.headers["content-type"] = ";".join([type_, *kept])


class BodyRecorder:
    """Records a body as it passes: its size in bytes, and its first bytes if it is to be kept, else its last chunks."""

    def __init__(self, *, keep: bool) -> None:
        self.size = 0
        self._kept: bytearray | None = bytearray() if keep else None
        self.last: deque[bytes] = deque(maxlen=LAST_CHUNKS)

    def add(self, data: bytes) -> None:
        if self._kept is None:
            if len(data) > LONG_CHUNK_BYTES:
                self.last.clear()
            self.last.append(data[-LAST_BYTES:])
        elif self.size < MAX_KEPT_BYTES:
            self._kept += data[: MAX_KEPT_BYTES - self.size]
        self.size += len(data)

    def pass_on(self, data: bytes) -> list[bytes]:
        """Keep what passes and change nothing; for `http.Response.stream`."""
        self.add(data)
        return [data] if data else []

    def get_recorded(self, content_encoding: str = "") -> bytes | None:
        """Return what was kept, decoded; None if nothing was, or if it cannot be decoded."""
        return None if self._kept is None else _decode(bytes(self._kept), content_encoding)

    def end(self, content_encoding: str = "") -> bytes | None:
        """Return the body's end, decoded, from the beginning of a frame; None if it cannot be decoded."""
        if self._kept is not None:
            return self.get_recorded(content_encoding)
        data = b"".join(self.last)
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
    except Exception:  # a body that was cut may end in the middle of anything
        return None


def keeps_bodies() -> bool:
    """True if bodies are kept: by `vtc_keep_bodies`, with `auto` where flows are listed or saved."""
    choice = ctx.options.vtc_keep_bodies
    if choice != "auto":
        return bool(choice == "on")
    # mitmweb and mitmproxy list flows with this addon, mitmdump has no list and forgets them.
    listed = ctx.master.addons.get("view") is not None
    return listed or ("save_stream_file" in ctx.options and bool(ctx.options.save_stream_file))


def streams_large_bodies() -> bool:
    """True if mitmproxy is told to keep no large bodies."""
    return bool("stream_large_bodies" in ctx.options and ctx.options.stream_large_bodies)


def replace(response: http.Response, body: bytes, media_type: str) -> None:
    """Give a reply another body."""
    response.headers.pop("content-encoding", None)
    response.content = body
    response.headers["content-type"] = media_type


def cut_in_chunks(request: http.Request, response: http.Response) -> None:
    """Have a body leave in chunks: they show a client that it breaks off.

    A client of HTTP/1.0 reads up to the end of the connection.
    """
    ends_by_closing = not {"content-length", "transfer-encoding"} & {*map(str.lower, response.headers)}
    response.headers.pop("content-length", None)
    if response.http_version != "HTTP/1.1" or request.http_version == "HTTP/1.0":
        return
    response.headers["transfer-encoding"] = "chunked"
    if ends_by_closing:  # else mitmproxy would keep the server's connection, though it ends with the body
        response.headers["connection"] = "close"
