"""The window of the model, and limits on replies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exchange.ready.steps import make_context, make_message
from vtc.events import CanonicalRequest
from vtc.exchange.asking.steps import apply_steps


def limits(server: str, steps: dict[str, Any], limits: dict[str, Any], text: str = "x") -> tuple[dict[str, Any], str]:
    asked = CanonicalRequest(model="m", messages=(make_message("user", text),), limits=limits)
    found, told = apply_steps(asked, steps, make_context(server=server))
    return dict(found.limits), ", ".join(told.values())


def test_only_ollamas_own_api_can_be_told_the_window() -> None:
    told = {"context": 8192, "truncate": False}
    assert limits("ollama-chat", {"context": 8192}, {}) == (told, "num_ctx 8192 set")
    assert limits("ollama-chat", {"context": 8192}, {"context": 1}) == ({**told, "context": 1}, "truncate false set")
    assert limits("openai-chat", {"context": 8192}, {}) == ({}, "")


@pytest.mark.parametrize(
    ("steps", "wanted", "text", "left"),
    [
        ({"context": 8192}, 9000, "x" * 3000, 7192),
        ({"context": 8192}, 7000, "x" * 3000, 7000),
        ({"context": 8192}, 9000, "x" * 30000, 1024),  # an eighth, because the remaining window is only estimated
        ({"max_tokens": 4096}, 9000, "x", 4096),
        ({"max_tokens": 4096}, 4096, "x", 4096),
        ({"context": 8192, "max_tokens": 4096}, 9000, "x" * 3000, 4096),
    ],
)
def test_a_limit_is_lowered_to_what_is_left(steps: dict[str, Any], wanted: int, text: str, left: int) -> None:
    found, told = limits("openai-chat", steps, {"max_tokens": wanted}, text)
    assert found == {"max_tokens": left}
    assert bool(told) == (left != wanted)
