"""Visible text and reasoning: the states outside of calls and code."""

from __future__ import annotations

from vtc.dialects.reading.context import Context, SaysText
from vtc.dialects.reading.cursor import Found
from vtc.dialects.syntax.pattern import Scan
from vtc.events import Event, Markup, Reasoning, Text

_KINDS: dict[str, type[Reasoning | Text | Markup]] = {"reasoning_content": Reasoning, "keep": Text, "drop": Markup}


class InText(SaysText):
    """Plain text, and the beginning of a reply."""

    __slots__ = ()

    @property
    def start(self) -> Scan:
        return self.context.grammar.start

    @property
    def scan(self) -> Scan:
        return self.context.grammar.text

    def marker(self, found: Found) -> None:
        """Take out a marker of the model's that is no part of its message."""
        self.say(found.start())
        self.context.speech.mark(Markup(self.context.cursor.take(found.end())))

    def think(self, found: Found) -> None:
        """Begin reasoning."""
        write_tag(self.context, found)
        self.context.inside = InReasoning(self.context)

    def other(self, _: Found | None = None) -> None:
        """Nothing: what stands here is read as text."""
        self.context.cursor.seek = self.context.cursor.at


class InReasoning:
    """Between the reasoning tags."""

    __slots__ = ("_kind", "context")

    def __init__(self, context: Context) -> None:
        self.context = context
        self._kind = _KINDS[context.think]

    @property
    def scan(self) -> Scan:
        return self.context.grammar.reasoning

    def plain(self, text: str) -> list[Event]:
        return [self._kind(text)] if text else []

    def release(self, reason: str) -> None:
        """Nothing: no call is held."""

    def say(self, end: int) -> None:
        if text := self.context.cursor.take(end):
            self.context.speech.emit(self._kind(text))

    def close(self, found: Found) -> None:
        """End reasoning: the reply begins."""
        self.say(found.start())
        write_tag(self.context, found)
        self.context.inside = InText(self.context)


def write_tag(context: Context, found: Found) -> None:
    """Keep a reasoning tag or leave it out; white space after it is then dropped as after a call."""
    text = context.cursor.take(found.end())
    if context.think == "keep":
        context.speech.emit(Text(text))
        context.speech.keep()
    else:
        context.speech.called(Markup(text))
