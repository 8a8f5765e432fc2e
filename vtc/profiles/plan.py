"""The decision about one exchange: how to change the request, read the reply and write the result.

Each part is all that its user needs: `outgoing` takes the `RequestPlan`, a reader is made from the `ReadingPlan`, and
what was read is dealt with by the `ReplyPlan`. `planner` makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from vtc.apis.crossing import FIELDS, Field
from vtc.dialects.reading.reader import UnknownTools
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import Tags
from vtc.events import Tool
from vtc.guards.chain import Guards
from vtc.guards.loops import Loop
from vtc.profiles.memory import Learned, Lessons
from vtc.profiles.schema import ErrorReply, FinalCall, Retry


@dataclass(frozen=True, slots=True)
class TextClient:
    """How a client that declares tools in its prompt and reads calls out of the text wants them."""

    dialect: Description
    tool_sections: tuple[str, ...]
    gap: int
    """Newlines between the text and a call that is written for it."""
    extra_calls: Literal["note", "drop"]
    final_call: FinalCall | None = None
    known_tools: tuple[str, ...] = ()
    """All tools that it knows how to use, also those that its prompt does not document; empty if that is unknown."""
    known_parameters: tuple[str, ...] = ()
    """All parameters that it reads, of whichever tool; empty if that is unknown."""


class RequestPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done to the request before it goes upstream."""

    offered: tuple[Tool, ...] = ()
    """The tools that the model is told about: all of them but those withheld."""
    withheld: frozenset[str] = frozenset()
    """Names of tools that the client offers and a policy does not."""
    tool_choice: str = "auto"
    """The demand that is written into the prompt: as `ReplyPlan.tool_choice`."""
    client_text: TextClient | None = None
    """How tools, calls and results stand in the conversation as text; None for a client that sends them as fields."""
    write: Description | None = None
    """The dialect in which calls and results of the conversation are written; None leaves them."""
    prompt_tools: bool = False
    """The tools are written into the prompt, in the same dialect."""
    promote: bool = False
    """A text client's tools, calls and results are sent to the model as the API's own fields."""
    set: Mapping[str, Any] = {}
    """Fields at the top of the body, and their values."""
    drop: tuple[str, ...] = ()
    """Dotted paths of fields that are left out."""
    unstreamed: bool = False
    """Upstream is asked for a whole reply although the client asked for a stream: as `ReplyPlan.buffered`."""
    ready: Mapping[str, Any] = {}
    """The steps that make it ready for the server, by name and value."""
    as_is: bool = False
    """The server takes requests as they come, and its errors are those that clients know."""
    lessons: Lessons = msgspec.field(default_factory=Lessons)
    """Takes the steps that the server taught by what it refused."""
    thoughts: Field = FIELDS[0]
    """The field in which the server wants what the model thought before, if it does not stand there already."""
    recalls: bool = False
    """The model is given back the text of what it thought before the calls of past turns, where the client lost it."""
    skips_billing: bool = False
    """The server keeps what Claude Code puts before its prompt, and changes in each request, out of the prompt."""
    loops: tuple[Loop, ...] = ()
    """Limits beyond which the agent is stopped, or told that it goes round in circles."""

    def told(self) -> list[str]:
        """Say what nobody would see otherwise: tools that are not offered, fields that are set."""
        lines = []
        if self.withheld:
            count = len(self.withheld)
            lines.append(f"{count} tool{'s' * (count != 1)} not offered ({', '.join(sorted(self.withheld))})")
        lines += [f"{key}: {json.dumps(value, ensure_ascii=False)} set" for key, value in self.set.items()]
        return lines


class Thinking(msgspec.Struct, frozen=True):
    """How a reply marks its reasoning, and where that goes."""

    tags: Tags
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
    """How the text of the reply is read."""

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


class ReplyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to write the calls and the text that were read, and upstream's own calls."""

    client_text: TextClient | None = None
    """How the client reads calls as text; None for `tool_calls`."""
    guards: tuple[Guards, ...] = ()
    """Policies, in the order in which they act."""
    tool_choice: str = "auto"
    """`auto`, `none`, `required`, or the name of the tool that must be called."""
    max_calls: int | None = None
    """Calls after these are dropped; None is no limit."""
    limits_native: bool = False
    """`max_calls` also holds for upstream's own calls."""
    ids: Literal["short", "alphanumeric9"] | None = None
    """The form of ids that are made."""
    lenient: bool = True
    """Upstream's own calls are repaired when they are written as text: as `ReadingPlan.lenient`."""
    unknown_tools: UnknownTools = "text"
    """What becomes of a call that was read for a reactor and that the reactor left alone: as
    `ReadingPlan.unknown_tools`."""
    unoffered: frozenset[str] = frozenset()
    """Names that the request declares and does not offer now, such as those its `tool_choice` leaves out: a call of one
    in the text stays text, as the client would carry it out."""
    drop: frozenset[str] = frozenset()
    """Names of fields that the client is not sent."""
    thoughts: tuple[str, ...] = ()
    """The fields in which the client is told what the model thinks, if its API has several; none for the server's."""
    errors: tuple[ErrorReply, ...] = ()
    """Errors of the server that hold a reply."""
    retry: Retry | None = None
    in_pieces: bool = False
    """Calls in the text of a stream leave as they are read, where that is possible."""
    buffered: bool = False
    """The whole reply is read before the client is sent any of it, as a stream."""

    @property
    def checks_calls(self) -> bool:
        """True if a policy must see every call before the client does."""
        return any(guards.on_calls for guards in self.guards)

    @property
    def is_strict(self) -> bool:
        """True if nothing may leave that was not read: a policy that refuses calls would not have seen it."""
        return any(guards.is_strict for guards in self.guards)

    @property
    def checks_text(self) -> bool:
        """True if a policy must see the text before the client does."""
        return any(guards.content for guards in self.guards)


class Plan(msgspec.Struct, frozen=True):
    """The decision about one exchange; `why` says in lines for people how it came about."""

    client: str
    model: str
    why: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    """The client's tools, declared in the request or documented in the prompt; policies may withhold some of them."""
    request: RequestPlan = RequestPlan()
    reading: ReadingPlan = ReadingPlan()
    reply: ReplyPlan = ReplyPlan()
    server_apis: tuple[str, ...] = ()
    """The APIs that the server speaks, the one for clients of any other first; none for that of the client."""
    server_path: str = ""
    """The path of the first on the server, where it is not the usual one."""
    server_model: str = ""
    """The model that the server is asked for, where that is not the one of the request."""

    @property
    def may_change_reply(self) -> bool:
        """True if this plan can change the reply. If False, the body is streamed through unread."""
        reply = self.reply
        reads = bool(self.reading.dialects and self.tools) or reply.client_text is not None
        return reads or reply.checks_calls or reply.checks_text or bool(reply.drop or reply.thoughts) or reply.buffered
