"""A request on its way to a server of another API: what every API can be told, in the order that all of them take.

    client's Request -> read -> Asked -> Api.ask (server's) -> body

Servers want results right after their calls, each call answered once, no message empty and no two of one role in a row.
What was put in order in one turn is put in the same order in the next, so that the server's prompt cache holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from itertools import groupby, takewhile
from typing import Literal, NamedTuple

from msgspec.structs import replace

from vtc.apis import asking
from vtc.apis.base import Api, Request
from vtc.apis.content import without_billing
from vtc.apis.media import note
from vtc.apis.sealed import opened
from vtc.events import (
    Asked,
    Media,
    Message,
    Opaque,
    Seal,
    Tool,
    ToolCall,
)

NO_RESULT = "(The call was not answered.)"
"""Stands for the result of a call that has none."""
SOMETHING = "Hello."
"""Stands for a conversation in which nobody says anything."""
_REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How a system message that stands in the middle of a conversation is told, where clients write their own so."""
FAILED = "Error:"
"""Begins a result that is an error and does not say so itself, as other APIs have no field for that."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


type System = Literal["folded", "kept", "first"]
"""Where a system message amid a conversation goes: the user says it there, it stays, or it joins the first one, which
changes the beginning of the prompt."""


class Wants(NamedTuple):
    """What servers of one API want in several ways."""

    system: System = "folded"
    thoughts: str = "reasoning_content"
    """The field of a past message in which its reasoning stands."""


USUAL = Wants()


def read(
    request: Request,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    choice: str,
    names: Names,
    wants: Wants = USUAL,
    origin: str = "",
) -> Asked:
    """Read what a request asks: with these messages and tools, which may be others than its own.

    `origin` is the server (`origin_of`), whose own past reasoning it is told.

    Raises `BadRequest` where its messages are none.
    """
    fields = request.fields
    unknown: dict[str, None] = {}

    def told(part: str | Opaque) -> str | Opaque | None:
        found = part if isinstance(part, str) else request.meaning(part.part)
        if isinstance(found, Media):
            return Opaque(media=found)
        if isinstance(found, Seal):
            thought = opened(found.signature or found.encrypted, origin)
            return Opaque(thought=thought) if thought else None
        if found is None and isinstance(part, Opaque) and (kind := request.kind(part.part)):
            unknown[kind] = None
        return without_billing(found) or None if found else None

    plain = [
        replace(
            message,
            content=(
                *_failed(message, failed=request.failed(message)),
                *(part for part in map(told, message.content) if part is not None),
                *(Opaque(media=one) for one in request.beside(message)),
            ),
            calls=tuple(ToolCall(names.out(call.name), call.arguments, _id(call.id)) for call in message.calls),
            call_id=_id(message.call_id),
            name=names.out(message.name) if message.name and message.role == "tool" else None,
            source=None,
        )
        for message in messages
    ]
    functions = {tool.name for tool in request.tools}
    hosted = [name for name in request.declared if name not in functions]
    return Asked(
        model=request.model,
        messages=in_order([*_numbered(plain)], wants.system),
        thoughts=wants.thoughts,
        stream=request.stream,
        tools=tuple(with_fields(tool, name=names.out(tool.name), parameters=_parameters(tool)) for tool in tools),
        choice=names.out(choice) if choice not in ("auto", "none", "required") else choice if tools else "auto",
        parallel=request.parallel,
        limits=asking.limits(fields, request.LIMITS),
        effort=request.effort,
        answer=request.answer,
        left_out=(
            *(key for key in fields if key not in request.CARRIED and not _is_nothing(fields[key])),
            *(one for one in asking.unlimited(fields, request.LIMITS) if one not in request.CARRIED),
            *(["more than one choice"] if request.several else []),
            *(f"tool {name}" for name in hosted),
            *unknown,
        ),
    )


def _failed(message: Message, *, failed: bool) -> Iterator[str]:
    if failed and "error" not in message.text.strip().partition("\n")[0].casefold():
        yield FAILED


def _is_nothing(value: object) -> bool:
    return value is None or value == [] or value == {}


def _parameters(tool: Tool) -> Mapping[str, object]:
    """The schema of a tool's parameters: one of an object, which servers demand."""
    return tool.parameters if tool.parameters.get("type") else {"type": "object", "properties": {}, **tool.parameters}


