"""The kinds of errors in the words of each API, so that a client gets the word on which it decides whether to retry."""

from __future__ import annotations

from typing import NamedTuple

from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED


class ErrorKind(NamedTuple):
    """A kind of error."""

    status: int
    messages: str
    """The type in Anthropic Messages."""
    gemini: str
    """The status in Gemini's API."""
    openai: str
    """The type in chat completions, also for an HTTP status in Responses."""
    code: str | None
    """The code that accompanies it; None if these APIs have none."""
    responses: str
    """The code of a response that failed."""
    others: tuple[str, ...] = ()
    """Further words of servers."""


INTERNAL = ErrorKind(500, "api_error", "INTERNAL", "server_error", None, "server_error")
_INVALID = "invalid_request_error"
_LIMITED, _OVERLOADED, _QUOTA = "rate_limit_exceeded", "server_is_overloaded", "insufficient_quota"
_KINDS = (  # the first kind of a word counts
    ErrorKind(
        400, _INVALID, "INVALID_ARGUMENT", _INVALID, None, "invalid_prompt", ("cyber_policy", CONTEXT_LENGTH_EXCEEDED)
    ),
    ErrorKind(401, "authentication_error", "UNAUTHENTICATED", _INVALID, None, "invalid_api_key"),
    ErrorKind(403, "permission_error", "PERMISSION_DENIED", _INVALID, None, "invalid_prompt"),
    ErrorKind(404, "not_found_error", "NOT_FOUND", _INVALID, None, "invalid_prompt", ("model_not_found",)),
    ErrorKind(413, "request_too_large", "INVALID_ARGUMENT", _INVALID, None, "invalid_prompt"),
    ErrorKind(429, "rate_limit_error", "RESOURCE_EXHAUSTED", "rate_limit_error", _LIMITED, _LIMITED),
    ErrorKind(402, "billing_error", "RESOURCE_EXHAUSTED", _QUOTA, _QUOTA, _QUOTA),
    INTERNAL,
    ErrorKind(503, "overloaded_error", "UNAVAILABLE", "server_error", _OVERLOADED, _OVERLOADED, ("slow_down",)),
    ErrorKind(504, "timeout_error", "DEADLINE_EXCEEDED", "server_error", None, "server_error"),
    ErrorKind(529, "overloaded_error", "UNAVAILABLE", "server_error", _OVERLOADED, _OVERLOADED),
)
_KIND_OF_STATUS = {kind.status: kind for kind in _KINDS}
_KIND_OF_WORD = {
    word: kind for kind in reversed(_KINDS) for word in (str(kind.status), *kind.others, *kind[1:4], kind.responses)
}


def find_kind(word: str) -> ErrorKind | None:
    """Find the kind of an error by a server's word for it; None if it is unknown."""
    return _KIND_OF_WORD.get(word)


def find_kind_of_status(status: int) -> ErrorKind:
    """Find the kind of an error with an HTTP status."""
    return _KIND_OF_STATUS.get(status) or (_KIND_OF_STATUS[400] if 400 <= status < 500 else INTERNAL)
