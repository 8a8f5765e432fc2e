"""Models whose replies are read in turn share compiled expressions: hardly any belongs to one model."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.apis import chat
from tests.exchanges import BODY, open_session
from vtc.dialects.bounded_cache import COMPILED_PATTERNS, MAX_COMPILED_BYTES

MODELS = [
    *(
        "Qwen3-8B",
        "qwen3-coder",
        "gpt-oss-20b",
        "deepseek-v3.1",
        "glm-4.6",
        "kimi-k2",
        "llama-3.3-70b",
        "mistral-small",
    ),
    *("gemma-3-27b", "hermes-4", "granite-3.3", "phi-4", "command-r", "minimax-m2", "olmo-3", "seed-oss", "jamba-1.6"),
    *("ernie-4.5", "hunyuan-a13b", "nemotron-nano"),
]
MOST = 16
"""Expressions that a model's first exchange may compile after another model's; about 50 without sharing."""
OFFERED = [chat.tool("read", filePath="string")]


def exchange(model: str) -> None:
    one = open_session(tools=OFFERED, model=model)
    one.encode_request()
    one.warm()
    stream = one.stream()
    stream.feed(BODY)
    stream.finish()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the expressions compiled since the last call."""
    count, compile_ = 0, re._compiler.compile  # type: ignore[attr-defined]

    def counting(pattern: str, flags: int = 0) -> re.Pattern[str]:
        nonlocal count
        count += 1
        return compile_(pattern, flags)  # type: ignore[no-any-return]

    def since() -> int:
        nonlocal count
        last, count = count, 0
        return last

    monkeypatch.setattr(COMPILED_PATTERNS, "max_bytes", MAX_COMPILED_BYTES)
    COMPILED_PATTERNS.clear()
    monkeypatch.setattr("re._compiler.compile", counting)
    return since


def test_models_in_turn(compiled: Callable[[], int]) -> None:
    exchange(MODELS[0])
    compiled()
    for model in MODELS[1:]:
        exchange(model)
        assert compiled() < MOST
    for model in MODELS:
        exchange(model)
    assert compiled() == 0
