"""Steps about past calls and their results: ids, order, names, seals."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any

from msgspec.structs import replace

from vtc.apis import Request
from vtc.apis.seals import SEAL_PREFIX
from vtc.events import CanonicalRequest, Message, Opaque, Tool, ToolCall
from vtc.exchange.asking.steps.messages import StepContext, replace_messages
from vtc.profiles.document import format_count
from vtc.profiles.memory import SHORT_ID

_NINE_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]{9}")


def assign_ids(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Give each call a unique id in this form, and its result the same id; valid ids are preserved.

    `short` also preserves ids that the server made. `kimi` means `functions.NAME:N`: its template prints ids into the
    prompt, and other ids make the model write markup as text.
    """
    if not any(message.calls or message.role == "tool" for message in request.messages):
        return request, ""

    def form(id_: str, name: str, number: int) -> str:
        match value:
            case "alphanumeric9":
                return id_ if _NINE_ALPHANUMERIC.fullmatch(id_) else _digest(id_)[:9]
            case "kimi":
                return f"functions.{context.names.to_wire(name)}:{number}" if name else id_
        return id_ if SHORT_ID.fullmatch(id_) or context.is_own_id(id_) else f"call_{_digest(id_)[:24]}"

    return replace_messages(request, _assign_ids(request.messages, form), "message", "ids of calls in {} replaced")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _assign_ids(messages: Iterable[Message], form: Callable[[str, str, int], str]) -> Iterator[Message]:
    """Give calls unique ids, by their place in the conversation if necessary, and results the same.

    `form` makes an id from a call's id, name and number.
    """
    count = 0
    new_ids: dict[str, str] = {}  # new id of the last call, by the original id
    unanswered: list[tuple[str | None, ToolCall]] = []  # calls without a result yet, with their original ids
    before = ""
    for message in messages:
        if message.calls and before != "assistant":
            unanswered = [(id_, call) for id_, call in unanswered if id_ is None]
        before = message.role
        calls: list[ToolCall] = []
        for call in message.calls:
            count += 1
            id_ = call.id or f"call_vtc{count}"
            if id_ in new_ids:
                id_ = f"{id_[:28]}_vtc{count}"
            new_ids[call.id or id_] = new_ids[id_] = new = form(id_, call.name, count - 1)
            calls.append(call if new == call.id else replace(call, id=new))
            unanswered.append((call.id, calls[-1]))
        if message.role != "tool":
            yield message if all(map(is_, calls, message.calls)) else replace(message, calls=tuple(calls))
            continue
        wanted = message.call_id or None
        for place, (given_id, call) in enumerate(unanswered):
            if (given_id or None) == wanted and (given_id or message.name in (None, call.name)):
                del unanswered[place]
                yield _set_call(message, call.id, call.name)
                break
        else:
            received_id = message.call_id
            new_id = new_ids.get(received_id, form(received_id, "", 0)) if received_id else received_id
            yield _set_call(message, new_id, message.name)


def _set_call(message: Message, call_id: str | None, name: str | None) -> Message:
    """Make a message the result of a call; a name that it already has is preserved."""
    if call_id == message.call_id and (name == message.name or message.name):
        return message
    return replace(message, call_id=call_id, name=name)


