"""All pairs of a client's API and a server's API, and replies of servers of each API, for tests of the bridge.

This module uses VTC only for the names of the APIs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.named_events import Json
from tests.apis.shapes import SHAPES

NAMES = tuple(SHAPES)
PAIRS = [(client, server) for client in NAMES for server in NAMES]
CROSSED = [pair for pair in PAIRS if pair[0] != pair[1]]

type Calls = Sequence[tuple[str, Json]]

TOO_LONG = {
    "openai-chat": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000 ",
    "anthropic-messages": "prompt is too long: 5000 tokens > 4096 maximum",
    "openai-responses": "Your input exceeds the context window of this model.",
    "ollama-chat": "prompt too long; exceeded max context length by 904 tokens",
    "gemini-generate": "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
}
"""Errors of servers of each API about a prompt of 5000 tokens in a window of 4096."""
READ: Calls = [("read", {"filePath": "/a"})]


@dataclass(frozen=True, slots=True)
class ReplyContent:
    """The content that a client received, independent of its API; `end` is `stop`, `calls`, `length` or `filter`."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    end: str = "stop"


def make_content(text: str = "", calls: Calls = (), *, reasoning: str = "", end: str = "") -> ReplyContent:
    """Return the content that a client should receive."""
    written = tuple((name, json.dumps(arguments)) for name, arguments in calls)
    return ReplyContent(text, reasoning, written, end or ("calls" if calls else "stop"))


# Replies of servers


def make_stream(
    server: str, pieces: Sequence[str], calls: Calls = (), *, reasoning: str = "", cut: bool = False
) -> bytes:
    """Render a streamed reply of an API's server: text in pieces, the arguments of calls in two."""
    parts = [(name, *_halves(json.dumps(arguments))) for name, arguments in calls]
    match server:
        case "openai-chat":
            frames = [chat.chunk({"reasoning_content": reasoning})] if reasoning else []
            frames = [chat.ROLE, *frames, *chat.make_text_chunks(*pieces)]
            for number, (name, begun, rest) in enumerate(parts):
                function = {"name": name, "arguments": begun}
                entry = {"index": number, "id": f"call_{number}", "type": "function", "function": function}
                frames.append(chat.chunk({"tool_calls": [entry]}))
                frames.append(chat.chunk({"tool_calls": [{"index": number, "function": {"arguments": rest}}]}))
            frames += [chat.chunk({}, "length" if cut else "tool_calls" if calls else "stop")]
            frames += [chat.frame({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", **USAGE})]
            return b"".join([*frames, chat.DONE])
        case "anthropic-messages":
            blocks = [messages.thinking_block(0, reasoning)] if reasoning else []
            blocks += [messages.text_block(len(blocks), *pieces)] if pieces else []
            first = len(blocks)
            for number, (name, begun, rest) in enumerate(parts):
                blocks.append(messages.call_block(first + number, name, begun, rest, id=f"toolu_{number}"))
            reason = "max_tokens" if cut else "tool_use" if calls else "end_turn"
            return b"".join(messages.make_stream(*blocks, stop_reason=reason))
        case "openai-responses":
            items = [responses.open_reasoning_events(reasoning)] if reasoning else []
            items += [responses.text_events(*pieces)] if pieces else []
            for number, (name, begun, rest) in enumerate(parts):
                ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
                items.append(responses.call_events(name, begun, rest, **ids))
            return b"".join(responses.make_stream(*items, status="incomplete" if cut else "completed"))
        case "gemini-generate":
            events = [gemini.frame(gemini.event(gemini.make_thought(reasoning)))] if reasoning else []
            events += gemini.make_text_events(*pieces)
            events += [gemini.frame(gemini.event(gemini.call(name, **arguments))) for name, arguments in calls]
            return b"".join(gemini.make_stream(*events, reason="MAX_TOKENS" if cut else "STOP"))
    lines = [*ollama.make_thinking_lines(*([reasoning] if reasoning else [])), *ollama.make_text_lines(*pieces)]
    lines += [ollama.piece("", ollama.call(name, **arguments)) for name, arguments in calls]
    return b"".join(ollama.make_stream(*lines, done_reason="length" if cut else "stop"))


USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}}


def make_whole_reply(server: str, text: str, calls: Calls = ()) -> bytes:
    """Render a whole reply of an API's server."""
    match server:
        case "openai-chat":
            made = [
                {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(one)}}
                for number, (name, one) in enumerate(calls)
            ]
            message = {"role": "assistant", "content": text or None, **({"tool_calls": made} if calls else {})}
            return chat.encode_json(chat.completion(None, "tool_calls" if calls else "stop", message=message))
        case "anthropic-messages":
            blocks = [messages.text(text)] if text else []
            blocks += [messages.call(name, f"toolu_{number}", **one) for number, (name, one) in enumerate(calls)]
            return chat.encode_json(messages.message(*blocks, stop_reason="tool_use" if calls else "end_turn"))
        case "openai-responses":
            items = [responses.message(text)] if text else []
            for number, (name, one) in enumerate(calls):
                items.append(responses.call(name, f"fc_{number}", f"call_{number}", **one))
            return chat.encode_json(responses.response(*items))
        case "gemini-generate":
            said_ = [gemini.text(text)] if text else []
            return chat.encode_json(gemini.reply(*said_, *(gemini.call(name, **one) for name, one in calls)))
    made = [ollama.call(name, **one) for name, one in calls]
    return chat.encode_json(ollama.message(text, *made))


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


