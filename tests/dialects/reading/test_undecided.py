"""Text after a call that may be quoted: a long run without words, or a quotation mark, decides like words."""

from __future__ import annotations

import pytest

from tests.dialects.material import AGENT, DIALECTS, calls, merge_events, raw, read
from tests.rules import MAX_WORDLESS_CHARACTERS, QUOTATION_MARKS, QUOTING_ELEMENTS, repeat_around
from vtc.dialects.writing import write_calls
from vtc.events import ToolCall

CALL = ToolCall("bash", '{"command": "ls"}')
QUOTABLE = [name for name, dialect in DIALECTS.items() if dialect.may_be_quoted]
AFTER = [
    *(f"</{name}>" for name in QUOTING_ELEMENTS),
    *(f"?{run}" for run in repeat_around(MAX_WORDLESS_CHARACTERS, ".")),
    ".</code>",
    " now.",
]


@pytest.mark.parametrize("dialect", QUOTABLE)
@pytest.mark.parametrize("before", ["x ", '"', "| "])
def test_text_after_a_call_has_the_same_effect_at_every_cut(dialect: str, before: str) -> None:
    written = write_calls([CALL], DIALECTS[dialect], AGENT).strip()
    made = calls(read([f"x {written} now."], [DIALECTS[dialect]]))  # so is one over several lines
    for after in ("</think>", ".</code>", "?" + "." * MAX_WORDLESS_CHARACTERS, " now."):
        text = f"{before}{written}{after}"
        whole = read([text], [DIALECTS[dialect]])
        assert raw(whole) == text
        assert not made or calls(whole) == made
        assert merge_events(read(text, [DIALECTS[dialect]])) == merge_events(whole)


@pytest.mark.parametrize("mark", QUOTATION_MARKS)
@pytest.mark.parametrize("after", AFTER)
def test_a_call_over_lines_is_one_after_a_quotation_mark_that_is_not_closed(mark: str, after: str) -> None:
    text = f'{mark}<tool_call>\n{{"name": "bash", "arguments": {{"command": "ls"}}}}\n</tool_call>{after}'
    for at in range(0, len(text), 7):
        events = read([text[:at], text[at:]], [DIALECTS["hermes"]])
        assert calls(events) == [("bash", {"command": "ls"})]
        assert raw(events) == text


def test_line_break_after_a_quotation_is_not_part_of_its_line() -> None:
    """The calls are released once, and a call on the next line is read."""
    call = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
    text = f"x {call}{'.' * (MAX_WORDLESS_CHARACTERS + 1)}\n{call}"
    for size in (1, 7, len(text)):
        events = read([text[at : at + size] for at in range(0, len(text), size)], [DIALECTS["hermes"]])
        assert (raw(events), calls(events)) == (text, [("bash", {"command": "ls"})])
