"""Check a dialect with a chat template: it must read the calls that the template writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from vtc.cli.templates.files import load_template
from vtc.cli.templates.rendering import render_template
from vtc.deriving import KnownCall, KnownReply, TemplateReplies, make_tool, serialize_call, write_replies
from vtc.dialects import Description, Reader, compile_grammar
from vtc.events import Call, UnreadCall

_SIZES = {"type": "array", "items": {"type": "integer"}}
TOOLS = (
    make_tool("read_file", ["path"], path={"type": "string"}, limit={"type": "integer"}),
    make_tool("write_note", ["title", "body"], title={"type": "string"}, body={"type": "string"}),
    make_tool(
        "search",
        fresh={"type": "boolean"},
        score={"type": "number"},
        before={"anyOf": [{"type": "string"}, {"type": "null"}]},
        tags={"type": "array", "items": {"type": "string"}},
        where={
            "type": "object",
            "properties": {"owner": {"type": "string"}, "size": _SIZES},
            "additionalProperties": {},
        },
    ),
)


def _read(path: str, **more: Any) -> KnownCall:
    return KnownCall("read_file", {"path": path, **more}, "qwcallxxx")


def _write(title: str, body: str) -> KnownCall:
    return KnownCall("write_note", {"title": title, "body": body}, "qwcallyyy")


def _search(**arguments: Any) -> KnownCall:
    return KnownCall("search", arguments, "qwcallzzz")


CASES: Mapping[str, KnownReply] = {
    "one call": KnownReply([_read("b c.txt")]),
    "a number": KnownReply([_read("src/q.md", limit=3)]),
    "line breaks": KnownReply([_write("My day", "line one\nline two")]),
    "quotes and braces": KnownReply([_write('He said "no"', "x < y && {z: [1]}")]),
    "markup": KnownReply([_write("</x>", "it's <b>bold</b>\n\n- item")]),
    "code": KnownReply([_write("f.py", 'def f():\n    return {"a": 1}\n')]),
    "two calls": KnownReply([_read("q.md", limit=3), _write("T", "1, 2")]),
    "three calls": KnownReply([_read("a"), _read("b", limit=12), _search(fresh=True)]),
    "no arguments": KnownReply([_search()]),
    "boolean and number": KnownReply([_search(fresh=False, score=0.5)]),
    "null": KnownReply([_search(before=None, fresh=True)]),
    "list and object": KnownReply([_search(tags=["x y", "it's"], where={"owner": "me", "size": [1, 2]})]),
    "text before": KnownReply([_read("c.py")], text="I look at the file."),
}
"""Replies with known calls, by their distinctive content."""

type CaseOutcome = Literal["exact", "text", "different", "not written"]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case: `text` if no call was read."""

    name: str
    outcome: CaseOutcome
    text: str = ""
    """The reply as the template writes it."""
    expected: Sequence[str] = ()
    found: Sequence[str] = ()
    reason: str = ""
    """The reason why a call was not read, or why the template does not write the reply."""


def check_file(path: Path, dialects: Sequence[Description]) -> list[CaseResult]:
    """Check dialects with the chat template in a file. Raises `RenderError` or `click.ClickException`."""
    return check_replies(write_cases(load_template(path)), dialects)


def write_cases(source: str) -> TemplateReplies:
    """Write the replies of all cases with a template. Raises `RenderError`."""
    return write_replies(partial(render_template, source), TOOLS, CASES)


def check_replies(written: TemplateReplies, dialects: Sequence[Description]) -> list[CaseResult]:
    """Read the replies that a template wrote, and compare their calls."""
    return [*_check_replies(written, dialects)]


def _check_replies(written: TemplateReplies, dialects: Sequence[Description]) -> Iterator[CaseResult]:
    grammar = compile_grammar(tuple(dialects))
    for name, reply in CASES.items():
        if name in written.problems:
            yield CaseResult(name, "not written", reason=written.problems[name])
            continue
        text = written.texts[name]
        events = Reader(grammar, {tool.name: tool for tool in TOOLS}).read_whole(text)
        calls = [event for event in events if isinstance(event, Call)]
        found = [serialize_call(call.name, json.loads(call.arguments)) for call in calls]
        expected = [serialize_call(call.name, call.arguments) for call in reply.calls]
        reason = next((event.reason for event in events if isinstance(event, UnreadCall)), "")
        outcome: CaseOutcome = "exact" if found == expected else "different" if found else "text"
        yield CaseResult(name, outcome, text, expected, found, reason)
