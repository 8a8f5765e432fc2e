"""Inspect a chat template by rendering it: tools, reasoning, the dialect of calls, rejected roles.

The template is untrusted because it comes from the server. A separate process renders it in Jinja's sandbox, with
limits on time and memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from vtc.apis.openai_chat import API as CHAT
from vtc.cli.probing import rendering
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, CanonicalRequest, Message, Tool, ToolCall
from vtc.scrub import is_credential

MAX_TEMPLATE_CHARS = 1 << 18
"""Maximum length of a template; longer ones are not inspected."""
RENDER_SECONDS = 5
"""Limit of the CPU time for all conversations together; the limit of the elapsed time is twice as long."""
MAX_RENDER_BYTES = 1 << 29
"""Limit of the memory of the rendering process; Python itself uses about 50 MB."""
TOOL = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
USER = Message("user", ("Weather?",))
CALL = Message("assistant", (), (ToolCall("get_weather", '{"city": "Paris"}', "abcdefghi"),))
RESULT = Message("tool", ("Sunny",), call_id="abcdefghi", name="get_weather")
SYSTEM = Message("system", ("Be brief.",))
DEVELOPER = Message("developer", ("Be brief.",))
ANSWER = Message("assistant", ("Hello",))
REJECTABLE_CONVERSATIONS: Mapping[str, Sequence[Message]] = {
    "a system message at the start": (SYSTEM, USER),
    "a system message inside the conversation": (USER, ANSWER, SYSTEM, USER),
    "the role developer": (DEVELOPER, USER),
    "two messages of the user in a row": (USER, USER),
    "calls and results": (USER, CALL, RESULT),
}
"""Conversations that some templates reject, by their descriptions."""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The behaviour of a chat template."""

    accepts_tools: bool = False
    opened_tag: str = ""
    """The opening tag of reasoning at the end of the prompt; empty if there is none."""
    dialect: str = ""
    """The dialect in which it writes a past call; empty if no known dialect matches."""
    rejects: tuple[str, ...] = ()
    """The descriptions of the conversations that it rejects (`REJECTABLE_CONVERSATIONS`)."""
    problem: str = ""
    """The reason why the template could not be inspected."""


class RenderError(Exception):
    """Raised when a template cannot be rendered, with the reason."""


def inspect_template(source: str, dialects: Sequence[Description], tags: Sequence[tuple[str, str]]) -> TemplateFacts:
    """Inspect a template; `dialects` are the candidates for its calls, `tags` open and close reasoning."""
    # Step 1: render conversations, with and without the prompt for the next answer.
    conversations: dict[str, Mapping[str, Any]] = {
        "prompt without tools": _build_fields((USER,)),
        "prompt": _build_fields((USER,), tools=[TOOL]),
        "question": _build_fields((USER,), tools=[TOOL], prompt=False),
        "question and text": _build_fields((USER, ANSWER), tools=[TOOL], prompt=False),
        "question and call": _build_fields((USER, CALL), tools=[TOOL], prompt=False),
        **{name: _build_fields(messages) for name, messages in REJECTABLE_CONVERSATIONS.items()},
    }
    try:
        results = dict(zip(conversations, _render_template(source, [*conversations.values()]), strict=True))
    except RenderError as error:
        return TemplateFacts(problem=str(error))
    without_tools = results["prompt without tools"].get("text")
    if without_tools is None:
        return TemplateFacts(problem=f"it cannot be rendered: {results['prompt without tools'].get('refused')}")
    # Step 2: compare the rendered texts.
    texts = {name: result.get("text", "") for name, result in results.items()}
    end = without_tools.rstrip()
    opened_tag = next((open_ for open_, _ in tags if end.endswith(open_)), "")
    return TemplateFacts(
        accepts_tools=TOOL.name in texts["prompt"] and TOOL.name not in without_tools,
        opened_tag=opened_tag,
        dialect=_find_dialect(_extract_call(texts, opened_tag), dialects),
        rejects=tuple(name for name in REJECTABLE_CONVERSATIONS if "text" not in results[name]),
    )


def _extract_call(texts: Mapping[str, str], opened_tag: str) -> str:
    """Extract a past call as the model would write it, without the markup around a message.

    The markup is the difference between the other rendered conversations: the prompt for an answer shows the markup
    before a message of the model, and an answer with text shows the markup after it.
    """
    question = texts["question"]
    prompt = texts["prompt"] or question
    message_start = prompt.removeprefix(question).rstrip().removesuffix(opened_tag).strip()
    message_end = texts["question and text"].rpartition(ANSWER.text)[2].strip()
    message = texts["question and call"].removeprefix(question).strip()
    return message.removeprefix(message_start).strip().removesuffix(message_end).strip()


def _find_dialect(text: str, dialects: Sequence[Description]) -> str:
    """Return the dialect of the call in a text; empty if there is no call."""
    reader = Reader(compile_grammar(tuple(dialects), (), (), ((), ())), {TOOL.name: TOOL})
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")


def _render_template(source: str, fields: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Render a template with each of these contexts in a separate process (`rendering`). Raises `RenderError`."""
    if len(source) > MAX_TEMPLATE_CHARS:
        raise RenderError("it is too long to be inspected")
    request = {"source": source, "fields": fields, "seconds": RENDER_SECONDS, "bytes": MAX_RENDER_BYTES}
    command = [sys.executable, "-P", rendering.__file__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=build_environment(),
            timeout=2 * RENDER_SECONDS,
        )
        texts = msgspec.convert(json.loads(done.stdout or b"null"), list[dict[str, str]] | None)
    except subprocess.TimeoutExpired:
        raise RenderError("it takes too long") from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise RenderError(f"it cannot be inspected: {type(error).__name__}") from None
    if texts is None or len(texts) != len(fields):
        raise RenderError(
            "it takes too much memory" if done.returncode == 0 else "it takes too long, or too much memory"
        )
    return texts


def build_environment() -> dict[str, str]:
    """Build the environment of the process without credentials, in case a template escapes the sandbox."""
    return {name: value for name, value in os.environ.items() if not is_credential(name)}


def _build_fields(messages: Sequence[Message], *, tools: Sequence[Tool] = (), prompt: bool = True) -> Mapping[str, Any]:
    """Build the context with which a server renders a template for this conversation."""
    body = CHAT.writer.build_request(CanonicalRequest(model="", messages=tuple(messages), tools=tuple(tools)))
    messages_of_body = _adapt_messages(body["messages"])
    return {"messages": messages_of_body, "tools": body.get("tools"), "add_generation_prompt": prompt}


def _adapt_messages(entries: Sequence[Any]) -> list[Any]:
    """Adapt messages for templates: arguments become objects, and the content null becomes empty text."""
    adapted = json.loads(json.dumps(entries))
    for entry in adapted:
        entry["content"] = entry.get("content") or ""
        for call in entry.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return [*adapted]
