"""Malformed replies, derived by systematic damage to well-formed calls: writes `<dialect>.jsonl` next to this file.

Run it by hand after a change, and review `git diff`: `python -m tests.cases.malformed.derive`.

A case is {name, dialects, tools, text, finish, calls, content, source}. The expectation follows from the damage and
never from VTC's result. `calls` is null if the reply must stay text: because it was cut off (`length`), because no text
marks the end of a value, or because two interpretations are possible. A reply that ended by itself (`stop`) in a JSON
string or before JSON's braces is complete if it contains everything that the tool requires.

`models.jsonl` is not derived: it contains real replies of small models, each reviewed by a person.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

type Json = dict[str, Any]

REQUIRED = {"bash": ("command",), "write_file": ("path", "content"), "get_weather": ("city",), "read_file": ("path",)}
WEATHER = ("get_weather", {"city": "Paris", "days": 2})
SHELL = ("bash", {"command": "grep -rn 'x y' . | wc -l", "timeout": 5})
FILE = ("write_file", {"path": "src/a.py", "content": 'if a < b:\n    print("x > y")'})
READ = ("read_file", {"path": "src/a.py"})
SAMPLES = (WEATHER, SHELL, FILE)

LEAST_LETTERS = 3
"""Letters of a closing tag's name that identify it; with fewer it can be a `</` of the content."""


def case(name: str, dialect: str, text: str, calls: Sequence[tuple[str, Json]] | None, **more: Any) -> Json:
    """Make one case; without `calls` the reply stays text."""
    listed = None if calls is None else [{"name": tool, "arguments": arguments} for tool, arguments in calls]
    expected = {"calls": listed, "content": more.pop("content", "" if calls else text)}
    fields = {"dialects": [dialect], "tools": "agent", "text": text, "finish": "stop", **expected, "source": "derived"}
    return {"name": name, **fields, **more}


# Calls between tags


@dataclass(frozen=True)
class Tags:
    """The tags of a dialect with a tag for each parameter."""

    opener: str
    key: str
    end: str
    closer: str
    wrapper: str = ""
    unwrap: str = ""
    frame: str = ""
    """Text on either side of a value."""
    multiline: bool = False
    """True if newlines frame a value of several lines."""

    def pieces(self, name: str, arguments: Json) -> list[tuple[str, str]]:
        """Return a call as roles and texts: `wrapper`, `opener`, then `key`, `value`, `end` of each parameter, …"""
        found = [("wrapper", self.wrapper)] if self.wrapper else []
        found.append(("opener", self.opener.format(name=name)))
        for key, value in arguments.items():
            written = value if isinstance(value, str) else json.dumps(value)
            frame = "\n" if "\n" in written and self.multiline else self.frame
            found.append(("key", self.key.format(key=key)))
            found.append(("value", frame + written + frame))
            found.append(("end", self.end.format(key=key)))
        found.append(("closer", self.closer.format(name=name)))
        return [*found, ("unwrap", self.unwrap)] if self.unwrap else found


TAGGED: Mapping[str, Tags] = {
    "tag": Tags("<{name}>", "<{key}>", "</{key}>", "</{name}>", multiline=True),
    "cline": Tags("<{name}>", "<{key}>", "</{key}>", "</{name}>", multiline=True),
    "invoke": Tags(
        '<invoke name="{name}">',
        '<parameter name="{key}">',
        "</parameter>",
        "</invoke>",
        "<function_calls>",
        "</function_calls>",
    ),
    "qwen3-coder": Tags(
        "<function={name}>", "<parameter={key}>", "</parameter>", "</function>", "<tool_call>", "</tool_call>", "\n"
    ),
}


def join_pieces(pieces: Sequence[tuple[str, str]]) -> str:
    """Join the pieces, with a newline between tags."""
    text = ""
    for role, piece in pieces:
        glued = not text or role in ("value", "end")
        text += piece if glued else "\n" + piece
    return text


