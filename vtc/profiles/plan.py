"""The decision about one exchange: how to change the request, read the reply and write the result.

`planner` makes it. What the profiles and the user's options say is asked of them (`ProfileStack`); the rest depends on
the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from vtc.apis.bridge import REASONING_FIELDS, ReasoningField
from vtc.dialects.reading.reader import UnknownTools
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import TagPairs
from vtc.events import Tool
from vtc.profiles.memory import ConversationQuirks, Learned, Quirks
from vtc.profiles.schema import ClientProfile
from vtc.profiles.settings import ProfileStack


class TextClient(msgspec.Struct, frozen=True):
    """A client that declares tools in its prompt and reads calls out of the text."""

    dialect: Description
    """How it writes and reads calls."""
    profile: ClientProfile
    """How it wants them."""


class ToolProtocol(msgspec.Struct, frozen=True, kw_only=True):
    """The way that tools and calls travel between this client and this model."""

    tools: tuple[Tool, ...] = ()
    """The client's tools, declared in the request or documented in the prompt; policies may withhold some of them."""
    dialects: tuple[Description, ...] = ()
    """The dialects in which calls are looked for in the reply, the expected ones first; with none no text is read."""
    write: Description | None = None
    """The dialect in which calls and results of the conversation are written; None leaves them."""
    prompt_tools: bool = False
    """The tools are written into the prompt, in the same dialect."""
    promote: bool = False
    """A text client's tools, calls and results are sent to the model as the API's own fields."""
    client_text: TextClient | None = None
    """The client, if tools, calls and results stand in the conversation as text; None if it sends them as fields."""
    max_calls: int | None = None
    """Calls of a reply after these are dropped; None is no limit."""
    limits_native: bool = False
    """`max_calls` also holds for upstream's own calls."""
    why: tuple[str, ...] = ()
    """How it came about, in lines for people."""

    @property
    def by_name(self) -> dict[str, Tool]:
        """The client's tools by name."""
        return {tool.name: tool for tool in self.tools}

    @property
    def is_native(self) -> bool:
        """True if calls of the conversation stay the API's own fields."""
        return self.write is None and self.client_text is None


class Thinking(msgspec.Struct, frozen=True):
    """The marks of reasoning in a reply, and where that goes."""

    tags: TagPairs
    to: Literal["reasoning_content", "keep", "drop"] = "reasoning_content"
    may_begin_inside: bool = False
    """The prompt may have opened the first of the tags."""
    begins_inside: bool = False
    """A stream is taken to begin inside; a whole reply shows it."""
    may_show: bool = False
    """A whole reply in which a closing tag stands that nothing opened began inside."""
    learned: Learned | None = None
    """Takes what this reply shows."""
    never: bool = False
    """The model is known not to think, or was asked not to."""

    def begins(self, *, whole: bool) -> Literal["text", "reasoning", "unknown", "either"]:
        """Tell what a reply begins with, as its reader is told; a `whole` one shows it."""
        if whole and self.may_begin_inside:
            return "unknown"
        if whole and self.may_show:
            return "either"
        return "reasoning" if self.begins_inside else "text"


class ReadingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The settings by which the text of the reply is read."""

    dialects: tuple[Description, ...] = ()
    """The dialects in which calls are looked for, the expected ones first; with none no text is read."""
    tools: Mapping[str, Tool] = {}
    """The tools by each name under which a model may call them: also the names that a reactor renames."""
    lenient: bool = True
    """Malformed calls are repaired."""
    unknown_tools: UnknownTools = "text"
    own: frozenset[str] = frozenset()
    """The names of the dialects of which the special tokens are those of the model."""
    echo: Literal["text", "steer", "call"] = "text"
    """What a call is that stands in a result of the request: text, a message in its place, or a call."""
    max_call_bytes: int = 1 << 20
    thinking: Thinking = Thinking(())
    """How its reasoning is marked."""
    markers: tuple[str, ...] = ()
    """Texts that are taken out, as they are no part of the reply."""
    answer: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The markers that begin an answer, in which nothing is a call, and those that end it."""


class StandIn(msgspec.Struct, frozen=True):
    """The only model of a server, where it may have none of the name that is asked."""

    model: str = ""
    """Empty if there is none."""
    names: Quirks = msgspec.field(default_factory=Quirks)
    """Takes it that the server refused this name."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about one exchange."""

    stack: ProfileStack = ProfileStack()
    """The profiles and the user's options."""
    protocol: ToolProtocol = ToolProtocol()
    """How tools and calls travel."""
    reading: ReadingPlan = ReadingPlan()
    """How the text of the reply is read."""
    why: tuple[str, ...] = ()
    """How it came about, in lines for people."""
    offered: tuple[Tool, ...] = ()
    """The tools that the model is told about: all of them but those withheld."""
    withheld: frozenset[str] = frozenset()
    """Names of tools that the client offers and a policy does not."""
    unoffered: frozenset[str] = frozenset()
    """Names that the request declares and does not offer now, such as those its `tool_choice` leaves out: a call of one
    in the text stays text, as the client would carry it out."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    steps: Mapping[str, Any] = {}
    """The steps that make the request ready for the server, by name and value."""
    learned: Learned = msgspec.field(default_factory=Learned)
    """Takes the dialect in which the model calls."""
    quirks: ConversationQuirks = msgspec.field(default_factory=ConversationQuirks)
    """Takes the steps that the server taught by what it refused."""
    thoughts: ReasoningField = REASONING_FIELDS[0]
    """The field in which the server wants what the model thought before, if it does not stand there already."""
    buffered: bool = False
    """Upstream is asked for a whole reply, which is read before the client is sent any of it, as a stream."""
    server_model: str = ""
    """The model that the server is asked for, where that is not the one of the request."""
    stand_in: StandIn = msgspec.field(default_factory=StandIn)
    """The one that it is asked for if it refuses the name of the request."""

    def request_lines(self) -> list[str]:
        """Tell people what does not show otherwise: tools that are not offered, fields that are set."""
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
        return any(guards.on_calls for guards in self.stack.guards)

    @property
    def is_strict(self) -> bool:
        """True if nothing may leave that was not read: a policy that refuses calls would not have seen it."""
        return any(guards.is_strict for guards in self.stack.guards)

    @property
    def checks_text(self) -> bool:
        """True if a policy must see the text before the client does."""
        return any(guards.content for guards in self.stack.guards)

    @property
    def in_pieces(self) -> bool:
        """True if calls in the text of a stream leave as they are read, where that is possible."""
        return self.stack.client.deliver == "incremental" and not (self.stack.guards or self.buffered)

    @property
    def may_change_reply(self) -> bool:
        """True if this plan can change the reply. If False, the body is streamed through unread."""
        protocol, stack = self.protocol, self.stack
        reads = bool(self.reading.dialects and protocol.tools) or protocol.client_text is not None
        changes = bool(stack.response_drop or stack.response_thoughts or stack.silences or self.server_model)
        return reads or self.checks_calls or self.checks_text or changes or self.buffered
