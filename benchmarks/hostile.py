"""Measure hostile input: the longest gap that it causes in another client's stream, through a real mitmdump.

mitmproxy runs hooks and streams in one event loop, so the longest single piece of work - a request, one read of a
stream, its end - is a gap in every other client's stream. A long whole reply is processed in a thread, which shares the
interpreter with the event loop.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from benchmarks.figures import Figure
from benchmarks.proxy.gaps import SSE, Hostile, start_gap_lab
from vtc.apis import APIS
from vtc.dialects.text_client.documented_tools import MAX_PROMPT_LENGTH
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Facts, Match, Planner, PolicyProfile, Settings, builtin_directory, load_profiles

GROUP = "hostile: the longest gap in another client's stream"
MAX_GAP_SECONDS = 0.25
READ_BYTES = 1 << 16
"""Maximum number of bytes that mitmproxy reads at once."""
FACTS = Facts(user_agent="Some/1", host="127.0.0.1", path="/v1/chat/completions")
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "Does.", "parameters": {"type": "object"}}}
    for name in ("read", "bash")
]
POLICY = {"denied_tools": ["rm"], "arguments": {"misfit": "steer"}, "content": [{"pattern": r"<\|im_end\|>"}]}
NUMBERED_CALL = '<tool_call>{"name": "bash", "arguments": [%d]}</tool_call>\n'

PROMPTS: Mapping[str, Callable[[int], str]] = {
    "spaces in a heading": lambda n: "# a" + " " * n + "x\n",
    "blank lines, then text": lambda n: "## a\nDescription: x\n" + "\n" * n + "z\n<a>\n</a>\n",
    "blank lines before a sample": lambda n: "## a\nDescription: x\nParameters:\n" + "\n" * n + "<b>\n<a>\n",
    "lines with a colon": lambda n: "## a\nDescription: x\n" + "x:\n" * (n // 3) + "z\n<a>\n<b>c</b>\n</a>\n",
    "lines that announce a sample": lambda n: "## a\nDescription: x\n" + "Usage:\n" * (n // 7) + "<a>\n",
    "children in a sample": lambda n: "## a\nDescription: x\nUsage:\n<a>\n" + "<b>" * (n // 3) + "\n</a>\n",
    "different children": lambda n: (
        "## a\nDescription: x\n<a>\n" + "".join(f"<b{i}>\n" for i in range(n // 8)) + "</a>\n"
    ),
    "children closed by another tag": lambda n: "## a\nDescription: x\n<a>\n" + "<b>x</c>" * (n // 8) + "\n</a>\n",
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
"""Functions from a number of characters to a system prompt, which can contain a file of an untrusted repository."""


def _make_frame(delta: Mapping[str, Any], index: int = 0, reason: str | None = None) -> bytes:
    chunk = {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _make_numbered_call(index: int) -> dict[str, Any]:
    return {"index": index, "id": f"c{index}", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def _make_text_frames(text: str) -> bytes:
    return b"".join(_make_frame({"content": text[at : at + 400]}) for at in range(0, len(text), 400))


def _make_small_frames(text: str) -> bytes:
    return b"".join(_make_frame({"content": text[at : at + 4]}) for at in range(0, len(text), 4))


END = _make_frame({}, reason="stop")
REPLIES: Mapping[str, Callable[[int], bytes]] = {
    "native tool calls": lambda n: (
        b"".join(_make_frame({"tool_calls": [_make_numbered_call(i)]}) for i in range(n)) + END
    ),
    "native tool calls with one index": lambda n: (
        b"".join(_make_frame({"tool_calls": [{**_make_numbered_call(i), "index": 0}]}) for i in range(n)) + END
    ),
    "calls in one frame": lambda n: _make_frame({"tool_calls": [_make_numbered_call(i) for i in range(n)]}) + END,
    "text tool calls that violate their schema": lambda n: (
        _make_text_frames("".join(NUMBERED_CALL % i for i in range(n))) + END
    ),
    "choices": lambda n: b"".join(_make_frame({"content": "a"}, index=i) for i in range(n)),
    "frames that cannot be parsed": lambda n: _make_frame({"tool_calls": [None]}) * n + END,
    "text that a rule removes": lambda n: _make_text_frames("<|im_<|im_end|>end|>" * n) + END,
    "openers": lambda n: _make_text_frames("<read><" * n) + END,
}
"""Functions from a count to a stream with as many items."""


def open_session(prompt: str = "", *, guards: Mapping[str, Any] | None = None) -> Session:
    """Open an exchange, with guards under a policy; with a system prompt the client declares no tools."""
    profiles = load_profiles([builtin_directory()]) if not _PLANNERS else None
    if profiles:
        policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(POLICY, Guards))
        _PLANNERS.append(Planner(profiles, Settings()))
        _PLANNERS.append(Planner(dataclasses.replace(profiles, policies={"mine": policy}), Settings()))
    messages = [*([{"role": "system", "content": prompt}] if prompt else []), {"role": "user", "content": "x"}]
    request = {"model": "m", "stream": True, "messages": messages, **({} if prompt else {"tools": TOOLS})}
    planner = _PLANNERS[guards is not None]
    return Session.open(APIS[0], json.dumps(request).encode(), FACTS, planner, "seed")


_PLANNERS: list[Planner] = []


def list_work(body: bytes, guards: Mapping[str, Any] | None = POLICY) -> Iterator[Callable[[], object]]:
    """Yield the pieces of work of a streamed reply in order."""
    stream = open_session(guards=guards).stream()
    for at in range(0, len(body), READ_BYTES):
        yield lambda at=at: stream.feed(body[at : at + READ_BYTES])
    yield stream.finish


def _make_request(model: str = "Guarded", **fields: Any) -> bytes:
    messages = [{"role": "user", "content": "x"}]
    return json.dumps({"model": model, "stream": True, "messages": messages, "tools": TOOLS, **fields}).encode()


def _compress(*parts: tuple[bytes, int], read: int) -> list[bytes]:
    """Compress parts, each repeated `count` times, with gzip; return writes of `read` bytes."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(part) for part, count in parts for _ in range(count)) + packer.flush()
    return _split(packed, read)


