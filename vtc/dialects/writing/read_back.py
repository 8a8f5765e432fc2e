"""Check that calls written in a dialect are read back by its own description, for `vtc check`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import pattern
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.dialects.writing.calls import RoundTrip, write_calls
from vtc.events import Call, Tool, ToolCall, UnreadCall

_TOOL = Tool(
    "read_file",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
    },
)
_ARGUMENTS = {"path": "a.py", "limit": 20}


class Flaw(NamedTuple):
    """A fault of a description."""

    key: str
    message: str
    is_fatal: bool
    """False if calls are read and written nevertheless, but not as described."""


def find_flaws(dialect: Description) -> Iterator[Flaw]:
    """Write a plain call in a dialect, and read it back."""
    tools = {_TOOL.name: _TOOL}
    round_trip = RoundTrip(dialect, tools)
    text = write_calls([ToolCall(_TOOL.name, json.dumps(_ARGUMENTS), "call1")], dialect, tools, round_trip)
    events = Reader(compile_grammar((dialect,)), tools).read_whole(text)
    calls = [(event.call.name, json.loads(event.call.arguments)) for event in events if isinstance(event, Call)]
    if calls != [(_TOOL.name, _ARGUMENTS)]:
        reasons = [event.reason for event in events if isinstance(event, UnreadCall)]
        why = f": {reasons[0]}" if reasons else ""
        yield Flaw(
            "call",
            f"a call in this format is not read back, `{text.strip()}`{why}; {_advice(dialect)}",
            is_fatal=True,
        )
    elif round_trip.has_failed:
        yield Flaw(
            "param",
            "a parameter in this format is not read back, so calls are shown to the model with a JSON object "
            "in its place; end {value} with markup that values cannot contain, without blanks next to it",
            is_fatal=False,
        )


def _advice(dialect: Description) -> str:
    if pattern.find_body_slot(dialect.calls[0]) == "kwargs":
        return "{kwargs} is read only between parentheses: write `({kwargs})`"
    return "put markup around its placeholders that their values cannot contain"
