"""Learn quirks from a rejection: the server's message names, whatever its status, the step that was missing.

The servers' messages are listed in `rejections.yaml`, with their sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vtc.events import MAX_TOKENS
from vtc.exchange.asking.corrections import Correction
from vtc.exchange.asking.window import is_full, is_limited, read_token_counts
from vtc.exchange.asking.words import Expressions, RejectionWords, compile_any, find_number
from vtc.guards.patterns import Expression, naming
from vtc.profiles.document import table
from vtc.profiles.planner import API, REPLANNED, SAME
from vtc.profiles.schema import Ready


class QuirkRow(RejectionWords, frozen=True, kw_only=True):
    """Messages that reject a request, and the steps that they call for, by name and value."""

    steps: dict[str, Any]
    kept: bool = True
    """False if the cause lies in the conversation, so that other conversations are sent unchanged."""
    last: bool = False
    """True if a field that the rejection names is corrected first."""
    asked: str = ""
    """The API in which the rejected request was sent; empty for any."""

    def __post_init__(self) -> None:
        with naming("steps"):
            msgspec.convert({name: value for name, value in self.steps.items() if name not in REPLANNED}, Ready)
        super().__post_init__()


class LimitWords(Expressions, frozen=True, kw_only=True):
    """Expressions for the limit on a reply, with groups for the numbers."""

    named: Expression
    most: Expression


class RejectionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The messages of servers that reject a request."""

    lessons: tuple[QuirkRow, ...]
    grammars: RejectionWords
    limit: LimitWords


@cache
def _read_table() -> RejectionTable:
    """Load `rejections.yaml`, on the first rejection only."""
    return table(Path(__file__).with_suffix(".yaml"), RejectionTable)


_STRONGER_VALUES: Mapping[Any, tuple[str, ...]] = {
    True: ("parts", "anew", "first"),
    "folded": ("user",),
    "object": ("grammar", "plain"),
    "grammar": ("plain",),
    "short": ("alphanumeric9",),
    **dict.fromkeys(("openai-responses", "openai-chat"), (SAME,)),
}
"""Values of a step by the value that they include: a quirk must not replace them with that weaker one."""
_UNRELATED_STATUSES = (401, 402, 403, 405, 408, 429, 502, 503, 504)
"""Statuses that no change of the request would avoid."""
_API_MISSING_STATUSES = (404, 405, 501)
"""Statuses of a server that lacks the API."""
_FIELD_UNKNOWN_STATUSES = (400, 422, 501)
GRAMMAR_STEPS = ("constrain", "strict")
"""Steps that request decoding by a grammar: any rejection may be due to them."""


_QUOTES = re.compile(r"(?<!\w)[`'\"“”‘’]+|[`'\"“”‘’]+(?!\w)")
"""Quotes around a name, which only some servers write."""


class LearnedSteps(NamedTuple):
    """The steps learned from one rejection, by name."""

    steps: Mapping[str, Any]
    once: int | None = None
    """Tokens that remain for the reply to this request only."""
    kept: bool = True
    """True if the steps hold for later requests, too."""


def describe_steps(steps: Mapping[str, Any]) -> dict[str, str]:
    """Describe steps for people, by name: as in a profile (`schemas: grammar`), and corrections in words."""
    return {
        name: name if value is True or not isinstance(value, str | int) else f"{name}: {value}".lower()
        for name, value in steps.items()
    }


def learn_steps(
    status: int,
    message: str,
    known: Mapping[str, Any],
    named: Callable[[], Mapping[str, Correction]] = dict,
    more: Sequence[str] = (),
    asked: str = "",
) -> LearnedSteps | None:
    """Learn steps from a rejection; None if it calls only for `known` steps, which were applied already.

    `named` returns the corrections of the fields that it names. They come last, because a step may repair a field that
    is named. `more` holds further texts of the error, from a list or another server's error. `asked` is the API of the
    request, if known.
    """
    texts: dict[str, str] = {}
    for text in (message, *more):
        texts.setdefault(_QUOTES.sub("", " ".join(text.split())), text)
    as_said, spellings = [*texts.values()], [*dict.fromkeys((*texts.values(), *texts))]
    if status in _API_MISSING_STATUSES and known.get(API) not in (None, SAME):
        return LearnedSteps({API: SAME})
    if status in _UNRELATED_STATUSES or any(map(is_limited, as_said)):
        return None
    if of_limit := next(filter(None, (_learn_limit(text, known) for text in as_said)), None):
        return of_limit if of_limit.steps else None
    if any(map(is_full, as_said)):
        return None
    grammar = next((step for step in GRAMMAR_STEPS if known.get(step)), "")
    if grammar and any(map(compile_any(*_read_table().grammars.words).search, spellings)):
        return LearnedSteps({grammar: False})
    rows = [row for row in _read_table().lessons if not (row.asked and asked) or row.asked == asked]
    if of_row := _match_rows((row for row in rows if not row.last), spellings, known):
        return of_row
    if corrections := named():
        return LearnedSteps(corrections, kept=all(correction.kept for correction in corrections.values()))
    if of_row := _match_rows((row for row in rows if row.last), spellings, known):
        return of_row
    # A server that does not know the field reports that in arbitrary words.
    return LearnedSteps({grammar: False}) if grammar and status in _FIELD_UNKNOWN_STATUSES else None


def _match_rows(rows: Iterable[QuirkRow], spellings: Sequence[str], known: Mapping[str, Any]) -> LearnedSteps | None:
    """Return the steps of the first row that matches and contains a step that is not yet known."""
    for row in rows:
        steps = {
            name: value
            for name, value in row.steps.items()
            if known.get(name) not in (value, *_STRONGER_VALUES.get(value, ()))
        }
        if steps and any(map(compile_any(*row.words).search, spellings)):
            return LearnedSteps(steps, kept=row.kept)
    return None


def _learn_limit(message: str, known: Mapping[str, Any]) -> LearnedSteps | None:
    """Parse the limit on the reply, or the window next to it; None if the text mentions neither."""
    limit = _read_table().limit
    names_limit = compile_any(limit.named).search(message)
    window, prompt, partly = read_token_counts(message)
    if partly and window and names_limit:
        return LearnedSteps({"context": window} if known.get("context") != window else {})
    if window and prompt and names_limit:
        # The remaining tokens are exact for this request only; for others they are estimated.
        return LearnedSteps({"context": window}, window - prompt) if window > prompt else LearnedSteps({})
    if most := find_number(message, limit.most):
        return LearnedSteps({MAX_TOKENS: most} if known.get(MAX_TOKENS) != most else {})
    return None
