"""A scripted model behind real HTTP, which does one thing: it reads a file by a text tool call.

It speaks one API (`apis.py`): it never parses tools and, unless its dialect is ``native``, never sends native tool
calls. It answers with a call of the agent's reading tool until the conversation contains the secret word, then with
that word. It does not know the word beforehand, so the word in an agent's output proves that the call was executed and
that its result was sent back.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.agents.apis import CHAT, MODEL, Api, Call, Heard, Reply, find_unsigned_call
from tests.apis import pairs

WORD = re.compile(r"\bword-[0-9a-f]{12}\b")
"""The form of a secret word; `hello.txt` contains one."""

TITLE = "Secret word"
PROSE = "I will look at the file.\n\n"

# Written by hand, not by VTC's writers, because the tests need an independent witness.
DIALECTS = {
    "tag": "<{name}>\n<{key}>{value}</{key}>\n</{name}>",
    "invoke": '<function_calls>\n<invoke name="{name}">\n<parameter name="{key}">{value}</parameter>\n'
    "</invoke>\n</function_calls>",
    "hermes": '<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>',
    "tools-tag": '<tools>\n{{"name": "{name}", "arguments": {arguments}}}\n</tools>',
    "qwen3-coder": "<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n"
    "</function>\n</tool_call>",
}

PATIENCE = 8  # requests after which the model stops: an agent that rejects its calls would never end


@dataclass(slots=True)
class ScriptedModel:
    """The model's script.

    `dialect` is a key of `DIALECTS`, or ``native`` for native tool calls. `read` is the call that reads the file.
    `finish` is the tool and the parameter by which the agent expects the answer, None if plain text suffices. A
    `strict` model knows its own form only: one that writes text rejects `tools` and native results with status 400, and
    calls only in a form that its system prompt shows; a ``native`` one calls only declared `tools`, and accepts native
    results only. `api` is the API that it speaks. The streams of a model that `breaks` end in an error, so that only a
    whole reply contains the answer.
    """

    dialect: str
    read: Call
    finish: tuple[str, str] | None = None
    strict: bool = False
    api: Api = CHAT
    breaks: bool = False
    window: int = 0
    """The context window in tokens, in the list of models; 0 if it has none."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Requests to the API's path, in order."""
    flags: list[Sequence[str]] = field(default_factory=list)
    """The flags of features in the header `anthropic-beta` of each request."""
    strays: list[str] = field(default_factory=list)
    """Method and path of every other request."""

    def refusal(self, request: dict[str, Any]) -> str | None:
        """Return the reason why a strict model rejects this request, if there is one."""
        heard = self.api.hear(request)
        if self._text_only and heard.tools is not None:
            return "this model knows no tools"
        if self._text_only and heard.results is not None:
            return "this model knows no tool messages"
        return None

    def reply(self, request: dict[str, Any]) -> Reply:
        heard = self.api.hear(request)
        if not self._is_offered(heard):
            return Reply(TITLE)
        heeded = heard.results or ""
        if not (self.strict and self.dialect == "native"):
            heeded += f"\n{heard.user}"
        if not (word := WORD.search(heeded)):
            return self._call(PROSE, self.read) if len(self.requests) < PATIENCE else Reply("I give up.")
        answer = f"The secret word is {word[0]}."
        return self._call("", Call(*self.finish, answer)) if self.finish else Reply(answer)

    def has_received(self, word: str) -> bool:
        """Return True if any request contained this word."""
        return word in json.dumps(self.requests)

    @property
    def _text_only(self) -> bool:
        return self.strict and self.dialect != "native"

    def _is_offered(self, heard: Heard) -> bool:
        """Return True if the reading tool is offered; side requests, for example for a title, lack it."""
        if heard.tools is not None:
            return self.read.name in heard.tools
        if self.strict and not self._text_only:
            return False
        shown = [self.read.name, self.read.key]
        if self.strict:
            shown.append(self._write(self.read).partition("\n")[0])
        return all(item in heard.system for item in shown)

    def _call(self, prose: str, call: Call) -> Reply:
        return Reply(prose, call) if self.dialect == "native" else Reply(prose + self._write(call))

    def _write(self, call: Call) -> str:
        written = {"name": call.written, "key": call.key, "value": call.value, "arguments": call.arguments}
        return DIALECTS[self.dialect].format(**written)


