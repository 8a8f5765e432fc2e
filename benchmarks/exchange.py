"""One exchange without a proxy: rewriting a long request, what an open stream holds, the first sight of new tools."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import samples
from benchmarks.figures import Figure
from vtc import apis
from vtc.exchange import Exchange
from vtc.profiles import Facts, Memory, Planner, Profiles, Settings

REQUEST = "a request of 200 messages and 40 tools, 320 KB"
MEMORY = "memory by open stream"
STREAMS = 8


def opened(planner: Planner, body: bytes, path: str = "/v1/chat/completions", memory: Memory | None = None) -> Exchange:
    api = apis.find("POST", path)
    assert api is not None
    exchange = Exchange.open(api, body, Facts(path=path), planner, "seed", memory)
    exchange.request()
    return exchange


def encoded(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode()


def milliseconds(work: Callable[[], object]) -> float:
    """Of CPU."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


def rewriting(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """What a turn of a conversation costs: agents send everything again."""
    for what, settings in (
        ("left as it is", Settings()),
        ("tools and calls written as hermes", Settings(tools="prompt", dialect="hermes")),
        ("tools and calls written as qwen3-coder", Settings(tools="prompt", dialect="qwen3-coder")),
        ("made ready for llama.cpp", Settings(server="llama.cpp")),
        ("made ready for Mistral's API", Settings(server="mistral")),
    ):
        planner, body = Planner(profiles, settings), encoded(samples.request(messages=200))
        opened(planner, encoded(samples.request(messages=4)))  # the dialect is compiled
        taken = [milliseconds(partial(opened, planner, body)) for _ in range(rounds)]
        yield Figure(REQUEST, what, "ms", taken, 10.0)
        memories = [Memory() for _ in range(rounds)]
        for turn in ("first", "next"):
            taken = [milliseconds(partial(opened, planner, body, memory=one)) for one in memories]
            yield Figure(REQUEST, f"{what}, {turn} turn with memory", "ms", taken, 13.0)


def steps(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """What the steps and the corrections of a request take, in which all have to act: its time less that without."""
    body = encoded(samples.unready())
    as_it_is, ready = Planner(profiles, Settings()), Planner(profiles, Settings(server="picky"))
    taught = Memory()
    for refusal in samples.REFUSALS:
        exchange = opened(ready, body, memory=taught)
        exchange.again(encoded({"error": {"message": refusal}}), 400)
        exchange.learned()
    ways = [(as_it_is, Memory()), (ready, Memory()), (ready, taught)]
    taken = [
        [milliseconds(partial(opened, planner, body, memory=memory)) for planner, memory in ways]
        for _ in range(rounds + 1)
    ][1:]  # tools that were never seen are compiled
    yield Figure(REQUEST, "all steps alone", "ms", [each - none for none, each, _ in taken], 6.0)
    yield Figure(REQUEST, "all steps and six corrections alone", "ms", [each - none for none, _, each in taken], 6.0)


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

    def start() -> tuple[Exchange, object]:
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
