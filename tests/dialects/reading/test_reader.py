"""Invariants for every text: no text is lost, no cut matters, and text that cannot be markup is emitted at once.

The results for single replies are recorded in `tests/cases/reading`.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.dialects.material import AGENT, COMMON, DIALECTS, calls, content, merge_events, parse_dialect, raw, read
from tests.rules import PREFIXES, QUOTING_ELEMENTS, TURN_ENDS, WRAPPERS, draw_pieces, rules
from vtc.dialects import Description, ModelFacts, Reader, ReaderOptions, compile_grammar
from vtc.dialects.writing import write_calls
from vtc.events import Call, Markup, Reasoning, Text, ToolCall

THINK = (("<think>", "</think>"),)
EXAMPLES = settings().max_examples
SIX = [DIALECTS[name] for name in COMMON]
CALL = "<bash>\n<command>ls</command>\n</bash>"


def reader(dialect: str = "tag", **options: Any) -> Reader:
    return Reader(compile_grammar((DIALECTS[dialect],), THINK), AGENT, ReaderOptions(**options))


# A call in special tokens, next to code


OWN = [name for name, dialect in DIALECTS.items() if dialect.tokens]
BLOCK = "```sh\nls\n```"


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(
    "before", [f"{BLOCK}\n", f"\n{BLOCK}\n\n", f"{BLOCK}\n~~~\nx\n~~~\n", "<think>a</think>\n~~~\nx\n~~~\n"]
)
def test_a_call_in_special_tokens_after_a_closed_block_is_one(name: str, before: str) -> None:
    dialect = msgspec.structs.replace(DIALECTS[name], fenced=True)  # as for the model's own dialect
    text = before + write_calls([ToolCall("bash", '{"command": "ls"}')], dialect, AGENT)
    facts = ModelFacts(frozenset({name}))

    def events(*chunks: str) -> Any:
        return merge_events(read(chunks, [dialect, DIALECTS["hermes"]], tags=THINK, facts=facts))

    whole = read([text], [dialect, DIALECTS["hermes"]], tags=THINK, facts=facts)
    assert calls(whole) == [("bash", {"command": "ls"})]
    assert content(whole).strip() == before.removeprefix("<think>a</think>").strip()
    assert events(*text) == merge_events(whole)
    assert all(events(text[:at], text[at:]) == merge_events(whole) for at in range(1, len(text)))


# Any text, and text made of fragments of a dialect's file


def fragments(dialect: Description) -> list[str]:
    """Return pieces of a dialect's markup, and of text inside of and around it."""
    patterns = [*dialect.calls, *dialect.params, *dialect.sections]
    filled = [
        re.sub(r"\{(\w+)\}", lambda slot: {"name": "bash", "key": "command"}.get(slot[1], "\0"), text)
        for text in patterns
    ]
    markup = {piece for text in filled for piece in re.split(r"\0|(?<=>)|(?=<)", text) if piece}
    bodies = [
        '{"name": "bash", "arguments": {"command": "ls"}}',
        '{"command": "ls", "timeout": 5}',
        '{"name": "bash", "arguments": ',
        'command="ls", timeout=5',
        '"',
        "\\",
        "}",
        "]",
    ]
    for key, value in (("command", "ls"), ("timeout", "5"), ("cwd", "x" * 60)):
        bodies += [text.replace("{key}", key).replace("{value}", value) for text in dialect.params]
    around = [
        "<arguments>",
        "</arguments>",
        "x",
        " ",
        "\n",
        "\n\n",
        "`",
        "```\n",
        "<",
        "</",
        ">",
        "<div>",
        *THINK[0],
        "\r\n",
        "é",
        " " * 260,
    ]
    return sorted(markup) + bodies + around


options = st.fixed_dictionaries(
    {
        "lenient": st.booleans(),
        "unknown_tools": st.sampled_from(["text", "allow", "drop"]),
        "max_call_bytes": st.sampled_from([40, 100, 200, 1 << 20]),
        "think": st.sampled_from(["reasoning_content", "opened", "keep", "drop"]),
        "begins": st.sampled_from(["text", "reasoning", "unknown"]),
        "complete": st.booleans(),
    }
)


