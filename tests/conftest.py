"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# No deadline: how long one example takes says something about the machine, not about the code.
settings.register_profile("default", deadline=None)
# For a night's search: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", deadline=None, max_examples=5_000)
settings.load_profile("default")
