"""Choose the profile for a request, and explain the choice.

All tests of a profile must hold. A user's own server profile that names the host beats built-in ones. Otherwise the
most specific match wins: more tests, then more literal characters in the matching globs, then the higher priority, then
the user's own over a built-in one, then the first name.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

from vtc.profiles.identity import credentials_of
from vtc.profiles.loader import Source
from vtc.profiles.memory import digest_texts
from vtc.profiles.schema import Match, names_hosts
from vtc.scrub import collect_secrets


@dataclass(frozen=True)
class Facts:
    """The facts about a request that profiles match; empty if unknown."""

    user_agent: str = ""
    model: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    """Path of the URL; a query is ignored."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""
    body: Any = None
    """The request's JSON."""
    time: int = 0
    """Time of arrival, in seconds since 1970."""
    real_names: tuple[str, ...] = ()
    """The names of the model behind `model`, the most reliable first, from a list of models that passed by."""

    @property
    def whose(self) -> tuple[str, ...]:
        """Identify one server as one client sees it: observations about one client's replies never apply to
        another's."""
        return (self.host, str(self.port), self.path, self.user_agent, *self.credentials)

    @property
    def model_key(self) -> bytes:
        """Return the key of a server's statements to one client about the model, at any path."""
        return digest_texts(self.host, str(self.port), self.user_agent, *self.credentials, plain_model(self.model))

    @cached_property
    def credentials(self) -> tuple[str, ...]:
        """Collect the credentials that distinguish this client, with their names."""
        return tuple(credentials_of(self.headers, self.query))

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Collect the credentials that the request carries."""
        return collect_secrets(self.headers, self.query, self.body)


class Matched(Protocol):
    """A profile that selects requests."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def match(self) -> Match: ...


@dataclass(frozen=True, slots=True)
class ProfileChoice[T]:
    """The chosen profile, None if none matched, and a line for each match, the winner's first."""

    profile: T | None
    why: tuple[str, ...]
    missed: Sequence[tuple[str, Source, _Missed]] = ()
    """Name and source of each profile that did not match, with its failed test."""

    @property
    def others(self) -> tuple[str, ...]:
        """A line for each profile that did not match."""
        return tuple(f"profile {name} ({source}) does not match: {test.line}" for name, source, test in self.missed)


def choose_best[T: Matched](
    profiles: Mapping[str, T], facts: Facts, sources: Mapping[tuple[str, str], Source]
) -> ProfileChoice[T]:
    """Choose the most specific profile of one kind for the request.

    `why` never quotes headers or the body, which may be secret.
    """
    matched: list[_Candidate[T]] = []
    missed: list[tuple[str, Source, _Missed]] = []
    for profile in profiles.values():
        source = sources[profile.kind, profile.name]
        held: list[_Held] = []
        for test in _tests(profile.match, facts):
            if isinstance(test, _Missed):
                missed.append((profile.name, source, test))
                break
            held.append(test)
        else:
            matched.append(_Candidate(profile, source, held))
    matched.sort(key=lambda candidate: candidate.rank)
    if not matched:
        return ProfileChoice(None, (), missed)
    winner, *losers = matched
    lines = [f"{winner.line} of profile {winner.profile.name} ({winner.source})"]
    lines += [
        f"{loser.line} of profile {loser.profile.name} ({loser.source}) too, but {winner.advantage(loser)}"
        for loser in losers
    ]
    return ProfileChoice(winner.profile, tuple(lines), missed)


def list_matching[T: Matched](profiles: Mapping[str, T], facts: Facts) -> list[tuple[T, str]]:
    """List all matching profiles of one kind with their reasons, by priority, then by name."""
    matched: list[tuple[T, str]] = []
    for profile in sorted(profiles.values(), key=lambda profile: (profile.priority, profile.name)):
        tests = list(_tests(profile.match, facts))
        held = [test for test in tests if isinstance(test, _Held)]
        if len(held) == len(tests):
            matched.append((profile, " and ".join(test.line for test in held) or "every request matches"))
    return matched


@dataclass(frozen=True, slots=True)
class _Held:
    """A test that held."""

    line: str
    literal: int


class _Missed(NamedTuple):
    """A test that failed; its text is built on demand, since most tests fail and few are reported."""

    subject: str
    globs: Sequence[str]
    absent: bool

    @property
    def line(self) -> str:
        if self.absent:
            return f"{self.subject} is absent"
        return f"{self.subject} matches none of {', '.join(map(repr, self.globs))}"


