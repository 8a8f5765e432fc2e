"""A conversation for people to read: who said what, what was called with which arguments, what came back.

    [assistant]
      (thought: "The file must be read first. Then I …", 1,204 characters)
      Let me look into that file.
      -> read_file  call_6f9dd9df4e9d598b012fa3f8
           path: note.txt
      finish_reason: tool_calls

A block is one message; `compared` sets two conversations beside each other block by block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, unified_diff
from textwrap import indent
from typing import Any

from vtc.apis import Api, whole
from vtc.events import Message, Opaque, Tool, ToolCall

TOOLS_TITLE = "tools"
"""Title of the block of those that are offered."""
MAX_THOUGHT_CHARS = 72
"""Characters of a thought that are shown."""


@dataclass(frozen=True, slots=True)
class TranscriptBlock:
    """One message, or what else is to be read."""

    title: str
    text: str

    def __str__(self) -> str:
        return f"[{self.title}]\n{indent(self.text, '  ')}" if self.text else f"[{self.title}]"


def read_request(api: Api, body: bytes) -> list[TranscriptBlock]:
    """Read the conversation of a request; raises `BadRequest`."""
    request = api.request(body)
    blocks = [_render_message(message) for message in request.messages]
    if request.offer.tools:
        choice = "" if request.offer.choice == "auto" else f"\ntool_choice: {request.offer.choice}"
        blocks.append(TranscriptBlock(TOOLS_TITLE, "\n".join(map(_render_tool, request.offer.tools)) + choice))
    return blocks


def read_reply(api: Api, body: bytes) -> list[TranscriptBlock]:
    """Read a reply, a block for each choice; raises ValueError if it is none of this API."""
    return [_render_message(reply.message, reply.finish_reason) for reply in whole.read_replies(api, body)]


def render_blocks(blocks: Iterable[TranscriptBlock]) -> str:
    """Write the blocks one below the other."""
    return "\n\n".join(map(str, blocks))


def compare_transcripts(
    before: Sequence[TranscriptBlock], after: Sequence[TranscriptBlock], before_label: str, after_label: str
) -> str:
    """Two conversations as one: a block that both have stands once, any other with the side that it belongs to.

    A line of such a block that the other side does not have begins with `-` or `+`.
    """
    out: list[str] = []
    for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            out += map(str, before[a:b])
        else:
            out += _mark_lines(before[a:b], before_label, "-", after[c:d])
            out += _mark_lines(after[c:d], after_label, "+", before[a:b])
    return "\n\n".join(out)


def _mark_lines(
    blocks: Sequence[TranscriptBlock], side: str, sign: str, others: Sequence[TranscriptBlock]
) -> Iterator[str]:
    known = {line for block in others for line in block.text.split("\n")}
    for block in blocks:
        lines = [f"{' ' if line in known else sign} {line}" if line else "" for line in block.text.split("\n")]
        yield "\n".join([f"[{block.title}, {side}]", *lines])


def render_difference(
    received: Sequence[TranscriptBlock], sent: Sequence[TranscriptBlock], came_in: str, went_out: str
) -> str:
    """Two conversations as a unified diff; empty where they say the same."""
    before, after = render_blocks(received).splitlines(), render_blocks(sent).splitlines()
    return "\n".join(unified_diff(before, after, came_in, went_out, lineterm=""))


def _render_message(message: Message, finish_reason: str | None = None) -> TranscriptBlock:
    parts: list[str] = []
    if message.reasoning:
        parts.append(_fold_thought(message.reasoning))
    parts += [part if isinstance(part, str) else _describe_opaque(part) for part in message.content]
    parts += map(render_call, message.calls)
    if finish_reason:
        parts.append(f"finish_reason: {finish_reason}")
    about = " ".join(filter(None, (message.name, message.call_id))) if message.role == "tool" else ""
    return TranscriptBlock(f"{message.role} {about}".strip(), "\n".join(parts))


def _fold_thought(thought: str) -> str:
    text = " ".join(thought.split())
    shown = text if len(text) <= MAX_THOUGHT_CHARS else f"{text[:MAX_THOUGHT_CHARS]} …"
    return f'(thought: "{shown}", {len(thought):,} characters)'


def _describe_opaque(part: Opaque) -> str:
    kind = part.part.get("type", "part") if isinstance(part.part, dict) else "part"
    return f"({kind}, {len(json.dumps(part.part)):,} characters)"


def render_call(call: ToolCall) -> str:
    """Write a call for people: its tool and id, and a line for each argument."""
    return "\n".join([f"-> {call.name}  {call.id or ''}".rstrip(), *_render_arguments(call.arguments)])


def _render_arguments(text: str) -> Iterator[str]:
    try:
        arguments = json.loads(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        yield indent(text, "     ")
        return
    for key, value in arguments.items():
        yield from _render_argument(key, value)


def _render_argument(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value:
        yield f"     {key}: |"
        yield indent(value, "       ").removesuffix("\n")
    elif isinstance(value, str):
        yield f"     {key}: {value}"
    else:
        yield f"     {key}: {json.dumps(value, ensure_ascii=False)}"


def _render_tool(tool: Tool) -> str:
    properties = tool.parameters.get("properties")
    names = ", ".join(properties) if isinstance(properties, dict) else ""
    first = tool.description.strip().partition("\n")[0]
    return f"{tool.name}({names})" + (f": {first}" if first else "")
