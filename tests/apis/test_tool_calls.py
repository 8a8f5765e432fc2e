"""Calls joined from their pieces."""

from __future__ import annotations

import pytest

from vtc.apis.calls import JsonNesting, ToolCallAccumulator
from vtc.events import CallDelta, ToolCall


def piece(arguments: str, name: str = "", index: int | None = None, id: str | None = None) -> CallDelta:
    return CallDelta(index, id, name, arguments)


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([], []),
        ([piece("{", "a", 0, "p"), piece("}", index=0)], [("a", "{}", "p")]),
        (
            [piece("{", "a", 0), piece("[", "b", 1), piece("}", index=0), piece("]", index=1)],
            [("a", "{}"), ("b", "[]")],
        ),
        ([piece("{", "a", 0), piece("}", "a", 0)], [("a", "{}")]),
        ([piece("", "ba", 0), piece("{}", "sh", 0)], [("bash", "{}")]),
        ([piece("{", "a", id="p"), piece("}", id="p"), piece("{}", "b", id="q")], [("a", "{}", "p"), ("b", "{}", "q")]),
        ([piece("{}", "a"), piece("{}", "b")], [("a", "{}"), ("b", "{}")]),
        ([piece("", "a", 0)], [("a", "{}")]),
    ],
)
def test_pieces_add_up(pieces: list[CallDelta], calls: list[tuple[str, ...]]) -> None:
    found = ToolCallAccumulator(pieces)
    assert [(call.name, call.arguments, *([call.id] if call.id else [])) for call in found.calls()] == calls


def test_fields_of_all_pieces_are_kept() -> None:
    found = ToolCallAccumulator([CallDelta(0, "i", "x", "", {"sig": 1}), CallDelta(0, arguments="{}", source={"b": 2})])
    assert found.calls() == [ToolCall("x", "{}", "i")]
    assert found.calls()[0].source == {"sig": 1, "b": 2}


def test_source_of_a_call_does_not_determine_its_kind() -> None:
    assert ToolCall("a", "{}", source={"x": 1}) == ToolCall("a", "{}")


@pytest.mark.parametrize(
    ("pieces", "clean"),
    [
        ([piece("{", "a", 0, "p"), piece("}", index=0)], True),
        ([piece("{}", "a", 0, "p"), piece("{}", "a", 1, "q")], True),
        ([piece("{", "a", 0, "p"), piece("}", "", 0, "p")], True),
        ([piece("{", "a", 0, "p"), piece("}", "", 0, "q")], False),
        ([piece("{}", "a", 0, "p"), piece("{}", "b", 0, "q")], False),
        ([piece("{", "a", 0, "p"), piece("}", "a", 0)], False),
        ([piece("{}", "", 0, "p")], False),
        ([CallDelta(0, "p", "a", "{}", clean=False)], False),
        ([piece("{}", "a"), piece("{}", "b")], True),
    ],
)
def test_pieces_that_clients_would_read_otherwise_are_not_clean(pieces: list[CallDelta], clean: bool) -> None:
    assert ToolCallAccumulator(pieces).clean == clean


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        ([piece('{"a":1}', "x", 0, "p"), piece('{"b":2}', "y", 0, "q")], [("x", '{"a":1}'), ("y", '{"b":2}')]),
        ([piece('{"a":1}', "x", 0), piece('{"a":2}', "x", 0)], [("x", '{"a":1}'), ("x", '{"a":2}')]),
        ([piece('{"a":', "x", 0), piece('"}"', "x", 0), piece("}", "x", 0)], [("x", '{"a":"}"}')]),
        (
            [piece("", "x", 0, "p"), piece("{}", index=0), piece("", "y", 0, "q"), piece("{}", index=0)],
            [("x", "{}"), ("y", "{}")],
        ),
        ([piece("", "x", 0, "p"), piece("", "y", 0, "q")], [("x", "{}"), ("y", "{}")]),
    ],
)
def test_calls_with_one_index_are_distinguished_by_id_or_complete_arguments(
    pieces: list[CallDelta], calls: list[tuple[str, str]]
) -> None:
    assert [(call.name, call.arguments) for call in ToolCallAccumulator(pieces).calls()] == calls


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("", "x", 0, "p"), piece('{"a":', "", 0, "q"), piece("1}", "", 0, "r")],
        [piece("", "x", 0, "p"), piece('{"a":', "x", 0, "q"), piece("1}", "x", 0, "r")],
        [piece("", "x", id="p"), piece('{"a":', "x", id="q"), piece("1}", "x", id="r")],
        [piece('{"a":1}', "x", 0, "p"), piece("", "", 0, "q")],
        [piece("", "x", 0, "p"), piece('{"a":', "", 1, "p"), piece("1}", "", 2, "p")],
    ],
    ids=["new ids", "new ids, and the name again", "no number", "a new id after the end", "new numbers"],
)
def test_a_call_begins_after_whole_arguments_and_with_a_name(pieces: list[CallDelta]) -> None:
    found = ToolCallAccumulator(pieces)
    assert [(call.name, call.arguments, call.id) for call in found.calls()] == [("x", '{"a":1}', "p")]
    assert not found.clean


@pytest.mark.parametrize("text", ['{"a": "}\\\\"}', '{"a": "\\"}{", "b": [{"c": 1}]}', "{}"])
def test_arguments_are_whole_after_their_last_brace_however_they_are_cut(text: str) -> None:
    for size in (1, 2, 3, 99):
        nesting, whole = JsonNesting(), []
        for place in range(0, len(text), size):
            nesting = nesting.advance(text[place : place + size])
            whole.append(nesting.is_whole)
        assert whole == [*[False] * (len(whole) - 1), True]
