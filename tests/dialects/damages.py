"""Damage JSON calls and count how many of them are read correctly.

    python -m tests.dialects.damages [number of calls]     prints the table

A damage removes or adds structural characters, or drops escapes; it never changes a value. So a call that is read from
a damaged text must have the arguments of the undamaged one.
"""

from __future__ import annotations

import ast
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.dialects.material import DIALECTS, calls, dump_typed, read
from vtc.dialects.arguments.json_object import JsonBody
from vtc.events import Tool

type Call = tuple[str, dict[str, Any]]


def _tool(name: str, required: list[str], **parameters: Any) -> Tool:
    kinds = {key: {"type": kind} if isinstance(kind, str) else kind for key, kind in parameters.items()}
    return Tool(name, "", {"type": "object", "properties": kinds, "required": required})


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        _tool("write_file", ["path", "content"], path="string", content="string", mode="string"),
        _tool("bash", ["command"], command="string", timeout="integer", description="string"),
        _tool(
            "search",
            ["query"],
            query="string",
            options="object",
            fields={"type": "array", "items": {"type": "string"}},
            mode="string",
        ),
    )
}


class Token(NamedTuple):
    """A piece of JSON: a structural character, `key`, `string` or `word`."""

    kind: str
    text: str


def tokens(value: Any) -> Iterator[Token]:
    """Split JSON into pieces, formatted as by `json.dumps`."""
    if isinstance(value, dict):
        yield Token("{", "{")
        for place, (key, entry) in enumerate(value.items()):
            yield from [Token(",", ", ")] * (place > 0)
            yield Token("key", json.dumps(key, ensure_ascii=False))
            yield Token(":", ": ")
            yield from tokens(entry)
        yield Token("}", "}")
    elif isinstance(value, list):
        yield Token("[", "[")
        for place, entry in enumerate(value):
            yield from [Token(",", ", ")] * (place > 0)
            yield from tokens(entry)
        yield Token("]", "]")
    else:
        yield Token("string" if isinstance(value, str) else "word", json.dumps(value, ensure_ascii=False))


type Pieces = list[Token]


def _at_one(kinds: str, change: Callable[[str, random.Random], str]) -> Callable[[Pieces, random.Random], str]:
    """Damage one of the pieces of some kinds; empty if there is none."""

    def damage(pieces: Pieces, choose: random.Random) -> str:
        places = [place for place, piece in enumerate(pieces) if piece.kind in kinds.split()]
        if not places:
            return ""
        hit = choose.choice(places)
        return "".join(change(one.text, choose) if at == hit else one.text for at, one in enumerate(pieces))

    return damage


def _key(text: str, choose: random.Random) -> str:
    return choose.choice([text[1:], text[:-1], text[1:-1]])


def _comment(text: str, choose: random.Random) -> str:
    return text + choose.choice(
        ["// the next one\n", "/* the next one */ ", "# the next one\n", "\n  // {the, next: one}\n"]
    )


def _last_braces(pieces: Pieces, choose: random.Random) -> str:
    text = "".join(piece.text for piece in pieces)
    return text[: -choose.randint(1, len(text) - len(text.rstrip("}]")))]


def _in_strings(change: Callable[[str], str], kinds: str = "string") -> Callable[[Pieces, random.Random], str]:
    """Damage all pieces of some kinds; empty if that changes nothing."""

    def damage(pieces: Pieces, _: random.Random) -> str:
        text = "".join(change(one.text) if one.kind in kinds.split() else one.text for one in pieces)
        return text if text != "".join(piece.text for piece in pieces) else ""

    return damage


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def _with_quotes(text: str) -> str:
    return '"' + _ESCAPE.sub(lambda found: '"' if found[1] == '"' else found[0], text[1:-1]) + '"'


def _with_breaks(text: str) -> str:
    breaks = {"n": "\n", "r": "\r", "t": "\t"}
    return _ESCAPE.sub(lambda found: breaks.get(found[1], found[0]), text)


def _single(text: str) -> str:
    return "'" + _with_quotes(text)[1:-1].replace("'", r"\'") + "'"


def _apostrophes(text: str) -> str:
    return "'" + _with_quotes(text)[1:-1] + "'"


def _python(text: str) -> str:
    return repr(json.loads(text))


DAMAGES: Mapping[str, Callable[[Pieces, random.Random], str]] = {
    "a comma missing": _at_one(",", lambda text, choose: choose.choice([" ", "", "\n"])),
    "a colon missing": _at_one(":", lambda text, choose: choose.choice([" ", ""])),
    "a quote of a key missing": _at_one("key", _key),
    "last braces missing": _last_braces,
    "a comma too many": _at_one("} ]", lambda text, choose: ", " + text),
    "a comment": _at_one(", {", _comment),
    "raw line breaks": _in_strings(_with_breaks),
    "single quotes": _in_strings(_single, "string key"),
    "single quotes, apostrophes not escaped": _in_strings(_apostrophes, "string key"),
    "Python's strings": _in_strings(_python, "string key"),
    "inner quotes not escaped": _in_strings(_with_quotes),
    "inner quotes and line breaks": _in_strings(lambda text: _with_breaks(_with_quotes(text))),
}