# Parsers of clients


def read(client: str, body: bytes, *, stream: bool) -> ReplyContent:
    """Decode a reply as the strictest client of an API does, and fail if it would."""
    found: Any = ollama.read(body, stream=stream) if client == "ollama-chat" else _READERS[client](body)
    calls = tuple((name, json.dumps(arguments)) for name, arguments in found.calls)
    match found:
        case chat.Read(finish_reason=reason):
            end = {"tool_calls": "calls", "content_filter": "filter"}.get(str(reason), str(reason))
        case messages.Read(stop_reason=reason):
            ends = {"tool_use": "calls", "end_turn": "stop", "max_tokens": "length", "refusal": "filter"}
            end = ends[str(reason)]
        case responses.Read(status=status, reason=why):
            end = {"max_output_tokens": "length", "content_filter": "filter"}.get(
                str(why), "calls" if calls else "stop"
            )
            assert (status == "incomplete") == (why is not None)
        case gemini.Read(reason=reason):
            ends = {"MAX_TOKENS": "length", "SAFETY": "filter", "STOP": "calls" if calls else "stop"}
            end = ends[str(reason)]
        case _:
            end = "calls" if calls and found.done_reason == "stop" else str(found.done_reason)
    return ReplyContent(found.content, found.reasoning, calls, end)


_READERS: Mapping[str, Callable[[bytes], Any]] = {
    "openai-chat": chat.read,
    "anthropic-messages": messages.read,
    "openai-responses": responses.read,
    "gemini-generate": gemini.read,
}

_CHECKS: Mapping[str, Callable[[Json], None]] = {
    "anthropic-messages": messages.check_request,
    "openai-responses": responses.check_request,
    "ollama-chat": ollama.check_request,
    "gemini-generate": gemini.check_request,
}


def check_request(server: str, body: Json) -> None:
    """Fail on a conversation that a server of an API rejects."""
    if server != "openai-chat":
        _CHECKS[server](body)
        return
    waiting: list[str] = []
    for entry in body["messages"]:
        if entry["role"] == "tool":
            assert entry["tool_call_id"] in waiting, f"a result of no call: {entry}"
            waiting.remove(entry["tool_call_id"])
            continue
        assert not waiting, f"no result for {waiting}"
        assert entry.get("content") or entry.get("tool_calls"), f"an empty message: {entry}"
        waiting = [call["id"] for call in entry.get("tool_calls") or ()]
    assert not waiting, f"no result for {waiting}"
