"""Find out what a chat template does by rendering it: tools, thinking, the form of a call, roles that it refuses.

It comes from the server: another process renders it, in Jinja's sandbox, with bounds on its time and memory.
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

# Asks within limits: so many questions, so much time in all, and Ctrl-C ends the asking but not the report.


MOST_REQUESTS = 30
LATE = 2
"""Questions in a row that get no answer in time, after which no more are asked."""
SHORT = 5
"""Seconds for what a server knows by heart."""


BY_USER = "stopped by Ctrl-C"


class NotAskedError(OSError):
    """No more is asked."""


class BoundedAsker(Asker):
    """Asks at most `MOST_REQUESTS` questions; what is not asked any more gets an answer that says why."""

    def __init__(
        self,
        url: str,
        *,
        key: str,
        seconds: float,
        in_all: float,
        progress: Callable[[str], None] = lambda _: None,
        trust: Trust = DEFAULT_TRUST,
    ) -> None:
        """`progress` is given the name of each question before it is asked."""
        super().__init__(url, key=key, seconds=min(SHORT, seconds), trust=trust)
        self.asked = 0
        self.about = ""
        """What the next question finds out, for people."""
        self.stopped = ""
        """Why no more is asked."""
        self._patience = seconds
        self._until = time.monotonic() + in_all
        self._progress = progress
        self._late = 0
        self._asks_model = False

    def patient(self) -> None:
        """From now on wait as long for an answer as a model may take."""
        self.seconds, self._asks_model = self._patience, True

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, key: str = BEARER
    ) -> ServerAnswer:
        if not self.stopped and self.asked == MOST_REQUESTS:
            self.stopped = f"{MOST_REQUESTS} requests were sent"
        left = self._until - time.monotonic()
        if not self.stopped and left <= 0:
            self.stopped = "the time for all of it was over"
        if self.stopped:
            return ServerAnswer(error=NotAskedError(None, f"not asked: {self.stopped}"))
        self.asked += 1
        self._progress(self.about or path)
        patience, self.seconds = self.seconds, min(self.seconds, left)
        try:
            answer = super().ask(path, body, headers, key)
        except KeyboardInterrupt:
            self.stopped = BY_USER
            return ServerAnswer(error=NotAskedError(None, BY_USER))
        finally:
            self.seconds = patience
        self._late = self._late + 1 if isinstance(answer.error, TimeoutError) else 0
        if self._asks_model and answer.status in (401, 403):  # of the model: the next is refused, too
            self.stopped = (
                f"the server refuses access (status {answer.status}): name a key that it takes with --key-env"
            )
        elif isinstance(answer.error, ConnectionRefusedError):
            self.stopped = "the server is gone"
        elif self._late >= LATE:
            self.stopped = f"{self._late} requests in a row got no answer in time"
        return answer


MOST_TEMPLATE = 1 << 18
SECONDS = 5
"""Of a processor, for all that is rendered; by the clock it may take twice that, and is ended then."""
MOST_MEMORY = 1 << 29
"""Bytes of that process, of which Python itself takes some 50 MB."""
TOOL = Tool("get_weather", "Tells the weather.", {"type": "object", "properties": {"city": {"type": "string"}}})
USER = Message("user", ("Weather?",))
CALLED = Message("assistant", (), (ToolCall("get_weather", '{"city": "Paris"}', "abcdefghi"),))
RESULT = Message("tool", ("Sunny",), call_id="abcdefghi", name="get_weather")
SYSTEM = Message("system", ("Be brief.",))
DEVELOPER = Message("developer", ("Be brief.",))
SAID = Message("assistant", ("Hello",))
REFUSABLE: Mapping[str, Sequence[Message]] = {
    "a system message at the start": (SYSTEM, USER),
    "a system message amid the conversation": (USER, SAID, SYSTEM, USER),
    "the role developer": (DEVELOPER, USER),
    "two messages of the user in a row": (USER, USER),
    "calls and results": (USER, CALLED, RESULT),
}
"""Conversations that some templates refuse."""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The behaviour of a chat template."""

    takes_tools: bool = False
    opens: str = ""
    """The tag of thinking that it opens at the end of the prompt."""
    dialect: str = ""
    """In which it writes a past call; empty if none of ours reads that."""
    refuses: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing is known of it."""


class ProblemError(Exception):
    """Nothing is known of the template, and why."""


def look(source: str, dialects: Sequence[Description], tags: Sequence[tuple[str, str]]) -> TemplateFacts:
    """Find out what a template does; `dialects` are those that are read, `tags` open and close thinking."""
    conversations: dict[str, Mapping[str, Any]] = {
        "bare": _fields((USER,)),
        "with tools": _fields((USER,), tools=[TOOL]),
        "asked": _fields((USER,), tools=[TOOL], prompt=False),
        "said": _fields((USER, SAID), tools=[TOOL], prompt=False),
        "called": _fields((USER, CALLED), tools=[TOOL], prompt=False),
        **{name: _fields(messages) for name, messages in REFUSABLE.items()},
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
        dialect=_dialect(_reply(written, opens), dialects),
        refuses=tuple(name for name in REFUSABLE if "text" not in texts[name]),
    )


def _reply(written: Mapping[str, str], opens: str) -> str:
    """Write a past call as the model would have written it: without what stands around a message."""
    asked = written["asked"]
    prompted = written["with tools"] or asked
    head = prompted.removeprefix(asked).rstrip().removesuffix(opens).strip()
    end = written["said"].rpartition(SAID.text)[2].strip()
    return written["called"].removeprefix(asked).strip().removeprefix(head).strip().removesuffix(end).strip()


def _dialect(text: str, dialects: Sequence[Description]) -> str:
    """Find the dialect in which a call stands in a text."""
    reader = Reader(compile_grammar(tuple(dialects), (), (), ((), ())), {TOOL.name: TOOL})
    events = [*reader.feed(text), *reader.finish()]
    return next((event.dialect for event in events if isinstance(event, Call)), "")


def _render_template(source: str, fields: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Have a template rendered with each of these fields (`rendering.rendered`)."""
    if len(source) > MOST_TEMPLATE:
        raise ProblemError("it is too long to be looked at")
    asked = {"source": source, "fields": fields, "seconds": SECONDS, "bytes": MOST_MEMORY}
    command = [sys.executable, "-P", rendering.__file__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            timeout=2 * SECONDS,
        )
        texts = msgspec.convert(json.loads(done.stdout or b"null"), list[dict[str, str]] | None)
    except subprocess.TimeoutExpired:
        raise ProblemError("it takes too long") from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise ProblemError(f"it cannot be looked at: {type(error).__name__}") from None
    if texts is None or len(texts) != len(fields):
        raise ProblemError(
            "it takes too much memory" if done.returncode == 0 else "it takes too long, or too much memory"
        )
    return texts


def environment() -> dict[str, str]:
    """Make the environment of the process: what gets out of the sandbox finds no keys either."""
    return {name: value for name, value in os.environ.items() if not is_credential(name)}


def _fields(messages: Sequence[Message], *, tools: Sequence[Tool] = (), prompt: bool = True) -> Mapping[str, Any]:
    """Write a conversation as templates are given it."""
    asked = CHAT.build_request(CanonicalRequest(model="", messages=tuple(messages), tools=tuple(tools)))
    written = _as_templates_want(asked["messages"])
    return {"messages": written, "tools": asked.get("tools"), "add_generation_prompt": prompt}


def _as_templates_want(entries: Sequence[Any]) -> list[Any]:
    """Write messages as templates are given them: arguments as an object, and no null as content."""
    written = json.loads(json.dumps(entries))
    for entry in written:
        entry["content"] = entry.get("content") or ""
        for call in entry.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return [*written]
