"""The plan of one exchange: how to change the request, read the reply and render the result.

`planner` makes it. The profiles and the user's options are queried through `ProfileStack`; the rest depends on the
request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Literal

import msgspec

from vtc.apis.bridge import REASONING_FIELDS, ReasoningField
from vtc.dialects.reading.context import ReasoningSyntax, ReplySyntax
from vtc.dialects.reading.reader import UnknownTools
from vtc.dialects.syntax.description import Description
from vtc.events import Tool
from vtc.profiles.memory import HeldQuirks, KnownQuirks, Learned, Quirks
from vtc.profiles.schema import ClientProfile
from vtc.profiles.stack import ProfileStack


class TextClient(msgspec.Struct, frozen=True):
    """A client that declares tools in its prompt and reads calls out of the text."""

    dialect: Description
    """Its dialect."""
    profile: ClientProfile
    """Its preferences."""


class ToolProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """How tools and calls travel between this client and this model."""

    tools: tuple[Tool, ...] = ()
    """The client's tools, declared in the request or documented in the prompt; policies may withhold some of them."""
    dialects: tuple[Description, ...] = ()
    """The dialects to search the reply for, the expected ones first; empty if no text is read."""
    write: Description | None = None
    """The dialect in which the conversation's calls and results are rendered; None leaves them unchanged."""
    prompt_tools: bool = False
    """The tools are rendered into the prompt, in the same dialect."""
    promote: bool = False
    """A text client's tools, calls and results are sent to the model in the API's own fields."""
    client_text: TextClient | None = None
    """The client, if tools, calls and results are text in the conversation; None if it sends them as fields."""
    max_calls: int | None = None
    """Later calls of a reply are dropped; None is no limit."""
    limits_native: bool = False
    """`max_calls` also limits native tool calls."""
    why: tuple[str, ...] = ()
    """The reasons, in lines for people."""

    @property
    def by_name(self) -> dict[str, Tool]:
        """The client's tools by name."""
        return {tool.name: tool for tool in self.tools}

    @property
    def is_native(self) -> bool:
        """True if the conversation's calls stay in the API's own fields."""
        return self.write is None and self.client_text is None


class Thinking(ReasoningSyntax, frozen=True):
    """The reasoning of a reply, as planned for one exchange."""

    learned: Learned | None = None
    """Records the observation of this reply."""


class ReadingPlan(ReplySyntax, frozen=True, kw_only=True):
    """How the text of the reply is read."""

    tools: Mapping[str, Tool] = {}
    """The tools by each name that a model may use, including names that a reactor renames."""
    lenient: bool = True
    """Malformed calls are repaired."""
    unknown_tools: UnknownTools = "text"
    echo: Literal["text", "steer", "call"] = "text"
    """Handling of a call that repeats one in a tool result of the request: as text, as a message in its place, or as a
    call."""
    max_call_bytes: int = 1 << 20
    thinking: Thinking = Thinking()


class StandIn(msgspec.Struct, frozen=True):
    """The only model of a server, used if the server has no model of the requested name."""

    model: str = ""
    """Empty if there is none."""
    names: Quirks = msgspec.field(default_factory=Quirks)
    """Records that the server rejected the requested name."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about one exchange."""

    stack: ProfileStack = ProfileStack()
    """The profiles and the user's options."""
    protocol: ToolProtocol = ToolProtocol()
    """How tools and calls travel."""
    reading: ReadingPlan = ReadingPlan()
    """How the text of the reply is read."""
    why: tuple[str, ...] = ()
    """The reasons, in lines for people."""
    offered: tuple[Tool, ...] = ()
    """The tools that the model is offered: all except those withheld."""
    withheld: frozenset[str] = frozenset()
    """Names of tools that the client offers and a policy withholds."""
    unoffered: frozenset[str] = frozenset()
    """Names that the request declares but does not offer now, for example because `tool_choice` excludes them: a text
    tool call of such a tool stays text, because the client would carry it out."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    steps: Mapping[str, Any] = {}
    """The steps that prepare the request for the server, by name and value."""
    learned: Learned = msgspec.field(default_factory=Learned)
    """Records the dialect in which the model calls."""
    quirks: KnownQuirks = msgspec.field(default_factory=lambda: KnownQuirks(Quirks(), HeldQuirks()))
    """Records the quirks learned from the server's rejections."""
    thoughts: ReasoningField = REASONING_FIELDS[0]
    """The field in which the server expects past reasoning, if it is not there already."""
    buffered: bool = False
    """The server is asked for a whole reply, which is read before any of it is streamed to the client."""
    server_model: str = ""
    """The model to request from the server if it differs from the client's."""
    stand_in: StandIn = msgspec.field(default_factory=StandIn)
    """The model to request if the server rejects the requested name."""

    @property
    def model_line(self) -> str:
        """State the profile of the model with the reason, and the treatment of its malformed calls."""
        repairs = "are repaired" if self.reading.lenient else "stay text"
        return f"{next(islice(self.why, 1, None), 'its profile is unknown')}; its malformed calls {repairs}"

    def request_lines(self) -> list[str]:
        """List the changes that people would not see otherwise: withheld tools and fields that are set."""
        lines = []
        if self.withheld:
            count = len(self.withheld)
            lines.append(f"{count} tool{'s' * (count != 1)} not offered ({', '.join(sorted(self.withheld))})")
        fields = self.stack.request.set.items()
        return lines + [f"{key}: {json.dumps(value, ensure_ascii=False)} set" for key, value in fields]

    @property
    def demands(self) -> bool:
        """True if the model must call a tool."""
        return self.tool_choice not in ("auto", "none")

    @property
    def checks_calls(self) -> bool:
        """True if a policy must see every call before the client does."""
        return any(guards.checks_calls for guards in self.stack.guards)

    @property
    def is_strict(self) -> bool:
        """True if nothing unread may be forwarded, because a policy that denies calls would not have seen it."""
        return any(guards.is_strict for guards in self.stack.guards)

    @property
    def checks_text(self) -> bool:
        """True if a policy must see the text before the client does."""
        return any(guards.content for guards in self.stack.guards)

    @property
    def stops_repeats(self) -> bool:
        """True if a reply that repeats itself is ended, or its text is cut."""
        by_policy = any(guards.stop_repeats for guards in self.stack.guards)
        return {"on": True, "off": False}.get(self.stack.settings.stop_repeats, by_policy)

    @property
    def in_pieces(self) -> bool:
        """True if text tool calls of a stream are forwarded in pieces, if possible."""
        return self.stack.client.deliver == "incremental" and not (self.stack.guards or self.buffered)

    @property
    def may_change_reply(self) -> bool:
        """True if this plan can change the reply. If False, the body is streamed through unread."""
        protocol, stack = self.protocol, self.stack
        reads = bool(self.reading.dialects and protocol.tools) or protocol.client_text is not None
        changes = bool(stack.response_drop or stack.response_thoughts or stack.silences or self.server_model)
        changes = changes or self.stops_repeats
        return reads or self.checks_calls or self.checks_text or changes or self.buffered
