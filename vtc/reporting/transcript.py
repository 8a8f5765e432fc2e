"""A conversation as text for people: messages, calls with their arguments, and tool results.

    [assistant]
      (thought: "The file must be read first. Then I …", 1,204 characters)
      Let me look into that file.
      -> read_file  call_6f9dd9df4e9d598b012fa3f8
           path: note.txt
      finish_reason: tool_calls

Each block is one message. `compare_transcripts` compares two conversations block by block.
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
"""Title of the block of the tools that the request offers."""
MAX_THOUGHT_CHARS = 72
"""Maximum number of characters of a message's reasoning that are shown."""


@dataclass(frozen=True, slots=True)
class TranscriptBlock:
    """One message, or the tools of a request."""

    title: str
    text: str

    def __str__(self) -> str:
        return f"[{self.title}]\n{indent(self.text, '  ')}" if self.text else f"[{self.title}]"


def read_request(api: Api, body: bytes) -> list[TranscriptBlock]:
    """Parse the conversation of a request; raise `RequestError` if it does not belong to this API."""
    request = api.request(body)
    blocks = [_render_message(message) for message in request.messages]
    if request.offer.tools:
        choice = "" if request.offer.choice == "auto" else f"\ntool_choice: {request.offer.choice}"
        blocks.append(TranscriptBlock(TOOLS_TITLE, "\n".join(map(_render_tool, request.offer.tools)) + choice))
    return blocks


def read_reply(api: Api, body: bytes) -> list[TranscriptBlock]:
    """Parse a reply into a block for each choice; raise ValueError if it does not belong to this API."""
    return [_render_message(reply.message, reply.finish_reason) for reply in whole.read_replies(api, body)]


def render_blocks(blocks: Iterable[TranscriptBlock]) -> str:
    """Render the blocks, separated by empty lines."""
    return "\n\n".join(map(str, blocks))


def compare_transcripts(
    before: Sequence[TranscriptBlock], after: Sequence[TranscriptBlock], before_label: str, after_label: str
) -> str:
    """Merge two conversations: equal blocks appear once, other blocks with the label of their side.

    A line of a labeled block begins with `-` or `+` if the other side's blocks at this place do not contain it.
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
    blocks: Sequence[TranscriptBlock], label: str, sign: str, others: Sequence[TranscriptBlock]
) -> Iterator[str]:
    """Render the blocks of one side, with `sign` before the lines that the other side does not have."""
    known = {line for block in others for line in block.text.split("\n")}
    for block in blocks:
        lines = [f"{' ' if line in known else sign} {line}" if line else "" for line in block.text.split("\n")]
        yield "\n".join([f"[{block.title}, {label}]", *lines])


def render_difference(
    before: Sequence[TranscriptBlock], after: Sequence[TranscriptBlock], before_label: str, after_label: str
) -> str:
    """Render the difference of two conversations as a unified diff; empty if they are equal."""
    old, new = render_blocks(before).splitlines(), render_blocks(after).splitlines()
    return "\n".join(unified_diff(old, new, before_label, after_label, lineterm=""))


def _render_message(message: Message, finish_reason: str | None = None) -> TranscriptBlock:
    parts: list[str] = []
    if message.reasoning:
        parts.append(_fold_thought(message.reasoning))
    parts += [part if isinstance(part, str) else _describe_opaque(part) for part in message.content]
    parts += map(render_call, message.calls)
    if finish_reason:
        parts.append(f"finish_reason: {finish_reason}")
    source = " ".join(filter(None, (message.name, message.call_id))) if message.role == "tool" else ""
    return TranscriptBlock(f"{message.role} {source}".strip(), "\n".join(parts))


def _fold_thought(thought: str) -> str:
    text = " ".join(thought.split())
    shown = text if len(text) <= MAX_THOUGHT_CHARS else f"{text[:MAX_THOUGHT_CHARS]} …"
    return f'(thought: "{shown}", {len(thought):,} characters)'


def _describe_opaque(part: Opaque) -> str:
    kind = part.part.get("type", "part") if isinstance(part.part, dict) else "part"
    return f"({kind}, {len(json.dumps(part.part)):,} characters)"


def render_call(call: ToolCall) -> str:
    """Render a call for people: its tool and id, and a line for each argument."""
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
