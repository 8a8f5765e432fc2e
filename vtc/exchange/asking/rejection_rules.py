"""Match a server's error with rules: each has the words of one kind of error, and the change that avoids it.

    texts of the error -> rules, by priority -> matches

The rules are in `rules/`: limits, places, steps, fields that an error names, and fields at listed paths. The form of
all is `RejectionRule`, and `vtc explain --rejection` prints those that an error matches. The messages are from threads
of the servers or their clients, to November 2026; `repo#N` is a thread of GitHub.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from vtc.exchange.asking.corrections import CorrectionKind
from vtc.exchange.asking.server_error import ServerError
from vtc.guards.patterns import Expression, prefix_errors
from vtc.profiles.document import join_words, load_table
from vtc.profiles.planner import REPLANNING_QUIRKS
from vtc.profiles.schema import Ready

type Action = Literal["steps", "suspect", "stop", "count", "limit", "not_full", "full"] | CorrectionKind
"""The effect of a rule:

- `steps`: apply steps of profiles, if one of them is new.
- `suspect`: try steps, or without fields at `paths` (or with `to` there) that are true, because no other rule
  matches. Without both: try nothing.
- `stop`: nothing, because no change of the request avoids the error.
- `count`: read numbers for the rules with `limit` and `full`.
- `limit`: lower the limit on the reply, if the error has the numbers. `not_full`: the prompt is not too long.
- `full`: send the client the error of its own API for a prompt that is too long.
- others: correct fields (`Correction`). These rules are tried together, so their priorities follow each other.
"""

MAX_INTEGER = (1 << 63) - 1
"""Greatest integer in an error: the servers' 64-bit limit."""
_NUMBER = r"-?[0-9]{1,19}(?:\.[0-9]{1,19})?"
_LISTED = r"(?:⟨[^⟩]*⟩|'[^'\n]{1,80}'|(?<![⟨'\w=.-])[\w=.-]+\d)"
"""Matches an entry in a list of names, some of which may be no fields of the request."""
_HOLES = {
    **{name: rf"⟨(?P<{name}>[^⟩]*)⟩" for name in ("name", "at", "second")},
    "names": rf"(?P<names>{_LISTED}(?:(?:,\s?| )(?:and |or )?{_LISTED})*+)",
    "use": r"['⟨](?P<use>[A-Za-z_]\w*)['⟩]",
    **{name: rf"(?P<{name}>{_NUMBER})(?!\w|\.[0-9])" for name in ("least", "most")},
    "words": r"(?P<words>'?[\w-]++'?(?:(?:,? (?:and|or) |, ?|\|)'?[\w-]++'?)*)",
    "window": "(?P<window>[0-9]{3,8})",
    "prompt": "(?P<prompt>[0-9]{1,8})",
    "limit": "(?P<limit>[0-9]{1,19})",
}
"""Expressions for the placeholders of a rule: `{name}` is a field or a path of fields, with or without quotes, `{at}`
the path of its object, `{second}` another field, `{names}` a list of names, `{use}` the quoted new name, `{least}` and
`{most}` bounds, `{words}` the accepted words; `{window}`, `{prompt}` and `{limit}` are numbers of tokens, and `{least}`
next to these a lower bound of the prompt. Names of fields are marked by ⟨⟩ before matching
(`named_fields.mark_statements`)."""


@cache
def compile_words(words: str) -> re.Pattern[str]:
    """Compile an expression with placeholders. Raises ValueError."""
    try:
        return re.compile(re.sub(r"\{(\w+)\}", lambda hole: _HOLES.get(hole[1], hole[0]), words), re.I | re.S)
    except re.error as error:
        raise ValueError(f"{error}: {words}") from None


def read_number(text: str | None) -> int | float | None:
    """Parse a number in an error: at most 19 ASCII digits on either side of the point, within 64 bits.

    Return None for any other text. JSON and Python's own rules are not used, because they raise for some digits.
    """
    if not re.fullmatch(_NUMBER, text or ""):
        return None
    value = float(text or "") if "." in (text or "") else int(text or "")
    return value if abs(value) <= MAX_INTEGER else None


