"""Visible text and reasoning: the states outside of calls and code."""

from __future__ import annotations

from typing import Literal

from vtc.dialects.reading.context import Context, SaysText, Verdict
from vtc.dialects.reading.cursor import Found
from vtc.dialects.syntax.scan import Scan
from vtc.events import Event, Markup, Reasoning, Text

KINDS: dict[str, type[Reasoning | Text | Markup]] = {"reasoning_content": Reasoning, "keep": Text, "drop": Markup}


class InText(SaysText):
    """Plain text, and the beginning of a reply."""

    __slots__ = ()

    @property
    def start(self) -> Scan:
        return self.context.grammar.start

    @property
    def scan(self) -> Scan:
        return self.context.grammar.text

    @property
    def answer_end(self) -> Scan:
        return self.context.grammar.answer

    def marker(self, found: Found) -> None:
        """Take out a marker of the model's that is no part of its message."""
        self.say(found.start())
        self.context.speech.mark(Markup(self.context.cursor.take(found.end())))

    def answer(self, found: Found) -> None:
        """Begin what is text whatever it looks like."""
        self.context.begins, self.context.undecided = "text", False
        self.marker(found)

    def think(self, found: Found) -> tuple[None, bool]:
        """Begin reasoning."""
        context = self.context
        context.begins, context.undecided = "text", False
        if context.began_inside is None:
            context.began_inside = False
        write_tag(context, found)
        return None, True

    def closed(self, found: Found) -> None:
        """End reasoning that is empty: its opening tag stands in the prompt."""
        if self.context.began_inside is None:
            self.context.began_inside = True
        self.context.begins, self.context.undecided = "text", False
        write_tag(self.context, found)

    def stray(self, found: Found) -> Literal[Verdict.REASONING] | None:
        """Read a closing tag that nothing opened: the reply began inside, and was not taken to.

        What has left as text stays text. Else it is reasoning, and a call in it is made only at its end, if nothing
        else is said. Behind words on its line the tag may be one that the reply speaks of: it shows nothing for others.
        """
        context = self.context
        self.say(found.start())
        if context.began_inside is None:
            context.began_inside, context.shows_beginning = True, not context.speech.in_line
        if not context.undecided:
            self.say(found.end())
            return None
        context.undecided = False
        thoughts, context.thought = context.speech.take_back()
        if thoughts:
            context.speech.emit(KINDS[context.think](thoughts))
        write_tag(context, found)
        return Verdict.REASONING

    def other(self, _: Found | None = None) -> Literal[Verdict.PROMPTED] | None:
        """Read what stands here as text, unless the reply may begin inside of the reasoning."""
        context = self.context
        context.cursor.seek = context.cursor.at
        if context.begins in ("reasoning", "unknown"):
            return Verdict.PROMPTED
        context.begins = "text"
        return None

    @property
    def first_call(self) -> Scan:
        return self.context.grammar.first_call

    def begins_with_call(self, _: Found) -> None:
        """Read a reply that begins with a call as text, as a closing tag of reasoning may stand in an argument.

        None of it leaves until its end, or until such a tag stands in no call.
        """
        context = self.context
        context.begins, context.undecided, context.prompted = "text", True, True
        context.cursor.seek = context.cursor.at

    def thinks(self) -> Literal[Verdict.REASONING, Verdict.UNKNOWN] | None:
        """Begin inside of the reasoning, or where it may be, unless that came by another way by now."""
        begins, self.context.begins = self.context.begins, "text"
        if begins == "text":
            return None
        return Verdict.REASONING if begins == "reasoning" else Verdict.UNKNOWN


class InReasoning:
    """Text between reasoning tags, the first of which was read if it is `opened`."""

    __slots__ = ("_kind", "_opened", "_quoted_end", "context")

    def __init__(self, context: Context, opened: bool = False) -> None:
        self.context = context
        self._opened = opened
        self._quoted_end = ""
        self._kind = KINDS[context.think]

    @property
    def scan(self) -> Scan:
        grammar = self.context.grammar
        return grammar.reasoning if self._opened else grammar.begun_reasoning

    def plain(self, text: str) -> list[Event]:
        return [self._kind(text)] if text else []

    def release(self, reason: str) -> None:
        """Nothing: no call is held."""

    def say(self, end: int) -> None:
        if text := self.context.cursor.take(end):
            self.context.speech.emit(self._kind(text))

    def quoted(self, found: Found) -> None:
        """Pass over a closing tag in backticks."""
        self.context.cursor.seek = found.end()

    def pass_over(self, end: int) -> None:
        """Keep what may be reasoning until its end shows."""
        self.context.cursor.seek = end

    def opened(self, found: Found) -> None:
        """Pass over an opening tag: its own closing tag, if that is the next one, ends nothing."""
        self._quoted_end = self.context.grammar.closing_tags[found[0]]
        self.context.cursor.seek = found.end()

    def none(self) -> None:
        """Read it all as text: no closing tag came. A model may be cut off as it thinks."""
        if self.context.complete:
            self.context.began_inside = False
            self.context.cursor.seek = self.context.cursor.at
        else:
            self.say(len(self.context.cursor.text))

    def close(self, found: Found) -> Literal[Verdict.CONTENT] | None:
        """End reasoning: the reply begins."""
        quoted_end, self._quoted_end = self._quoted_end, ""
        if found[0] == quoted_end:
            self.context.cursor.seek = found.end()
            return Verdict.CONTENT
        if self.context.began_inside is None:
            self.context.began_inside = True
        self.say(found.start())
        write_tag(self.context, found)
        return None


def write_tag(context: Context, found: Found) -> None:
    """Keep a reasoning tag or leave it out; white space after it is then dropped as after a call."""
    text = context.cursor.take(found.end())
    if context.think == "keep":
        context.speech.emit(Text(text))
        context.speech.keep()
    else:
        context.speech.called(Markup(text))
