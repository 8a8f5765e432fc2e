"""A model server on the loopback interface whose models write their calls as text, each in its own dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import vtc

MODELS = {
    "Qwen/Qwen2.5-7B-Instruct": "hermes",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder",
    "google/gemma-4-31B-it": "gemma4",
    "moonshotai/Kimi-K2-Instruct": "kimi-k2",
}
"""Models, and the dialects in which they write calls."""
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": SCHEMA}}]
ARGUMENTS = {"path": "a <b>\n& c", "limit": 2}
TEXT = "I look.\n"
PIECE_CHARS = 5
HEAD = {"id": "1", "created": 1}


def write_reply(model: str) -> str:
    """Write the text of a reply with a call."""
    dialect = next(dialect for name, dialect in MODELS.items() if name in model)
    return TEXT + vtc.render_calls([{"name": "read", "arguments": ARGUMENTS}], dialect, TOOLS)


def make_whole_reply(request: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": write_reply(request["model"])}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {**HEAD, "object": "chat.completion", "model": request["model"], "choices": [choice], "usage": usage}


def make_stream(request: dict[str, Any]) -> Iterator[bytes]:
    text = write_reply(request["model"])
    pieces = [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {"content": piece}} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    for choice in choices:
        data = {**HEAD, "object": "chat.completion.chunk", "model": request["model"], "choices": [choice]}
        yield b"data: %b\n\n" % json.dumps(data).encode()
    yield b"data: [DONE]\n\n"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path.endswith("/v1/chat/completions"), self.path
        assert request["tools"], request
        self.send_response(200)
        if request.get("stream"):
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for frame in make_stream(request):
                self.wfile.write(frame)
            return
        body = json.dumps(make_whole_reply(request)).encode()
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def run_model_server() -> Iterator[str]:
    """Run the server in a thread; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