ENVELOPE = {"hermes": "<tool_call>\n{}\n</tool_call>", "bare-json": "{}", "granite": "<|tool_call|>[{}]"}
ARGUMENTS = {
    "deepseek-v3.1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{}"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "mistral": "[TOOL_CALLS]NAME[ARGS]{}",
    "kimi-k2": "functions.NAME:0{}",
}
WRITTEN = {**ENVELOPE, **ARGUMENTS}


def damage_call(call: Call, damage: str, dialect: str, choose: random.Random) -> str:
    """Return a damaged call; empty if the damage does not apply, or makes the text another whole call."""
    name, arguments = call
    value = {"name": name, "arguments": arguments} if dialect in ENVELOPE else arguments
    body = DAMAGES[damage]([*tokens(value)], choose)
    before, _, after = WRITTEN[dialect].replace("NAME", name).partition("{}")
    return "" if is_another(body, after.strip()) else before + body + after


def is_another(body: str, closer: str) -> bool:
    """Return True if no reader can know that more was meant: the text is, or begins with, a whole call."""
    one = JsonBody()
    rest = body[one.feed(body, 0, final=True) :].replace("\\n", " ")
    if not one.done:
        return not body
    start = closer[:2].replace("｜", "|")  # closers are accepted in other spellings, too
    ends = (
        rest.lstrip().replace("｜", "|").startswith(start)
        if closer
        else re.match(r"\s|[<,;}\]]|\[[A-Z/]|functions\.", rest)
    )
    return bool(ends) or (not rest and not one.repairs)


def outcome(call: Call, text: str, dialect: str, *, cuts: int = 0, complete: bool = True) -> str:
    """Classify the result of reading a damaged call: `right`, `refused` or `altered`."""
    pieces = [text] if not cuts else [text[at : at + cuts] for at in range(0, len(text), cuts)]
    found = calls(read(pieces, [DIALECTS[dialect]], TOOLS, complete=complete))
    if not found:
        return "refused"
    return "right" if [dump_typed(one) for one in found] == [dump_typed(call)] else "altered"


def code(count: int, seed: int = 1) -> Iterator[Call]:
    """Yield calls that write or run pieces of the standard library."""
    choose = random.Random(seed)
    sources = sorted(Path(ast.__file__).parent.glob("[a-z]*.py"))
    for _ in range(count):
        lines = choose.choice(sources).read_text("utf-8", "replace").splitlines(keepends=True)
        first = choose.randrange(max(1, len(lines) - 40))
        piece = "".join(lines[first : first + choose.randint(1, 40)])
        if choose.random() < 0.3:
            piece = piece.replace("\n", "\r\n")
        kind = choose.randrange(5)
        if kind == 0:
            yield (
                "bash",
                {
                    "command": piece,
                    "timeout": choose.randint(1, 900),
                    "description": choose.choice(["Run it.", 'Say "hi".']),
                },
            )
        elif kind == 1:
            fields = choose.sample(["a b", "title", piece[:20], 'x "y" z'], 2)
            yield (
                "search",
                {
                    "query": piece[:80],
                    "fields": fields,
                    "options": {"deep": {"k": piece[-60:], "n": 1}},
                    "mode": "slow",
                },
            )
        else:
            more = {"mode": "w"} if kind == 2 else {}
            yield "write_file", {"path": f"src/{choose.randint(1, 99)}.py", "content": piece, **more}


def table(count: int) -> dict[str, Counter[str]]:
    """Count the outcomes of each damage over all dialects."""
    rows: dict[str, Counter[str]] = {}
    for damage in DAMAGES:
        choose = random.Random(damage)
        row = rows[damage] = Counter()
        for place, call in enumerate(code(count)):
            dialect = [*WRITTEN][place % len(WRITTEN)]
            if text := damage_call(call, damage, dialect, choose):
                result = outcome(call, text, dialect)
                row[result] += 1
                if result == "altered" and "-v" in sys.argv:
                    sys.stdout.write(f"{damage} {dialect}\n{text!r}\n{call!r}\n")
    return rows


def format_table(rows: Mapping[str, Counter[str]]) -> str:
    """Format the table."""
    lines = [f"{'damage':<42}{'calls':>7}{'right':>9}{'refused':>9}{'altered':>9}{'rate':>9}"]
    for name, row in rows.items():
        counts = "".join(f"{row[result]:>9}" for result in ("right", "refused", "altered"))
        lines.append(f"{name:<42}{row.total():>7}{counts}{row['right'] / (row.total() or 1):>9.1%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(format_table(table(int(sys.argv[1]) if len(sys.argv) > 1 else 300)) + "\n")
