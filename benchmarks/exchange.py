"""One exchange without a proxy: rewriting a long request, what an open stream holds, the first sight of new tools."""

from __future__ import annotations

import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from benchmarks import samples, versions
from benchmarks.figures import Figure, interleaved
from vtc import apis
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, Profiles, Settings, builtin_directory, load

REQUEST = "a request of 200 messages and 40 tools, 320 KB"
MEMORY = "memory by open stream"
STREAMS = 8


def opened(planner: Planner, body: bytes, path: str = "/v1/chat/completions", memory: Memory | None = None) -> Session:
    api = apis.match_request("POST", path)
    assert api is not None
    exchange = Session.open(api, body, Facts(path=path), planner, "seed", memory)
    exchange.request()
    return exchange


def encoded(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode()


def milliseconds(work: Callable[[], object]) -> float:
    """Of CPU."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


WAYS = {
    "left as it is": Settings(),
    "tools and calls written as hermes": Settings(tools="prompt", dialect="hermes"),
    "tools and calls written as qwen3-coder": Settings(tools="prompt", dialect="qwen3-coder"),
    "made ready for llama.cpp": Settings(server="llama.cpp"),
    "made ready for Mistral's API": Settings(server="mistral"),
}
STEPS, TAUGHT = "all steps alone", "all steps and six corrections alone"
AT_ONCE = 5
"""Times that a version takes the steps before it answers: of a difference a single one says little."""


@cache
def _profiles() -> Profiles:
    """Load the profiles, which the collector of garbage leaves alone from then on, as in a mitmdump with VTC."""
    profiles = load([builtin_directory(), samples.PROFILES])
    gc.freeze()
    return profiles


@cache
def _opening(what: str) -> Callable[..., Session]:
    """Make what opens the long request in one of the ways; the dialect is compiled."""
    planner = Planner(_profiles(), WAYS[what])
    opened(planner, encoded(samples.request(messages=4)))
    return partial(opened, planner, encoded(samples.request(messages=200)))


def rewriting(rounds: int) -> Iterator[Figure]:
    """What a turn of a conversation costs: agents send everything again."""
    for what in WAYS:
        taken = [milliseconds(_opening(what)) for _ in range(rounds)]
        yield Figure(REQUEST, what, "ms", taken, 10.0)
        memories = [Memory() for _ in range(rounds)]
        for turn in ("first", "next"):
            taken = [milliseconds(partial(_opening(what), memory=memory)) for memory in memories]
            yield Figure(REQUEST, f"{what}, {turn} turn with memory", "ms", taken, 13.0)


@cache
def _unready() -> Mapping[str, Callable[[], Session]]:
    """Make what opens a request in which all steps and corrections have to act: without them, and with each of both.

    Tools that were never seen are compiled.
    """
    body = encoded(samples.unready())
    as_it_is, ready = Planner(_profiles(), Settings()), Planner(_profiles(), Settings(server="picky"))
    taught = Memory()
    for refusal in samples.REFUSALS:
        exchange = opened(ready, body, memory=taught)
        exchange.encode_after_rejection(encoded({"error": {"message": refusal}}), 400)
        exchange.confirm_quirks()
    ways = {"": (as_it_is, Memory()), STEPS: (ready, Memory()), TAUGHT: (ready, taught)}
    openings = {what: partial(opened, planner, body, memory=memory) for what, (planner, memory) in ways.items()}
    for opening in openings.values():
        opening()
    return openings


def alone(what: str) -> float:
    """Measure what the steps, or steps and corrections, take: the time of a request with them less that without."""
    return milliseconds(_unready()[what]) - milliseconds(_unready()[""])


def steps(rounds: int) -> Iterator[Figure]:
    """What the steps and the corrections of a request take; each is a difference, and so takes more rounds."""
    for what, taken in zip((STEPS, TAUGHT), interleaved((STEPS, TAUGHT), alone, AT_ONCE * rounds), strict=True):
        yield Figure(REQUEST, what, "ms", taken, 6.0)


def _took(what: str) -> float:
    """Measure one row, for a comparison."""
    if what in WAYS:
        return milliseconds(_opening(what))
    return statistics.median(alone(what) for _ in range(AT_ONCE))


def compared(rounds: int, other: Path) -> Iterator[Figure]:
    """Measure rewriting in this version and in that of another folder."""
    rows = {what: (REQUEST, what) for what in (*WAYS, STEPS, TAUGHT)}
    return versions.compared("benchmarks.exchange", rows, "ms", rounds, other)


def new_tools(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """The first exchange whose tools nobody saw before, up to the first text, and the same again."""
    times: dict[str, list[float]] = {"never seen": [], "seen before": []}
    planner = Planner(profiles, Settings())
    reply = samples.reply(samples.tokens("Hello <b>you</b>, `this` is it."))

    def exchange(body: bytes) -> None:
        stream = opened(planner, body).stream()
        for frame in reply:
            stream.feed(frame)
        stream.finish()

    for number in range(rounds):
        body = encoded(samples.request(messages=20, tools_=10)).replace(b"tool_", b"tool%d_" % number)
        for samples_ in times.values():
            samples_.append(milliseconds(partial(exchange, body)))
    for what, taken in times.items():
        yield Figure("a short exchange, 20 messages and 10 tools", f"whose tools were {what}", "ms", taken)


def memory(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """What is allocated for a stream in the middle of a reply, beyond the bytes of the frames that it holds.

    The request's body is mitmproxy's and no part of it.
    """
    planner = Planner(profiles, Settings())
    call = samples.call_of(64 << 10, profiles.dialects["hermes"])
    middle = samples.pieces(call)[: (16 << 10) // samples.PIECE]
    for what, deltas, target in (
        ("in prose", samples.said(samples.ANSWER, 2000), 64.0),
        ("in a call, beyond 4096 frames held", middle, None),
    ):
        frames = samples.reply(deltas)[:-2]
        for request, asked in (("46 KB asked", (20, 10)), ("320 KB asked", (200, 40))):
            body = encoded(samples.request(messages=asked[0], tools_=asked[1]))
            held = 0 if target else sum(map(len, frames)) / 1024
            taken = [_memory(planner, body, frames) - held for _ in range(rounds)]
            yield Figure(MEMORY, f"{what}, {request}", "KB", taken, target)


def _memory(planner: Planner, body: bytes, frames: list[bytes]) -> float:
    """KB by stream; what exchanges share is made before."""

    def start() -> tuple[Session, object]:
        exchange = opened(planner, body)
        stream = exchange.stream()
        for frame in frames:
            stream.feed(bytes(bytearray(frame)))
        return exchange, stream

    started = [start()]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    started += [start() for _ in range(STREAMS)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / STREAMS / 1024


if __name__ == "__main__":
    versions.answer(_took)
