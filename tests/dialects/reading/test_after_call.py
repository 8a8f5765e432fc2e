"""Text after a call: further closers, sections that must be the whole reply, tools that were not offered."""

from __future__ import annotations

import pytest

from tests.dialects import material
from tests.dialects.material import AGENT, DIALECTS, merge_events
from vtc.dialects import Reader, ReaderOptions, compile_grammar
from vtc.dialects.writing import write_calls
from vtc.events import Call, Event, Markup, Text, ToolCall, UnreadCall

JSON = '{"name": "read_file", "arguments": {"path": "a"}}'
INVOKE = '<invoke name="%s"><parameter name="path">a</parameter></invoke>'


def read(text: str, dialect: str, **options: object) -> list[Event]:
    one = Reader(compile_grammar((DIALECTS[dialect],)), AGENT, ReaderOptions(**options))  # type: ignore[arg-type]
    return [event for piece in text for event in one.feed(piece)] + one.finish()


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


def test_a_section_is_closed_behind_its_last_call() -> None:
    events = read(f"<function_calls>{INVOKE % 'read_file'}</function_calls>Done.", "invoke")
    assert kinds(events) == ["Call", "Markup", *["Text"] * (len(events) - 2)]
    assert "".join(event.raw for event in events if isinstance(event, Text)) == "Done."


@pytest.mark.parametrize(("behind", "found"), [("", 1), ("\n", 1), ("\nno", 0)])
def test_a_code_block_counts_only_as_the_whole_reply(behind: str, found: int) -> None:
    text = f"```json\n{JSON}\n```{behind}"
    events = read(text, "bare-json")
    assert kinds(events).count("Call") == found
    assert "".join(event.raw for event in events) == text
    reasons = [event.reason for event in events if isinstance(event, UnreadCall)]
    assert reasons == [] if found else reasons == ["its code block is not the whole reply"]


@pytest.mark.parametrize(
    "dialect", [one.name for one in DIALECTS.values() if one.section_anchor == "message" and one.name != "bare-json"]
)
@pytest.mark.parametrize("behind", ["", '"', " \n", "\nno"])
def test_any_white_space_behind_a_call_that_must_be_the_whole_reply(dialect: str, behind: str) -> None:
    """A run longer than one scan decides nothing, because text may follow."""
    call = ToolCall("read_file", '{"path":"a"}')
    text = write_calls([call], DIALECTS[dialect], AGENT) + " " * 300 + behind
    whole = merge_events(material.read([text], [DIALECTS[dialect]]))
    assert merge_events(read(text, dialect)) == whole
    assert len([event for event in whole[0] if event[0] is Call]) == (not behind.strip())


def test_a_call_of_a_tool_that_was_not_offered() -> None:
    text = INVOKE % "remove"
    (text_event,) = (event for event in read(text, "invoke") if isinstance(event, Text))
    assert text_event.raw == text
    assert [event.call.name for event in read(text, "invoke", unknown_tools="allow") if isinstance(event, Call)] == [
        "remove"
    ]
    dropped = read(text, "invoke", unknown_tools="drop")
    assert [type(event) for event in dropped] == [Markup, UnreadCall]


def test_refusal_quotes_the_beginning_of_the_unread_call() -> None:
    text = f"<tool_call>\n{JSON[:-3]}" + "x" * 500
    (refusal,) = (event for event in read(text, "hermes", lenient=False) if isinstance(event, UnreadCall))
    assert refusal.excerpt == text[:200]
