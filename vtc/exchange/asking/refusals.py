"""Learn from a server's refusal: from its message, whatever its status, the step without which it was refused.

The words of servers stand in `refusals.yaml`, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vtc.apis.contract import FULL
from vtc.events import MAX_TOKENS, Failure
from vtc.exchange.asking.corrections import Correction
from vtc.guards.patterns import Expression, naming
from vtc.profiles.document import table
from vtc.profiles.planner import PROMPT
from vtc.profiles.schema import Ready


@cache
def _pattern(*words: str) -> re.Pattern[str]:
    """Compile what any of these expressions find; raises ValueError."""
    try:
        return re.compile("|".join(words), re.I | re.S)
    except re.error as error:
        raise ValueError(f"{error}: {words}") from None


class _Expressions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of `refusals.yaml`. Raises ValueError for what is no expression."""

    def __post_init__(self) -> None:
        for value in msgspec.structs.astuple(self):
            if isinstance(value, tuple):
                _pattern(*value)
            elif isinstance(value, str):
                _pattern(value)


class RefusalWords(_Expressions, frozen=True, kw_only=True):
    """The words by which servers say one thing."""

    words: tuple[Expression, ...]


class LessonRow(RefusalWords, frozen=True, kw_only=True):
    """The words by which they refuse a request, and the steps that this teaches, by name and value."""

    steps: dict[str, Any]

    def __post_init__(self) -> None:
        with naming("steps"):
            msgspec.convert({name: value for name, value in self.steps.items() if name != PROMPT}, Ready)
        super().__post_init__()


class LimitWords(_Expressions, frozen=True, kw_only=True):
    """The words for the limit on a reply, and the numbers that they tell of it."""

    named: Expression
    window: Expression
    prompt: Expression
    most: Expression


class FullWords(RefusalWords, frozen=True, kw_only=True):
    """The words for a prompt that is longer than the model's window, and the tokens of both."""

    unless: Expression
    """Says that it is the reply that is too long."""
    window: tuple[Expression, ...]
    prompt: tuple[Expression, ...]


class Refusals(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words of servers that refuse a request."""

    lessons: tuple[LessonRow, ...]
    grammars: RefusalWords
    limit: LimitWords
    full: FullWords


REFUSALS = table(Path(__file__).with_suffix(".yaml"), Refusals)
_STRONGER = {"folded": "user", "grammar": "plain", "short": "alphanumeric9"}
"""By the value of a step, the one that does the same and more: what teaches both must not go from one to the other."""
_NOT_OF_THE_REQUEST = (401, 402, 403, 405, 408, 429, 502, 503, 504)
"""Statuses of what no other request would mend."""
_NOT_UNDERSTOOD = (400, 422, 501)
GRAMMARS = ("constrain", "strict")
"""The steps that have the server decode by a grammar: any refusal may be due to them."""


def _number(message: str, *expressions: str) -> int:
    """Find a number by the first expression that fits; 0 if a message tells none."""
    matches = (match for words in expressions if (match := _pattern(words).search(message)))
    return next((int(group) for match in matches for group in match.groups() if group), 0)


class Lesson(NamedTuple):
    """The steps that a refusal teaches, by name."""

    steps: Mapping[str, Any]
    once: int | None = None
    """For this request the limit on its reply: so many tokens are left."""


def lesson(
    status: int,
    message: str,
    known: Mapping[str, Any],
    named: Callable[[], Mapping[str, Correction]] = dict,
) -> Lesson | None:
    """Read a server's refusal; None if it teaches nothing but what is `known`: steps that were taken.

    `named` reads what it names of the request; that comes last, as a field may be named for what a step mends.
    """
    if status in _NOT_OF_THE_REQUEST:
        return None
    limit = REFUSALS.limit
    window, prompt = _number(message, limit.window), _number(message, limit.prompt)
    names_limit = _pattern(limit.named).search(message)
    if window and prompt and names_limit:
        # What is left is known for this request; for others it is estimated.
        return Lesson({"context": window}, window - prompt) if window > prompt else None
    if most := _number(message, limit.most):
        return Lesson({MAX_TOKENS: most}) if known.get(MAX_TOKENS) != most else None
    grammar = next((step for step in GRAMMARS if known.get(step)), "")
    if grammar and _pattern(*REFUSALS.grammars.words).search(message):
        return Lesson({grammar: False})
    for row in REFUSALS.lessons:
        steps = {
            name: value
            for name, value in row.steps.items()
            if known.get(name) not in (value, _STRONGER.get(value, value))
        }
        if steps and _pattern(*row.words).search(message):
            return Lesson(steps)
    if corrections := named():
        return Lesson(corrections)
    # A server that does not know the field says so in any words.
    return Lesson({grammar: False}) if grammar and status in _NOT_UNDERSTOOD else None


# The model's window, where a prompt does not fit in: the client API's own error, or a cut that no error told.
#
# An agent that is told in its own words makes the conversation shorter, and goes on.


SLACK = 8
"""Tokens by which a prompt that was cut may differ from the window, or from half of it (Ollama keeps so much)."""
LEAST = 1024
PLAIN = 5
"""Bytes that are a token, at the most, of most text: fewer tokens where the number of them is that of a window."""
FEWEST = 14
"""Bytes that no token of any text stands for, on an average: a prompt of fewer tokens was cut, whatever they are."""


def full(status: int, error: str, message: str, size: int) -> Failure | None:
    """Read the error of a prompt that is too long; None if it is any other.

    `error` is all of it, `message` what people are told of it, `size` the bytes of the prompt.
    """
    words = REFUSALS.full
    if status not in (400, 413, 422, 500):
        return None
    if not _pattern(*words.words).search(error) or _pattern(words.unless).search(error):
        return None
    window, prompt = _number(error, *words.window), _number(error, *words.prompt)
    if window and prompt and prompt < window:
        return None  # it is the reply that has no room
    tokens = prompt or max(size // 4, 2)
    return Failure(f"prompt is too long: {tokens} tokens > {window or tokens - 1} maximum ({message})", FULL)


def cut(tokens: int, size: int, window: int | None = None) -> str:
    """Tell that a prompt of `size` bytes was cut, by the tokens that the server counted; empty if it was not."""
    # Windows are powers of two as a rule.
    windows = [window, window // 2] if window else [1 << (tokens + SLACK).bit_length() - 1]
    is_full = any(abs(tokens - known) <= SLACK for known in windows)
    if tokens < LEAST or size < tokens * (PLAIN if is_full else FEWEST):
        return ""
    return (
        f"the server cut the prompt: it read {tokens} tokens of {size // 1000} KB; give it a longer window "
        "(Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`; key `context` of its profile)"
    )
