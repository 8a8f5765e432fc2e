"""The reader alone: microseconds a delta, by dialect and size of a call, and on plain prose."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from vtc.dialects.description import Description
from vtc.dialects.grammar import compiled
from vtc.dialects.reader import Reader
from vtc.dialects.writer import write_calls
from vtc.events import Tool, ToolCall
from vtc.profiles import loader

PIECE = 4
ROUNDS = 5
TOOLS = {
    "write_file": Tool(
        "write_file",
        "",
        {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
    )
}
PROSE = "The quick brown fox, who said `hello` <b>twice</b>, jumps over the lazy dog.\n\n"


def call_of(size: int, dialect: Description) -> str:
    """A `write_file` call with `size` characters of code as its content."""
    line = 'def f(x):\n    return {"a": [1, 2, 3], "b": x < 3 and x > 1}  # a comment\n\n'
    content = (line * (size // len(line) + 1))[:size]
    call = ToolCall("write_file", json.dumps({"path": "src/a.py", "content": content}))
    return "I will write it.\n\n" + write_calls([call], dialect, TOOLS)


def per_delta(text: str, reader: Callable[[], Reader]) -> float:
    """Microseconds a delta of four characters, end of the reply included."""
    deltas = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    one = reader()
    started = time.perf_counter()
    for delta in deltas:
        one.feed(delta)
    one.finish()
    return (time.perf_counter() - started) / len(deltas) * 1e6


def main() -> None:
    dialects = loader.load([loader.builtin_directory()]).dialects
    sizes = (8 << 10, 64 << 10, 1 << 20)
    print(f"{'dialect':<14}" + "".join(f"{size >> 10:>8} KB" for size in sizes) + "   us a delta, median of", ROUNDS)
    for name, dialect in sorted(dialects.items()):
        figures = []
        for size in sizes:
            text = call_of(size, dialect)
            grammar = compiled((dialect,), tuple(TOOLS))
            runs = [per_delta(text, lambda g=grammar: Reader(g, TOOLS, max_call_bytes=1 << 30)) for _ in range(ROUNDS)]
            figures.append(statistics.median(runs))
        print(f"{name:<14}" + "".join(f"{figure:>11.2f}" for figure in figures))
    everything = compiled(tuple(dialects.values()), tuple(TOOLS))
    prose = PROSE * 800
    figure = statistics.median(per_delta(prose, lambda: Reader(everything, TOOLS)) for _ in range(ROUNDS))
    print(f"{'prose, all':<14}{figure:>11.2f}")


if __name__ == "__main__":
    main()
