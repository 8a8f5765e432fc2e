"""A request as its server's prompt cache sees it: tools and messages as texts, in the order in which they are read.

What the cache does not see is left out: marks for it, the form in which a client writes a text, ids of its items.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from vtc.apis.content import is_billing
from vtc.events import Media, Message, Opaque, Seal, Tool
from vtc.json_text import encode

ENTRY = 100
"""Bytes that a tool or message takes beside its text."""


class Unit(NamedTuple):
    """A tool or a message."""

    name: str
    """`tool read`, or the role of a message."""
    text: str


class Prompt(NamedTuple):
    """All that left for the model."""

    tools: tuple[Unit, ...]
    messages: tuple[Unit, ...]

    size: int
    """Bytes that it takes."""

    @property
    def spoken(self) -> tuple[Unit, ...]:
        """The messages but for the system's."""
        return tuple(unit for unit in self.messages if unit.name != "system")


def prompt(
    messages: Sequence[Message],
    tools: Iterable[Tool],
    meaning: Callable[[Any], str | Media | Seal | None],
    *,
    skips_billing: bool = False,
) -> Prompt:
    """Write what leaves as a prompt. `meaning` tells what a part is that is no text.

    `skips_billing` leaves out the line that Claude Code puts before its prompt.
    """

    def said(part: str | Opaque) -> str:
        if isinstance(part, str):
            return part
        if part.thought:
            return f"(thought {_digest(repr(part.thought))})"
        found = part.media or meaning(part.part)
        if isinstance(found, str):
            return "" if skips_billing and is_billing(found) else found
        if not isinstance(found, Media):
            return encode({key: one for key, one in part.part.items() if key != "cache_control"}).decode()
        return f"({found.kind} {_digest(found.data or found.url)})"

    declared = tuple(Unit(f"tool {tool.name}", _tool(tool)) for tool in tools)
    spoken = tuple(Unit(message.role, _text(message, said)) for message in messages)
    return Prompt(declared, spoken, sum(sys.getsizeof(unit.text) + ENTRY for unit in (*declared, *spoken)))


def _text(message: Message, said: Callable[[str | Opaque], str]) -> str:
    content = message.content
    if not (message.calls or message.reasoning) and len(content) == 1:  # as for nearly all
        return said(content[0])
    thought = [message.reasoning] if message.reasoning else []
    return "\n".join([*thought, *map(said, content), *(f"-> {one.name} {one.arguments}" for one in message.calls)])


def _tool(tool: Tool) -> str:
    return f"{tool.description}\n{encode(tool.parameters).decode()}"


def _digest(data: str) -> str:
    return hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
