"""Replies of our own, which no model wrote."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable

from vtc.apis import Api, Request, answer
from vtc.dialects.reading.reader import Reader
from vtc.dialects.text_client import conversation
from vtc.events import Call, Text, ToolCall
from vtc.json_text import decode
from vtc.profiles.matching import texts_at
from vtc.profiles.plan import Plan
from vtc.profiles.schema import ErrorReply

WITHHELD = "The reply was withheld: it could not be read, and a policy holds here that refuses calls."
"""What a client is told in place of a whole reply."""


def own_reply(api: Api, request: Request, plan: Plan, text: str, seed: str, created: int) -> bytes:
    """Make a whole reply that says `text`, as the client reads it; `created` is the time in seconds since 1970."""
    client, tools = plan.protocol.client_text, plan.protocol.by_name
    final = client.profile.final_call if client else None
    if client and final and final.tool in tools:
        call = ToolCall(final.tool, json.dumps({final.argument: text}, ensure_ascii=False))
        text = conversation.as_read(call, client.dialect, tools)
    return saying(api, request, text, seed, created)


def saying(api: Api, request: Request, text: str, seed: str, created: int) -> bytes:
    """Make a whole reply of the server's that says `text`."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return answer(api, request, text, digest, created)


# The reply in a server's error: what the model wrote, where the server could not read it itself.


def reply_in_error(
    errors: Iterable[ErrorReply], body: bytes, status: int | None, reader: Callable[[], Reader]
) -> str | None:
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
