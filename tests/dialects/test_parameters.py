"""Parameters between tags in every dialect that has them: the end of a value, and markup that a value quotes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import msgspec
import pytest

from tests.dialects.material import (
    DIALECTS,
    CallSyntax,
    calls,
    content,
    find_body_slot,
    merge_events,
    parse_dialect,
    random_cuts,
    raw,
    read,
    single_cuts,
)
from vtc.dialects import Description
from vtc.events import Call, Event, Tool, UnreadCall

TAGGED = {
    name: dialect
    for name, dialect in DIALECTS.items()
    if any(find_body_slot(call) == "params" for call in dialect.calls)
}
EACH = pytest.mark.parametrize("dialect", TAGGED.values(), ids=TAGGED.keys())
QUOTED = [name for name, one in TAGGED.items() if CallSyntax(one, one.calls[0]).parameters.ends_with_quote]
"""Dialects in which a quotation mark ends a value: a value can end with more of them, and contain text that resembles
an opener. Such values are kept or refused, as in `tests/cases/reading/tool-hash.yaml`.
"""
WITH_TAGS = {name: one for name, one in TAGGED.items() if name not in QUOTED}
EACH_WITH_TAGS = pytest.mark.parametrize("dialect", WITH_TAGS.values(), ids=WITH_TAGS.keys())
STRING = {"type": "string"}
TOOLS = {
    name: Tool(name, parameters={"type": "object", "properties": dict.fromkeys(keys, STRING), "required": [keys[0]]})
    for name, keys in {"bash": ("command", "workdir"), "write": ("filePath", "content")}.items()
}
TOOLS["bash"].parameters["properties"]["timeout"] = {"type": "integer"}


def closer(dialect: Description, key: str) -> str:
    """Return the closing tag of a parameter."""
    return dialect.params[0].partition("{value}")[2].replace("{key}", key)


def opener(dialect: Description, key: str) -> str:
    before = dialect.params[0].partition("{value}")[0]
    return before.format(key=key, string="true", type="string")


def call(dialect: Description, name: str, arguments: Mapping[str, str], closers: int = 1, last: str = "") -> str:
    """Render a call without its section, and with this number of closing tags for each parameter."""
    params = [
        opener(dialect, key) + value + closer(dialect, key).rstrip() * (closers - 1) + closer(dialect, key)
        for key, value in arguments.items()
    ]
    written = next(text for text in dialect.calls if find_body_slot(text) == "params")
    return written.format(name=name, id="c1", index=0, number=1, params="".join(params) + last)


def reply(dialect: Description, text: str) -> str:
    return dialect.sections[0].format(calls=text) if dialect.sections else text


def every_cut(dialect: Description, text: str, *, singly: bool = False) -> list[Event]:
    """Return the events of a reply, which no cut changes; with `singly`, a cut at every position is tried, too."""
    events = read([text], [dialect], TOOLS)
    assert raw(events) == text
    for cut in chain([[*text]], random_cuts(text), single_cuts(text) if singly else ()):
        assert merge_events(read(cut, [dialect], TOOLS)) == merge_events(events), cut
    return events


def repairs(events: list[Event]) -> list[str]:
    return [repair for event in events if isinstance(event, Call) for repair in event.repairs]


UNDECLARED = {
    "first": {"description": "List files", "command": "ls -la"},
    "in the middle": {"command": "ls -la", "description": "List files", "workdir": "src"},
    "last": {"command": "ls -la", "description": "List files"},
}


@EACH
@pytest.mark.parametrize("arguments", UNDECLARED.values(), ids=UNDECLARED.keys())
def test_undeclared_parameter_is_an_argument_and_reported(dialect: Description, arguments: dict[str, str]) -> None:
    events = every_cut(dialect, reply(dialect, call(dialect, "bash", arguments)), singly="workdir" in arguments)
    assert calls(events) == [("bash", arguments)]
    assert repairs(events) == ["undeclared:description"]
    assert content(events) == ""


@EACH
def test_several_undeclared_parameters_are_arguments(dialect: Description) -> None:
    arguments = {"command": "ls", **{f"other{i}": str(i) for i in range(20)}}
    events = read([reply(dialect, call(dialect, "bash", arguments))], [dialect], TOOLS)
    assert calls(events) == [("bash", arguments)]


@EACH_WITH_TAGS
@pytest.mark.parametrize("count", [2, 3])
def test_a_run_of_closing_tags_is_one_closing_tag(dialect: Description, count: int) -> None:
    arguments = {"filePath": "a.py", "content": "x"}
    events = every_cut(dialect, reply(dialect, call(dialect, "write", arguments, count)), singly=count == 2)
    assert calls(events) == [("write", arguments)]
    assert repairs(events) == ["doubled-closer"]


@EACH_WITH_TAGS
@pytest.mark.parametrize("key", ["arguments", "input", "parameters", "kwargs"])
def test_a_parameter_that_holds_all_arguments_is_unwrapped(dialect: Description, key: str) -> None:
    text = '{"command": "ls <x>\\n", "timeout": "5", "description": "List files"}'
    events = every_cut(dialect, reply(dialect, call(dialect, "bash", {key: text})))
    assert calls(events) == [("bash", {"command": "ls <x>\n", "timeout": 5, "description": "List files"})]
    is_own = any(f"<{key}>" in text for text in dialect.calls)
    assert repairs(events) == [*["arguments-key"] * (not is_own), "typed:timeout", "undeclared:description"]


@EACH
@pytest.mark.parametrize("text", ['{"other": 1}', '["command"]', '{"command": "ls"', "command"])
def test_a_parameter_that_holds_something_else_is_not_unwrapped(dialect: Description, text: str) -> None:
    events = read([reply(dialect, call(dialect, "bash", {"input": text}))], [dialect], TOOLS)
    assert not any("command" in arguments for _, arguments in calls(events))


QUOTES = {
    "alone": "{call}",
    "among text": "Write:\n{call}\nEnd.",
    "twice": "{call}\n{call}",
    "between its tags' names": "{call} and {closer} or {call}.",
}


@EACH
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("text", QUOTES.values(), ids=QUOTES.keys())
@pytest.mark.parametrize("name", ["bash", "write", "other"])
def test_a_call_that_a_value_quotes_whole_is_content(dialect: Description, name: str, text: str, last: bool) -> None:
    keys = {"write": ("filePath", "content")}.get(name, ("command", "workdir"))
    quoted = call(dialect, name, dict.fromkeys(keys, "ls"))
    value = f"a {text} b".format(call=quoted, closer=closer(dialect, "content").strip())
    arguments = {"filePath": "a.md", "content": value} if last else {"content": value, "filePath": "a.md"}
    whole = reply(dialect, call(dialect, "write", arguments))
    events = every_cut(dialect, whole) if text == QUOTES["among text"] else read([whole], [dialect], TOOLS)
    frame = "\n" if dialect.params[0].partition("{value}")[2].startswith("\n") else ""
    assert calls(events) == [("write", {key: entry.removesuffix(frame) for key, entry in arguments.items()})]
    assert repairs(events) == []


@EACH
def test_parameters_that_a_value_quotes_whole_are_content(dialect: Description) -> None:
    quoted = "".join(f"{opener(dialect, key)}x{closer(dialect, key)}" for key in ("content", "description"))
    arguments = {"filePath": "a.md", "content": f"a {quoted} b"}
    events = every_cut(dialect, reply(dialect, call(dialect, "write", arguments)))
    assert calls(events) == [("write", arguments)]


ENDS = {name: end for name, one in TAGGED.items() if (end := closer(one, "content").strip()).startswith("</")}
"""The closing tags that an element of a document can end with, too."""
WRAPPERS = {
    name: end
    for name, one in TAGGED.items()
    if name in ENDS and (end := CallSyntax(one, one.calls[0]).closers.list_tags("write")[0]).startswith("</")
}
"""The closing tags of their calls that an element can end with, too."""
ELEMENTS = {
    "one": '<{tag} class="x">1</{tag}>',
    "empty": '<{tag} class="x" />',
    "both": '<{tag} a="/"/>\n<{tag} a="b">1</{tag}>',
    "plain": "<{tag}>\n  <level>3</level>\n</{tag}>",
    "plain and empty": "<{tag}/>\n<{tag} />\n<{tag}>1</{tag}>",
    "two in a row": "<{tag}>1</{tag}>\n<{tag}>2</{tag}>",
    "nested": "<{tag}><{tag}>1</{tag}></{tag}>",
    "in a call's": "<{call}>\n<{tag}>1</{tag}>\n</{call}>",
    "in two calls'": '<{call} a="b"><{tag}>1</{tag}></{call}>\n<{call}/>\n<{call}>\n  <{tag}>2</{tag}>\n</{call}>',
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("text", ELEMENTS.values(), ids=ELEMENTS.keys())
def test_an_element_that_is_named_like_a_closing_tag_is_content(name: str, text: str, last: bool) -> None:
    """The element is in a document inside the value: its opening tag has other attributes than a parameter's."""
    dialect, value = TAGGED[name], text.format(tag=ENDS[name][2:-1], call=WRAPPERS.get(name, "</call>")[2:-1])
    arguments = {"filePath": "a.xml", "content": value} if last else {"content": value, "filePath": "a.xml"}
    events = every_cut(dialect, reply(dialect, call(dialect, "write", arguments)))
    assert calls(events) == [("write", arguments)]
    assert repairs(events) == []


