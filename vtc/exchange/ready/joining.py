"""Several messages of one role made one."""

from __future__ import annotations

from collections.abc import Sequence

from vtc.events import Message, Opaque


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
