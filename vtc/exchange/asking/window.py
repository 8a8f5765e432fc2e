"""Detect prompts that exceed the model's window, by the server's error or by a silent truncation.

An agent that gets this error in its own API's words compacts the conversation and continues. A rate or spending limit
must not be mistaken for a full window, because compacting loses a part of the conversation and does not help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from vtc.exchange.asking.rejection_rules import load_rules, read_number, select_rules
from vtc.exchange.asking.server_error import ServerError

_THOUSANDS = re.compile(r"\b[0-9]{1,3}(?:,[0-9]{3}){1,6}(?![\w,])")


class TokenCounts(NamedTuple):
    """The tokens of a model's window, and of a prompt that exceeds it."""

    window: int
    prompt: int


def read_counts(text: str) -> Mapping[str, int]:
    """Read the numbers of tokens in an error, by the name of their placeholder (`window`, `prompt` …)."""
    text = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    counts: dict[str, int] = {}
    for rule in load_rules().by_priority:
        for match in rule.find([text]) if rule.do == "count" else ():
            for name, digits in match.found.groupdict().items():
                if isinstance(number := read_number(digits), int):
                    counts.setdefault(name, number)
    return counts


def read_full_window(error: ServerError, size: int) -> TokenCounts | None:
    """Read the tokens of window and prompt from the error of a prompt that is too long; None for any other error.

    `size` is the prompt's length in bytes, from which missing token counts are estimated.
    """
    for rule in select_rules(error, {}):
        match = next(rule.match(error), None) if rule.do in ("stop", "not_full", "full") else None
        if match is None:
            continue
        if rule.do != "full":
            return None
        counts = read_counts(match.found.string)
        window, prompt, is_lower_bound = counts.get("window", 0), counts.get("prompt", 0), "least" in counts
        if 0 < prompt < window and not is_lower_bound:
            return None  # the reply, not the prompt, has no room
        prompt = prompt if prompt > window else max(size // 4, window + 1, 2)
        return TokenCounts(window or prompt - 1, prompt)
    return None


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
