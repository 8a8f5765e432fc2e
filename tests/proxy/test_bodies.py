"""Bodies as they pass: sizes always, bytes where somebody can look at them, never more than the limit."""

from __future__ import annotations

import gzip
from typing import Any

import pytest
from mitmproxy.addons.save import Save
from mitmproxy.addons.view import View
from mitmproxy.test import taddons

from vtc.proxy import bodies
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.bodies import KEPT, Passing


def test_a_body_is_counted_and_kept_only_if_asked() -> None:
    for keep, kept in ((True, b"abc"), (False, None)):
        passing = Passing(keep=keep)
        for piece in (b"ab", b"c"):
            passing.add(piece)
        assert (passing.size, passing.kept()) == (3, kept)


def test_of_a_long_body_the_beginning_is_kept() -> None:
    passing = Passing(keep=True)
    for _ in range(5):
        passing.add(b"x" * (KEPT // 2 - 1))
    assert passing.size > KEPT
    assert passing.kept() == b"x" * KEPT


@pytest.mark.parametrize(
    ("data", "coding", "kept"),
    [(gzip.compress(b"abc"), "gzip", b"abc"), (b"not gzip", "gzip", None), (b"abc", "x-secret", None)],
)
def test_what_came_encoded_is_kept_decoded(data: bytes, coding: str, kept: bytes | None) -> None:
    passing = Passing(keep=True)
    passing.add(data)
    assert passing.kept(coding) == kept


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
def test_bodies_are_kept_where_they_can_be_seen(others: list[Any], settings: dict[str, Any], kept: bool) -> None:
    addon = VirtualToolCalling()
    with taddons.context(addon, *(other() for other in others)) as context:
        context.configure(addon, vtc_mode="rewrite", **settings)
        assert bodies.keep() is kept
        context.options.reset()  # closes the file that flows are saved to
