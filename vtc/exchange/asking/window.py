"""The model's window, where a prompt does not fit in: the error of the server, or a cut that no error told.

An agent that is told in its own API's words makes the conversation shorter, and goes on. The words of servers stand in
`window.yaml`, with their sources. A limit by time or by money is never taken for a full window: to make a conversation
shorter loses a part of it, and does not help.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vtc.exchange.asking.quotations import SentText
from vtc.exchange.asking.words import Expressions, compile_any, find_number
from vtc.guards.patterns import Expression
from vtc.json_text import decode, encode
from vtc.profiles.document import table


class WindowWords(Expressions, frozen=True, kw_only=True):
    """The words for a prompt that is longer than the model's window, and the tokens of both."""

    full: tuple[Expression, ...]
    limited: tuple[Expression, ...]
    """Say that it is a limit by time or by money, whatever else they say."""
    reply: Expression
    """Says that it is the reply that is too long."""
    window: tuple[Expression, ...]
    prompt: tuple[Expression, ...]
    partly: Expression
    """Says that the tokens of the prompt are at least so many."""


MAX_ERROR_LENGTH = 8000
"""Characters of a server's error that are looked at."""
_DEPTH = 8
_ECHOES = frozenset(
    ("input", "input_value", "body", "ctx", "messages", "contents", "prompt", "failed_generation", "url")
)
"""Fields of an error that repeat what was asked, as FastAPI's `detail` does."""
_NEVER = (401, 402, 403, 404, 405, 408, 429)
TOO_LARGE = 413


class TokenCounts(NamedTuple):
    """The tokens that a server tells of a model's window and of a prompt; 0 where it tells none."""

    window: int
    prompt: int
    partly: bool = False
    """True if the prompt has so many at the least."""


@cache
def _read_words() -> WindowWords:
    """Read `window.yaml`: no request needs it, only an error."""
    return table(Path(__file__).with_suffix(".yaml"), WindowWords)


def read_token_counts(message: str) -> TokenCounts:
    """Read the tokens that an error tells."""
    words = _read_words()
    window, prompt = find_number(message, *words.window), find_number(message, *words.prompt)
    return TokenCounts(window, prompt, partly=compile_any(words.partly).search(message) is not None)


def is_limited(message: str) -> bool:
    """True for the words of a limit by time or by money."""
    return compile_any(*_read_words().limited).search(message) is not None


def is_full(message: str) -> bool:
    """True for the words of a prompt that is too long."""
    return compile_any(*_read_words().full).search(message) is not None


def read_full_window(status: int, error: bytes, size: int, sent: SentText | None = None) -> TokenCounts | None:
    """Read the error of a prompt that is too long: the tokens of window and prompt; None if it is any other.

    `size` are the bytes of the prompt, by which tokens are estimated that the server does not tell; what the error
    repeats of the request that was `sent` is not read.
    """
    words = _strip_echoes(error)
    words = sent.remove_from(words) if sent else words
    if status in _NEVER or is_limited(words) or compile_any(_read_words().reply).search(words):
        return None
    if not (is_full(words) or (status == TOO_LARGE and not words.strip())):
        return None
    window, prompt, partly = read_token_counts(words)
    if 0 < prompt < window and not partly:
        return None  # it is the reply that has no room
    prompt = prompt if prompt > window else max(size // 4, window + 1, 2)
    return TokenCounts(window or prompt - 1, prompt)


def _strip_echoes(error: bytes) -> str:
    """Return what a server says of an error, without what it repeats of the request: that may say anything."""
    try:
        value = decode(error, "replace")
    except ValueError:
        return error[:MAX_ERROR_LENGTH].decode(errors="replace")
    if isinstance(value, str):
        return value[:MAX_ERROR_LENGTH]
    return encode(_without_echoes(value, _DEPTH)).decode()[:MAX_ERROR_LENGTH]


def _without_echoes(value: Any, depth: int) -> Any:
    if not depth:
        return None
    if isinstance(value, list):
        return [_without_echoes(item, depth - 1) for item in value[:_DEPTH]]
    if isinstance(value, dict):
        return {key: _without_echoes(item, depth - 1) for key, item in value.items() if key not in _ECHOES}
    return value


# A prompt that the server cut without a word.


SLACK_TOKENS = 8
"""Tokens by which a prompt that was cut may differ from the window, or from half of it (Ollama keeps so much)."""
MIN_CUT_TOKENS = 1024
MAX_BYTES_PER_TOKEN = 5
"""Bytes that are a token, at the most, of most text: fewer tokens where the number of them is that of a window."""
IMPOSSIBLE_BYTES_PER_TOKEN = 14
"""Bytes that no token of any text stands for, on an average: a prompt of fewer tokens was cut, whatever they are."""


def explain_truncation(tokens: int, size: int, window: int | None = None) -> str:
    """Tell that a prompt of `size` bytes was cut, by the tokens that the server counted; empty if it was not."""
    # Windows are powers of two as a rule.
    windows = [window, window // 2] if window else [1 << (tokens + SLACK_TOKENS).bit_length() - 1]
    is_full = any(abs(tokens - known) <= SLACK_TOKENS for known in windows)
    if tokens < MIN_CUT_TOKENS or size < tokens * (MAX_BYTES_PER_TOKEN if is_full else IMPOSSIBLE_BYTES_PER_TOKEN):
        return ""
    return (
        f"the server cut the prompt: it read {tokens} tokens of {size // 1000} KB; give it a longer window "
        "(Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`; key `context` of its profile)"
    )