def _split(data: bytes, read: int = READ_BYTES) -> list[bytes]:
    return [data[at : at + read] for at in range(0, len(data), read)]


def _make_reply(content: str = "x", **message: Any) -> bytes:
    entry = {"role": "assistant", "content": content, **message}
    return json.dumps({"id": "c", "choices": [{"index": 0, "message": entry, "finish_reason": "stop"}]}).encode()


def _make_named_call(name: str, arguments: Any = None) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments or {})}
    return {"index": 0, "id": "c0", "type": "function", "function": function}


def _make_call_exchange(
    arguments: Any, schema: Mapping[str, Any], model: str = "Guarded", *, stream: bool = True
) -> Hostile:
    """Make an exchange with a native tool call: its arguments, and the schema of its tool."""
    tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
    request = _make_request(model, tools=tools, stream=stream)
    calls = [_make_named_call("bash", arguments)]
    if stream:
        return Hostile(request, _split(_make_frame({"tool_calls": calls}) + END))
    return Hostile(request, _split(_make_reply("", tool_calls=calls)), JSON)


def _make_schema(**entry: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": entry}}


def _nest(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"x": value}
    return value


def _make_tools(count: int, parameters: int = 1) -> list[dict[str, Any]]:
    properties = {f"parameter_{i}": {"type": "string"} for i in range(parameters)}
    schema = {"type": "object", "properties": properties}
    return [{"type": "function", "function": {"name": f"tool_{i}", "parameters": schema}} for i in range(count)]


def _make_turns(count: int, text: str) -> list[dict[str, Any]]:
    turn = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [_make_numbered_call(0)]},
    ]
    return [*(turn * count), {"role": "user", "content": "x"}]


