"""Detect prompts that exceed the model's window, by the server's error or by a silent truncation.

An agent that gets this error in its own API's words compacts the conversation and continues. The servers' words are in
`window.yaml`, with their sources. A rate or spending limit must not be mistaken for a full window, because compacting
loses a part of the conversation and does not help.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vtc.exchange.asking.quotations import SentText
from vtc.exchange.asking.words import Expressions, compile_any, find_number
from vtc.guards.patterns import Expression
from vtc.json_text import decode_json, encode_json
from vtc.profiles.document import load_table


class WindowWords(Expressions, frozen=True, kw_only=True):
    """Expressions for a prompt that exceeds the window, and for the tokens of both."""

    full: tuple[Expression, ...]
    """Match a prompt that is too long."""
    limited: tuple[Expression, ...]
    """Match rate and spending limits, which take precedence over all others."""
    reply: Expression
    """Matches a limit on the reply instead of the prompt."""
    window: tuple[Expression, ...]
    """Match the window's length, with a group for the number of tokens."""
    prompt: tuple[Expression, ...]
    """Match the prompt's length, in the same way."""
    partly: Expression
    """Matches a number of prompt tokens that is only a lower bound."""


MAX_ERROR_LENGTH = 8000
"""Characters of a server's error that are examined."""
_MAX_DEPTH = 8
_ECHO_FIELDS = frozenset(
    ("input", "input_value", "body", "ctx", "messages", "contents", "prompt", "failed_generation", "url")
)
"""Fields in which errors repeat the request (FastAPI's `detail`); they are ignored."""
_UNRELATED_STATUSES = (401, 402, 403, 404, 405, 408, 429)
"""Statuses that never report a full window."""
TOO_LARGE_STATUS = 413
"""Status that reports a full window even without a message."""


class TokenCounts(NamedTuple):
    """Tokens that a server reports for a model's window and a prompt; 0 if it reports none."""

    window: int
    prompt: int
    is_lower_bound: bool = False
    """True if the prompt's tokens are a lower bound."""


@cache
def _load_words() -> WindowWords:
    """Load `window.yaml`, on the first error only."""
    return load_table(Path(__file__).with_suffix(".yaml"), WindowWords)


def read_token_counts(message: str) -> TokenCounts:
    """Parse the tokens in an error."""
    words = _load_words()
    window, prompt = find_number(message, *words.window), find_number(message, *words.prompt)
    return TokenCounts(window, prompt, is_lower_bound=compile_any(words.partly).search(message) is not None)


def is_limited(message: str) -> bool:
    """Return True for the message of a rate or spending limit."""
    return compile_any(*_load_words().limited).search(message) is not None


def is_full(message: str) -> bool:
    """Return True for the message of a prompt that is too long."""
    return compile_any(*_load_words().full).search(message) is not None


def read_full_window(status: int, error: bytes, size: int, sent: SentText | None = None) -> TokenCounts | None:
    """Parse the error of a prompt that is too long into the tokens of window and prompt; None for any other error.

    `size` is the prompt's length in bytes, from which missing token counts are estimated. Texts of the request that was
    `sent` are ignored in the error.
    """
    words = _strip_echoes(error)
    words = sent.remove_from(words) if sent else words
    if status in _UNRELATED_STATUSES or is_limited(words) or compile_any(_load_words().reply).search(words):
        return None
    if not (is_full(words) or (status == TOO_LARGE_STATUS and not words.strip())):
        return None
    window, prompt, partly = read_token_counts(words)
    if 0 < prompt < window and not partly:
        return None  # the reply, not the prompt, has no room
    prompt = prompt if prompt > window else max(size // 4, window + 1, 2)
    return TokenCounts(window or prompt - 1, prompt)


def _strip_echoes(error: bytes) -> str:
    """Return the text of an error without fields that repeat the request, because these may contain anything."""
    try:
        value = decode_json(error, "replace")
    except ValueError:
        return error[:MAX_ERROR_LENGTH].decode(errors="replace")
    if isinstance(value, str):
        return value[:MAX_ERROR_LENGTH]
    return encode_json(_without_echoes(value, _MAX_DEPTH)).decode()[:MAX_ERROR_LENGTH]


def _without_echoes(value: Any, depth: int) -> Any:
    if not depth:
        return None
    if isinstance(value, list):
        return [_without_echoes(item, depth - 1) for item in value[:_MAX_DEPTH]]
    if isinstance(value, dict):
        return {key: _without_echoes(item, depth - 1) for key, item in value.items() if key not in _ECHO_FIELDS}
    return value


SLACK_TOKENS = 8
"""Tokens by which a truncated prompt may differ from the window, or from half of it (Ollama keeps that much)."""
MIN_CUT_TOKENS = 1024
MAX_BYTES_PER_TOKEN = 5
"""Bytes per token of ordinary text, at most: a smaller count that equals a window's size means truncation."""
IMPOSSIBLE_BYTES_PER_TOKEN = 14
"""Bytes per token that no text reaches on average: a smaller count always means truncation."""


def explain_truncation(tokens: int, size: int, window: int | None = None) -> str:
    """Describe the truncation of a prompt of `size` bytes, by the server's token count; empty if there is none."""
    # An unknown window usually is a power of two.
    windows = [window, window // 2] if window else [1 << (tokens + SLACK_TOKENS).bit_length() - 1]
    is_full = any(abs(tokens - known) <= SLACK_TOKENS for known in windows)
    if tokens < MIN_CUT_TOKENS or size < tokens * (MAX_BYTES_PER_TOKEN if is_full else IMPOSSIBLE_BYTES_PER_TOKEN):
        return ""
    return (
        f"the server cut the prompt: it read {tokens} tokens of {size // 1000} KB; give it a longer window "
        "(Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`; key `context` of its profile)"
    )
