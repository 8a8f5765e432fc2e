"""The side-by-side comparison of two texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vtc.reporting import pair_lines
from vtc.reporting.picture import MAX_EXACT_LINES, FoldedText, pair_passages
from vtc.reporting.transcript import TOOLS_TITLE, TranscriptBlock

LINES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=12)


def test_equal_lines_are_aligned_and_others_marked() -> None:
    assert pair_lines(["I look.", "<read>", "</read>", "end"], ["I look.", "-> read", "end"]) == [
        ("I look.", "I look.", False),
        ("<read>", "-> read", True),
        ("</read>", None, True),
        ("end", "end", False),
    ]


@given(LINES, LINES)
def test_only_differences_are_marked_and_nothing_is_lost(left: list[str], right: list[str]) -> None:
    found = pair_lines(left, right)
    assert [row.left for row in found if row.left] == left
    assert [row.right for row in found if row.right] == right
    assert all(row.left == row.right for row in found if not row.changed)


def test_a_long_text_takes_no_seconds_for_its_common_lines() -> None:
    left = ["same"] * MAX_EXACT_LINES + ["x"]
    assert [row.left for row in pair_lines(left, left)] == left


def make_block(title: str, lines: int) -> TranscriptBlock:
    return TranscriptBlock(title, "\n".join(f"{title} {number}" for number in range(lines)))


def list_all_lines(text: FoldedText | None) -> list[str]:
    return [line for part in (text.shown, text.rest) for line in part.split("\n") if part] if text else []


def test_common_lines_appear_once_and_long_runs_are_folded() -> None:
    prompt, question = make_block("system", 300), TranscriptBlock("user", "What does note.txt say?")
    received = [prompt, question, TranscriptBlock("assistant", "<call>")]
    first, second, title, change = pair_passages(
        received, [prompt, question, TranscriptBlock("assistant", "-> call")], 24, 4
    )
    assert first.left is not None
    assert not first.changed
    assert first.left.shown.split("\n") == ["[system]", *(f"  system {number}" for number in range(4))]
    assert first.left.label == "296 more lines"
    assert list_all_lines(first.left) == str(prompt).split("\n")
    assert second == (False, FoldedText("[user]\n  What does note.txt say?"), None)
    assert title == (False, FoldedText("[assistant]"), None)
    assert change == (True, FoldedText("  <call>"), FoldedText("  -> call"))


def test_of_many_messages_that_stayed_the_same_the_first_and_the_last_are_shown() -> None:
    talk = [TranscriptBlock("user", f"message {number}") for number in range(40)]
    shown = [passage.left for passage in pair_passages(talk, talk, 24, 4)]
    assert [text.shown for text in shown if text and text.shown] == [str(one) for one in (*talk[:3], *talk[-3:])]
    assert [text.label for text in shown if text and text.rest] == ["34 more messages"]


def test_tools_are_folded_on_whichever_side_they_are() -> None:
    tools, prompt = make_block(TOOLS_TITLE, 16), TranscriptBlock("system", "# Tools")
    for received, sent in (([tools], [tools]), ([tools], [prompt]), ([prompt], [tools])):
        texts = [text for passage in pair_passages(received, sent, 24, 4) for text in passage[1:] if text]
        assert [(text.shown, text.label) for text in texts if text.rest] == [("[tools]", "16 more lines")]


BLOCKS = st.lists(
    st.builds(make_block, st.sampled_from(["system", "user", TOOLS_TITLE]), st.sampled_from([0, 1, 3, 40])), max_size=12
)


@given(BLOCKS, BLOCKS)
def test_no_line_of_a_conversation_is_lost(received: list[TranscriptBlock], sent: list[TranscriptBlock]) -> None:
    for side, blocks in enumerate((received, sent)):
        lines: list[str] = []
        for passage in pair_passages(received, sent, 6, 2):
            lines += list_all_lines(passage.left if not passage.changed else passage[1 + side])
        assert sorted(filter(None, lines)) == sorted(line for one in blocks for line in str(one).split("\n"))
