"""Inspect a chat template by rendering it: tools, reasoning, the dialect of calls, rejected roles.

The template is untrusted because it comes from the server. A separate process renders it in Jinja's sandbox, with
limits on time and memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from vtc.apis.openai_chat import API as CHAT
from vtc.apis.place import BEARER
from vtc.cli.probing import rendering
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compile_grammar
from vtc.events import Call, CanonicalRequest, Message, Tool, ToolCall
from vtc.proxy.asker import Asker, ServerAnswer
from vtc.proxy.trust import DEFAULT_TRUST, Trust
from vtc.scrub import is_credential

MAX_PROBE_REQUESTS = 30
"""Maximum number of requests of one probe."""
MAX_LATE_ANSWERS = 2
"""Number of consecutive timeouts after which the probe stops."""
SELF_DESCRIPTION_SECONDS = 5
"""Time limit in seconds for questions that need no model."""
BY_USER = "stopped by Ctrl-C"
"""The reason of `BoundedAsker.stopped` when the user interrupts the probe."""


class NotAskedError(OSError):
    """Raised in place of an answer when a request was not sent, because the probe has stopped."""


class BoundedAsker(Asker):
    """An asker with limits on requests and time; Ctrl-C stops it but does not end the program.

    After it has stopped, each request gets an answer with a `NotAskedError` that states the reason.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        seconds: float,
        total_seconds: float,
        progress: Callable[[str], None] = lambda _: None,
        trust: Trust = DEFAULT_TRUST,
    ) -> None:
        """Create an asker; `progress` is called with the name of each question before it is sent."""
        super().__init__(url, key=key, seconds=min(SELF_DESCRIPTION_SECONDS, seconds), trust=trust)
        self.request_count = 0
        self.question = ""
        """The purpose of the next request, for people."""
        self.stopped = ""
        """The reason why no more requests are sent; empty while they are."""
        self._patience = seconds
        self._until = time.monotonic() + total_seconds
        self._progress = progress
        self._late = 0
        self._asks_model = False

    def use_model_timeout(self) -> None:
        """Apply the time limit of model answers to all later requests."""
        self.seconds, self._asks_model = self._patience, True

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, key: str = BEARER
    ) -> ServerAnswer:
        if not self.stopped and self.request_count == MAX_PROBE_REQUESTS:
            self.stopped = f"{MAX_PROBE_REQUESTS} requests were sent"
        remaining = self._until - time.monotonic()
        if not self.stopped and remaining <= 0:
            self.stopped = "the time limit of the probe was reached"
        if self.stopped:
            return ServerAnswer(error=NotAskedError(None, f"not asked: {self.stopped}"))
        self.request_count += 1
        self._progress(self.question or path)
        patience, self.seconds = self.seconds, min(self.seconds, remaining)
        try:
            answer = super().ask(path, body, headers, key)
        except KeyboardInterrupt:
            self.stopped = BY_USER
            return ServerAnswer(error=NotAskedError(None, BY_USER))
        finally:
            self.seconds = patience
        self._late = self._late + 1 if isinstance(answer.error, TimeoutError) else 0
        if self._asks_model and answer.status in (401, 403):  # the server would reject later requests, too
            self.stopped = (
                f"the server denies access (status {answer.status}): give a key that it accepts with --key-env"
            )
        elif isinstance(answer.error, ConnectionRefusedError):
            self.stopped = "the server no longer accepts connections"
        elif self._late >= MAX_LATE_ANSWERS:
            self.stopped = f"{self._late} consecutive requests timed out"
        return answer


