"""What is no call: text, code blocks and spans, reasoning, and the white space beside calls.

Code is told as CommonMark does, as far as it matters here: a fence stands on a line of its own, a code span ends
with as many backticks as it began with and never outlives its paragraph.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from vtc.dialects.reading.machine import CONTEXT, Found, Machine
from vtc.dialects.reading.states import INFO
from vtc.dialects.syntax.grammar import Grammar
from vtc.events import Event, Markup, Reasoning, Text

SPOKEN = frozenset({"text", "fence", "span"})
"""States in which text is said unless a token stands in it."""
WHITE = " \t\r\n"
INDENTING = " \t>"
"""What may stand before markup that must start its line."""
type Thoughts = Literal["reasoning_content", "keep", "drop"]
_THOUGHT: dict[str, type[Reasoning | Text | Markup]] = {"reasoning_content": Reasoning, "keep": Text, "drop": Markup}


class PlainRule(NamedTuple):
    """Which text is plain."""

    stop: str
    endings: str


class Prose(Machine):
    """The states outside of calls. `most_held` is in characters, for a code span whose end must show."""

    def __init__(self, grammar: Grammar, *, think: Thoughts, thinking: bool, most_held: int) -> None:
        super().__init__("start", grammar.start)
        self._grammar = grammar
        self._think = think
        self._most_held = most_held
        if thinking:
            self._go("reasoning", grammar.reasoning)
        self._space: list[str] = []  # white space after the last text, dropped if a call follows
        self._said = False
        self._called = False
        self._run = ""  # what opened the code block or span
        self._out: list[Event] = []

    def _plain(self, text: str) -> list[Event] | None:
        """The events for a text in which no markup may begin, behind which nothing else is held; None for any other."""
        if self._state not in SPOKEN or self._at < len(self._buffer) or self._scan.first.search(text):
            return None
        self._buffer = (self._buffer + text)[-CONTEXT:]  # what a line that goes on needs
        self._at = self._from = len(self._buffer)
        if self._space or text[-1:] in WHITE or (self._called and not self._said):
            self._speak(text)
            return self._taken()
        self._said, self._called = True, False
        return [Text(text)]

    @property
    def watched(self) -> str | None:
        """The characters that it watches for as things are; None if any text has to be read.

        Text without any of them that does not end in white space or `>` is plain text, and behind it things are as they
        were: in the middle of a line.
        """
        if self._state not in SPOKEN or self._at < len(self._buffer) or self._space or self._called or not self._said:
            return None
        line = self._buffer.rpartition("\n")[2]
        if not line.strip(INDENTING):
            return None
        return self._scan.firsts or None

    @property
    def plain(self) -> PlainRule | None:
        stop = self.watched
        return None if stop is None else PlainRule(stop, WHITE + ">")

    def reasoned(self) -> None:
        """The reasoning came by another way: a reply that was to begin inside of it does not."""
        if self._state == "reasoning" and not self._buffer:
            self._go("start", self._grammar.start)

    @property
    def in_reasoning(self) -> bool:
        """Whether the text so far ends inside of the reasoning."""
        return self._state == "reasoning"

    def _taken(self) -> list[Event]:
        out, self._out = self._out, []
        return out

    def _sink(self, end: int) -> None:
        if self._state == "quoted":
            self._from = end
            self._unbounded(end)
            return
        text = self._buffer[self._at : end]
        self._at = self._from = end
        if self._state == "reasoning":
            self._reason(text)
        else:
            self._speak(text)

    def _reason(self, text: str) -> None:
        if text:
            self._out.append(_THOUGHT[self._think](text))

    def _head(self, found: Found) -> None:
        """A call begins."""
        raise NotImplementedError

    def _speak(self, text: str) -> None:
        """Visible text; white space at its end waits, since it is dropped before a call."""
        body = text.rstrip(WHITE)
        if not body:
            if text:
                self._space.append(text)
            return
        spoken = self._take_space() + body
        if self._called and not self._said:
            said = spoken.lstrip(WHITE)
            if len(said) < len(spoken):  # between a call and the first text
                self._out.append(Markup(spoken[: -len(said)]))
            spoken = said
        if self._out and isinstance(self._out[-1], Text):
            spoken = self._out.pop().raw + spoken
        self._out.append(Text(spoken))
        self._said, self._called = True, False
        if len(body) < len(text):
            self._space.append(text[len(body) :])

    def _take_space(self) -> str:
        space = "".join(self._space)
        self._space.clear()
        return space

    def _marker(self, found: Found) -> None:
        """A marker of the model's that is no part of what it says."""
        self._sink(found.start())
        self._out.append(Markup(found[0]))
        self._go("text", self._grammar.text, found.end())

    def _to_text(self) -> None:
        self._go("text", self._grammar.text)

    def _through(self, found: Found) -> None:
        """A token that is itself text, and after which plain text goes on."""
        self._sink(found.end())
        self._to_text()

    def _up_to(self, found: Found) -> None:
        """A token that belongs to the plain text after it."""
        self._sink(found.start())
        self._to_text()

    def _fence(self, found: Found) -> None:
        self._run = found[0]
        self._sink(found.end())
        self._go("info", INFO)

    def _info_end(self, found: Found) -> None:
        self._sink(found.end())
        self._go("fence", self._grammar.closing_fence(self._run))

    def _info_ticks(self, found: Found) -> None:
        """A backtick behind what seemed an opening fence: that was a code span."""
        if self._run[0] == "~":
            self._skip(found)
        else:
            self._span_ticks(found)

    def _ticks(self, found: Found) -> None:
        self._run = found[0]
        self._sink(found.end())
        self._go("span", self._grammar.span)

    def _span_ticks(self, found: Found) -> None:
        self._sink(found.end())
        if found[0] == self._run:
            self._to_text()
        else:
            self._go("span", self._grammar.span)

    def _span_head(self, found: Found) -> None:
        """A call inside a code span, if the span is one: only its end will show that."""
        assert found.lastgroup is not None
        if self._grammar.heads[found.lastgroup].form.dialect.in_code == "call":
            self._head(found)
            return
        self._sink(found.start())
        self._go("quoted", self._grammar.span_end)
        self._from = found.end()

    def _unbounded(self, end: int) -> bool:
        """Whether a span has no end within the limit; then what is held of it is text, and it goes on behind that."""
        limit = self._at + self._most_held
        if end <= limit:
            return False
        self._speak(self._buffer[self._at : limit])
        self._go("span", self._grammar.span, limit)
        return True

    def _quoted_ticks(self, found: Found) -> None:
        if self._unbounded(found.start()):
            return
        if found[0] != self._run:
            self._from = found.end()
            return
        self._speak(self._buffer[self._at : found.end()])
        self._go("text", self._grammar.text, found.end())

    def _unquoted(self, found: Found | None = None) -> None:
        """The paragraph ended and the span did not: a lone backtick quotes nothing. Read it again as text."""
        if not self._unbounded(found.start() if found else len(self._buffer)):
            self._to_text()

    def _think_open(self, found: Found) -> None:
        self._tag(found)
        self._go("reasoning", self._grammar.reasoning, found.end())

    def _think_close(self, found: Found) -> None:
        self._sink(found.start())
        self._tag(found)
        self._go("start", self._grammar.start, found.end())

    def _tag(self, found: Found) -> None:
        text = self._buffer[self._at : found.end()]
        self._out.append(Text(text) if self._think == "keep" else Markup(text))
        self._called = self._think != "keep"  # white space behind the tag is dropped as behind a call
