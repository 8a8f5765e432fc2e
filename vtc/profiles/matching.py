"""Choose the profile that a request gets, and say why.

All tests of a profile must hold. A user's own profile of a server that names its host wins over built-in ones. Of
others that match the most specific wins: more tests, then more literal characters in the globs that matched, then the
higher priority, then a user's own over a built-in one, then the name that comes first.
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
from vtc.profiles.schema import Match, names_hosts
from vtc.scrub import collect_secrets


@dataclass(frozen=True)
class Facts:
    """The facts about a request that profiles are matched by; "" and empty where nothing is."""

    user_agent: str = ""
    model: str = ""
    host: str = ""
    port: int = 0
    path: str = ""
    """Of the URL; a query is ignored."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By name in lower case."""
    body: Any = None
    """The request's JSON."""
    time: int = 0
    """When it came, in seconds since 1970."""

    @property
    def whose(self) -> tuple[str, ...]:
        """Tell one upstream, as one client saw it, from all others: no reply to a client counts for another one."""
        return (self.host, str(self.port), self.path, self.user_agent, *self.credentials)

    @cached_property
    def credentials(self) -> tuple[str, ...]:
        """Collect the credentials that tell this client from others, with their names."""
        return tuple(credentials_of(self.headers, self.query))

    @cached_property
    def secrets(self) -> tuple[str, ...]:
        """Collect what the request carries as a credential."""
        return collect_secrets(self.headers, self.query, self.body)


class Matched(Protocol):
    """A profile that says which requests it is for."""

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
    """The profile that won, None if none matched, and a line for each that matched, the winner's first."""

    profile: T | None
    why: tuple[str, ...]
    missed: Sequence[tuple[str, Source, _Missed]] = ()
    """The name and the source of each that did not match, with the test that failed."""

    @property
    def others(self) -> tuple[str, ...]:
        """A line for each that did not match."""
        return tuple(f"profile {name} ({source}) does not match: {test.line}" for name, source, test in self.missed)


def best[T: Matched](
    profiles: Mapping[str, T], facts: Facts, sources: Mapping[tuple[str, str], Source]
) -> ProfileChoice[T]:
    """Choose the profile of one kind that fits the request best.

    `why` never shows what a header or the body holds, which may be secret.
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


def every[T: Matched](profiles: Mapping[str, T], facts: Facts) -> list[tuple[T, str]]:
    """List all profiles of one kind that match, with how; in the order of their priorities, then of their names."""
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
    """A test that did not hold; most do not, and few are told of."""

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
        """True for a user's own profile of a server that it names: nothing that is built in knows more of that."""
        return not self.source.builtin and self.profile.kind == "server" and names_hosts(self.profile.match)

    @property
    def rank(self) -> tuple[bool, int, int, int, bool, str]:
        """Less is better."""
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
    """Yield for each test of a profile how it held, or why it did not."""
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
"""The tag of Ollama's models that need not be said."""


def plain_model(name: str) -> str:
    """Return the name of a model as it is compared with those that a server lists; Gemini's have two forms."""
    return name.removeprefix("models/").casefold().removesuffix(_LATEST)


def is_at(match: Match, host: str, port: int) -> bool:
    """True if a profile is for a host by name; false for one that names none."""
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
    """True if a text stands for others than itself."""
    return not {*text}.isdisjoint("*?[")


def _literal(glob: str) -> int:
    """Count the characters of a glob that stand for themselves."""
    return len(re.sub(r"\[!?]?[^\]]*\]|[*?]", "", glob))


def value_at(value: Any, path: str) -> Any:
    """Get the value at a dotted path into objects; None if there is none."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def texts_at(value: Any, keys: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path into JSON, those inside lists and objects included."""
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