class Wording(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Expressions for the errors of some servers."""

    words: tuple[Expression, ...]
    source: str = ""
    """The servers that write so, and where users report it."""

    def __post_init__(self) -> None:
        for words in self.words:
            compile_words(words)


class RuleMatch(NamedTuple):
    """The part of an error that a rule matches."""

    source: str
    expression: str
    found: re.Match[str]


class RejectionRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """One kind of error, and the reaction of VTC."""

    priority: int
    """Identifies the rule; the matching rule with the lowest one counts first."""
    do: Action = "steps"
    text: tuple[Wording, ...] = (Wording(words=("",)),)
    whole: bool = False
    """True if the error's JSON is searched, too, as one text."""
    place: bool = False
    """True if the places that the error names (`named_places`) are searched, and nothing else."""
    status: tuple[int, ...] = ()
    """The statuses of such an error; empty for any."""
    unless_status: tuple[int, ...] = ()
    api: str = ""
    """The API in which the rejected request was sent; empty for any."""
    requires: str = ""
    """A step that must have been applied to the rejected request."""
    steps: dict[str, Any] = {}
    """The steps that avoid the error, by name and value."""
    paths: tuple[str, ...] = ()
    """Dotted paths of the fields to correct, if the expressions name none."""
    headers: tuple[str, ...] = ()
    """Paths in headers, if the expressions name none: `header.flag`."""
    where: dict[str, tuple[Any, ...]] = {}
    beside: str = ""
    to: Any = None
    kept: bool = True
    """False if the cause lies in the conversation, so that other conversations are sent unchanged."""
    value_alone: bool = False
    """True if only the value that was sent is rejected, not the field."""
    unknown: bool = False
    """True if the expressions say that the server does not know the field."""

    def __post_init__(self) -> None:
        with prefix_errors("steps"):
            msgspec.convert({name: value for name, value in self.steps.items() if name not in REPLANNING_QUIRKS}, Ready)

    @cached_property
    def correction(self) -> CorrectionKind | None:
        """How the rule corrects fields; None if it does something else."""
        match self.do:
            case "leave_out" | "rename" | "keep_within" | "spell" | "give" | "set":
                return self.do
        return None

    @cached_property
    def has_paths(self) -> bool:
        """True if the rule lists the paths to correct; False if they are taken from the error."""
        return bool(self.paths or self.headers)

    @cached_property
    def is_conditional(self) -> bool:
        """True if the rule does not hold for all requests."""
        return bool(self.status or self.unless_status or self.api or self.requires)

    def find_obstacle(self, error: ServerError, known: Mapping[str, Any]) -> str:
        """Return why the rule does not hold for an error of any text; empty if it may hold."""
        if self.status and error.status not in self.status:
            return f"it is for status {join_words([*map(str, self.status)])}, not {error.status}"
        if error.status in self.unless_status:
            return f"it is not for status {error.status}"
        if self.api and error.api and self.api != error.api:
            return f"it is for requests of {self.api}, not of {error.api}"
        if self.requires and known.get(self.requires) in (None, False):
            return f"it is for requests with the step {self.requires}, which was not applied"
        return ""

    def find(self, texts: Iterable[str]) -> Iterator[RuleMatch]:
        """Find the parts of texts that the rule matches."""
        for text in texts:
            for wording in self.text:
                for words in wording.words:
                    for found in compile_words(words).finditer(text):
                        yield RuleMatch(wording.source, words, found)

    def match(self, error: ServerError) -> Iterator[RuleMatch]:
        """Find the parts of an error that the rule matches, without regard to names of fields."""
        if self.place:
            return self.find(error.places)
        return self.find(error.whole_and_texts if self.whole else error.spellings)


class RuleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The contents of a file of rules, or of all."""

    rules: tuple[RejectionRule, ...]

    def __post_init__(self) -> None:
        if len({rule.priority for rule in self.rules}) < len(self.rules):
            raise ValueError("two rules have the same priority")

    @cached_property
    def by_priority(self) -> list[RejectionRule]:
        """The rules in the order in which they count."""
        return sorted(self.rules, key=attrgetter("priority"))

    @cached_property
    def prose(self) -> Collection[str]:
        """Words of the expressions that name fields: without quotes around it, such a word is prose and no name."""
        named = [rule.text for rule in self.rules if rule.correction and not rule.has_paths]
        expressions = " ".join(words for text in named for wording in text for words in wording.words)
        return frozenset(re.findall("[a-z]+", re.sub(r"\{\w+\}", " ", expressions)))


@cache
def load_rules() -> RuleTable:
    """Load all rules, on the first rejection only."""
    files = sorted(Path(__file__).with_name("rules").glob("*.yaml"))
    return RuleTable(rules=tuple(rule for file in files for rule in load_table(file, RuleTable).rules))


def select_rules(error: ServerError, known: Mapping[str, Any]) -> list[RejectionRule]:
    """List the rules that may hold for an error, by priority; `known` are the steps applied to its request."""
    rules = load_rules().by_priority
    return [rule for rule in rules if not (rule.is_conditional and rule.find_obstacle(error, known))]
