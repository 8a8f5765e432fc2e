"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from mitmproxy.log import LegacyLogEvents

# No deadline: how long one example takes says something about the machine, not about the code.
settings.register_profile("default", deadline=None)
# For a night's search: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", deadline=None, max_examples=5_000)
settings.load_profile("default")


@pytest.fixture(scope="session", autouse=True)
def output_is_buffered_as_for_users() -> Iterator[None]:
    """Containers and CI often set this variable; with it a program that waits for a line of ours would never hang."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_log_handlers_of_tests_before() -> Iterator[None]:
    """mitmproxy's handler for a hook that nobody uses any more outlives its event loop: a later warning would fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LegacyLogEvents, "emit", lambda *_: None)
        yield
