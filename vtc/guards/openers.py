"""Calls that were not read, for a client that reads calls out of the text by rules of its own.

What VTC takes for text such a client may still carry out: a call without its end, or with something unknown inside. So
wherever a tool that policies are about is opened in the text, the opener is parted: `< execute_command>`.
"""

from __future__ import annotations

from collections.abc import Collection

from vtc.events import Event, Intervention, Markup, Rewritten, Text
from vtc.guards.content import Content, Rule

POLICY = "unread_calls"


class Openers(Content):
    """Parts the openers given, of which each begins with `<`.

    They are looked for without an expression, as `regex` would keep the names of tools in it.
    """

    def __init__(self, openers: Collection[str]) -> None:
        super().__init__(Rule(pattern="<"), POLICY)
        self._openers = tuple(openers)
        self._longest = max(map(len, self._openers))

    def feed(self, event: Event) -> list[Event]:
        if not self.held or not isinstance(event, Markup | Rewritten):
            return super().feed(event)
        # What stands between the pieces of an opener leaves, and must not join them.
        *before, last = self.finish()
        if isinstance(last, Text):
            parted: list[Event] = [Rewritten(last.raw, f"{last.raw} "), Intervention(POLICY, "parted", "", last.raw)]
            return [*before, *parted, *super().feed(event)]
        return [*before, last, *super().feed(event)]

    def _read(self, new: str, *, final: bool) -> list[Event]:
        out: list[Event] = []
        text, at = self.held + new, 0
        start = text.find("<")
        while start >= 0:
            if text.startswith(self._openers, start):
                found = next(one for one in self._openers if text.startswith(one, start))
                out += [Text(text[at:start])] * (start > at)
                out += [Rewritten(found, f"< {found[1:]}"), Intervention(POLICY, "replaced", "", found)]
                at = start + len(found)
            elif not final and self._may_become_one(text, start):
                break
            start = text.find("<", max(at, start + 1))
        end = len(text) if start < 0 else start
        out += [Text(text[at:end])] * (end > at)
        self.held = text[end:]
        return out

    def _may_become_one(self, text: str, start: int) -> bool:
        """True if an opener may still come of the end of a text."""
        return len(text) - start < self._longest and any(one.startswith(text[start:]) for one in self._openers)
