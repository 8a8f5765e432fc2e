"""What becomes of a call that was read: it is delivered, kept until its section is the whole reply, or given back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from vtc.dialects.reading import repairs
from vtc.dialects.reading.machine import Found
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.reading.prose import WHITE, Prose, Thoughts
from vtc.dialects.reading.states import WHOLE
from vtc.dialects.syntax.forms import Form
from vtc.dialects.syntax.grammar import Grammar
from vtc.events import Call, Markup, Refusal, Tool

EXCERPT = 200
"""Characters of a refused call that its report shows."""


class Delivery(Prose):
    """The states behind a call, and its end in either way."""

    _tools: Mapping[str, Tool]
    _lenient: bool
    _unknown_tools: Literal["text", "allow", "drop"]

    def __init__(self, grammar: Grammar, *, think: Thoughts, thinking: bool, most_held: int) -> None:
        super().__init__(grammar, think=think, thinking=thinking, most_held=most_held)
        self._complete = True
        self._call: OpenCall | None = None
        self._form: Form | None = None  # of the last call
        self._whole: list[Call] = []  # calls of a section that must prove to be the whole reply
        self._waiting = 0  # bytes of those

    def _accept(self, events: list[Call], call: OpenCall) -> None:
        self._call = None
        for event in events:
            if call.form.whole_reply:
                self._whole.append(event)
                self._waiting = call.size
            else:
                self._deliver(event)
        self._go("after", self._grammar.after(call.form))

    def _deliver(self, event: Call) -> None:
        self._called = True
        if event.call.name in self._tools or self._unknown_tools == "allow":
            self._out.append(event)
            return
        self._out.append(Markup(event.raw))
        reason = f"no tool {event.call.name!r} is offered: dropped"
        self._out.append(Refusal(reason, event.dialect, event.call.name, event.raw[:EXCERPT]))

    def _closer(self, found: Found) -> None:
        """A closer behind a call: of its section, or one that the call could do without."""
        assert self._form is not None
        text = self._buffer[self._at : found.end()]
        if self._form.whole_reply:
            last = self._whole.pop()
            self._whole.append(replace(last, raw=last.raw + text))
            self._go("whole", WHOLE, found.end())
        else:
            self._out.append(Markup(text))
            self._go("after", self._grammar.after(self._form), found.end())

    def _drop_stump(self, form: Form) -> None:
        """What the reply ends with behind a call may be the beginning of a closer."""
        rest = self._buffer[self._at :]
        if rest.strip(WHITE) and repairs.is_stump(rest, form.closing_tags("")):
            self._out.append(Markup(rest))
            self._at = self._from = len(self._buffer)

    def _after_other(self) -> None:
        if not self._whole:
            if self._final and self._complete and self._lenient and self._form:
                self._drop_stump(self._form)
            self._to_text()
        elif not self._buffer[self._at :].strip(WHITE) and (
            (self._form and not self._form.section_tail()) or self._mends("missing-closer")
        ):
            self._whole_end()  # the reply ends before the section does, if that has an end at all
        else:
            self._not_whole()

    def _whole_end(self, _: Found | None = None) -> None:
        for event in self._whole:
            self._deliver(event)
        self._whole.clear()
        self._waiting = 0
        self._to_text()

    def _not_whole(self) -> None:
        self._refuse("it is not the whole reply")

    def _refuse(self, reason: str) -> None:
        """Not a call after all: its text is text, and reading goes on behind it."""
        call = self._call
        if not (call and call.spilled):
            whole_reply = bool(self._whole) or (call is not None and call.form.whole_reply)
            raw = self._given_back(reason)
            if whole_reply:
                # What is no such section may still be a code block: read it again as text, which happens only once.
                self._buffer, self._at = raw + self._buffer[self._at :], 0
            else:
                self._speak(raw)
        self._call = None
        self._to_text()

    def _given_back(self, reason: str) -> str:
        """The text of what is no call; says so in the events."""
        call = self._call
        form = call.form if call else self._form
        assert form is not None
        raw = "".join(event.raw for event in self._whole) + (call.raw if call else "")
        name = call.written if call else self._whole[-1].call.name
        self._whole.clear()
        self._waiting = 0
        self._out.append(Refusal(reason, form.dialect.name, name, raw[:EXCERPT]))
        return raw

    def _mends(self, repair: str) -> bool:
        """Whether a fault at the end of the reply is mended; if so, it is noted."""
        if not (self._final and self._lenient and self._complete):
            return False
        if self._call:
            self._call.repairs[repair] = None
        else:
            last = self._whole.pop()
            self._whole.append(replace(last, repairs=(*last.repairs, repair)))
        return True
