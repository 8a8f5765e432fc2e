"""A prompt that does not fit in the model's window: its error, and the cut that nobody told."""

from __future__ import annotations

import pytest

from vtc.apis.contract import FULL
from vtc.exchange.asking.refusals import cut, full

FULL_WORDS = {
    "vLLM": (
        "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens. Reduce "
        "the length of the input messages.",
        "5000 tokens > 4096",
    ),
    "llama.cpp": (
        '{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it",'
        '"type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}',
        "5000 tokens > 4096",
    ),
    "SGLang": (
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "5000 tokens > 4096",
    ),
    "LM Studio": (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.",
        "5000 tokens > 4096",
    ),
    "OpenAI": (
        "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 tokens.",
        "5000 tokens > 4096",
    ),
    "Mistral": (
        "Prompt contains 5000 tokens and 0 draft tokens, too large for model with 4096 maximum context length",
        "5000 tokens > 4096",
    ),
    "Ollama": ("the input length exceeds the context length", "2500 tokens > 2499"),
}


@pytest.mark.parametrize("server", FULL_WORDS)
def test_a_prompt_that_is_too_long_is_told_in_numbers(server: str) -> None:
    words, numbers = FULL_WORDS[server]
    found = full(400, words, "its words", 10_000)
    assert found is not None
    assert (found.kind, found.message) == (FULL, f"prompt is too long: {numbers} maximum (its words)")


@pytest.mark.parametrize(
    "words",
    [
        "'max_tokens' is too large: 64000. This model's maximum context length is 64001 tokens and your request has "
        "24235 input tokens",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, "
        "8000 in the completion).",
        "no such model",
    ],
)
def test_other_errors_are_none(words: str) -> None:
    assert full(400, words, words, 10_000) is None
    assert full(429, "prompt is too long", "", 10_000) is None


@pytest.mark.parametrize(
    ("tokens", "size", "window"),
    [
        (2050, 60_000, None),  # half a window and two, as Ollama leaves of one of 4096
        (16387, 400_000, None),
        (4096, 30_000, None),
        (3000, 60_000, None),  # fewer than any text has
        (5000, 40_000, 10_000),
    ],
)
def test_a_prompt_that_was_cut_is_told(tokens: int, size: int, window: int | None) -> None:
    assert f"it read {tokens} tokens of {size // 1000} KB" in cut(tokens, size, window)


@pytest.mark.parametrize(
    ("tokens", "size", "window"),
    [(2050, 8_000, None), (12_000, 60_000, None), (100, 2_000, None), (9_000, 60_000, 65_536), (4000, 16_384, 4096)],
)
def test_one_that_was_not_is_not(tokens: int, size: int, window: int | None) -> None:
    assert not cut(tokens, size, window)
