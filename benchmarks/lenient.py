"""Reading a whole reply of 100 KB at once: without repair, with it, and where it has something to repair.

Milliseconds by dialect. Then replies of 1 MB that were made to be slow to repair, by what they are made of.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from benchmarks.samples import TOOLS, call_of
from vtc.dialects import Description, Reader, compile_grammar
from vtc.profiles import builtin_directory, load

SIZE = 100 << 10
HOSTILE_SIZE = 1 << 20
ROUNDS = 5
DIALECTS = ("bare-json", "cline", "hermes", "invoke", "qwen3-coder", "tag", "tools-tag")
OPENERS = {
    "hermes": '<tool_call>\n{"name": "write_file", "arguments": {"path": "a", "content": "',
    "invoke": '<invoke name="write_file">\n<parameter name="path">a</parameter>\n<parameter name="content">',
    "qwen3-coder": "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n",
    "tag": "<write_file>\n<path>a</path>\n<content>",
}
"""Beginnings of calls, with nothing behind that closes them."""
HOSTILE = {
    "{": "{",
    "<": "<",
    "</": "</",
    '"': '"',
    '", "': '", "',
    "\\": "\\",
    "`": "`",
    "white space": " \n",
    "closers": "</content></parameter></function></tool_call></invoke></write_file>",
    "openers": '<parameter=content><parameter name="content"><content>',
    "heads": '<function=write_file><invoke name="write_file"><write_file><tool_call>{"name"',
    "calls that are not closed": '<invoke name="write_file"><parameter name="path">a</parameter>',
    "broken JSON": '{"name": "write_file", "arguments": {"path": ',
}


def milliseconds(text: str, dialect: Description, *, lenient: bool, limit: int = 1 << 30) -> float:
    reader = Reader(compile_grammar((dialect,)), TOOLS, lenient=lenient, max_call_bytes=limit)
    started = time.perf_counter()
    reader.feed(text)
    reader.finish()
    return (time.perf_counter() - started) * 1e3


def broken(text: str) -> str:
    """A call without the last of its closers, or of its braces."""
    return text.rstrip().removesuffix(">") if text.rstrip().endswith(">") else text.rstrip()[:-1]


def median(text: str, dialect: Description, *, lenient: bool) -> float:
    return statistics.median(milliseconds(text, dialect, lenient=lenient) for _ in range(ROUNDS))


def main() -> None:
    dialects: Mapping[str, Description] = load([builtin_directory()]).dialects
    print(f"\n{'100 KB at once':<26}{'strict':>9}{'lenient':>9}{'broken':>9}   ms, median of", ROUNDS)
    for name in DIALECTS:
        dialect, text = dialects[name], call_of(SIZE, dialects[name])
        cases = ((text, False), (text, True), (broken(text), True))
        figures = [median(one, dialect, lenient=lenient) for one, lenient in cases]
        print(f"{name:<26}" + "".join(f"{figure:>9.1f}" for figure in figures))
    print(f"\n{'1 MB of':<26}" + "".join(f"{name:>13}" for name in OPENERS) + "   ms, in a call and alone")
    for name, piece in HOSTILE.items():
        body = piece * (HOSTILE_SIZE // len(piece))
        row = []
        for dialect_name, opener in OPENERS.items():
            times = [milliseconds(text, dialects[dialect_name], lenient=True) for text in (opener + body, body)]
            row.append("/".join(f"{one:.0f}" for one in times))
        print(f"{name:<26}" + "".join(f"{cell:>13}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
