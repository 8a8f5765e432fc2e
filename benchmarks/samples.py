"""Input of the benchmarks: prose, calls, chunks of streamed replies, long conversations of agents."""

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

PIECE_CHARS = 4
"""Characters of a delta; about one token."""
PROSE = "The quick brown fox, who said `hello` <b>twice</b>, jumps over the lazy dog.\n\n"
"""Text with more characters that can begin markup than models usually write."""
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
"""A typical answer to a programmer, with code."""
TALK = """\
The error comes from the loader: it reads the file before the directory exists, so the very first start fails and \
every later one works. There are two ways to mend that, and I'd take the second.

1. **Create the directory first.** One line, but every caller has to remember it.
2. **Let the reader create it.** The caller stays as it is, and a missing file is simply an "empty" configuration.

Nothing else has to change. The tests still pass, since the two were never compared there, and the new one covers a \
first start. If you would rather keep the reader free of side effects, tell me and I will move it into the main \
function instead; it is the same line.

"""
"""A typical answer without code."""
_TOKEN = re.compile(r" ?\w{1,8}|\s*\n|\s+(?=\s)| ?[^\w\s]{1,3}|\s")
LINE = 'def f(x):\n    return {"a": [1, 2, 3], "b": x < 3 and x > 1}  # a comment\n\n'
WRITE_FILE: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
}
TOOLS = {"write_file": Tool("write_file", "Write a file.", WRITE_FILE)}


