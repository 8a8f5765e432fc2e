"""Learn quirks from a rejection: the steps that its request lacked, by the server's message.

`rejections.yaml` lists the servers' messages, with their sources, and the steps. The status hardly matters, because
servers reject requests with many.
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
from vtc.guards.patterns import Expression, prefix_errors
from vtc.profiles.document import load_table
from vtc.profiles.planner import API, REPLANNING_QUIRKS, SAME
from vtc.profiles.schema import Ready


class QuirkRow(RejectionWords, frozen=True, kw_only=True):
    """Expressions for one kind of rejection, and the steps that avoid it, by name and value."""

    steps: dict[str, Any]
    kept: bool = True
    """False if the cause lies in the conversation, so that other conversations are sent unchanged."""
    last: bool = False
    """True if this row is tried after the correction of fields that the rejection names."""
    asked: str = ""
    """The API in which the rejected request was sent; empty for any."""

    def __post_init__(self) -> None:
        with prefix_errors("steps"):
            msgspec.convert({name: value for name, value in self.steps.items() if name not in REPLANNING_QUIRKS}, Ready)
        super().__post_init__()


class LimitWords(Expressions, frozen=True, kw_only=True):
    """Expressions for errors about the limit on a reply."""

    named: Expression
    """Matches an error that names the limit."""
    most: Expression
    """Matches the greatest accepted limit, with a group for the number."""


class RejectionTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The messages of servers that reject a request."""

    lessons: tuple[QuirkRow, ...]
    grammars: RejectionWords
    limit: LimitWords


@cache
def _read_table() -> RejectionTable:
    """Load `rejections.yaml`, on the first rejection only."""
    return load_table(Path(__file__).with_suffix(".yaml"), RejectionTable)


_STRONGER_VALUES: Mapping[Any, tuple[str, ...]] = {
    True: ("parts", "anew", "first"),
    "folded": ("user",),
    "object": ("grammar", "plain"),
    "grammar": ("plain",),
    "short": ("alphanumeric9",),
    **dict.fromkeys(("openai-responses", "openai-chat"), (SAME,)),
}
"""By value of a step, the values that do the same and more: a quirk must not weaken these to the key."""
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
    """Token limit for the reply to this retry alone, in place of `steps`, which hold for later requests."""
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
    find_corrections: Callable[[], Mapping[str, Correction]] = dict,
    more_texts: Sequence[str] = (),
    asked_api: str = "",
) -> LearnedSteps | None:
    """Learn steps from a rejection; None if it calls only for `known` steps, which were applied already.

    `find_corrections` returns the corrections of the fields that the rejection names. `more_texts` holds further texts
    of the error, from a list or another server's error. `asked_api` is the API of the request, if known.
    """
    texts: dict[str, str] = {}
    for text in (message, *more_texts):
        texts.setdefault(_QUOTES.sub("", " ".join(text.split())), text)
    texts_as_sent, spellings = [*texts.values()], [*dict.fromkeys((*texts.values(), *texts))]
    # Step 1: rejections that no step about the request's content avoids.
    if status in _API_MISSING_STATUSES and known.get(API) not in (None, SAME):
        return LearnedSteps({API: SAME})
    if status in _UNRELATED_STATUSES or any(map(is_limited, texts_as_sent)):
        return None
    # Step 2: a limit on the reply, or a prompt that is too long.
    if of_limit := next(filter(None, (_learn_limit(text, known) for text in texts_as_sent)), None):
        return of_limit if of_limit.steps else None
    if any(map(is_full, texts_as_sent)):
        return None
    # Step 3: the grammar, then the rows of the table, then named fields, because a step may repair a named field.
    grammar = next((step for step in GRAMMAR_STEPS if known.get(step)), "")
    if grammar and any(map(compile_any(*_read_table().grammars.words).search, spellings)):
        return LearnedSteps({grammar: False})
    rows = [row for row in _read_table().lessons if not (row.asked and asked_api) or row.asked == asked_api]
    if of_row := _match_rows((row for row in rows if not row.last), spellings, known):
        return of_row
    if corrections := find_corrections():
        return LearnedSteps(corrections, kept=all(correction.is_general for correction in corrections.values()))
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
    """Learn from an error about the limit on the reply, or about the window that limits it; None for another text."""
    limit = _read_table().limit
    names_limit = compile_any(limit.named).search(message)
    window, prompt, partly = read_token_counts(message)
    if partly and window and names_limit:
        return LearnedSteps({"context": window} if known.get("context") != window else {})
    if window and prompt and names_limit:
        # The remaining tokens are exact for this request only; for others they are estimated.
        return LearnedSteps({"context": window}, window - prompt) if window > prompt else LearnedSteps({})
    maximum = find_number(message, limit.most)
    if maximum:
        return LearnedSteps({MAX_TOKENS: maximum} if known.get(MAX_TOKENS) != maximum else {})
    return None
