"""Measure the parsing of a whole reply of 100 KB: without repair, with repair, and with a broken call.

The first table has milliseconds by dialect; the second has replies of 1 MB that are designed to be slow to repair, by
their repeated unit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from benchmarks.samples import TOOLS, write_call
from vtc.dialects import Description, Reader, ReaderOptions, compile_grammar
from vtc.profiles import builtin_directory, load_profiles

CALL_CHARS = 100 << 10
HOSTILE_CHARS = 1 << 20
ROUNDS = 5
DIALECTS = ("bare-json", "cline", "hermes", "invoke", "qwen3-coder", "tag", "tools-tag")
OPENERS = {
    "hermes": '<tool_call>\n{"name": "write_file", "arguments": {"path": "a", "content": "',
    "invoke": '<invoke name="write_file">\n<parameter name="path">a</parameter>\n<parameter name="content">',
    "qwen3-coder": "<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n",
    "tag": "<write_file>\n<path>a</path>\n<content>",
}
"""Beginnings of calls that are never closed."""
HOSTILE_UNITS = {
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


def measure_milliseconds(text: str, dialect: Description, *, lenient: bool, limit: int = 1 << 30) -> float:
    reader = Reader(compile_grammar((dialect,)), TOOLS, ReaderOptions(lenient=lenient, max_call_bytes=limit))
    started = time.perf_counter()
    reader.feed(text)
    reader.finish()
    return (time.perf_counter() - started) * 1e3


def break_call(text: str) -> str:
    """Return a call without its last closer or brace."""
    return text.rstrip().removesuffix(">") if text.rstrip().endswith(">") else text.rstrip()[:-1]


def measure_median(text: str, dialect: Description, *, lenient: bool) -> float:
    return statistics.median(measure_milliseconds(text, dialect, lenient=lenient) for _ in range(ROUNDS))


def main() -> None:
    dialects: Mapping[str, Description] = load_profiles([builtin_directory()]).dialects
    print(f"\n{'100 KB at once':<26}{'strict':>9}{'lenient':>9}{'broken':>9}   ms, median of", ROUNDS)
    for name in DIALECTS:
        dialect, text = dialects[name], write_call(CALL_CHARS, dialects[name])
        cases = ((text, False), (text, True), (break_call(text), True))
        figures = [measure_median(case, dialect, lenient=lenient) for case, lenient in cases]
        print(f"{name:<26}" + "".join(f"{figure:>9.1f}" for figure in figures))
    print(f"\n{'1 MB of':<26}" + "".join(f"{name:>13}" for name in OPENERS) + "   ms, in a call and alone")
    for name, piece in HOSTILE_UNITS.items():
        body = piece * (HOSTILE_CHARS // len(piece))
        row = []
        for dialect_name, opener in OPENERS.items():
            times = [measure_milliseconds(text, dialects[dialect_name], lenient=True) for text in (opener + body, body)]
            row.append("/".join(f"{one:.0f}" for one in times))
        print(f"{name:<26}" + "".join(f"{cell:>13}" for cell in row), flush=True)


if __name__ == "__main__":
    main()
