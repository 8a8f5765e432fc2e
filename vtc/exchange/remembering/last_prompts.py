"""Compare the prompt of a request with the last one of its conversation.

Servers cache their computation for the beginning of a prompt, so a change there costs time. `LastPrompts` measures how
much of the last prompt a request preserves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from vtc.apis.content import is_billing
from vtc.events import Media, Message, Opaque, Seal, Tool, ToolCall
from vtc.json_text import encode_json
from vtc.profiles.memory import MAX_PROMPT_BYTES, Memory, digest_texts
from vtc.scrub import scrub_text

UNIT_OVERHEAD_BYTES = 100
"""Bytes of memory that a tool or message takes in addition to its text."""
MAX_CONVERSATIONS = 32
"""Conversations of one client with one model that are distinguished."""
_CHARS_BEFORE, _CHARS_AFTER = 24, 40
"""Characters of an excerpt before and after the place at which a prompt broke."""
_SEARCHED_CHARS = 400
"""Characters on either side that are searched for secrets, because a secret cut in two would not be found."""


class Unit(msgspec.Struct, frozen=True, gc=False):
    """A tool or a message as text, without parts that the server's cache does not see.

    Omitted are cache marks, ids of items, and the form in which the client writes a text.
    """

    name: str
    """`tool read`, or the role of a message."""
    text: str


class SentPrompt(NamedTuple):
    """A prompt that was sent to the model: first its tools, then its messages, as in the server's cache."""

    tools: tuple[Unit, ...]
    messages: tuple[Unit, ...]
    size: int
    """Bytes of memory that it takes."""

    @property
    def conversation(self) -> tuple[Unit, ...]:
        """The messages except system messages."""
        return tuple(unit for unit in self.messages if unit.name != "system")


def build_prompt(
    messages: Sequence[Message],
    tools: Iterable[Tool],
    meaning: Callable[[Any], str | Media | Seal | None],
    *,
    skips_billing: bool = False,
) -> SentPrompt:
    """Build the prompt of an outgoing request. `meaning` returns the content of a part that is no text.

    `skips_billing` omits the line that Claude Code puts before its prompt.
    """

    def render_part(part: str | Opaque) -> str:
        if isinstance(part, str):
            return part
        if part.thought:
            return f"(thought {digest_texts(repr(part.thought)).hex()[:16]})"
        content = part.media or meaning(part.part)
        if isinstance(content, str):
            return "" if skips_billing and is_billing(content) else content
        if not isinstance(content, Media):
            return encode_json({key: value for key, value in part.part.items() if key != "cache_control"}).decode()
        return f"({content.kind} {digest_texts(content.data or content.url).hex()[:16]})"

    tool_units = [Unit(f"tool {tool.name}", _render_tool(tool)) for tool in tools]
    message_units = [Unit(message.role, _render_message(message, render_part)) for message in messages]
    size = sum([sys.getsizeof(unit.text) + UNIT_OVERHEAD_BYTES for unit in (*tool_units, *message_units)])
    return SentPrompt(tuple(tool_units), tuple(message_units), size)


def _render_message(message: Message, render_part: Callable[[str | Opaque], str]) -> str:
    content = message.content
    if not (message.calls or message.reasoning) and len(content) == 1:  # the usual case
        return render_part(content[0])
    thought = [message.reasoning] if message.reasoning else []
    calls = [
        f"-> {part.name} {part.arguments}" if isinstance(part, ToolCall) else render_part(part)
        for part in message.sequence[len(content) :]
    ]
    return "\n".join([*thought, *map(render_part, content), *calls])


def _render_tool(tool: Tool) -> str:
    return f"{tool.description}\n{encode_json(tool.parameters).decode()}"


class KeptPrefix(NamedTuple):
    """The part of a prompt that the next one preserves."""

    tools: int
    """Number of equal tools at the start of both."""
    messages: int
    """Number of equal messages at the start of both; 0 if the tools differ."""
    broken: tuple[Unit | None, Unit | None] | None
    """The first difference, before and now, unless it is at the end of either; None stands for a missing unit."""