def name_results(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Write the call's id into each result that lacks it, as the preceding call shows it.

    The decoder found the call already, so re-encoding the message is enough. All other malformed shapes were repaired
    when the request was decoded.
    """
    is_unclear = context.server.writer.lacks_call_id
    messages = [
        replace(message) if message.role == "tool" and is_unclear(message) else message for message in request.messages
    ]
    return replace_messages(request, messages, "result", "the call of {} named, as the conversation shows it")


MISSING_RESULT_TEXT = "(The call was not answered.)"
"""Replaces the missing result of a call."""
DONE_TEXT = "Done."
"""Text of the model between results and the user; other clients use the same."""


def pair_results(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Put results right after their calls, in their order, one for each call.

    A result without a call becomes a message of the user, as does a second, different result of one call. Empty ones of
    these are dropped.
    """
    messages, before = tuple(_pair_results(request.messages)), request.messages
    if len(messages) == len(before) and all(map(is_, messages, before)):
        return request, ""
    return replace(request, messages=messages), "results put in the order of their calls"


def insert_after_results(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Insert a short message of the model between results and a message of the user, for servers that require one."""
    out: list[Message] = []
    for message in request.messages:
        if message.role == "user" and out and out[-1].role == "tool":
            out.append(Message("assistant", (DONE_TEXT,)))
        out.append(message)
    if not (more := len(out) - len(request.messages)):
        return request, ""
    return replace(request, messages=tuple(out)), f"`{DONE_TEXT}` inserted between results and the user {more} times"


def _pair_results(messages: Sequence[Message]) -> list[Message]:
    out: list[Message] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role == "tool":
            out += _render_orphan(message)
            continue
        out.append(message)
        if message.calls:
            begin, is_said_by_model = at, message.role == "assistant"
            while is_said_by_model and at < len(messages) and messages[at].role != "assistant":
                at += 1
            out += _order_results(message.calls, messages[begin:at])
    return out


def _order_results(calls: Sequence[ToolCall], messages: Sequence[Message]) -> Sequence[Message]:
    """Put the results of calls first among the messages that follow the calls."""
    # Gemini's calls have no ids: a result then belongs to the next call of the tool.
    results = defaultdict[str | None, deque[Message]](deque)
    for message in messages:
        if message.role == "tool":
            results[message.call_id or message.name].append(message)
    answers: list[Message] = []
    contents: dict[str | None, list[Any]] = {}
    for call in calls:
        key = call.id or call.name
        missing = Message("tool", (MISSING_RESULT_TEXT,), call_id=call.id, name=call.name)
        answers.append(results[key].popleft() if results[key] else missing)
        contents.setdefault(key, []).append(answers[-1].content)
    left = {id(message): key for key, rest in results.items() for message in rest}
    # Some APIs put all results into one entry, so encode them together if one of them is new or moved.
    if not (len(messages) >= len(answers) and all(map(is_, answers, messages))):
        answers = [*map(replace, answers)]
    elif len(messages) == len(answers):
        return messages
    for message in messages:
        if message.role != "tool":
            answers.append(message)
        elif id(message) in left and message.content not in contents.get(left[id(message)], ()):
            answers += _render_orphan(message)
    return answers


def _render_orphan(result: Message) -> list[Message]:
    """Convert a result without a call to a message of the user; drop it if it is empty."""
    if not any(part.strip() if isinstance(part, str) else True for part in result.content):
        return []
    of = f" of {result.name}" if result.name else ""
    return [Message("user", (f"Result{of}:", *result.content))]


# Steps about the seals of past calls: some servers reject calls without one, for example calls of another model.


def sign_calls(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Put Google's documented stand-in signature on the first unsigned call of each step, the only one that is checked.

    Drop unsigned reasoning, because servers that sign reasoning reject it. `anew` also drops seals of VTC and of
    servers of the client's API.
    """
    own = context.request if context.request.LAYOUT is context.server.layout else None
    request, left_out = _drop_seals(request, own) if value == "anew" else (request, "")
    messages = [_drop_unsigned_reasoning(message, *own.LAYOUT.signed) for message in request.messages] if own else ()
    line = "{} without unsigned reasoning"
    request, unsaid = replace_messages(request, messages or request.messages, "past message", line)
    signed, line = _add_stand_in_seals(request, context)
    return signed, ", ".join(filter(None, [left_out, unsaid, line]))


def _drop_unsigned_reasoning(message: Message, kind: str = "", signature: str = "") -> Message:
    if not kind or message.role != "assistant":
        return message

    def stays(part: str | Opaque) -> bool:
        block = part.part if isinstance(part, Opaque) else None
        return not isinstance(block, dict) or block.get("type") != kind or bool(block.get(signature))

    bare = message.filter_parts(stays)
    return bare if bare.content or bare.calls else message


def drop_vtc_seals(message: Message, own: Request) -> Message:
    """Drop the reasoning of a past message if VTC sealed it for a server of another API."""
    if message.role != "assistant" or not any(seal.startswith(SEAL_PREFIX) for seal in own.list_seals(message)):
        return message
    bare = own.without_reasoning(message)
    return bare if bare.content or bare.calls else message


def _drop_seals(request: CanonicalRequest, own: Request | None) -> tuple[CanonicalRequest, str]:
    """Drop reasoning that is or should be sealed from past messages, unless nothing else remains.

    `own` is the client's request, if it speaks the server's API.
    """

    def drop_message_seals(message: Message) -> Message:
        if message.role != "assistant":
            return message
        bare = message.filter_parts(lambda part: isinstance(part, str) or part.thought is None)
        if own:
            thoughtless = own.without_reasoning(bare)
            has_thoughts = (thoughtless.content, thoughtless.calls) != (bare.content, bare.calls)
            bare = thoughtless if has_thoughts or any(own.list_seals(message)) else bare
        return bare if bare.content or bare.calls else message

    messages = map(drop_message_seals, request.messages)
    return replace_messages(request, messages, "past message", "{} without signatures that the server rejects")


def _add_stand_in_seals(request: CanonicalRequest, context: StepContext) -> tuple[CanonicalRequest, str]:
    stand_in = context.server.layout.unsigned
    if stand_in is None:
        return request, ""

    def is_signed(message: Message) -> bool:
        first = message.calls[0]
        parts = (*message.content, *first.before)
        sealed = (part.thought for part in parts if isinstance(part, Opaque) and part.thought)
        return any(thought.on == "call" for thought in sealed) or bool(context.request.get_call_seals(first))

    def sign_message(message: Message) -> Message:
        if not message.calls or is_signed(message):
            return message
        first, *more = message.calls
        return replace(message, calls=(replace(first, before=(*first.before, Opaque(thought=stand_in))), *more))

    return replace_messages(
        request, map(sign_message, request.messages), "past call", "{} without a signature sent with a stand-in"
    )


_CHOICE_WORDS = ("auto", "none", "required")


def rename_tools(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Rename tools whose names some servers reject, in declarations, the choice and the conversation."""
    known = context.names
    called = {call.name for message in request.messages for call in message.calls}
    called |= {message.name for message in request.messages if message.role == "tool" and message.name}
    wire = {name: known.to_wire(name) for name in (*(tool.name for tool in request.tools), *sorted(called))}
    changed = {name: short for name, short in wire.items() if name != short}
    if not changed:
        return request, ""

    def renamed_one[T: (Tool, ToolCall)](named: T) -> T:
        return replace(named, name=wire[named.name]) if named.name in changed else named

    def rename_message(message: Message) -> Message:
        name = changed.get(message.name or "", message.name) if message.role == "tool" else message.name
        if name == message.name and not (message.calls and any(call.name in changed for call in message.calls)):
            return message
        calls = tuple(map(renamed_one, message.calls))
        return replace(message, calls=calls, name=name)

    tools = tuple(map(renamed_one, request.tools))
    chosen = request.choice if request.choice in _CHOICE_WORDS else changed.get(request.choice, request.choice)
    renamed = format_count(len(changed), "name")
    line = f"{renamed} of tools replaced by one that the server accepts ({', '.join(sorted(changed))})"
    messages = tuple(
        [rename_message(message) if message.calls or message.name else message for message in request.messages]
    )
    return replace(request, messages=messages, tools=tools, choice=chosen), line
