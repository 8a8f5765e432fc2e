"""What the benchmarks feed: prose, calls, chunks of a streamed reply, long conversations of agents."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import cycle, islice
from typing import Any

from vtc.dialects.syntax.description import Description
from vtc.dialects.writing.calls import write_calls
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


def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    """A frame as vLLM writes it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    fields = {
        "id": "chatcmpl-3f1b2c4d5e6f47a8b9c0d1e2f3a4b5c6",
        "object": "chat.completion.chunk",
        "created": 1753000000,
        "model": "a-model/Instruct-32B",
        "choices": [choice],
    }
    return b"data: " + json.dumps(fields, separators=(",", ":")).encode() + b"\n\n"


def reply(deltas: Iterable[str]) -> list[bytes]:
    """The frames of a streamed reply."""
    head = chunk({"role": "assistant", "content": ""})
    return [head, *(chunk({"content": delta}) for delta in deltas), chunk({}, "stop"), b"data: [DONE]\n\n"]


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