class HostedModel(ScriptedModel):
    """A model of a hosted API of chat completions, which rejects unknown fields and a malformed history.

    It names one unsupported field at a time, in OpenAI's words.
    """

    refused: int = 0

    def refusal(self, request: dict[str, Any]) -> str | None:
        named = next((name for name in _REFUSED if name in request), None)
        words = _REFUSED[named] if named else None
        try:
            pairs.check_request("openai-chat", request)
        except AssertionError as error:
            words = str(error)
        self.refused += words is not None
        return words


_REFUSED = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "temperature": "Unsupported parameter: 'temperature' is not supported with this model.",
    "top_p": "Unsupported parameter: 'top_p' is not supported with this model.",
    "top_k": "Unrecognized request argument supplied: top_k",
    "reasoning_effort": "Unrecognized request argument supplied: reasoning_effort",
    "parallel_tool_calls": "Unknown parameter: 'parallel_tool_calls'.",
}


class OlderClaude(ScriptedModel):
    """A Claude on another cloud that does not know the newest flags, and supports only thinking with a budget."""

    refused: int = 0

    def refusal(self, request: dict[str, Any]) -> str | None:
        words = self._find_rejection(request, [flag for flag in self.flags[-1] if flag and flag not in _KNOWN])
        self.refused += words is not None
        return words

    def _find_rejection(self, request: dict[str, Any], unknown: Sequence[str]) -> str | None:
        thinks = request.get("thinking", {}).get("type")
        edits = [edit["type"] for edit in request.get("context_management", {}).get("edits", ())]
        if unknown:
            named = ", ".join(f"`{flag}`" for flag in unknown)
            return f"Unexpected value(s) {named} for the `anthropic-beta` header. Please try again without the header."
        if "context_management" in request and "context-management-2025-06-27" not in self.flags[-1]:
            return "context_management: Extra inputs are not permitted"
        if thinks == "adaptive":
            return "adaptive thinking is not supported on this model"
        if "clear_thinking_20251015" in edits and thinks != "enabled":
            return "`clear_thinking_20251015` strategy requires `thinking` to be enabled or adaptive"
        has_effort = "effort" in request.get("output_config", {})
        return "This model does not support the effort parameter." if has_effort else None


_KNOWN = ("claude-code-20250219", "interleaved-thinking-2025-05-14", "context-management-2025-06-27")


class SigningModel(ScriptedModel):
    """A model of Gemini's API that rejects calls without their signature. It reads the file twice."""

    def refusal(self, request: dict[str, Any]) -> str | None:
        named = find_unsigned_call(request)
        if named:
            return f"Function call is missing a thought_signature in functionCall parts: default_api:{named}"
        try:
            pairs.check_request("gemini-generate", request)
        except AssertionError as error:
            return str(error)
        return None

    def reply(self, request: dict[str, Any]) -> Reply:
        once = json.dumps(request).count('"functionResponse"') == 1
        return self._call(PROSE, self.read) if once else super().reply(request)


@contextmanager
def serve(model: ScriptedModel) -> Iterator[str]:
    """Serve the model on a free port of the loopback interface; yield ``http://127.0.0.1:PORT``."""

    class Handler(_Handler):
        script = model

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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
            window = {"max_model_len": self.script.window} if self.script.window else {}
            self._json(200, {"object": "list", "data": [{"id": MODEL, "object": "model", **window}]})
        else:
            self._stray()

    def do_HEAD(self) -> None:
        self._stray()

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        api = self.script.api
        if self.path.partition("?")[0] != api.path:
            self._stray()
            return
        if not request:  # VTC's probe for the API
            self._error(400, "messages: field required")
            return
        self.script.requests.append(request)
        self.script.flags.append(self.headers.get("anthropic-beta", "").split(","))
        if refusal := self.script.refusal(request):
            self._error(400, refusal)
        elif not request.get("stream", api.by_default):
            if api.whole:
                self._json(200, api.whole(self.script.reply(request)))
            else:
                self._error(400, "this model only streams")
        elif self.script.breaks:
            self._events(api.broken)
        else:
            self._events(api.stream(self.script.reply(request), request))

    def _events(self, frames: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", self.script.api.media)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for frame in frames:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.wfile.write(b"0\r\n\r\n")

    def _stray(self) -> None:
        self.script.strays.append(f"{self.command} {self.path}")
        self._error(404, f"no such path: {self.path}")

    def _error(self, status: int, message: str) -> None:
        error = {"message": message, "type": "invalid_request_error"}
        self._json(status, {"type": "error", "error": error})

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # the model records the requests