def check_any(text: str, dialects: list[Description], options: dict[str, Any], places: list[int]) -> None:
    """Check that no exception is raised, no text is lost, and no cut matters."""

    def pieces(chunks: list[str]) -> Any:
        events = read(chunks, dialects, tags=THINK, **options)
        assert raw(events) == text
        for event in events:
            if isinstance(event, Call):
                event.call.arguments.encode()
                assert isinstance(json.loads(event.call.arguments), dict)
        return merge_events(events)

    whole = pieces([text])
    assert pieces([*text]) == whole
    ends = sorted(place % (len(text) + 1) for place in places)
    assert pieces([text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]) == whole


places = st.lists(st.integers(0, 10_000), max_size=4)


def draw_text(data: st.DataObject, dialects: list[Description]) -> str:
    every = sorted({piece for dialect in dialects for piece in fragments(dialect)})
    written = [write_calls([call], dialect, AGENT) for dialect in dialects for call in CALLS]
    return "".join(data.draw(draw_pieces(every, written, 14)))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_ends_anywhere_in_a_call_is_all_there(dialect: str) -> None:
    text = write_calls([ToolCall("bash", '{"command": "l\\n", "timeout": 5}')], DIALECTS[dialect], AGENT)
    for end in range(len(text)):
        for complete, lenient in ((True, True), (True, False), (False, True)):
            events = read([text[:end]], [DIALECTS[dialect]], tags=THINK, complete=complete, lenient=lenient)
            assert raw(events) == text[:end]


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 8))
@given(data=st.data(), options=options, places=places)
def test_text_made_of_markup(dialect: str, data: st.DataObject, options: dict[str, Any], places: list[int]) -> None:
    check_any(draw_text(data, [DIALECTS[dialect]]), [DIALECTS[dialect]], options, places)


def check_without_reasoning(dialect: Description, text: str, *, lenient: bool) -> None:
    """Check that a reply without reasoning tags is parsed as text, also if it may begin inside its reasoning."""
    buffered = read([text], [dialect], tags=THINK, begins="unknown", lenient=lenient)
    assert merge_events(buffered) == merge_events(read([text], [dialect], tags=THINK, lenient=lenient))


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 8))
@given(data=st.data(), lenient=st.booleans())
def test_a_reply_without_reasoning_tags_is_parsed_as_text(dialect: str, data: st.DataObject, lenient: bool) -> None:
    text = draw_text(data, [DIALECTS[dialect]])
    assume("think" not in text)
    check_without_reasoning(DIALECTS[dialect], text, lenient=lenient)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("after", ["<", "<\n", "</\n", "</tool \n", "</tool_call", "</tol_call>\n", "]\n"])
def test_a_broken_closer_at_the_end_of_a_buffered_reply(dialect: str, after: str) -> None:
    written = write_calls([ToolCall("bash", '{"command": "ls"}')], DIALECTS[dialect], AGENT)
    for before in ("", "I look. "):
        check_without_reasoning(DIALECTS[dialect], f"{before}{written}{after}", lenient=True)


CALLS = [
    ToolCall("bash", json.dumps({"command": command, "timeout": 5}))
    for command in ("ls", "a\nb\n", 'say "hi"', "it's <b>`x`</b>", "{[}]")
]


@st.composite
def damaged_texts(draw: st.DrawFn, dialect: Description) -> str:
    """Draw text of a dialect with a few tokens missing, doubled or moved."""
    written = write_calls(draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=2)), dialect, AGENT)
    tokens: list[str] = re.findall(r"</?|\w+|\s+|.", written, re.DOTALL)
    for _ in range(draw(st.integers(0, 3))):
        start, end, to = (draw(st.integers(0, len(tokens))) for _ in range(3))
        piece = tokens[start : min(end, start + 8)]
        if draw(st.booleans()):
            del tokens[start : start + len(piece)]
        if draw(st.booleans()):
            tokens[to:to] = piece
    before, after = (st.sampled_from(some) | rules for some in (["", "Hi.\n"], ["", "\nBye.", "\n\n"]))
    return draw(before) + "".join(tokens) + draw(after)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 6))