def without(pieces: Sequence[tuple[str, str]], *at: int) -> list[tuple[str, str]]:
    return [piece for i, piece in enumerate(pieces) if i not in at]


def without_lines(pieces: Sequence[tuple[str, str]], *at: int) -> list[tuple[str, str]]:
    """Remove these closing tags, each together with its line if it is alone on it."""
    shorter = [
        (role, piece.removesuffix("\n") if role == "value" and i + 1 in at else piece)
        for i, (role, piece) in enumerate(pieces)
    ]
    return without(shorter, *at)


def other(pieces: Sequence[tuple[str, str]], at: int, text: str) -> list[tuple[str, str]]:
    return [(role, text if i == at else piece) for i, (role, piece) in enumerate(pieces)]


def garble_closer(closer: str) -> Iterator[tuple[str, str]]:
    """Yield a closing tag with lost characters."""
    name = closer.strip("</>")
    yield "without its bracket", f"/{name}>"
    yield "without its last bracket", f"</{name}"
    yield "without its last letters", f"</{name[: max(LEAST_LETTERS, len(name) // 2)]}"


def derive_tagged(dialect: str) -> Iterator[Json]:
    tags = TAGGED[dialect]
    for sample in SAMPLES:
        yield from _closers(dialect, tags, sample)
    yield from _wrappers(dialect, tags)
    yield from _spelling(dialect, tags)
    yield from _two_calls(dialect, tags)
    if dialect == "tag" or dialect == "cline":
        yield from _attributes(dialect)
    yield from _cut_tags(dialect, tags)


def _closers(dialect: str, tags: Tags, sample: tuple[str, Json]) -> Iterator[Json]:
    """Yield cases in which a closing tag is dropped, garbled, or replaced by another."""
    name, arguments = sample
    pieces = tags.pieces(name, arguments)
    ends = [i for i, (role, _) in enumerate(pieces) if role == "end"]
    closing = [i for i, (role, _) in enumerate(pieces) if role in ("closer", "unwrap")]
    for which, at in enumerate(ends, 1):
        # The next parameter's opener, or the closer of the call, marks the end of the value.
        yield case(f"{name}: closer {which} missing", dialect, join_pieces(without_lines(pieces, at)), [sample])
        empty = join_pieces(without(pieces, at))
        if empty != join_pieces(without_lines(pieces, at)):
            # Both line breaks can be mere separators, so the text can end before either.
            value = [*arguments.values()][which - 1]
            meant = None if isinstance(value, str) else [sample]
            yield case(f"{name}: closer {which} is an empty line", dialect, empty, meant)
        for how, text in garble_closer(pieces[at][1]):
            yield case(f"{name}: closer {which} {how}", dialect, join_pieces(other(pieces, at, text)), [sample])
        for wrong in ("</value>", "</arg>"):
            yield case(f"{name}: closer {which} is {wrong}", dialect, join_pieces(other(pieces, at, wrong)), [sample])
    yield case(
        f"{name}: all closers of parameters missing", dialect, join_pieces(without_lines(pieces, *ends)), [sample]
    )
    yield case(f"{name}: call not closed", dialect, join_pieces(without(pieces, *closing)), [sample])
    last = ends[-1]
    yield case(f"{name}: nothing closed at the end", dialect, join_pieces(without(pieces, last, *closing)), None)
    yield case(f"{name}: nothing closed", dialect, join_pieces(without(pieces, *ends, *closing)), None)
    for at in closing:
        role, closer = pieces[at]
        yield case(f"{name}: {role} missing", dialect, join_pieces(without(pieces, at)), [sample])
        for how, text in (*garble_closer(closer), ("is </tool>", "</tool>")):
            # After a complete call, text is content unless it begins like the wrapper's closer.
            more = {"content": text} if role == "unwrap" and not closer.startswith(text) else {}
            yield case(f"{name}: {role} {how}", dialect, join_pieces(other(pieces, at, text)), [sample], **more)
    if len(closing) == 2:
        first, second = (pieces[at][1].strip("</>") for at in closing)
        for glued in (f"{first[:3]}{second}>", f"</{first[:3]}{second}>", first[:3]):
            text = join_pieces([*without(pieces, *closing), ("unwrap", glued)])
            yield case(f"{name}: closed by {glued}", dialect, text, [sample])
        glued = join_pieces(without(pieces, last, *closing)) + f"{first[:3]}{second}>"
        yield case(f"{name}: value closed by a glued closer", dialect, glued, [sample])


