"""Measure an exchange without a proxy: rewriting a long request, the memory of a stream, and new tools."""

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
from benchmarks.figures import Figure, measure_interleaved
from vtc import apis
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, Profiles, Settings, builtin_directory, load_profiles

REQUEST = "a request of 200 messages and 40 tools, 320 KB"
MEMORY = "memory by open stream"
STREAMS = 8


def open_session(
    planner: Planner, body: bytes, path: str = "/v1/chat/completions", memory: Memory | None = None
) -> Session:
    api = apis.match_request("POST", path)
    assert api is not None
    exchange = Session.open(api, body, Facts(path=path), planner, "seed", memory)
    exchange.encode_request()
    return exchange


def encode_json(request: dict[str, Any]) -> bytes:
    return json.dumps(request, separators=(",", ":")).encode()


def measure_milliseconds(work: Callable[[], object]) -> float:
    """Measure the CPU time of a function in milliseconds."""
    started = time.process_time()
    work()
    return (time.process_time() - started) * 1e3


REWRITES = {
    "no changes": Settings(),
    "tools and calls written as hermes": Settings(tools="prompt", dialect="hermes"),
    "tools and calls written as qwen3-coder": Settings(tools="prompt", dialect="qwen3-coder"),
    "steps for llama.cpp": Settings(server="llama.cpp"),
    "steps for Mistral's API": Settings(server="mistral"),
}
STEPS_ROW, CORRECTIONS_ROW = "all steps alone", "all steps and six corrections alone"
DIFFERENCES_PER_SAMPLE = 5
"""Number of measurements whose median is one sample, because a single difference of two times is noisy."""


@cache
def _load_profiles() -> Profiles:
    """Load the profiles and exclude them from garbage collection, as a mitmdump with VTC does."""
    profiles = load_profiles([builtin_directory(), samples.PROFILES])
    gc.freeze()
    return profiles


@cache
def _prepare_rewrite(row: str) -> Callable[..., Session]:
    """Return a function that rewrites the long request under the settings of a row; the dialect is compiled before."""
    planner = Planner(_load_profiles(), REWRITES[row])
    open_session(planner, encode_json(samples.make_request(messages=4)))
    return partial(open_session, planner, encode_json(samples.make_request(messages=200)))


def measure_rewriting(rounds: int) -> Iterator[Figure]:
    """Measure the cost of a turn of a conversation, in which agents send all messages again."""
    for row in REWRITES:
        times = [measure_milliseconds(_prepare_rewrite(row)) for _ in range(rounds)]
        yield Figure(REQUEST, row, "ms", times, 10.0)
        memories = [Memory() for _ in range(rounds)]
        for turn in ("first", "next"):
            times = [measure_milliseconds(partial(_prepare_rewrite(row), memory=memory)) for memory in memories]
            yield Figure(REQUEST, f"{row}, {turn} turn with memory", "ms", times, 13.0)


@cache
def _prepare_unready() -> Mapping[str, Callable[[], Session]]:
    """Return functions that prepare a request which needs all steps and corrections.

    The first prepares it without both (key ""), the others with the steps, and with steps and corrections. New tools
    are compiled before.
    """
    body = encode_json(samples.make_unready_request())
    without_steps, with_steps = (
        Planner(_load_profiles(), Settings()),
        Planner(_load_profiles(), Settings(server="picky")),
    )
    learned = Memory()
    for message in samples.REJECTIONS:
        exchange = open_session(with_steps, body, memory=learned)
        exchange.encode_after_rejection(encode_json({"error": {"message": message}}), 400)
        exchange.confirm_quirks()
    settings_by_row = {
        "": (without_steps, Memory()),
        STEPS_ROW: (with_steps, Memory()),
        CORRECTIONS_ROW: (with_steps, learned),
    }
    prepare_by_row = {
        row: partial(open_session, planner, body, memory=memory) for row, (planner, memory) in settings_by_row.items()
    }
    for prepare in prepare_by_row.values():
        prepare()
    return prepare_by_row