def _id(call_id: str | None) -> str | None:
    """The id of a call, as every API takes it; the same one for the same id."""
    return call_id or None if not call_id or _NAME.fullmatch(call_id) else f"call_{_digest(call_id)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:24]


class Names:
    """The names of tools as every API takes them: at most 64 letters, digits, `_` and `-`.

    Two tools never get one name. The same name becomes the same in every turn.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._out: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in sorted(names, key=lambda one: not _NAME.fullmatch(one)):
            self.out(name)

    def out(self, name: str) -> str:
        """The name that the server is told."""
        if name not in self._out:
            wire = re.sub(r"[^A-Za-z0-9_-]", "_", name.replace(".", "__"))  # the flat name of a tool in a namespace
            if len(wire) > 64 or wire in self._back:
                wire = f"{wire[:55]}_{_digest(name)[:8]}"
            self._out[name], self._back[wire] = wire, name
        return self._out[name]

    def back(self, wire: str) -> str:
        """The client's name of a tool that the server calls."""
        return self._back.get(wire, wire)


# The order of a conversation


def _numbered(messages: Iterable[Message]) -> Iterator[Message]:
    """Give calls ids of their own, by their place in the conversation if need be, and results those of their calls."""
    count = 0
    taken: dict[str, str] = {}  # by the id of a call, the one that the last call of this id got
    waiting: list[tuple[str | None, ToolCall]] = []
    before = ""
    for message in messages:
        calls: list[ToolCall] = []
        if message.calls and before != "assistant":
            waiting = [(id_, call) for id_, call in waiting if id_ is None]
        for call in message.calls:
            count += 1
            id_ = call.id or f"call_vtc{count}"
            if id_ in taken:
                id_ = f"{id_[:50]}_vtc{count}"
            taken[call.id or id_] = taken[id_] = id_
            calls.append(with_fields(call, id=id_))
            waiting.append((call.id, calls[-1]))
        before = message.role
        if message.role != "tool":
            yield replace(message, calls=tuple(calls))
            continue
        fits = (one for one in waiting if one[0] == message.call_id and (one[0] or message.name in (None, one[1].name)))
        if found := next(fits, None):
            waiting.remove(found)
            yield replace(message, call_id=found[1].id, name=found[1].name)
        else:
            yield replace(message, call_id=taken.get(message.call_id or "", message.call_id))


def path(request: Request, client: Api, server: Api, came: str, model: str, *, stream: bool, at: str = "") -> str:
    """Write the path that a request goes to at the server; `came` if that is the same.

    `model` and `stream` are what the server is asked for; `at` is where it has its API, if not at the usual place.
    """
    crosses, was = client is not server, client.route(request.model, stream=request.stream)
    if not crosses and was == server.route(model, stream=stream):
        return came
    asked, _, query = came.partition("?")
    asked = asked.rstrip("/")
    gone, own = tuple(client.private) if crosses else (), was.partition("?")[2].split("&")
    kept = [one for one in query.split("&") if one and one not in own and not one.startswith(gone)]
    goes = server.route(model, stream=stream, at=at if crosses else client.before(asked))
    goes, _, query = (f"{client.base(asked)}{goes}" if crosses and not at else goes).partition("?")
    query = "&".join(one for one in (query, *kept) if one)
    return f"{goes}?{query}" if query else goes


def in_order(messages: Sequence[Message], system: System = "folded") -> tuple[Message, ...]:
    """Put a conversation into the order that all servers take; its system prompt is one message, the first one."""
    if system == "first":
        messages = sorted(messages, key=lambda one: one.role != "system")
    opening = [*takewhile(lambda one: one.role == "system", messages)]
    prompt = _joined("system", opening, "\n\n") if opening else None
    rest = [one if system == "kept" else _spoken(one) for one in messages[len(opening) :]]
    spoken: list[Message] = []
    for role, some in groupby(filter(_says, rest), lambda one: one.role):
        turn = [*some]
        spoken += [_joined(role, turn, "\n")] if role == "assistant" else turn
    turns = filter(_says, _answered(spoken))
    out = [prompt] if prompt and prompt.content else []
    for role, some in groupby(turns, lambda one: one.role):
        turn = [*some]
        out += turn if role == "tool" else [_joined(role, turn, "\n")]
    return tuple(out)


