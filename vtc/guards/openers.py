"""Calls that were not read, for a client that reads calls out of the text by rules of its own.

What VTC takes for text such a client may still carry out: a call without its end, or with something unknown inside. So
wherever a tool that policies are about is opened in the text, the opener is parted: `< execute_command>`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from vtc.events import Event, Intervention, Markup, Rewritten, Text
from vtc.guards.content import Content, Rule

POLICY = "unread_calls"


class Openers(Content):
    """Parts the openers given, of which each begins with `<`."""

    def __init__(self, openers: Collection[str]) -> None:
        names = "|".join(re.escape(opener[1:]) for opener in sorted(openers))
        longest = max(map(len, openers))
        super().__init__(Rule(pattern=f"<({names})", replacement=r"< \1", most=min(longest, 4096)), POLICY)

    def feed(self, event: Event) -> list[Event]:
        if not self.held or not isinstance(event, Markup | Rewritten):
            return super().feed(event)
        # What stands between the pieces of an opener leaves, and must not join them.
        *before, last = self.finish()
        if isinstance(last, Text):
            parted: list[Event] = [Rewritten(last.raw, f"{last.raw} "), Intervention(POLICY, "parted", "", last.raw)]
            return [*before, *parted, *super().feed(event)]
        return [*before, last, *super().feed(event)]