def _wrappers(dialect: str, tags: Tags) -> Iterator[Json]:
    if not tags.wrapper:
        return
    for name, arguments in SAMPLES:
        pieces = tags.pieces(name, arguments)
        for how, at in (("both", (0, len(pieces) - 1)), ("opener", (0,)), ("closer", (len(pieces) - 1,))):
            text = f"Well:\n{join_pieces(without(pieces, *at))}\nSo."
            more = {"content": "Well:\nSo."}
            yield case(f"{name}: wrapper missing, {how}", dialect, text, [(name, arguments)], **more)


def _spelling(dialect: str, tags: Tags) -> Iterator[Json]:
    """Yield tags and names in other spellings, and values in a CDATA section."""
    for sample in SAMPLES:
        name, arguments = sample
        pieces = tags.pieces(name, arguments)
        marked = [(role, _add_spaces(piece) if role in ("key", "end", "closer") else piece) for role, piece in pieces]
        if dialect not in ("tag", "cline"):
            yield case(f"{name}: spaces in tags", dialect, join_pieces(marked), [sample])
        late = [(role, piece.replace(">", " >") if role in ("end", "closer") else piece) for role, piece in pieces]
        yield case(f"{name}: spaces before brackets", dialect, join_pieces(late), [sample])
        one_line = join_pieces(pieces).replace(">\n<", r">\n<")
        yield case(f"{name}: newlines as two characters", dialect, one_line, [sample])
        cdata = [(role, f"<![CDATA[{piece.strip()}]]>" if role == "value" else piece) for role, piece in pieces]
        # If text is permitted, the section can be the text.
        kept = {key: f"<![CDATA[{text}]]>" if isinstance(text, str) else text for key, text in arguments.items()}
        yield case(f"{name}: CDATA", dialect, join_pieces(cdata), [(name, kept)])
        for spelling in (f"functions.{name}", f"default_api.{name}", name.upper(), name.title()):
            text = join_pieces(tags.pieces(spelling, arguments))
            yield case(f"{name} written {spelling}", dialect, text, [sample])
        if dialect == "invoke":
            yield from _quotes(sample, pieces)


def _quotes(sample: tuple[str, Json], pieces: Sequence[tuple[str, str]]) -> Iterator[Json]:
    name, _ = sample
    tags = ("opener", "key")
    escaped = [(role, piece.replace('"', r"\"") if role in tags else piece) for role, piece in pieces]
    if '"' not in json.dumps(sample[1]).replace('": "', "").replace('", "', ""):
        yield case(f"{name}: escaped quotes", "invoke", join_pieces(escaped), [sample])
    single = [(role, piece.replace('"', "'") if role in tags else piece) for role, piece in pieces]
    yield case(f"{name}: single quotes", "invoke", join_pieces(single), [sample])
    prefix = "antml:"
    spaced = [(role, piece.replace("<", f"<{prefix}") if role in tags else piece) for role, piece in pieces]
    yield case(f"{name}: namespace on openers only", "invoke", join_pieces(spaced), [sample])
    whole = join_pieces([(role, piece.replace('"', r"\"") if role in tags else piece) for role, piece in pieces])
    if name == "get_weather":
        yield case(f"{name}: all of it escaped", "invoke", whole.replace("\n", r"\n"), [sample])


