"""Exchanges under policies, without a proxy, from the server's reply to the client's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.apis import chat
from tests.exchanges import AGENT, API, PROFILES
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Facts, Match, Planner, PolicyProfile, Settings

PROMPT = (Path(__file__).parents[1] / "cases" / "prompts" / "cline.md").read_text("utf-8")
CLINE = Facts(user_agent="Cline/3.82.0", host="127.0.0.1", path="/v1/chat/completions")
BASH = chat.tool("bash", command="string")
TOOLS = [BASH, chat.READ, chat.tool("bash_x", command="string")]


def open_under(
    guards: dict[str, Any] | None, *, text: bool = False, model: dict[str, Any] | None = None, **fields: Any
) -> Session:
    """Open a session under a policy, of Cline (`text`) or a native client; `model` sets keys of the model's profile."""
    profiles = PROFILES
    if guards is not None:
        policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(guards, Guards))
        profiles = dataclasses.replace(profiles, policies={"mine": policy})
    settings = Settings(**(model or {}))
    if text:
        messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]
        fields = {"messages": messages, "tools": None, **fields}
    body = chat.encode_json(chat.request(**{"stream": True, "tools": TOOLS, **fields}))
    return Session.open(API, body, CLINE if text else AGENT, Planner(profiles, settings), "seed")


def stream_reply(exchange: Session, pieces: Iterable[bytes]) -> bytes:
    stream = exchange.stream()
    return b"".join([out for piece in pieces for out in stream.feed(piece)] + stream.finish())


def make_text_stream(text: str, *, size: int = 1, finish: str = "stop") -> list[bytes]:
    """Return a streamed reply in pieces of `size` characters."""
    return chat.make_stream(*(text[at : at + size] for at in range(0, len(text), size)), finish=finish)


def native(*calls: tuple[str, str], text: str = "") -> list[bytes]:
    """Return a streamed reply with native calls, given by name and the text of the arguments."""
    entries = [
        {"index": i, "id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    deltas = [chat.chunk({"tool_calls": [entry]}) for entry in entries]
    return [chat.ROLE, *chat.make_text_chunks(*text), *deltas, chat.chunk({}, "tool_calls"), chat.DONE]


def whole(*calls: tuple[str, str], content: Any = None, **message: Any) -> bytes:
    """Return a whole reply."""
    entries = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    if entries:
        message = {"tool_calls": entries, **message}
    return chat.encode_json(chat.completion(content, "tool_calls", message=message))


def actions(exchange: Session) -> Sequence[tuple[str, str]]:
    return [(entry["policy"], entry["action"]) for entry in exchange.report.policies]


RULES = ("hermes", "qwen3-coder", "gemma4", "minimax-m3", "tag", "pythonic", "harmony", "cline")
"""Dialects with every kind of body."""
