"""The model's window, where a prompt does not fit in: the client API's own error, or a cut that nobody told.

An agent that is told in its own words makes the conversation shorter, and goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vtc.apis.base import FULL
from vtc.events import Failure

_FULL = re.compile(
    r"exceeds? the (?:available )?(?:context|model's)|exceed_context_size|context_length_exceeded|prompt is too long"
    r"|longer than the model's context|exceed\w* (?:the )?(?:max\w* )?context length|too large for model with"
    r"|context (?:the )?overflows|greater than the context length|is too long to fit into the model"
    r"|maximum context length is \d+ tokens|input is too long|prompt too long",
    re.I,
)
_MOST = (
    re.compile(r"(?:context (?:length|size|window)|n_ctx\W{1,4}|model with)\D{0,24}(\d{3,8})", re.I),
    re.compile(r"> (\d{3,8}) maximum|(\d{3,8}) maximum context", re.I),
)
_GIVEN = (
    re.compile(
        r"n_prompt_tokens\W{1,4}(\d+)|(\d+) (?:input tokens|(?:tokens )?in the (?:input|messages|prompt))", re.I
    ),
    re.compile(r"(?:prompt|input|request|total length|keep the first|resulted in)\D{0,24}(\d+)(?: tokens|\))", re.I),
    re.compile(r"requested (\d+) tokens", re.I),
)
_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens\W{1,3} .{0,60}too large", re.I)
SLACK = 8
"""Tokens by which a prompt that was cut may differ from the window, or from half of it (Ollama keeps so much)."""
LEAST = 1024
PLAIN = 5
"""Bytes that are a token, at the most, of most text: fewer tokens where the number of them is that of a window."""
FEWEST = 14
"""Bytes that no token of any text stands for, on an average: a prompt of fewer tokens was cut, whatever they are."""


def full(status: int, words: str, said: str, size: int) -> Failure | None:
    """Read the error of a prompt that is too long; None for any other.

    `words` are all of the error, `said` what people are told of it, `size` the bytes of the prompt.
    """
    if status not in (400, 413, 422, 500) or not _FULL.search(words) or _LIMIT.search(words):
        return None
    most, given = _number(_MOST, words), _number(_GIVEN, words)
    if most and given and given < most:
        return None  # it is the reply that has no room
    tokens = given or max(size // 4, 2)
    told = f"prompt is too long: {tokens} tokens > {most or tokens - 1} maximum ({said})"
    return Failure(told, FULL)


def _number(patterns: Iterable[re.Pattern[str]], words: str) -> int:
    """Find a number in an error; 0 if it tells none."""
    found = (one for pattern in patterns if (match := pattern.search(words)) for one in match.groups() if one)
    return int(next(found, 0))


def cut(tokens: int, size: int, window: int | None = None) -> str:
    """Tell that a prompt of `size` bytes was cut, by the tokens that the server counted; empty if it was not."""
    is_full = any(abs(tokens - one) <= SLACK for one in ([window, window // 2] if window else _windows(tokens)))
    if tokens < LEAST or size < tokens * (PLAIN if is_full else FEWEST):
        return ""
    return (
        f"the server cut the prompt: it read {tokens} tokens of {size // 1000} KB; give it a longer window "
        "(Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`; key `context` of its profile)"
    )


def _windows(tokens: int) -> list[int]:
    """Windows are powers of two as a rule."""
    return [1 << (tokens + SLACK).bit_length() - 1]
