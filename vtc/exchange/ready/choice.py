"""The choice of a tool, for a server that does not heed it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from vtc.events import Asked
from vtc.exchange.ready.given import Given


def choice(asked: Asked, _value: Any, _given: Given) -> tuple[Asked, str]:
    """Send no tools where none may be called, and one where that must be: this is worth more than the prompt cache."""
    if asked.choice == "auto" or not asked.tools:
        return asked, ""
    if asked.choice == "required":
        return replace(asked, choice="auto"), "tool_choice required is not told to the server, which would not heed it"
    tools = tuple(tool for tool in asked.tools if tool.name == asked.choice)
    told = f"tool_choice {asked.choice}: {'that tool alone is' if tools else 'no tools are'} sent"
    return replace(asked, tools=tools, choice="auto"), told
