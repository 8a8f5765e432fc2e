"""A scripted model behind real HTTP: it knows one move, reading a file by a tool call written as text.

It speaks OpenAI chat completions and nothing else: it never parses tools and, unless its dialect is
``native``, never sends `tool_calls`. It answers with a call of the agent's reading tool until the
conversation shows the secret word, then with that word. It does not know the word beforehand, so the
word in an agent's output proves that the call was carried out and that its result came back.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORD = re.compile(r"\bword-[0-9a-f]{12}\b")
"""What a secret word looks like; `hello.txt` holds one."""

MODEL = "scripted-model"
TITLE = "Secret word"
PROSE = "I will look at the file.\n\n"

# Written by hand, not by the writers of VTC: the tests need a witness of their own.
DIALECTS = {
    "tag": "<{name}>\n<{key}>{value}</{key}>\n</{name}>",
    "invoke": '<function_calls>\n<invoke name="{name}">\n<parameter name="{key}">{value}</parameter>\n'
    "</invoke>\n</function_calls>",
    "hermes": '<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}\n</tool_call>',
    "tools-tag": '<tools>\n{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}\n</tools>',
    "qwen3-coder": "<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n"
    "</function>\n</tool_call>",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call with a single string argument."""

    name: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    call: Call | None = None  # structured, beside the text


@dataclass(slots=True)
class ScriptedModel:
    """The model's script.

    `dialect` is a key of `DIALECTS`, or ``native`` for structured `tool_calls`. `read` is the call
    that reads the file. `finish` is the tool and the parameter by which the agent wants to be told the
    answer, None where plain text will do. A `strict` model knows its own form only: one that writes text
    refuses `tools` and `role: tool` with status 400, and calls only in a form that its system prompt shows;
    a ``native`` one calls only declared `tools`, and hears results only in messages of role `tool`.
    """

    dialect: str
    read: Call
    finish: tuple[str, str] | None = None
    strict: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    def refusal(self, request: dict[str, Any]) -> str | None:
        """Why a strict model will not take this request."""
        if self._text_only and "tools" in request:
            return "this model knows no tools"
        if self._text_only and any(message["role"] == "tool" for message in request["messages"]):
            return "this model knows no tool messages"
        return None

    def reply(self, request: dict[str, Any]) -> Reply:
        if not self._offered(request):
            return Reply(TITLE)
        heeded = ("tool",) if self.strict and self.dialect == "native" else ("user", "tool")
        heard = "\n".join(_text(m) for m in request["messages"] if m["role"] in heeded)
        if not (word := WORD.search(heard)):
            return self._call(PROSE, self.read)
        answer = f"The secret word is {word[0]}."
        return self._call("", Call(*self.finish, answer)) if self.finish else Reply(answer)

    @property
    def _text_only(self) -> bool:
        return self.strict and self.dialect != "native"

    def _offered(self, request: dict[str, Any]) -> bool:
        """Is the reading tool there? Side requests, such as one for a title, come without it."""
        if "tools" in request:
            return any(tool["function"]["name"] == self.read.name for tool in request["tools"])
        if self.strict and not self._text_only:
            return False
        system = "\n".join(_text(m) for m in request["messages"] if m["role"] == "system")
        shown = [self.read.name, self.read.key]
        if self.strict:
            shown.append(self._write(self.read).partition("\n")[0])
        return all(item in system for item in shown)

    def _call(self, prose: str, call: Call) -> Reply:
        return Reply(prose, call) if self.dialect == "native" else Reply(prose + self._write(call))

    def _write(self, call: Call) -> str:
        return DIALECTS[self.dialect].format(name=call.name, key=call.key, value=call.value)


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


@contextmanager
def serve(model: ScriptedModel) -> Iterator[str]:
    """Serve the model on a free port of the loopback interface; gives ``http://127.0.0.1:PORT``."""

    class Handler(_Handler):
        script = model

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    script: ScriptedModel

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._error(404, f"no such path: {self.path}")

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.script.requests.append(request)
        if self.path != "/v1/chat/completions":
            self._error(404, f"no such path: {self.path}")
        elif not request.get("stream"):
            self._error(400, "this model only streams")
        elif refusal := self.script.refusal(request):
            self._error(400, refusal)
        else:
            self._events(_stream(self.script.reply(request), request))

    def _events(self, stream: Iterable[str]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for data in stream:
            frame = f"data: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.wfile.write(b"0\r\n\r\n")

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "invalid_request_error"}})

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the requests are recorded by the model


def _stream(reply: Reply, request: dict[str, Any]) -> Iterator[str]:
    """The data of each SSE frame: four characters of text a frame, as real models stream tokens."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": MODEL}

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> str:
        return json.dumps(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})

    yield chunk({"role": "assistant", "content": ""})
    for start in range(0, len(reply.text), 4):
        yield chunk({"content": reply.text[start : start + 4]})
    if call := reply.call:
        function = {"name": call.name, "arguments": json.dumps({call.key: call.value})}
        ident = f"call_{len(request['messages'])}"
        yield chunk({"tool_calls": [{"index": 0, "id": ident, "type": "function", "function": function}]})
    yield chunk({}, "tool_calls" if reply.call else "stop")
    if (request.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        yield json.dumps(head | {"choices": [], "usage": usage})
    yield "[DONE]"