WORDS = {
    "a parameter's": "the <{tag}> tag",
    "both": "the <{call}> tag, and then <{tag}>",
    "a call's": "the <{call}> tag",
}


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("text", WORDS.values(), ids=WORDS.keys())
def test_an_opening_tag_that_is_a_word_takes_no_end_from_its_call(name: str, text: str, last: bool) -> None:
    dialect, value = TAGGED[name], text.format(tag=ENDS[name][2:-1], call=WRAPPERS.get(name, "</call>")[2:-1])
    arguments = {"filePath": "a.xml", "content": value} if last else {"content": value, "filePath": "a.xml"}
    again = call(dialect, "bash", {"command": "ls"})
    for more, wanted in (("", []), (again, [("bash", {"command": "ls"})])):
        events = every_cut(dialect, reply(dialect, call(dialect, "write", arguments) + "\n" + more))
        assert calls(events) == [("write", arguments), *wanted]
        assert {*repairs(events)} <= {"unpaired-opener"}


@EACH_WITH_TAGS
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
def test_repeated_opening_tag_counts_once(dialect: Description, last: bool) -> None:
    value = opener(dialect, "content").strip() + "x"
    written = {"filePath": "a.md", "content": value} if last else {"content": value, "filePath": "a.md"}
    events = every_cut(dialect, reply(dialect, call(dialect, "write", written)))
    assert calls(events) == [("write", {**written, "content": "x"})]
    # GLM's families describe the doubled tag.
    described = any(text.count("{value}") and value[:-1] in text for text in dialect.params)
    assert repairs(events) == ["doubled-opener"] * (not described)


