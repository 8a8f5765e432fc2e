"""What the benchmarks feed: prose, calls, chunks of a streamed reply, long conversations of agents."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import batched, count, cycle, islice
from pathlib import Path
from typing import Any

from vtc.dialects import Description
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall

PIECE = 4
"""Characters in a delta; a token is about that."""
PROSE = "The quick brown fox, who said `hello` <b>twice</b>, jumps over the lazy dog.\n\n"
"""Denser in characters that may begin markup than what models write."""
ANSWER = """\
The error comes from `load_config()`: it reads the file before the directory exists, so the very first start fails \
and every later one works. There are two ways to mend that, and I would take the second.

1. **Create the directory first.** One line, but every caller has to remember it.
2. **Let the reader create it.** The caller stays as it is, and a missing file is simply an empty configuration.

Here is the second one:

```python
def load_config(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return {}
    return json.loads(path.read_text())
```

Nothing else has to change. The tests for `save_config()` still pass, since `x < y` was never compared there, and the \
new one covers a first start. If you would rather keep the reader free of side effects, tell me and I will move the \
`mkdir` into `main()` instead; it is the same line.

"""
"""What a model says to a programmer."""
TALK = """\
The error comes from the loader: it reads the file before the directory exists, so the very first start fails and \
every later one works. There are two ways to mend that, and I'd take the second.

1. **Create the directory first.** One line, but every caller has to remember it.
2. **Let the reader create it.** The caller stays as it is, and a missing file is simply an "empty" configuration.

Nothing else has to change. The tests still pass, since the two were never compared there, and the new one covers a \
first start. If you would rather keep the reader free of side effects, tell me and I will move it into the main \
function instead; it is the same line.