def _add_spaces(tag: str) -> str:
    return tag.replace("<", "< ").replace("=", " = ").replace(">", " >").replace("< /", "</ ")


def _two_calls(dialect: str, tags: Tags) -> Iterator[Json]:
    """Yield cases in which a closer is missing before another call."""
    first, second = tags.pieces(*WEATHER), tags.pieces(*READ)
    both = [WEATHER, READ]
    closing = [i for i, (role, _) in enumerate(first) if role in ("closer", "unwrap")]
    text = join_pieces(without(first, *closing)) + "\n" + join_pieces(second)
    yield case("another call follows, the first is not closed", dialect, text, both)
    for at in closing[:1]:
        for how, closer in garble_closer(first[at][1]):
            text = join_pieces(other(first, at, closer)) + "\n" + join_pieces(second)
            yield case(f"another call follows, closer {how}", dialect, text, both)
    text = join_pieces(first) + "\n" + join_pieces(without(second, *range(len(second) - len(closing), len(second))))
    yield case("the second call is not closed", dialect, text, both)
    text = join_pieces(first) + "\n" + join_pieces(without(second, *range(len(second) - len(closing) - 1, len(second))))
    rest = text[len(join_pieces(first)) + 1 :]
    yield case("the second call ends in a value", dialect, text, [WEATHER], content=rest)
    ends = max(i for i, (role, _) in enumerate(first) if role == "end")
    text = join_pieces(without(first, ends, *closing)) + "\n" + join_pieces(second)
    yield case("another call follows a value without an end", dialect, text, None)


def _attributes(dialect: str) -> Iterator[Json]:
    for name, arguments in (WEATHER, SHELL, READ):
        for quote in ('"', "'"):
            if any(quote in str(value) for value in arguments.values()):
                continue
            written = " ".join(f"{key}={quote}{value}{quote}" for key, value in arguments.items())
            for end in ("/>", f"></{name}>", " />"):
                text = f"<{name} {written}{end}"
                yield case(f"{name}: attributes in {quote} to {end}", dialect, text, [(name, arguments)])
    yield case("an attribute that is no parameter", dialect, '<read_file file="a"/>', None)
    yield case("a required attribute is missing", dialect, '<read_file limit="5"/>', None)
    yield case("an attribute that does not end", dialect, '<bash command="echo "a"/> b"/>', None)


def _cut_tags(dialect: str, tags: Tags) -> Iterator[Json]:
    """Yield every beginning of a call. Between tags only its closer shows that a value is complete."""
    sample = ("write_file", {"path": "a", "content": "b < c\nd"})
    pieces = tags.pieces(*sample)
    text = join_pieces(pieces)
    end = max(i for i, (role, _) in enumerate(pieces) if role == "end")
    # The last value's closer must be present far enough to be unambiguous.
    begun = len(join_pieces(pieces[:end])) + len("</") + LEAST_LETTERS
    closer = next(i for i, (role, _) in enumerate(pieces) if role == "closer")
    closed = len(join_pieces(pieces[: closer + 1]))
    for at in range(1, len(text)):
        cut = text[:at]
        yield case(f"stopped at {at}", dialect, cut, [sample] if at >= begun else None)
        whole = [sample] if at >= closed else None
        content = cut[closed:].strip() if whole else cut
        yield case(f"cut off at {at}", dialect, cut, whole, content=content, finish="length")


# Calls in JSON

BLOCKS = {
    "hermes": ("<tool_call>\n", "\n</tool_call>"),
    "tools-tag": ("<tools>\n", "\n</tools>"),
    "bare-json": ("", ""),
}
CORRUPT = {"hermes": ("tool_call>", "</tool_ca", "</tool"), "tools-tag": ("tools>", "</too"), "bare-json": ()}


def dump_call(sample: tuple[str, Json]) -> str:
    return json.dumps({"name": sample[0], "arguments": sample[1]})


