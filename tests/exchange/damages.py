"""Values in a JSON body that a test changes, and a reply to change them in."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.apis import pairs, responses
from tests.exchange.crossings import IN_TEXT


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, part in inside:
        yield (*above, key)
        yield from places(part, (*above, key))


def put_value(value: Any, place: tuple[Any, ...], new: Any) -> None:
    *above, last = place
    for key in above:
        value = value[key]
    value[last] = new


@contextmanager
def no_faults() -> Iterator[None]:
    """Fail if VTC logs an internal error, after which the request would be sent unchanged."""
    logged: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("vtc").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("vtc").removeHandler(handler)
    assert not logged, logged[0]


def frames_of(server: str) -> list[bytes]:
    """Return a reply with a call in its text, so that later frames are re-encoded, and with items without a start
    event.
    """
    body = pairs.make_stream(server, ["Hel", IN_TEXT, "\nlo"], reasoning="Hm.")
    if server == "openai-responses":
        items = [{"type": "web_search_call", "id": "ws_1"}, responses.call("read", "fc_9", "call_9", filePath="/a")]
        last = body.rstrip().rpartition(b"\n\n")[0]
        done = [{"type": "response.output_item.done", "item": item} for item in items]
        end = {"type": "response.completed", "response": responses.response(*items)}
        body = b"".join([last, b"\n\n", *map(responses.frame, [*done, end])])
    cut = b"\n" if server == "ollama-chat" else b"\n\n"
    return [frame + cut for frame in body.split(cut) if frame]
