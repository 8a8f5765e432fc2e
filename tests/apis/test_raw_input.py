"""The raw input of a custom tool, decoded from the JSON of a call's arguments in any cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtc.apis.calls import RAW_INPUT_SCHEMA, RawInput, make_custom_tool
from vtc.events import Tool


def feed_pieces(*pieces: str) -> tuple[str, str]:
    """Return the input that was sent at once, and the rest at the end."""
    raw, output = RawInput(), ""
    for piece in pieces:
        raw, more = raw.feed(piece)
        output += more
    return output, raw.rest


@given(st.text(), st.integers(1, 7), st.booleans())
def test_input_is_sent_as_it_arrives_in_any_cut(text: str, size: int, plain: bool) -> None:
    written = json.dumps({"input": text}, ensure_ascii=plain)
    assert feed_pieces(*(written[at : at + size] for at in range(0, len(written), size))) == (text, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ""),
        ("{}", ""),
        ("*** Begin", "*** Begin"),
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"input": 5}', '{"input": 5}'),
        ('{"a": 1, "input": "x"}', "x"),
        ('{"input": "cut of', "cut of"),
        ('{"input": "x\\', "x"),
        ('{"input": "x", "more": 1}', "x"),
    ],
)
def test_arguments_of_another_form_are_sent_at_the_end(arguments: str, expected: str) -> None:
    assert "".join(feed_pieces(*arguments)) == expected


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    assert make_custom_tool("patch", "Edits.", None) == Tool("patch", "Edits.", RAW_INPUT_SCHEMA)
    description = make_custom_tool("patch", "Edits.", 'start: "x"').description
    assert description == 'Edits.\n\nThe input follows this grammar:\nstart: "x"'
    assert make_custom_tool("patch", "", "s").description.startswith("The input follows")
