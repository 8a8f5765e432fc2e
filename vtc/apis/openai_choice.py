"""One choice of a streamed chat completion: what is held of it, and what upstream's own calls add up to."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from vtc.apis.base import Channel
from vtc.apis.openai_json import said
from vtc.events import Call, Event, Rewritten, Text, ToolCall


@dataclass(slots=True)
class Held:
    """A frame whose text has not all left. A long call is thousands of them, so there is little in it."""

    text: str
    raw: bytes
    """The frame; it may hold more choices than this one."""
    whole: bool
    """Whether nothing of it has left, so that it may leave as it came."""
    lines: bytes = b""
    """Other lines of its frame (`event:`, `id:`) that have not left."""
    passed: str = ""
    """Text that may leave while white space behind it may not yet. For a client that reads text it waits for that, so
    that a reply which needs no change keeps its frames; for any other it leaves at once."""


@dataclass(slots=True)
class Choice:
    """One choice of the reply."""

    index: int
    channel: Channel
    held: deque[Held] = field(default_factory=deque)
    calls: int = 0
    role_sent: bool = False
    native: bool = False  # upstream sends tool_calls itself: its text is not read any more
    finished: bool = False
    gathered: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Upstream's own calls by index, where the channel takes them; their parts arrive in pieces and interleaved."""
    frames: list[tuple[bytes, dict[str, Any]]] = field(default_factory=list)
    """The frames that those came in, and what else each says: calls that nobody changes leave in them."""
    apart: bool = False  # such a frame has left already, without its calls
    before: dict[int, dict[str, Any]] | None = None
    """`gathered` as it was before the frame that is being read, if that adds to it."""
    settled: bool = False
    """Upstream's own calls have left, or what was made of them."""

    def untouched(self, events: Sequence[Event], text: str) -> list[bytes] | None:
        """The frames held before one that says `text`, if what the client sees now is all of theirs and its own."""
        if not self.held:
            return [] if says(events, text) else None
        if len(events) != 1 or not isinstance(events[0], Text):
            return None
        waited = len(events[0].raw) - len(text)
        if waited != sum(len(held.text) for held in self.held) or not all(held.whole for held in self.held):
            return None
        frames = [held.raw for held in self.held]
        self.held.clear()
        return frames

    def gather(self, delta: Mapping[str, Any]) -> None:
        if self.before is None:
            self.before = {index: {**whole, "source": {**whole["source"]}} for index, whole in self.gathered.items()}
        entries = delta.get("tool_calls") or [{"index": 0, "function": delta["function_call"]}]
        for entry in entries:
            function = entry.get("function") or {}
            empty: dict[str, Any] = {"id": None, "name": "", "arguments": "", "source": {}}
            whole = self.gathered.setdefault(self._index(entry), empty)
            whole["source"].update(entry)
            whole["id"] = whole["id"] or entry.get("id")
            whole["name"] += function.get("name") or ""
            arguments = function.get("arguments") or ""
            whole["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)

    def _index(self, entry: Mapping[str, Any]) -> int:
        """Which call an entry belongs to; of servers that number nothing, a new id or a second name begins another."""
        if isinstance(entry.get("index"), int):
            return int(entry["index"])
        if not self.gathered:
            return 0
        last = max(self.gathered)
        whole, id_, name = self.gathered[last], entry.get("id"), (entry.get("function") or {}).get("name")
        return last + bool((name and whole["name"]) or (id_ and id_ != whole["id"]))

    def entries(self) -> list[dict[str, Any]]:
        """Upstream's own calls as far as they came, as one delta has them."""
        return [
            {
                **whole["source"],
                "index": index + self.calls,
                "function": {"name": whole["name"], "arguments": whole["arguments"]},
            }
            for index, whole in sorted(self.gathered.items())
        ]

    def end(self, *, complete: bool) -> list[Event]:
        """The end of the choice: what the channel still holds, then what it makes of upstream's own calls."""
        calls = [
            ToolCall(whole["name"], whole["arguments"] or "{}", whole["id"] or f"call_{index}", whole["source"])
            for index, whole in sorted(self.gathered.items())
        ]
        events = self.channel.finish(complete=complete, calls=calls)
        made = [event.call for event in events if isinstance(event, Call)]
        self.apart = self.apart or made != calls or any(isinstance(event, Rewritten) for event in events)
        return events


def says(events: Sequence[Event], text: str) -> bool:
    """Whether what the client sees of some events is just this text."""
    if len(events) == 1:
        return said(events[0]) == text
    return "".join(map(said, events)) == text


class Mark:
    """What a choice holds before a frame is read and written: if that fails, none of it has left."""

    __slots__ = ("_apart", "_calls", "_choice", "_counts", "_held", "_lists")

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._lists = choice.held, choice.frames
        self._counts = len(choice.held), len(choice.frames)
        self._apart, self._calls = choice.apart, choice.calls
        self._held: list[Held] | None = None
        choice.before = None

    def read(self, events: Sequence[Event]) -> None:
        """The frame was read. Without events nothing of what is held leaves, so that it need not be copied then, which
        would be for every piece of a long call."""
        if events:
            self._held = [replace(one) for one in self._lists[0]]

    def undo(self) -> None:
        """Have the choice hold again what it did."""
        choice, (held, frames) = self._choice, self._lists
        choice.held = deque(islice(held if self._held is None else self._held, self._counts[0]))
        choice.frames = frames[: self._counts[1]]
        choice.apart, choice.calls = self._apart, self._calls
        if choice.before is not None:
            choice.gathered = choice.before
