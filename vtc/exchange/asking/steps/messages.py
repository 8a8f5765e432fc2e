"""Steps about messages: their order, roles and contents, system messages, empty messages.

Also the interface of all steps: a function of a request, the value of its key and a `StepContext`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import compress, groupby, takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.apis import Api, Request
from vtc.apis.bridge import WireNames
from vtc.apis.content import BILLING_PREFIX, describe_omitted_media, without_billing
from vtc.events import CanonicalRequest, Media, Message, Opaque, ToolCall
from vtc.profiles.document import format_count


class StepContext(NamedTuple):
    """The client's request, which knows its original parts; the server's API; the mapping of tool names."""

    request: Request
    server: Api
    names: WireNames
    is_own_id: Callable[[str], bool] = lambda _: False
    """Returns True if the server made the id of a call."""


type RequestStep = Callable[[CanonicalRequest, Any, StepContext], tuple[CanonicalRequest, str]]
"""Takes the value of its key; returns the changed request and a line for the report: the change, or the reason for
doing nothing if people would wonder."""


def replace_messages(
    request: CanonicalRequest, messages: Iterable[Message], noun: str, line: str
) -> tuple[CanonicalRequest, str]:
    """Replace the messages of a request one for one; `line` reports how many (`noun`) are different.

    Return the same request if none is.
    """
    messages = tuple(messages)
    count = sum(map(operator.is_not, messages, request.messages))
    return (replace(request, messages=messages), line.format(format_count(count, noun))) if count else (request, "")


def join_texts(message: Message, between: str) -> tuple[str | Opaque, ...]:
    """Join adjacent texts of a message; return the same parts if there are none."""
    if len(message.content) < 2:
        return message.content
    parts: list[str | Opaque] = []
    for part in message.content:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += between + part
        else:
            parts.append(part)
    return tuple(parts) if len(parts) < len(message.content) else message.content


def join_messages(messages: Sequence[Message], between: str) -> Message:
    """Join messages of one role; other fields are those of the first with reasoning, or else of the first."""
    if len(messages) == 1:
        return messages[0]
    parts: list[str | Opaque] = []
    calls: list[ToolCall] = []
    for joining in messages:
        message = _move_seals_to_calls(joining) if calls else joining
        begun = len(parts)
        for part in message.content:
            if isinstance(part, str) and 0 < begun == len(parts) and isinstance(parts[-1], str):
                parts[-1] += between + part
                begun = 0
            else:
                parts.append(part)
        calls += message.calls
    thoughts = [message for message in messages if message.reasoning]
    first, recalled = (thoughts or messages)[0], any(message.recalled for message in thoughts)
    reasoning = "\n".join([message.reasoning for message in thoughts])
    mark = next((message.cache_mark for message in reversed(messages) if message.cache_mark), None)
    return Message(
        first.role,
        tuple(parts),
        tuple(calls),
        source=first.source,
        reasoning=reasoning,
        recalled=recalled,
        cache_mark=mark,
    )


def _move_seals_to_calls(message: Message) -> Message:
    """Move the seals in a message's content to its calls, because the content will precede other calls."""
    thoughts = tuple(part for part in message.content if isinstance(part, Opaque) and part.thought)
    if not (thoughts and message.calls):
        return message
    content = tuple(part for part in message.content if isinstance(part, str) or not part.thought)
    first, *more = message.calls
    calls = (replace(first, before=(*thoughts, *first.before)), *more)
    return replace(message, content=content, calls=calls)


def can_join(messages: Sequence[Message]) -> bool:
    """Return True if joining loses nothing: a message has room for one native reasoning field."""
    return sum(bool(message.reasoning and message.source is not None) for message in messages) < 2


