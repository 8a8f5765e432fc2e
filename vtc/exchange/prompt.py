"""A request as its server's prompt cache sees it: tools and messages as texts, in the order in which they are read.

What the cache does not see is left out: marks for it, the form in which a client writes a text, ids of its items.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from vtc.apis.content import is_billing
from vtc.events import Media, Message, Opaque, Tool
from vtc.json_text import encode


class Unit(NamedTuple):
    """A tool or a message."""

    name: str
    """`tool read`, or the role of a message."""
    text: str


class Prompt(NamedTuple):
    """All that left for the model."""

    tools: tuple[Unit, ...]
    messages: tuple[Unit, ...]

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return sum(sys.getsizeof(unit.text) + 100 for unit in (*self.tools, *self.messages))

    @property
    def spoken(self) -> tuple[Unit, ...]:
        """The messages but for the system's."""
        return tuple(unit for unit in self.messages if unit.name != "system")


def prompt(
    messages: Sequence[Message],
    tools: Iterable[Tool],
    meaning: Callable[[object], str | Media | None],
    *,
    skips_billing: bool = False,
) -> Prompt:
    """Write what leaves as a prompt. `meaning` tells what a part is that is no text.

    `skips_billing` leaves out the line that Claude Code puts before its prompt.
    """

    def said(part: str | Opaque) -> str:
        if isinstance(part, str):
            return part
        found = part.media or meaning(part.part)
        if isinstance(found, str):
            return "" if skips_billing and is_billing(found) else found
        if found is None:
            return encode({key: one for key, one in part.part.items() if key != "cache_control"}).decode()
        return f"({found.kind} {_digest(found.data or found.url)})"

    return Prompt(
        tuple(Unit(f"tool {tool.name}", _tool(tool)) for tool in tools),
        tuple(Unit(message.role, "\n".join(_parts(message, said))) for message in messages),
    )


def _parts(message: Message, said: Callable[[str | Opaque], str]) -> Iterator[str]:
    if message.reasoning:
        yield message.reasoning
    yield from map(said, message.content)
    for call in message.calls:
        yield f"-> {call.name} {call.arguments}"


def _tool(tool: Tool) -> str:
    return f"{tool.description}\n{encode(tool.parameters).decode()}"


def _digest(data: str) -> str:
    return hashlib.blake2b(data.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
