"""A small scripted model server without tool support, like many real ones.

`python -m vtc.demo --port 8000` serves `/v1/chat/completions`, streaming and not, and `/v1/models`. It answers 400 to
requests without messages, to `tools`, and to messages of role `tool`, and 404 to all other paths. When asked for a
file, its model writes a text tool call in the format of its system prompt; given the result, it answers.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DEMO_MODEL = "demo-model"
CHUNK_CHARS = 4
"""Characters per chunk, about one token of a real model."""

# A text that reveals a format in the prompt, and the template of a call in that format.
CALL_FORMATS = (
    ("<parameter=", "<tool_call>\n<function=%s>\n<parameter=%s>\n%s\n</parameter>\n</function>\n</tool_call>"),
    ("<invoke", '<invoke name="%s">\n<parameter name="%s">%s</parameter>\n</invoke>'),
    ("</tool_call>", '<tool_call>\n{"name": "%s", "arguments": {"%s": "%s"}}\n</tool_call>'),
    ("</tools>", '<tools>\n{"name": "%s", "arguments": {"%s": "%s"}}\n</tools>'),
    ("<read_file>", "<%s>\n<%s>%s</path>\n</read_file>"),
    ("", '{"name": "%s", "arguments": {"%s": "%s"}}'),
)


def write_reply(messages: list[dict[str, Any]]) -> str:
    """Return the next reply of the model."""
    texts = [_text(message.get("content")) for message in messages]
    result = re.search(r"(?:^|\n|>)The secret word is (\S+?)\.", texts[-1])
    if result:
        return f"The note says that the secret word is {result[1]}. In an example, `<read_file>` would be no call."
    wanted = re.search(r"\b(\S+\.txt)\b", texts[-1])
    if not wanted:
        return "Ask me about a text file."
    system = texts[0] if messages[0].get("role") == "system" else ""
    if "read_file" not in system:
        return "I would have to read the file for that, but I was given no tools."
    call = next(form for sample, form in CALL_FORMATS if sample in system)
    return "Let me look into that file.\n\n" + call % ("read_file", "path", wanted[1])


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


class DemoServer(ThreadingHTTPServer):
    """The HTTP server; it records the replies of its model in `written`."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _DemoHandler)
        self.written: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the client disconnected before the end of its reply."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _DemoHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DemoServer

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the demonstration prints both sides of each turn."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": DEMO_MODEL, "object": "model", "owned_by": "vtc"}]})
        else:
            self._send_error(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path != "/v1/chat/completions":
            self._send_error(404, f"there is no {self.path}")
            return
        try:
            request = json.loads(body)
            messages = request["messages"]
            uses_tools = "tools" in request or any(message.get("role") == "tool" for message in messages)
            text = "" if uses_tools else write_reply(messages)
        except (ValueError, LookupError, TypeError, AttributeError):
            self._send_error(400, "the request has no messages")
            return
        if uses_tools:
            self._send_error(400, "this server does not support tools")
            return
        self.server.written.append(text)
        if request.get("stream"):
            self._stream(request, text)
        else:
            message = {"role": "assistant", "content": text}
            self._send(200, self._chunk(request, "chat.completion", {"message": message, "finish_reason": "stop"}))

    def _stream(self, request: dict[str, Any], text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for delta, reason in _deltas(text):
            chunk = self._chunk(request, "chat.completion.chunk", {"delta": delta, "finish_reason": reason})
            self._write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self._write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _write(self, frame: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.wfile.flush()

    def _chunk(self, request: dict[str, Any], kind: str, choice: dict[str, Any]) -> dict[str, Any]:
        number = len(self.server.written)
        return {
            "id": f"chatcmpl-{number}",
            "object": kind,
            "created": number,
            "model": request.get("model", DEMO_MODEL),
            "choices": [{"index": 0, **choice}],
        }

    def _send_error(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _deltas(text: str) -> Iterator[tuple[dict[str, str], str | None]]:
    yield {"role": "assistant", "content": ""}, None
    for at in range(0, len(text), CHUNK_CHARS):
        yield {"content": text[at : at + CHUNK_CHARS]}, None
    yield {}, "stop"


@contextmanager
def run_server(port: int = 0) -> Iterator[DemoServer]:
    """Run the server in a thread; port 0 chooses a free one."""
    with DemoServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000)
    with DemoServer(parser.parse_args().port) as server:
        print(f"scripted model server at {server.url}/v1 (Ctrl-C ends it)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
