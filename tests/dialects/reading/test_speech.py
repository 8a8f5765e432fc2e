"""The calls that reasoning ends with, and what becomes of them."""

from __future__ import annotations

import pytest

from vtc.dialects.reading.speech import Speech, note_last_calls, out_of_reasoning
from vtc.events import Call, Event, Markup, Text, ToolCall

LIST, READ = (Call(f"<{name}/>", ToolCall(name, "{}"), "tag", ("missing-closer",)) for name in ("list", "read"))


@pytest.mark.parametrize(
    ("events", "last"),
    [
        ([], []),
        ([LIST, READ], [LIST, READ]),
        ([LIST, Text("\n"), Markup("</x>"), READ], [LIST, READ]),
        ([LIST, Text(" or "), READ], [READ]),
        ([LIST, Text("is an example")], []),
    ],
    ids=["nothing", "calls", "white space and markup", "text between", "text behind"],
)
def test_calls_before_a_text_were_examples(events: list[Event], last: list[Call]) -> None:
    at_once: list[Call] = []
    note_last_calls(at_once, events)
    one_by_one: list[Call] = []
    for event in events:
        note_last_calls(one_by_one, [event])
    assert at_once == one_by_one == last


def test_a_call_out_of_reasoning_leaves_its_text_there_and_says_where_it_stood() -> None:
    (made,) = out_of_reasoning([LIST])
    assert (made.raw, made.call, made.repairs) == ("", LIST.call, ("missing-closer", "call-in-reasoning"))


def test_what_was_taken_is_the_takers_own() -> None:
    speech = Speech()
    nothing = speech.take()
    nothing.append(LIST)
    assert speech.take() == []
    speech.say("a")
    assert speech.take() == [Text("a")]