def in_json(dialect: str) -> Iterator[Json]:
    opener, closer = BLOCKS[dialect]

    def block(name: str, body: str, calls: Sequence[tuple[str, Json]] | None, end: str = closer, **more: Any) -> Json:
        return case(name, dialect, opener + body + end, calls, **more)

    def behind(text: str) -> Json:
        """Return the content after a call that is complete when its JSON is."""
        return {"content": text} if dialect == "tools-tag" and not closer.strip().startswith(text) else {}

    for sample in SAMPLES:
        tool, arguments = sample
        for fault, body in faults(sample):
            more = behind(f"```{closer}") if fault == "in a code block" else {}
            yield block(f"{tool}: {fault}", body, [sample], **more)
        yield block(f"{tool}: parameters", json.dumps({"name": tool, "parameters": arguments}), [sample])
        yield block(f"{tool}: arguments first", json.dumps({"arguments": arguments, "name": tool}), [sample])
        twice = json.dumps({"name": tool, "arguments": json.dumps(arguments)})
        yield block(f"{tool}: arguments encoded twice", twice, [sample])
        yield block(f"{tool}: encoded twice and a brace missing", twice[:-1], [sample])
        yield block(f"{tool}: prefixed", dump_call((f"functions.{tool}", arguments)), [sample])
        body = dump_call(sample)
        for lost in (1, 2):
            yield block(f"{tool}: {lost} braces missing", body[:-lost], [sample])
            yield block(f"{tool}: {lost} braces missing and no closer", body[:-lost], [sample], "")
        yield block(f"{tool}: a brace too many", body + "}", [sample], **behind("}"))
        yield block(f"{tool}: no closer", body, [sample], "")
        for corrupt in CORRUPT[dialect]:
            yield block(f"{tool}: closed by {corrupt}", body, [sample], f"\n{corrupt}", **behind(corrupt))
            yield block(f"{tool}: brace missing, closed by {corrupt}", body[:-1], [sample], corrupt)
        if opener:
            yield block(f"{tool}: closed by another tag", body, [sample], "\n</tool>", **behind("</tool>"))
        yield block(f"{tool}: unquoted name", body.replace(f'"{tool}"', tool), [sample])
    yield from _ended_in_a_string(dialect, block)
    yield from _several(dialect, block)
    yield from _cut_json(dialect, opener, closer)


def faults(sample: tuple[str, Json], body: str = "") -> Iterator[tuple[str, str]]:
    """Yield one fault of JSON at a time; none makes the meaning ambiguous."""
    _, arguments = sample
    body = body or dump_call(sample)
    text = next(value for value in reversed(arguments.values()) if isinstance(value, str))
    written = json.dumps(text)
    if "\n" in text:
        yield "raw newlines", body.replace(r"\n", "\n")
        yield "raw newlines and trailing comma", body.replace(r"\n", "\n").replace("}}", "},}")
    yield "trailing comma inside", body.removesuffix("}}") + ",}}" if body.endswith("}}") else body[:-1] + ",}"
    yield "trailing comma", body[:-1] + ",}"
    if "'" not in text and '"' not in text:
        yield "single quotes", body.replace('"', "'")
    yield "Python literal", repr(json.loads(body))
    yield "unquoted keys", re.sub(r'"(command|city|path)":', r"\1:", body)
    yield "escaped once too often", json.dumps(body)[1:-1]
    if r"\"" in written:
        yield "quotes not escaped", body.replace(r"\"", '"')
    if '", "' in body:
        yield "comma missing", body.replace('", "', '" "', 1)
    yield "in a code block", f"```json\n{body}\n```"
    yield "behind an opening fence", f"```json\n{body}"


Block = Callable[..., Json]


