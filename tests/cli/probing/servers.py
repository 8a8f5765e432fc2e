"""Model servers for probes: each imitates one kind of real server, with a model that follows simple orders.

Nothing here uses VTC. The model receives the conversation and, if its server passes them on, the tools. It writes calls
as text in its dialect, and its server may parse them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat, messages, ollama
from tests.e2e.upstream import JSON, SSE, Reply, Seen
from vtc.cli.probing.scenarios import UNGUESSABLE_VALUE

type Call = tuple[str, dict[str, Any]]

ORDERS: Mapping[str, list[Call]] = {
    "in Paris right now": [("get_weather", {"city": "Paris"})],
    "in Paris and in Tokyo": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Tokyo"})],
    "Create an event": [
        (
            "create_event",
            {
                "title": "Design review",
                "attendees": [{"name": "Ana", "email": "ana@example.com"}],
                "location": {"city": "Berlin", "room": "4.12"},
            },
        )
    ],
    "Save a note": [("save_note", {"title": "Grüße aus Zürich", "body": "Café ☕ in 東京 — naïve résumé 🚀"})],
    "time is it": [("get_server_time", {})],
    "Lisbon": [("get_weather", {"city": "Lisbon"})],
    "record_answer": [("record_answer", {"answer": "9.9"})],
    "Book a table": [("book_table", {"name": "Ana"})],
}
"""Calls of the model, by a part of the last message."""


def error(message: str, status: int = 400) -> Reply:
    return Reply([chat.encode_json({"error": {"message": message}})], JSON, status=status, framing="length")


def whole(value: Any) -> Reply:
    return Reply([chat.encode_json(value)], JSON, framing="length")


@dataclass(kw_only=True)
class Server:
    """A server with a model; the fields are the differences between servers."""

    owner: str = "vllm"
    about: Mapping[str, Any] = field(default_factory=dict)
    """Answers at additional paths."""
    paths: tuple[str, ...] = ("/v1/chat/completions",)
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    writes: Callable[[str, Mapping[str, Any]], str] | None = chat.DIALECTS["hermes"]  # type: ignore[assignment]
    """The function that renders a call as the model writes it; None if the model never calls."""
    parses: bool = False
    """True if the server parses calls into `tool_calls`."""
    shows_tools: bool = True
    """True if the chat template passes `tools` to the model."""
    rejects_tools: str = ""
    """The error for a request with `tools`."""
    rejects_schemas: str = ""
    """The error for a schema with a pattern."""
    strict: bool = False
    """True if it decodes calls of strict tools by their schemas."""
    drops: tuple[str, ...] = ()
    """Special tokens that it removes from the text, unless the request disables that."""
    thinks: str = ""
    """Text before each reply."""
    parted: str = ""
    """The field in which the server sends separated reasoning; empty if it sends none."""
    remembers: int = 1 << 20
    """Maximum characters of the conversation, counted from its end, that the model receives."""
    counts: bool = True
    """True if a whole reply reports its tokens."""
    key: str = ""
    models: tuple[str, ...] = ()

    def __call__(self, seen: Seen) -> Reply:
        if self.key and seen.headers.get("authorization") != f"Bearer {self.key}":
            return error("Incorrect API key provided", 401)
        if seen.path == "/v1/models":
            entries = [
                {"id": one, "owned_by": self.owner, "max_model_len": 32768} for one in (self.model, *self.models)
            ]
            return whole({"object": "list", "data": entries})
        if seen.path in self.about:
            return whole(self.about[seen.path])
        if seen.path not in self.paths:
            return error("Not Found", 404)
        body = seen.json
        if not body.get("messages"):
            return error("messages: field required")
        if self.rejects_tools and body.get("tools"):
            return error(self.rejects_tools)
        if self.rejects_schemas and "pattern" in json.dumps(body.get("tools")):
            return error(self.rejects_schemas)
        return {"/v1/chat/completions": self._chat, "/v1/messages": self._messages, "/api/chat": self._ollama}[
            seen.path
        ](body)

    def _chat(self, body: Any) -> Reply:
        text, calls = self._generate_reply(body)
        names = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(calls)
        ]
        reason = "tool_calls" if calls else "stop"
        thought = {self.parted: "Let me see."} if self.parted else {}
        if not body.get("stream"):
            message = {**thought, **({"tool_calls": names} if names else {})}
            usage = {"prompt_tokens": self._count_tokens(body), "completion_tokens": 9} if self.counts else None
            return whole(chat.completion(text, reason, message=message, usage=usage))
        frames = [chat.ROLE, *([chat.chunk(thought)] if thought else []), *chat.make_text_chunks(*filter(None, [text]))]
        frames += [chat.chunk({"tool_calls": [{"index": at, **one}]}) for at, one in enumerate(names)]
        return Reply([*frames, chat.chunk({}, reason), chat.USED, chat.DONE], SSE)

    def _messages(self, body: Any) -> Reply:
        text, calls = self._generate_reply(body)
        if body.get("stream"):
            blocks = [messages.text_block(0, text)] if text else []
            blocks += [
                messages.call_block(at + len(blocks), name, json.dumps(arguments), id=f"toolu_{at}")
                for at, (name, arguments) in enumerate(calls)
            ]
            return Reply(messages.make_stream(*blocks, stop_reason="tool_use" if calls else "end_turn"), SSE)
        parts = [messages.text(text)] if text else []
        parts += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": arguments}
            for at, (name, arguments) in enumerate(calls)
        ]
        return whole(messages.message(*parts, stop_reason="tool_use" if calls else "end_turn"))

    def _ollama(self, body: Any) -> Reply:
        text, calls = self._generate_reply(body)
        names = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
        if body.get("stream", True):
            return Reply(ollama.make_stream(ollama.piece(text, *names)), ollama.NDJSON)
        return whole(ollama.message(text, *names))

    def _generate_reply(self, body: Any) -> tuple[str, list[Call]]:
        """Return the text of the reply, and the calls that the server parses."""
        text, calls = self._follow_order(body)
        if calls and self.writes and not (self.parses and body.get("tools")):
            text, calls = "\n".join(self.writes(name, arguments) for name, arguments in calls), []
        if body.get("skip_special_tokens", True):
            for token in self.drops:
                text = text.replace(token, "")
        return self.thinks + text, calls

    def _count_tokens(self, body: Any) -> int:
        """Return the tokens of the prompt, at four characters each."""
        tools = len(json.dumps(body["tools"])) if body.get("tools") and self.shows_tools else 0
        return min(tools + len(json.dumps(body["messages"])), self.remembers) // 4

    def _follow_order(self, body: Any) -> tuple[str, list[Call]]:
        conversation = json.dumps([body.get("system"), body["messages"]], ensure_ascii=False)[-self.remembers :]
        last = body["messages"][-1]
        asked = json.dumps(last, ensure_ascii=False)
        if last["role"] == "tool" or re.search("tool_result|tool_response|temp_c", asked):
            return "It is 18 degrees in Paris.", []
        if "Repeat this line" in asked:
            return _join_text(last).rpartition("\n")[2], []
        if "red wax" in asked and body.get("tools"):
            held = self.strict and body["tools"][0].get("function", {}).get("strict")
            return "", [("seal_letter", {"seal": UNGUESSABLE_VALUE if held else "red wax"})]
        if "seal" in asked:
            return json.dumps({"seal": self._choose_seal(body)}), []
        if "code word" in asked:
            known = re.search(r"code word is (\w+)", conversation)
            return (known[1] if known else "I do not know."), []
        choice = body.get("tool_choice")
        choice = choice.get("type") if isinstance(choice, dict) else choice
        calls = next((calls for words, calls in ORDERS.items() if words in asked), [])
        shown = json.dumps(body.get("tools")) if self.shows_tools else ""
        knows = any(f'{name}"' in conversation.replace("\\", "") + shown for name, _ in calls)
        if not (calls and knows and self.writes) or choice == "none":
            return "42 is all I can say.", []
        if "Lisbon" in asked and choice in (None, "auto") and "You must call" not in conversation:
            return "Lisbon is a city.", []
        return "", calls

    def _choose_seal(self, body: Any) -> str:
        found = re.search(r'"enum": \["([^"]*)"\]', json.dumps(body.get("response_format") or body.get("format") or {}))
        return found[1] if found else "anything"


def _join_text(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
