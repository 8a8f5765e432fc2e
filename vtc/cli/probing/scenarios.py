"""What a model is asked in a probe, one row a scenario, and what a good reply is.

Those named in `COMPARED` have the names, the tools and the sense of `canitoolcall probe` 0.1.1 (PyPI), so that results
compare. All tools are made up and harmless, and nothing that is called is carried out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vtc.events import Answer, Message, Tool, ToolCall
from vtc.guards.arguments import Checker
from vtc.guards.patterns import Budget


def _tool(name: str, description: str, required: Sequence[str] = (), **properties: Any) -> Tool:
    return Tool(name, description, {"type": "object", "properties": properties, "required": [*required]})


TEXT: Mapping[str, Any] = {"type": "string"}
WEATHER = _tool(
    "get_weather",
    "Get the current weather of a city.",
    ["city"],
    city=TEXT,
    unit={"type": "string", "enum": ["c", "f"]},
)
CLOCK = _tool("get_server_time", "Return the time of the server. Takes no arguments.")
NOTE = _tool("save_note", "Save a note, word for word.", ["title", "body"], title=TEXT, body=TEXT)
PERSON = {"type": "object", "properties": {"name": TEXT, "email": TEXT}, "required": ["name", "email"]}
PLACE = {"type": "object", "properties": {"city": TEXT, "room": TEXT}, "required": ["city"]}
EVENT = _tool(
    "create_event",
    "Create an event in the calendar.",
    ["title", "attendees", "location"],
    title=TEXT,
    start={"type": "string", "description": "ISO 8601"},
    attendees={"type": "array", "items": PERSON},
    location=PLACE,
)
RECORD = _tool("record_answer", "Record the final answer to a question.", ["answer"], answer=TEXT)
HARD = Tool(
    "book_table",
    "Book a table in a restaurant.",
    {
        "type": "object",
        "$defs": {"guest": {"type": "object", "properties": {"mail": {"type": "string", "format": "email"}}}},
        "properties": {
            "name": {"type": "string", "pattern": "(?!x)[A-Za-z ]+", "maxLength": 10000},
            "guest": {"$ref": "#/$defs/guest"},
            "time": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "wishes": {"description": "Anything."},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)
"""What clients send (zod, MCP servers) and servers that make grammars of schemas refuse."""

CODE_WORD = "marigold"
SEAL = "vtc-7Q2-lantern"
FILLER = 800
"""Lines of the long prompt, of about eight tokens each."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question to the model."""

    name: str
    asks: str
    """What is found out, for people."""
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    calls: tuple[str, ...] = ()
    """The tools that must be called, in this order; none means that there must be no call."""
    contains: tuple[str, ...] = ()
    """Texts that must stand in the arguments, or in what is said if nothing is to be called."""
    answer: Answer | None = None
    stream: bool = False
    offers: Mapping[str, Tool] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offers", {tool.name: tool for tool in self.tools})

    def streamed(self) -> Scenario:
        """The same question, to be answered by a stream."""
        return replace(self, stream=True)

    def faults(self, said: str, calls: Sequence[ToolCall]) -> list[str]:
        """Say what is wrong with a reply; nothing for a good one."""
        if not self.calls:
            if calls:
                return [f"it called {', '.join(call.name for call in calls)}"]
            missing = [text for text in self.contains if text not in said]
            return [f"{text!r} is missing" for text in missing] if said.strip() else ["it said nothing"]
        names = [call.name for call in calls]
        wanted = iter(names)
        faults = [] if all(name in wanted for name in self.calls) else [f"it called {', '.join(names) or 'nothing'}"]
        faults += [fault for call in calls if (fault := self._misfit(call))]
        written = " ".join(call.arguments for call in calls)
        values = written + json.dumps([_plain(call.arguments) for call in calls], ensure_ascii=False)
        return faults + [f"{text!r} is missing in the arguments" for text in self.contains if text not in values]

    def _misfit(self, call: ToolCall) -> str:
        if call.name not in self.offers:
            return f"{call.name} is not offered"
        arguments = _plain(call.arguments)
        if not isinstance(arguments, dict):
            return f"the arguments of {call.name} are no JSON object"
        fault = Checker(self.offers[call.name], Budget()).fault(arguments)
        return f"{call.name}: {fault.quoted or fault.told}" if fault.told else ""