def _ended_in_a_string(dialect: str, block: Block) -> Iterator[Json]:
    """Yield replies that end in a string: it is complete if a closer follows."""
    written = ("bash", {"command": "[-] one\n[ ] two"})
    opening = '{"name": "bash", "arguments": {"command": "[-] one'
    for how, newline in (("escaped", r"\n"), ("raw", "\n")):
        body = f"{opening}{newline}[ ] two"
        yield block(f"string with {how} newline not closed, nothing behind", body, None, "")
        if dialect != "bare-json":
            closer = BLOCKS[dialect][1].strip()
            yield block(f"string with {how} newline not closed", body, [written], closer)
            yield block(f"string with {how} newline not closed, closer on its line", body, [written], "\n" + closer)
            # The end is unknown, because the closer can be part of the string.
            yield block(f"string with {how} newline not closed, text follows", body, None, closer + " So.")
        for corrupt in CORRUPT[dialect]:
            if corrupt.startswith("</"):
                yield block(f"string with {how} newline not closed, then {corrupt}", body, [written], corrupt)
        cut = f"{opening}{newline}[ ] tw"
        yield block(f"string with {how} newline cut off", cut, None, "", finish="length")
    unquoted = '{"name": "bash", "arguments": {"command": "f() { g() { x }}'
    yield block("a quote or braces are missing", unquoted, None, "")
    yield block("an empty string not closed", '{"name": "bash", "arguments": {"command": "', None, "")
    yield block("a required argument missing", '{"name": "write_file", "arguments": {"path": "a"', None, "")
    yield block("cut behind a comma", '{"name": "bash", "arguments": {"command": "a",', None, "")
    yield block("cut in a key", '{"name": "bash", "arguments": {"command": "a", "time', None, "")
    yield block("cut behind a colon", '{"name": "bash", "arguments": {"command": "a", "timeout":', None, "")
    yield block("cut in an escape", '{"name": "bash", "arguments": {"command": "a\\', None, "")
    unsure = '{"name": "bash", "arguments": {"command": "a", "b", "timeout": "5"}}'
    yield block("a quote that may end the string", unsure, None)
    bare = '{"name": "bash", "arguments": {"command": ls -la}}'
    yield block("a value without quotes", bare, [("bash", {"command": "ls -la"})])
    yield block("an expression for a value", '{"name": "bash", "arguments": {"command": "a" + "b"}}', None)
    yield block("dots for the rest", '{"name": "bash", "arguments": {"command": "a", ...}}', None)


def _several(dialect: str, block: Block) -> Iterator[Json]:
    one, two = dump_call(SHELL), dump_call(READ)
    both = [SHELL, READ]
    for name, gap in (("a newline", "\n"), ("a comma", ",\n"), ("a semicolon", "; "), ("nothing", "")):
        if dialect != "bare-json" or gap == "\n":
            yield block(f"two objects with {name} between", one + gap + two, both)
            yield block(f"two objects with {name} between, a brace missing", one + gap + two[:-1], both)
    if dialect != "bare-json":
        yield block("an array", f"[{one}, {two}]", both)
        yield block("an array that is not closed", f"[{one}, {two}", both)
        yield block("an array of one", f"[{one}]", [SHELL])
    opener, closer = BLOCKS[dialect]
    if dialect == "hermes":
        unclosed = f"{opener}{one}\n{opener}{two}{closer}"
        yield case("the next block follows without a closer", dialect, unclosed, both)
        broken = f"{opener}{one[:-1]}{closer}\n{opener}{two}{closer}"
        yield case("a brace is missing and the next block follows", dialect, broken, both)
        nested = f"{opener}{opener}{one}{closer}{closer}"
        yield case("the tags twice", dialect, nested, [SHELL])
        text = f"I look:\n{opener}{one[:-1]}{closer}\nDone."
        yield case("a brace is missing and text follows", dialect, text, [SHELL], content="I look:\nDone.")


