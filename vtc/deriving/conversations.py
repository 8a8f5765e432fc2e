"""Replies of a model as its chat template writes them.

A template is rendered with a question and the reply. The reply's text, as the model would write it, is the difference
to other renderings: the prompt for a reply shows the markup before it, and a reply of plain text the markup around it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vtc.apis.bridge import REASONING_FIELDS
from vtc.deriving.differences import get_common_end, get_common_start
from vtc.events import Tool

type RenderContext = Mapping[str, Any]
"""The variables with which a template is rendered."""
type Render = Callable[[Sequence[RenderContext]], Sequence[Mapping[str, str]]]
"""Renders a template with each context; a result has the `text`, or the reason why it is `refused`."""

MAX_REPLY_CHARS = 1 << 11
"""Maximum length of a reply's text; longer ones are not read, because a template is untrusted."""
QUESTION = "Please go on."
PLAIN_REPLY = "Qvzx answer"
"""Text of a reply without a call, which no template contains."""


class KnownCall(NamedTuple):
    """A call whose arguments are known."""

    name: str
    arguments: Mapping[str, Any]
    id: str = "qvcallaaa"
    """Some templates accept only ids of nine letters."""


def make_tool(name: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> Tool:
    """Make a tool with descriptions, which some templates need."""
    described = {key: {"description": f"The {key}.", **entry} for key, entry in properties.items()}
    return Tool(name, f"Does {name}.", {"type": "object", "properties": described, "required": [*required]})


def serialize_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Serialize a call with its arguments in the order of their keys, to compare it with another."""
    return f"{name} {json.dumps(arguments, ensure_ascii=False, sort_keys=True)}"


@dataclass(frozen=True, slots=True)
class KnownReply:
    """A reply whose calls are known, and perhaps the next message."""

    calls: Sequence[KnownCall] = ()
    text: str = ""
    reasoning: str = ""
    next_role: Literal["", "user", "tool"] = ""
    next_text: str = ""


class MessageStyle(NamedTuple):
    """The fields of a message with calls, in which servers, and so the templates, differ."""

    arguments_are_text: bool = False
    content: Literal[""] | None = ""
    """The content of a message without text."""


MESSAGE_STYLES = (MessageStyle(), MessageStyle(content=None), MessageStyle(True), MessageStyle(True, None))


@dataclass(frozen=True, slots=True)
class TemplateReplies:
    """The texts of replies as a template writes them."""

    texts: Mapping[str, str]
    """The texts, by the names of the replies; replies that the template does not write are missing."""
    problems: Mapping[str, str]
    """The reasons why replies are missing, by name."""
    prompt_end: str
    """The text of the prompt after the question."""
    turn_end: str
    """The text after a reply without calls."""


def write_replies(render: Render, tools: Sequence[Tool], replies: Mapping[str, KnownReply]) -> TemplateReplies:
    """Write replies with a template, in the style of messages in which it writes most of them."""
    contexts: list[RenderContext] = []
    for style in MESSAGE_STYLES:
        conversations = [None, KnownReply(text=PLAIN_REPLY), *replies.values()]
        contexts += [build_context(tools, reply, style, prompt=True) for reply in conversations[:1]]
        contexts += [build_context(tools, reply, style) for reply in conversations]
    results = render(contexts)
    size = len(results) // len(MESSAGE_STYLES)
    written = [_extract_replies(results[at : at + size], replies) for at in range(0, len(results), size)]
    return max(written, key=lambda style: sum(_rate(style.texts[name], replies[name]) for name in style.texts))


def build_context(
    tools: Sequence[Tool], reply: KnownReply | None, style: MessageStyle = MESSAGE_STYLES[0], *, prompt: bool = False
) -> RenderContext:
    """Build the context of a question and, if there is one, its reply; `prompt` adds the beginning of the next."""
    messages: list[RenderContext] = [{"role": "user", "content": QUESTION}]
    if reply:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or style.content}
        if reply.calls:
            message["tool_calls"] = [_build_call(call, style) for call in reply.calls]
        if reply.reasoning:
            message |= dict.fromkeys((*REASONING_FIELDS, "thinking"), reply.reasoning)
        messages.append(message)
        if reply.next_role:
            origin = (
                {"tool_call_id": reply.calls[0].id, "name": reply.calls[0].name} if reply.next_role == "tool" else {}
            )
            messages.append({"role": reply.next_role, "content": reply.next_text, **origin})
    return {
        "messages": messages,
        "tools": [tool.as_openai() for tool in tools] or None,
        "add_generation_prompt": prompt,
    }


def _build_call(call: KnownCall, style: MessageStyle) -> RenderContext:
    arguments = json.dumps(call.arguments, ensure_ascii=False) if style.arguments_are_text else call.arguments
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _extract_replies(results: Sequence[Mapping[str, str]], replies: Mapping[str, KnownReply]) -> TemplateReplies:
    prompted, asked, answered, *rendered = results
    prompt, answer = prompted.get("text", ""), answered.get("text", "")
    texts: dict[str, str] = {}
    problems: dict[str, str] = {}
    for (name, reply), result in zip(replies.items(), rendered, strict=True):
        text = extract_reply(result.get("text", ""), prompt=prompt, answer=answer)
        if "text" not in result:
            problems[name] = result.get("refused", "")
        elif len(text) > MAX_REPLY_CHARS:
            problems[name] = "the template writes much more than the reply"
        elif not _has_each_call(text, reply.calls):
            problems[name] = "the template does not write each call with each argument"
        else:
            texts[name] = text
    return TemplateReplies(
        texts, problems, prompt.removeprefix(asked.get("text", "")), answer.rpartition(PLAIN_REPLY)[2]
    )


def _has_each_call(text: str, calls: Sequence[KnownCall]) -> bool:
    words = Counter(word for call in calls for word in (call.name, *call.arguments))
    return all(text.count(word) >= count for word, count in words.items())


def extract_reply(rendered: str, *, prompt: str, answer: str) -> str:
    """Extract the last reply of a rendered conversation as the model would write it.

    `prompt` is the same conversation before the reply, and `answer` with `PLAIN_REPLY` in its place.
    """
    before, _, after = answer.rpartition(PLAIN_REPLY)
    begins = [len(begin) for begin in (before, prompt) if rendered.startswith(begin)]
    start = max(begins, default=_end_of_markup(get_common_start(before, rendered)))
    text = rendered[start:]
    if text.endswith(after):
        return text.removesuffix(after).strip("\n")
    shared = get_common_end(after, text)
    end = len(text) - len(shared) + _start_of_markup(shared)
    if text[:end][-1:].isalnum():  # the next tag belongs to this word
        end += 1 + _start_of_markup(text[end + 1 :])
    return text[:end].strip("\n")


def _end_of_markup(text: str) -> int:
    """Return the end of the last complete tag or line in a text."""
    return max((text.rfind(mark) + 1 for mark in (">", "]", "\n")), default=0)


def _start_of_markup(text: str) -> int:
    """Return the start of the first complete tag or line in a text; its length if there is none."""
    return min((at for mark in ("<", "[", "\n") if (at := text.find(mark)) >= 0), default=len(text))


def _rate(text: str, reply: KnownReply) -> float:
    """Rate the text of a reply: higher if it has all values, and if they are neither escaped nor written by Python."""
    values = [value for call in reply.calls for value in call.arguments.values() if isinstance(value, str)]
    keys = [key for call in reply.calls for key in call.arguments]
    is_escaped = any(f'\\"{key}\\"' in text for key in keys)
    is_python = any(f"'{key}':" in text for key in keys)
    return sum(value in text for value in values) + 1 - (1 if is_escaped else 0.5 if is_python else 0)