class LastPrompts:
    """The last prompts of one client, server and model, one for each conversation.

    A changed character makes the server compute everything after it again, so each prompt is compared with the last one
    of its conversation, and the first change is reported.

    A request does not name the conversation that it continues. It belongs to one with about the same tools that begins
    with the same message or has most of its messages. A conversation that it continues unbroken is preferred, because a
    title, a summary or a parallel task has a separate prompt and breaks none. A request with less than half of the
    messages starts a new conversation, because the client has compacted the old one.
    """

    def __init__(self, memory: Memory, whose: Sequence[str], model: str, secrets: Sequence[str] = ()) -> None:
        """Set up the store; `known` lists secrets that no excerpt may contain."""
        self._memory = memory.prompts
        self._key = digest_texts(*whose, model)
        self._known = secrets

    def record(self, prompt: SentPrompt) -> dict[str, Any]:
        """Store an outgoing prompt; return the part of the last one that it preserves, empty for a new conversation."""
        stored = self._memory.get(self._key)
        prompts: list[SentPrompt] = [*stored] if isinstance(stored, tuple) else []
        related = [(earlier, compare_prompts(earlier, prompt)) for earlier in prompts if _is_related(earlier, prompt)]
        # Step 1: find the conversation that the prompt continues.
        unbroken = [pair for pair in related if pair[1].broken is None]
        best = max(unbroken, key=lambda pair: pair[1].messages, default=None)
        if best is None:
            not_compacted = (pair for pair in related if 2 * len(prompt.messages) > len(pair[0].messages))
            best = max(not_compacted, key=lambda pair: _count_shared(pair[0], prompt), default=None)
        # Step 2: replace its last prompt, unless the new one is only a part of it, as for a summary.
        if best is None:
            self._store([prompt, *prompts])
            return {}
        earlier, kept = best
        if kept.broken or len(prompt.messages) >= len(earlier.messages):
            prompts.remove(earlier)
        self._store([prompt, *prompts])
        return self._describe_change(earlier, prompt, kept)

    def _store(self, prompts: Sequence[SentPrompt]) -> None:
        kept: list[SentPrompt] = []
        size = 0
        for prompt in prompts[:MAX_CONVERSATIONS]:
            size += prompt.size
            if size > MAX_PROMPT_BYTES // 4:
                break
            kept.append(prompt)
        self._memory.store(self._key, tuple(kept), sum(prompt.size for prompt in kept))

    def _describe_change(self, before: SentPrompt, now: SentPrompt, kept: KeptPrefix) -> dict[str, Any]:
        """Describe the change as plain data, with an excerpt of both prompts."""
        same = (*now.tools[: kept.tools], *now.messages[: kept.messages])
        chars = sum(len(unit.text) for unit in same)
        entry = {"kept": kept.messages, "of": len(now.messages), "chars": chars, "chars_of": chars}
        if kept.broken is None:
            return entry
        old, new = kept.broken
        at = first_difference(old.text, new.text) if old and new and old.name == new.name else 0
        if old and new:
            how = "changed" if old.name == new.name else f"in the place of {old.name}"
        else:
            how = "is new" if new else "is gone"
        others = (*before.tools, *before.messages[:-1])
        return {
            **entry,
            "chars": chars + at,
            "chars_of": sum(len(unit.text) for unit in others),
            "what": (new or old or Unit("", "")).name,
            "how": how,
            "at": at,
            **dict(zip(("before", "now"), self._cut_excerpts(old, new, at), strict=True)),
        }

    def _cut_excerpts(self, old: Unit | None, new: Unit | None, at: int) -> tuple[str, str]:
        start = max(0, at - _SEARCHED_CHARS)
        texts = [
            scrub_text(unit.text[start : at + _SEARCHED_CHARS], self._known) if unit else "" for unit in (old, new)
        ]
        here = first_difference(*texts)
        begin = max(0, here - _CHARS_BEFORE)
        first, second = (text[begin : here + _CHARS_AFTER] for text in texts)
        return first, second


def compare_prompts(before: SentPrompt, now: SentPrompt) -> KeptPrefix:
    """Compare two prompts; a difference in the last message is ignored because that message may be temporary."""
    tools = _count_common(before.tools, now.tools)
    if tools < max(len(before.tools), len(now.tools)):
        pair = _get_unit(before.tools, tools), _get_unit(now.tools, tools)
        if pair[0] and pair[0].name not in {unit.name for unit in now.tools}:
            pair = pair[0], None
        elif pair[1] and pair[1].name not in {unit.name for unit in before.tools}:
            pair = None, pair[1]
        return KeptPrefix(tools, 0, pair)
    messages = _count_common(before.messages, now.messages)
    if messages >= min(len(before.messages), len(now.messages)) - 1:
        return KeptPrefix(tools, messages, None)
    return KeptPrefix(tools, messages, (before.messages[messages], now.messages[messages]))


def first_difference(text: str, other_text: str) -> int:
    """Find the first character in which two texts differ, or the length of the shorter one."""
    low, high = 0, min(len(text), len(other_text))
    while low < high:
        middle = (low + high + 1) // 2
        if text[low:middle] == other_text[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _count_common(before: Sequence[Unit], now: Sequence[Unit]) -> int:
    differ = (place for place, (old, new) in enumerate(zip(before, now, strict=False)) if old != new)
    return next(differ, min(len(before), len(now)))


def _get_unit(units: Sequence[Unit], place: int) -> Unit | None:
    return units[place] if place < len(units) else None


def _count_shared(before: SentPrompt, now: SentPrompt) -> int:
    """Count the messages that both contain, at any place; system messages do not count."""
    return len({*before.conversation} & {*now.conversation})


def _is_related(before: SentPrompt, now: SentPrompt) -> bool:
    """Return True if both may belong to one conversation."""
    old, new = ({unit.name for unit in prompt.tools} for prompt in (before, now))
    if 2 * len(old & new) < max(len(old), len(new)):
        return False
    earlier, later = before.conversation, now.conversation
    if earlier[:1] == later[:1]:
        return bool(earlier)
    shared = _count_shared(before, now)
    return shared > 1 and 2 * shared >= len(earlier)
