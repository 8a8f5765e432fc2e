"""Calls emitted in pieces add up to calls read whole, in every recorded reply and every cut."""

from __future__ import annotations

import itertools
import json
import os
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from tests.dialects import material, test_malformed
from tests.dialects.material import AGENT, DIALECTS, cases, comes_in_pieces, random_cuts, raw, read
from tests.dialects.test_malformed import Malformed
from vtc.dialects import Reader, ReaderOptions, compile_grammar
from vtc.events import Call, CallPiece, Event, UnreadCall

FILES = sorted(path.stem for path in (material.CASES / "reading").glob("*.yaml"))
MALFORMED = sorted(path.stem for path in (material.CASES / "malformed").glob("*.jsonl"))

type Reading = Callable[[Iterable[str], bool], list[Event]]


def join_calls(events: Iterable[Event]) -> list[tuple[str, str]]:
    """Return names and arguments of the calls, joined from their pieces, without calls that broke off."""
    found: list[tuple[str, str]] = []
    name = arguments = ""
    for event in events:
        if isinstance(event, CallPiece):
            name, arguments = (event.name, event.arguments) if event.name else (name, arguments + event.arguments)
        elif isinstance(event, Call) and event.rest is not None:
            assert event.call.name == name
            found.append((name, arguments + event.rest))
        elif isinstance(event, Call):
            found.append((event.call.name, event.call.arguments))
    return found


