"""Formats of a call's arguments: the rows of `tests/cases/arguments`, in each dialect of a table, whole and cut."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.bounds import count_calls
from tests.dialects.material import (
    CASES,
    DIALECTS,
    calls,
    content,
    dump_typed,
    merge_events,
    plain,
    random_cuts,
    raw,
    read,
)
from vtc.events import Call, Event, Tool, UnreadCall

F = {"f": Tool("f", parameters={"properties": {"path": {"type": "string"}, "key": {"type": "string"}}})}


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """The text of the arguments and the expected result: `value` is that of a parameter `key` with this `schema`."""

    text: str
    value: Any = msgspec.UNSET
    arguments: dict[str, Any] | None = None
    """None if there is no call."""
    repairs: tuple[str, ...] = ()
    schema: Any = msgspec.UNSET
    name: str = "f"
    refused: str = ""
    """Part of the reason why there is no call."""
    proved: bool = True
    """False if VTC leaves out words of the call without a repair, so that it has no proof."""


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """Rows, and the call around them: a text with `{text}` for each dialect."""

    name: str
    frames: dict[str, str]
    rows: list[Row]
    parameters: dict[str, Any] = {}
    """Parameters of the tool `f`; rows with a schema also have a `key`."""
    defs: dict[str, Any] = {}
    lenient: bool = True

    def events(self, row: Row, dialect: str, chunks: Iterable[str]) -> list[Event]:
        properties = self.parameters.get("properties", {})
        if row.schema is not msgspec.UNSET:
            properties = {**properties, "key": row.schema}
        schema = {"type": "object", "$defs": self.defs, **self.parameters, "properties": properties}
        return read(chunks, [DIALECTS[dialect]], {"f": Tool("f", parameters=schema)}, lenient=self.lenient)


def _tables() -> Iterator[Any]:
    for path in sorted((CASES / "arguments").glob("*.yaml")):
        for table in msgspec.convert(plain(path.read_text("utf-8")), list[Table]):
            for dialect in table.frames:
                yield pytest.param(table, dialect, id=f"{path.stem}: {table.name}, {dialect}")


TABLES = [*_tables()]


@pytest.mark.every
@pytest.mark.parametrize(("table", "dialect"), TABLES)
def test_arguments_are_read_as_they_are_meant(table: Table, dialect: str) -> None:
    for row in table.rows:
        text = table.frames[dialect].replace("{text}", row.text)
        events = table.events(row, dialect, [text])
        assert raw(events) == text, row
        arguments = row.arguments if row.value is msgspec.UNSET else {"key": row.value}
        if arguments is None:
            reasons = [event.reason for event in events if isinstance(event, UnreadCall)]
            assert calls(events) == [], row
            assert row.refused in "\n".join(reasons), row
        else:
            assert dump_typed(calls(events, proved=row.proved)) == dump_typed([(row.name, arguments)]), row
            assert [repair for event in events if isinstance(event, Call) for repair in event.repairs] == [
                *row.repairs
            ], row
            assert content(events) == "", row


@pytest.mark.parametrize(("table", "dialect"), TABLES)
def test_arguments_have_the_same_result_in_every_cut(table: Table, dialect: str) -> None:
    for row in table.rows:
        text = table.frames[dialect].replace("{text}", row.text)
        whole = merge_events(table.events(row, dialect, [text]))
        for cut in ([*text], *random_cuts(text, 2)):
            assert merge_events(table.events(row, dialect, cut)) == whole, row


NOISE = {
    "hermes": '<tool_call>{{"name": "f", "arguments": {{{}</tool_call>',
    "gemma4": "<|tool_call>call:f{{{}<tool_call|>",
    "lfm2": "<|tool_call_start|>[f({})]<|tool_call_end|>",
}


@pytest.mark.parametrize("dialect", NOISE)
@given(text=st.text("{}[]\",:\\ntu0123.e- \n'TrueNone<|>é=()", max_size=40), lenient=st.booleans())
def test_malformed_arguments_have_the_same_result_in_every_cut(dialect: str, text: str, lenient: bool) -> None:
    written = NOISE[dialect].format(text)
    whole = read([written], [DIALECTS[dialect]], F, lenient=lenient)
    assert merge_events(read([*written], [DIALECTS[dialect]], F, lenient=lenient)) == merge_events(whole)
    assert raw(whole) == written
    calls(whole)  # whose arguments are JSON


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=3), children, max_size=3),
    max_leaves=6,
)
KEYWORDS = ["type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "items", "required", "$ref", "$defs"]
KINDS = ["string", "integer", "number", "boolean", "null", "array", "object"]
NONSENSE = st.recursive(
    ANYTHING | st.sampled_from([*KINDS, "#", "#/$defs/a"]) | st.dictionaries(st.sampled_from(KEYWORDS), ANYTHING),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), children, max_size=3)
    ),
    max_leaves=10,
)


@example(schema={"allOf": [{"properties": None}, {"properties": {"a": {}}}, {"properties": None}]}, text="")
@example(schema={"required": [[], {}, "a"]}, text="")
@given(schema=NONSENSE, text=st.text(max_size=10) | st.sampled_from(["", "5", "null", "[1]", "<a>1</a>"]))
def test_a_schema_that_makes_no_sense_costs_the_type_and_not_the_call(schema: Any, text: str) -> None:
    for parameters in ({"properties": {"key": schema}}, schema):
        tools = {"f": Tool("f", parameters=parameters if isinstance(parameters, dict) else {})}
        written = f"<tool_call>\n<function=f>\n<parameter=key>\n{text}\n</parameter>\n</function>\n</tool_call>"
        assert [name for name, _ in calls(read([written], [DIALECTS["qwen3-coder"]], tools))] == ["f"]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_schema_whose_references_multiply_is_followed_only_so_far(keyword: str) -> None:
    defs = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 50} for i in range(20)}
    tools = {"f": Tool("f", parameters={"properties": {"key": {"$ref": "#/$defs/d0"}}, "$defs": defs})}
    assert calls(read(["<f>\n<key>5</key>\n</f>"], [DIALECTS["tag"]], tools)) == [("f", {"key": "5"})]


@pytest.mark.parametrize("dialect", ["hermes", "bare-json"])
def test_halves_of_a_surrogate_pair_become_one_character_again(dialect: str) -> None:
    text = '{"name": "f", "arguments": {"a": "\ud83d\ude00", "b": "\ud83d", "c": "\\ud83d\\ude00"}}'
    written = {"hermes": f"<tool_call>\n{text}\n</tool_call>", "bare-json": text}[dialect]
    (call,) = [event for event in read([*written], [DIALECTS[dialect]], F) if isinstance(event, Call)]
    call.call.arguments.encode()
    assert json.loads(call.call.arguments) == {"a": "\U0001f600", "b": "\ud83d", "c": "\U0001f600"}


# Long texts


@pytest.mark.rest
@pytest.mark.parametrize(
    "piece",
    ['"', "'", '","', '": "', '"a": ', '", "a": "', '" "key": "', "{", "[", '{"', '["', "\\", '\\"', "/*", "//"],
)
def test_search_for_the_meaning_of_broken_json_is_bounded(piece: str) -> None:
    """The number of steps of the search is bounded, so it ends at once."""
    for size in (16_000, 500_000):
        text = f'<tool_call>\n{{"name": "f", "arguments": {{"path" "a", "key": "{piece * (size // len(piece))}'
        assert calls(read([text + "}}\n</tool_call>"], [DIALECTS["hermes"]], F)) == []


@pytest.mark.parametrize("places", [1_000, 4_000])
def test_a_search_for_the_ends_of_pythons_values_is_bounded(places: int) -> None:
    """A value with a thousand possible ends is scanned a thousand times, which took seconds."""
    text = "<|tool_call_start|>[f(a='" + "', x='" * places + ")]<|tool_call_end|>"
    found: list[Event] = []
    assert count_calls(lambda: found.extend(read([text], [DIALECTS["lfm2"]], F))) < 400_000
    assert calls(found) == []


def test_child_tags_that_are_never_closed_take_linear_time() -> None:
    """Each tag is searched for once up to the end of the text, and not once for each earlier child."""
    mark = "]<]minimax[>["
    tools = {"f": Tool("f", parameters={"properties": {"key": {"type": "array"}}})}

    def read_count(count: int) -> int:
        value = f"{mark}<item>x{mark}<item>{mark}</item>" * count
        call = f'{mark}<invoke name="f">{mark}<key>{value}{mark}</key>{mark}</invoke>'
        events: list[Event] = []
        text = f"{mark}<tool_call>\n{call}\n{mark}</tool_call>"
        needed = count_calls(lambda: events.extend(read([text], [DIALECTS["minimax-m3"]], tools)))
        assert [len(arguments["key"]) for _, arguments in calls(events)] == [count]
        return needed

    read_count(10)
    assert read_count(1_000) < 11 * read_count(100)
