"""A prompt that exceeds the model's window: its error, and the silent truncation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.dialects.material import CASES, plain
from vtc.exchange.asking.server_error import read_error
from vtc.exchange.asking.window import TokenCounts, explain_truncation, read_full_window

WINDOW = plain((CASES / "rejections" / "words.yaml").read_text("utf-8"))["window"]
SIZE = 10_000


def read(case: dict[str, Any]) -> TokenCounts | None:
    """Parse an error; a case with only a message gets OpenAI's form."""
    says = case["says"]
    if isinstance(says, str) and says and not says.startswith("<"):
        says = {"error": {"message": says}}
    error = says.encode() if isinstance(says, str) else json.dumps(says).encode()
    return read_full_window(read_error(error, case.get("status", 400)), SIZE)


def test_too_long_prompt_is_recognized_in_any_words() -> None:
    wrong = []
    for case in WINDOW["full"]:
        window, prompt = case.get("window", 0), case.get("prompt", 0)
        prompt = prompt or max(SIZE // 4, window + 1)
        if (found := read(case)) != (window or prompt - 1, prompt):
            wrong.append((case["says"], found))
    assert wrong == []


def test_similar_words_are_no_full_window() -> None:
    """Rate and spending limits come first, because an agent would compact its conversation for nothing."""
    assert [case["says"] for case in WINDOW["others"] if read(case)] == []


@pytest.mark.parametrize(
    ("tokens", "size", "window"),
    [
        (2050, 60_000, None),  # half a window and two, the rest that Ollama keeps of a window of 4096
        (16387, 400_000, None),
        (4096, 30_000, None),
        (3000, 60_000, None),  # fewer than any text has
        (5000, 40_000, 10_000),
    ],
)
def test_truncated_prompt_is_reported(tokens: int, size: int, window: int | None) -> None:
    assert f"it read {tokens} tokens of {size // 1000} KB" in explain_truncation(tokens, size, window)


@pytest.mark.parametrize(
    ("tokens", "size", "window"),
    [(2050, 8_000, None), (12_000, 60_000, None), (100, 2_000, None), (9_000, 60_000, 65_536), (4000, 16_384, 4096)],
)
def test_one_that_was_not_is_not(tokens: int, size: int, window: int | None) -> None:
    assert not explain_truncation(tokens, size, window)
