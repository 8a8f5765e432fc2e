"""The choice of a tool, for a server that does not heed it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked, Message
from vtc.exchange.ready.given import Given
from vtc.exchange.ready.joining import joined
from vtc.exchange.ready.system import REMINDER


def choice(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Send no tools where none may be called, and one where that must be: this is worth more than the prompt cache."""
    if asked.choice == "auto" or not asked.tools:
        return asked, ""
    if asked.choice == "none":
        return replace(asked, tools=(), choice="auto"), "no tools offered, as none may be called"
    named = tuple(tool for tool in asked.tools if tool.name == asked.choice)
    demand = REMINDER.format(f"Call the tool {asked.choice}." if named else "Call one of the tools.")
    last = asked.messages[-1:]
    said = Message("user", (demand,))
    joins = bool(last) and last[0].role == "user"
    messages = (*asked.messages[:-1], joined([last[0], said], "\n")) if joins else (*asked.messages, said)
    told = f"tool_choice {asked.choice}: said in the prompt"
    return replace(asked, messages=messages, tools=named or asked.tools, choice="auto"), told
