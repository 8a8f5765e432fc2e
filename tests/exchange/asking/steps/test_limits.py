"""The window of the model, and limits on replies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.exchange.asking.applied_steps import make_context, make_message
from vtc.events import CanonicalRequest
from vtc.exchange.asking.steps import apply_steps


def apply_to_limits(
    server: str, steps: dict[str, Any], limits: dict[str, Any], text: str = "x"
) -> tuple[dict[str, Any], str]:
    request = CanonicalRequest(model="m", messages=(make_message("user", text),), limits=limits)
    found, reports = apply_steps(request, steps, make_context(server=server))
    return dict(found.limits), ", ".join(reports.values())


def test_window_is_sent_only_in_ollamas_api() -> None:
    window = {"context": 8192, "truncate": False}
    assert apply_to_limits("ollama-chat", {"context": 8192}, {}) == (window, "num_ctx 8192 set")
    assert apply_to_limits("ollama-chat", {"context": 8192}, {"context": 1}) == (
        {**window, "context": 1},
        "truncate false set",
    )
    assert apply_to_limits("openai-chat", {"context": 8192}, {}) == ({}, "")


@pytest.mark.parametrize(
    ("steps", "wanted", "text", "expected"),
    [
        ({"context": 8192}, 9000, "x" * 3000, 7192),
        ({"context": 8192}, 7000, "x" * 3000, 7000),
        ({"context": 8192}, 9000, "x" * 30000, 1024),  # an eighth, because the remaining window is only estimated
        ({"max_tokens": 4096}, 9000, "x", 4096),
        ({"max_tokens": 4096}, 4096, "x", 4096),
        ({"context": 8192, "max_tokens": 4096}, 9000, "x" * 3000, 4096),
    ],
)
def test_limit_is_lowered_to_remaining_window(steps: dict[str, Any], wanted: int, text: str, expected: int) -> None:
    found, report = apply_to_limits("openai-chat", steps, {"max_tokens": wanted}, text)
    assert found == {"max_tokens": expected}
    assert bool(report) == (expected != wanted)
