"""The last stage for a text client: calls become text that the client parses as exactly these calls."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from vtc.dialects.text_client import conversation
from vtc.events import Call, CallPiece, CallText, Denied, Event, Intervention, Markup, Rewritten, Text, Tool, ToolCall
from vtc.exchange.replying.stages import MAX_GAP_NEWLINES, ForStructuredClient, TextEnd
from vtc.guards.output_filter import get_output_text
from vtc.profiles.plan import TextClient


def derive_tool(call: ToolCall) -> Mapping[str, Tool]:
    """Derive a minimal declaration of an unknown tool from its call."""
    return {call.name: Tool(call.name, "", {"properties": {key: {} for key in json.loads(call.arguments)}})}


class ForTextClient(ForStructuredClient):
    """Renders calls as text; calls that the client can parse keep their original characters."""

    def __init__(
        self, end: TextEnd, client: TextClient, tools: Mapping[str, Tool], delivered: Sequence[str], *, strict: bool
    ) -> None:
        """Set up the stage; `delivered` is the live list of names of the calls that the client received."""
        super().__init__(end)
        self._strict = strict
        self._client = client
        self._tools = tools
        self._delivered = delivered
        self._sent_pieces: list[str] = []
        """Text already sent of a call that is sent in pieces."""

    def feed(self, event: Event) -> Sequence[Event]:
        written = self._render(event)
        for part in written:
            self._text_end.extend(get_output_text(part)[-MAX_GAP_NEWLINES:])
        return written

    def _render(self, event: Event) -> Sequence[Event]:
        match event:
            case CallPiece():
                self._sent_pieces = [] if event.name else self._sent_pieces
                self._sent_pieces.append(event.raw)
                return (Text(event.raw),)
            case Call():
                return self._render_whole(event) if event.rest is None else self._render_rest(event, event.call)
            case Denied(manner="text"):  # the client would execute its text
                return (self._render_denied(replace(event, manner="steer")),)
            case Denied():
                return (self._render_denied(event),)
            case Markup(raw) if raw.isspace() and self._delivered:
                return (Text(raw),)  # follows a call that kept its place in the text
        return (event,)

    def _render_whole(self, event: Call) -> Sequence[Event]:
        call, client = event.call, self._client
        readable = conversation.is_readable(event, client.dialect)
        if readable and (not self._strict or self._is_parsed_as(event.raw, call)):
            return self._split_after_call(event.raw, event.raw, call.name)
        tools = self._tools or derive_tool(call)  # the client's prompt does not document all of its tools
        written = conversation.write_for_client(call, client.dialect, tools, client.profile.known_parameters)
        if not self._is_parsed_as(written, call):
            reason = "this client would parse other arguments from its text"
            message = f"The call of `{call.name}` was not passed on: {reason}."
            return (
                Intervention("unread_calls", "refused", call.name, reason),
                self._render_denied(Denied(event.raw, call, "steer", message)),
            )
        parts = self._split_after_call(
            event.raw, self._text_end.render_missing_breaks(client.profile.call_gap) + written, call.name
        )
        if readable:
            reason = "this client would have parsed other arguments"
            parts = [Intervention("unread_calls", "changed", call.name, reason), *parts]
        return parts

    def _split_after_call(self, raw: str, text: str, name: str) -> list[Event]:
        """Split a rendered call from the text after it, which the client does not parse as one of its calls.

        The client looks for calls inside the text of an unknown tool.
        """
        known, dialect = self._client.profile.known_tools, self._client.dialect
        if known and name not in known:
            opener = "".join(conversation.list_openers(dialect, [name]))
            end = text.find(opener) + len(opener)
        else:
            closer = conversation.get_closer(dialect, name)
            end = text.rfind(closer) + len(closer)
        if end == len(text):
            return [CallText(raw, text)]
        if raw == text:
            return [CallText(text[:end], text[:end]), Text(text[end:])]
        return [CallText(raw, text[:end]), Rewritten("", text[end:])]

    def _render_rest(self, event: Call, call: ToolCall) -> Sequence[Event]:
        """Finish a call that was sent in part: unchanged, or so that the client parses the repaired arguments."""
        client, left = self._client, "".join(self._sent_pieces)
        if conversation.is_readable(replace(event, raw=left + event.raw), client.dialect):
            return (Text(event.raw),)
        written = conversation.write_for_client(call, client.dialect, self._tools, client.profile.known_parameters)
        rest = conversation.strip_beginning(left, written)
        if rest is not None and self._is_parsed_as(left + rest, call):
            return (Rewritten(event.raw, rest),)
        reason = "it is not repaired, because a part of it was sent already"
        return Intervention("unread_calls", "passed", call.name, reason), Text(event.raw)

    def _is_parsed_as(self, text: str, call: ToolCall) -> bool:
        """Return True if the client parses exactly the checked call, because no policy or limit sees it again."""
        client, tools = self._client, self._tools or derive_tool(call)
        return conversation.is_read_as(
            text, call, client.dialect, tools, client.profile.known_tools, client.profile.known_parameters
        )
