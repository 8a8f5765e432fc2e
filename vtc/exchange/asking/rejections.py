"""Learn from a server's refusal: from its message, whatever its status, the step without which it was refused.

The words of servers stand in `rejections.yaml`, with their sources.
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
    """The words by which they refuse a request, and the steps that this teaches, by name and value."""

    steps: dict[str, Any]
    kept: bool = True
    """False for what lies in the conversation: another one is sent as it comes."""
    last: bool = False
    """True where what the refusal names is corrected first."""
    asked: str = ""
    """The API in which the refused request was sent; empty for any."""

    def __post_init__(self) -> None:
        with naming("steps"):
            msgspec.convert({name: value for name, value in self.steps.items() if name not in REPLANNED}, Ready)
        super().__post_init__()


class LimitWords(Expressions, frozen=True, kw_only=True):
    """The words for the limit on a reply, and the numbers that they tell of it."""

    named: Expression
    most: Expression


class RejectionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The words of servers that refuse a request."""

    lessons: tuple[QuirkRow, ...]
    grammars: RejectionWords
    limit: LimitWords


@cache
def _read_table() -> RejectionTable:
    """Read `rejections.yaml`: no request needs it, only a refusal."""
    return table(Path(__file__).with_suffix(".yaml"), RejectionTable)


_STRONGER_VALUES: Mapping[Any, tuple[str, ...]] = {
    True: ("parts", "anew", "first"),
    "folded": ("user",),
    "object": ("grammar", "plain"),
    "grammar": ("plain",),
    "short": ("alphanumeric9",),
    **dict.fromkeys(("openai-responses", "openai-chat"), (SAME,)),
}
"""By the value of a step, those that do the same and more: what teaches both must not go from one to the other."""
_UNRELATED_STATUSES = (401, 402, 403, 405, 408, 429, 502, 503, 504)
"""Statuses of what no other request would mend."""
_API_MISSING_STATUSES = (404, 405, 501)
"""Statuses of an API that a server has not."""
_FIELD_UNKNOWN_STATUSES = (400, 422, 501)
GRAMMAR_STEPS = ("constrain", "strict")
"""The steps that have the server decode by a grammar: any refusal may be due to them."""


_QUOTES = re.compile(r"(?<!\w)[`'\"“”‘’]+|[`'\"“”‘’]+(?!\w)")
"""Quotes around what is named: some servers write them, and some do not."""


class LearnedSteps(NamedTuple):
    """The steps that a refusal teaches, by name."""

    steps: Mapping[str, Any]
    once: int | None = None
    """For this request the limit on its reply: so many tokens are left."""
    kept: bool = True
    """True if it holds for all that follows, and not for this request alone."""


def describe_steps(steps: Mapping[str, Any]) -> dict[str, str]:
    """Write steps for people, by name: as a profile says them (`schemas: grammar`), and corrections in words."""
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
    """Read a server's refusal; None if it teaches nothing but what is `known`: steps that were taken.

    `named` reads what it names of the request; that comes last, as a field may be named for what a step mends. `more`
    is what the error says beside its message: in a list, or as another server's error. `asked` is the API in which the
    request was sent, if it is known.
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
    # A server that does not know the field says so in any words.
    return LearnedSteps({grammar: False}) if grammar and status in _FIELD_UNKNOWN_STATUSES else None


def _match_rows(rows: Iterable[QuirkRow], spellings: Sequence[str], known: Mapping[str, Any]) -> LearnedSteps | None:
    """Find the first of the rows whose words fit and that holds a step that is not known yet."""
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
    """Read what a text says of the limit on the reply, or of the window beside it; None if it says nothing of that."""
    limit = _read_table().limit
    names_limit = compile_any(limit.named).search(message)
    window, prompt, partly = read_token_counts(message)
    if partly and window and names_limit:
        return LearnedSteps({"context": window} if known.get("context") != window else {})
    if window and prompt and names_limit:
        # What is left is known for this request; for others it is estimated.
        return LearnedSteps({"context": window}, window - prompt) if window > prompt else LearnedSteps({})
    if most := find_number(message, limit.most):
        return LearnedSteps({MAX_TOKENS: most} if known.get(MAX_TOKENS) != most else {})
    return None