def said_in_the_prompt(asked: Asked) -> tuple[Asked, str]:
    """Say in words which call is demanded, for an API that has no field for that; tell people what was done.

    It stands in the last message, so that the next turn begins with what came before it.
    """
    choice, tools = asked.choice, asked.tools
    if choice == "auto" or not tools:
        return asked, ""
    if choice == "none":
        return replace(asked, tools=(), choice="auto"), "no tools offered, as none may be called"
    named = tuple(tool for tool in tools if tool.name == choice)
    demand = _REMINDER.format(f"Call the tool {choice}." if named else "Call one of the tools.")
    messages = in_order([*asked.messages, Message("user", (demand,))], "kept")
    return replace(
        asked, messages=messages, tools=named or tools, choice="auto"
    ), f"tool_choice {choice}: said in the prompt"


def with_something(asked: Asked) -> Asked:
    """Have the user say something where nobody does, as servers refuse that; clients ask so whether one is there."""
    if any(message.role != "system" for message in asked.messages):
        return asked
    return replace(asked, messages=(*asked.messages, Message("user", (SOMETHING,))))


def limited(asked: Asked, tokens: int) -> Asked:
    """Ask for a reply of so many tokens at most."""
    return replace(asked, limits={**asked.limits, "max_tokens": tokens})


def without_media(message: Message) -> Message:
    """Put notes in the places of images and documents, for a server that refuses them."""
    if not any(isinstance(part, Opaque) and part.media for part in message.content):
        return message
    parts = [note(part.media) if isinstance(part, Opaque) and part.media else part for part in message.content]
    return replace(message, content=_joined("", [Message("", tuple(parts))], "\n").content)


def _says(message: Message) -> bool:
    said = any(isinstance(part, str) or part.media for part in message.content)
    return bool(said or message.calls or message.role == "tool")


def _spoken(message: Message) -> Message:
    """Turn a system message that is not the first into one of the user's, where it stands."""
    if message.role != "system":
        return message
    return Message("user", tuple(_REMINDER.format(one) if isinstance(one, str) else one for one in message.content))


def _answered(messages: Sequence[Message]) -> Iterator[Message]:
    """Put results right after their calls, in their order, one for each; one of no call is said by the user."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        after: list[Message] = []
        if message.role == "assistant" and message.calls:
            end = next((at + n for n, one in enumerate(messages[at:]) if one.role == "assistant"), len(messages))
            after, at = [*messages[at:end]], end
        elif message.role == "tool":
            yield _orphan(message)
            continue
        yield message
        found: dict[str | None, Message] = {}
        for one in after:
            if one.role == "tool" and one.call_id in {call.id for call in message.calls}:
                found.setdefault(one.call_id, one)
        for call in message.calls:
            yield found.get(call.id) or Message("tool", (NO_RESULT,), call_id=call.id, name=call.name)
        for one in after:
            if one.role != "tool":
                yield one
            elif one.call_id not in found:
                yield _orphan(one)


def _orphan(result: Message) -> Message:
    of = f" of {result.name}" if result.name else ""
    return Message("user", (f"Result{of}:", *result.content)) if result.content else Message("user")


def _joined(role: str, messages: Sequence[Message], between: str) -> Message:
    """Make one message of several of one role."""
    if len(messages) == 1 and sum(isinstance(part, str) for part in messages[0].content) < 2:
        return messages[0]
    parts: list[str | Opaque] = []
    for part in (part for one in messages for part in one.content):
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += between + part
        else:
            parts.append(part)
    reasoning = "\n".join(one.reasoning for one in messages if one.reasoning)
    return Message(role, tuple(parts), tuple(call for one in messages for call in one.calls), reasoning=reasoning)