MEGABYTE = 1 << 20
GZIP = {**SSE, "content-encoding": "gzip"}
JSON = {"content-type": "application/json"}
SHORT_REPLY = _make_text_frames(NUMBERED_CALL % 1) + END
ZEROS = b"\0" * (1 << 20)
UNCLOSED_CALL = '<tool_call>{"name": "bash", "arguments": {"x": "'
OBJECTS = {"x": [{} for _ in range(60_000)]}
CALL_TEMPLATE = '<tool_call>{"name": "bash", "arguments": %s}</tool_call>\n'
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
    "nothing hostile": lambda: Hostile(_make_request(), [SHORT_REPLY]),
    "300 MB of zeros in gzip": lambda: Hostile(_make_request(), _compress((ZEROS, 300), read=READ_BYTES), GZIP),
    "300 MB of zeros in gzip, 1 KB at once": lambda: Hostile(
        _make_request(), _compress((ZEROS, 300), read=1 << 10), GZIP
    ),
    "300 MB of zeros in gzip, no policy": lambda: Hostile(
        _make_request("m"), _compress((ZEROS, 300), read=1 << 10), GZIP
    ),
    "64 MB of events in gzip": lambda: Hostile(
        _make_request(), _compress((_make_text_frames("a" * 400), 1 << 17), read=READ_BYTES), GZIP
    ),
    "64 MB of events in gzip, no policy": lambda: Hostile(
        _make_request("m"), _compress((_make_text_frames("a" * 400), 1 << 17), read=READ_BYTES), GZIP
    ),
    "calls in gzip": lambda: Hostile(
        _make_request("m"), _compress((SHORT_REPLY[: -len(END)], 1 << 15), read=READ_BYTES), GZIP
    ),
    "zeros in gzip, not streamed": lambda: Hostile(
        _make_request(stream=False),
        _compress((b'{"a": "', 1), (ZEROS, 60), read=READ_BYTES),
        {**JSON, "content-encoding": "gzip"},
    ),
    "a call of a megabyte, four characters a frame": lambda: Hostile(
        _make_request("m"), _split(_make_small_frames(UNCLOSED_CALL + "a" * (MEGABYTE - 100)) + END)
    ),
    "a call of 1.1 MB, four characters a frame": lambda: Hostile(
        _make_request("m"), _split(_make_small_frames(UNCLOSED_CALL + "a" * 1_150_000) + END)
    ),
    "prose of 8 MB, not streamed": lambda: Hostile(
        _make_request("m", stream=False), _split(_make_reply("a < b, `c`.\n" * 700_000)), JSON
    ),
    "a message of 8 MB": lambda: Hostile(
        _make_request("m", messages=[{"role": "user", "content": "a < b.\n" * 1_200_000}]), [SHORT_REPLY]
    ),
    "a call of 10 MB": lambda: Hostile(
        _make_request("m"), _split(_make_text_frames(UNCLOSED_CALL + "a" * 10_000_000 + '"}}</tool_call>') + END)
    ),
    "a call of 10 MB, not streamed": lambda: Hostile(
        _make_request("m", stream=False),
        _split(_make_reply(UNCLOSED_CALL + "a" * 10_000_000 + '"}}</tool_call>')),
        JSON,
    ),
    "a line of 12 MB": lambda: Hostile(_make_request("m"), _split(_make_frame({"content": "a" * 12_000_000}) + END)),
    "a line of 12 MB, not streamed": lambda: Hostile(
        _make_request(stream=False), _split(_make_reply("a" * 12_000_000)), JSON
    ),
    "4,000 calls, not streamed": lambda: Hostile(
        _make_request(stream=False),
        _split(_make_reply("", tool_calls=[_make_numbered_call(i) for i in range(4_000)])),
        JSON,
    ),
    "4,000 calls that violate their schema, not streamed": lambda: Hostile(
        _make_request(stream=False), _split(_make_reply("".join(NUMBERED_CALL % i for i in range(4_000)))), JSON
    ),
    "4,000 calls that violate their schema, in JSON declared as a stream": lambda: Hostile(
        _make_request(), _split(_make_reply("".join(NUMBERED_CALL % i for i in range(4_000))))
    ),
    "4,000 calls, in JSON declared as a stream": lambda: Hostile(
        _make_request(), _split(_make_reply("", tool_calls=[_make_numbered_call(i) for i in range(4_000)]))
    ),
    "a call of 10 MB, in JSON declared as a stream": lambda: Hostile(
        _make_request("m"), _split(_make_reply(UNCLOSED_CALL + "a" * 10_000_000 + '"}}</tool_call>'))
    ),
    "1 MB of <, in JSON declared as a stream": lambda: Hostile(
        _make_request("m"), _split(_make_reply("<" * 1_000_000))
    ),
    "1 MB of <, not streamed": lambda: Hostile(
        _make_request("m", stream=False), _split(_make_reply("<" * 1_000_000)), JSON
    ),
    "900 envelopes around a megabyte": lambda: Hostile(
        _make_request("m"),
        _split(b"data: " + b'{"data":' * 900 + b'{"x": "%b"}' % (b"a" * 1_000_000) + b"}" * 900 + b"\n\n"),
    ),
    "brackets, not streamed": lambda: Hostile(_make_request(stream=False), _split(b'{"a": ' + b"[" * 5_000_000), JSON),
    "brackets and nothing else, not streamed": lambda: Hostile(
        _make_request(stream=False), _split(b"[" * 4_000_000), JSON
    ),
    "a text of 4 MB of [, not streamed": lambda: Hostile(
        _make_request(stream=False), _split(_make_reply("[" * 4_000_000)), JSON
    ),
    "a text of 4 MB of [, not streamed, no policy": lambda: Hostile(
        _make_request("m", stream=False), _split(_make_reply("[" * 4_000_000)), JSON
    ),
    "a text of 1 MB of {, not streamed, no policy": lambda: Hostile(
        _make_request("m", stream=False), _split(_make_reply("{" * 1_000_000)), JSON
    ),
    "60,000 objects as arguments": lambda: _make_call_exchange(OBJECTS, {"type": "object"}),
    "60,000 objects as arguments, not streamed": lambda: _make_call_exchange(OBJECTS, {"type": "object"}, stream=False),
    "60,000 objects as arguments, no policy": lambda: _make_call_exchange(OBJECTS, {"type": "object"}, "m"),
    "Gemma's arguments of 1 MB with 16 ends": lambda: Hostile(
        _make_request("gemma-4-26b"),
        _split(_make_text_frames("<|tool_call>call:bash{command:" + "a:" * 500_000 + "<tool_call|>" * 16) + END),
    ),
    "200,000 lists as arguments": lambda: _make_call_exchange({"x": [[0]] * 200_000}, {"type": "object"}),
    "60,000 objects in the text": lambda: Hostile(
        _make_request(), _split(_make_text_frames(CALL_TEMPLATE % json.dumps(OBJECTS)) + END)
    ),
    "100,000 keys": lambda: _make_call_exchange({f"k{i}": i for i in range(100_000)}, {"type": "object"}),
    "100,000 keys, no policy": lambda: _make_call_exchange(
        {f"k{i}": i for i in range(100_000)}, {"type": "object"}, "m"
    ),
    "a name of 800 KB": lambda: Hostile(
        _make_request(), _split(_make_frame({"tool_calls": [_make_named_call("a" * 800_000)]}) + END)
    ),
    "a name of 800 KB, no policy": lambda: Hostile(
        _make_request("m"), _split(_make_frame({"tool_calls": [_make_named_call("a" * 800_000)]}) + END)
    ),
    "4,000 unique objects": lambda: _make_call_exchange(
        {"x": [{"a": i, "b": str(i)} for i in range(4_000)]}, _make_schema(uniqueItems=True)
    ),
    "a pattern that backtracks": lambda: _make_call_exchange({"x": "a" * 28 + "!"}, _make_schema(pattern=r"^(a|a)*$")),
    "a pattern that backtracks, for many": lambda: _make_call_exchange(
        {"x": ["a" * 20 + "!"] * 4_000}, _make_schema(items={"pattern": r"^(a|a)*$"})
    ),
    "references that double": lambda: _make_call_exchange({"x": "a"}, DOUBLING),
    "100,000 numbers where text is required": lambda: _make_call_exchange(
        {"x": [*range(100_000)]}, _make_schema(contains={"type": "string"}, items={"type": "integer"})
    ),
    "5,000 options for 2,000 items": lambda: _make_call_exchange(
        {"x": ["z"] * 2_000}, _make_schema(items={"enum": [f"option {i}" for i in range(5_000)]})
    ),
    "20,000 numbers as text": lambda: _make_call_exchange(
        {"x": ["1"] * 20_000}, _make_schema(items={"type": "integer"})
    ),
    "a recursive choice around 200 KB": lambda: _make_call_exchange(_nest(100, "a" * 200_000), CHOICE),
    "a recursive choice that matches nothing": lambda: _make_call_exchange(_nest(25, 1), CHOICE),
    "10,000 tools": lambda: Hostile(_make_request(tools=_make_tools(10_000)), [SHORT_REPLY]),
    "10,000 tools, in the prompt": lambda: Hostile(
        _make_request("deepseek-r1", tools=_make_tools(10_000)), [SHORT_REPLY]
    ),
    "500 tools with 40 parameters": lambda: Hostile(_make_request(tools=_make_tools(500, 40)), [SHORT_REPLY]),
    "a tool with 20,000 parameters": lambda: Hostile(_make_request(tools=_make_tools(1, 20_000)), [SHORT_REPLY]),
    "a history of 10 MB": lambda: Hostile(_make_request(messages=_make_turns(5, "a" * 1_000_000)), [SHORT_REPLY]),
    "a history of 4,000 calls": lambda: Hostile(_make_request(messages=_make_turns(4_000, "a")), [SHORT_REPLY]),
}
"""Exchanges that need more than a prompt or a stream: compressed, not streamed, or with a long request."""


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