def join_turns(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Join consecutive messages of the model, so that results follow all calls of a turn."""
    return join_roles(request, ("assistant",), " of the model")


_ROLE = operator.attrgetter("role")


def join_roles(request: CanonicalRequest, roles: Collection[str], of: str = "") -> tuple[CanonicalRequest, str]:
    """Join consecutive messages of each of these roles."""
    out: list[Message] = []
    for role, some in groupby(request.messages, _ROLE):
        turn = [*some]
        out += [join_messages(turn, "\n")] if role in roles and len(turn) > 1 and can_join(turn) else turn
    if not (gone := len(request.messages) - len(out)):
        return request, ""
    return replace(request, messages=tuple(out)), f"{format_count(gone, 'message')}{of} joined to the previous one"


def alternate_roles(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Join consecutive messages of one role, which templates that count turns reject; results remain separate."""
    return join_roles(request, ("user", "assistant"))


REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""Envelope for a system message inside a conversation, as clients write it themselves."""


def move_system_messages(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Join the system messages at the start, and change later ones by the value of the key.

    `first` moves them to the start, `kept` keeps them, and any other value (`folded`) sends them in place with the
    user's role. `user` sends all system messages with the user's role.
    """
    messages = request.messages
    opening = [*takewhile(_is_system, messages)]
    rest = messages[len(opening) :]
    is_late = [_is_system(message) for message in rest] if value != "kept" else []
    late = sum(is_late)
    if len(opening) < (1 if value == "user" else 2) and not late:
        return request, ""
    if value == "first":
        opening += compress(rest, is_late)
        rest = tuple(compress(rest, map(operator.not_, is_late)))
    elif value != "kept":
        rest = tuple([_move_to_user(message) if this else message for message, this in zip(rest, is_late, strict=True)])
    if value == "user":
        return replace(request, messages=_open_with_user(opening, rest)), "system messages sent with the role user"
    becomes = "put first" if value == "first" else "sent with the role user"
    line = f"{format_count(late, 'system message')} {becomes}"
    head = (join_messages(opening, "\n\n"),) if opening else ()
    return replace(request, messages=(*head, *rest)), line if late else "system messages joined"


def _open_with_user(opening: Sequence[Message], rest: Sequence[Message]) -> tuple[Message, ...]:
    """Prepend the system messages to the user's first message, as templates of models without a system role do."""
    if not opening:
        return tuple(rest)
    spoken = replace(join_messages(opening, "\n\n"), role="user", source=None)
    if not rest or rest[0].role != "user":
        return (spoken, *rest)
    return (replace(rest[0], content=join_messages([spoken, rest[0]], "\n\n").content), *rest[1:])


def _is_system(message: Message) -> bool:
    """Return True for a system message with content; an item that declares tools is not one."""
    return message.role == "system" and bool(message.text or not message.content)


def _move_to_user(message: Message) -> Message:
    parts = tuple(REMINDER.format(part) if isinstance(part, str) else part for part in message.content)
    return Message("user", parts, cache_mark=message.cache_mark)


def replace_developer_role(
    request: CanonicalRequest, _value: Any, context: StepContext
) -> tuple[CanonicalRequest, str]:
    """Replace the role `developer`, which only OpenAI's servers distinguish, by `system`."""
    usual = context.server.writer.with_usual_role
    messages = [usual(message) if message.role == "system" else message for message in request.messages]
    return replace_messages(request, messages, "message", "{} with the role developer sent as system")


def drop_empty_messages(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Drop empty messages, except results.

    `parts` also drops messages of blank texts, and blank texts next to other parts.
    """
    keeps_blank = value != "parts"

    def part_has_content(part: str | Opaque) -> bool:
        if isinstance(part, str):
            return keeps_blank or not _is_blank(part)
        return part.media is not None or part.part is not None

    def has_content(message: Message) -> bool:
        return any(map(part_has_content, message.content)) or bool(context.request.get_attached_media(message))

    kept = tuple(
        [message for message in request.messages if message.calls or message.role == "tool" or has_content(message)]
    )
    line = ""
    dropped = len(request.messages) - len(kept)
    if dropped:
        line = f"{format_count(dropped, 'empty message')} left out"
        request = replace(request, messages=kept)
    if keeps_blank:
        return request, line
    request, parts_line = replace_messages(request, map(_without_blank, kept), "message", "blank texts left out of {}")
    return request, ", ".join(filter(None, (line, parts_line)))


def _without_blank(message: Message) -> Message:
    content = tuple(part for part in message.content if not _is_blank(part))
    return replace(message, content=content) if content and len(content) < len(message.content) else message


def _is_blank(part: str | Opaque) -> bool:
    return isinstance(part, str) and not part.strip()


def replace_nulls(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Replace null contents by empty texts, which templates can append; `wanted` does the opposite next to calls."""
    if value == "wanted":
        messages = [_send_null(message, context) for message in request.messages]
        return replace_messages(request, messages, "blank content", "{} next to calls sent as null")
    is_null = context.server.writer.has_null_content
    messages = [
        message if message.content or not is_null(message) else replace(message, content=("",))
        for message in request.messages
    ]
    return replace_messages(request, messages, "null content", "{} sent as an empty text")


def _send_null(message: Message, context: StepContext) -> Message:
    if not message.calls or not all(map(_is_blank, message.content)):
        return message
    return context.server.writer.as_text(replace(message, content=()) if message.content else message, or_null=True)


def split_calls(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Split messages with several calls, for templates that accept one at a time, each with its result after it."""
    several = sum(len(message.calls) > 1 for message in request.messages)
    if not several:
        return request, ""
    messages = tuple(_split_call_messages(request.messages))
    return replace(request, messages=messages), f"{format_count(several, 'message')} with several calls split"


def _split_call_messages(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages with one call each, every call followed by its result."""
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.calls) < 2:
            yield message
            continue
        after = [*takewhile(lambda result: result.role == "tool", messages[at:])]
        at += len(after)
        for place, call in enumerate(message.calls):
            yield replace(message, calls=(call,)) if not place else Message(message.role, calls=(call,))
            yield from (result for result in after if result.call_id == call.id)
            after = [result for result in after if result.call_id != call.id]
        yield from after


PLACEHOLDER_TEXT = "Hello."


def add_first_message(request: CanonicalRequest, value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Add a message of the user if there is none; `first` also adds one before the model's first message.

    Clients send an empty conversation to test a server, or one that begins with a greeting of the model.
    """
    opening = len([*takewhile(lambda message: message.role == "system", request.messages)])
    head, rest = request.messages[:opening], request.messages[opening:]
    if rest and (value != "first" or rest[0].role == "user"):
        return request, ""
    reason = "the model speaks first" if rest else "the request has no message"
    return replace(
        request, messages=(*head, Message("user", (PLACEHOLDER_TEXT,)), *rest)
    ), f"{reason}: {PLACEHOLDER_TEXT!r} added"


CONTINUE_TEXT = "Continue your last message where it ends, and repeat nothing of it."


def end_with_user(request: CanonicalRequest, _value: Any, _context: StepContext) -> tuple[CanonicalRequest, str]:
    """Append a request to continue if the model's message is last: a prefill, or a shortened conversation."""
    last = request.messages[-1] if request.messages else None
    if last is None or last.role != "assistant" or last.calls:
        return request, ""
    line = "the model's message is last: a request to continue is added"
    return replace(request, messages=(*request.messages, Message("user", (CONTINUE_TEXT,)))), line


def join_text_parts(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Join lists of texts into one text, for templates that append them; lists with images stay.

    The parts of a result are joined only if the result was a text.
    """

    def render_as_text(message: Message) -> Message:
        plain = context.server.writer.as_text(message)
        if message.role == "tool" and plain is message:
            return message
        content = join_texts(message, "\n\n" if message.role == "system" else "\n")
        return plain if content is message.content else replace(plain, content=content)

    return replace_messages(
        request, map(render_as_text, request.messages), "list", "{} of text parts joined into one text"
    )


def replace_images(canonical: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Replace images and documents by notes, for models that accept none."""
    request, count = context.request, 0

    def replace_image(part: str | Opaque) -> str | Opaque:
        nonlocal count
        if isinstance(part, str):
            return part
        media = part.media or (request.interpret_part(part.part) if part.part is not None else None)
        count += isinstance(media, Media)
        return describe_omitted_media(media) if isinstance(media, Media) else part

    def without(message: Message) -> Message:
        nonlocal count
        before, beside = count, request.get_attached_media(message) if message.source is not None else ()
        if not beside and Opaque not in map(type, message.content):
            return message
        content = (*map(replace_image, message.content), *map(describe_omitted_media, beside))
        count += len(beside)
        return message if count == before else replace(request.without_attached_media(message), content=content)

    messages = tuple(map(without, canonical.messages))
    if not count:
        return canonical, ""
    return replace(canonical, messages=messages), f"{format_count(count, 'note')} in place of images"


def drop_billing(request: CanonicalRequest, _value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Drop the billing line of Claude Code's prompt, which differs per request and only its server needs."""

    def drop_billing_line(part: str | Opaque) -> str | Opaque | None:
        text: object = part
        if isinstance(part, Opaque):
            text = None if part.part is None else context.request.interpret_part(part.part)
        if not isinstance(text, str) or not text.startswith(BILLING_PREFIX):
            return part
        return without_billing(text) or None

    def without(message: Message) -> Message:
        parts = [drop_billing_line(part) for part in message.content]
        if all(new is old for new, old in zip(parts, message.content, strict=True)):
            return message
        return replace(message, content=tuple(part for part in parts if part is not None))

    messages = [without(message) if message.role == "system" else message for message in request.messages]
    return replace_messages(request, messages, "", "the billing line left out")


MAX_CACHE_MARKS = 4
"""Cache marks that a request of Anthropic Messages may have."""
CACHE_MARK = {"type": "ephemeral"}


def place_cache_marks(request: CanonicalRequest, value: Any, context: StepContext) -> tuple[CanonicalRequest, str]:
    """Drop cache marks that the server does not accept, and all but the last four of the others.

    `sent` keeps them for a server whose API has none. `added` marks the tools, the system prompt and the last message
    if no mark came and the conversation has a result, because Anthropic's servers cache only marked prompts.
    """
    messages, line = [*request.messages], ""
    accepts = context.server.writer.HAS_CACHE_MARKS or value == "sent"
    places = [-1] * bool(request.tools_mark) + [at for at, message in enumerate(messages) if message.cache_mark]
    kept = set(places[-MAX_CACHE_MARKS:] if accepts else ())
    if value == "added" and accepts and not places and any(message.role == "tool" for message in messages):
        system = [0] if messages[0].role == "system" else []
        kept = {*([-1] if request.tools else []), *system, len(messages) - 1}
        line = "cache marks added to the prompt"
    if kept == set(places):
        return request, ""
    for at, message in enumerate(messages):
        mark = (message.cache_mark or CACHE_MARK) if at in kept else None
        if mark != message.cache_mark:
            messages[at] = replace(message, cache_mark=mark)
    tools_mark = (request.tools_mark or CACHE_MARK) if -1 in kept else None
    return replace(request, messages=tuple(messages), tools_mark=tools_mark), line