def load_malformed(file: str) -> list[Malformed]:
    lines = (material.CASES / "malformed" / f"{file}.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Malformed) for line in lines]


def check(text: str, reading: Reading) -> None:
    whole = reading([text], False)
    calls = [(event.call.name, event.call.arguments) for event in whole if isinstance(event, Call)]
    for chunks in (list(text), [text], *random_cuts(text, 2)):
        events = reading(chunks, True)
        assert raw(events) == text
        assert join_calls(events) == calls
        call_events = [event for event in events if isinstance(event, CallPiece | Call)]
        broken = [
            event
            for event in events
            if isinstance(event, UnreadCall) and "a part of it was already sent" in event.reason
        ]
        begun = sum(isinstance(event, CallPiece) and bool(event.name) for event in call_events)
        assert begun == len(broken) + sum(isinstance(event, Call) and event.rest is not None for event in call_events)


LOST_END = {
    "glm-4.7": (
        "<tool_call>bash<arg_key>command</arg_key>",
        "</tool_call><tool_call>bash<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
    ),
    "hermes": (
        '<tool_call>\n{"name": "bash", "arguments": {"command": "cd',
        '</tool_call>\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
    ),
    "qwen3-coder": (
        "<tool_call>\n<function=bash>\n<parameter=command>\ncd",
        "\n</function>\n</tool_call>\n<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n"
        "</tool_call>",
    ),
    "invoke": (
        '<invoke name="bash">\n<parameter name="command">cd',
        '\n</invoke>\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n</invoke>',
    ),
}
"""Calls without a closing tag, which may swallow the next one: the certain part, and the rest."""


@pytest.mark.rest
@pytest.mark.parametrize("dialect", LOST_END)
def test_piece_of_a_call_without_an_end_does_not_include_later_text(dialect: str) -> None:
    """Text that is not certainly part of the call becomes text or the next call, wherever the reply is cut."""
    certain, rest = LOST_END[dialect]
    text = certain + rest
    for at in range(len(text)):
        reader = Reader(compile_grammar((DIALECTS[dialect],)), AGENT, ReaderOptions(incremental=True))
        events = [*reader.feed(text[:at]), *reader.feed(text[at:]), *reader.finish()]
        assert raw(events) == text
        emitted = raw(itertools.takewhile(lambda event: isinstance(event, CallPiece), events))
        assert certain.startswith(emitted), at


@pytest.mark.parametrize("file", FILES)
def test_recorded_replies_have_the_same_calls_in_pieces(file: str) -> None:
    for case in cases(file):
        grammar = compile_grammar(tuple(DIALECTS[name] for name in case.dialects), case.tags, case.markers, case.answer)

        def reading(chunks: Iterable[str], incremental: bool) -> list[Event]:
            tools = case.resolve_tools(material.TOOLS)  # noqa: B023 - it is called within the loop
            options = ReaderOptions(**case.reader, incremental=incremental)  # noqa: B023 - likewise
            reader = Reader(grammar, tools, options)  # noqa: B023 - likewise
            events = [event for chunk in chunks for event in reader.feed(chunk)]
            return [*events, *reader.finish(complete=case.finish == "complete")]  # noqa: B023 - likewise

        check(case.text, reading)


@pytest.mark.parametrize("file", MALFORMED)
def test_malformed_replies_have_the_same_calls_in_pieces(file: str, some: Any) -> None:
    for case in some(load_malformed(file), 6):

        def reading(chunks: Iterable[str], incremental: bool, case: Malformed = case) -> list[Event]:
            dialects = [DIALECTS[name] for name in case.dialects]
            tools, complete = test_malformed.TOOLS[case.tools], case.finish == "stop"
            return read(chunks, dialects, tools, complete=complete, incremental=incremental)

        check(case.text, reading)


@pytest.mark.parametrize(
    ("dialect", "text", "pieces"),
    [
        (
            "qwen3-coder",
            "<function=write_file>\n<parameter=path>\na.py\n</parameter>\n<parameter=content>\nx </b> y\nz\n",
            ["", '{"path":"', "a.py", '","content":"', "x", " </b> y", "\\nz"],
        ),
        (
            "hermes",
            '<tool_call>{"name": "write_file", "arguments": {"path": "a.py", "content": "x\\ny</tool_call> and',
            ["", '{"path":"', "a.py", '","content":"', "x", "\\ny"],
        ),
        ("hermes", '<tool_call>{"arguments": {"path": "a.py', []),  # the tool is unknown
        ("hermes", '<tool_call>{"name": "no_tool", "arguments": {"path": "a.py', []),
        ("hermes", '<tool_call>{"name": "write_file", "arguments": {"file": "a.py', []),  # another key
        ("hermes", '<tool_call>{"name": "write_file", "arguments": "{\\"path', []),
        ("hermes", 'see <tool_call>{"name": "write_file", "arguments": {"path": "a.py', []),  # may be quoted
        ("tag", "<write_file>\n<path>a.py</path>\n<content>x\n", []),
        ("bare-json", '{"name": "write_file", "arguments": {"path": "a.py', []),
    ],
)
def test_decided_text_is_emitted(dialect: str, text: str, pieces: list[str]) -> None:
    reader = Reader(compile_grammar((DIALECTS[dialect],)), AGENT, ReaderOptions(incremental=True))
    events = [event for chunk in text for event in reader.feed(chunk)]
    arguments = [event.arguments for event in events if isinstance(event, CallPiece)]
    assert "".join(arguments) == "".join(pieces)
    assert bool(arguments) is bool(pieces)


def test_the_page_about_profiles_lists_the_dialects() -> None:
    page = material.ROOT / "docs" / "profiles.md"
    named = [f"`{name}`" for name, dialect in DIALECTS.items() if comes_in_pieces(dialect)]
    sentence = textwrap.fill(f"In pieces come calls of {', '.join(named)}.", 130, break_on_hyphens=False)
    text = page.read_text("utf-8")
    renewed = re.sub(r"(?s)(<!-- in pieces -->\n).*?(<!-- end -->)", lambda at: f"{at[1]}{sentence}\n{at[2]}", text)
    if os.environ.get("VTC_RENEW_DOCS"):
        page.write_text(renewed, "utf-8")
    assert renewed == text or os.environ.get("VTC_RENEW_DOCS")


def test_value_with_broken_json_is_repaired() -> None:
    text = '<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "say "hi" now"}}</tool_call>'
    events = read(list(text), [DIALECTS["hermes"]], incremental=True)
    ((name, arguments),) = join_calls(events)
    assert name == "write_file"
    assert json.loads(arguments) == {"path": "a", "content": 'say "hi" now'}


def test_arguments_that_a_repair_writes_with_other_spaces_are_continued() -> None:
    arguments: dict[str, Any] = {"command": "ls -la", "timeout": "5"}
    text = f"<tool_call>{json.dumps({'name': 'bash', 'arguments': arguments})}</tool_call>"
    events = read(list(text), [DIALECTS["hermes"]], incremental=True)
    assert [event.arguments for event in events if isinstance(event, CallPiece)][:2] == ["", '{"command":"']
    ((_, joined),) = join_calls(events)
    assert json.loads(joined) == {"command": "ls -la", "timeout": 5}
