"""Rules on visible text: matches of a pattern are replaced or dropped while the reply streams.

Text is forwarded at once unless a match may begin in it. A match has at most `most` characters, so the buffer is
bounded, and the result does not depend on how the stream is cut into chunks. If the end of a match depends on the next
character (`\b`), it is decided when that character arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal

import msgspec
import regex  # because it supports partial matches, which tell if more text could complete a match

from vtc.events import Event, Intervention, Markup, Rewritten, Text, UnreadCall
from vtc.guards.guard import Guard
from vtc.guards.patterns import MAX_EXPRESSION_SECONDS, TakesTooLongError, compile_expression, prefix_errors

type FilterPattern = Annotated[str, msgspec.Meta(min_length=1, extra_json_schema={"format": "pattern of a text"})]


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule: a regular expression for a part of the text (without look-around), and its replacement."""

    pattern: FilterPattern
    """A regular expression for the text to replace."""
    replacement: str = ""
    """Replacement of a match, with `\\1` and `\\g<name>` for groups; empty drops the match."""
    most: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 200
    """Maximum number of characters of a match."""

    def __post_init__(self) -> None:
        with prefix_errors("pattern"):
            check_stream_pattern(self.pattern)
        try:
            regex.compile(f"(?:{self.pattern})|").sub(self.replacement, "")
        except (regex.error, IndexError) as error:
            raise ValueError(f"pattern: {self.pattern!r} with {self.replacement!r}: {error}") from None


_LOOKS_AROUND = regex.compile(r"\\[GK]|\(\?(?:<?[=!]|[R0]\)|[a-zA-Z]*[berw])")
"""Constructs that a stream cannot support: look-around, `\\G`, `\\K`, recursion into the whole pattern, and the flags
for the best match, for enhanced matching, for reverse search and for words."""


def check_stream_pattern(pattern: str) -> None:
    """Raise ValueError if the pattern cannot be searched for in a stream."""
    if compile_expression(pattern).search("") is not None:
        raise ValueError(f"{pattern!r} matches empty text; require at least one character")
    bare = regex.sub(r"\\[^BZzGK]|\[\^?\]?[^\]]*\]", "", pattern)
    if _LOOKS_AROUND.search(bare):
        raise ValueError(f"{pattern!r} uses look-around, which a stream cannot support; match only the text to replace")
    if ("$" in bare and "(?m)" not in bare) or "\\" in bare:
        raise ValueError(f"{pattern!r} depends on the end of the text, which is unknown in a stream; remove the anchor")


UNDECIDED: Literal["undecided"] = "undecided"
"""The result of a search that depends on text that has not arrived yet."""


class PatternSearch:
    """Searches for a rule's pattern in a text that may continue.

    After a timeout the search is abandoned for the rest of the reply, and finds nothing more.
    """

    def __init__(self, rule: Rule, *, raises: bool) -> None:
        """Prepare the search for a rule. With `raises`, the first timeout raises TakesTooLongError."""
        self._most = rule.most
        self._pattern = regex.compile(rule.pattern)
        self._with_next = regex.compile(f"(?:{rule.pattern})(?s:.)")
        self._needs_next = regex.search(r"\\[bmM]|[$^]", rule.pattern) is not None
        # Expressions that only match partially: a partial match shows that more text could complete a match of the
        # rule. If the rule depends on the next character, it is tried with a letter and a line break after the text.
        self._partial = [
            (more, regex.compile(f"(?:{rule.pattern})(?s:.{{{len(more) + 1}}})(?!)"))
            for more in (("", "a", "\n") if self._needs_next else ("",))
        ]
        self._raises = raises
        self._gave_up = False

    def find_start(self, text: str, at: int) -> int:
        """Find where the first match or possible match begins; return the end of the text if there is none."""
        most = self._most
        # Step 1: Search the text before `last` in windows; a match that begins there cannot continue.
        last = max(at, len(text) - most)
        while at < last:
            match = self._run(self._pattern.search, text, at, at + 2 * most + 1)
            if match and match.start() <= min(at + most, last):
                return match.start()
            at += most + 1
        # Step 2: Search the rest, in which a match may still be incomplete.
        at = last
        matches = [self._run(pattern.search, text + more, at, partial=True) for more, pattern in self._partial]
        matches.append(self._run(self._pattern.search, text, at))
        return min([len(text), *(match.start() for match in matches if match)])

    def match(self, text: str, at: int, *, final: bool) -> regex.Match[str] | Literal["undecided"] | None:
        """Match at `at`; return `UNDECIDED` if the text is not `final` and the result depends on more text."""
        end = at + self._most
        if not final and len(text) < end + self._needs_next:
            partial = (self._run(pattern.match, text + more, at, partial=True) for more, pattern in self._partial)
            if any(partial):
                return UNDECIDED
        match = self._run(self._pattern.match, text, at, end)
        if match and self._needs_next and match.end() == end < len(text):
            # The limit `end` looked like the end of the text, so check the match with the real next character.
            return match if self._run(self._with_next.fullmatch, text, at, end + 1) else None
        return match if match and match[0] else None

    def _run(
        self, method: Callable[..., regex.Match[str] | None], *arguments: Any, **options: bool
    ) -> regex.Match[str] | None:
        if self._gave_up:
            return None
        try:
            return method(*arguments, timeout=MAX_EXPRESSION_SECONDS, **options)
        except TimeoutError:
            self._gave_up = True
            if self._raises:
                raise TakesTooLongError("searching for its pattern") from None
            return None


class ContentGuard(Guard):
    """The guard that applies one rule to the text between calls."""

    reads_text = True

    def __init__(self, rule: Rule, policy: str = "content") -> None:
        super().__init__(refuses=None, on_failure="pass")
        self._policy = policy
        self._rule = rule
        self._search = PatternSearch(rule, raises=True)
        self._before = ""  # the character before the buffered text, for `^` and `\b`

    def feed(self, event: Event) -> list[Event]:
        if isinstance(event, Text):
            return self._replace_matches(event.raw, final=False)
        if isinstance(event, UnreadCall | Intervention):  # they have no characters, so the text continues
            return [event]
        return [*self.finish(), event]

    def finish(self) -> list[Event]:
        """Return the buffered text, and start a new text."""
        out = self._replace_matches("", final=True)
        self._before = ""
        return out

    def _replace_matches(self, new: str, *, final: bool) -> list[Event]:
        out: list[Event] = []
        text = self._before + self.held + new
        at = len(self._before)
        while at < len(text):
            start = self._search.find_start(text, at)
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
    for is_text, run in groupby(events, lambda event: isinstance(event, Text)):
        alike = [*run]
        out += [Text("".join(event.raw for event in alike))] if is_text else alike
    return out
