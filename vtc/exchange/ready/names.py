"""Names of tools that not all servers take: too long, or with other characters."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given, counted

_WORDS = ("auto", "none", "required")


def names(asked: Asked, _value: Any, given: Given) -> tuple[Asked, str]:
    """Give tools names that all take, in declarations, in the choice and in the conversation alike."""
    known = given.names
    called = {call.name for message in asked.messages for call in message.calls}
    called |= {one.name for one in asked.messages if one.role == "tool" and one.name}
    wire = {name: known.out(name) for name in (*(tool.name for tool in asked.tools), *sorted(called))}
    changed = {name: one for name, one in wire.items() if name != one}
    if not changed:
        return asked, ""

    def renamed(message: Message) -> Message:
        name = changed.get(message.name or "", message.name) if message.role == "tool" else message.name
        if name == message.name and not any(call.name in changed for call in message.calls):
            return message
        calls = tuple(with_fields(one, name=wire[one.name]) if one.name in changed else one for one in message.calls)
        return replace(message, calls=calls, name=name)

    tools = tuple(with_fields(one, name=wire[one.name]) if one.name in changed else one for one in asked.tools)
    chosen = asked.choice if asked.choice in _WORDS else changed.get(asked.choice, asked.choice)
    told = f"{counted(len(changed), 'name')} of tools shortened ({', '.join(sorted(changed))})"
    return replace(asked, messages=tuple(map(renamed, asked.messages)), tools=tools, choice=chosen), told
