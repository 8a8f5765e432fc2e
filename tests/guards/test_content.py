"""Content rules on visible text, however it is cut into pieces."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtc.events import Call, Event, Intervention, Markup, Rewritten, Text, ToolCall, UnreadCall
from vtc.guards import GuardChain, Rule, build_content_chain

RULES = [
    ("<\\|im_end\\|>", ""),
    (r"\n{3,}", "\n\n"),
    (r"a(bc)?", r"[\1]"),
    (r"ab.*cd|xx", "Y"),
    (r"\bfoo\b", "F"),
    (r"(?m)^a$", "A"),
    ("a+b", "-"),
    ("aa|aab|b+", "z"),
    ("foo|fooo|o", "_"),
    (r"-\b", "D"),
    (r"[a-z]+\b", "W"),
    (r"(?m)o+$|<", "E"),
    (r"x\Mf|-\m", "M"),
    (r"(?i)FOO\b|([ab])\1", "I"),
    (r"a++b|a\b", "P"),
    (r"(?s)<.*>", "T"),
    ("SECRET", "***"),
]


def join_output(events: list[Event]) -> str:
    keys = {Text: "raw", Rewritten: "text"}
    return "".join(getattr(event, keys[type(event)]) for event in events if type(event) in keys)


def build_guard(rule: Rule) -> GuardChain:
    return build_content_chain([rule])


def feed_pieces(rule: Rule, *pieces: str) -> list[Event]:
    one = build_guard(rule)
    return [*(event for piece in pieces if piece for event in one.feed(Text(piece))), *one.finish()]


def apply_rule(rule: Rule, text: str) -> str:
    """Apply a rule by its definition: at each place, to the next `most` characters."""
    out, at = "", 0
    while at < len(text):
        found = regex.match(rule.pattern, text[: at + rule.most], pos=at)
        if found and found.end() == at + rule.most < len(text):
            is_so = regex.fullmatch(f"(?:{rule.pattern})(?s:.)", text[: found.end() + 1], pos=at)
            found = found if is_so else None
        out += found.expand(rule.replacement) if found else text[at]
        at = found.end() if found else at + 1
    return out


@settings(max_examples=settings().max_examples * 2)
@given(
    st.sampled_from(RULES),
    st.integers(3, 14),
    st.lists(st.sampled_from([*"abcd x\nfo<>-", "foo", "SEC", "RET", "<|im_end|>"]), max_size=45).map("".join),
    st.lists(st.integers(0, 60), max_size=8).map(sorted),
)
@example(("foo|fooo|o", "_"), 3, "<fooabaof", [3])
@example((r"-\b", "D"), 6, "a-b", [2])
def test_any_cut_gives_the_same_and_nothing_is_lost(
    written: tuple[str, str], most: int, text: str, cuts: list[int]
) -> None:
    rule = Rule(pattern=written[0], replacement=written[1], most=most)
    pieces = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
    for cut in ([text], pieces, list(text)):
        events = feed_pieces(rule, *cut)
        assert "".join(event.raw for event in events) == text
        assert join_output(events) == apply_rule(rule, text)
    if len(text) <= most:
        assert apply_rule(rule, text) == regex.sub(*written, text)


@pytest.mark.parametrize("before", ["x", " ", "SECRET"])
def test_a_rule_holds_at_pieces_of_any_length(before: str) -> None:
    """Even if a piece is about as long as the longest match, or a multiple of it."""
    rule = Rule(pattern=r"SECRET|\bkey\b", replacement="***", most=8)
    for length in range(4 * rule.most):
        text = (before * length)[:length]
        expected = join_output(feed_pieces(rule, text)) + " ***. ***."
        assert join_output(feed_pieces(rule, f"{text} SEC", "RET.", " ke", "y", ".")) == expected


def test_text_is_sent_as_soon_as_no_match_is_possible() -> None:
    one = build_guard(Rule(pattern="<end>", replacement="."))
    assert one.feed(Text("all of this")) == [Text("all of this")]
    assert one.feed(Text("a <e")) == [Text("a ")]
    assert one.feed(Text("m>b<end")) == [Text("<em>b")]
    assert one.feed(Text(">c")) == [
        Rewritten("<end>", "."),
        Intervention("content", "replaced", "", "<end>"),
        Text("c"),
    ]
    assert one.finish() == []


def test_buffered_text_is_bounded() -> None:
    one = build_guard(Rule(pattern="<.*>", most=8))
    emitted = 0
    for count in range(100):
        emitted += sum(len(event.raw) for event in one.feed(Text("<aaaa")))
        assert 5 * (count + 1) - emitted < 8


def test_a_match_does_not_go_past_a_call() -> None:
    one = build_guard(Rule(pattern="ab"))
    call = Call("<x>", ToolCall("x", "{}"), "tag")
    assert one.feed(Text("a")) == []
    assert one.feed(call) == [Text("a"), call]
    assert one.feed(Text("b")) == [Text("b")]


def test_event_without_text_does_not_split_it() -> None:
    one = build_guard(Rule(pattern="ab"))
    refusal = UnreadCall("r", "tag")
    assert one.feed(Text("a")) == []
    assert one.feed(refusal) == [refusal]
    assert one.feed(Text("b.")) == [Markup("ab"), Intervention("content", "dropped", "", "ab"), Text(".")]


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ({"pattern": "("}, "missing \\)"),
        ({"pattern": "x*"}, "matches empty text"),
        ({"pattern": "a(?=b)"}, "uses look-around"),
        ({"pattern": "(?<!a)b"}, "uses look-around"),
        ({"pattern": r"a\Kb"}, "uses look-around"),
        ({"pattern": "(?r)ab"}, "uses look-around"),
        ({"pattern": "a(?R)?b"}, "uses look-around"),
        ({"pattern": "a$"}, "depends on the end of the text"),
        ({"pattern": r"a\B"}, "depends on the end of the text"),
        ({"pattern": r"a\Z"}, "depends on the end of the text"),
        ({"pattern": "a", "replacement": r"\1"}, "with"),
        ({"pattern": "a", "most": 0}, ">= 1"),
    ],
)
def test_invalid_rule_is_reported(rule: dict[str, object], fault: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=fault):
        msgspec.convert(rule, Rule)


@pytest.mark.parametrize(
    "pattern", [r"a\$", "[$]", "(?m)^a$", r"\bfoo\b", r"\[x\]", "(?P<rest>ab)", "(?i:er)", r"\\\\K"]
)
def test_a_rule_that_can_be(pattern: str) -> None:
    assert Rule(pattern=pattern).pattern == pattern
