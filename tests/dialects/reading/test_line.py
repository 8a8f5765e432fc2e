"""Text before a call on its line."""

from __future__ import annotations

import pytest

from tests.dialects.material import DIALECTS, calls, merge_events, raw, read
from tests.rules import QUOTATION_MARKS

CALL = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'


def is_carried_out(before: str, after: str = "", call: str = CALL) -> bool:
    """Return True if the call is delivered, however the reply is cut; by default it is in one line."""
    text = f"{before}{call}{after}"
    events = read([text], [DIALECTS["hermes"]])
    assert merge_events(read([*text], [DIALECTS["hermes"]])) == merge_events(events)
    assert raw(events) == text
    return bool(calls(events))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "+",
            "+ ",
            "a\n-",
            "-- ",
            "- - ",
            "\n  ## ",
            "12: ",
            "a\n 12 | ",
            "12→",
            "12\t",
            "12:+ ",
            "x.py:12:",
            "x.py:12:5: ",
        ),
        *(
            "10:11 ",
            "10:11:12.345 ",
            "[10:11:12] ",
            "2025-01-02 ",
            "2025-01-02T10:11:12Z ",
            "a\n2025-01-02 10:11:12,1 ",
            "Nov 22 10:00:01 ",
            "Nov  2 10:00:01 ",
            "Sun Nov 22 10:00:01 2026 ",
            "Sun, 22 Nov 2026 10:00:01 +0000 ",
            "2026/11/22 10:00:01 ",
            "22.11.2026 10:00:01 ",
            "11/22/26 10:00 ",
            "[22/Nov/2026:10:00:01 +0000] ",
            "20261122T100001Z ",
            "(10:00:01) ",
        ),
    ],
)
def test_a_line_of_a_file_is_known_by_its_beginning(text: str) -> None:
    assert not is_carried_out(text)
    assert not is_carried_out(text, "\nSo.")


@pytest.mark.parametrize("text", ["- ", "Look:\n- ", "  - "])
def test_single_line_with_a_bullet_is_no_list_item(text: str) -> None:
    assert is_carried_out(text)
    assert is_carried_out(text, ".\n")
    assert not is_carried_out(text, "\nSo.")
    assert not is_carried_out(text, "\n- so")
    assert not is_carried_out(f"+ a\nb\n{text}")


LONG = "Let me look at the files of the project first, and then go on"


@pytest.mark.parametrize("text", [f"{LONG}:\n- ", f"{LONG}: \n\n  - ", f"{LONG}：\n- ", f"- {LONG}\n\n{LONG}:\n- "])
def test_an_item_of_a_list_is_none_after_a_line_of_any_length_that_leads_to_it(text: str) -> None:
    assert is_carried_out(text)
    assert not is_carried_out(text, "\nSo.")
    assert not is_carried_out(text, "\n+ so")
    assert not is_carried_out(f"{text}so\n- ")


@pytest.mark.parametrize(
    "text", [f"{LONG}.\n- ", f"- {LONG}\n- ", f"+ {LONG}\n- ", f"{LONG}:\n+ ", f"{LONG}:\n- a\nb:\n- "]
)
def test_line_with_a_bullet_is_a_list_item_if_earlier_lines_may_be_others(text: str) -> None:
    assert not is_carried_out(text)


@pytest.mark.parametrize(
    "text",
    [
        "Look: ",
        "1. ",
        "* ",
        "a - ",
        "C#",
        "12 apples: ",
        "at 10:11 ",
        "1 + ",
        "x->",
        "a\n12 ",
        "INFO ",
        "1.2 ",
        "",
    ],
)
def test_prose_is_none(text: str) -> None:
    assert is_carried_out(text)
    assert is_carried_out(text, "\nSo.")


NO_WORDS = ("", "* ", "1. ", "a) ", "(", "</p>", "<|im_start|>")
AMID = ("It says ", "a,", "It (so) ", "e - ", "so</p>", 'x. "so" ', "1.5 ", "See 1) a ")
CLAUSES = ("Look: ", "**So:** ", "So：", "so:</b> <|x|>")
SENTENCES = ("I look. ", "Well!", "*Now?* ", "(So…) ", "好。", '"So." ', "Step 1. ", "So.</p> [TOOL_CALLS]")
BEGIN = (" Then", " It", ". Ä", "</b> Ä", " 好", "<|x|>. 好", " Ж")
GO_ON = (" then", ", so", " ß", " ж", " “so")
OTHERS = (" 2", " (Then", " $", " *So*", " - Then")


@pytest.mark.parametrize("before", [*NO_WORDS[1:], *AMID, *CLAUSES, *SENTENCES])
def test_words_of_one_sentence_on_both_sides_quote_a_call(before: str) -> None:
    """A call in one line is quoted by any words except two sentences, a call in several lines only by one sentence."""
    over_lines = CALL.replace("{", "\n{", 1)
    for after in (*BEGIN, *GO_ON, *OTHERS, ".", "</p>"):
        is_end, alone = after in (".", "</p>"), f"{before}{after}"
        assert is_carried_out(before, after) == (is_end or (before in SENTENCES and after in BEGIN)), alone
        assert is_carried_out(before, after, over_lines) == (before not in AMID or after not in GO_ON), alone


@pytest.mark.parametrize(
    ("before", "lines", "made"),
    [
        ("I look. ", "one", ("", ".", " Then")),
        ("Look: ", "one", ("", ".")),
        ("It says ", "one", ("", ".")),
        ("I look. ", "several", ("", ".", " Then", " then")),
        ("Look: ", "several", ("", ".", " Then", " then")),
        ("It says ", "several", ("", ".", " Then")),
    ],
)
def test_calls_of_a_line_share_the_words_before_the_first(before: str, lines: str, made: tuple[str, ...]) -> None:
    call = CALL if lines == "one" else CALL.replace("{", "\n{", 1)
    for after in ("", ".", " Then", " then"):
        assert is_carried_out(before, after, f"{call} {CALL}") == (after in made), after


@pytest.mark.parametrize("mark", QUOTATION_MARKS)
def test_a_quotation_mark_directly_before_is_known_with_its_end(mark: str) -> None:
    assert not is_carried_out(f"said {mark}", f"{QUOTATION_MARKS[mark]}.")
    assert is_carried_out(f"said {mark}so{QUOTATION_MARKS[mark]} and ")


@pytest.mark.parametrize(
    "text", ["#" * 100 + "a", "1:" * 60 + "x", "10:10:" * 20 + "x", "+ " * 60 + "x", "1/1/11 " * 9 + "x"]
)
def test_line_with_many_possible_beginnings_is_given_up(text: str) -> None:
    assert is_carried_out(text)
