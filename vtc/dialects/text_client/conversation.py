"""A text client's conversation in structured form: calls read out of its past turns, results beside them.

The client sends what the model wrote as plain assistant text, and the result of a call as the beginning of a user turn
(`[read_file for 'a.py'] Result:`, in a part of its own in older versions). Ids are derived from what a call says and
how often it was said before, so that they stay the same from turn to turn and prompt caches hold.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from vtc.dialects.arguments import values
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compiled
from vtc.dialects.text_client.client_reader import ClientReader, is_tagged
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Event, Message, Opaque, Text, Tool, ToolCall

NO_RESULT = "(no result)"
"""Stands for the result of a call to which the client sent none: every call must have one."""


def structured(messages: Sequence[Message], dialect: Description, tools: Mapping[str, Tool]) -> list[Message]:
    """The messages with calls and results as such; those that hold neither stay the same objects."""
    marker = re.compile(dialect.result_start, re.DOTALL) if dialect.result_start else None
    seen: Counter[tuple[str, str]] = Counter()
    open_calls: list[ToolCall] = []
    waiting: list[Message] = []  # what else the client says; it may not stand between calls and their results
    out: list[Message] = []
    for message in messages:
        if open_calls and message.role == "user":
            results, rest = _results(message, open_calls, marker, tools)
            out += results
            waiting += rest
            continue
        if message.role == "tool" and any(call.id == message.call_id for call in open_calls):
            open_calls = [call for call in open_calls if call.id != message.call_id]
            out.append(message)
            continue
        out += [*_missing(open_calls), *waiting]
        waiting.clear()
        open_calls.clear()
        if message.role == "assistant":
            message = _with_calls(message, _events(message.text, dialect, tools), seen)
            open_calls = list(message.calls)
        out.append(message)
    return [*out, *_missing(open_calls), *waiting]


def with_samples(text: str, dialect: Description, tools: Mapping[str, Tool], write: Callable[[ToolCall], str]) -> str:
    """A prompt whose sample calls are written in another way."""
    events = _events(text, dialect, tools)
    return "".join(f"\n\n{write(event.call)}" if isinstance(event, Call) else event.raw for event in events)


def as_read(call: ToolCall, dialect: Description, tools: Mapping[str, Tool], parameters: Collection[str] = ()) -> str:
    """A call as a client reads it that knows nothing but `dialect`.

    What says nothing to such a client is left out: null for what is not given, and parameters that neither its tool has
    nor it knows of any (`parameters`).
    """
    arguments = {key: value for key, value in json.loads(call.arguments).items() if value is not None}
    if call.name in tools:
        known = {*values.properties(tools[call.name].parameters), *parameters}
        arguments = {key: value for key, value in arguments.items() if key in known}
    return write_calls([replace(call, arguments=json.dumps(arguments))], dialect, tools, for_client=True)


def after(begun: str, written: str) -> str | None:
    """The rest of a text of which a part stands already, maybe with other white space; None if it begins otherwise."""
    known = iter("".join(begun.split()))
    wanted = next(known, "")
    for at, char in enumerate(written):
        if not wanted:
            return written[at:].removeprefix(begun[len(begun.rstrip()) :])
        if char.isspace():
            continue
        if char != wanted:
            return None
        wanted = next(known, "")
    return None if wanted else ""


def openers(dialect: Description, tools: Iterable[str]) -> list[str]:
    """How a call of each tool begins, where it begins with a tag of its own."""
    head = dialect.calls[0].partition("{params}")[0].rstrip()
    return [head.replace("{name}", name) for name in tools] if head.startswith("<{name}") else []


def closer(dialect: Description, tool: str) -> str:
    """How a call of a tool ends."""
    return dialect.calls[0].partition("{params}")[2].strip().replace("{name}", tool)


def says(
    text: str,
    call: ToolCall,
    dialect: Description,
    tools: Mapping[str, Tool],
    known_tools: Iterable[str] = (),
    known_parameters: Iterable[str] = (),
) -> bool:
    """Whether the client reads just this call out of a text, with just these arguments, and nothing else.

    Of a client that parses by tags, the tools and parameters are given that it knows besides those of its `tools`.
    """
    if not is_tagged(dialect):
        events = _events(text, dialect, tools)
        calls = [event.call.name for event in events if isinstance(event, Call)]
        return calls == [call.name] and not any(isinstance(event, Text) and event.raw.strip() for event in events)
    declared = {key for tool in tools.values() for key in values.properties(tool.parameters)}
    reader = ClientReader(dialect, {*tools, *known_tools}, {*declared, *known_parameters})
    return reader.is_one_call(text, call)


def is_readable(event: Call, dialect: Description) -> bool:
    """Whether such a client reads a call out of the very characters that it came in.

    They must begin with the opener in its very case: of another the client knows nothing, and looks inside.
    """
    if event.dialect != dialect.name or event.repairs or event.changed or dialect.sections:
        return False
    head, params, _ = dialect.calls[0].partition("{params}")
    opener, raw = head.replace("{name}", event.call.name).rstrip(), event.raw.lstrip()
    return not params or (raw.startswith(opener) and not raw[len(opener) :].lstrip().startswith("{"))


def _events(text: str, dialect: Description, tools: Mapping[str, Tool]) -> list[Event]:
    return Reader(compiled((dialect,)), tools, lenient=False).whole(text)


def _with_calls(message: Message, events: Sequence[Event], seen: Counter[tuple[str, str]]) -> Message:
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
    return structs.replace(message, content=((text, *others) if text else others), calls=(*message.calls, *identified))


def _results(
    message: Message, open_calls: list[ToolCall], marker: re.Pattern[str] | None, tools: Mapping[str, Tool]
) -> tuple[list[Message], list[Message]]:
    """A user turn behind calls: their results, which close them, and a message of what else the client says.

    Pictures are among the latter, since the result of a call can hold none.
    """
    results: list[Message] = []
    rest: list[str | Opaque] = []
    alone = False  # the marker stands in a part of its own, so that the next one is the result
    for part in message.content:
        found = marker.match(part) if marker and isinstance(part, str) else None
        call = _called(found["name"], open_calls, tools) if found else None
        if found and call and isinstance(part, str):
            open_calls.remove(call)
            text = part[found.end() :]
            alone = not text.strip()
            results.append(Message("tool", () if alone else (text,), call_id=call.id, name=call.name))
        elif alone and isinstance(part, str):
            results[-1] = structs.replace(results[-1], content=(part,))
            alone = False
        else:
            rest.append(part)
            alone = False
    if not results:
        return [], [message]
    return results, [structs.replace(message, content=tuple(rest))] if rest else []


def _called(written: str, open_calls: Sequence[ToolCall], tools: Mapping[str, Tool]) -> ToolCall | None:
    name = tool_names.resolve(written, tools) or written
    return next((call for call in open_calls if call.name == name), None)


def _missing(open_calls: Sequence[ToolCall]) -> list[Message]:
    return [Message("tool", (NO_RESULT,), call_id=call.id, name=call.name) for call in open_calls]
