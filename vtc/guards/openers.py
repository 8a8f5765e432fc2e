"""The last look at what leaves, for a client that reads calls out of the text by rules of its own.

What VTC takes for text such a client may still carry out: a call without its end, one in a message of a policy, or one
that comes together where something was taken out of the middle. So wherever a tool that policies are about is opened in
what leaves, the opener is parted: `< execute_command>`. A call that may be carried out keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vtc.events import Event, Intervention, Rewritten, Text

POLICY = "unread_calls"


def leaving(event: Event) -> str:
    """The text that leaves of an event."""
    return event.raw if isinstance(event, Text) else event.text if isinstance(event, Rewritten) else ""


def split(event: Event, at: int) -> tuple[Event, Event]:
    """An event as two, the first with so many characters of the text that leaves of it."""
    if isinstance(event, Text):
        return Text(event.raw[:at]), Text(event.raw[at:])
    assert isinstance(event, Rewritten)
    return Rewritten(event.raw, event.text[:at]), Rewritten("", event.text[at:])


class Openers:
    """Parts the openers given, of which each begins with `<`, in the text of events that leave one after the other.

    They are looked for without an expression, as `regex` would keep the names of tools in it.
    """

    def __init__(self, openers: Collection[str]) -> None:
        self._openers = tuple(openers)
        self._longest = max(map(len, self._openers))
        self._waiting: list[Event] = []
        self._text = ""
        """What leaves of those that wait: it may be the beginning of an opener."""

    def feed(self, event: Event) -> list[Event]:
        text = leaving(event)
        if not self._waiting and "<" not in text:
            return [event]
        self._waiting.append(event)
        self._text += text
        return self._settled(final=False) if text else []

    def call(self, event: Event, size: int) -> list[Event]:
        """Take a call that may be carried out. What follows so many characters is text as any other."""
        out = self.finish()
        if size == len(leaving(event)):
            return [*out, event]
        head, rest = split(event, size)
        return [*out, head, *self.feed(rest)]

    def finish(self) -> list[Event]:
        """Return what waits."""
        return self._settled(final=True)

    def _settled(self, *, final: bool) -> list[Event]:
        """Release what is decided, parted where an opener begins."""
        text = self._text
        cuts: list[int] = []
        start = text.find("<")
        while start >= 0:
            if text.startswith(self._openers, start):
                cuts.append(start)
            elif not final and self._may_become_one(text, start):
                break
            start = text.find("<", start + 1)
        end = len(text) if start < 0 else start
        waiting, self._waiting, self._text = self._waiting, [], text[end:]
        out: list[Event] = []
        begun = 0
        for event in waiting:
            size = len(leaving(event))
            if begun + size > end and begun < end:
                event, rest = split(event, end - begun)
                self._waiting.append(rest)
            elif self._waiting or begun + size > end:
                self._waiting.append(event)
                continue
            out += _parted(event, [cut - begun for cut in cuts if begun <= cut < begun + size])
            begun += size
        found = (next(one for one in self._openers if text.startswith(one, cut)) for cut in cuts)
        return [*out, *(Intervention(POLICY, "replaced", "", one) for one in found)]

    def _may_become_one(self, text: str, start: int) -> bool:
        """True if an opener may still come of the end of a text."""
        return len(text) - start < self._longest and any(one.startswith(text[start:]) for one in self._openers)


def _parted(event: Event, cuts: Sequence[int]) -> Iterator[Event]:
    """An event with a space after each `<` that stands at one of the places given."""
    if isinstance(event, Rewritten):
        pieces = [event.text[start:end] for start, end in zip((0, *cuts), (*cuts, None), strict=True)]
        yield Rewritten(event.raw, pieces[0] + "".join(f"< {piece[1:]}" for piece in pieces[1:]))
        return
    at = 0
    for cut in cuts:
        if cut > at:
            yield Text(event.raw[at:cut])
        yield Rewritten("<", "< ")
        at = cut + 1
    if not cuts:
        yield event
    elif at < len(event.raw):
        yield Text(event.raw[at:])
