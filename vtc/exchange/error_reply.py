"""The reply in a server's error: what the model wrote, where the server could not read it itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from vtc.dialects.reading.reader import Reader
from vtc.events import Call, Text
from vtc.json_text import decode
from vtc.profiles.matching import texts_at
from vtc.profiles.schema import ErrorReply


def written(errors: Iterable[ErrorReply], body: bytes, status: int | None, reader: Callable[[], Reader]) -> str | None:
    """Find what the model wrote; None if no error of this status holds it, or it calls no tool.

    Without a status it may be any.
    """
    known = [error for error in errors if status in (error.status, None)]
    try:
        found = decode(body, "replace") if known else None
    except ValueError:
        return None
    for error in known:
        for text in texts_at(found, error.path.split(".")):
            begun = re.match(error.after, text)
            if begun and _calls(rest := text[begun.end() :], reader(), alone=error.rest):
                return rest
    return None


def _calls(text: str, reader: Reader, *, alone: bool) -> bool:
    """True if a text calls a tool; `alone`, if it says nothing else."""
    events = reader.whole(text)
    spoken = any(isinstance(event, Text) and not event.raw.isspace() for event in events)
    return any(isinstance(event, Call) for event in events) and not (alone and spoken)
