"""Rules on visible text: matches of a pattern are replaced or dropped while the reply streams.

Text is sent at once unless it may begin a match. The buffered text is bounded: a match has at most `most` characters
from its possible beginning, however the text is cut. An end that depends on the next character (`\b`) is decided once
that character arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
import regex  # for its partial matches: whether a text is the beginning of one

from vtc.events import Event, Intervention, Markup, Rewritten, Text, UnreadCall
from vtc.guards.guard import Guard
from vtc.guards.patterns import MOST_SECONDS, TakesTooLongError, expression, naming

type FilterPattern = Annotated[str, msgspec.Meta(min_length=1, extra_json_schema={"format": "pattern of a text"})]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A regular expression for a part of the text (without look-around), and its replacement."""

    pattern: FilterPattern
    """A regular expression for the text to replace."""
    replacement: str = ""
    """Replacement of a match, with `\\1` and `\\g<name>` for groups; empty drops the match."""
    most: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 200
    """Maximum number of characters of a match."""

    def __post_init__(self) -> None:
        with naming("pattern"):
            check(self.pattern)
        try:
            regex.compile(f"(?:{self.pattern})|").sub(self.replacement, "")
        except (regex.error, IndexError) as error:
            raise ValueError(f"pattern: {self.pattern!r} with {self.replacement!r}: {error}") from None


_NEEDS_ALL = regex.compile(r"\\[GK]|\(\?(?:<?[=!]|[R0]\)|[a-zA-Z]*[berw])")
"""Constructs that look beyond the match: around it, at the start of the search, or for the best of all matches."""


def check(pattern: str) -> None:
    """Raise ValueError if the pattern cannot be searched for in a stream."""
    if expression(pattern).search("") is not None:
        raise ValueError(f"{pattern!r} matches nothing at all; write what must be there")
    bare = regex.sub(r"\\[^BZzGK]|\[\^?\]?[^\]]*\]", "", pattern)
    if _NEEDS_ALL.search(bare):
        raise ValueError(f"{pattern!r} looks around; write what is to be replaced itself")
    if ("$" in bare and "(?m)" not in bare) or "\\" in bare:
        raise ValueError(f"{pattern!r} goes by where a text ends, which is not known in a stream")


UNDECIDED: Literal["undecided"] = "undecided"


class PatternSearch:
    """Searches for a rule's pattern in a text that may continue.

    After a timeout the search is abandoned for the rest of the reply, and finds nothing more.
    """

    def __init__(self, rule: Rule, *, raises: bool) -> None:
        """With `raises`, a timeout raises TakesTooLongError, once."""
        self._most = rule.most
        self._pattern = regex.compile(rule.pattern)
        self._longer = regex.compile(f"(?:{rule.pattern})(?s:.)")
        self._by_next = regex.search(r"\\[bmM]|[$^]", rule.pattern) is not None
        # They match nothing completely; a partial match reaches the end of the text, given a possible continuation (for
        # `\b`, `$`).
        self._begun = [
            (more, regex.compile(f"(?:{rule.pattern})(?s:.{{{len(more) + 1}}})(?!)"))
            for more in (("", "a", "\n") if self._by_next else ("",))
        ]
        self._raises = raises
        self._gave_up = False

    def start(self, text: str, at: int) -> int:
        """Find the first place of a match or a possible match; the end of the text if there is none."""
        most = self._most
        last = max(at, len(text) - most)  # matches from before this place are complete
        while at < last:
            match = self._run(self._pattern.search, text, at, at + 2 * most + 1)
            if match and match.start() <= min(at + most, last):
                return match.start()
            at += most + 1
        at = last
        matches = [self._run(pattern.search, text + more, at, partial=True) for more, pattern in self._begun]
        matches.append(self._run(self._pattern.search, text, at))
        return min([len(text), *(match.start() for match in matches if match)])

    def match(self, text: str, at: int, *, final: bool) -> regex.Match[str] | Literal["undecided"] | None:
        """Match at a place; `UNDECIDED` if the result depends on later text, because the text is not `final`."""
        end = at + self._most
        if not final and len(text) < end + self._by_next:
            begun = (self._run(pattern.match, text + more, at, partial=True) for more, pattern in self._begun)
            if any(begun):
                return UNDECIDED
        match = self._run(self._pattern.match, text, at, end)
        if match and self._by_next and match.end() == end < len(text):  # it was matched as if the text ended there
            return match if self._run(self._longer.fullmatch, text, at, end + 1) else None
        return match if match and match[0] else None

    def _run(self, method: Callable[..., regex.Match[str] | None], *given: Any, **how: bool) -> regex.Match[str] | None:
        if self._gave_up:
            return None
        try:
            return method(*given, timeout=MOST_SECONDS, **how)
        except TimeoutError:
            self._gave_up = True
            if self._raises:
                raise TakesTooLongError("looking for its pattern") from None
            return None


class ContentGuard(Guard):
    """One rule on the text between calls."""

    reads_text = True

    def __init__(self, rule: Rule, policy: str = "content") -> None:
        super().__init__(refuses=None, on_failure="pass")
        self._policy = policy
        self._rule = rule
        self._search = PatternSearch(rule, raises=True)
        self._before = ""  # the character before the buffered text, for `^` and `\b`

    def feed(self, event: Event) -> list[Event]:
        if isinstance(event, Text):
            return self._read(event.raw, final=False)
        if isinstance(event, UnreadCall | Intervention):  # they have no characters, so the text continues
            return [event]
        return [*self.finish(), event]

    def finish(self) -> list[Event]:
        """Return the buffered text, and start a new text."""
        out = self._read("", final=True)
        self._before = ""
        return out

    def _read(self, new: str, *, final: bool) -> list[Event]:
        out: list[Event] = []
        text = self._before + self.held + new
        at = len(self._before)
        while at < len(text):
            start = self._search.start(text, at)
            if start > at:
                out.append(Text(text[at:start]))
                at = start
                continue
            match = self._search.match(text, at, final=final)
            if match == UNDECIDED:
                break
            if not match:
                out.append(Text(text[at]))
                at += 1
                continue
            written = match.expand(self._rule.replacement) if self._rule.replacement else ""
            out.append(Rewritten(match[0], written) if written else Markup(match[0]))
            out.append(Intervention(self._policy, "replaced" if written else "dropped", "", self._rule.pattern))
            at = match.end()
        self._before, self.held = text[max(at - 1, 0) : at], text[at:]
        return _join_texts(out)


def _join_texts(events: Sequence[Event]) -> list[Event]:
    """Join adjacent text events."""
    out: list[Event] = []
    for event in events:
        if isinstance(event, Text) and out and isinstance(out[-1], Text):
            out[-1] = Text(out[-1].raw + event.raw)
        else:
            out.append(event)
    return out