@given(data=st.data(), options=options, places=places)
def test_damaged_calls(dialect: str, data: st.DataObject, options: dict[str, Any], places: list[int]) -> None:
    check_any(data.draw(damaged_texts(DIALECTS[dialect])), [DIALECTS[dialect]], options, places)


@settings(max_examples=4 * EXAMPLES)
@given(data=st.data(), options=options, places=places)
def test_text_made_of_the_markup_of_some(data: st.DataObject, options: dict[str, Any], places: list[int]) -> None:
    check_any(draw_text(data, SIX), SIX, options, places)


@settings(max_examples=max(1, EXAMPLES // 5))
@given(data=st.data(), options=options, places=places)
def test_text_made_of_the_markup_of_all(data: st.DataObject, options: dict[str, Any], places: list[int]) -> None:
    every = list(DIALECTS.values())
    check_any(draw_text(data, every), every, options, places)


@given(st.text(st.characters() | st.sampled_from("<>/`{}\"'\n \ud83d\ude00")), options, places)
@example("\ud83d\ude00 <bash><command>\ud83d</command></bash>", {}, [1])
@example('<tool_call>{"name": "bash", "arguments": {"command": "\\ud83d"}}</tool_call>', {}, [])
@example('<tool_call>[{"name": "bash", "arguments": {"command": "\\ud83d"}}]</tool_call>', {}, [])
@example('<tool_call>[{"name": "bash", "arguments": {"timeout": 1e999}}]</tool_call>', {}, [])
def test_any_text(text: str, options: dict[str, Any], places: list[int]) -> None:
    check_any(text, SIX, options, places)


@pytest.mark.parametrize("dialect", COMMON)
@given(text=st.text("abc <>/=\"'{}[]().,:;|-_*#!\n\t", max_size=60))
def test_text_without_tools_is_unchanged(dialect: str, text: str) -> None:
    assert content(read([text], [DIALECTS[dialect]], {})) == text


# Buffered text

BEGINNINGS = {
    "hermes": ["<tool_call>{", "<tool_call>[{", "<tool_call>```json{"],
    "qwen3-coder": ["<tool_call><function=bash", "<function=a.b"],
    "invoke": ['<function_calls><invoke name="bash', '<invoke name="x', '<invoke name="x'],
    "tag": [f"<{prefix}{name}" for prefix in ("", *PREFIXES) for name in AGENT],
    "tools-tag": ["<tools>{", "<tools>[{", "<tools>```json{"],
    "bare-json": ['{"name":"bash', '{"arguments":', '{"type":'],
}
SPELLED = {
    "qwen3-coder": [
        f"{wrapper}<function{between}{name}"
        for wrapper in ("", "<tool_call>", "<function_invocation>", "<zyphra_tool_call>")
        for between in ("=", "", 'name="')
        for name in ("bash", "a.bc")  # a name may contain spaces
    ],
    "invoke": [f'{wrapper}<invoke name="{name}' for wrapper in ("<function_calls>", "<tool_calls>") for name in "bx"],
    "bare-json": [f'{{"name":"{name}","arguments":' for name in ("alice", "bath")]
    + ['{"tool_calls":[', '{"function_calls":['],
}
"""Other beginnings of calls, without white space."""
DOUBTFUL = (*TURN_ENDS, *WRAPPERS)
"""Text that is buffered until a call follows or the reply ends."""
OTHERS = ["```", "~~~", *THINK[0], *DOUBTFUL, *(f"<{name}>" for name in QUOTING_ELEMENTS)]
PROSE = [
    "If a < b and c <= d, then <div class='x'> or </div>, <tool> or <tools> or <tool_call> alone.",
    "Use <function=(x)> or <invoke ...>, <read> a <bash-script>; <b>bold</b> {x} {'a': 1} [\"name\"].",
    'JSON such as {"name": "Alice", "age": 5} or\n{"name": "bath"}\n{ "answer": {} }\nin lines.',
    "`code` and ``more ` code`` and ~~gone~~ and ~ one `\n\n```py\nx = '<tool'\n```\n# End\n",
    "<function_calls> are <function_calls>.\n<tool_call>\n\n<tool_call>\n<think>\n",
    "a <functions.bad> <function=a.b c> <invoke id=x> <write_file\n\n\n<read_file/ <bash_",
]
SPELLED["tag"] = [re.sub(r"\s+", "", found[0]) for found in re.finditer(r"<\w\S*(?:\s+[^\s<>]+)?", "".join(PROSE))]
"""The end of a name decides if it is the name of a tool."""


def bare(text: str) -> str:
    """Remove white space, which is optional in markup, and convert to lower case, since names may be in any case."""
    return "".join(text.split()).casefold()


@pytest.mark.parametrize("dialect", BEGINNINGS)
@pytest.mark.parametrize("text", PROSE)
def test_text_that_cannot_be_markup_is_emitted_at_once(dialect: str, text: str) -> None:
    """Only white space is buffered, and after it the beginning of a head, a fence or a run of backticks."""
    one = reader(dialect)
    starts = [bare(start) for start in [*BEGINNINGS[dialect], *SPELLED.get(dialect, []), *OTHERS]]
    emitted = 0
    for end in range(1, len(text) + 1):
        emitted += len(raw(one.feed(text[end - 1])))
        held = bare(text[emitted:end])
        while waits := [one for one in (*DOUBTFUL, *DIALECTS[dialect].optional) if held.startswith(one)]:
            held = held.removeprefix(waits[0])
        assert any(start.startswith(held) for start in starts) or set(held) == {"`"}, (text[emitted:end], end)
    assert emitted + len(raw(one.finish())) == len(text)


@pytest.mark.parametrize("dialect", BEGINNINGS)
@pytest.mark.parametrize("then", ["\x00", "<", '\n\n!"'])
def test_partial_marker_that_is_none_is_emitted_as_text(dialect: str, then: str) -> None:
    for start in BEGINNINGS[dialect]:
        one = reader(dialect)
        assert one.feed("x\n") == [Text("x")]
        assert one.feed(start) == []
        text = "\n" + start + then + "."
        emitted = content(one.feed(then + "."))
        assert text.startswith(emitted)
        assert len(emitted) > len(start)
        assert emitted + content(one.finish()) == text


def test_a_call_is_given_as_soon_as_it_is_complete() -> None:
    one = reader("hermes")
    text = 'Hi.\n<tool_call>{"name": "list_files"}</tool_call>'
    events = [event for char in text[:-1] for event in one.feed(char)]
    assert raw(events) == "Hi."
    assert [type(event) for event in one.feed(text[-1])] == [Call]


def test_text_is_emitted_before_an_incomplete_call() -> None:
    one = reader()
    assert one.feed("Look:\n<bash>\n<command>l") == [Text("Look:")]
    assert one.feed("s</command>\n</ba") == []


def test_a_closer_that_may_be_missing_takes_no_white_space_with_it() -> None:
    dialect = parse_dialect("{kind: dialect, name: open, call: '<c>{json}</c>', optional: ['</c>']}")
    for closer in ("</c>", ""):
        text = 'Before.\n<c>{"name": "list_files"}' + closer + "\nAfter."
        assert content(read([text], [dialect])) == "Before.\nAfter."


def test_too_long_quotation_is_emitted() -> None:
    text = "Look ` <bash>" + "x" * 200
    assert content(reader(max_call_bytes=60).feed(text)) == text


def test_white_space_is_emitted_with_the_following_text() -> None:
    one = reader()
    assert one.feed("a \n") == [Text("a")]
    assert one.feed(" b") == [Text(" \n b")]


# The end


@pytest.mark.parametrize(
    "before", ["a", "a ", "<bash>\n<command>ls", CALL, "```\n", "a `", "<think>Hm", "a <ba", '{"name": "bash", "argu']
)
@pytest.mark.parametrize("dialect", ["tag", "hermes", "bare-json"])
def test_block_after_a_pause_is_read_from_the_start(before: str, dialect: str) -> None:
    """The block before it ends like a reply."""
    written = write_calls([ToolCall("bash", '{"command": "ls"}')], DIALECTS[dialect], AGENT)
    one, other = reader(dialect), reader(dialect)
    assert [*one.feed(before), *one.pause()] == [*other.feed(before), *other.finish()]
    events = [*one.feed(written), *one.finish()]
    assert [event.call.name for event in events if isinstance(event, Call)] == ["bash"]
    assert raw(events) == written


def test_nothing_remains_after_finish() -> None:
    one = reader()
    one.feed(f"Look: {CALL} <ba")
    one.finish()
    assert one.finish() == []


@pytest.mark.parametrize("cut", range(1, len(CALL)))
def test_release_returns_buffered_characters_as_text(cut: int) -> None:
    one = reader()
    events = [*one.feed("Look: \n" + CALL[:cut]), *one.release()]
    assert content(events) == "Look: \n" + CALL[:cut]
    assert raw(events) == content(events)


@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=max(1, EXAMPLES // 10))
@given(data=st.data())
def test_release_loses_nothing(dialect: str, data: st.DataObject) -> None:
    text = draw_text(data, [DIALECTS[dialect]])
    one = reader(dialect, begins=data.draw(st.sampled_from(["text", "reasoning"])))
    assert raw([*one.feed(text), *one.release()]) == text


def test_release_keeps_complete_calls_and_gives_a_reason_for_another() -> None:
    one = reader()
    (call,) = one.feed(CALL + "\n<bash>")
    assert isinstance(call, Call)
    _, refusals = merge_events(one.release())
    assert refusals == [("the reply has native tool calls", "tag", "bash")]


def test_release_in_a_code_block_that_may_be_the_whole_reply() -> None:
    text = '```json\n{"name": "bash", "arguments": {"command": "ls"}}\n``'
    one = reader("bare-json")
    assert content([*one.feed(text), *one.release()]) == text


def test_buffered_reasoning_is_released_as_reasoning() -> None:
    one = reader()
    assert [*one.feed("<think>hm </thi"), *one.release()] == [Markup("<think>"), Reasoning("hm "), Reasoning("</thi")]


@pytest.mark.parametrize("dialect", ["hermes", "bare-json"])
@pytest.mark.parametrize("behind", ["", "x", "</tool_call>", "\n```", "\n<bash>", '\n{"name": "list_files"}'])
@pytest.mark.parametrize("before", ["", "<tool_call>", "```json\n"])
def test_more_white_space_than_is_waited_for(dialect: str, before: str, behind: str) -> None:
    text = before + '{"name": "list_files", "arguments": {}}' + " " * 300 + behind
    whole = read([text], [DIALECTS[dialect]])
    assert merge_events(read(text, [DIALECTS[dialect]])) == merge_events(whole)
    assert raw(whole) == text


# Text that needs no reading


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_plain_text_is_emitted_unchanged(data: st.DataObject) -> None:
    fed, notified = (Reader(compile_grammar(tuple(SIX), THINK), AGENT) for _ in range(2))
    before = draw_text(data, SIX) + data.draw(st.sampled_from(["", "x", " x", ">", "\n> x", "x `y"]))
    assert fed.feed(before) == notified.feed(before)
    rule = notified.plain_rule
    if rule is None or notified.has_pending_whitespace:
        return
    pieces = st.sampled_from(["`", "``", "~~~", "`a`", " ", "\n", "\n\n", "a"])
    characters = pieces | st.characters(codec="utf-8")
    text = "".join(data.draw(st.lists(characters.filter(lambda piece: not {*piece} & {*rule.stop}), min_size=1)))
    in_line = text.rpartition("\n")[2].strip(" \t\r>")
    starts = re.search(rf"\n[ \t>]*[{rule.starts}]", text) if rule.starts else None
    lines = re.search(rf"\n[{rule.lines}]", text) if rule.lines else None
    if text[-1] in " \t\r\n" + rule.later or not in_line or starts or lines:
        return
    assert merge_events(fed.feed(text)) == merge_events([Text(text)])
    notified.record_forwarded(text)
    assert notified.plain_rule == fed.plain_rule
    assert notified.plain_rule == rule or (rule.later and rule.later in text)
    after = data.draw(st.sampled_from(["", "`", "\n", "\n```\n"])) + draw_text(data, SIX)
    assert merge_events([*notified.feed(after), *notified.finish()]) == merge_events([*fed.feed(after), *fed.finish()])


@pytest.mark.parametrize("text", ["", "x\n", "x\n>", "x\n> ", "x<", CALL, f"x{CALL}", "<bash><command>", "<think>"])
def test_all_text_must_be_fed_at_line_starts_and_next_to_buffered_markup(text: str) -> None:
    one = reader()
    one.feed(text)
    assert one.plain_rule is None


@given(st.data())
@settings(max_examples=EXAMPLES)
def test_buffered_white_space_may_be_sent_by_the_fast_path(data: st.DataObject) -> None:
    fed, spaced = (Reader(compile_grammar(tuple(SIX), THINK), AGENT) for _ in range(2))
    text = draw_text(data, SIX) + data.draw(st.sampled_from(["x ", "a\tb  ", "x\n", "> x "]))
    assert fed.feed(text) == spaced.feed(text)
    if (rule := spaced.plain_rule) is None:
        return
    space = spaced.release_whitespace()
    assert text.endswith(space)
    assert spaced.plain_rule == rule
    after = "word" + draw_text(data, SIX)
    events = [Text(space), *spaced.feed(after), *spaced.finish()]
    assert merge_events(events) == merge_events([*fed.feed(after), *fed.finish()])


def test_the_characters_that_stop_plain_text_are_those_that_open_markup() -> None:
    one = reader()
    one.feed("Hello")
    assert one.plain_rule is not None
    assert (one.plain_rule.stop, one.plain_rule.later) == ("<", "`")
    assert {*one.plain_rule.starts} == {*"`~"}
    assert {*one.plain_rule.lines} == {*" \t>"}


# Messages of several blocks


def test_pause_decides_buffered_text_like_the_end() -> None:
    for text in ("Hi. <ba", "Hi. <bash>\n<command>ls</command>\n", "a ` <bash>", "<think>hm", "x \n", CALL):
        one, other = reader(), reader()
        assert [*one.feed(text), *one.pause()] == [*other.feed(text), *other.finish()]


def test_after_a_pause_the_next_block_is_read_from_its_beginning() -> None:
    one = reader("bare-json", begins="reasoning")
    assert raw([*one.feed("hm"), *one.pause()]) == "hm"
    json_ = '{"name": "bash", "arguments": {"command": "ls"}}'
    for text in ("Hi. `", "<think>so</think>", "~~~\nx"):
        assert raw([*one.feed(text), *one.pause()]) == text
        assert not one.in_reasoning
        assert calls([*one.feed(json_), *one.pause()]) == [("bash", {"command": "ls"})]
    assert raw([*one.feed("Bye."), *one.finish()]) == "Bye."


# Calls in code, for a dialect whose markers have no other meaning

SPECIAL = parse_dialect("{kind: dialect, name: special, call: '<|call|>{json}<|end|>', in_code: call}")


ANYWHERE = ["```\n{}\n```", "`{}`", "{}", "~~~x\n{}\n", "So:\n\n    x = {}", "> so {}", "So:\n>so {}\n"]


@pytest.mark.parametrize("around", ANYWHERE)
def test_calls_in_code_count_if_the_dialect_allows_them(around: str) -> None:
    text = around.replace("{}", '<|call|>{"name": "bash", "arguments": {"command": "ls"}}<|end|>')
    events = read([text], [SPECIAL, DIALECTS["tag"]])
    assert calls(events) == [("bash", {"command": "ls"})]
    assert merge_events(read(text, [SPECIAL, DIALECTS["tag"]])) == merge_events(events)


# Long replies


@pytest.mark.rest
def test_a_reply_that_is_read_at_once_takes_time_in_proportion_to_its_length() -> None:
    """If earlier text were copied for each token, eight times the text would take 64 times as long."""
    prose = "Use `code` and <b>tags</b>; 1 < 2, and a <tool_call> is none.\n\n```py\nx = '<bash>'\n```\n"

    def seconds(count: int) -> float:
        one = reader()
        started = time.process_time()
        one.feed(prose * count)
        one.finish()
        return time.process_time() - started

    seconds(100)
    assert seconds(12_000) < 20 * min(seconds(1_500) for _ in range(3))


def test_a_long_text_is_not_kept() -> None:
    one = reader()
    for _ in range(2_000):
        one.feed("A line of text, and no call in it.\n")
    assert one.held_characters < 100


@pytest.mark.parametrize("limit", [100, 1_000])
def test_a_call_that_is_too_long_is_not_kept(limit: int) -> None:
    one = reader(max_call_bytes=limit)
    one.feed("<write_file><path>a</path><content>")
    emitted = "".join(raw(one.feed("0123456789")) for _ in range(1_000))
    assert len(emitted) > 10_000 - limit
    assert one.held_characters < 100


def test_a_long_text_is_read_in_pieces_to_the_same_end() -> None:
    call = "<read>\n<path>a</path>\n</read>"
    prose = "word [ { < " * 20_000
    for text in (prose, f"{prose}\n\n{call}\n{call}\n", f"{call}\n{call}{' ' * 200_000}\n{prose}"):
        whole = reader()
        events = [*whole.feed(text), *whole.finish()]
        steps = reader()
        parts = [event for at in range(0, len(text), 1_000) for event in steps.feed(text[at : at + 1_000])]
        assert merge_events(events) == merge_events([*parts, *steps.finish()])
    one = reader()
    assert one.feed(f"{prose}.") == [Text(f"{prose}.")]


@pytest.mark.parametrize("name", [name for name, one in DIALECTS.items() if one.params])
@pytest.mark.parametrize("after", ["<arguments>", "<input>x</input>", "</x>"])
def test_an_element_after_a_parameter_that_is_too_long_is_content_as_after_any(name: str, after: str) -> None:
    dialect = DIALECTS[name]
    text = write_calls([ToolCall("bash", json.dumps({"command": "x" * 200}))], dialect, AGENT)
    close = text.rindex("<") if dialect.names == "declared" else text.index("x" * 200) + 200
    text = text[:close] + after + text[close:]
    events = read([text], [dialect], max_call_bytes=100)
    assert content(events) == text
    assert merge_events(read(text, [dialect], max_call_bytes=100)) == merge_events(events)


@pytest.mark.parametrize(
    "name", [name for name, one in DIALECTS.items() if one.params and one.section_anchor != "message"]
)
@pytest.mark.parametrize("key", ["content", "other"])
def test_a_call_that_a_call_of_too_many_bytes_quotes_is_none(name: str, key: str) -> None:
    dialect = msgspec.structs.replace(DIALECTS[name], json_body=False)
    quoted = write_calls([ToolCall("bash", '{"command": "rm"}')], dialect, AGENT)
    arguments = {"path": "x" * 200, key: f"Say\n{quoted}\nto remove it.", "more": "x"}
    text = write_calls([ToolCall("write_file", json.dumps(arguments))], dialect, AGENT, for_client=True)
    events = read([text], [dialect], max_call_bytes=100)
    assert calls(events) == []
    assert raw(events) == text
