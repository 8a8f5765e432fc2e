"""Count the function calls of a piece of work, and stop work that does not end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

PATIENCE = 60
"""Seconds after which a test is interrupted because its work does not end."""


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no end after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def count_calls(work: Callable[[], object]) -> int:
    """Return the number of functions that are called, in VTC and in the interpreter."""
    count = 0

    def count_event(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
