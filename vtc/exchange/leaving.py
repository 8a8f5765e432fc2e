"""The last step of a reply: looks at the text that leaves, after all policies and stages have made it.

what the client is told -> rules on text, again where texts meet -> openers of calls that may not be made are parted
"""

from __future__ import annotations

from collections.abc import Iterable

from vtc.events import Event, Intervention
from vtc.exchange.stages import Record
from vtc.guards.content import Joined
from vtc.guards.openers import Openers


class Leaving:
    """Takes the events of one choice as they leave; a call that is written as text is told from other text."""

    def __init__(self, record: Record, openers: Openers | None = None, joined: Joined | None = None) -> None:
        self._record = record
        self._openers = openers
        self._joined = joined
        self.reads_text = openers is not None or joined is not None

    def feed(self, event: Event) -> list[Event]:
        if not self.reads_text and not isinstance(event, Intervention):
            return [event]
        return self._parted(self._joined.feed(event) if self._joined else [event])

    def call(self, event: Event, end: str) -> list[Event]:
        """Take a call that the client is meant to carry out, written as text; the first `end` ends it."""
        if self._openers is None:
            return self.feed(event)
        *before, event = self._joined.feed(event) if self._joined else [event]
        return [*self._parted(before), *self._told(self._openers.call(event, end))]

    def finish(self) -> list[Event]:
        """Return what waits."""
        out = self._parted(self._joined.finish()) if self._joined else []
        return out + (self._told(self._openers.finish()) if self._openers else [])

    def _parted(self, events: Iterable[Event]) -> list[Event]:
        if self._openers is None:
            return self._told(events)
        return self._told(out for event in events for out in self._openers.feed(event))

    def _told(self, events: Iterable[Event]) -> list[Event]:
        """Note what was done; only the others go on."""
        out: list[Event] = []
        for event in events:
            if isinstance(event, Intervention):
                self._record.intervened(event)
            else:
                out.append(event)
        return out