def _plain(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return None


def _user(text: str) -> tuple[Message, ...]:
    return (Message("user", (text,)),)


def _followed_up() -> tuple[Message, ...]:
    call = ToolCall("get_weather", '{"city": "Paris"}', "probecall")
    result = Message("tool", ('{"temp_c": 18, "sky": "clear"}',), call_id="probecall", name="get_weather")
    return (*_user("What's the weather in Paris?"), Message("assistant", (), (call,)), result)


SINGLE = Scenario(
    "single-call",
    "one call of one tool",
    _user("What's the weather in Paris right now? Use the tool."),
    (WEATHER,),
    calls=("get_weather",),
)
PARALLEL = Scenario(
    "parallel-calls",
    "two calls in one reply",
    _user("Get the weather in Paris and in Tokyo: call get_weather once for each city, both calls in this one reply."),
    (WEATHER,),
    calls=("get_weather", "get_weather"),
)
FORCED = Scenario(
    "forced-tool-choice",
    "tool_choice names a tool",
    _user("Tell me something about Lisbon."),
    (WEATHER, NOTE),
    choice="get_weather",
    calls=("get_weather",),
)
FOLLOWED_UP = Scenario("tool-result-followup", "an answer after a tool's result", _followed_up(), (WEATHER,))
COMPARED = (
    SINGLE,
    PARALLEL,
    Scenario(
        "no-call",
        "an answer where tools are offered and none is needed",
        _user("What is 17 + 25? Answer with the number alone, and do not use any tool."),
        (WEATHER,),
    ),
    Scenario(
        "nested-args",
        "a list of objects and an object as arguments",
        _user(
            "Create an event titled 'Design review' that starts 2026-10-01T15:00:00Z, with Ana (ana@example.com) and "
            "Bo (bo@example.com), in Berlin, room 4.12."
        ),
        (EVENT,),
        calls=("create_event",),
    ),
    Scenario(
        "unicode-args",
        "letters of other scripts and an emoji in arguments",
        _user("Save a note titled 'Grüße aus Zürich' whose body is exactly: Café ☕ in 東京 — naïve résumé 🚀"),
        (NOTE,),
        calls=("save_note",),
        contains=("東京", "🚀"),
    ),
    Scenario(
        "empty-args",
        "a tool without parameters",
        _user("What time is it on the server? Use the tool."),
        (CLOCK,),
        calls=("get_server_time",),
    ),
    FORCED,
    FOLLOWED_UP,
    Scenario(
        "reasoning-then-call",
        "a call after some thinking",
        _user(
            "Think step by step: which is larger, 9.11 or 9.9? "
            "Then record the larger number with the tool record_answer."
        ),
        (RECORD,),
        calls=("record_answer",),
    ),
)
REQUIRED = Scenario(
    "required-tool-choice",
    "tool_choice is `required`",
    _user("Tell me something about Lisbon."),
    (WEATHER,),
    choice="required",
    calls=("get_weather",),
)
FORBIDDEN = Scenario(
    "no-tool-choice",
    "tool_choice is `none`",
    _user("What's the weather in Paris right now? Use the tool."),
    (WEATHER,),
    choice="none",
)
SCHEMAS = Scenario(
    "hard-schema",
    "a schema with a pattern, $ref, anyOf and a property without a type",
    _user("Book a table for Ana with the tool."),
    (HARD,),
    calls=("book_table",),
)
CONSTRAINED = Scenario(
    "constrained",
    "a JSON Schema for the answer, with a value that no one can guess",
    _user('Answer with a JSON object whose key "seal" is a short text.'),
    answer=Answer(
        {
            "type": "object",
            "properties": {"seal": {"type": "string", "enum": [SEAL]}},
            "required": ["seal"],
            "additionalProperties": False,
        },
        "seal",
        True,
    ),
    contains=(SEAL,),
)
LETTER = {"type": "object", "properties": {"seal": {"type": "string", "enum": [SEAL]}}, "required": ["seal"]}
STRICT = Scenario(
    "strict-tool",
    "a strict tool, asked for a value that its schema forbids",
    _user("Seal the letter with the tool. The seal is `red wax`, exactly so."),
    (Tool("seal_letter", "Seal a letter.", {**LETTER, "additionalProperties": False}, strict=True),),
    calls=("seal_letter",),
    contains=(SEAL,),
)
LONG = Scenario(
    "long-prompt",
    "a prompt of about 6,000 tokens, for silent cutting",
    _user(
        f"The code word is {CODE_WORD}.\n"
        + "".join(f"Line {number} says nothing of it.\n" for number in range(1, FILLER))
        + "What is the code word? Answer with that word alone."
    ),
    contains=(CODE_WORD,),
)


def echoing(marker: str) -> Scenario:
    """Ask to repeat a marker, which a server that drops special tokens leaves out."""
    text = f"red {marker} green"
    asks = f"whether {marker} comes back if the model is asked to write it"
    return Scenario("special-tokens", asks, _user(f"Repeat this line exactly, and write nothing else:\n{text}"))
