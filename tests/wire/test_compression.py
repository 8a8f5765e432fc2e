"""Content codings: decoding restores the encoded data, however it is cut, and as soon as the bytes permit."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise

import brotli  # type: ignore[import-untyped]  # has no stubs
import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from vtc.wire import ContentDecoder, CorruptBody, UnsupportedEncoding, make_decoder


def raw_deflate(data: bytes) -> bytes:
    encoder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return encoder.compress(data) + encoder.flush()


ENCODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "identity": ("identity", bytes),
    "no coding": ("", bytes),
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "br": ("br", partial(brotli.compress, quality=5)),
    "zstd": ("zstd", zstd.compress),
    "list": ("gzip, br", lambda data: brotli.compress(gzip.compress(data))),
    "list with identity": ("identity,Zstd , x-GZIP", lambda data: gzip.compress(zstd.compress(data))),
}
COMPRESSED = ["gzip", "x-gzip", "deflate", "raw deflate", "br", "zstd", "list", "list with identity"]


def decode(undo: ContentDecoder, *chunks: bytes) -> bytes:
    return b"".join([*map(undo.feed, chunks), undo.finish()])


@pytest.mark.parametrize("coding", ENCODERS)
@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_round_trip_however_it_is_cut(coding: str, data: bytes, cuts: list[int]) -> None:
    header, encode = ENCODERS[coding]
    body = encode(data)
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    assert decode(make_decoder(header), *(body[start:end] for start, end in pairwise(places))) == data


@pytest.mark.parametrize("coding", ENCODERS)
def test_a_long_body_fed_whole_and_byte_by_byte(coding: str) -> None:
    header, encode = ENCODERS[coding]
    data = b"".join(b'data: {"n": %d}\n\n' % n for n in range(2000))
    body = encode(data)
    assert decode(make_decoder(header), body) == data
    assert decode(make_decoder(header), *(body[i : i + 1] for i in range(len(body)))) == data


def flushed_gzip(events: list[bytes]) -> list[bytes]:
    encoder = zlib.compressobj(wbits=31)
    return [encoder.compress(event) + encoder.flush(zlib.Z_SYNC_FLUSH) for event in events]


def flushed_deflate(events: list[bytes]) -> list[bytes]:
    encoder = zlib.compressobj()
    return [encoder.compress(event) + encoder.flush(zlib.Z_SYNC_FLUSH) for event in events]


def flushed_brotli(events: list[bytes]) -> list[bytes]:
    encoder = brotli.Compressor()
    return [encoder.process(event) + encoder.flush() for event in events]


def flushed_zstd(events: list[bytes]) -> list[bytes]:
    encoder = zstd.ZstdCompressor()
    return [encoder.compress(event, encoder.FLUSH_BLOCK) for event in events]


@pytest.mark.parametrize(
    ("header", "flushed"),
    [("gzip", flushed_gzip), ("deflate", flushed_deflate), ("br", flushed_brotli), ("zstd", flushed_zstd)],
)
def test_flushed_bytes_arrive_at_once(header: str, flushed: Callable[[list[bytes]], list[bytes]]) -> None:
    events = [b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n"]
    undo = make_decoder(header)
    assert [undo.feed(chunk) for chunk in flushed(events)] == events


@pytest.mark.parametrize("encode", [gzip.compress, zstd.compress])
@pytest.mark.parametrize("padding", [b"", b"\0" * 8])
def test_several_members_and_padding(encode: Callable[[bytes], bytes], padding: bytes) -> None:
    header = "gzip" if encode is gzip.compress else "zstd"
    body = encode(b"one ") + encode(b"") + encode(b"two") + padding
    assert decode(make_decoder(header), body) == b"one two"
    assert decode(make_decoder(header), *(body[i : i + 1] for i in range(len(body)))) == b"one two"


@pytest.mark.parametrize("coding", ENCODERS)
def test_an_empty_body_is_whole(coding: str) -> None:
    """HTTP/2 servers can send no body and still name a coding."""
    undo = make_decoder(ENCODERS[coding][0])
    assert undo.feed(b"") == b""
    assert undo.finish() == b""
    assert undo.finish() == b""


@pytest.mark.parametrize("coding", COMPRESSED)
def test_a_body_that_was_cut_off(coding: str) -> None:
    header, encode = ENCODERS[coding]
    undo = make_decoder(header)
    body = encode(b"hello")
    assert b"hello".startswith(undo.feed(body[:-1]))
    with pytest.raises(CorruptBody, match="body was cut off before its end"):
        undo.finish()


@pytest.mark.parametrize("coding", COMPRESSED)
def test_a_corrupt_body(coding: str) -> None:
    header, _ = ENCODERS[coding]
    with pytest.raises(CorruptBody, match=r"the body is not valid (x-)?(gzip|deflate|br|zstd): "):
        decode(make_decoder(header), b"data: this was never compressed\n\n" * 3)


@pytest.mark.parametrize("coding", COMPRESSED)
def test_bytes_decoded_before_a_corruption_are_kept(coding: str) -> None:
    """This includes data of the same read; all data after it is corrupt, too, whatever its bytes."""
    header, encode = ENCODERS[coding]
    chance = random.Random(0)
    text = chance.randbytes(500_000).hex().encode()
    body = encode(text)
    half = len(body) // 2
    undo = make_decoder(header)
    with pytest.raises(CorruptBody) as caught:
        undo.feed(body[:half] + chance.randbytes(500_000))
    assert len(caught.value.decoded) > len(text) // 4
    assert text.startswith(caught.value.decoded[: len(text) // 4])
    for late in (body, b""):
        with pytest.raises(CorruptBody) as caught:
            undo.feed(late)
        assert caught.value.decoded == b""
    with pytest.raises(CorruptBody):
        undo.finish()


@given(body=st.binary(max_size=60), coding=st.sampled_from(COMPRESSED))
def test_any_bytes_decode_or_are_corrupt(body: bytes, coding: str) -> None:
    with suppress(CorruptBody):
        decode(make_decoder(ENCODERS[coding][0]), body)


@pytest.mark.rest
@pytest.mark.parametrize("coding", COMPRESSED)
def test_a_decompression_bomb_is_refused(coding: str) -> None:
    header, encode = ENCODERS[coding]
    bomb = encode(bytes(40 * 2**20))
    assert len(bomb) < 64 * 1024
    with pytest.raises(CorruptBody, match="body grows beyond 32 MiB"):
        make_decoder(header).feed(bomb)


def test_an_unknown_coding_is_named() -> None:
    with pytest.raises(UnsupportedEncoding) as caught:
        make_decoder("gzip, Compress")
    assert str(caught.value) == (
        "content coding 'compress' is not supported, only identity, gzip, x-gzip, deflate, br, zstd; "
        "send `accept-encoding: identity` with the request"
    )


def test_body_that_expands_too_far_is_corrupt_in_small_reads_too() -> None:
    packed = gzip.compress(bytes(80 << 20))
    undone, given = make_decoder("gzip"), 0
    with pytest.raises(CorruptBody, match="beyond 32 MiB and 200 times its size"):  # noqa: PT012 - which read it is
        for at in range(0, len(packed), 1 << 10):
            given += len(undone.feed(packed[at : at + (1 << 10)]))
    assert given <= 32 << 20
    with pytest.raises(CorruptBody):
        undone.finish()


@pytest.mark.rest
def test_long_body_of_text_is_decoded_to_its_end() -> None:
    text = b"".join(b"%d is a number, and so is %d\n" % (number, number * 7) for number in range(1_200_000))
    packed = gzip.compress(text, 1)
    undone = make_decoder("gzip")
    given = sum(len(undone.feed(packed[at : at + (1 << 16)])) for at in range(0, len(packed), 1 << 16))
    assert (given, undone.finish()) == (len(text), b"")
    assert given > 32 << 20