def repeat_text(text: str, size: int) -> str:
    return (text * (size // len(text) + 1))[:size]


def write_call(size: int, dialect: Description) -> str:
    """Write a `write_file` call in a dialect, with `size` characters of code as its content."""
    call = ToolCall("write_file", json.dumps({"path": "src/a.py", "content": repeat_text(LINE, size)}))
    return "I will write it.\n\n" + write_calls([call], dialect, TOOLS)


def split_pieces(text: str) -> list[str]:
    """Split a text into deltas of four characters."""
    return [text[at : at + PIECE_CHARS] for at in range(0, len(text), PIECE_CHARS)]


def split_tokens(text: str) -> list[str]:
    """Split a text as tokenizers do: a word with the space before it, some punctuation, an end of line."""
    return _TOKEN.findall(text)


def repeat_tokens(text: str, count: int) -> list[str]:
    """Return `count` deltas of a text that is repeated."""
    return list(islice(cycle(split_tokens(text)), count))


def make_chunk(delta: dict[str, Any], reason: str | None = None, *, logprobs: Any = None, **fields: Any) -> bytes:
    """Make a frame in the format of vLLM; `fields` are added at its top level."""
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    head = {
        "id": "chatcmpl-3f1b2c4d5e6f47a8b9c0d1e2f3a4b5c6",
        "object": "chat.completion.chunk",
        "created": 1753000000,
        "model": "a-model/Instruct-32B",
    }
    return b"data: " + _encode_json({**head, "choices": [choice], **fields}) + b"\n\n"


def make_reply(
    deltas: Iterable[str], frame: Callable[[str], bytes] = lambda text: make_chunk({"content": text})
) -> list[bytes]:
    """Make the frames of a streamed reply; `frame` makes the frame of one delta."""
    head = make_chunk({"role": "assistant", "content": ""})
    return [head, *map(frame, deltas), make_chunk({}, "stop"), b"data: [DONE]\n\n"]


def make_ollama_lines(deltas: Iterable[str]) -> list[bytes]:
    """Make the lines of a streamed reply in the format of Ollama; each contains the time of its creation."""

    def make_line(number: int, text: str, **fields: Any) -> bytes:
        created = f"2026-01-05T10:{number // 3000 % 60:02}:{number // 50 % 60:02}.{number * 7919 % 10**9:09}Z"
        message = {"role": "assistant", "content": text}
        head = {"model": "a-model:32b", "created_at": created, "message": message}
        return _encode_json({**head, "done": False, **fields}) + b"\n"

    numbers = count()
    content_lines = [make_line(next(numbers), delta) for delta in deltas]
    counts = {"total_duration": 5191566416, "prompt_eval_count": 812, "eval_count": len(content_lines)}
    return [*content_lines, make_line(next(numbers), "", done=True, done_reason="stop", **counts)]


def make_messages_events(deltas: Iterable[str]) -> list[bytes]:
    """Make the events of a streamed reply of Anthropic Messages."""
    usage = {"input_tokens": 812, "output_tokens": 1}
    head = {"id": "msg_01", "type": "message", "role": "assistant", "model": "a-model", "content": [], "usage": usage}

    def make_block_event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"content_block_{kind}", "index": 0, **fields}

    text_events = [make_block_event("delta", delta={"type": "text_delta", "text": text}) for text in deltas]
    reply = [
        {"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}},
        make_block_event("start", content_block={"type": "text", "text": ""}),
        *text_events,
        make_block_event("stop"),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode_json(event)) for event in reply]


def make_responses_events(deltas: Iterable[str]) -> list[bytes]:
    """Make the events of a streamed reply of OpenAI Responses: each has a number."""
    texts = [*deltas]
    item = {"id": "msg_01", "type": "message", "role": "assistant"}
    part = {"type": "output_text", "annotations": [], "logprobs": []}
    response = {"id": "resp_01", "object": "response", "created_at": 1753000000, "model": "a-model", "output": []}
    place = {"item_id": "msg_01", "output_index": 0, "content_index": 0}
    done = {**item, "status": "completed", "content": [{**part, "text": "".join(texts)}]}

    def make_text_event(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.output_text.{kind}", **place, **fields, "logprobs": []}

    reply = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *(make_text_event("delta", delta=text) for text in texts),
        make_text_event("done", text="".join(texts)),
        {"type": "response.content_part.done", **place, "part": done["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [done]}},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(reply)]
    return [b"event: %b\ndata: %b\n\n" % (event["type"].encode(), _encode_json(event)) for event in numbered]


def _encode_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Shape:
    """Format of a reply without calls, as one kind of server sends it; random values are the same in every run."""

    label: str
    make_chunks: Callable[[int], list[bytes]]
    """Makes the chunks of a reply from the number of its text frames."""
    max_added_us: float | None = 6.0
    """Maximum microseconds per frame that VTC may add in a mitmdump, compared with an identity callable."""
    model: str = "a-model/Instruct-32B"
    path: str = "/v1/chat/completions"
    media_type: str = "text/event-stream"


PROFILES = Path(__file__).with_name("profiles.yaml")
"""Profiles of single models of the benchmarks: a policy, a server of another API, and a server that needs all steps."""


def _make_usage_reply(size: int) -> list[bytes]:
    numbers = count(1)

    def frame(text: str) -> bytes:
        number = next(numbers)
        used = {"prompt_tokens": 812, "total_tokens": 812 + number, "completion_tokens": number}
        return make_chunk({"content": text}, usage=used)

    return make_reply(repeat_tokens(TALK, size), frame)


def _make_obfuscated_reply(size: int) -> list[bytes]:
    chance = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

    def frame(text: str) -> bytes:
        return make_chunk({"content": text}, obfuscation="".join(chance.choices(letters, k=chance.randint(1, 16))))

    return make_reply(repeat_tokens(TALK, size), frame)


def _make_logprobs_reply(size: int) -> list[bytes]:
    chance, known = random.Random(2), split_tokens(TALK)

    def rate_token(token: str) -> dict[str, Any]:
        return {
            "token": token,
            "logprob": round(-8 * chance.random(), chance.randint(1, 16)),
            "bytes": [*token.encode()],
        }

    def frame(text: str) -> bytes:
        top = [rate_token(token) for token in (text, *chance.choices(known, k=2))]
        return make_chunk(
            {"content": text}, logprobs={"content": [{**rate_token(text), "top_logprobs": top}], "refusal": None}
        )

    return make_reply(repeat_tokens(TALK, size), frame)


def _make_reasoning_reply(size: int) -> list[bytes]:
    return make_reply(repeat_tokens(TALK, size), lambda text: make_chunk({"reasoning_content": text}))


def _join_frames(size: int, *, frames: int) -> list[bytes]:
    return [b"".join(some) for some in batched(make_reply(repeat_tokens(TALK, size)), frames)]


def _split_at_spaces(size: int) -> list[str]:
    """Split a text after its spaces, as some servers do that simulate a stream."""
    return list(islice(cycle(re.findall(r"\S+\s+", TALK)), size))


def _cut_anywhere(size: int) -> list[bytes]:
    """Cut a reply into pieces of 1 to 400 bytes; their number is about the number of frames."""
    body, chance, at = b"".join(make_reply(repeat_tokens(TALK, size))), random.Random(3), 0
    pieces = []
    while at < len(body):
        end = at + chance.randint(1, 400)
        pieces.append(body[at:end])
        at = end
    return pieces


SHAPES: Mapping[str, Shape] = {
    "plain": Shape("plain text", lambda size: make_reply(repeat_tokens(TALK, size)), None),
    "fours": Shape(
        "text cut every four characters", lambda size: make_reply(split_pieces(repeat_text(TALK, size * PIECE_CHARS)))
    ),
    "usage": Shape("usage that grows in every frame", _make_usage_reply),
    "obfuscation": Shape("obfuscation of random length", _make_obfuscated_reply),
    "logprobs": Shape("logprobs, three a token", _make_logprobs_reply),
    "reasoning": Shape("reasoning_content", _make_reasoning_reply),
    "two": Shape("two frames in a chunk", partial(_join_frames, frames=2)),
    "eight": Shape("eight frames in a chunk", partial(_join_frames, frames=8)),
    "cut": Shape("frames cut anywhere by the network", _cut_anywhere),
    "ollama": Shape(
        "Ollama's lines with created_at",
        lambda size: make_ollama_lines(repeat_tokens(TALK, size)),
        path="/api/chat",
        media_type="application/x-ndjson",
    ),
    "messages": Shape(
        "Anthropic Messages", lambda size: make_messages_events(repeat_tokens(TALK, size)), path="/v1/messages"
    ),
    "responses": Shape(
        "OpenAI Responses", lambda size: make_responses_events(repeat_tokens(TALK, size)), path="/v1/responses"
    ),
    "guarded": Shape(
        "plain text under denied_tools", lambda size: make_reply(repeat_tokens(TALK, size)), model="a-model/Guarded-32B"
    ),
    "bridged": Shape(
        "chat completions for a client of Messages",
        lambda size: make_reply(repeat_tokens(TALK, size)),
        28.0,  # the cost of a plain token without VTC
        model="a-model/Bridged-32B",
        path="/v1/messages",
    ),
    "behind": Shape("a space behind each word", lambda size: make_reply(_split_at_spaces(size))),
    "bridged-behind": Shape(
        "the same for a client of Messages",
        lambda size: make_reply(_split_at_spaces(size)),
        28.0,
        model="a-model/Bridged-32B",
        path="/v1/messages",
    ),
    "code": Shape("Markdown with code", lambda size: make_reply(repeat_tokens(ANSWER, size)), 12.0),
}


def make_tools(count: int) -> list[dict[str, Any]]:
    """Make declarations of tools of about 1.5 KB each, which is typical for agents."""
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


def make_conversation(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Make messages of an agent at work: it writes a file, gets the result, and announces the next file."""
    messages: list[dict[str, Any]] = []
    for turn in range(first, first + count // 2):
        arguments = {"path": f"src/file_{turn}.py", "content": f"# {turn}\n" + repeat_text(LINE, 1200)}
        function = {"name": "write_file", "arguments": json.dumps(arguments)}
        call = {"id": f"call_{turn:024d}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"Now file {turn}.", "tool_calls": [call]})
        result = f"Wrote src/file_{turn}.py.\n" + repeat_text(PROSE, 800)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def make_request(
    model: str = "a-model/Instruct-32B", *, messages: int = 200, tool_count: int = 40, **fields: Any
) -> dict[str, Any]:
    """Make a request of an agent; with 200 messages and 40 tools it has about 300 KB."""
    opening = [
        {"role": "system", "content": "You are a careful programmer. " + repeat_text(PROSE, 4000)},
        {"role": "user", "content": "Write me the files."},
    ]
    turns = make_conversation(messages - 2)
    return {"model": model, "stream": True, "messages": [*opening, *turns], "tools": make_tools(tool_count), **fields}


def make_unready_request(**fields: Any) -> dict[str, Any]:
    """Make a request of the same size in which each step has something to change."""
    body = make_request("picky/Instruct-32B", max_tokens=64000, tool_choice="required", **fields)
    system, user, *turns = body["messages"]
    billing = "x-anthropic-billing-header: cc_version=2.1.5; cch=65a;"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": text} for text in (billing, system["content"])]},
        {"role": "user", "content": [{"type": "text", "text": user["content"]}, picture]},
    ]
    for number, (message, result) in enumerate(batched(turns, 2)):
        call = {**message["tool_calls"][0], "id": f"functions.write_file:{number}"}
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


REJECTIONS = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
    "Unrecognized request argument supplied: top_k",
    "messages.1.reasoning_content: Extra inputs are not permitted",
    "Unknown parameter: 'tools[1].function.strict'.",
    "seed: Extra inputs are not permitted",
)
"""Errors with which a server rejects that request, one after the other."""


def make_shape_request(shape: Shape, *, messages: int = 20, tool_count: int = 10) -> dict[str, Any]:
    """Make a request whose reply has the given shape."""
    body = make_request(shape.model, messages=messages, tool_count=tool_count)
    declared = [tool["function"] for tool in body["tools"]]
    match shape.path:
        case "/api/chat":
            return convert_to_ollama(body)
        case "/v1/messages":
            offered = [{"name": one["name"], "input_schema": one["parameters"]} for one in declared]
            return {**body, "messages": body["messages"][1:2], "max_tokens": 1024, "tools": offered}
        case "/v1/responses":
            offered = [{"type": "function", **one} for one in declared]
            return {"model": body["model"], "stream": True, "input": "Write me the files.", "tools": offered}
    return body


def convert_to_ollama(body: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a request to Ollama's API, in which arguments are objects and results name their tool."""
    messages = []
    for message in body["messages"]:
        if message["role"] == "tool":
            message = {"role": "tool", "tool_name": "write_file", "content": message["content"]}
        elif calls := message.get("tool_calls"):
            message = {**message, "tool_calls": [_decode_arguments(call["function"]) for call in calls]}
        messages.append(message)
    return {**body, "messages": messages}


def _decode_arguments(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"function": {**function, "arguments": json.loads(function["arguments"])}}
