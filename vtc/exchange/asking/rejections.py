"""Learn quirks from a rejection: the steps that its request lacked, or the corrections of fields that the error names.

The status hardly matters, because servers reject requests with many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vtc.apis.layout import MAX_TOKENS
from vtc.exchange.asking.corrections import Correction, CorrectionKind
from vtc.exchange.asking.rejection_rules import RejectionRule, select_rules
from vtc.exchange.asking.server_error import ServerError
from vtc.exchange.asking.window import read_counts
from vtc.profiles.planner import SAME

_STRONGER_VALUES: Mapping[Any, tuple[str, ...]] = {
    True: ("parts", "anew", "first"),
    "folded": ("user",),
    "object": ("grammar", "plain"),
    "grammar": ("plain",),
    "short": ("alphanumeric9",),
    **dict.fromkeys(("openai-responses", "openai-chat"), (SAME,)),
}
"""By value of a step, the values that do the same and more: a quirk must not weaken these to the key."""
GRAMMAR_STEPS = ("constrain", "strict")
"""Steps that request decoding by a grammar: any rejection may be due to them."""


class LearnedSteps(NamedTuple):
    """The steps learned from one rejection, by name."""

    steps: Mapping[str, Any]
    once: int | None = None
    """Token limit for the reply to this retry alone, in place of `steps`, which hold for later requests."""
    kept: bool = True
    """True if the steps hold for later requests, too."""
    suspect: int = 0
    """The priority of the rule if the steps are a guess, because the error names no cause; else 0."""


def describe_steps(steps: Mapping[str, Any]) -> dict[str, str]:
    """Describe steps for people, by name: as in a profile (`schemas: grammar`), and corrections in words."""
    return {
        name: name if value is True or not isinstance(value, str | int) else f"{name}: {value}".lower()
        for name, value in steps.items()
    }


def learn_steps(
    error: ServerError,
    known: Mapping[str, Any],
    find_corrections: Callable[[], Mapping[str, Correction]] = dict,
    may_suspect: Callable[[RejectionRule], bool] = lambda _: False,
) -> LearnedSteps | None:
    """Learn steps from a rejection; None if it calls only for `known` steps, which were applied already.

    `find_corrections` returns the corrections of the fields that the rejection names; `may_suspect` returns True if the
    steps of a rule may be tried although the error does not name their cause.
    """
    corrections: Mapping[str, Correction] | None = None
    is_explained = False
    for rule in select_rules(error, known):
        if rule.correction:
            corrections = find_corrections() if corrections is None else corrections
            if corrections:
                return LearnedSteps(corrections, kept=all(each.is_general for each in corrections.values()))
        elif rule.do in ("stop", "full"):
            if any(rule.match(error)):
                return None
        elif rule.do == "limit":
            # An error may name the limit many times, but its numbers are read once from each text.
            for text in dict.fromkeys(match.found.string for match in rule.match(error)):
                if learned := learn_limit(text, known):
                    return learned if learned.steps else None
        elif rule.do == "suspect":
            has_other_cause = not (rule.steps or rule.paths) and any(rule.match(error))
            if is_explained or error.names_cause or has_other_cause:
                return None
            if (steps := select_suspects(rule, known)) and may_suspect(rule):
                return LearnedSteps(steps, kept=rule.kept, suspect=rule.priority)
        elif any(rule.match(error)):
            if steps := select_new_steps(rule, known):
                return LearnedSteps(steps, kept=rule.kept)
            is_explained = True
    return None


def select_new_steps(rule: RejectionRule, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Select the steps of a rule that are not known, nor weaker than a known one."""
    return {
        name: value
        for name, value in rule.steps.items()
        if known.get(name) not in (value, *_STRONGER_VALUES.get(value, ()))
    }


def select_suspects(rule: RejectionRule, known: Mapping[str, Any]) -> Mapping[str, Any]:
    """Select the steps of a rule about suspects, and its corrections, that are not known."""
    kind: CorrectionKind = "leave_out" if rule.to is None else "set"
    corrections = [Correction(kind, (*path.split("."),), rule.to, values=(True,)) for path in rule.paths]
    return {**select_new_steps(rule, known), **{str(each): each for each in corrections if str(each) not in known}}


def learn_limit(message: str, known: Mapping[str, Any]) -> LearnedSteps | None:
    """Learn from an error about the limit on the reply, or about the window that limits it; None without numbers."""
    counts = read_counts(message)
    window, prompt, maximum = counts.get("window"), counts.get("prompt"), counts.get("limit")
    if "least" in counts and window:
        return LearnedSteps({"context": window} if known.get("context") != window else {})
    if window and prompt:
        # The remaining tokens are exact for this request only; for others they are estimated.
        return LearnedSteps({"context": window}, window - prompt) if window > prompt else LearnedSteps({})
    if maximum:
        return LearnedSteps({MAX_TOKENS: maximum} if known.get(MAX_TOKENS) != maximum else {})
    return None
