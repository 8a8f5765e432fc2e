"""What a server's error means for somebody who has just set up VTC, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vtc.apis.fields import is_error
from vtc.json_text import decode

MOST = 240
"""Characters of a server's message that are repeated."""

HINTS: tuple[tuple[tuple[int, ...], str, str], ...] = (
    # vLLM; Ollama; llama.cpp; the rest is how others say it.
    (
        (400, 404, 422, 500, 501),
        r"tool choice requires|does not support (tools|function)|tools param requires|knows no tools"
        r"|tools?( calling| use)? (is|are) not supported|no endpoints found that support tool",
        "the server refuses `tools`: let VTC write them into the prompt with `--tools prompt` (option vtc_tools)",
    ),
    (
        (400, 404),
        r"model\b.{0,80}(not found|does not exist|not exist|no such|try pulling)|unknown model",
        "the server has no model of this name: GET /v1/models lists those that it has",
    ),
    ((401, 403), "", "the server does not accept the client's API key; VTC passes it on as it came"),
    (
        (400, 413, 422),
        r"context (length|size|window)|maximum context|too many tokens|prompt is too long|exceed.{0,40}context",
        "the conversation is longer than the model's context",
    ),
    (
        (404, 405),
        "",
        "the server has nothing at this path: does it speak this API?",
    ),
    ((429,), "", "the server takes no more requests now"),
)
"""By status, a word in the message, what it means; the first that fits."""


PATHS = (
    (r"/v1/+v1/", "the path begins with /v1 twice: leave /v1 out of the client's base URL"),
    (r"^/(chat/completions|responses|messages)\b", "the path lacks /v1: put it at the end of the client's base URL"),
)
"""What is wrong with a path at which a server has nothing."""


def explained(status: int | None, body: bytes, path: str = "") -> str:
    """Say in one line what a server answered in place of a reply, and what that means if it is known.

    Without a status the error stands in the place of the rest of a reply. `path` is the one that the client asked.
    """
    message = words_of(body)
    said = f"the server answered {status}" if status else "the server broke off with an error"
    said += f": {message}" if message else ""
    if status in (404, 405) and (wrong := [meaning for pattern, meaning in PATHS if re.search(pattern, path)]):
        return f"{said} - {wrong[0]}"
    for statuses, pattern, meaning in HINTS:
        if (status in statuses or (status is None and pattern)) and re.search(pattern, message, re.I | re.S):
            return f"{said} - {meaning}"
    return said


def instead(body: bytes) -> list[str]:
    """Say what a server sent in place of a whole reply, under a status that tells of no error, if that is known."""
    try:
        found = decode(body, "replace")
    except ValueError:
        said = body[: 4 * MOST].partition(b"{")[0].decode(errors="replace")  # of what resembles a reply nothing is told
        return [f"the reply is no JSON: {' '.join(said.split())[:80] or '{…'}"]
    return [explained(None, body)] if isinstance(found, Mapping) and is_error(found) else []


def words_of(body: bytes, most: int = MOST) -> str:
    """Return the text of a server's error in whichever form, on one line; of what is no JSON the beginning."""
    try:
        found: Any = decode(body, "replace")
    except ValueError:
        found = body[: 4 * MOST].decode(errors="replace")
        found = re.sub(r"(?is)<(script|style|title)\b.*?</\1>|<[^>]*>", " ", found)
    for key in ("response", "error", "detail", "message", "msg"):
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, Mapping) and key in found:
            found = found[key]
    said = str(found)[: 4 * most] if isinstance(found, str | Mapping) and found else ""
    text = " ".join(said.split())
    return text if len(text) <= most else f"{text[:most]} …"