def _cut_json(dialect: str, opener: str, closer: str) -> Iterator[Json]:
    """Yield every beginning of a call."""
    body = dump_call(("bash", {"command": 'a "b"', "timeout": 15}))
    text = opener + body + closer
    for at in range(1, len(text)):
        cut = text[:at]
        written = cut[len(opener) :]
        calls = [("bash", json.loads(body)["arguments"])] if len(written) >= len(body) else find_ended_call(written)
        yield case(f"stopped at {at}", dialect, cut, calls)
        # Without a separate closer a call is complete when its JSON is.
        closed = len(text) if dialect == "hermes" else len(opener + body)
        whole = calls if at >= closed else None
        content = cut[closed:].strip() if whole else cut
        yield case(f"cut off at {at}", dialect, cut, whole, content=content, finish="length")


def find_ended_call(written: str) -> list[tuple[str, Json]] | None:
    """Return the call in JSON that ended before its braces, if it contains everything that the tool requires.

    JSON that ends in a string was cut off: half a command is not the command.
    """
    stack, in_string, skip = [], False, False
    for character in written:
        if skip:
            skip = False
        elif in_string:
            skip, in_string = character == "\\", character != '"'
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
        elif character in "}]":
            stack.pop()
    if in_string:
        return None
    try:
        call = json.loads(written + "".join(reversed(stack)))
        name, arguments = call["name"], call["arguments"]
    except (ValueError, KeyError):
        return None
    complete = set(REQUIRED.get(name, ("?",))) <= set(arguments)
    return [(name, arguments)] if complete else None


# JSON in calls between tags


def json_between_tags(dialect: str) -> Iterator[Json]:
    tags = TAGGED[dialect]

    def call(name: str, body: str, more: str = "") -> str:
        pieces = tags.pieces(name, {})
        at = next(i for i, (role, _) in enumerate(pieces) if role == "closer")
        return join_pieces(pieces[:at]) + "\n" + body + (more or "\n" + join_pieces(pieces[at:]))

    for sample in SAMPLES:
        name, arguments = sample
        body = json.dumps(arguments)
        yield case(f"{name}: JSON", dialect, call(name, body), [sample])
        for fault, broken in faults(sample, body):
            yield case(f"{name}: JSON, {fault}", dialect, call(name, broken), [sample])
        yield case(f"{name}: JSON, brace missing", dialect, call(name, body[:-1]), [sample])
        yield case(f"{name}: JSON, nothing closed", dialect, call(name, body[:-1], " "), [sample])
    written = ("bash", {"command": "[-] one\n[ ] two"})
    for how, newline in (("escaped", r"\n"), ("raw", "\n")):
        body = f'{{"command": "[-] one{newline}[ ] two'
        closers = [tags.closer.format(name="bash")]
        if tags.unwrap:
            corrupt = f"{closers[0][2:5]}{tags.unwrap[2:]}"
            closers += [corrupt, "\n" + corrupt, closers[0] + "\n" + tags.unwrap]
        for closer in closers:
            name = f"JSON string with {how} newline not closed, then {closer}"
            yield case(name, dialect, call("bash", body, closer), [written])
        yield case(f"JSON string with {how} newline cut off", dialect, call("bash", body, " "), None, finish="length")
        name = f"JSON string with {how} newline not closed, text follows"
        yield case(name, dialect, call("bash", body, closers[0] + " So."), None)
    yield case("JSON of two objects", dialect, call("bash", '{"command": "a"}\n{"command": "b"}'), None)


FILES: Mapping[str, Callable[[], Iterator[Json]]] = {
    **{dialect: (lambda name=dialect: in_json(name)) for dialect in BLOCKS},
    **{dialect: (lambda name=dialect: (*derive_tagged(name), *json_between_tags(name))) for dialect in TAGGED},
}


def derive_lines(dialect: str) -> str:
    """Return the JSON Lines of one dialect."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in FILES[dialect]())


if __name__ == "__main__":
    for dialect in FILES:
        (HERE / f"{dialect}.jsonl").write_text(derive_lines(dialect), encoding="utf-8")
