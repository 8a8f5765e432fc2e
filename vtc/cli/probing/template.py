"""Inspect a chat template by rendering it: tools, reasoning, the dialect of calls, rejected roles.

The template is untrusted because it comes from the server. A separate process renders it in Jinja's sandbox, with
limits on time and memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vtc.apis.openai_chat import API as CHAT
from vtc.cli.templates.rendering import RenderError, render_template
from vtc.deriving import KnownCall, KnownReply, write_replies
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, CanonicalRequest, Message, Tool, ToolCall

TOOL = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
USER = Message("user", ("Weather?",))
CALL = Message("assistant", (), (ToolCall("get_weather", '{"city": "Paris"}', "abcdefghi"),))
RESULT = Message("tool", ("Sunny",), call_id="abcdefghi", name="get_weather")
SYSTEM = Message("system", ("Be brief.",))
DEVELOPER = Message("developer", ("Be brief.",))
ANSWER = Message("assistant", ("Hello",))
REPLY = KnownReply([KnownCall(TOOL.name, {"city": "Paris"})])
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


def inspect_template(
    source: str, candidates: Sequence[Sequence[Description]], tags: Sequence[tuple[str, str]]
) -> TemplateFacts:
    """Inspect a template; `candidates` are groups of dialects for its calls, `tags` open and close reasoning."""
    # Step 1: render conversations and a reply with a call.
    conversations: dict[str, Mapping[str, Any]] = {
        "prompt without tools": _build_fields((USER,)),
        "prompt": _build_fields((USER,), tools=[TOOL]),
        **{name: _build_fields(messages) for name, messages in REJECTABLE_CONVERSATIONS.items()},
        **{f"{name}, tools": _build_fields(of, tools=[TOOL]) for name, of in REJECTABLE_CONVERSATIONS.items()},
    }
    try:
        results = dict(zip(conversations, render_template(source, [*conversations.values()]), strict=True))
        replies = write_replies(partial(render_template, source), [TOOL], {"call": REPLY})
    except RenderError as error:
        return TemplateFacts(problem=str(error))
    # Some templates are only for conversations with tools.
    needs_tools = "text" not in results["prompt without tools"]
    plain = results["prompt" if needs_tools else "prompt without tools"]
    if "text" not in plain:
        return TemplateFacts(problem=f"it cannot be rendered: {plain.get('refused')}")
    # Step 2: compare the rendered texts.
    texts = {name: result.get("text", "") for name, result in results.items()}
    without_tools = texts["prompt without tools"]
    end = plain["text"].rstrip()
    call = replies.texts.get("call", "")
    opened_tag = next((open_ for open_, _ in tags if end.endswith(open_)), "")
    return TemplateFacts(
        accepts_tools=TOOL.name in texts["prompt"] and TOOL.name not in without_tools,
        opened_tag=opened_tag,
        dialect=next(filter(None, (_find_dialect(call, dialects) for dialects in candidates)), ""),
        rejects=tuple(
            name
            for name in REJECTABLE_CONVERSATIONS
            if "text" not in results[f"{name}, tools" if needs_tools else name]
        ),
    )


def _find_dialect(text: str, dialects: Sequence[Description]) -> str:
    """Return the dialect of the call in a text; empty if there is no call."""
    reader = Reader(compile_grammar(tuple(dialects), (), (), ((), ())), {TOOL.name: TOOL})
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")


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
