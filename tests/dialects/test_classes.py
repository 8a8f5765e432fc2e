"""Each kind of malformed call, in every dialect in which it can occur.

The replies use the dialects' own formats. Parameters between tags are tested in `test_parameters.py`, quotations of
whole calls in `tests/profiles/test_shipped.py`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.dialects.material import AGENT, DIALECTS, calls, content, find_body_slot, merge_events, raw, read
from vtc.dialects import Description, ModelFacts
from vtc.dialects.writing import write_calls
from vtc.events import Event, ToolCall, UnreadCall

LIST, FIND = ("bash", {"command": "ls"}), ("read_file", {"path": "docs/a.md"})
QUOTED_ANYWHERE = {name for name, one in DIALECTS.items() if one.may_be_quoted}
"""Dialects that may be quoted; clients that search the whole text for calls would execute a quotation."""
UNPARTED = "leaked"
"""A dialect without closers and markers: only the text between two calls separates them."""
WHOLE_REPLY = {"gemma4-bare", "json-array", "llama3", "name-json", "python-lines", "pythonic", "stripped"}
"""Calls without a marker count only if they are the whole reply: a broken one makes all of it text."""
NO_CLOSING_TAG = {
    *("functionary-v3.2", "gigachat", "granite-20b", "mistral", "mistral-v3", "python-tag"),  # no closer
    *("leaked", "qwen-agent", "react"),
    *(
        "bare-json",
        "gemma4-bare",
        "llama3",
        "name-json",
        "python-lines",
        "stripped",
        "tool-use-dict",
    ),  # no marker
    *(
        "granite",
        "functools",
        "hyperclova",
        "json-array",
        "nemotron-ultra",
        "pythonic",
        "transcript",
    ),  # marker: a bracket
    *("pythonic-line", "sarashina"),
    *("command-r", "tool-code"),  # marker: a fence, which can also open a code block
    "cwm",  # marker: a tag that is searched for only if calls can have any name
    *("cline", "tag"),  # marker: the tool's name, which can be another element's
}


def every(names: set[str] | None = None) -> Any:
    chosen = [pytest.param(one, id=name) for name, one in DIALECTS.items() if names is None or name in names]
    return pytest.mark.parametrize("dialect", chosen, scope="module")


def write_samples(dialect: Description, *made: tuple[str, dict[str, Any]]) -> str:
    return _write_raw(dialect, *((name, json.dumps(arguments)) for name, arguments in made))


@cache
def _write_raw(dialect: Description, *made: tuple[str, str]) -> str:
    return write_calls([ToolCall(*call, f"call{at}") for at, call in enumerate(made)], dialect, AGENT)


def in_pieces(dialect: Description, text: str, **options: Any) -> list[Event]:
    """Return the events of a reply, the same whole and character by character, with no text lost."""
    events = read([text], [dialect], **options)
    assert raw(events) == text
    assert merge_events(read(text, [dialect], **options)) == merge_events(events)
    return events


def is_text(dialect: Description, text: str) -> bool:
    return content(in_pieces(dialect, text)) == text


# Arguments


@every()
def test_an_undeclared_argument_stays_one_of_its_own(dialect: Description) -> None:
    made = ("bash", {"command": "ls -la", "description": "List files"})
    assert calls(in_pieces(dialect, write_samples(dialect, made))) == [made]


KEYS = ("args", "input", "params", "parameters", "kwargs", "tool_input", "options", "x")


@every({name for name, one in DIALECTS.items() if any(find_body_slot(call) == "json" for call in one.calls)})
def test_arguments_under_another_key_are_read_or_refused_and_never_dropped(dialect: Description) -> None:
    made = ("list_files", {"path": "docs"})
    call = next(call for call in dialect.calls if find_body_slot(call) == "json")
    for key in KEYS:
        envelope = msgspec.structs.replace(dialect.json, arguments=(key,))
        text = write_samples(msgspec.structs.replace(dialect, call=call, json=envelope), made)
        for flat in (text, re.sub(rf'"{key}": \{{(.*?)\}}', r"\1", text)):
            assert calls(in_pieces(dialect, flat)) in ([made], []), flat


@every()
def test_a_call_whose_argument_lost_its_name_is_not_made_without_it(dialect: Description) -> None:
    text = write_samples(dialect, ("list_files", {"path": "docs"}))
    for broken in (text.replace("path", ""), text.replace("path", "?")):
        for _, arguments in calls(in_pieces(dialect, broken)):
            assert [*arguments.values()] == ["docs"]


# After a call

TAG = re.compile(r"\]<\]minimax\[>\[</\w+>|<\|close\|>\w+<\|sep\|>|<[^<>]+>|\[/\w+\]")
"""A closing tag of any dialect, inside of the text after the arguments."""


@every(set(DIALECTS) - NO_CLOSING_TAG)
def test_closing_tags_after_a_call_that_close_nothing_are_not_shown(dialect: Description) -> None:
    text = write_samples(dialect, LIST)
    tag = TAG.findall(text)[-1]
    for orphans in (tag, f"{tag}{tag}", f"{tag}\n{tag}\n"):
        events = in_pieces(dialect, f"Look.\n{text}\n{orphans}")
        assert calls(events) == [LIST]
        assert content(events) == "Look."


def test_those_without_a_closing_tag_are_all_known() -> None:
    assert set(DIALECTS) >= NO_CLOSING_TAG


@every()
@pytest.mark.parametrize("complete", [True, False])
def test_of_two_calls_the_first_is_made_if_the_second_is_cut_off(dialect: Description, complete: bool) -> None:
    text = write_samples(dialect, LIST, FIND)
    cut = text[: text.rindex("docs") + 2]
    events = in_pieces(dialect, cut, complete=complete)
    assert calls(events) == ([] if dialect.name in WHOLE_REPLY else [LIST])
    refusal = next(event for event in events if isinstance(event, UnreadCall))
    why = "the reply ends inside it" if complete else "the reply was cut off inside it"
    assert (refusal.reason, refusal.left_out) == (why, dialect.name not in WHOLE_REPLY)
    if refusal.left_out:
        assert content(events) == ""


# Calls that are not delivered

LINES = {"indented": "    ", "tabbed": "\t", "quoted": "> "}
QUOTES = {
    "in indented code": "So:\n\n    {indented}\n\nDone.",
    "in indented code at the end": "So:\n\n    {indented}",
    "in a line of indented code": "So:\n\n    x = {indented}\n    y\n\nDone.",
    "in the last line of indented code": "So:\n\n\tx\n\t# for example: {tabbed}",
    "in a line that quotes": "> For example {quoted}\n> and so on.\n\nDone.",
    "in the last line of those that quote": "So:\n > Say\n >For example {quoted}",
    "in a code block": "So:\n```xml\n{call}\n```\nDone.",
    "in a code block at the end": "So:\n~~~\n{call}\n~~~",
    "in a code block that holds an indented fence": "So:\n```md\n- x\n    ```\n{call}\n```\nDone.",
    "in a code block that holds a quoted fence": "So:\n  ~~~\n> ~~~\n{call}\n  ~~~\nDone.",
    "in a comment": "So:\n<!--\n{call}\n-->\nDone.",
    "in an element with attributes": "So:\n<pre class='x'>\n{call}\n</pre>\nDone.",
    "in an element that is folded": "So:\n<details>\n<summary>x</summary>\n\n{call}\n</details>\nDone.",
    "in thoughts that no profile knows": "<think>\nI might write:\n{call}\n</think>\nDone.",
}


@every(QUOTED_ANYWHERE)
@pytest.mark.parametrize("quote", QUOTES.values(), ids=QUOTES.keys())
def test_a_call_that_is_quoted_stays_text(dialect: Description, quote: str) -> None:
    call = write_samples(dialect, LIST).strip()
    lines = {name: call.replace("\n", f"\n{start}") for name, start in LINES.items()}
    assert is_text(dialect, quote.format(call=call, **lines))


AMID_LINES = {name for name, dialect in DIALECTS.items() if not (dialect.anchor == "line" or dialect.ends_reply)}


def amid(dialect: Description, before: str, after: str, tool: str = "bash", own: bool = False) -> list[Any]:
    """Return the calls of a reply with one call between two texts on its line."""
    text = f"{before}{write_samples(dialect, (tool, LIST[1])).strip()}{after}"
    facts = ModelFacts(tokens=frozenset([dialect.name] if own else []))
    events = in_pieces(dialect, text, facts=facts, unknown_tools="allow")
    assert calls(events) or content(events) == text
    return calls(events)


IN_A_SENTENCE = [
    ("It writes ", " then."),
    ("In the log stands ", " and nothing ran."),
    ("First.\nThen ", ", and so on.\nLast."),
    ("See ", " (that is wrong)"),
    ("(Its <b>form</b> is </b>", '</b>: "so" it goes'),
    ("Es heißt ", " → über"),
]
BETWEEN_SENTENCES = [
    ("I look. ", " Let me know."),
    ("**Step one!**\n*Now.* ", "。 Äpfel"),
    ("我查一下。", " 请稍等。"),
    ('Is "it" so?</p> ', "<|im_end|> Then"),
]
"""Words on both sides of a call, on its line."""


@every(QUOTED_ANYWHERE)
@pytest.mark.parametrize("own", [False, True])
def test_a_call_in_a_sentence_is_text(dialect: Description, own: bool) -> None:
    """This holds for one line or more, and for tags or special tokens of the model."""
    for before, after in (*IN_A_SENTENCE, ("It writes '", "' then."), ("I look. '", "' Then")):
        assert amid(dialect, before, after, own=own) == []


@every((QUOTED_ANYWHERE & AMID_LINES) - WHOLE_REPLY)
@pytest.mark.parametrize("own", [False, True])
def test_a_call_between_two_sentences_is_one(dialect: Description, own: bool) -> None:
    """On one line this requires an offered tool, or special tokens of the model."""
    sure = "\n" in write_samples(dialect, LIST).strip() or (own and bool(dialect.tokens))
    for before, after in BETWEEN_SENTENCES:
        assert amid(dialect, before, after, own=own) == [LIST]
        alone = amid(dialect, before, "", "other", own)
        assert amid(dialect, before, after, "other", own) == (alone if sure else [])
    for before, after in (("Look: ", " Then"), ("Look： ", " then"), ("Look. ", " then"), ("Look. ", " 2.")):
        assert amid(dialect, before, after, own=own) == ([LIST] if sure else [])
    for before, after in (("Look ", " Then"), ("Look, ", " 2.")):
        assert amid(dialect, before, after, own=own) == ([LIST] if sure else [])
        assert amid(dialect, before, after, "other", own=own) == []


ENDED = {
    "an indented code block": "1. So:\n\n    ```\n    x\n    ```\n\n",
    "a code block whose closing fence stands deeper": "```\nx\n   ```\n",
    "a code block whose closing fence is not quoted any more": "> ```\n> x\n```\n",
    "a comment": "<!-- x -->\n",
    "an element with attributes": "<details open>\nx\n</details>\n\n",
    "an element whose name only begins like one that quotes": "<preface class='x'>\n",
}


@every({name for name in DIALECTS if name not in WHOLE_REPLY})
@pytest.mark.parametrize("before", ENDED.values(), ids=ENDED.keys())
def test_call_after_a_closed_quotation_is_made(dialect: Description, before: str) -> None:
    assert calls(in_pieces(dialect, before + write_samples(dialect, LIST).strip())) == [LIST]


@every(set(DIALECTS) - QUOTED_ANYWHERE - WHOLE_REPLY)
@pytest.mark.parametrize("text", ["So:\n\n    x = {call}", "> For example {call}\n", "So:\n> {call}\n> y"])
def test_a_call_for_clients_that_look_everywhere_is_made_in_any_line(dialect: Description, text: str) -> None:
    assert calls(in_pieces(dialect, text.format(call=write_samples(dialect, LIST).strip()))) == [LIST]


@every((QUOTED_ANYWHERE & AMID_LINES) - {UNPARTED} - WHOLE_REPLY)
def test_calls_inside_a_line_are_treated_equally(dialect: Description) -> None:
    """They are quoted if one sentence surrounds them, and all made if they are between two sentences."""
    both = (
        write_samples(dialect, LIST, FIND)
        if dialect.sections
        else write_samples(dialect, LIST) + write_samples(dialect, FIND)
    )
    assert is_text(dialect, f"It writes {both.strip()} then.")
    assert calls(in_pieces(dialect, f"It is so. {both.strip()} Then on.")) == [LIST, FIND]
    for after in ("", "\nDone."):
        events = in_pieces(dialect, f"I look: {both.strip()}{after}")
        assert calls(events) == [LIST, FIND]
        assert content(events).split() == ["I", "look:", *after.split()]
    cut = both[: both.rindex("docs") + 2]
    assert calls(in_pieces(dialect, f"I look: {cut.strip()}")) == [LIST]


@every({name for name in DIALECTS if name not in WHOLE_REPLY})
def test_calls_on_lines_of_their_own_after_an_introduction_are_made(dialect: Description) -> None:
    """Models call tools like this; text after the calls is no quotation, either, if it is on separate lines."""
    both = (
        write_samples(dialect, LIST, FIND)
        if dialect.sections
        else f"{write_samples(dialect, LIST)}\n{write_samples(dialect, FIND)}"
    )
    for after in ("", "\n", *(() if dialect.ends_reply else ("\n\nDone.",))):
        events = in_pieces(dialect, f"I look:\n{both.strip()}{after}")
        assert calls(events) == [LIST, FIND]
        assert content(events).split() == ["I", "look:", *after.split()]


@every({name for name in DIALECTS if name not in WHOLE_REPLY})
def test_an_indented_call_at_the_very_beginning_is_made(dialect: Description) -> None:
    """Nothing introduces it as an example."""
    call = write_samples(dialect, LIST).strip()
    for indented in (f"    {call}", f"\n\n\t{call}"):
        assert calls(in_pieces(dialect, indented)) == [LIST]


@every({name for name in QUOTED_ANYWHERE - WHOLE_REPLY if DIALECTS[name].tokens})
def test_indented_code_quotes_a_call_in_special_tokens_if_words_follow(dialect: Description) -> None:
    """At the end of the reply, it is a call of the model."""
    call, own = (
        write_samples(dialect, LIST).strip().replace("\n", "\n    "),
        ModelFacts(tokens=frozenset([dialect.name])),
    )
    assert calls(in_pieces(dialect, f"The form is:\n\n    {call}\n\nSo it goes.")) == []
    for before, after in (("", "\n\nSo it goes."), ("x = 1\n    ", "\nSo."), ("", f"\n\n    {call}\n    y")):
        events = in_pieces(dialect, f"The form is:\n\n    {before}{call}{after}", facts=own)
        assert calls(events) == []
        assert "So it goes." in content(events) or after != "\n\nSo it goes."
    for before, after, count in (("", "", 1), ("x = 1\n    ", "\n", 1), ("", f"\n    {call}", 2)):
        assert calls(in_pieces(dialect, f"I look:\n\n    {before}{call}{after}", facts=own)) == [LIST] * count


@every()
def test_a_call_in_thoughts_that_an_answer_follows_is_none(dialect: Description) -> None:
    """All dialects are armed, so that one grammar is enough."""
    text = f"<think>\nI might write:\n{write_samples(dialect, LIST)}\n</think>\n\nIt is done."
    events = read([text], DIALECTS.values(), tags=(("<think>", "</think>"),))
    assert calls(events) == []
    assert content(events).strip() == "It is done."


@every()
def test_a_call_of_a_tool_that_is_not_offered_stays_text(dialect: Description) -> None:
    text = write_samples(dialect, ("rm", {"path": "/"}))
    assert is_text(dialect, text)
    assert is_text(dialect, f"Look.\n{text}")
