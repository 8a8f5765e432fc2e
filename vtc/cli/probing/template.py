"""What a chat template does, found out by rendering it: tools, thinking, the form of a call, roles that it refuses.

It comes from the server: it runs in Jinja's sandbox, and what it computes and writes is bounded, as is its time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vtc.apis.openai_chat import API as CHAT
from vtc.dialects.reading.reader import Reader
from vtc.dialects.syntax.description import Description
from vtc.dialects.syntax.grammar import compiled
from vtc.events import Asked, Call, Message, Tool, ToolCall

MOST_RENDERED = 1 << 18
"""Characters of a rendered conversation; a template that writes more is not looked at further."""
MOST_TEMPLATE = 1 << 18
MOST_LOOPS = 1000
"""Rounds of one loop over a range."""
MOST_TIMES = 10_000
"""By which a template may multiply."""
SECONDS = 5
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
class Seen:
    """What a chat template does."""

    takes_tools: bool = False
    opens: str = ""
    """The tag of thinking that it opens at the end of the prompt."""
    dialect: str = ""
    """In which it writes a past call; empty if none of ours reads that."""
    refuses: tuple[str, ...] = ()
    problem: str = ""
    """Why nothing is known of it."""


class Refused(Exception):
    """The template raised an error of its own."""


class Environment(ImmutableSandboxedEnvironment):
    """Renders chat templates; none takes all memory by a product or a power."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        times = [one for one in (left, right) if isinstance(one, int | float)]
        if operator == "**" or any(abs(one) > MOST_TIMES for one in times):
            raise Refused("it computes too much")
        return super().call_binop(context, operator, left, right)


def look(source: str, dialects: Sequence[Description], tags: Sequence[tuple[str, str]]) -> Seen:
    """Find out what a template does; `dialects` are those that are read, `tags` open and close thinking."""
    if len(source) > MOST_TEMPLATE:
        return Seen(problem="it is too long to be looked at")
    found = [Seen(problem="it takes too long")]

    def run() -> None:
        try:
            found.append(_look(source, dialects, tags))
        except Exception as error:
            found.append(Seen(problem=f"it cannot be looked at: {type(error).__name__}"))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return found[-1]


def _look(source: str, dialects: Sequence[Description], tags: Sequence[tuple[str, str]]) -> Seen:
    try:
        template = _environment().from_string(source)
        bare = _render(template, (USER,))
    except (TemplateError, Refused, RecursionError) as error:
        return Seen(problem=f"it cannot be rendered: {error}")
    refuses = tuple(what for what, messages in REFUSABLE.items() if _tried(template, messages) is None)
    with_tools = _tried(template, (USER,), tools=[TOOL]) or ""
    end = bare.rstrip()
    opens = next((open_ for open_, _ in tags if end.endswith(open_)), "")
    return Seen(
        takes_tools=TOOL.name in with_tools and TOOL.name not in bare,
        opens=opens,
        dialect=_dialect(_reply(template, opens), dialects),
        refuses=refuses,
    )


def _reply(template: Any, opens: str) -> str:
    """Write a past call as the model would have written it: without what stands around a message."""
    asked, spoken, called = (
        _tried(template, messages, tools=[TOOL], prompt=False) or ""
        for messages in ((USER,), (USER, SAID), (USER, CALLED))
    )
    prompted = _tried(template, (USER,), tools=[TOOL]) or asked
    head = prompted.removeprefix(asked).rstrip().removesuffix(opens).strip()
    end = spoken.rpartition(SAID.text)[2].strip()
    return called.removeprefix(asked).strip().removeprefix(head).strip().removesuffix(end).strip()


def _dialect(text: str, dialects: Sequence[Description]) -> str:
    """Find the dialect in which a call stands in a text."""
    reader = Reader(compiled(tuple(dialects), (), (), ((), ())), {TOOL.name: TOOL})
    events = [*reader.feed(text), *reader.finish()]
    return next((one.dialect for one in events if isinstance(one, Call)), "")


def _environment() -> Environment:
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    environment.globals |= {
        "raise_exception": _raise,
        "strftime_now": lambda _: "2026-01-01",
        "range": lambda *of: range(*of)[:MOST_LOOPS],
    }
    return environment


def _raise(message: object) -> None:
    raise Refused(str(message))


def _tried(template: Any, messages: Sequence[Message], **how: Any) -> str | None:
    try:
        return _render(template, messages, **how)
    except (TemplateError, Refused):
        return None


def _render(template: Any, messages: Sequence[Message], *, tools: Sequence[Tool] = (), prompt: bool = True) -> str:
    asked = CHAT.ask(Asked(model="", messages=tuple(messages), tools=tuple(tools)))
    fields = {"messages": _as_templates_want(asked["messages"]), "tools": asked.get("tools")}
    fields["add_generation_prompt"] = prompt
    try:
        return "".join(_bounded(template.generate(**fields, bos_token="", eos_token="")))
    except (TemplateError, Refused):
        raise
    except Exception as error:  # templates add texts to lists, and look into what is not there
        raise Refused(f"{type(error).__name__}: {error}") from None


def _as_templates_want(entries: Sequence[Any]) -> list[Any]:
    """Write messages as templates are given them: arguments as an object, and no null as content."""
    said = json.loads(json.dumps(entries))
    for entry in said:
        entry["content"] = entry.get("content") or ""
        for call in entry.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return [*said]


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MOST_RENDERED:
            raise Refused("it writes without end")
        yield piece
