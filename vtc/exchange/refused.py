"""Requests that a server refuses for what can be taken out of them: what they are asked once more without.

The words are those of vLLM, SGLang, llama.cpp, Ollama and hosted APIs (issues of theirs and of their clients, to 2026).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from vtc.apis import crossing
from vtc.events import Asked

_WINDOW = re.compile(r"(?:context (?:length|window|size)|n_ctx)\D{0,40}(\d{3,8})", re.I)
_INPUT = re.compile(
    r"(\d{1,8}) (?:input tokens|(?:tokens )?in the (?:input|messages|prompt))"
    r"|(?:prompt|input)\D{0,30}?(\d{1,8}) tokens",
    re.I,
)
_LEAST = re.compile(r"below (?:the )?minimum.{0,40}?(?:>=|least) ?(\d{1,4})\b", re.I)
_LIMIT = re.compile(r"max_(?:completion_|output_)?tokens|completion tokens|in the completion", re.I)
_IMAGES = re.compile(
    r"(?:image|vision|multi-?modal).{0,60}(?:not|n't|un)\s?(?:be )?(?:support|allow|accept|enabled)"
    r"|(?:not|n't) (?:support|accept|have|take).{0,40}(?:image|vision|multi-?modal)"
    r"|not a multi-?modal|at most 0 image",
    re.I,
)
_THINKING = re.compile(
    r"(?:think|reasoning|effort|encrypted content).{0,80}(?:not|n't|un)\s?(?:be )?(?:support|allow|accept|enabled)"
    r"|(?:not|n't|un)\s?(?:support|recogni).{0,60}(?:think|reasoning|effort)"
    r"|when thinking is enabled|'enabled' or 'disabled'",
    re.I,
)
STATUSES = (400, 413, 422, 500)


class Without(NamedTuple):
    """What a request is asked without."""

    limit: int | None = None
    """Its limit on the reply, but for this many tokens."""
    images: bool = False
    thinking: bool = False
    """How much to think: the model cannot."""

    @property
    def kinds(self) -> frozenset[str]:
        """Name what the same server will refuse again."""
        return frozenset(kind for kind in ("images", "thinking") if getattr(self, kind))


def before(kinds: Collection[str]) -> Without:
    """Leave out at once what was refused before."""
    return Without(images="images" in kinds, thinking="thinking" in kinds)


def without(status: int, words: str) -> Without | None:
    """Read a server's refusal; None if nothing of the request can be taken out that would help."""
    if status not in STATUSES:
        return None
    window, given = _WINDOW.search(words), _INPUT.search(words)
    if window and given and _LIMIT.search(words):
        left = int(window[1]) - int(given[1] or given[2])
        return Without(limit=left) if left > 0 else None
    least = _LEAST.search(words)
    if least and _LIMIT.search(words):
        return Without(limit=int(least[1]))
    if _IMAGES.search(words):
        return Without(images=True)
    return Without(thinking=True) if _THINKING.search(words) else None


def taken_out(asked: Asked, what: Without) -> tuple[Asked, list[str]]:
    """Take out of a request what it is asked without; say for people what that was."""
    told = []
    if what.limit is not None:
        asked = crossing.limited(asked, what.limit)
        told.append(f"max_tokens {what.limit}, as the server refuses another")
    messages = tuple(map(crossing.without_media, asked.messages)) if what.images else asked.messages
    if messages != asked.messages:
        asked = replace(asked, messages=messages)
        told.append("notes in the place of images, which the server refuses")
    if what.thinking and asked.effort is not None:
        told.append(f"not told how much to think ({asked.effort}), which the server refuses")
        asked = replace(asked, effort=None)
    return asked, told
