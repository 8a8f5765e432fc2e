"""The final filter of the output text, which finds matches that other stages create by removing text between them.

    secr|call|et        a match of a content rule, after a call or another match was removed from its middle
    <ru|markup|n>       an opener of a call, for a client that parses calls from text by its own rules

Of the first, the end is dropped, because its beginning is already sent. The second is broken up: `< run>`. Such a
client could execute text that VTC does not read as a call: a call without its end, or a call in the message of a
policy. A call that the client is meant to execute (`CallText`) keeps its opener.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from vtc.events import CallText, Event, Intervention, Markup, Rewritten, Text, UnreadCall
from vtc.guards.content import UNDECIDED, PatternSearch, Rule


def get_output_text(event: Event) -> str:
    """Return the text of an event that is sent to the client."""
    return event.raw if isinstance(event, Text) else event.text if isinstance(event, Rewritten | CallText) else ""


class OutputFilter:
    """Breaks up openers of calls, and drops the ends of rule matches, in the output text.

    Each opener begins with `<`. They are searched for without a regular expression, because `regex` would cache the
    names of tools.
    """

    def __init__(self, openers: Collection[str] = (), rules: Sequence[Rule] = ()) -> None:
        self.reads_text = bool(openers or rules)
        """True if text must go through `feed`."""
        self._openers = tuple(openers)
        self._max_opener_chars = max(map(len, self._openers), default=0)
        self._rules = [(rule, PatternSearch(rule, raises=False)) for rule in rules]
        self._max_match_chars = max((rule.most for rule in rules), default=0)
        self._sent_text = ""
        """The end of the text that was checked by the rules, as far as a match may begin in it."""
        self._has_gap = False
        """True if something was removed between that text and the next one."""
        self._undecided = ""
        """Buffered text after it, whose beginning may be the end of a match."""
        self._pending: list[Event] = []
        """Buffered events."""
        self._pending_text = ""
        """Output text of the buffered events, which may be the beginning of an opener."""

    def feed(self, event: Event) -> list[Event]:
        """Filter an event; return the events that can be sent."""
        if isinstance(event, UnreadCall | Intervention):  # they denote no characters
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
        """Return the buffered events."""
        return self._release_events(self._filter_text(self._undecided, final=True), final=True)

    def _filter_text(self, text: str, *, final: bool) -> list[Event]:
        """Drop the ends of matches that begin before the text; buffer text that is undecided."""
        out: list[Event] = []
        self._undecided = ""
        while text:
            match = self._find_match(text, final=final)
            if match is None:  # no match can continue in the rest of the text either
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
        """Find a match that begins before the text: its rule, and its length in the text, 0 if it is undecided."""
        sent = self._sent_text
        whole = sent + text[: self._max_match_chars + 1]
        for rule, search in self._rules:
            for start in range(search.find_start(sent, max(0, len(sent) - rule.most)), len(sent)):
                match = search.match(whole, start, final=final)
                if match == UNDECIDED:
                    return rule, 0
                if match and match.end() > len(sent):
                    return rule, match.end() - len(sent)
        return None

    def _release_events(self, events: Sequence[Event], *, final: bool = False) -> list[Event]:
        """Release the buffered events and `events` as far as they are decided, with openers broken up."""
        new_text = "".join(map(get_output_text, events))
        self._pending += events
        self._pending_text += new_text
        if self._pending_text and not (new_text or final):
            return []
        # Step 1: Find the openers, and the end of the text that can no longer be the beginning of one.
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
        # Step 2: Release the events up to this end, and buffer the others.
        events, self._pending, self._pending_text = self._pending, [], text[end:]
        out: list[Event] = []
        offset = 0
        for event in events:
            size = len(get_output_text(event))
            if offset + size > end and offset < end:
                event, rest = split_event(event, end - offset)
                self._pending.append(rest)
            elif self._pending or offset + size > end:
                self._pending.append(event)
                continue
            out += _insert_spaces(event, [cut - offset for cut in cuts if offset <= cut < offset + size])
            offset += size
        openers = (next(opener for opener in self._openers if text.startswith(opener, cut)) for cut in cuts)
        return [*out, *(Intervention("unread_calls", "replaced", "", opener) for opener in openers)]

    def _may_become_opener(self, text: str, start: int) -> bool:
        """Return True if `text[start:]` may be the beginning of an opener."""
        return len(text) - start < self._max_opener_chars and any(
            opener.startswith(text[start:]) for opener in self._openers
        )


def split_event(event: Event, at: int) -> tuple[Event, Event]:
    """Split an event after `at` characters of its output text."""
    if isinstance(event, Text):
        return Text(event.raw[:at]), Text(event.raw[at:])
    assert isinstance(event, Rewritten)
    return Rewritten(event.raw, event.text[:at]), Rewritten("", event.text[at:])


def _insert_spaces(event: Event, cuts: Sequence[int]) -> Iterator[Event]:
    """Insert a space after the `<` at each of the given positions of an event's output text."""
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
