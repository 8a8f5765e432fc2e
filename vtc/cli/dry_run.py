"""What the policies would do to a call: `vtc explain --call`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from vtc.events import Call, Denied, Intervention, Rewritten, Tool, ToolCall
from vtc.guards.chain import Guards, chain


def call_of(text: str) -> ToolCall:
    """`{"name": …, "arguments": {…}}`, also in the form of the API; raises `click.BadParameter`."""
    problem = ""
    try:
        match json.loads(text):
            case {"function": {"name": str(name), **rest}} | {"name": str(name), **rest}:
                written = rest.get("arguments", {})
                return ToolCall(name, written if isinstance(written, str) else json.dumps(written, ensure_ascii=False))
    except ValueError as error:
        problem = f": {error}"
    what = f'no call, which looks like {{"name": "read", "arguments": {{"path": "a.py"}}}}{problem}'
    raise click.BadParameter(what, param_hint="--call")


def tried(guards: Sequence[Guards], call: ToolCall, tools: Sequence[Tool]) -> dict[str, Any]:
    """What becomes of `call`: `{"policies": [{"policy", "action", "tool", "reason"}…], "outcome": …, …}`.

    The outcome is `delivered`, with the `call` as the client gets it, or `refused`, with what stands in its place as
    `manner` and `message`.
    """
    one = chain(guards, {tool.name: tool for tool in tools})
    events = [*one.feed([Call("", call, "tool_calls")]), *one.finish()]
    found: dict[str, Any] = {
        "policies": [
            {"policy": event.policy, "action": event.action, "tool": event.tool, "reason": event.reason}
            for event in events
            if isinstance(event, Intervention)
        ],
        "before": "".join(event.text for event in events if isinstance(event, Rewritten)).strip(),
    }
    for event in events:
        if isinstance(event, Call):
            arguments = event.call.arguments
            found |= {"outcome": "delivered", "call": {"name": event.call.name, "arguments": arguments}}
        elif isinstance(event, Denied):
            found |= {"outcome": "refused", "manner": event.manner, "message": event.message}
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    told = [f"{one['policy']} {one['action']} {one['tool']}: {one['reason']}" for one in found["policies"]]
    told += [f"before it the client is told: {found['before']}"] if found["before"] else []
    if found["outcome"] == "delivered":
        return [*told, f"delivered: {found['call']['name']} {found['call']['arguments']}"]
    place = {"drop": "nothing", "text": "its text"}.get(found["manner"], found["message"])
    return [*told, f"refused; in its place: {place}"]
