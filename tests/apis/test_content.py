"""The content of a message: its text, and the parts that stay unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from vtc.apis import content
from vtc.events import Opaque

IMAGE = {"type": "image"}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cch=1;"}
NEW = {"type": "text"}


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (None, ()),
        ("", ()),
        ("a", ("a",)),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, IMAGE], ("a", "b", Opaque(IMAGE))),
        (["a", {"type": "text"}, BILLING], (Opaque("a"), Opaque({"type": "text"}), Opaque(BILLING))),
    ],
)
def test_content_is_read_as_text_and_opaque_parts(value: Any, parts: tuple[Any, ...]) -> None:
    assert content.read(value) == parts


@pytest.mark.parametrize("value", [5, [5], [None]])
def test_content_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        content.read(value)


def test_unchanged_part_keeps_its_fields_and_a_new_one_has_those_of_its_kind() -> None:
    first, same = ({"type": "text", "text": "a", "cache_control": n} for n in range(2))
    assert content.render_parts(["b", "a", Opaque(IMAGE), "a", "a"], [first, IMAGE, same], NEW) == [
        {"type": "text", "text": "b"},
        first,
        IMAGE,
        same,
        {"type": "text", "text": "a"},
    ]
    assert content.render_parts(["a"], "a", NEW) == [{"type": "text", "text": "a"}]


def test_content_that_was_a_text_is_written_as_one_unless_it_holds_something_else() -> None:
    assert content.render_content(["a", "b"], "a", NEW) == content.render_content(["a", "b"], None, NEW) == "ab"
    assert content.render_content(["a"], [], NEW) == [{"type": "text", "text": "a"}]
    assert content.render_content([Opaque(IMAGE)], "a", NEW) == [IMAGE]
