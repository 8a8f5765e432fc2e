"""Text outside of calls: it is emitted, code is no call, and white space next to calls differs from that in text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.material import AGENT, DIALECTS, merge_events, raw
from vtc.dialects import Reader, ReaderOptions, compile_grammar
from vtc.events import Call, Event, Markup, Reasoning, Text

CALL = "<read_file><path>a</path></read_file>"


def reader(**options: object) -> Reader:
    grammar = compile_grammar((DIALECTS["tag"],), (("<think>", "</think>"),), ("<|im_end|>",))
    return Reader(grammar, AGENT, ReaderOptions(**options))  # type: ignore[arg-type]


def read(text: str, **options: object) -> list[Event]:
    one = reader(**options)
    return [event for piece in text for event in one.feed(piece)] + one.finish()


def join_raw(events: list[Event], kind: type = Text) -> str:
    return "".join(event.raw for event in events if isinstance(event, kind))


def calls(events: list[Event]) -> int:
    return sum(isinstance(event, Call) for event in events)


@pytest.mark.parametrize("text", ["Hello", "a > b", "1. <b>bold</b>", "`code`", "x\n\n* y"])
def test_text_that_cannot_be_markup_is_emitted_at_once(text: str) -> None:
    one = reader()
    assert "".join(event.raw for event in one.feed(text)) == text.rstrip("`")
    assert join_raw(one.finish()) == text[len(text.rstrip("`")) :]


def test_white_space_waits_and_is_dropped_before_a_call() -> None:
    one = reader()
    assert [event.raw for event in one.feed("Hello \n")] == ["Hello"]
    assert [event.raw for event in one.feed("you")] == [" \nyou"]
    events = read(f"Hello \n{CALL}\n\nDone.\n")
    assert join_raw(events) == "Hello\n\nDone.\n"
    assert calls(events) == 1


def test_white_space_before_the_first_text_behind_a_call_is_dropped() -> None:
    assert join_raw(read(f"{CALL}\n\nDone.")) == "Done."


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"```\n{CALL}\n```\n", 0),
        (f"````\n```\n{CALL}\n```\n````\n", 0),
        (f"~~~xml\n{CALL}\n~~~", 0),
        (f"```\ncode\n```\n{CALL}", 1),
        (f"```not a fence``` {CALL}", 1),
        (f"Use `{CALL}` so.", 0),
        (f"Use ``a ` {CALL}`` so.", 0),
        (f"A lone ` here\n\n{CALL}", 1),
        (f"A lone ` here {CALL}", 1),
        (f"A lone ` here {CALL}\n\nand ` there", 1),
    ],
)
def test_a_call_in_code_is_an_example(text: str, found: int) -> None:
    events = read(text)
    assert calls(events) == found
    assert "".join(event.raw for event in events) == text


def test_reasoning_is_no_speech() -> None:
    text = f"<think>\nI could {CALL}</think>\n\nHello {CALL}"
    events = read(text)
    assert join_raw(events, Reasoning) == f"\nI could {CALL}"
    assert join_raw(events) == "Hello"
    assert calls(events) == 1
    assert join_raw(read(text, think="keep")) == f"<think>\nI could {CALL}</think>\n\nHello"
    assert join_raw(read(text, think="drop"), Reasoning) == ""
    assert join_raw(read("so</think>Hi", begins="reasoning"), Reasoning) == "so"


def test_reply_does_not_begin_in_reasoning_if_that_was_received_separately() -> None:
    one = reader(begins="reasoning")
    one.record_reasoning()
    events = [*one.feed(f"Hi. {CALL}"), *one.finish()]
    assert (join_raw(events), join_raw(events, Reasoning), calls(events)) == ("Hi.", "", 1)


def test_a_marker_is_taken_out() -> None:
    events = read("Hello<|im_end|>")
    assert (join_raw(events), join_raw(events, Markup)) == ("Hello", "<|im_end|>")


# A whole reply that may begin in reasoning


@pytest.mark.parametrize("think", ["reasoning_content", "opened", "keep", "drop"])
@pytest.mark.parametrize("thoughts", ["I could", f"I could\n{CALL}\n", f"{CALL}", f"I could {CALL} or <bash> "])
def test_a_lone_closing_tag_shows_that_a_whole_reply_began_in_reasoning(thoughts: str, think: Any) -> None:
    events = read(f"{thoughts}</think>\n\nHello\n{CALL}", begins="either", think=think)
    assert calls(events) == 1
    assert raw(events) == f"{thoughts}</think>\n\nHello\n{CALL}"
    assert join_raw(events, Reasoning) == (thoughts if think == "reasoning_content" else "")
    assert join_raw(events) == (f"{thoughts}</think>\n\nHello" if think in ("opened", "keep") else "Hello")


@pytest.mark.parametrize(
    "text",
    [
        f"Hello {CALL}",
        f"{CALL}\n\nThe tag `</think>` ends it.",
        f"{CALL}\n```\n</think>\n```\n",
        CALL.replace(">a<", ">a</think><"),
        f"<think>so</think>{CALL}",
        f"Hello\n<think>\nor so</think>\n{CALL}",
        f"</think>{CALL}",
    ],
)
def test_without_a_lone_closing_tag_a_reply_began_as_text(text: str) -> None:
    events = read(text, begins="either")
    assert calls(events) == 1
    assert merge_events(events) == merge_events(read(text))


def test_possible_reasoning_is_not_emitted_before_its_end() -> None:
    one = reader(begins="either")
    assert [event for piece in f"Hello.\n\n{CALL}\n" for event in one.feed(piece)] == []
    assert one.plain_rule is None
    events = one.finish()
    assert (join_raw(events), calls(events)) == ("Hello.", 1)


@pytest.mark.parametrize("think", ["reasoning_content", "opened", "keep", "drop"])
def test_call_at_the_end_of_such_reasoning_counts_if_the_reply_has_no_other_text(think: Any) -> None:
    for text in (f"{CALL}</think>", f"So {CALL}\n{CALL}\n</think>\n"):
        events = read(text, begins="either", think=think)
        assert calls(events) == text.count(CALL)
        assert raw(events) == text
        one = reader(begins="either", think=think)
        assert calls([*one.feed(text), *one.finish(complete=False)]) == 0
    for text in (f"{CALL} or so</think>", f"{CALL}</think>Hello"):
        assert calls(read(text, begins="either", think=think)) == 0
