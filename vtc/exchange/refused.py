"""Requests that a server refuses for what can be taken out of them: what they are asked once more without.

The words are those of vLLM, SGLang, llama.cpp and hosted APIs (issues of theirs and of their clients, to 2026).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_WINDOW = re.compile(r"(?:context (?:length|window|size)|n_ctx)\D{0,40}(\d{3,8})", re.I)
_INPUT = re.compile(
    r"(\d{1,8}) (?:input tokens|(?:tokens )?in the (?:input|messages|prompt))"
    r"|(?:prompt|input)\D{0,30}?(\d{1,8}) tokens",
    re.I,
)
_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens|completion tokens|in the completion", re.I)
_IMAGES = re.compile(
    r"(?:image|vision|multi-?modal).{0,60}(?:not|n't|un)\s?(?:be )?(?:support|allow|accept|enabled)"
    r"|(?:not|n't) (?:support|accept|have|take).{0,40}(?:image|vision|multi-?modal)"
    r"|not a multi-?modal|at most 0 image",
    re.I,
)
STATUSES = (400, 413, 422, 500)


class Without(NamedTuple):
    """What a request is asked without."""

    limit: int | None = None
    """Its limit on the reply: this many tokens are left for one."""
    images: bool = False


def without(status: int, words: str) -> Without | None:
    """Read a server's refusal; None if nothing of the request can be taken out that would help."""
    if status not in STATUSES:
        return None
    window, given = _WINDOW.search(words), _INPUT.search(words)
    if window and given and _LIMIT.search(words):
        left = int(window[1]) - int(given[1] or given[2])
        return Without(limit=left) if left > 0 else None
    return Without(images=True) if _IMAGES.search(words) else None
