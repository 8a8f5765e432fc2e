"""Input that is made to hold up everybody: how long one exchange keeps the event loop from all other streams.

mitmproxy runs hooks and streams in one event loop, so the longest single piece of work - a request, one read of a
stream, its end - is the longest gap in any other client's stream. A whole reply that is long is dealt with in a thread.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from benchmarks.figures import Figure
from vtc.apis import APIS
from vtc.dialects.text_client.documented_tools import MOST_PROMPT
from vtc.exchange import Exchange
from vtc.guards.chain import Guards
from vtc.profiles import loader
from vtc.profiles.matching import Facts
from vtc.profiles.planner import Planner, Settings
from vtc.profiles.schema import Match, PolicyProfile

GROUP = "hostile: the longest that one exchange holds up all others"
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


def exchange(prompt: str = "", *, guards: Mapping[str, Any] | None = None) -> Exchange:
    """Open an exchange under a policy; a system prompt makes it one of a client that declares no tools."""
    profiles = loader.load([loader.builtin_directory()]) if not _PLANNERS else None
    if profiles:
        policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(POLICY, Guards))
        _PLANNERS.append(Planner(profiles, Settings()))
        _PLANNERS.append(Planner(dataclasses.replace(profiles, policies={"mine": policy}), Settings()))
    messages = [*([{"role": "system", "content": prompt}] if prompt else []), {"role": "user", "content": "x"}]
    asked = {"model": "m", "stream": True, "messages": messages, **({} if prompt else {"tools": TOOLS})}
    planner = _PLANNERS[guards is not None]
    return Exchange.open(APIS[0], json.dumps(asked).encode(), FACTS, planner, "seed")


_PLANNERS: list[Planner] = []


def pieces(body: bytes, guards: Mapping[str, Any] | None = POLICY) -> Iterator[Callable[[], object]]:
    """The pieces of work that a streamed reply makes, in order."""
    stream = exchange(guards=guards).stream()
    for at in range(0, len(body), READ):
        yield lambda at=at: stream.feed(body[at : at + READ])
    yield stream.finish


def figures(rounds: int) -> Iterator[Figure]:
    exchange()
    for what, prompt in PROMPTS.items():
        text = prompt(MOST_PROMPT - 100)[:MOST_PROMPT]
        samples = [_seconds(lambda text=text: exchange(text).request()) for _ in range(rounds)]
        yield Figure(GROUP, f"a prompt of {what}", "s", samples, MOST_SECONDS)
    for what, reply in REPLIES.items():
        samples = [max(_seconds(work) for n in (500, 4_000) for work in pieces(reply(n))) for _ in range(rounds)]
        yield Figure(GROUP, f"a reply of {what}", "s", samples, MOST_SECONDS)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
