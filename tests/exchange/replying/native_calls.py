"""Exchanges with native calls, their frames, and cases of malformed ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.apis import chat, messages, named_events, responses
from tests.apis.shapes import SHAPES
from tests.dialects.material import plain
from tests.exchanges import FILE, declare_tools, feed_stream, planner
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Facts

CASES: dict[str, list[dict[str, Any]]] = plain((Path(__file__).parents[2] / "cases" / "own_calls.yaml").read_text())
TOOLS = {"write": FILE, "read": FILE, "any": {"type": "object"}}
IN_PIECES = ["openai-chat", "anthropic-messages", "openai-responses"]
"""APIs whose calls can be sent in pieces. Ollama's and Gemini's arguments are objects."""


def open_with_tools(client: str, server: str, *, stream: bool = True) -> Session:
    """Open an exchange whose client has the tools."""
    (api,) = [api for api in APIS if api.name == client]
    body = chat.encode_json(SHAPES[client].request(stream=stream, tools=declare_tools(client, TOOLS)))
    facts = Facts(user_agent="Any/1", host="127.0.0.1", path=SHAPES[client].build_path(stream=stream))
    return Session.open(api, body, facts, planner(upstream_api=(server,) if server != client else ()), "seed")


def stream_calls(api: str, *calls: tuple[str, Sequence[str]]) -> list[bytes]:
    """Encode the frames of a reply with some calls; the pieces of their arguments as given."""
    match api:
        case "openai-chat":
            frames = [chat.ROLE]
            for index, (name, pieces) in enumerate(calls):
                frames.append(chat.chunk({"tool_calls": [chat.native(index, id=f"c{index}", name=name, arguments="")]}))
                frames += [chat.chunk({"tool_calls": [chat.native(index, arguments=piece)]}) for piece in pieces]
            return [*frames, chat.chunk({}, "tool_calls"), chat.USED, chat.DONE]
        case "anthropic-messages":
            blocks = [
                messages.call_block(index, name, *pieces, id=f"t{index}") for index, (name, pieces) in enumerate(calls)
            ]
            return messages.make_stream(*blocks, stop_reason="tool_use")
    events = [
        responses.call_events(name, *pieces, id=f"fc_{index}", call_id=f"call_{index}")
        for index, (name, pieces) in enumerate(calls)
    ]
    return responses.make_stream(*events)


def encode_frames(case: dict[str, Any]) -> bytes:
    """Encode the frames of a case as its server sends them."""
    frames = case["frames"]
    if case["api"] == "openai-chat":
        frames = [frame if isinstance(frame, str) else _chunk(frame) for frame in frames]
        frames = [chat.chunk({"role": "assistant", "content": ""}), *frames, *([] if case.get("open") else [chat.DONE])]
    else:
        write = {"ollama-chat": lambda line: chat.encode_json(line) + b"\n", "gemini-generate": chat.frame}.get(
            case["api"], named_events.frame
        )
        frames = [frame if isinstance(frame, str) else write(frame) for frame in frames]
    frames = [f"data: {frame}\n\n".encode() if isinstance(frame, str) else frame for frame in frames]
    if case.get("run_on"):
        frames = [frame[:-1] for frame in frames]
    return b"".join(frames)


def _chunk(frame: dict[str, Any]) -> bytes:
    return chat.chunk({key: value for key, value in frame.items() if key != "finish"}, frame.get("finish"))


def in_cuts(exchange: Session, body: bytes, size: int) -> bytes:
    return feed_stream(exchange.stream(), *(body[at : at + size] for at in range(0, len(body), size)))