def _generate_megabytes() -> Iterator[tuple[str, Hostile]]:
    """Yield a megabyte of each unit in each part of an exchange."""
    for unit in UNITS:
        text = unit * (MEGABYTE // len(unit.encode()))
        error = json.dumps({"error": {"message": text, "type": "invalid_request_error"}}).encode()
        native = _make_named_call("bash", {"x": text})
        pieces = [native["function"]["arguments"][at : at + 200] for at in range(0, MEGABYTE, 200)]
        calls = [_make_frame({"tool_calls": [{**native, "function": {"name": "bash", "arguments": ""}}]})]
        calls += [_make_frame({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces]
        doubled = '<tool_call>\n{{"name": "bash", "arguments": {"x": ' + text + "}}\n</tool_call>"
        messages = [
            {"role": "user", "content": text},
            *_make_turns(1, "x"),
            {"role": "tool", "tool_call_id": "c0", "content": text},
        ]
        for part, hostile in {
            "request": Hostile(_make_request("m", messages=messages), [SHORT_REPLY]),
            "reply": Hostile(_make_request("m", stream=False), _split(_make_reply(text)), JSON),
            "call in a reply": Hostile(_make_request("m", stream=False), _split(_make_reply(doubled)), JSON),
            "stream": Hostile(_make_request("m"), _split(_make_text_frames(text) + END)),
            "call in a stream": Hostile(_make_request("m"), _split(_make_text_frames(doubled) + END)),
            "native tool call in a stream": Hostile(_make_request("m"), _split(b"".join(calls) + END)),
            "native tool call": Hostile(
                _make_request("m", stream=False), _split(_make_reply("", tool_calls=[native])), JSON
            ),
            "error": Hostile(_make_request("m"), _split(error), JSON, "400 Bad Request"),
            "error without JSON": Hostile(
                _make_request("m"), _split(text.encode()), {"content-type": "text/html"}, "502 Bad"
            ),
        }.items():
            yield f"1 MB of {unit!r} in a {part}", hostile


def generate_exchanges() -> Iterator[tuple[str, Hostile]]:
    """Yield all exchanges of this module with their labels."""
    yield from _generate_megabytes()
    for label, prompt in PROMPTS.items():
        messages = [{"role": "system", "content": prompt(MAX_PROMPT_LENGTH - 100)[:MAX_PROMPT_LENGTH]}]
        yield f"a prompt of {label}", Hostile(_make_request(tools=None, messages=messages), [SHORT_REPLY])
    for label, reply in REPLIES.items():
        for count in (500, 4_000):
            yield f"a reply of {count:,} {label}", Hostile(_make_request(), _split(reply(count)))
    for dialect, model in MODELS.items():
        for text in TEXTS:
            reply = _make_text_frames(text * (5 * READ_BYTES // len(text))) + END
            yield f"{text!r} for {dialect}", Hostile(_make_request(model), _split(reply))
    yield from ((label, make()) for label, make in EXCHANGES.items())


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


def measure(rounds: int) -> Iterator[Figure]:
    with start_gap_lab(POLICY) as measure_gap:
        measure_gap(EXCHANGES["nothing hostile"]())  # warm up: compiles the patterns
        for label, hostile in generate_exchanges():
            yield Figure(GROUP, label, "s", [measure_gap(hostile) for _ in range(rounds)], MAX_GAP_SECONDS)