@dataclass(frozen=True, slots=True)
class _Candidate[T: Matched]:
    profile: T
    source: Source
    held: list[_Held]

    @property
    def line(self) -> str:
        return " and ".join(test.line for test in self.held) or "every request matches the empty `match`"

    @property
    def literal(self) -> int:
        return sum(test.literal for test in self.held)

    @property
    def is_for_own_host(self) -> bool:
        """True for a user's own profile of a server that it names, since no built-in profile is better informed."""
        return not self.source.builtin and self.profile.kind == "server" and names_hosts(self.profile.match)

    @property
    def rank(self) -> tuple[bool, int, int, int, bool, str]:
        """Sort key, the best first."""
        return (
            not self.is_for_own_host,
            -len(self.held),
            -self.literal,
            -self.profile.priority,
            self.source.builtin,
            self.profile.name,
        )

    def advantage(self, loser: _Candidate[T]) -> str:
        name = self.profile.name
        if self.is_for_own_host and not loser.is_for_own_host:
            return f"{name} is your own for this host"
        if len(self.held) != len(loser.held):
            return f"{name} has more tests ({len(self.held)} to {len(loser.held)})"
        if self.literal != loser.literal:
            return f"{name} is more specific ({self.literal} literal characters to {loser.literal})"
        if self.profile.priority != loser.profile.priority:
            return f"{name} has the higher priority ({self.profile.priority} to {loser.profile.priority})"
        if self.source.builtin != loser.source.builtin:
            return f"{name} is your own"
        return f"{name} comes first by name"


def _tests(match: Match, facts: Facts) -> Iterator[_Held | _Missed]:
    """Yield the result of each test of a profile."""
    path = facts.path.partition("?")[0]
    for name, value, globs in (
        ("user agent", facts.user_agent, match.user_agent),
        ("model", facts.model, match.model),
        ("path", path, match.path),
    ):
        if globs:
            yield _test(f"{name} {value[:80]!r}", [value], globs)
    if match.host:
        at = f"{facts.host}:{facts.port}" if facts.port else facts.host
        yield _test(f"host {at!r}", [facts.host, at], match.host)
    for name, globs in match.header.items():
        header = facts.headers.get(name.lower())
        yield _test(f"header {name!r}", [] if header is None else [header], globs)
    for dotted, globs in match.body.items():
        yield _test(f"body {dotted!r}", texts_at(facts.body, dotted.split(".")), globs)


_LATEST = ":latest"
"""The optional tag of Ollama's models."""


def plain_model(name: str) -> str:
    """Normalize the name of a model for comparison with a server's list; Gemini's have two forms."""
    return name.removeprefix("models/").casefold().removesuffix(_LATEST)


def is_at(match: Match, host: str, port: int) -> bool:
    """Return True if a profile names this host; False if it names none."""
    globs = (match.host,) if isinstance(match.host, str) else match.host
    return any(_matcher(glob)(text) for glob in globs for text in (host, f"{host}:{port}"))


def _test(subject: str, texts: Iterable[str], globs: tuple[str, ...] | str) -> _Held | _Missed:
    globs = (globs,) if isinstance(globs, str) else globs
    texts = list(texts)
    held = [glob for glob in globs if any(map(_matcher(glob), texts))]
    if not held:
        return _Missed(subject, globs, not texts)
    glob = max(held, key=_literal)
    return _Held(f"{subject} matches glob {glob!r}", _literal(glob))


@lru_cache(maxsize=4096)
def _matcher(glob: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(glob), re.IGNORECASE).match


@lru_cache(maxsize=4096)
def is_glob(text: str) -> bool:
    """Return True if a text has wildcards."""
    return not {*text}.isdisjoint("*?[")


def _literal(glob: str) -> int:
    """Count the literal characters of a glob."""
    return len(re.sub(r"\[!?]?[^\]]*\]|[*?]", "", glob))


def value_at(value: Any, path: str) -> Any:
    """Return the value at a dotted path into objects; None if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def texts_at(value: Any, keys: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path into JSON, including those inside lists and objects."""
    if not keys:
        inside = [value]
        while inside:
            match inside.pop():
                case str() as text:
                    yield text
                case bool() | int() | float() as scalar:
                    yield json.dumps(scalar)
                case list() as items:
                    inside += items
                case dict() as fields:
                    inside += fields.values()
        return
    key, *rest = keys
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values() if key == "*" else [value[key]] if key in value else ()
    elif isinstance(value, list):
        if key == "*":
            children = value
        elif key.removeprefix("-").isdecimal() and -len(value) <= int(key) < len(value):
            children = [value[int(key)]]
    for child in children:
        yield from texts_at(child, rest)
