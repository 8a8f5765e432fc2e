"""The last look at the text that leaves, after all that made it: in it something may come together unseen.

    secr|call|et        a text that a rule is about, where a call or another match went out of its middle
    <ru|markup|n>       an opener of a call, for a client that reads calls out of the text by rules of its own

Of the first the end is dropped, as its beginning has left. The second is parted: `< run>`. What VTC takes for text such
a client may carry out: a call without its end, or one in a message of a policy. A call that it is meant to carry out
(`CallText`) keeps its opener.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vtc.events import CallText, Event, Intervention, Markup, Rewritten, Text, UnreadCall
from vtc.guards.content import UNDECIDED, PatternSearch, Rule


def get_output_text(event: Event) -> str:
    """Return the text that leaves of an event."""
    return event.raw if isinstance(event, Text) else event.text if isinstance(event, Rewritten | CallText) else ""


class OutputFilter:
    """Parts openers of calls, and breaks matches of rules, where they come together in what leaves.

    Each opener begins with `<`. They are looked for without an expression, as `regex` would keep the names of tools.
    """

    def __init__(self, openers: Collection[str] = (), rules: Sequence[Rule] = ()) -> None:
        self.reads_text = bool(openers or rules)
        """True if text must go through `feed`."""
        self._openers = tuple(openers)
        self._max_opener_chars = max(map(len, self._openers), default=0)
        self._rules = [(rule, PatternSearch(rule, raises=False)) for rule in rules]
        self._max_match_chars = max((rule.most for rule in rules), default=0)
        self._sent_text = ""
        """The end of the text that no rule is about, as far as a match may begin in it."""
        self._has_gap = False
        """True if something went between that and what comes next."""
        self._undecided = ""
        """Text after that, of which a rule may turn out to be about the beginning."""
        self._pending: list[Event] = []
        self._pending_text = ""
        """What leaves of those that wait: it may be the beginning of an opener."""

    def feed(self, event: Event) -> list[Event]:
        if isinstance(event, UnreadCall | Intervention):  # they stand for no characters
            return [event]
        if isinstance(event, Text) and self._has_gap:
            return self._release_events(self._filter_text(self._undecided + event.raw, final=False))
        events = self._filter_text(self._undecided, final=True)
        call = event.as_plain_text() if isinstance(event, CallText) else None
        self._record_sent(get_output_text(event))
        if not isinstance(call or event, Text):
            self._has_gap = bool(self._sent_text)
        return [*self._release_events(events, final=True), call] if call else self._release_events([*events, event])

    def finish(self) -> list[Event]:
        """Return what waits."""
        return self._release_events(self._filter_text(self._undecided, final=True), final=True)

    def _filter_text(self, text: str, *, final: bool) -> list[Event]:
        """Take out of a text the ends of matches that begin before it; keep what is undecided."""
        out: list[Event] = []
        self._undecided = ""
        while text:
            match = self._find_match(text, final=final)
            if match is None:  # nothing can come of what follows either
                self._has_gap = False
                self._record_sent(text)
                return [*out, Text(text)]
            rule, end = match
            if not end:
                self._undecided = text
                break
            out += [Markup(text[:end]), Intervention("content", "dropped", "", rule.pattern)]
            text = text[end:]
        return out

    def _record_sent(self, text: str) -> None:
        self._sent_text = (self._sent_text + text)[-self._max_match_chars :] if self._max_match_chars else ""

    def _find_match(self, text: str, *, final: bool) -> tuple[Rule, int] | None:
        """Find a match that begins before a text: its rule, and how much of the text it takes, 0 while undecided."""
        passed = self._sent_text
        whole = passed + text[: self._max_match_chars + 1]
        for rule, search in self._rules:
            for start in range(search.start(passed, max(0, len(passed) - rule.most)), len(passed)):
                match = search.match(whole, start, final=final)
                if match == UNDECIDED:
                    return rule, 0
                if match and match.end() > len(passed):
                    return rule, match.end() - len(passed)
        return None

    def _release_events(self, events: Sequence[Event], *, final: bool = False) -> list[Event]:
        """Release what is decided of some events and those that wait, parted where an opener begins."""
        more = "".join(map(get_output_text, events))
        self._pending += events
        self._pending_text += more
        if self._pending_text and not (more or final):
            return []
        text = self._pending_text
        cuts: list[int] = []
        start = text.find("<") if self._openers else -1
        while start >= 0:
            if text.startswith(self._openers, start):
                cuts.append(start)
            elif not final and self._may_become_opener(text, start):
                break
            start = text.find("<", start + 1)
        end = len(text) if start < 0 else start
        waiting, self._pending, self._pending_text = self._pending, [], text[end:]
        out: list[Event] = []
        begun = 0
        for event in waiting:
            size = len(get_output_text(event))
            if begun + size > end and begun < end:
                event, rest = split_event(event, end - begun)
                self._pending.append(rest)
            elif self._pending or begun + size > end:
                self._pending.append(event)
                continue
            out += _insert_spaces(event, [cut - begun for cut in cuts if begun <= cut < begun + size])
            begun += size
        openers = (next(opener for opener in self._openers if text.startswith(opener, cut)) for cut in cuts)
        return [*out, *(Intervention("unread_calls", "replaced", "", opener) for opener in openers)]

    def _may_become_opener(self, text: str, start: int) -> bool:
        """True if an opener may still come of the end of a text."""
        return len(text) - start < self._max_opener_chars and any(
            opener.startswith(text[start:]) for opener in self._openers
        )


def split_event(event: Event, at: int) -> tuple[Event, Event]:
    """Part an event after so many characters of the text that leaves of it."""
    if isinstance(event, Text):
        return Text(event.raw[:at]), Text(event.raw[at:])
    assert isinstance(event, Rewritten)
    return Rewritten(event.raw, event.text[:at]), Rewritten("", event.text[at:])


def _insert_spaces(event: Event, cuts: Sequence[int]) -> Iterator[Event]:
    """Put a space after each `<` of an event that stands at one of the places given."""
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
