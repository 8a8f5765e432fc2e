"""Messages as servers take them: their order, their roles, the system's, none that says nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Any

from msgspec.structs import replace

from vtc.events import CanonicalRequest, Message, Opaque
from vtc.exchange.asking.steps.given import StepContext, counted

# Several messages of one role made one.


def joined(messages: Sequence[Message], between: str) -> Message:
    """Make one message of some of one role, with the other fields of the first that thought, or else of the first."""
    if len(messages) == 1:
        return messages[0]
    parts: list[str | Opaque] = []
    for message in messages:
        begun = len(parts)
        for part in message.content:
            if isinstance(part, str) and 0 < begun == len(parts) and isinstance(parts[-1], str):
                parts[-1] += between + part
                begun = 0
            else:
                parts.append(part)
    thoughts = [one for one in messages if one.reasoning]
    first, seal = (thoughts or messages)[0], thoughts[0].seal if len(thoughts) == 1 else None
    reasoning = "\n".join(one.reasoning for one in messages if one.reasoning)
    calls = tuple(call for one in messages for call in one.calls)
    return Message(messages[0].role, tuple(parts), calls, source=first.source, reasoning=reasoning, seal=seal)


def may_join(messages: Sequence[Message]) -> bool:
    """True if nothing is lost: what was thought stands in fields of its own, of which a message has one."""
    return len(messages) > 1 and sum(bool(one.reasoning and one.source is not None) for one in messages) < 2


# The model's turns: all that it said between two messages of others is one, so that its results follow it.


def turns(asked: CanonicalRequest, _value: Any, _given: StepContext) -> tuple[CanonicalRequest, str]:
    """Join messages of the model that follow each other."""
    return joined_where(asked, lambda role: role == "assistant", " of the model")


def joined_where(asked: CanonicalRequest, is_one: Callable[[str], bool], of: str = "") -> tuple[CanonicalRequest, str]:
    """Join neighbours of each such role."""
    out: list[Message] = []
    for role, some in groupby(asked.messages, lambda one: one.role):
        turn = [*some]
        out += [joined(turn, "\n")] if is_one(role) and may_join(turn) else turn
    if not (gone := len(asked.messages) - len(out)):
        return asked, ""
    return replace(asked, messages=tuple(out)), f"{counted(gone, 'message')}{of} joined to the one before"


# Neighbours of one role, which templates that count turns refuse.


def alternate(asked: CanonicalRequest, _value: Any, _given: StepContext) -> tuple[CanonicalRequest, str]:
    """Join them; results stay apart, as each answers a call."""
    return joined_where(asked, lambda role: role in ("user", "assistant"))


# System messages: one at the beginning, and a place for those amid the conversation.


REMINDER = "<system-reminder>\n{}\n</system-reminder>"
"""How a system message that stands amid a conversation is told, where clients write their own so."""


def system(asked: CanonicalRequest, value: Any, _given: StepContext) -> tuple[CanonicalRequest, str]:
    """Join those at the beginning; the others the user says where they stand, or they join these, or they stay.

    `user`: the user says them all.
    """
    messages = asked.messages
    opening = [*takewhile(_is_system, messages)]
    rest = messages[len(opening) :]
    late = sum(map(_is_system, rest)) if value != "kept" else 0
    if len(opening) < (1 if value == "user" else 2) and not late:
        return asked, ""
    if value == "first":
        opening += filter(_is_system, rest)
        rest = tuple(one for one in rest if not _is_system(one))
    elif value != "kept":
        rest = tuple(map(_spoken, rest))
    if value == "user":
        return replace(asked, messages=_opened(opening, rest)), "what the system says said by the user"
    told = f"{counted(late, 'system message')} {'put first' if value == 'first' else 'said by the user'}"
    head = (joined(opening, "\n\n"),) if opening else ()
    return replace(asked, messages=(*head, *rest)), told if late else "system messages joined"


def _opened(opening: Sequence[Message], rest: Sequence[Message]) -> tuple[Message, ...]:
    """Have the user begin with what opened the conversation, as templates write a system message for such models."""
    if not opening:
        return tuple(rest)
    said = replace(joined(opening, "\n\n"), role="user", source=None)
    if not rest or rest[0].role != "user":
        return (said, *rest)
    return (replace(rest[0], content=joined([said, rest[0]], "\n\n").content), *rest[1:])


def _is_system(message: Message) -> bool:
    """True for one that says something; an item that declares tools is none."""
    return message.role == "system" and bool(message.text or not message.content)


def _spoken(message: Message) -> Message:
    if not _is_system(message):
        return message
    return Message("user", tuple(REMINDER.format(one) if isinstance(one, str) else one for one in message.content))


# The role `developer`, which is `system` to all servers but OpenAI's.


def developer(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
    """Call roles by their usual names."""
    messages = tuple(map(given.request.usual, asked.messages))
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(changed, 'message')} of the developer said by the system"


# Messages that say nothing.


def empty(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
    """Leave them out; a result without a word is one all the same."""

    def says(message: Message) -> bool:
        said = any(isinstance(part, str) or part.media or part.part is not None for part in message.content)
        return bool(said or message.calls or message.role == "tool" or given.request.beside(message))

    kept = tuple(filter(says, asked.messages))
    if not (gone := len(asked.messages) - len(kept)):
        return asked, ""
    return replace(asked, messages=kept), f"{counted(gone, 'empty message')} left out"


# Contents that are null, as clients write them beside calls, where a template reads a text.


def nulls(asked: CanonicalRequest, _value: Any, given: StepContext) -> tuple[CanonicalRequest, str]:
    """Write an empty text for each."""
    messages = tuple(replace(one, content=("",)) if given.request.is_null(one) else one for one in asked.messages)
    changed = sum(one is not came for one, came in zip(messages, asked.messages, strict=True))
    if not changed:
        return asked, ""
    return replace(asked, messages=messages), f"{counted(changed, 'null content')} written as an empty text"


# Several calls of one message, where a template takes one at a time.


def single(asked: CanonicalRequest, _value: Any, _given: StepContext) -> tuple[CanonicalRequest, str]:
    """Give each call a message of its own, with its result after it."""
    several = sum(len(message.calls) > 1 for message in asked.messages)
    if not several:
        return asked, ""
    messages = tuple(_apart(asked.messages))
    return replace(asked, messages=messages), f"{counted(several, 'message')} with several calls taken apart"


def _apart(messages: Sequence[Message]) -> Iterator[Message]:
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if len(message.calls) < 2:
            yield message
            continue
        after = [*takewhile(lambda one: one.role == "tool", messages[at:])]
        at += len(after)
        for place, call in enumerate(message.calls):
            yield replace(message, calls=(call,)) if not place else Message(message.role, calls=(call,))
            yield from (one for one in after if one.call_id == call.id)
            after = [one for one in after if one.call_id != call.id]
        yield from after


# A message of the user, where a conversation has none or the model speaks first: servers refuse that.
#
# Clients send an empty one to see whether a server is there, and show the model how it greeted.


SOMETHING = "Hello."


def something(asked: CanonicalRequest, value: Any, _given: StepContext) -> tuple[CanonicalRequest, str]:
    """Add a message of the user where there is none; `first` also ahead of what the model says first."""
    opening = len([*takewhile(lambda one: one.role == "system", asked.messages)])
    head, rest = asked.messages[:opening], asked.messages[opening:]
    if rest and (value != "first" or rest[0].role == "user"):
        return asked, ""
    told = "the model speaks first" if rest else "the request has no message"
    return replace(asked, messages=(*head, Message("user", (SOMETHING,)), *rest)), f"{told}: {SOMETHING!r} added"
