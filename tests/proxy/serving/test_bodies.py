"""Stored bodies: sizes are always stored, bytes only if a view can show them, and never beyond the limit."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any

import brotli
import pytest
from backports import zstd
from mitmproxy import http
from mitmproxy.addons.save import Save
from mitmproxy.addons.view import View
from mitmproxy.test import taddons

from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.serving import bodies
from vtc.proxy.serving.bodies import MAX_KEPT_BYTES, BodyRecorder

CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("coding", CODINGS)
def test_a_body_is_decoded_up_to_a_limit(coding: str) -> None:
    body = CODINGS[coding](b"abc" * 1000)
    message = http.Response.make(200, b"", {"content-encoding": coding} if coding else {})
    message.raw_content = body
    assert bodies.decode_body(message, 3000) == b"abc" * 1000
    if coding not in ("", "identity"):
        message.raw_content = CODINGS[coding](bytes(20_000_000))
        with pytest.raises(ValueError, match=r"it expands from .* to more than vtc_max_body_bytes"):
            bodies.decode_body(message, 1_000_000)


@pytest.mark.parametrize(
    ("body", "coding"),
    [(b"no", "gzip"), (gzip.compress(b"abc")[:-1], "gzip"), (b"x", "x-odd")],
    ids=["not gzip", "cut off", "unknown coding"],
)
def test_a_body_that_cannot_be_decoded(body: bytes, coding: str) -> None:
    message = http.Response.make(200)
    message.headers["content-encoding"], message.raw_content = coding, body
    with pytest.raises(ValueError, match=r"not valid gzip|cut off|'x-odd' is not supported"):
        bodies.decode_body(message, 1000)


def test_a_body_is_counted_and_kept_only_if_asked() -> None:
    for keep, kept in ((True, b"abc"), (False, None)):
        passing = BodyRecorder(keep=keep)
        for piece in (b"ab", b"c"):
            passing.add(piece)
        assert (passing.size, passing.get_recorded()) == (3, kept)


def test_of_a_long_body_the_beginning_is_kept() -> None:
    passing = BodyRecorder(keep=True)
    for _ in range(5):
        passing.add(b"x" * (MAX_KEPT_BYTES // 2 - 1))
    assert passing.size > MAX_KEPT_BYTES
    assert passing.get_recorded() == b"x" * MAX_KEPT_BYTES


@pytest.mark.parametrize(
    ("data", "coding", "kept"),
    [(gzip.compress(b"abc"), "gzip", b"abc"), (b"not gzip", "gzip", None), (b"abc", "x-secret", None)],
    ids=["gzip", "not gzip", "unknown coding"],
)
def test_encoded_body_is_stored_decoded(data: bytes, coding: str, kept: bytes | None) -> None:
    passing = BodyRecorder(keep=True)
    passing.add(data)
    assert passing.get_recorded(coding) == kept


@pytest.mark.parametrize(
    ("others", "settings", "kept"),
    [
        ([], {}, False),
        ([View], {}, True),
        ([Save], {}, False),
        ([Save], {"save_stream_file": "/dev/null"}, True),
        ([], {"vtc_keep_bodies": "on"}, True),
        ([View], {"vtc_keep_bodies": "off"}, False),
    ],
)
def test_bodies_are_stored_for_views(others: list[Any], settings: dict[str, Any], kept: bool) -> None:
    addon = VirtualToolCalling()
    with taddons.context(addon, *(other() for other in others)) as context:
        context.configure(addon, vtc_mode="rewrite", **settings)
        assert bodies.keeps_bodies() is kept
        context.options.reset()  # closes the file that flows are saved to
