"""Policies in a profile, replies to which they apply, and their entries in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Lab
from tests.e2e.upstream import JSON, Reply

STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


BASH = chat.tool("bash", command="string")


def write_policy(directory: Path, **fields: Any) -> list[str]:
    """Write a file with one policy; return the value of the option `vtc_profiles`."""
    file = directory / "policy.yaml"
    file.write_bytes(chat.encode_json({"kind": "policy", "name": "mine", "match": {}, **fields}))  # JSON is YAML
    return [str(file)]


def write_guards(directory: Path, **guards: Any) -> list[str]:
    return write_policy(directory, guards=guards)


def make_calls_reply(form: str, stream: bool, *calls: tuple[str, Any], text: str = "Well.\n\n") -> Reply:
    """Return a reply with calls: Hermes in the text, or native calls with their arguments in two pieces."""
    if form == "text":
        content = text + "\n".join(chat.DIALECTS["hermes"](name, arguments) for name, arguments in calls)
        if stream:
            return Reply(chat.make_stream(*content))
        return Reply([chat.encode_json(chat.completion(content))], JSON, framing="length")
    if not stream:
        entries = [
            {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(calls)
        ]
        body = chat.completion(text, "tool_calls", message={"tool_calls": entries})
        return Reply([chat.encode_json(body)], JSON, framing="length")
    frames = [chat.ROLE, *chat.make_text_chunks(text)]
    for i, (name, arguments) in enumerate(calls):
        written = json.dumps(arguments)
        head = {"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": ""}}
        frames.append(chat.chunk({"tool_calls": [head]}))
        frames += [chat.chunk({"tool_calls": [chat.native(i, arguments=part)]}) for part in (written[:3], written[3:])]
    return Reply([*frames, chat.chunk({}, "tool_calls"), chat.DONE])


async def policies(lab: Lab) -> list[tuple[str, str, str]]:
    report = await lab.report()
    return [(entry["policy"], entry["action"], entry["tool"]) for entry in report["policies"]]


def whole(text: str, finish: str = "stop") -> Reply:
    return Reply([chat.encode_json(chat.completion(text, finish, usage=chat.USAGE))], JSON, framing="length")


BROKEN = '<tool_call>\n{"name": "read", "arguments": {{{\n</tool_call>'
