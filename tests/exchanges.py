"""Build sessions without a proxy, for an OpenAI SDK with an unknown model, and replies with calls for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.rules import draw_pieces
from vtc.apis import APIS
from vtc.dialects import Reader, ReaderOptions, compile_grammar
from vtc.events import Event, Reasoning, Text
from vtc.exchange import Session, Stream
from vtc.exchange.replying.fast_path import FastPath
from vtc.profiles import Facts, Memory, Planner, Settings, builtin_directory, load_profiles

__all__ = ["FastPath"]

(API,) = [api for api in APIS if api.name == "openai-chat"]
AGENT = Facts(user_agent="OpenAI/Python 3", host="127.0.0.1", path="/v1/chat/completions")


FILE = {
    "type": "object",
    "properties": {
        "filePath": {"type": "string"},
        "content": {"type": "string"},
        "limit": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["filePath"],
}
"""The schema of a tool for files: strings, a number and an array."""


def declare_tools(client: str, schemas: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Declare tools, given by name and schema, in the format of an API."""
    match client:
        case "anthropic-messages":
            return [{"name": name, "input_schema": schema} for name, schema in schemas.items()]
        case "openai-responses":
            return [{"type": "function", "name": name, "parameters": schema} for name, schema in schemas.items()]
        case "gemini-generate":
            functions = [{"name": name, "parametersJsonSchema": schema} for name, schema in schemas.items()]
            return [{"functionDeclarations": functions}]
    functions = [{"name": name, "parameters": schema} for name, schema in schemas.items()]
    return [{"type": "function", "function": function} for function in functions]


def agent(client: str, *, stream: bool | None = False) -> Facts:
    """Return the facts of a request; in some APIs the path contains the model and whether to stream."""
    return replace(AGENT, path=SHAPES[client].build_path(stream=stream))


PROFILES = load_profiles([builtin_directory()])


@cache
def planner(**settings: Any) -> Planner:
    return Planner(PROFILES, Settings(**settings))


def open_session(
    seed: str = "seed",
    settings: dict[str, Any] | None = None,
    memory: Memory | None = None,
    **fields: Any,
) -> Session:
    body = chat.encode_json(chat.request(stream=True, **fields))
    return Session.open(API, body, AGENT, planner(**settings or {}), seed, memory)


def reveals_reasoning_late(whole: Session, *texts: str) -> bool:
    """Return True if a stream of this reply sends reasoning as text, because a tag shows it too late.

    This is the case if a closing tag shows that the reply began inside the reasoning, or if the reasoning begins in the
    middle of the text. A whole reply is parsed with the tag, so the results of the two differ. They also differ if a
    tag of an unknown model is never closed: a stream has sent the text after it as reasoning.
    """
    plan, think = whole.plan.reading, whole.plan.reading.thinking
    options = ReaderOptions(begins=think.begins(whole=True), think=think.to)
    reader = Reader(compile_grammar(plan.dialects, think.tags), plan.tools, options)
    events: list[Event] = []
    for text in texts:
        events += reader.feed(text)
        events += reader.pause()
    kinds = [type(event) for event in events]
    follows_text = Reasoning in kinds and Text in kinds[: kinds.index(Reasoning)]
    never_closed = think.to == "opened" and Reasoning in kinds and reader.began_inside is None
    return think.may_show and (reader.began_inside is True or follows_text or never_closed)


def feed_stream(stream: Stream, *pieces: bytes) -> bytes:
    return b"".join(out for piece in pieces for out in stream.feed(piece)) + b"".join(stream.finish())


TEXT = "Let me look.\n\n<read>\n<filePath>/é</filePath>\n</read>\n"
BODY = b"".join(chat.make_stream(*(TEXT[i : i + 11] for i in range(0, len(TEXT), 11))))
CALLED = chat.Read("Let me look.", "", [("read", {"filePath": "/é"})], [], "tool_calls")


WRITTEN = [write("read", {"filePath": "/a\n\nb"}) for write in chat.DIALECTS.values()]
SNIPPETS = [
    "Hello, ",
    "a < b",
    "\n",
    "  ",
    "é😀",
    "`",
    "```\n",
    "<think>",
    "</think>",
    *WRITTEN,
    "<read>",
    "<filePath>x</filePath>",
    "</read>",
    "<tool_call>",
    '{"name": "read", "arguments": {"filePath": "x',
    '"}}',
    "</tool_call>",
    "<function_calls><invoke name=\"list_files\"><parameter name='path'>",
    "<tools>",
]
REPLY_PIECES = draw_pieces(SNIPPETS, WRITTEN, 10)
"""Pieces of replies in which markup can begin, end and be broken."""
