"""The words of generateContent that its two directions share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from vtc.events import Reason, ToolCall
from vtc.wire.sse import EventStream

NAME = "gemini"
FRAMING = EventStream()
HEAD = ("responseId", "modelVersion", "createTime")
"""The fields of every chunk."""
COUNTS = ("promptTokenCount", "candidatesTokenCount", "cachedContentTokenCount", "thoughtsTokenCount")
REASONS: dict[str, Reason] = {"STOP": "other", "FINISH_REASON_UNSPECIFIED": "other", "MAX_TOKENS": "length"}
"""Finish reasons; `STOP` does not speak of calls, and every other says that something went wrong."""
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


_SNAKE = re.compile(r"_([a-z])")


def camel(value: Any) -> dict[str, Any]:
    """Name the fields of an object in camel case: servers take both, and Google's SDKs mix them. Raises TypeError."""
    if not isinstance(value, Mapping):
        raise TypeError("a part of it is no object")
    return {_SNAKE.sub(lambda found: found[1].upper(), key): one for key, one in value.items()}


def reason_of(said: str) -> Reason:
    """Read a finish reason."""
    return REASONS.get(said, "halted")


def error_of(message: str, kind: str, status: int) -> dict[str, Any]:
    """Write an error; `kind` is a word of another API or one of this."""
    codes = {word: code for code, word in STATUSES.items()}
    word = kind if kind in codes else STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return {"error": {"code": status if status >= 400 else codes[word], "message": message, "status": word}}


def part_of_call(call: ToolCall) -> dict[str, Any]:
    """Write a call as a part, with the fields that VTC does not know (`thoughtSignature`). Raises ValueError."""
    source = call.source if isinstance(call.source, Mapping) and "functionCall" in call.source else {}
    said = {"name": call.name, "args": json.loads(call.arguments)}
    id_ = {"id": call.id} if call.id else {}
    return {**{key: value for key, value in source.items() if key != "text"}, "functionCall": {**id_, **said}}
