"""The stage that applies content rules to all text that the client will see, including the text of denied calls."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vtc.apis.calls import parse_object
from vtc.events import Call, Denied, Event, Intervention, Rewritten, Text
from vtc.exchange.replying.stages import Stage, format_denied_call
from vtc.guards.chain import build_content_chain
from vtc.guards.content import Rule
from vtc.guards.output_filter import get_output_text


class ContentRules(Stage):
    """Applies content rules to the text between calls, and to text and messages that replace a call.

    It follows the policies on calls and precedes the rendering for the client.
    """

    reads_text = True

    def __init__(self, rules: Sequence[Rule], *, structured: bool, crosses: bool) -> None:
        """Set up the stage; a `structured` client is sent the text of a denied call unchanged.

        On a bridge (`crosses`), a call whose arguments are no JSON object is sent as text.
        """
        self._rules = build_content_chain(rules)
        self._structured = structured
        self._crosses = crosses

    def feed(self, event: Event) -> Sequence[Event]:
        match event:
            case Rewritten(text=text):
                filtered, out = self._filter(text)
                return [*out, replace(event, text=filtered)]
            case Denied(manner="text", raw=raw) if raw and self._structured:
                return self._rules.feed(Text(raw))  # part of the text around it
            case Denied(manner="text" | "steer") as denied:
                is_native_text = denied.manner == "text" and self._structured
                message, out = self._filter(format_denied_call(denied.call) if is_native_text else denied.message)
                return [*out, replace(denied, manner="steer" if message else "drop", message=message)]
            case Call(call=call) if self._crosses and not call.is_custom and parse_object(call.arguments) is None:
                arguments, out = self._filter(call.arguments)
                return [*out, replace(event, call=replace(call, arguments=arguments))]
        return self._rules.feed(event)

    def finish(self) -> Sequence[Event]:
        return self._rules.finish()

    def _filter(self, text: str) -> tuple[str, list[Event]]:
        """Filter a separate text; return it, and the events to send before it."""
        before = self._rules.finish()
        events = [*self._rules.feed(Text(text)), *self._rules.finish()]
        notes = [event for event in events if isinstance(event, Intervention)]
        return "".join(map(get_output_text, events)), [*before, *notes]