"""
"""What a model says to anybody: text without code."""
_TOKEN = re.compile(r" ?\w{1,8}|\s*\n|\s+(?=\s)| ?[^\w\s]{1,3}|\s")
LINE = 'def f(x):\n    return {"a": [1, 2, 3], "b": x < 3 and x > 1}  # a comment\n\n'
WRITE_FILE: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOLS = {"write_file": Tool("write_file", "Write a file.", WRITE_FILE)}


def repeated(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def call_of(size: int, dialect: Description) -> str:
    """A `write_file` call with `size` characters of code as its content."""
    call = ToolCall("write_file", json.dumps({"path": "src/a.py", "content": repeated(LINE, size)}))
    return "I will write it.\n\n" + write_calls([call], dialect, TOOLS)


def pieces(text: str) -> list[str]:
    """Deltas of four characters, wherever that cuts."""
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def tokens(text: str) -> list[str]:
    """Deltas as tokenizers cut them: a word with the space before it, some punctuation, an end of line."""
    return _TOKEN.findall(text)


def said(text: str, count: int) -> list[str]:
    """A text over and over, in so many deltas."""
    return list(islice(cycle(tokens(text)), count))


# Replies, as a model server streams them


def chunk(delta: dict[str, Any], reason: str | None = None, *, logprobs: Any = None, **fields: Any) -> bytes:
    """Make a frame as vLLM writes it; `fields` go to its top."""
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    head = {
        "id": "chatcmpl-3f1b2c4d5e6f47a8b9c0d1e2f3a4b5c6",
        "object": "chat.completion.chunk",
        "created": 1753000000,
        "model": "a-model/Instruct-32B",
    }
    return b"data: " + _encoded({**head, "choices": [choice], **fields}) + b"\n\n"


def reply(deltas: Iterable[str], frame: Callable[[str], bytes] = lambda text: chunk({"content": text})) -> list[bytes]:
    """Make the frames of a streamed reply; `frame` makes that of one delta."""
    head = chunk({"role": "assistant", "content": ""})
    return [head, *map(frame, deltas), chunk({}, "stop"), b"data: [DONE]\n\n"]


def lines(deltas: Iterable[str]) -> list[bytes]:
    """Make the lines of a streamed reply as Ollama writes them: each has the time at which it was made."""

    def line(number: int, text: str, **fields: Any) -> bytes:
        created = f"2026-01-05T10:{number // 3000 % 60:02}:{number // 50 % 60:02}.{number * 7919 % 10**9:09}Z"
        message = {"role": "assistant", "content": text}
        head = {"model": "a-model:32b", "created_at": created, "message": message}
        return _encoded({**head, "done": False, **fields}) + b"\n"

    numbers = count()
    said = [line(next(numbers), delta) for delta in deltas]
    counts = {"total_duration": 5191566416, "prompt_eval_count": 812, "eval_count": len(said)}
    return [*said, line(next(numbers), "", done=True, done_reason="stop", **counts)]


def events(deltas: Iterable[str]) -> list[bytes]:
    """Make the events of a streamed reply of Anthropic Messages."""
    usage = {"input_tokens": 812, "output_tokens": 1}
    head = {"id": "msg_01", "type": "message", "role": "assistant", "model": "a-model", "content": [], "usage": usage}

    def of_block(what: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"content_block_{what}", "index": 0, **fields}

    said = [of_block("delta", delta={"type": "text_delta", "text": text}) for text in deltas]
    reply = [
        {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}},
        of_block("start", content_block={"type": "text", "text": ""}),
        *said,
        of_block("stop"),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encoded(event)) for event in reply]


def numbered_events(deltas: Iterable[str]) -> list[bytes]:
    """Make the events of a streamed reply of OpenAI Responses: each has a number."""
    given = [*deltas]
    item = {"id": "msg_01", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "annotations": [], "logprobs": []}
    response = {"id": "resp_01", "object": "response", "created_at": 1753000000, "model": "a-model", "output": []}
    place = {"item_id": "msg_01", "output_index": 0, "content_index": 0}
    done = {**item, "status": "completed", "content": [{**part, "text": "".join(given)}]}

    def of_text(what: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.output_text.{what}", **place, **fields, "logprobs": []}

    reply = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(of_text("delta", delta=text) for text in given),
        of_text("done", text="".join(given)),
        {"type": "response.content_part.done", **place, "part": done["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [done]}},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(reply)]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encoded(event)) for event in numbered]


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# Shapes of replies: how real servers write and cut frames. Random values are the same in every run.


@dataclass(frozen=True, slots=True)
class Shape:
    """A reply without calls, as one kind of server sends it."""

    what: str
    chunks: Callable[[int], list[bytes]]
    """Makes the chunks of a reply with so many frames of text."""
    most: float | None = 6.0
    """Microseconds a frame that VTC may add in a mitmdump, beyond what a callable costs that does nothing."""
    model: str = "a-model/Instruct-32B"
    path: str = "/v1/chat/completions"
    media_type: str = "text/event-stream"


PROFILES = Path(__file__).with_name("profiles.yaml")
"""Those of single models of the bench: a policy, and a server of another API."""


def _with_usage(size: int) -> list[bytes]:
    numbers = count(1)

    def frame(text: str) -> bytes:
        number = next(numbers)
        used = {"prompt_tokens": 812, "total_tokens": 812 + number, "completion_tokens": number}
        return chunk({"content": text}, usage=used)

    return reply(said(TALK, size), frame)


def _with_obfuscation(size: int) -> list[bytes]:
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

    def frame(text: str) -> bytes:
        return chunk({"content": text}, obfuscation="".join(chance.choices(letters, k=chance.randint(1, 16))))

    return reply(said(TALK, size), frame)


def _with_logprobs(size: int) -> list[bytes]:
    chance, known = random.Random(2), tokens(TALK)

    def rated(token: str) -> dict[str, Any]:
        return {
            "token": token,
            "logprob": round(-8 * chance.random(), chance.randint(1, 16)),
            "bytes": [*token.encode()],
        }

    def frame(text: str) -> bytes:
        top = [rated(token) for token in (text, *chance.choices(known, k=2))]
        return chunk({"content": text}, logprobs={"content": [{**rated(text), "top_logprobs": top}], "refusal": None})

    return reply(said(TALK, size), frame)


def _reasoning(size: int) -> list[bytes]:
    return reply(said(TALK, size), lambda text: chunk({"reasoning_content": text}))


def _joined(size: int, *, frames: int) -> list[bytes]:
    return [b"".join(some) for some in batched(reply(said(TALK, size)), frames)]


def _spaced(size: int) -> list[str]:
    """Cut a text as some servers do that fake a stream: at its spaces, which stay behind."""
    return list(islice(cycle(re.findall(r"\S+\s+", TALK)), size))


def _cut_anywhere(size: int) -> list[bytes]:
    """Cut a reply into pieces of 1 to 400 bytes: about as many as there are frames."""
    body, chance, at = b"".join(reply(said(TALK, size))), random.Random(3), 0
    pieces = []
    while at < len(body):
        end = at + chance.randint(1, 400)
        pieces.append(body[at:end])
        at = end
    return pieces


SHAPES: Mapping[str, Shape] = {
    "plain": Shape("plain text", lambda size: reply(said(TALK, size)), None),
    "fours": Shape("text cut every four characters", lambda size: reply(pieces(repeated(TALK, size * PIECE)))),
    "usage": Shape("usage that grows in every frame", _with_usage),
    "obfuscation": Shape("obfuscation of random length", _with_obfuscation),
    "logprobs": Shape("logprobs, three a token", _with_logprobs),
    "reasoning": Shape("reasoning_content", _reasoning),
    "two": Shape("two frames in a chunk", partial(_joined, frames=2)),
    "eight": Shape("eight frames in a chunk", partial(_joined, frames=8)),
    "cut": Shape("frames cut anywhere by the network", _cut_anywhere),
    "ollama": Shape(
        "Ollama's lines with created_at",
        lambda size: lines(said(TALK, size)),
        path="/api/chat",
        media_type="application/x-ndjson",
    ),
    "messages": Shape("Anthropic Messages", lambda size: events(said(TALK, size)), path="/v1/messages"),
    "responses": Shape("OpenAI Responses", lambda size: numbered_events(said(TALK, size)), path="/v1/responses"),
    "guarded": Shape(
        "plain text under denied_tools", lambda size: reply(said(TALK, size)), model="a-model/Guarded-32B"
    ),
    "bridged": Shape(
        "chat completions for a client of Messages",
        lambda size: reply(said(TALK, size)),
        28.0,  # what a plain token costs without VTC
        model="a-model/Bridged-32B",
        path="/v1/messages",
    ),
    "behind": Shape("a space behind each word", lambda size: reply(_spaced(size))),
    "bridged-behind": Shape(
        "the same for a client of Messages",
        lambda size: reply(_spaced(size)),
        28.0,
        model="a-model/Bridged-32B",
        path="/v1/messages",
    ),
    "code": Shape("Markdown with code", lambda size: reply(said(ANSWER, size)), 12.0),
}


# Requests


def tools(count: int) -> list[dict[str, Any]]:
    """Tools in the API's form, of the size that agents declare them in: about 1.5 KB each."""
    declared = []
    for number in range(count):
        properties = {
            f"option_{key}": {
                "type": ("string", "integer", "boolean")[key % 3],
                "description": f"What option {key} of tool {number} is for, and when it is left out. " * 2,
            }
            for key in range(6)
        }
        parameters = {"type": "object", "properties": properties, "required": ["option_0"]}
        description = f"Tool {number}: does one thing to the files of the project, and says what it did. " * 5
        function = {"name": f"tool_{number}", "description": description, "parameters": parameters}
        declared.append({"type": "function", "function": function})
    first = {"name": "write_file", "description": "Write a file.", "parameters": WRITE_FILE}
    return [{"type": "function", "function": first}, *declared[1:]]