@EACH_WITH_TAGS
def test_a_parameter_that_a_value_holds_whole_is_content_at_its_beginning(dialect: Description) -> None:
    value = f"{opener(dialect, 'content').strip()}x{closer(dialect, 'content').strip()}"
    events = every_cut(dialect, reply(dialect, call(dialect, "write", {"filePath": "a.md", "content": value})))
    assert calls(events) == [("write", {"filePath": "a.md", "content": value})]


@EACH
def test_a_closing_tag_that_text_follows_is_content(dialect: Description) -> None:
    tail = call(dialect, "write", {}).splitlines()[-1]
    arguments = {"filePath": "a.md", "content": f"a {closer(dialect, 'content').strip()} b {tail} c"}
    events = every_cut(dialect, reply(dialect, call(dialect, "write", arguments)))
    assert calls(events) == [("write", arguments)]


SHOUT = parse_dialect(
    "{kind: dialect, name: shout, call: '<<CALL {name}>>{params}<<END>>', param: '<<{key}>>{value}<</{key}>>\n', "
    "optional: ['<<END>>']}"
)


@pytest.mark.parametrize("end", ["<<END>>", ""])
@pytest.mark.parametrize("after", ["", "\nSo."])
def test_a_call_whose_only_closing_tag_may_be_missing(end: str, after: str) -> None:
    arguments = {"command": "a <<CALL bash>> <<END>> b", "description": "x"}
    text = call(SHOUT, "bash", arguments, 2).removesuffix("<<END>>") + end + after
    events = every_cut(SHOUT, text, singly=True)
    assert calls(events) == [("bash", arguments)]
    assert content(events) == after.strip()


NAMED_CLOSERS = {"named": "<</{key}>>", "alike": "<</>>"}


@pytest.mark.parametrize("closing", NAMED_CLOSERS.values(), ids=NAMED_CLOSERS.keys())
def test_a_closing_tag_that_may_be_missing_cuts_no_value(closing: str) -> None:
    """If the tag is present, or a closing tag of the value comes later, the value continues up to there."""
    dialect = msgspec.structs.replace(SHOUT, param=f"<<{{key}}>>{{value}}{closing}\n")
    close, ls, pwd = closer(dialect, "content").strip(), {"command": "ls"}, {"command": "pwd"}
    value = {"filePath": "a.py", "content": f"x{close}\ny"}
    text = call(dialect, "write", value)
    bare, again = text.removesuffix("<<END>>"), call(dialect, "bash", ls)
    for written in (text, bare, f"{text}\n{again}", f"{bare}\n{again}"):
        events = every_cut(dialect, written, singly=written == text)
        assert calls(events) == [("write", value), *[("bash", ls)] * (again in written)]
        assert repairs(events) == []
    for after in ("\nSo.", f"\nSo {close}.", "\nSo. <<END>>"):
        events = every_cut(dialect, bare + after)
        assert calls(events) == []
        assert content(events).strip() == (bare + after).strip()
    bare, other = again.removesuffix("<<END>>"), call(dialect, "bash", pwd).removesuffix("<<END>>")
    for between in ("", "\nNow:\n"):
        events = every_cut(dialect, bare + between + other)
        assert calls(events) == [("bash", ls), ("bash", pwd)]
        assert content(events).strip() == between.strip()


