"""Model servers for probes: each answers as one kind of real server does, with a model that follows simple orders.

Nothing here uses VTC. The model sees the conversation and, if its server shows them, the tools; it writes calls as text
in a dialect of its own, and its server parses them or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.apis import chat, messages, ollama
from tests.e2e.upstream import JSON, SSE, Reply, Seen
from vtc.cli.probing.scenarios import SEAL

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
"""What the model calls, by words of the last message."""


def error(message: str, status: int = 400) -> Reply:
    return Reply([chat.encoded({"error": {"message": message}})], JSON, status=status, framing="length")


def whole(value: Any) -> Reply:
    return Reply([chat.encoded(value)], JSON, framing="length")


@dataclass(kw_only=True)
class Server:
    """A server with a model; its fields are what differs."""

    owner: str = "vllm"
    about: Mapping[str, Any] = field(default_factory=dict)
    """What it answers at paths of its own."""
    paths: tuple[str, ...] = ("/v1/chat/completions",)
    model: str = "Qwen/Qwen2.5-7B-Instruct"
    writes: Callable[[str, Mapping[str, Any]], str] | None = chat.DIALECTS["hermes"]  # type: ignore[assignment]
    """How the model writes a call; None: it never calls."""
    parses: bool = False
    """The server makes `tool_calls` of them."""
    shows_tools: bool = True
    """The chat template tells the model of `tools`."""
    refuses: str = ""
    """The error for a request with `tools`."""
    refuses_schemas: str = ""
    strict: bool = False
    """It decodes calls of strict tools by their schemas."""
    """The error for a schema with a pattern."""
    drops: tuple[str, ...] = ()
    """Special tokens that it leaves out of the text, unless it is told not to."""
    thinks: str = ""
    """What stands before each reply in the text."""
    parted: str = ""
    """The field of reasoning that the server parts off."""
    remembers: int = 1 << 20
    """Characters of the conversation that the model sees, from its end."""
    counts: bool = True
    """It tells how many tokens a whole reply took."""
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
        if self.refuses and body.get("tools"):
            return error(self.refuses)
        if self.refuses_schemas and "pattern" in json.dumps(body.get("tools")):
            return error(self.refuses_schemas)
        return {"/v1/chat/completions": self._chat, "/v1/messages": self._messages, "/api/chat": self._ollama}[
            seen.path
        ](body)

    def _chat(self, body: Any) -> Reply:
        text, calls = self._said(body)
        names = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for at, (name, arguments) in enumerate(calls)
        ]
        reason = "tool_calls" if calls else "stop"
        thought = {self.parted: "Let me see."} if self.parted else {}
        if not body.get("stream"):
            said = {**thought, **({"tool_calls": names} if names else {})}
            usage = {"prompt_tokens": self._counted(body), "completion_tokens": 9} if self.counts else None
            return whole(chat.completion(text, reason, message=said, usage=usage))
        frames = [chat.ROLE, *([chat.chunk(thought)] if thought else []), *chat.said(*filter(None, [text]))]
        frames += [chat.chunk({"tool_calls": [{"index": at, **one}]}) for at, one in enumerate(names)]
        return Reply([*frames, chat.chunk({}, reason), chat.USED, chat.DONE], SSE)

    def _messages(self, body: Any) -> Reply:
        text, calls = self._said(body)
        if body.get("stream"):
            blocks = [messages.text_block(0, text)] if text else []
            blocks += [
                messages.call_block(at + len(blocks), name, json.dumps(arguments), id=f"toolu_{at}")
                for at, (name, arguments) in enumerate(calls)
            ]
            return Reply(messages.streamed(*blocks, stop_reason="tool_use" if calls else "end_turn"), SSE)
        parts = [messages.text(text)] if text else []
        parts += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": arguments}
            for at, (name, arguments) in enumerate(calls)
        ]
        return whole(messages.message(*parts, stop_reason="tool_use" if calls else "end_turn"))

    def _ollama(self, body: Any) -> Reply:
        text, calls = self._said(body)
        said = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
        if body.get("stream", True):
            return Reply(ollama.streamed(ollama.piece(text, *said)), ollama.NDJSON)
        return whole(ollama.message(text, *said))

    def _said(self, body: Any) -> tuple[str, list[Call]]:
        """What the model says, and what its server reads as calls."""
        text, calls = self._thought(body)
        if calls and self.writes and not (self.parses and body.get("tools")):
            text, calls = "\n".join(self.writes(name, arguments) for name, arguments in calls), []
        if body.get("skip_special_tokens", True):
            for token in self.drops:
                text = text.replace(token, "")
        return self.thinks + text, calls

    def _counted(self, body: Any) -> int:
        """Tokens of the prompt, four characters each."""
        tools = len(json.dumps(body["tools"])) if body.get("tools") and self.shows_tools else 0
        return min(tools + len(json.dumps(body["messages"])), self.remembers) // 4

    def _thought(self, body: Any) -> tuple[str, list[Call]]:
        conversation = json.dumps([body.get("system"), body["messages"]], ensure_ascii=False)[-self.remembers :]
        last = body["messages"][-1]
        asked = json.dumps(last, ensure_ascii=False)
        if last["role"] == "tool" or re.search("tool_result|tool_response|temp_c", asked):
            return "It is 18 degrees in Paris.", []
        if "Repeat this line" in asked:
            return _text(last).rpartition("\n")[2], []
        if "red wax" in asked and body.get("tools"):
            held = self.strict and body["tools"][0].get("function", {}).get("strict")
            return "", [("seal_letter", {"seal": SEAL if held else "red wax"})]
        if "seal" in asked:
            return json.dumps({"seal": self._constrained(body)}), []
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

    def _constrained(self, body: Any) -> str:
        found = re.search(r'"enum": \["([^"]*)"\]', json.dumps(body.get("response_format") or body.get("format") or {}))
        return found[1] if found else "anything"


def _text(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
