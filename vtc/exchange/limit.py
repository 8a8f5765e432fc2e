"""Hold calls to the tools that are offered, and to the number that the client takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from vtc.dialects.reading.after_call import EXCERPT
from vtc.dialects.syntax import tool_names
from vtc.events import NATIVE, Call, CallPiece, Event, Intervention, Markup, Refusal, Text
from vtc.profiles.plan import ReplyPlan


class Limit:
    """Holds calls to the tools that are offered, and to the number that the client takes."""

    def __init__(self, plan: ReplyPlan, tools: Collection[str]) -> None:
        self.most = plan.max_calls
        self._unknown_tools = plan.unknown_tools
        self._unoffered = plan.unoffered
        self._tools = tools
        self.delivered: list[str] = []
        """Names of the calls that went on."""
        self.extra: list[str] = []
        """Names of those that were too many, and the client was not told of."""
        self._as_text = plan.client_text is not None
        self._drops = False
        """True while a call that leaves in pieces is one of these."""
        self._dropped: list[str] = []
        """The text of that."""

    def feed(self, event: Event) -> Sequence[Event]:
        if isinstance(event, CallPiece):
            return self._piece(event)
        broken = "".join(self._dropped)
        self._dropped.clear()
        if not isinstance(event, Call) or event.rest is None:
            return (Text(broken), *self._limited(event)) if broken else self._limited(event)
        if self._drops:
            return self._limited(replace(event, raw=broken + event.raw))
        self.delivered += [event.call.name] * self._as_text
        return (event,)

    def _limited(self, event: Event) -> Sequence[Event]:
        if not isinstance(event, Call):
            return (event,)
        name, most = event.call.name, self.most
        if event.dialect != NATIVE and name not in self._tools and not self._may_be_unknown(name):
            # It was read for a reactor, which did not want it, or the request does not offer it now.
            reason = tool_names.refused(name, self._tools)
            drops = self._unknown_tools == "drop"
            told = Refusal(reason, event.dialect, name, event.raw[:EXCERPT], malformed=False, left_out=drops)
            return told, Markup(event.raw) if drops else Text(event.raw)
        if most is not None and len(self.delivered) >= most:
            self.extra.append(name)
            reason = f"only {most} call{'s' * (most > 1)} a reply"
            return Intervention("max_calls", "dropped", name, reason, event.raw[:EXCERPT]), Markup(event.raw)
        self.delivered.append(name)
        return (event,)

    def _piece(self, piece: CallPiece) -> Sequence[Event]:
        """Count a call that leaves in pieces as it begins; as text it is one when it is complete."""
        if piece.name:
            self._drops = self.most is not None and len(self.delivered) >= self.most
            self.delivered += [] if self._drops or self._as_text else [piece.name]
        if not self._drops:
            return (piece,)
        self._dropped.append(piece.raw)
        return ()

    def _may_be_unknown(self, name: str) -> bool:
        """True if a call of a tool that is not offered may leave: the client knows none of this name."""
        return self._unknown_tools == "allow" and tool_names.resolve(name, self._unoffered) is None
