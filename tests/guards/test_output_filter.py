"""Openers of unread calls are broken up, and removed text creates no match of a rule, however the text is cut."""

from __future__ import annotations

from typing import Any

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tests.guards.test_content import RULES
from vtc.events import Call, CallText, Event, Markup, Rewritten, Text, ToolCall
from vtc.guards import Rule
from vtc.guards.content import ContentGuard
from vtc.guards.output_filter import OutputFilter

NAMES = ("<run>", "<run_all>")


def join_output(events: list[Event]) -> str:
    return "".join(getattr(event, "text", event.raw) for event in events if isinstance(event, Text | Rewritten))


def feed_events(*events: Event) -> list[Event]:
    one = OutputFilter(NAMES)
    return [*(out for event in events for out in one.feed(event)), *one.finish()]


@given(st.text("<run_al> ", max_size=40), st.integers(1, 5))
def test_no_opener_is_sent_and_no_text_is_lost(text: str, size: int) -> None:
    events = feed_events(*(Text(text[at : at + size]) for at in range(0, len(text), size)))
    assert "".join(event.raw for event in events) == text
    assert join_output(events) == text.replace("<run>", "< run>").replace("<run_all>", "< run_all>")


@pytest.mark.parametrize("text", ["a <r@un>b", "a <run@>b", "@<@run>", "<run>@", "<ru@@n>"])
def test_markup_between_pieces_does_not_join_them(text: str) -> None:
    """For example if a content filter removes text from the middle of an opener."""
    content = ContentGuard(Rule(pattern="@"))
    found = feed_events(*content.feed(Text(text)), *content.finish())
    assert "<run>" not in join_output(found)
    assert "".join(event.raw for event in found) == text


@pytest.mark.parametrize("between", [Markup("\n"), Rewritten("x", "y"), Call("<run>", ToolCall("run", "{}"), "t")])
def test_calls_that_were_read_pass(between: Event) -> None:
    assert between in feed_events(Text("a "), between, Text(" b"))


def test_a_text_full_of_beginnings_takes_no_longer_for_each_of_them() -> None:
    """A million of them would take hours if each searched all of the rest."""
    text = "<" * 1_000_000
    assert join_output(feed_events(Text(text))) == text


def test_names_of_tools_stay_in_no_library() -> None:
    regex.purge()  # other tests of this process may have had such a pattern
    feed_events(Text("<run>"))
    assert not any("run" in key[0] for key in regex._main._cache)


HALVES = st.sampled_from(["<ru", "n>", "<run>", "<run_", "all>", "<", "x", " "])
KINDS = st.sampled_from(
    [Text, lambda text: Rewritten("raw", text), lambda text: Markup(text), lambda text: Rewritten(text, "")]
)


@given(st.lists(st.tuples(KINDS, HALVES), max_size=12))
def test_no_events_combine_to_an_opener(made: list[Any]) -> None:
    events: list[Event] = [kind(text) for kind, text in made]
    found = feed_events(*events)
    output = join_output(events)
    assert join_output(found) == output.replace("<run>", "< run>").replace("<run_all>", "< run_all>")
    assert "".join(event.raw for event in found) == "".join(event.raw for event in events)


def test_call_keeps_its_openers_and_follows_buffered_text() -> None:
    one = OutputFilter(NAMES, [Rule(pattern="xy")])
    text = "<run>\n<a><run_all></a></run>"
    assert one.feed(CallText(text, text)) == [Text(text)]
    assert one.feed(CallText("raw", f"\n\n{text}")) == [Rewritten("raw", f"\n\n{text}")]
    assert one.feed(Text("<ru")) == []
    assert one.feed(CallText(text, text)) == [Text("<ru"), Text(text)]
    assert [*one.feed(Text("x")), *one.feed(Markup("-"))] == [Text("x"), Markup("-")]
    assert one.feed(CallText("y", "y")) == [Text("y")]


def test_silent_markup_keeps_buffered_text_unread() -> None:
    """Even if a thousand matches are removed from the middle of an opener."""
    events: list[Event] = [Text("<ru"), *[Markup(" ")] * 10_000, Text("n>")]
    assert join_output(feed_events(*events)) == "< run>"


PARTS = st.sampled_from(["se", "cret", "secre", "t", "s", "e", "x", "f", "o", "a"])


@given(st.lists(PARTS, max_size=12))
def test_text_before_a_match_does_not_create_one(parts: list[str]) -> None:
    one = OutputFilter(rules=[Rule(pattern="secret"), Rule(pattern="fo+")])
    events: list[Event] = [event for part in parts for event in (Text(part), Markup("-"))]
    out = [out for event in events for out in one.feed(event)] + one.finish()
    assert "secret" not in join_output(out)
    assert "fo" not in join_output(out)
    assert "".join(event.raw for event in out) == "".join(event.raw for event in events)
    if not regex.search("secret|fo", "".join(parts)):
        assert join_output(out) == "".join(parts)


@given(st.sampled_from(RULES), st.lists(PARTS, min_size=1, max_size=4), st.lists(PARTS, max_size=8))
@example((r"(?i)FOO\b|([ab])\1", "I"), ["fo"], ["o", "x"])
def test_cuts_between_texts_do_not_matter(written: tuple[str, str], before: list[str], after: list[str]) -> None:
    def out(*pieces: str) -> str:
        one = OutputFilter(rules=[Rule(pattern=written[0], most=5), Rule(pattern="secret")])
        events = [Text("".join(before)), Markup("-"), *map(Text, pieces)]
        return join_output([out for event in events for out in one.feed(event)] + one.finish())

    assert out("".join(after)) == out(*after) == out(*"".join(after))


def test_texts_that_do_not_meet_are_not_looked_at() -> None:
    one = OutputFilter(rules=[Rule(pattern="secret")])
    events: list[Event] = [Text("sec"), Text("ret"), Text("secret")]
    assert [out for event in events for out in one.feed(event)] == events
