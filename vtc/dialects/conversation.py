"""A text client's conversation in structured form: calls read out of its past turns, results beside them.

The client sends what the model wrote as plain assistant text, and the result of a call as the beginning of a user turn
(`[read_file for 'a.py'] Result:`). Ids are derived from what a call says and how often it was said before,
so that they stay the same from turn to turn and prompt caches hold.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vtc.dialects import names
from vtc.dialects.description import Description
from vtc.dialects.grammar import compiled
from vtc.dialects.reader import Reader
from vtc.events import Call, Event, Message, Opaque, Text, Tool, ToolCall

NO_RESULT = "(no result)"
"""Stands for the result of a call to which the client sent none: every call must have one."""


def structured(messages: Sequence[Message], dialect: Description, tools: Mapping[str, Tool]) -> list[Message]:
    """The messages with calls and results as such; those that hold neither stay the same objects."""
    marker = re.compile(dialect.result_start, re.DOTALL) if dialect.result_start else None
    seen: Counter[tuple[str, str]] = Counter()
    open_calls: list[ToolCall] = []
    out: list[Message] = []
    for message in messages:
        if message.role == "user" and open_calls:
            out += _results(message, open_calls, marker, tools)
            continue
        out += _missing(open_calls)
        if message.role == "assistant":
            message = _with_calls(message, dialect, tools, seen)
            open_calls = list(message.calls)
        out.append(message)
    return [*out, *_missing(open_calls)]


def with_samples(text: str, dialect: Description, tools: Mapping[str, Tool], write: Callable[[ToolCall], str]) -> str:
    """A prompt whose sample calls are written in another way."""
    return "".join(
        f"\n\n{write(event.call)}" if isinstance(event, Call) else event.raw for event in _events(text, dialect, tools)
    )


def _events(text: str, dialect: Description, tools: Mapping[str, Tool]) -> list[Event]:
    reader = Reader(compiled((dialect,), tuple(sorted(tools))), tools, lenient=False)
    return [*reader.feed(text), *reader.finish()]


def _with_calls(
    message: Message, dialect: Description, tools: Mapping[str, Tool], seen: Counter[tuple[str, str]]
) -> Message:
    events = _events(message.text, dialect, tools)
    calls = [event.call for event in events if isinstance(event, Call)]
    if not calls:
        return message
    text = "".join(event.raw for event in events if isinstance(event, Text))
    others = tuple(part for part in message.content if isinstance(part, Opaque))
    identified = []
    for call in calls:
        seen[call.name, call.arguments] += 1
        digest = hashlib.sha256(
            f"{call.name}\0{call.arguments}\0{seen[call.name, call.arguments]}".encode()
        ).hexdigest()
        identified.append(replace(call, id=f"call_{digest[:24]}"))
    return replace(message, content=((text, *others) if text else others), calls=tuple(identified))


def _results(
    message: Message, open_calls: list[ToolCall], marker: re.Pattern[str] | None, tools: Mapping[str, Tool]
) -> list[Message]:
    """A user turn behind calls: their results, and what else the client says."""
    out: list[Message] = []
    rest: list[str | Opaque] = []
    result: list[str | Opaque] | None = None  # of a marker that stands in a part of its own
    for part in message.content:
        found = marker.match(part) if marker and isinstance(part, str) else None
        call = _called(found, open_calls, tools) if found else None
        if found and call and isinstance(part, str):
            open_calls.remove(call)
            text = part[found.end() :]
            body = [text] if text.strip() else []
            out.append(Message("tool", tuple(body), call_id=call.id, name=call.name))
            result = None if body else []
        elif result is not None and not (result and isinstance(part, str)):
            result.append(part)
            out[-1] = replace(out[-1], content=tuple(result))
        else:
            result = None
            rest.append(part)
    out += _missing(open_calls)
    return [*out, replace(message, content=tuple(rest))] if rest else out


def _called(found: re.Match[str], open_calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> ToolCall | None:
    name = names.resolve(found["name"], tools)
    return next((call for call in open_calls if call.name == name), None)


def _missing(open_calls: list[ToolCall]) -> list[Message]:
    missing = [Message("tool", (NO_RESULT,), call_id=call.id, name=call.name) for call in open_calls]
    open_calls.clear()
    return missing
