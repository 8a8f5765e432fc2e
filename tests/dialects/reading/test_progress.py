"""The reader advances with each step: a rule that does not is a fault, and causes no loop."""

from __future__ import annotations

import pytest

from tests.dialects import faulty
from tests.dialects.faulty import HEAD, SPARE_STEPS, STEPS_PER_CHARACTER, InText, Livelock
from tests.dialects.material import DIALECTS, TOOLS
from vtc.dialects import Reader, ReaderOptions, compile_grammar


def reader() -> Reader:
    return Reader(compile_grammar((DIALECTS["hermes"],)), TOOLS["agent"], ReaderOptions(unknown_tools="allow"))


@pytest.mark.parametrize("rule", faulty.RULES)
@pytest.mark.parametrize("size", [1, 7, len(HEAD)])
def test_a_rule_with_which_the_reader_does_not_get_on_is_a_fault(
    rule: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty.RULES[rule](monkeypatch)
    one = reader()
    pieces = [HEAD[at : at + size] for at in range(0, len(HEAD), size)]
    with pytest.raises(Livelock, match=r"no progress in state '(text|answer)', at "):
        [event for piece in pieces for event in one.feed(piece)]


def test_emitted_text_gives_a_loop_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining steps depend on the text that can be read again, not on the length of the reply."""
    steps = 0

    def count(_inside: InText) -> None:
        nonlocal steps
        steps += 1

    faulty.go_round(monkeypatch, count)
    one = reader()
    for _ in range(1000):
        one.feed("Plain text, which takes no steps, and some <b> that does. ")
    with pytest.raises(Livelock):
        one.feed(HEAD)
    assert steps < SPARE_STEPS + 2 * STEPS_PER_CHARACTER * len(HEAD)


def test_a_long_text_full_of_markup_is_read_to_its_end() -> None:
    """The number of steps grows with the text, but stays below the bound."""
    text = "`<tool_call>{<b></tool_call></parameter>\n" * 500
    one = reader()
    assert "".join(event.raw for event in [*one.feed(text), *one.finish()]) == text


def test_a_long_text_after_a_call_that_broke_is_read_to_its_end() -> None:
    """The text may be part of the call, so it is buffered without steps, and read again at the end."""
    call = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}\n</tool_call>\n'
    text, one = call + "`` x " * 1000, reader()
    events = [event for at in range(0, len(text), 5) for event in one.feed(text[at : at + 5])]
    assert "".join(event.raw for event in [*events, *one.finish()]) == text
