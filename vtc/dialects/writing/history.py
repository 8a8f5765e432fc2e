"""A conversation as a model that knows no tools is shown it: tools, calls and results as text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as with_fields

from msgspec.structs import replace

from vtc.dialects.syntax import prompt
from vtc.dialects.syntax.description import Description
from vtc.dialects.writing.calls import write_calls, write_result
from vtc.dialects.writing.example import example
from vtc.dialects.writing.round_trip import RoundTrip
from vtc.events import Message, Opaque, Tool


def to_text(messages: Iterable[Message], dialect: Description, tools: Mapping[str, Tool]) -> list[Message]:
    """The messages with every call and result written as `dialect` writes it; the others stay the same objects."""
    proof = RoundTrip(dialect, tools)
    return [_written(message, dialect, proof) for message in messages]


def _written(message: Message, dialect: Description, proof: RoundTrip) -> Message:
    if message.role == "tool":
        before, after = _around(message, dialect)
        pictures = tuple(part for part in message.content if isinstance(part, Opaque))
        text = write_result(message.name or "tool", message.call_id or "", message.text, dialect)
        if not pictures:
            return replace(message, role=dialect.result_role, content=(text,))
        return replace(message, role=dialect.result_role, content=(before, *message.content, after), call_id=None)
    if message.calls:
        said, text = message.text, _calls(message, dialect, proof)
        gap = ("\n\n",) if said and not said.endswith("\n\n") else ()
        return replace(message, content=(*message.content, *gap, text), calls=())
    return message


def _calls(message: Message, dialect: Description, proof: RoundTrip) -> str:
    """The calls of a message as text; arguments that are nested too deeply to be written stand there as JSON text."""
    try:
        return write_calls(message.calls, dialect, proof.tools, proof)
    except RecursionError:
        raw = [json.dumps({"_raw": call.arguments}, ensure_ascii=False) for call in message.calls]
        calls = [with_fields(call, arguments=text) for call, text in zip(message.calls, raw, strict=True)]
        return write_calls(calls, dialect, proof.tools, proof)


def _around(message: Message, dialect: Description) -> tuple[str, str]:
    """What a result's text is set in, for a result that is not all text."""
    marker = "\x00"
    text = write_result(message.name or "tool", message.call_id or "", marker, dialect)
    before, _, after = text.partition(marker)
    return before, after


def joined(messages: Iterable[Message]) -> list[Message]:
    """The messages with neighbouring user turns made one, as they were before a result was told apart from the rest.

    Many chat templates refuse two turns of one role in a row.
    """
    out: list[Message] = []
    for message in messages:
        if out and message.role == out[-1].role == "user":
            *before, last = out[-1].content or ("",)
            gap = (f"{last}\n\n",) if isinstance(last, str) else (last,)
            out[-1] = replace(message, content=(*before, *gap, *message.content))
        else:
            out.append(message)
    return out


def with_note(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with a remark behind the last, for the model to see: inside of it unless a model said it."""
    if messages and messages[-1].role != "assistant":
        last = messages[-1]
        gap = ("\n\n",) if last.content else ()
        return [*messages[:-1], replace(last, content=(*last.content, *gap, text))]
    return [*messages, Message("user", (text,))]


def with_rule(messages: Sequence[Message], text: str) -> list[Message]:
    """The messages with a rule at the end of the system message, or in one of its own."""
    if messages and messages[0].role == "system":
        first = messages[0]
        gap = ("\n\n",) if first.content else ()
        return [replace(first, content=(*first.content, *gap, text)), *messages[1:]]
    return [Message("system", (text,)), *messages]


def with_tools(
    messages: Sequence[Message], dialect: Description, tools: Sequence[Tool], tool_choice: str
) -> list[Message]:
    """The tools and the rules of `dialect`, added to the system message or put in one of their own.

    The same tools give the same text, so that prompt caches hold.
    """
    must_call = {"auto": "", "required": "at least one function"}.get(tool_choice, f"the function {tool_choice}")
    return with_rule(messages, tool_list(dialect, tools, must_call))


def tool_list(dialect: Description, tools: Sequence[Tool], must_call: str = "") -> str:
    """The prompt of `dialect` for some tools; `must_call` says in words which of them the reply must call."""
    return prompt.render(dialect.prompt, tools, {"must_call": must_call, "example": example(dialect, tools)})