def measure_steps_alone(row: str) -> float:
    """Measure the milliseconds of the steps, or of steps and corrections: the time with them minus the time without."""
    return measure_milliseconds(_prepare_unready()[row]) - measure_milliseconds(_prepare_unready()[""])


def measure_steps(rounds: int) -> Iterator[Figure]:
    """Measure the steps and corrections of a request; more rounds, because each sample is a difference."""
    for row, times in zip(
        (STEPS_ROW, CORRECTIONS_ROW),
        measure_interleaved((STEPS_ROW, CORRECTIONS_ROW), measure_steps_alone, DIFFERENCES_PER_SAMPLE * rounds),
        strict=True,
    ):
        yield Figure(REQUEST, row, "ms", times, 6.0)


def _measure_row(row: str) -> float:
    """Measure one row in milliseconds, for a comparison of versions."""
    if row in REWRITES:
        return measure_milliseconds(_prepare_rewrite(row))
    return statistics.median(measure_steps_alone(row) for _ in range(DIFFERENCES_PER_SAMPLE))


def compare_versions(rounds: int, other: Path) -> Iterator[Figure]:
    """Compare the rewriting of requests in this version and in another folder's."""
    rows = {row: (REQUEST, row) for row in (*REWRITES, STEPS_ROW, CORRECTIONS_ROW)}
    return versions.compare_versions("benchmarks.exchange", rows, "ms", rounds, other)


def measure_new_tools(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """Measure a short exchange with new tools, and the same exchange with known tools."""
    times: dict[str, list[float]] = {"never seen": [], "seen before": []}
    planner = Planner(profiles, Settings())
    reply = samples.make_reply(samples.split_tokens("Hello <b>you</b>, `this` is it."))

    def run_exchange(body: bytes) -> None:
        stream = open_session(planner, body).stream()
        for frame in reply:
            stream.feed(frame)
        stream.finish()

    for number in range(rounds):
        body = encode_json(samples.make_request(messages=20, tool_count=10)).replace(b"tool_", b"tool%d_" % number)
        for milliseconds in times.values():
            milliseconds.append(measure_milliseconds(partial(run_exchange, body)))
    for tools, milliseconds in times.items():
        yield Figure("a short exchange, 20 messages and 10 tools", f"whose tools were {tools}", "ms", milliseconds)


def measure_memory(profiles: Profiles, rounds: int) -> Iterator[Figure]:
    """Measure the memory of a stream in the middle of a reply, without the bytes of its buffered frames.

    The request's body does not count, because mitmproxy holds it.
    """
    planner = Planner(profiles, Settings())
    call = samples.write_call(64 << 10, profiles.dialects["hermes"])
    middle = samples.split_pieces(call)[: (16 << 10) // samples.PIECE_CHARS]
    for place, deltas, target in (
        ("in prose", samples.repeat_tokens(samples.ANSWER, 2000), 64.0),
        ("in a call, without the 4096 buffered frames", middle, None),
    ):
        frames = samples.make_reply(deltas)[:-2]
        for request, counts in (("request of 46 KB", (20, 10)), ("request of 320 KB", (200, 40))):
            body = encode_json(samples.make_request(messages=counts[0], tool_count=counts[1]))
            frame_kb = 0 if target else sum(map(len, frames)) / 1024
            kilobytes = [_measure_stream_kb(planner, body, frames) - frame_kb for _ in range(rounds)]
            yield Figure(MEMORY, f"{place}, {request}", "KB", kilobytes, target)


def _measure_stream_kb(planner: Planner, body: bytes, frames: list[bytes]) -> float:
    """Measure the memory of one stream in KB; objects that exchanges share are created before."""

    def open_stream() -> tuple[Session, object]:
        exchange = open_session(planner, body)
        stream = exchange.stream()
        for frame in frames:
            stream.feed(bytes(bytearray(frame)))
        return exchange, stream

    opened = [open_stream()]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    opened += [open_stream() for _ in range(STREAMS)]
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / STREAMS / 1024


if __name__ == "__main__":
    versions.serve_measurements(_measure_row)
