"""Text beside calls that upstream made itself: markup that its parser left behind is no speech.

    <tool_call>                       an opening tag, or the beginning of one, before the calls
    </parameter></function>           closing tags after them
    <tool_call>{"name": …             the same call once more

A client that is shown them sends them back with its next turn, and the model writes more of them. Text that is anything
else leaves as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.events import Call, Event, Markup, Text, ToolCall

LEAST = 5
"""Characters of a tag's beginning that could be nothing else."""
MOST = 4096
"""Characters of tags that are held. More of them are text: with each part all before it is looked at again."""


class Leftovers:
    """Holds the text of one reply as long as it may be nothing but markup that was left behind."""

    def __init__(self, dialects: Sequence[Description], reader: Reader) -> None:
        self._dialects = tuple(dialects)
        self._reader = reader
        self._held: list[Event] = []
        self._said = ""  # of that, what is in no call
        self._calls: list[ToolCall] = []
        self.decided = False
        """The text is more than that: it passes."""

    def feed(self, events: list[Event]) -> list[Event]:
        """Return what may leave of some events."""
        if self.decided or (not self._held and all(event.raw.isspace() for event in events)):
            return events  # white space alone is none
        for event in events:
            self._held.append(event)
            if isinstance(event, Text):
                self._read(self._reader.feed(event.raw))
        return [] if len(self._said) <= MOST and self._is_markup(1) else self._released()

    def finish(self, calls: Iterable[ToolCall]) -> list[Event]:
        """Return what is held: as markup, if it is nothing else, or if it holds no calls but these."""
        self._read(self._reader.finish())
        own = [_meaning(call) for call in calls] if self._calls else []
        if not self._is_markup(LEAST) or any(_meaning(call) not in own for call in self._calls):
            return self._released()
        held, self._held = self._held, []
        return [Markup(event.raw) if isinstance(event, Text) else event for event in held]

    def _is_markup(self, least: int) -> bool:
        """True if nothing but tags was said; of the last one `least` characters are enough."""
        tags, complete = _tags(self._dialects)
        found = complete.match(self._said)
        rest = self._said[found.end() if found else 0 :].rstrip()
        return not rest or (len(rest) >= least and any(tag.startswith(rest) for tag in tags))

    def _read(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Call):
                self._calls.append(event.call)
            elif isinstance(event, Text):
                self._said += event.raw

    def _released(self) -> list[Event]:
        self.decided = True
        held, self._held = self._held, []
        return held


def _meaning(call: ToolCall) -> tuple[str, object]:
    try:
        return call.name, json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.name, call.arguments


@lru_cache(maxsize=8)
def _tags(dialects: tuple[Description, ...]) -> tuple[list[str], re.Pattern[str]]:
    """List the tags of these dialects, and compile what finds a text of nothing but them."""
    words: set[str] = set()
    for dialect in dialects:
        for key, patterns in (("call", dialect.calls), ("param", dialect.params), ("section", dialect.sections)):
            for text in patterns:
                literal = (part for part in pattern.parse(text, key) if isinstance(part, str))
                words.update(word for part in literal for word in part.split())
    tags = sorted((word for word in words if len(word) >= LEAST and not word[0].isalnum()), key=len, reverse=True)
    return tags, re.compile(rf"(?:\s|{'|'.join(map(re.escape, tags))})*+" if tags else r"\s*+")
