"""Input that is made to hold up everybody: the longest gap in another client's stream, through a real mitmdump.

mitmproxy runs hooks and streams in one event loop, so the longest single piece of work - a request, one read of a
stream, its end - is a gap in every other client's stream. A whole reply that is long is dealt with in a thread, which
takes turns with all others.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from benchmarks.figures import Figure
from benchmarks.proxy.beside import SSE, Hostile, beside
from vtc.apis import APIS
from vtc.dialects.text_client.documented_tools import MAX_PROMPT_LENGTH
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Facts, Match, Planner, PolicyProfile, Settings, builtin_directory, load

GROUP = "hostile: the longest gap in another client's stream"
MOST_SECONDS = 0.25
READ = 1 << 16
"""Bytes that mitmproxy reads at once, at the most."""
FACTS = Facts(user_agent="Some/1", host="127.0.0.1", path="/v1/chat/completions")
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Does.", "parameters": {"type": "object"}}}
    for name in ("read", "bash")
]
POLICY = {"denied_tools": ["rm"], "arguments": {"misfit": "steer"}, "content": [{"pattern": r"<\|im_end\|>"}]}
HERMES = '<tool_call>{"name": "bash", "arguments": [%d]}</tool_call>\n'

PROMPTS: Mapping[str, Callable[[int], str]] = {
    "spaces in a heading": lambda n: "# a" + " " * n + "x\n",
    "blank lines, then another": lambda n: "## a\nDescription: x\n" + "\n" * n + "z\n<a>\n</a>\n",
    "blank lines before a sample": lambda n: "## a\nDescription: x\nParameters:\n" + "\n" * n + "<b>\n<a>\n",
    "lines with a colon": lambda n: "## a\nDescription: x\n" + "x:\n" * (n // 3) + "z\n<a>\n<b>c</b>\n</a>\n",
    "lines that announce": lambda n: "## a\nDescription: x\n" + "Usage:\n" * (n // 7) + "<a>\n",
    "children in a sample": lambda n: "## a\nDescription: x\nUsage:\n<a>\n" + "<b>" * (n // 3) + "\n</a>\n",
    "different children": lambda n: (
        "## a\nDescription: x\n<a>\n" + "".join(f"<b{i}>\n" for i in range(n // 8)) + "</a>\n"
    ),
    "children that another closes": lambda n: "## a\nDescription: x\n<a>\n" + "<b>x</c>" * (n // 8) + "\n</a>\n",
    "samples without an end": lambda n: "## a\nDescription: x\n" + "<a>\n" * (n // 4),
    "samples": lambda n: "## a\nDescription: x\nUsage:\n" + "<a>\n<b>x</b>\n</a>\n" * (n // 16),
    "headings": lambda n: "# a\n" * (n // 4),
    "headings of all levels": lambda n: "".join(
        "#" * (i % 6 + 1) + " a\nDescription: x\n<a>\n" for i in range(n // 24)
    ),
    "sections about tools": lambda n: "# Tools\n" * (n // 16) + "## t\nDescription: x\n<t>\n</t>\n" * (n // 60),
    "tools": lambda n: "".join(f"## t{i}\nDescription: x\nUsage:\n<t{i}>\n<b>c</b>\n</t{i}>\n" for i in range(n // 48)),
    "one tool again and again": lambda n: "## t\nDescription: x\nUsage:\n<t>\n<b>c</b>\n</t>\n" * (n // 44),
    "fences": lambda n: "".join("`" * (3 + i % 50) + "\n" for i in range(n // 28)),
}
"""System prompts of about so many characters, in which a file of a foreign repository may stand."""


def _frame(delta: Mapping[str, Any], index: int = 0, reason: str | None = None) -> bytes:
    chunk = {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _call(index: int) -> dict[str, Any]:
    return {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def _said(text: str) -> bytes:
    return b"".join(_frame({"content": text[at : at + 400]}) for at in range(0, len(text), 400))


def _by_frame(text: str) -> bytes:
    return b"".join(_frame({"content": text[at : at + 4]}) for at in range(0, len(text), 4))


END = _frame({}, reason="stop")
REPLIES: Mapping[str, Callable[[int], bytes]] = {
    "calls of the server's own": lambda n: b"".join(_frame({"tool_calls": [_call(i)]}) for i in range(n)) + END,
    "calls of one number": lambda n: (
        b"".join(_frame({"tool_calls": [{**_call(i), "index": 0}]}) for i in range(n)) + END
    ),
    "calls in one frame": lambda n: _frame({"tool_calls": [_call(i) for i in range(n)]}) + END,
    "calls in the text that do not fit": lambda n: _said("".join(HERMES % i for i in range(n))) + END,
    "choices": lambda n: b"".join(_frame({"content": "a"}, index=i) for i in range(n)),
    "frames that cannot be read": lambda n: _frame({"tool_calls": [None]}) * n + END,
    "what a rule removes": lambda n: _said("<|im_<|im_end|>end|>" * n) + END,
    "openers": lambda n: _said("<read><" * n) + END,
}
"""Streams of so many of something."""


def exchange(prompt: str = "", *, guards: Mapping[str, Any] | None = None) -> Session:
    """Open an exchange under a policy; a system prompt makes it one of a client that declares no tools."""
    profiles = load([builtin_directory()]) if not _PLANNERS else None
    if profiles:
        policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(POLICY, Guards))
        _PLANNERS.append(Planner(profiles, Settings()))
        _PLANNERS.append(Planner(dataclasses.replace(profiles, policies={"mine": policy}), Settings()))
    messages = [*([{"role": "system", "content": prompt}] if prompt else []), {"role": "user", "content": "x"}]
    asked = {"model": "m", "stream": True, "messages": messages, **({} if prompt else {"tools": TOOLS})}
    planner = _PLANNERS[guards is not None]
    return Session.open(APIS[0], json.dumps(asked).encode(), FACTS, planner, "seed")


_PLANNERS: list[Planner] = []


def pieces(body: bytes, guards: Mapping[str, Any] | None = POLICY) -> Iterator[Callable[[], object]]:
    """The pieces of work that a streamed reply makes, in order."""
    stream = exchange(guards=guards).stream()
    for at in range(0, len(body), READ):
        yield lambda at=at: stream.feed(body[at : at + READ])
    yield stream.finish


def _asked(model: str = "Guarded", **fields: Any) -> bytes:
    messages = [{"role": "user", "content": "x"}]
    return json.dumps({"model": model, "stream": True, "messages": messages, "tools": TOOLS, **fields}).encode()


def _zipped(*parts: tuple[bytes, int], read: int) -> list[bytes]:
    """Parts, each so many times, in gzip, in writes of `read` bytes."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(part) for part, count in parts for _ in range(count)) + packer.flush()
    return _cut(packed, read)


