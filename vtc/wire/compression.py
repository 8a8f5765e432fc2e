"""Content codings (RFC 9110, section 8.4), undone while a body arrives.

Each decoder gives what the bytes so far allow, so an event that the server flushed arrives as an event. A
list of codings ("gzip, br") is a chain of decoders, and the chain is a decoder.

What one `feed` may grow to is limited: a few bytes of a crafted body stand for gigabytes, and text shrinks
tenfold, not ten thousandfold.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

import brotli  # type: ignore[import-untyped]  # has no stubs
import zstandard

_LIMIT = 32 * 2**20
"""Bytes that one `feed` may give, and all of a body together if they are too many times its size."""
_MOST_TIMES = 200
"""Text shrinks tenfold, and a model that says one thing over and over a hundredfold."""
_SLICE = 64
"""Bytes decoded between two looks at the limit (of zstd they can stand for 2 MiB, of gzip for 64 KiB), and so the
most of a corrupt body that is lost with what made it so."""


class UnsupportedEncoding(ValueError):
    """A content coding that nothing here can undo."""


class CorruptBody(ValueError):
    """A body that is not what its content coding says: wrong, cut off, or grown beyond the limit.

    `decoded` is what the same read gave before that showed.
    """

    def __init__(self, message: str, decoded: bytes = b"") -> None:
        super().__init__(message)
        self.decoded = decoded


class ContentDecoder(Protocol):
    """Compressed bytes in, plain bytes out. Both methods raise `CorruptBody`."""

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the body; return what they decode to, b"" if nothing yet.

        Once a body is corrupt all of its rest is.
        """
        ...

    def finish(self) -> bytes:
        """End the body; raise `CorruptBody` if it was cut off. An empty body is whole."""
        ...


def make_decoder(content_encoding: str) -> ContentDecoder:
    """Make a decoder for the value of a `Content-Encoding` header; "" and "identity" pass bytes through.

    Codings were applied in the order listed and are undone in reverse. Raises `UnsupportedEncoding`.
    """
    names = [name.strip().lower() for name in content_encoding.split(",")]
    decoders: list[ContentDecoder] = []
    for name in reversed(names):
        if name in ("", "identity"):
            continue
        if name not in _CODINGS:
            known = ", ".join(["identity", *_CODINGS])
            raise UnsupportedEncoding(
                f"content coding {name!r} is not supported, only {known}; "
                "send `accept-encoding: identity` with the request"
            )
        decoders.append(_LimitedDecoder(name, _CODINGS[name]()))
    if not decoders:
        return Identity()
    return decoders[0] if len(decoders) == 1 else _CodingChain(decoders)


class Identity:
    """No coding at all."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _CodingChain:
    def __init__(self, decoders: Sequence[ContentDecoder]) -> None:
        self._decoders = decoders

    def feed(self, data: bytes) -> bytes:
        return self._through(data, lambda step, data: step.feed(data))

    def finish(self) -> bytes:
        return self._through(b"", lambda step, data: step.feed(data) + step.finish())

    def _through(self, data: bytes, undo: Callable[[ContentDecoder, bytes], bytes]) -> bytes:
        fault: CorruptBody | None = None
        for step in self._decoders:
            try:
                data = undo(step, data)
            except CorruptBody as error:
                data, fault = error.decoded, fault or error
        if fault:
            raise CorruptBody(str(fault), data) from fault
        return data


class _Coding(Protocol):
    """One coding's own state; raises its library's error."""

    @property
    def complete(self) -> bool: ...

    def decode(self, data: bytes) -> bytes: ...


class _LimitedDecoder:
    """The base of all codings: the limit, one error type, and that a cut body is corrupt."""

    def __init__(self, name: str, coding: _Coding) -> None:
        self._name = name
        self._coding = coding
        self._received_bytes = self._decoded_bytes = 0
        self._corrupt = ""

    def feed(self, data: bytes) -> bytes:
        if self._corrupt:
            raise CorruptBody(self._corrupt)
        self._received_bytes += len(data)
        parts: list[bytes] = []
        size = 0
        for start in range(0, len(data), _SLICE):
            try:
                part = self._coding.decode(data[start : start + _SLICE])
            except (zlib.error, brotli.error, zstandard.ZstdError) as error:
                self._corrupt = f"the body is not valid {self._name}: {error}"
                raise CorruptBody(self._corrupt, b"".join(parts)) from error
            size += len(part)
            if size > _LIMIT:
                self._corrupt = f"one read of the {self._name} body grows beyond {_LIMIT >> 20} MiB"
                raise CorruptBody(self._corrupt, b"".join(parts))
            parts.append(part)
        self._decoded_bytes += size
        if self._decoded_bytes > max(_LIMIT, _MOST_TIMES * self._received_bytes):
            self._corrupt = f"the {self._name} body grows beyond {_LIMIT >> 20} MiB and {_MOST_TIMES} times its size"
            raise CorruptBody(self._corrupt, b"".join(parts))
        return b"".join(parts)

    def finish(self) -> bytes:
        if self._corrupt:
            raise CorruptBody(self._corrupt)
        if self._received_bytes and not self._coding.complete:
            raise CorruptBody(f"the {self._name} body was cut off before its end")
        return b""


class _CompressedMember(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _MemberSequence:
    """Compressed streams, one after another, as gzip and zstd allow; zero bytes may pad the end."""

    def __init__(self, new: Callable[[], _CompressedMember]) -> None:
        self._new = new
        self._member = new()

    @property
    def complete(self) -> bool:
        return self._member.eof

    def decode(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        while data:
            if self._member.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member = self._new()
            parts.append(self._member.decompress(data))
            data = self._member.unused_data
        return b"".join(parts)


class _Deflate:
    """zlib by the standard, a bare deflate stream by what some servers send; the first two bytes tell."""

    def __init__(self) -> None:
        self._head = b""
        self._stream: _MemberSequence | None = None

    @property
    def complete(self) -> bool:
        return self._stream is not None and self._stream.complete

    def decode(self, data: bytes) -> bytes:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            is_zlib = self._head[0] & 0x0F == zlib.DEFLATED and int.from_bytes(self._head[:2]) % 31 == 0
            window = zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
            self._stream = _MemberSequence(lambda: zlib.decompressobj(window))
            data = self._head
        return self._stream.decode(data)


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._stream.is_finished())

    def decode(self, data: bytes) -> bytes:
        # Its own limit, because a thousand bytes can stand for gigabytes; what is over it stays inside,
        # and the caller refuses the body.
        plain: bytes = self._stream.process(data, output_buffer_limit=_LIMIT + 1)
        return plain


def _gzip() -> _Coding:
    return _MemberSequence(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16))


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": lambda: _MemberSequence(zstandard.ZstdDecompressor().decompressobj),
}
