"""A whole JSON body as one frame: what an API answers when it was not asked to stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtc.json_text import encode
from vtc.wire.framing import Frame, FrameTooLong

MOST_WHOLE = 64 * 2**20
"""Bytes of a body that are kept."""


class Reader:
    """Keeps a body up to its end."""

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._size = 0

    @property
    def held(self) -> bool:
        return bool(self._held)

    def feed(self, chunk: bytes) -> list[Frame]:
        """Keep the chunk; the frame comes at the end. Raises `FrameTooLong`."""
        if self._size > MOST_WHOLE:
            raise FrameTooLong(f"the reply is longer than {MOST_WHOLE >> 20} MiB")
        if chunk:
            self._held.append(chunk)
            self._size += len(chunk)
        return []

    def finish(self) -> list[Frame]:
        """Return the body, unless it is empty (idempotent)."""
        body, self._held = b"".join(self._held), []
        return [Frame(body, body)] if body else []


class WholeBody:
    """The framing of a body that is one JSON value."""

    media_type = "application/json"
    end = b""

    def reader(self) -> Reader:
        return Reader()

    def matches(self, body: bytes) -> bool:
        return True

    def is_cut_off(self, frame: Frame) -> bool:
        return False  # if it is cut, it is no JSON, and passes

    def write(self, value: Mapping[str, Any], like: Frame | None, *, first: bool) -> bytes:
        return encode(value)
