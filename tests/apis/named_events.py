"""Server-sent events of Messages and Responses, which contain their type twice: as `event:` and in the data.

Nothing here uses VTC, because the tests need an independent witness.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

type Json = dict[str, Any]

DONE = "[DONE]"


class StreamError(AssertionError):
    """The server reported an error in the stream, at which every SDK raises; `error` is the server's error."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"the stream ends in an error: {error}")
        self.error = error


@dataclass(frozen=True, slots=True)
class Event:
    """A received event: its `event:` line, if it has one, and its data."""

    name: str | None
    data: Any


def frame(data: Any, name: str | None = None) -> bytes:
    """Serialize an event; its name is the type in its data by default."""
    return f"event: {name or data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def frames(*events: Json) -> list[bytes]:
    return [frame(event) for event in events]


def events(body: bytes) -> list[Event]:
    """Parse all events of a body; fail on an event without a final blank line, which an SDK would drop."""
    text = body.replace(b"\r\n", b"\n").decode()
    *blocks, rest = text.split("\n\n")
    assert not rest.strip(), f"no blank line ends this event: {rest}"
    found = (_event(block) for block in blocks)
    return [event for event in found if event is not None]


def _event(block: str) -> Event | None:
    """Parse one event; None if it contains only comments."""
    name, data = None, []
    for line in block.split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        else:
            assert field in ("", "id", "retry"), f"no line of a server-sent event: {line}"
    if not data:
        assert name is None, f"an event without data: {block}"
        return None
    text = "\n".join(data)
    return Event(name, DONE if text == DONE else json.loads(text))


def is_integer(value: Any) -> bool:
    """Return True if `value` is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)