def _cut(data: bytes, read: int = READ) -> list[bytes]:
    return [data[at : at + read] for at in range(0, len(data), read)]


def _whole(content: str = "x", **message: Any) -> bytes:
    said = {"role": "assistant", "content": content, **message}
    return json.dumps({"id": "c", "choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}).encode()


def _named(name: str, arguments: Any = None) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments or {})}
    return {"index": 0, "id": "c0", "type": "function", "function": function}


def _with(arguments: Any, schema: Mapping[str, Any], model: str = "Guarded", *, stream: bool = True) -> Hostile:
    """A call of the server's own with these arguments, of a tool with this schema."""
    tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
    asked = _asked(model, tools=tools, stream=stream)
    calls = [_named("bash", arguments)]
    if stream:
        return Hostile(asked, _cut(_frame({"tool_calls": calls}) + END))
    return Hostile(asked, _cut(_whole("", tool_calls=calls)), JSON)


def _only(**entry: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": entry}}


def _nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"x": value}
    return value


def _tools(count: int, parameters: int = 1) -> list[dict[str, Any]]:
    properties = {f"parameter_{i}": {"type": "string"} for i in range(parameters)}
    schema = {"type": "object", "properties": properties}
    return [{"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}} for i in range(count)]


def _turns(count: int, text: str) -> list[dict[str, Any]]:
    one = [{"role": "user", "content": text}, {"role": "assistant", "content": text, "tool_calls": [_call(0)]}]
    return [*(one * count), {"role": "user", "content": "x"}]


MEGABYTE = 1 << 20
GZIP = {**SSE, "content-encoding": "gzip"}
JSON = {"content-type": "application/json"}
SHORT = _said(HERMES % 1) + END
ZEROS = b"\0" * (1 << 20)
NEVER = '<tool_call>{"name": "bash", "arguments": {"x": "'
OBJECTS = {"x": [{} for _ in range(60_000)]}
IN_TEXT = '<tool_call>{"name": "bash", "arguments": %s}</tool_call>\n'
DOUBLING = {
    "$defs": {
        **{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(20)},
        "d20": {"type": "object"},
    },
    "$ref": "#/$defs/d0",
}
CHOICE = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/n"}},
    "$defs": {
        "n": {
            "anyOf": [
                {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}},
                {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["y"]},
                {"type": "string"},
            ]
        }
    },
}
EXCHANGES: Mapping[str, Callable[[], Hostile]] = {
    "nothing hostile": lambda: Hostile(_asked(), [SHORT]),
    "300 MB of zeros in gzip": lambda: Hostile(_asked(), _zipped((ZEROS, 300), read=READ), GZIP),
    "300 MB of zeros in gzip, 1 KB at once": lambda: Hostile(_asked(), _zipped((ZEROS, 300), read=1 << 10), GZIP),
    "300 MB of zeros in gzip, no policy": lambda: Hostile(_asked("m"), _zipped((ZEROS, 300), read=1 << 10), GZIP),
    "64 MB of events in gzip": lambda: Hostile(_asked(), _zipped((_said("a" * 400), 1 << 17), read=READ), GZIP),
    "64 MB of events in gzip, no policy": lambda: Hostile(
        _asked("m"), _zipped((_said("a" * 400), 1 << 17), read=READ), GZIP
    ),
    "calls in gzip": lambda: Hostile(_asked("m"), _zipped((SHORT[: -len(END)], 1 << 15), read=READ), GZIP),
    "zeros in gzip, not streamed": lambda: Hostile(
        _asked(stream=False), _zipped((b'{"a": "', 1), (ZEROS, 60), read=READ), {**JSON, "content-encoding": "gzip"}
    ),
    "a call of a megabyte, four characters a frame": lambda: Hostile(
        _asked("m"), _cut(_by_frame(NEVER + "a" * (MEGABYTE - 100)) + END)
    ),
    "a call of 1.1 MB, four characters a frame": lambda: Hostile(
        _asked("m"), _cut(_by_frame(NEVER + "a" * 1_150_000) + END)
    ),
    "prose of 8 MB, not streamed": lambda: Hostile(
        _asked("m", stream=False), _cut(_whole("a < b, `c`.\n" * 700_000)), JSON
    ),
    "a message of 8 MB": lambda: Hostile(
        _asked("m", messages=[{"role": "user", "content": "a < b.\n" * 1_200_000}]), [SHORT]
    ),
    "a call of 10 MB": lambda: Hostile(_asked("m"), _cut(_said(NEVER + "a" * 10_000_000 + '"}}</tool_call>') + END)),
    "a call of 10 MB, not streamed": lambda: Hostile(
        _asked("m", stream=False), _cut(_whole(NEVER + "a" * 10_000_000 + '"}}</tool_call>')), JSON
    ),
    "a line of 12 MB": lambda: Hostile(_asked("m"), _cut(_frame({"content": "a" * 12_000_000}) + END)),
    "a line of 12 MB, not streamed": lambda: Hostile(_asked(stream=False), _cut(_whole("a" * 12_000_000)), JSON),
    "4,000 calls, not streamed": lambda: Hostile(
        _asked(stream=False), _cut(_whole("", tool_calls=[_call(i) for i in range(4_000)])), JSON
    ),
    "4,000 calls that do not fit, not streamed": lambda: Hostile(
        _asked(stream=False), _cut(_whole("".join(HERMES % i for i in range(4_000)))), JSON
    ),
    "4,000 calls that do not fit, in JSON called a stream": lambda: Hostile(
        _asked(), _cut(_whole("".join(HERMES % i for i in range(4_000))))
    ),
    "4,000 calls, in JSON called a stream": lambda: Hostile(
        _asked(), _cut(_whole("", tool_calls=[_call(i) for i in range(4_000)]))
    ),
    "a call of 10 MB, in JSON called a stream": lambda: Hostile(
        _asked("m"), _cut(_whole(NEVER + "a" * 10_000_000 + '"}}</tool_call>'))
    ),
    "1 MB of <, in JSON called a stream": lambda: Hostile(_asked("m"), _cut(_whole("<" * 1_000_000))),
    "1 MB of <, not streamed": lambda: Hostile(_asked("m", stream=False), _cut(_whole("<" * 1_000_000)), JSON),
    "brackets, not streamed": lambda: Hostile(_asked(stream=False), _cut(b'{"a": ' + b"[" * 5_000_000), JSON),
    "brackets and nothing else, not streamed": lambda: Hostile(_asked(stream=False), _cut(b"[" * 4_000_000), JSON),
    "a text of 4 MB of [, not streamed": lambda: Hostile(_asked(stream=False), _cut(_whole("[" * 4_000_000)), JSON),
    "a text of 4 MB of [, not streamed, no policy": lambda: Hostile(
        _asked("m", stream=False), _cut(_whole("[" * 4_000_000)), JSON
    ),
    "a text of 1 MB of {, not streamed, no policy": lambda: Hostile(
        _asked("m", stream=False), _cut(_whole("{" * 1_000_000)), JSON
    ),
    "60,000 objects as arguments": lambda: _with(OBJECTS, {"type": "object"}),
    "60,000 objects as arguments, not streamed": lambda: _with(OBJECTS, {"type": "object"}, stream=False),
    "60,000 objects as arguments, no policy": lambda: _with(OBJECTS, {"type": "object"}, "m"),
    "60,000 objects in the text": lambda: Hostile(_asked(), _cut(_said(IN_TEXT % json.dumps(OBJECTS)) + END)),
    "100,000 keys": lambda: _with({f"k{i}": i for i in range(100_000)}, {"type": "object"}),
    "100,000 keys, no policy": lambda: _with({f"k{i}": i for i in range(100_000)}, {"type": "object"}, "m"),
    "a name of 800 KB": lambda: Hostile(_asked(), _cut(_frame({"tool_calls": [_named("a" * 800_000)]}) + END)),
    "a name of 800 KB, no policy": lambda: Hostile(
        _asked("m"), _cut(_frame({"tool_calls": [_named("a" * 800_000)]}) + END)
    ),
    "4,000 unique objects": lambda: _with(
        {"x": [{"a": i, "b": str(i)} for i in range(4_000)]}, _only(uniqueItems=True)
    ),
    "a pattern that backtracks": lambda: _with({"x": "a" * 28 + "!"}, _only(pattern=r"^(a|a)*$")),
    "a pattern that backtracks, for many": lambda: _with(
        {"x": ["a" * 20 + "!"] * 4_000}, _only(items={"pattern": r"^(a|a)*$"})
    ),
    "references that double": lambda: _with({"x": "a"}, DOUBLING),
    "100,000 numbers of which none is text": lambda: _with(
        {"x": [*range(100_000)]}, _only(contains={"type": "string"}, items={"type": "integer"})
    ),
    "5,000 options for 2,000 items": lambda: _with(
        {"x": ["z"] * 2_000}, _only(items={"enum": [f"option {i}" for i in range(5_000)]})
    ),
    "20,000 numbers as text": lambda: _with({"x": ["1"] * 20_000}, _only(items={"type": "integer"})),
    "a choice in itself around 200 KB": lambda: _with(_nested(100, "a" * 200_000), CHOICE),
    "a choice in itself that fits nowhere": lambda: _with(_nested(25, 1), CHOICE),
    "10,000 tools": lambda: Hostile(_asked(tools=_tools(10_000)), [SHORT]),
    "10,000 tools, in the prompt": lambda: Hostile(_asked("deepseek-r1", tools=_tools(10_000)), [SHORT]),
    "500 tools with 40 parameters": lambda: Hostile(_asked(tools=_tools(500, 40)), [SHORT]),
    "a tool with 20,000 parameters": lambda: Hostile(_asked(tools=_tools(1, 20_000)), [SHORT]),
    "a history of 10 MB": lambda: Hostile(_asked(messages=_turns(5, "a" * 1_000_000)), [SHORT]),
    "a history of 4,000 calls": lambda: Hostile(_asked(messages=_turns(4_000, "a")), [SHORT]),
}
"""What is more than a prompt or a stream: compressed, not streamed, long requests."""


