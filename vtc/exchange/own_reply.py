"""Replies of our own, which no model wrote."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from vtc.apis import Api, Request
from vtc.dialects.text_client import conversation
from vtc.events import Tool, ToolCall
from vtc.json_text import encode
from vtc.profiles.plan import ReplyPlan

WITHHELD = "The reply was withheld: it could not be read, and a policy holds here that refuses calls."
"""What a client is told in place of a whole reply."""


def own_reply(
    api: Api, request: Request, plan: ReplyPlan, tools: Mapping[str, Tool], text: str, seed: str, created: int
) -> bytes:
    """Make a whole reply that says `text`, as the client reads it; `created` is the time in seconds since 1970."""
    client = plan.client_text
    final = client.final_call if client else None
    if client and final and final.tool in tools:
        call = ToolCall(final.tool, json.dumps({final.argument: text}, ensure_ascii=False))
        text = conversation.as_read(call, client.dialect, tools)
    return saying(api, request, text, seed, created)


def saying(api: Api, request: Request, text: str, seed: str, created: int) -> bytes:
    """Make a whole reply of the server's that says `text`."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return encode(api.answer(request, text, digest, created))