MAX_TEMPLATE_CHARS = 1 << 18
"""Maximum length of a template; longer ones are not inspected."""
RENDER_SECONDS = 5
"""Limit of the CPU time for all conversations together; the limit of the elapsed time is twice as long."""
MAX_RENDER_BYTES = 1 << 29
"""Limit of the memory of the rendering process; Python itself uses about 50 MB."""
TOOL = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
USER = Message("user", ("Weather?",))
CALL = Message("assistant", (), (ToolCall("get_weather", '{"city": "Paris"}', "abcdefghi"),))
RESULT = Message("tool", ("Sunny",), call_id="abcdefghi", name="get_weather")
SYSTEM = Message("system", ("Be brief.",))
DEVELOPER = Message("developer", ("Be brief.",))
ANSWER = Message("assistant", ("Hello",))
REFUSABLE_CONVERSATIONS: Mapping[str, Sequence[Message]] = {
    "a system message at the start": (SYSTEM, USER),
    "a system message inside the conversation": (USER, ANSWER, SYSTEM, USER),
    "the role developer": (DEVELOPER, USER),
    "two messages of the user in a row": (USER, USER),
    "calls and results": (USER, CALL, RESULT),
}
"""Conversations that some templates reject, by their descriptions."""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The behaviour of a chat template."""

    takes_tools: bool = False
    opens: str = ""
    """The tag of reasoning that it opens at the end of the prompt."""
    dialect: str = ""
    """The dialect in which it writes a past call; empty if no known dialect matches."""
    refuses: tuple[str, ...] = ()
    problem: str = ""
    """The reason why the template could not be inspected."""


class ProblemError(Exception):
    """Raised when a template cannot be rendered, with the reason."""


def inspect_template(source: str, dialects: Sequence[Description], tags: Sequence[tuple[str, str]]) -> TemplateFacts:
    """Inspect a template; `dialects` are the candidates for its calls, `tags` open and close reasoning."""
    conversations: dict[str, Mapping[str, Any]] = {
        "bare": _build_fields((USER,)),
        "with tools": _build_fields((USER,), tools=[TOOL]),
        "asked": _build_fields((USER,), tools=[TOOL], prompt=False),
        "said": _build_fields((USER, ANSWER), tools=[TOOL], prompt=False),
        "called": _build_fields((USER, CALL), tools=[TOOL], prompt=False),
        **{name: _build_fields(messages) for name, messages in REFUSABLE_CONVERSATIONS.items()},
    }
    try:
        texts = dict(zip(conversations, _render_template(source, [*conversations.values()]), strict=True))
    except ProblemError as error:
        return TemplateFacts(problem=str(error))
    if (bare := texts["bare"].get("text")) is None:
        return TemplateFacts(problem=f"it cannot be rendered: {texts['bare'].get('refused')}")
    written = {name: text.get("text", "") for name, text in texts.items()}
    end = bare.rstrip()
    opens = next((open_ for open_, _ in tags if end.endswith(open_)), "")
    return TemplateFacts(
        takes_tools=TOOL.name in written["with tools"] and TOOL.name not in bare,
        opens=opens,
        dialect=_find_dialect(_extract_call(written, opens), dialects),
        refuses=tuple(name for name in REFUSABLE_CONVERSATIONS if "text" not in texts[name]),
    )


def _extract_call(written: Mapping[str, str], opens: str) -> str:
    """Extract a past call as the model would write it, without the markup around a message.

    The markup is the difference between the other rendered conversations.
    """
    asked = written["asked"]
    prompted = written["with tools"] or asked
    head = prompted.removeprefix(asked).rstrip().removesuffix(opens).strip()
    end = written["said"].rpartition(ANSWER.text)[2].strip()
    return written["called"].removeprefix(asked).strip().removeprefix(head).strip().removesuffix(end).strip()


def _find_dialect(text: str, dialects: Sequence[Description]) -> str:
    """Return the dialect of the call in a text; empty if there is no call."""
    reader = Reader(compile_grammar(tuple(dialects), (), (), ((), ())), {TOOL.name: TOOL})
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")


def _render_template(source: str, fields: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Render a template with each of these contexts in a separate process (`rendering`). Raises `ProblemError`."""
    if len(source) > MAX_TEMPLATE_CHARS:
        raise ProblemError("it is too long to be inspected")
    request = {"source": source, "fields": fields, "seconds": RENDER_SECONDS, "bytes": MAX_RENDER_BYTES}
    command = [sys.executable, "-P", rendering.__file__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=build_environment(),
            timeout=2 * RENDER_SECONDS,
        )
        texts = msgspec.convert(json.loads(done.stdout or b"null"), list[dict[str, str]] | None)
    except subprocess.TimeoutExpired:
        raise ProblemError("it takes too long") from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ProblemError(f"it cannot be inspected: {type(error).__name__}") from None
    if texts is None or len(texts) != len(fields):
        raise ProblemError(
            "it takes too much memory" if done.returncode == 0 else "it takes too long, or too much memory"
        )
    return texts


def build_environment() -> dict[str, str]:
    """Build the environment of the process without credentials, in case a template escapes the sandbox."""
    return {name: value for name, value in os.environ.items() if not is_credential(name)}


def _build_fields(messages: Sequence[Message], *, tools: Sequence[Tool] = (), prompt: bool = True) -> Mapping[str, Any]:
    """Build the context with which a server renders a template for this conversation."""
    body = CHAT.build_request(CanonicalRequest(model="", messages=tuple(messages), tools=tuple(tools)))
    messages_of_body = _adapt_messages(body["messages"])
    return {"messages": messages_of_body, "tools": body.get("tools"), "add_generation_prompt": prompt}


def _adapt_messages(entries: Sequence[Any]) -> list[Any]:
    """Adapt messages for templates: arguments become objects, and the content null becomes empty text."""
    adapted = json.loads(json.dumps(entries))
    for entry in adapted:
        entry["content"] = entry.get("content") or ""
        for call in entry.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return [*adapted]