UNITS = (
    *(
        "<",
        "{",
        "[",
        "(",
        "`",
        '"',
        "\\",
        '"\\',
        "|",
        "!",
        "-",
        "\n",
        " ",
        "a",
        "0",
        "\u2028",
        "<|",
        "</",
        '{"a":',
        "[{",
    ),
    *("<system-reminder>", "</｜DSML｜parameter>", "<|tool_call_end|>", "<tool_call>", "<function=bash>", "<think>"),
    *(
        '<tool_call>{{"name": "bash", ',
        '"arguments": "',
        "Unsupported parameter: 'x' ",
        "messages.0.content: ",
        "```\n",
    ),
)


def _megabytes() -> Iterator[tuple[str, Hostile]]:
    """A megabyte of one unit, in each part of an exchange."""
    for unit in UNITS:
        text = unit * (MEGABYTE // len(unit.encode()))
        error = json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode()
        native = _named("bash", {"x": text})
        pieces = [native["function"]["arguments"][at : at + 200] for at in range(0, MEGABYTE, 200)]
        calls = [_frame({"tool_calls": [{**native, "function": {"name": "bash", "arguments": ""}}]})]
        calls += [_frame({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
        doubled = '<tool_call>\n{{"name": "bash", "arguments": {"x": ' + text + "}}\n</tool_call>"
        asked = [
            {"role": "user", "content": text},
            *_turns(1, "x"),
            {"role": "tool", "tool_call_id": "c0", "content": text},
        ]
        for what, one in {
            "request": Hostile(_asked("m", messages=asked), [SHORT]),
            "reply": Hostile(_asked("m", stream=False), _cut(_whole(text)), JSON),
            "call in a reply": Hostile(_asked("m", stream=False), _cut(_whole(doubled)), JSON),
            "stream": Hostile(_asked("m"), _cut(_said(text) + END)),
            "call in a stream": Hostile(_asked("m"), _cut(_said(doubled) + END)),
            "server's own call in a stream": Hostile(_asked("m"), _cut(b"".join(calls) + END)),
            "server's own call": Hostile(_asked("m", stream=False), _cut(_whole("", tool_calls=[native])), JSON),
            "error": Hostile(_asked("m"), _cut(error), JSON, "400 Bad Request"),
            "error that is no JSON": Hostile(
                _asked("m"), _cut(text.encode()), {"content-type": "text/html"}, "502 Bad"
            ),
        }.items():
            yield f"1 MB of {unit!r} in a {what}", one


def hostile() -> Iterator[tuple[str, Hostile]]:
    """Every exchange of this file, by what it is."""
    yield from _megabytes()
    for what, prompt in PROMPTS.items():
        said = [{"role": "system", "content": prompt(MAX_PROMPT_LENGTH - 100)[:MAX_PROMPT_LENGTH]}]
        yield f"a prompt of {what}", Hostile(_asked(tools=None, messages=said), [SHORT])
    for what, reply in REPLIES.items():
        for count in (500, 4_000):
            yield f"a reply of {count:,} {what}", Hostile(_asked(), _cut(reply(count)))
    for dialect, model in MODELS.items():
        for text in TEXTS:
            reply = _said(text * (5 * READ // len(text))) + END
            yield f"{text!r} for {dialect}", Hostile(_asked(model), _cut(reply))
    yield from ((what, make()) for what, make in EXCHANGES.items())


MODELS = {"every dialect": "m", "llama3": "llama-3.1-8b"}
TEXTS = (
    "<",
    "<read>",
    "{",
    "[",
    '", "',
    "<tool_call>",
    '{"name": "bash", "arguments": {',
    "<function=bash>",
    "bash(",
    "`",
    "\\",
)


def figures(rounds: int) -> Iterator[Figure]:
    with beside(POLICY) as gap:
        gap(EXCHANGES["nothing hostile"]())  # has everything compiled that will be
        for what, one in hostile():
            yield Figure(GROUP, what, "s", [gap(one) for _ in range(rounds)], MOST_SECONDS)
