"""A damaged call is read correctly or not at all, with any values: a repair changes structure, never a value."""

from __future__ import annotations

import random
import sys
from itertools import product
from json import dumps
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.dialects.damages import DAMAGES, TOOLS, WRITTEN, Call, damage_call, format_table, outcome, table
from tests.dialects.material import DIALECTS, calls, merge_events, random_cuts, read
from vtc.dialects.writing import write_calls
from vtc.events import ToolCall

PIECES = [
    *(
        "x",
        "a b",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\n\n",
        "é",
        "\u2028",
        "\U0001f600",
        "\\",
        "\\n",
        "\\\\",
        "/",
        "",
    ),
    *(
        '"',
        "'",
        '""',
        '"""',
        "'''",
        "`",
        "```\n",
        "```json\n",
        '"hi"',
        "'hi'",
        "it's",
        '"a", "b"',
        "'a', 'b'",
        '5" disk',
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "{}",
        "}}",
        '"}',
        "{{x}}",
        "${HOME}",
        "${x:-'y'}",
        ",",
        ":",
        ", ",
        ": ",
        "+",
        " + ",
        "#",
        "// x\n",
    ),
    *(
        '{"a": "b"}',
        '{"a": "b", "c": 1}',
        '{"path": "p", "content": "c"}',
        '[{"k": ["v"]}]',
        '{"mode": "slow", "n": null}',
    ),
    *(
        'print("x")\n',
        'def f():\n    """Do it."""\n',
        "x = {'a': 1}\n",
        'if (x) { say("hi"); }\n',
        'echo "a" | tr "a" \'b\'',
    ),
    *(
        "<tool_call>",
        "</tool_call>",
        "<|tool_call_end|>",
        "<｜tool▁call▁end｜>",
        "[TOOL_CALLS]",
        "</think>",
        "functions.bash:0",
    ),
    *("path", "content", "command", "mode", "true", "null", "12", "C:\\new\\x", "https://x.y/?a=b#c", "/* x */"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=20)
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "deep", "a-b"]), inner, max_size=3)
    ),
    max_leaves=6,
)
CALLS = st.one_of(
    st.tuples(
        st.just("write_file"),
        st.fixed_dictionaries({"path": TEXTS, "content": TEXTS}, optional={"mode": TEXTS}),
    ),
    st.tuples(
        st.just("bash"),
        st.fixed_dictionaries(
            {"command": TEXTS}, optional={"timeout": st.integers(0, 999), "description": TEXTS, "cwd": TEXTS}
        ),
    ),
    st.tuples(
        st.just("search"),
        st.fixed_dictionaries(
            {"query": TEXTS},
            optional={
                "fields": st.lists(TEXTS, max_size=3),
                "options": st.dictionaries(st.sampled_from(["k", "deep", "a-b"]), VALUES, max_size=3),
                "mode": TEXTS,
            },
        ),
    ),
)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("dialect", WRITTEN)
@settings(derandomize=settings.get_current_profile_name() != "thorough")
@given(call=CALLS, seed=st.integers(0, 1 << 16), cut=st.sampled_from([0, 1, 7]))
def test_a_damaged_call_is_read_right_or_not_at_all(dialect: str, damage: str, call: Call, seed: int, cut: int) -> None:
    text = damage_call(call, damage, dialect, random.Random(seed))
    assume(text)
    assert outcome(call, text, dialect, cuts=cut) != "altered", text


