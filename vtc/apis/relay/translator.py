"""Translate the events of a reply for its client: to its API, and without unknown content under a strict policy.

For a client of another API, a reply that its server ended well in the middle of a native call is an error, and so is
one with an unlisted finish reason: agents then retry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from vtc.apis.calls import JsonNesting, is_cut
from vtc.apis.contract import ReplyEvent, list_chain
from vtc.events import (
    CUT_OFF,
    BlockStart,
    Call,
    CallDelta,
    Citation,
    Citations,
    Failure,
    Finish,
    Origin,
    Rewritten,
    Start,
    Text,
    Usage,
)
from vtc.json_text import has_distinct_keys

MAX_REASON_CHARACTERS = 100
"""Maximum characters of a server's finish reason that an error quotes."""


def describe_failed_end(end: Finish) -> str:
    """Describe the reason for which the server ended the reply."""
    return f"the server ended the reply with the reason {end.native_reason[:MAX_REASON_CHARACTERS]!r}"


class EventTranslator(msgspec.Struct):
    """Translates events for a client. Copied before each change: fields get new values."""

    call_fields: Collection[str]
    """The fields of a call's object in which no client finds another call."""
    same_api: bool = True
    """True if client and server speak the same API."""
    strict: bool = False
    """True if nothing may be sent that the decoder does not know."""
    cites: bool = False
    """True if the client's API has citations."""
    citations: tuple[Any, Any] | None = None
    """The citations of the current text, as a chain. They are sent at its end, when its length is known."""
    text_length: int = 0
    """Number of characters of text that a client of another API was sent."""
    block_start: int = 0
    """The value of `text_length` at the beginning of the server's block."""
    in_text: bool = False
    """True if the latest content is text."""
    calls: dict[tuple[int, int | None], JsonNesting] = {}
    """The nesting of the native calls that were sent in pieces to a client of another API, by choice and number."""
    cut_choices: frozenset[int] = frozenset()
    """The choices with a whole native call that lacks its end."""
    breaks: bool = False
    """True if the reply ends in an error: a call that lacks its end becomes text, because a client may run any call."""
    failure: Failure | None = None
    """The error that ended a bridged reply."""
    left_out: tuple[str, ...] = ()
    """Content that was dropped because no encoder or no policy accepts it, for the report."""

    def record_cut_calls(self, choice: int, events: Sequence[ReplyEvent]) -> None:
        """Record whether a choice that ends well for its server has a call that lacks its end, before that is sent."""
        if any(isinstance(event, Call) and is_cut(event.call.arguments) for event in events):
            self.cut_choices |= {choice}
            self.breaks = self.breaks or any(isinstance(event, Finish) and not _is_cut_off(event) for event in events)

    def translate(self, events: Iterable[ReplyEvent], choice: int) -> Iterable[ReplyEvent]:
        """Drop unknown origins; for a client of another API, also those attached to events, and place citations."""
        translated = self._translate_each(events, choice)
        return translated if self.same_api else self._place_citations(translated)

    def _place_citations(self, events: Iterable[ReplyEvent]) -> Iterable[ReplyEvent]:
        """Add the citations at the end of their text."""
        for event in events:
            if isinstance(event, Text | Rewritten):
                self.count_text(event.text if isinstance(event, Rewritten) else event.raw)
            elif not isinstance(event, Usage):
                yield from self._release_citations()
                self.in_text = False
                if isinstance(event, Start) or (isinstance(event, BlockStart) and event.kind == "text"):
                    self.block_start = self.text_length
            yield event

    def count_text(self, text: str) -> None:
        """Count text that the client was sent, also by the fast path."""
        self.text_length += len(text)
        self.in_text = self.in_text or bool(text.strip())

    def _release_citations(self) -> Iterable[Citations]:
        pending, self.citations = [entry for entries in list_chain(self.citations) for entry in entries], None
        if pending and self.cites and self.in_text:
            yield Citations(tuple(map(self._place_citation, pending)), self.text_length)
        elif pending:
            self.record_left_out("citations")

    def _place_citation(self, citation: Citation) -> Citation:
        end = min(self.block_start + citation.end, self.text_length)
        return replace(citation, start=min(self.block_start + citation.start, end), end=end)

    def _translate_each(self, events: Iterable[ReplyEvent], choice: int) -> Iterable[ReplyEvent]:
        for event in events:
            known = event
            if not self.same_api:
                if isinstance(event, Finish) and not (event.is_assumed or _is_cut_off(event)):
                    yield from self._complete_empty_calls(choice)
                known = self._translate_event(event, choice)
            elif self.strict:
                known = self._strip_call_source(event)
            own: Any = known if isinstance(known, Origin) else getattr(known, "own", None)
            harmless = own is not None and own.harmless and (not self.strict or has_distinct_keys(own.value))
            if own is None or (self.same_api and (harmless or not self.strict)):
                yield known
                continue
            lost = "" if harmless or not (self.same_api or own is known) else own.kind
            lost = lost if self.same_api else own.lost or lost
            if lost:
                self.record_left_out(lost)
            if own.citations and harmless and not self.same_api:
                self.citations = self.citations, own.citations
            if own is not known:
                yield replace(known, own=None)

    def _complete_empty_calls(self, choice: int) -> Iterable[ReplyEvent]:
        """Complete calls that were sent in pieces without arguments: the server declared the message complete."""
        for (call_choice, index), nesting in self.calls.items():
            if call_choice == choice and not nesting.begun:
                yield self._translate_event(CallDelta(index, arguments="{}", choice=choice), choice)

    def _strip_call_source(self, event: ReplyEvent) -> ReplyEvent:
        """Remove unknown fields from a call's object: they may contain another call."""
        if isinstance(event, Call) and event.call.source is not None:
            return replace(event, call=replace(event.call, source=self._select_call_fields(event.call.source)))
        if isinstance(event, CallDelta) and event.source is not None:
            return replace(event, source=self._select_call_fields(event.source))
        return event

    def _select_call_fields(self, source: object) -> dict[str, Any] | None:
        """Return the fields of a call's object in which no client finds another call; None if it is no object."""
        if not isinstance(source, dict):
            return None
        return {key: value for key, value in source.items() if key in self.call_fields}

    def _describe_fault(self, end: Finish, choice: int) -> str:
        """Describe why the end of a reply is an error for clients of another API; empty if it is none."""
        if end.reason == "failed":
            return f"T{describe_failed_end(end)[1:]}."
        calls = [nesting for (of, _), nesting in self.calls.items() if of == choice]
        is_cut = choice in self.cut_choices or any(nesting.is_cut or not nesting.begun for nesting in calls)
        if is_cut and not _is_cut_off(end):
            return "The server ended the reply in the middle of a tool call."
        return ""

    def record_left_out(self, kind: str) -> None:
        """Record that content of this kind was dropped."""
        self.left_out = self.left_out if kind in self.left_out else (*self.left_out, kind)

    def _translate_event(self, event: ReplyEvent, choice: int) -> ReplyEvent:
        """Convert an event to the equivalent of a server of the client's API."""
        match event:
            case CallDelta():
                key = choice, event.index
                so_far = self.calls.get(key, JsonNesting())
                self.calls = {**self.calls, key: so_far.advance(event.arguments)}
                return replace(event, source=None)
            case Call(call=call):
                if not call.name or not call.arguments or (self.breaks and is_cut(call.arguments)):
                    return Rewritten(event.raw, f"{call.name} {call.arguments}".strip())
                return replace(event, call=replace(call, source=None))
            case Finish() if reason := self._describe_fault(event, choice):
                return self._translate_event(Failure(reason, choice=choice), choice)
            case Failure():
                self.failure = event if event.message else Failure("The server broke off with an error.")
        return event


def _is_cut_off(end: Finish) -> bool:
    """Return True if the reply did not end well."""
    return end.reason in CUT_OFF