@pytest.mark.parametrize("name", QUOTED)
@pytest.mark.parametrize("count", [2, 3])
def test_all_quotation_marks_but_the_last_are_the_values(name: str, count: int) -> None:
    arguments = {"filePath": "a.py", "content": "x"}
    text = reply(TAGGED[name], call(TAGGED[name], "write", arguments, count))
    more = '"' * (count - 1)
    assert calls(every_cut(TAGGED[name], text)) == [("write", {key: one + more for key, one in arguments.items()})]


@EACH
def test_two_values_for_one_parameter_are_refused(dialect: Description) -> None:
    again = f"{opener(dialect, 'command')}pwd{closer(dialect, 'command')}"
    text = reply(dialect, call(dialect, "bash", {"command": "ls"}, last=again))
    events = every_cut(dialect, text)
    assert calls(events) == []
    assert "'command' is given twice" in [event.reason for event in events if isinstance(event, UnreadCall)]


AGAIN: list[list[tuple[str, str]]] = [
    [("filePath", "a"), ("content", "x"), ("filePath", "b")],
    [("content", "x"), ("filePath", "a"), ("content", "y")],
    [("filePath", "a"), ("content", "x"), ("filePath", "b"), ("content", "y")],
    [("filePath", "a"), ("other", "x"), ("filePath", "b"), ("content", "y")],
    [("filePath", "a"), ("content", "<x>"), ("other", "y"), ("filePath", "b")],
    [("filePath", "a"), ("content", "x"), ("filePath", "a")],
]


@EACH_WITH_TAGS
@pytest.mark.parametrize("given", AGAIN, ids=["".join(key[0] for key, _ in given) for given in AGAIN])
def test_a_parameter_that_is_given_again_later_is_no_part_of_a_value(
    dialect: Description, given: list[tuple[str, str]]
) -> None:
    """A repetition with the same value changes nothing; with another, the call stays text."""
    written = "".join(f"{opener(dialect, key)}{value}{closer(dialect, key)}" for key, value in given)
    text = reply(dialect, call(dialect, "write", {}, last=written))
    events = every_cut(dialect, text)
    assert calls(events) == ([("write", dict(given))] if len(given) == len({*given}) + 1 else [])
    whole = f"{opener(dialect, 'filePath').strip()}b{closer(dialect, 'filePath').strip()}"
    for value in (f"a {whole} b", f"a {closer(dialect, 'content').strip()} b", f"{whole}\n{whole}"):
        arguments = {"filePath": "a", "content": value}
        assert calls(read([reply(dialect, call(dialect, "write", arguments))], [dialect], TOOLS)) == [
            ("write", arguments)
        ]


ALIKE = [name for name, one in WITH_TAGS.items() if CallSyntax(one, one.calls[0]).parameters.shares_closer]


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"description": "1", "cwd": "/x"}),
        ({}, {"cwd": "/x", "description": "y"}),
        ({}, {"cwd": "/x"}),
        ({}, {"cwd": "/x", "env": "a=b"}),
        ({"cwd": "/x"}, {"env": "a=b"}),
        ({"description": "1"}, {"cwd": "/x\n/y"}),
    ],
)
def test_an_undeclared_parameter_after_a_quoted_opener_is_an_argument(
    name: str, before: dict[str, str], after: dict[str, str]
) -> None:
    dialect = DIALECTS[name]
    quoted = opener(dialect, "x").strip()
    for value in (quoted, f"a {quoted} b", f"{quoted}\n{quoted}"):
        arguments = {**before, "command": value, **after}
        events = every_cut(dialect, reply(dialect, call(dialect, "bash", arguments)))
        assert calls(events) == [("bash", arguments)]


@EACH
def test_a_call_that_lost_its_closing_tags_never_takes_the_next_call_for_a_value(dialect: Description) -> None:
    whole = call(dialect, "bash", {"command": "rm"})
    for lost in (closer(dialect, "command").strip(), whole.rpartition(closer(dialect, "command").strip())[2]):
        if not lost.strip():
            continue
        text = reply(dialect, whole.replace(lost, "", 1).rstrip("\n") + "\n" + call(dialect, "bash", {"command": "ls"}))
        for _, arguments in calls(every_cut(dialect, text)):
            assert arguments["command"] in ("rm", "ls")