@pytest.mark.parametrize("damage", ["a comma missing", "a colon missing", "a quote of a key missing", "single quotes"])
@pytest.mark.parametrize("dialect", WRITTEN)
@given(call=CALLS, seed=st.integers(0, 1 << 16), kept=st.integers(0, 999))
def test_of_a_damaged_call_that_ends_early_no_value_is_altered(
    dialect: str, damage: str, call: Call, seed: int, kept: int
) -> None:
    """An optional parameter may be missing, but never half of one."""
    text = damage_call(call, damage, dialect, random.Random(seed))
    text = text[: len(text) * kept // 1000]
    for name, arguments in calls(read([text], [DIALECTS[dialect]], TOOLS)):
        assert name == call[0]
        assert all(type(value) is not str or call[1][key] == value for key, value in arguments.items()), text


LEAST_RATES = {
    **dict.fromkeys(DAMAGES, 0.95),
    "single quotes, apostrophes not escaped": 0.8,
    "inner quotes not escaped": 0.85,
    "inner quotes and line breaks": 0.85,
}


@pytest.mark.rest
def test_most_damaged_calls_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    """For each damage, 300 pieces of the standard library are read."""
    rows = table(300)
    with capsys.disabled():
        sys.stdout.write(f"\n\n{format_table(rows)}\n\n")
    assert {name: row["altered"] for name, row in rows.items()} == dict.fromkeys(rows, 0)
    rates = {name: row["right"] / row.total() for name, row in rows.items()}
    assert {name: rate for name, rate in rates.items() if rate < LEAST_RATES[name]} == {}


@pytest.mark.parametrize("dialect", ["mistral", "kimi-k2"])
@pytest.mark.parametrize("content", ['echo "}" x', 'f("}")', '"}', '"}: x', '"}é', '"}```json'])
def test_json_without_a_closer_that_seems_to_end_in_a_string(dialect: str, content: str) -> None:
    call: tuple[str, dict[str, Any]] = ("bash", {"command": content, "timeout": 5})
    text = damage_call(call, "inner quotes not escaped", dialect, random.Random(1))
    for cuts in (0, 1):
        assert outcome(call, text, dialect, cuts=cuts) == "right"


SPACES = ["", "\n", "\n\n", "\r\n", "  ", "\t", "\n  ", " \n", "\n \n"]


def without_closer(dialect: str, space: str, order: tuple[str, ...], *, alone: bool = False) -> tuple[Call, str]:
    """Return a call without the closing tag of `content`, and its text; empty if the dialect cannot write it.

    The line break before the tag is missing, too, unless it is `alone`.
    """
    call = ("write_file", {key: f"  x{space}" if key == "content" else "a.py" for key in order})
    param = next(iter(DIALECTS[dialect].params), "")
    text = write_calls([ToolCall(call[0], dumps(call[1]))], DIALECTS[dialect], TOOLS)
    closer = param.partition("{value}")[2].rstrip().replace("{key}", "content")
    before, found, after = text.partition(call[1]["content"])
    if alone:
        return call, before + found + after.replace(closer.lstrip(), "", 1)
    multiline = DIALECTS[dialect].frame == "multiline" and "\n" in space
    closer = "\n" * multiline + closer
    return call, before + found + after.removeprefix(closer) if len(closer) > 1 and after.startswith(closer) else ""


OTHERWISE = {"cwm", "longcat", "name-parameters", "xml-json"}
"""Dialects that do not write this value raw."""
TAGGED = [
    name
    for name, one in DIALECTS.items()
    if one.params and len(one.params[0].partition("{value}")[2].rstrip()) > 1 and name not in OTHERWISE
]
ORDERS = [("path", "content"), ("content", "path"), ("path", "content", "mode")]


@pytest.mark.every
@pytest.mark.parametrize("dialect", TAGGED)
def test_a_value_without_its_closer_keeps_its_white_space(dialect: str, some: Any) -> None:
    """If the closer has a line of its own, the line break before it remains.

    A second line break makes the end ambiguous, so there is no call.
    """
    for _, space, order in some(product([dialect], SPACES, ORDERS), 9):
        call, text = without_closer(dialect, space, order)
        assert text
        own_line = "\n</" in DIALECTS[dialect].params[0] or (DIALECTS[dialect].frame == "multiline" and "\n" in space)
        wanted = "refused" if own_line and space.endswith("\n") else "right"
        assert [outcome(call, text, dialect, cuts=cuts) for cuts in (0, 1, 7)] == [wanted] * 3, text
        whole = merge_events(read([text], [DIALECTS[dialect]], TOOLS))
        assert all(merge_events(read(cut, [DIALECTS[dialect]], TOOLS)) == whole for cut in random_cuts(text)), text


@pytest.mark.every
@pytest.mark.parametrize("dialect", TAGGED)
def test_a_value_takes_no_line_break_of_a_closer_that_is_missing_alone(dialect: str, some: Any) -> None:
    for _, space, order in some(product([dialect], SPACES, ORDERS), 9):
        call, text = without_closer(dialect, space, order, alone=True)
        assert {outcome(call, text, dialect, cuts=cuts) for cuts in (0, 1, 7)} in ({"right"}, {"refused"}), text


@pytest.mark.parametrize("dialect", ["qwen3-coder", "tag", "glm-4.5", "invoke"])
def test_blanks_before_the_tag_after_a_value_without_closer_may_be_its_own(dialect: str) -> None:
    for order in ORDERS:
        call, text = without_closer(dialect, "", order)
        assert outcome(call, text.replace("  x\n", "  x\n  "), dialect) == "refused"


@pytest.mark.halved
@pytest.mark.every
@pytest.mark.parametrize("dialect", TAGGED)
@pytest.mark.parametrize("blanks", [" ", "    ", "\t"])
def test_an_indented_closing_tag_ends_its_value_before_its_line(dialect: str, blanks: str) -> None:
    """This applies if the dialect puts a line break on either side of the value."""
    for order, space in product(ORDERS, ("", "\n", "\n  y")):
        call = ("write_file", {key: f"  x{space}" if key == "content" else "a.py" for key in order})
        text = write_calls([ToolCall(call[0], dumps(call[1]))], DIALECTS[dialect], TOOLS)
        param = next(iter(DIALECTS[dialect].params))
        closer = param.partition("{value}")[2].strip().replace("{key}", "content")
        before, value, after = text.partition(call[1]["content"])
        if before.endswith("\n") and after.startswith(f"\n{closer}"):
            text = f"{before}{value}\n{blanks}{after[1:]}"
            assert {outcome(call, text, dialect, cuts=cuts) for cuts in (0, 1, 7)} == {"right"}, text
