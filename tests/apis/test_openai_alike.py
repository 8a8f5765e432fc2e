"""What is learned from a frame about those like it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from tests.apis.toy import Toy
from vtc.apis.openai_alike import OTHERS, Alike
from vtc.apis.openai_choice import Choice


def learned(raw: bytes, text: str, *, role_sent: bool = True, alike: Alike | None = None) -> Alike:
    alike = alike or Alike()
    alike.learn(Choice(0, Toy(), role_sent=role_sent), raw, raw[6:-2], text)
    return alike


def test_others_like_it_are_understood_and_made() -> None:
    one, other = chat.said("one", "an other")
    alike = learned(one, "one")
    assert alike.text(other) == "an other"
    assert alike.with_text(other, "x") == chat.said("x")[0]


@pytest.mark.parametrize("other", [chat.ROLE, chat.STOP, chat.DONE, chat.said("x", index=1)[0]])
def test_frames_that_are_not_like_it_are_not(other: bytes) -> None:
    alike = learned(chat.said("one")[0], "one")
    assert alike.text(other) is None
    assert alike.with_text(other, "x") is None


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (chat.chunk({"content": "one", "reasoning": "hm"}), "one"),
        (chat.chunk({"content": "one"}, usage=chat.USAGE), "one"),
        (chat.chunk({"content": "é"}), "é"),  # written as an escape
        (chat.chunk({"content": chat.MODEL}, user=chat.MODEL), chat.MODEL),
    ],
)
def test_what_nothing_is_learned_from(raw: bytes, text: str) -> None:
    """Frames that say something else, too, and those in which the place of the text cannot be told."""
    assert learned(raw, text).text(raw) is None


def test_a_role_is_nothing_else_once_it_was_sent() -> None:
    raw = chat.chunk({"role": "assistant", "content": "one"})
    assert learned(raw, "one", role_sent=False).text(raw) is None
    assert learned(raw, "one").text(raw) == "one"


def test_where_all_frames_differ_few_are_learned_from() -> None:
    frames = [chat.chunk({"content": "one"}, created=second) for second in range(OTHERS + 2)]
    alike = learned(frames[0], "one")
    known: list[Any] = []
    for raw in frames[1:]:
        known.append(alike.text(raw))
        learned(raw, "one", alike=alike)
    assert known == [None] * (OTHERS + 1)
    assert alike.text(frames[-1]) == "one"


def test_no_space_need_stand_behind_the_colon() -> None:
    raw = chat.said("one")[0].replace(b"data: ", b"data:")
    alike = Alike()
    alike.learn(Choice(0, Toy(), role_sent=True), raw, raw[5:-2], "one")
    assert alike.text(raw) == "one"
