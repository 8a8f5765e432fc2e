"""Server-sent events that carry their type twice, as `event:` and in the data: Messages and Responses share them.

Nothing here uses VTC: the tests need a witness of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

type Json = dict[str, Any]

DONE = "[DONE]"


class StreamError(AssertionError):
    """The stream says that the server failed; every SDK raises there. `error` is what the server said."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"the stream ends in an error: {error}")
        self.error = error


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it arrived: its `event:` line, if it had one, and its data."""

    name: str | None
    data: Any


def frame(data: Any, name: str | None = None) -> bytes:
    """Write one event; its name is the type in its data unless another is given."""
    return f"event: {name or data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def frames(*events: Json) -> list[bytes]:
    return [frame(event) for event in events]


def events(body: bytes) -> list[Event]:
    """Read all events of a body; fails on bytes that an SDK would drop: an event that no blank line ends."""
    text = body.replace(b"\r\n", b"\n").decode()
    *blocks, rest = text.split("\n\n")
    assert not rest.strip(), f"no blank line ends this event: {rest}"
    found = (_event(block) for block in blocks)
    return [event for event in found if event is not None]


def _event(block: str) -> Event | None:
    """Read one event; None if it holds comments only."""
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
    said = "\n".join(data)
    return Event(name, DONE if said == DONE else json.loads(said))


def number(value: Any) -> bool:
    """True if `value` is a whole number, which a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)
