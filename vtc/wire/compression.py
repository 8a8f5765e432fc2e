"""Decode content codings (RFC 9110, section 8.4) while a body arrives.

Each decoder returns all output that the bytes so far determine, so an event that the server flushed is available at
once. A list of codings ("gzip, br") is a chain of decoders, which is itself a decoder.

The output of one `feed` is limited because a few bytes of a crafted body can expand to gigabytes, while text
compresses tenfold, not ten thousandfold.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Protocol

_MAX_OUTPUT_BYTES = 32 * 2**20
"""Maximum output of one `feed`, and of a whole body that expands more than `_MAX_EXPANSION` times."""
_MAX_EXPANSION = 200
"""Maximum expansion of a body: text compresses tenfold, and a model that repeats itself a hundredfold."""
_SLICE_BYTES = 64
"""Input bytes between two checks of the limit; they can expand to 2 MiB with zstd and 64 KiB with gzip. When a body
turns out to be corrupt, at most the output of one slice is lost."""


class UnsupportedEncoding(ValueError):
    """A content coding that is not supported."""


class CorruptBody(ValueError):
    """A body that does not match its content coding: invalid, cut off, or expanded beyond the limit.

    `decoded` is the output of the same read before the fault.
    """

    def __init__(self, message: str, decoded: bytes = b"") -> None:
        super().__init__(message)
        self.decoded = decoded


class ContentDecoder(Protocol):
    """Turns compressed bytes into plain bytes. Both methods raise `CorruptBody`."""

    def feed(self, data: bytes) -> bytes:
        """Decode the next bytes of the body; return b"" if they yield no output yet.

        After a fault every further call raises.
        """
        ...

    def finish(self) -> bytes:
        """End the body; raises `CorruptBody` if it was cut off. An empty body is complete."""
        ...


def make_decoder(content_encoding: str) -> ContentDecoder:
    """Make a decoder for the value of a `Content-Encoding` header; "" and "identity" pass bytes through.

    Codings are listed in the order in which they were applied, so they are decoded in reverse. Raises
    `UnsupportedEncoding`.
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
    """The decoder of a body without a coding."""

    def feed(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _CodingChain:
    """The decoders of a list of codings, the last applied coding first."""

    def __init__(self, decoders: Sequence[ContentDecoder]) -> None:
        self._decoders = decoders

    def feed(self, data: bytes) -> bytes:
        return self._run_chain(data, lambda decoder, data: decoder.feed(data))

    def finish(self) -> bytes:
        return self._run_chain(b"", lambda decoder, data: decoder.feed(data) + decoder.finish())

    def _run_chain(self, data: bytes, call: Callable[[ContentDecoder, bytes], bytes]) -> bytes:
        """Feed each decoder the output of the one before, also the output that preceded a fault."""
        fault: CorruptBody | None = None
        for decoder in self._decoders:
            try:
                data = call(decoder, data)
            except CorruptBody as error:
                data, fault = error.decoded, fault or error
        if fault:
            raise CorruptBody(str(fault), data) from fault
        return data


class _Coding(Protocol):
    """The state of one coding. `decode` raises the error of the coding's library."""

    @property
    def complete(self) -> bool:
        """True if the body may end here."""
        ...

    def decode(self, data: bytes) -> bytes: ...


class _LimitedDecoder:
    """Adds to a coding the limit, a single error type, and the detection of bodies that are cut off."""

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
        for start in range(0, len(data), _SLICE_BYTES):
            try:
                part = self._coding.decode(data[start : start + _SLICE_BYTES])
            except _list_errors() as error:
                self._corrupt = f"the body is not valid {self._name}: {error}"
                raise CorruptBody(self._corrupt, b"".join(parts)) from error
            size += len(part)
            if size > _MAX_OUTPUT_BYTES:
                self._corrupt = f"one read of the {self._name} body grows beyond {_MAX_OUTPUT_BYTES >> 20} MiB"
                raise CorruptBody(self._corrupt, b"".join(parts))
            parts.append(part)
        self._decoded_bytes += size
        if self._decoded_bytes > max(_MAX_OUTPUT_BYTES, _MAX_EXPANSION * self._received_bytes):
            self._corrupt = (
                f"the {self._name} body grows beyond {_MAX_OUTPUT_BYTES >> 20} MiB and {_MAX_EXPANSION} times its size"
            )
            raise CorruptBody(self._corrupt, b"".join(parts))
        return b"".join(parts)

    def finish(self) -> bytes:
        if self._corrupt:
            raise CorruptBody(self._corrupt)
        if self._received_bytes and not self._coding.complete:
            raise CorruptBody(f"the {self._name} body was cut off before its end")
        return b""


class _CompressedMember(Protocol):
    """The decompressor of one stream, as `zlib` and `zstd` provide it."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _MemberSequence:
    """Concatenated compressed streams, as gzip and zstd allow; zero bytes may pad the end."""

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
    """zlib as in the standard, or the raw deflate stream that some servers send; the first two bytes decide."""

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
        import brotli  # type: ignore[import-untyped]  # has no stubs

        self._stream = brotli.Decompressor()

    @property
    def complete(self) -> bool:
        return bool(self._stream.is_finished())

    def decode(self, data: bytes) -> bytes:
        # Limit the output here, because a thousand bytes can expand to gigabytes. The excess stays in the
        # decompressor, and the caller rejects the body.
        plain: bytes = self._stream.process(data, output_buffer_limit=_MAX_OUTPUT_BYTES + 1)
        return plain


def _gzip() -> _Coding:
    return _MemberSequence(lambda: zlib.decompressobj(zlib.MAX_WBITS | 16))


def _zstd() -> _Coding:
    return _MemberSequence(_import_zstd().ZstdDecompressor)


def _import_zstd() -> ModuleType:
    """Import zstd: it is in the standard library since Python 3.14, and a package before."""
    return import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _list_errors() -> tuple[type[Exception], ...]:
    """List the errors of all decompressors. Two of these are imported when used: `vtc.library` does not need them."""
    import brotli

    return (zlib.error, brotli.error, _import_zstd().ZstdError)


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _zstd,
}