def conversation(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Messages of an agent at work: it writes a file, is told the result, and says what comes next."""
    messages: list[dict[str, Any]] = []
    for turn in range(first, first + count // 2):
        arguments = {"path": f"src/file_{turn}.py", "content": f"# {turn}\n" + repeated(LINE, 1200)}
        function = {"name": "write_file", "arguments": json.dumps(arguments)}
        call = {"id": f"call_{turn:024d}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"Now file {turn}.", "tool_calls": [call]})
        result = f"Wrote src/file_{turn}.py.\n" + repeated(PROSE, 800)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def request(
    model: str = "a-model/Instruct-32B", *, messages: int = 200, tools_: int = 40, **fields: Any
) -> dict[str, Any]:
    """A request of an agent: 200 messages and 40 tools are about 300 KB."""
    opening = [
        {"role": "system", "content": "You are a careful programmer. " + repeated(PROSE, 4000)},
        {"role": "user", "content": "Write me the files."},
    ]
    turns = conversation(messages - 2)
    return {"model": model, "stream": True, "messages": [*opening, *turns], "tools": tools(tools_), **fields}


def unready(**fields: Any) -> dict[str, Any]:
    """A request of the same size in which each step that makes it ready has something to do."""
    body = request("picky/Instruct-32B", max_tokens=64000, tool_choice="required", **fields)
    system, user, *turns = body["messages"]
    billing = "x-anthropic-billing-header: cc_version=2.1.5; cch=65a;"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": text} for text in (billing, system["content"])]},
        {"role": "user", "content": [{"type": "text", "text": user["content"]}, picture]},
    ]
    for number, (said, result) in enumerate(batched(turns, 2)):
        call = {**said["tool_calls"][0], "id": f"functions.write_file:{number}"}
        messages += [
            {"role": "assistant", "content": None, "reasoning_content": "The next file.", "tool_calls": [call]},
            {**result, "tool_call_id": call["id"]},
        ]
        if number % 5 == 0:
            messages += [{"role": "system", "content": "Be quick."}, {"role": "user", "content": "Go on."}]
            messages += [{"role": "assistant", "content": text} for text in ("", "I do.", "At once.")]
    for number, tool in enumerate(body["tools"][1:]):
        tool["function"] = {**tool["function"], "name": f"files.{tool['function']['name']}", "strict": False}
        schema = tool["function"]["parameters"]
        schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "additionalProperties": False}
        schema["properties"]["option_0"] |= {"pattern": f"^{number}", "anyOf": [{"type": "null"}, {"const": "a"}]}
    return {**body, "messages": messages, "seed": 1, "temperature": 0.2, "top_k": 40}


REFUSALS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
    "Unrecognized request argument supplied: top_k",
    "messages.1.reasoning_content: Extra inputs are not permitted",
    "Unknown parameter: 'tools[1].function.strict'.",
    "seed: Extra inputs are not permitted",
)
"""What a server says of that, one after the other."""


def asked(shape: Shape, *, messages: int = 20, tools_: int = 10) -> dict[str, Any]:
    """Make the request whose reply has a shape."""
    body = request(shape.model, messages=messages, tools_=tools_)
    declared = [tool["function"] for tool in body["tools"]]
    match shape.path:
        case "/api/chat":
            return as_ollama(body)
        case "/v1/messages":
            offered = [{"name": one["name"], "input_schema": one["parameters"]} for one in declared]
            return {**body, "messages": body["messages"][1:2], "max_tokens": 1024, "tools": offered}
        case "/v1/responses":
            offered = [{"type": "function", **one} for one in declared]
            return {"model": body["model"], "stream": True, "input": "Write me the files.", "tools": offered}
    return body


def as_ollama(body: Mapping[str, Any]) -> dict[str, Any]:
    """Write a request as Ollama's own API has it: arguments are objects, and results name their tool."""
    messages = []
    for message in body["messages"]:
        if message["role"] == "tool":
            message = {"role": "tool", "tool_name": "write_file", "content": message["content"]}
        elif calls := message.get("tool_calls"):
            message = {**message, "tool_calls": [_with_object(call["function"]) for call in calls]}
        messages.append(message)
    return {**body, "messages": messages}


def _with_object(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"function": {**function, "arguments": json.loads(function["arguments"])}}
