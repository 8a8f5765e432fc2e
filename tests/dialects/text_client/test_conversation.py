"""A text client's past turns as calls and results, and calls as it reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.dialects import material
from tests.dialects.material import CASES, DIALECTS
from vtc.dialects import text_client
from vtc.dialects.text_client import (
    NO_RESULT_TEXT,
    find_documented_tools,
    is_readable,
    rewrite_samples,
    write_for_client,
)
from vtc.dialects.writing import convert_to_text, write_calls
from vtc.events import Call, Message, Opaque, Tool, ToolCall

CLINE = DIALECTS["cline"]


def _tools(prompt: str) -> dict[str, Tool]:
    text = (CASES / "prompts" / f"{prompt}.md").read_text("utf-8")
    return {tool.name: tool for tool in find_documented_tools(text).tools}


TOOLS = _tools("cline")
ROO = _tools("roo")
READ = "<read_file>\n<path>a.py</path>\n</read_file>"
LIST = "<list_files>\n<path>.</path>\n</list_files>"
IMAGE = Opaque({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}})


def structure_turns(*messages: Message, tools: Mapping[str, Tool] = TOOLS) -> list[Message]:
    found = text_client.structure_messages(messages, CLINE, tools)
    check(found)
    return found


def check(messages: Sequence[Message]) -> None:
    """Check the demands of every server: unique ids, and the results of all calls right after them."""
    waiting: list[str | None] = []
    ids = [call.id for message in messages for call in message.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    for message in messages:
        if message.role == "tool":
            waiting.remove(message.call_id)
        else:
            assert not waiting, f"{message.role} stands between calls and their results"
        waiting += [call.id for call in message.calls]
    assert not waiting


def assistant(*text: str | Opaque, calls: tuple[ToolCall, ...] = ()) -> Message:
    return Message("assistant", text, calls=calls)


def user(*content: str | Opaque) -> Message:
    return Message("user", content)


def summarize_messages(messages: Sequence[Message]) -> list[tuple[str, ...]]:
    """Return roles and texts, with the calls of an assistant message and the tool of a result."""
    return [
        (message.role, message.text, *(f"{call.name}{call.arguments}" for call in message.calls))
        if message.role != "tool"
        else ("tool", message.text, message.name or "")
        for message in messages
    ]


def calls(messages: Sequence[Message]) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for message in messages for call in message.calls]


# Calls and their results


def test_a_call_and_its_result() -> None:
    found = structure_turns(
        user("Look."), assistant(f"I will.\n\n{READ}"), user("[read_file for 'a.py'] Result:\n1 | x\n", "<details>d")
    )
    assert summarize_messages(found) == [
        ("user", "Look."),
        ("assistant", "I will.", 'read_file{"path":"a.py"}'),
        ("tool", "1 | x\n", "read_file"),
        ("user", "<details>d"),
    ]


def test_messages_without_calls_and_results_stay_the_same_objects() -> None:
    messages = [
        Message("system", ("s",)),
        user("[read_file for 'a'] Result:\nno call before"),
        assistant("Hm."),
        user("?"),
    ]
    assert all(one is other for one, other in zip(structure_turns(*messages), messages, strict=True))


@pytest.mark.parametrize(
    "marker",
    [
        "[read_file for 'a.py'] Result:\n",
        "[read_file for 'a.py'] Result:",
        "[read_file] Result:\n",
        "[read_file for 'a.py', 'b.py'] Result:\n",
        "[read_file for 'a\n[b]\nc.py'] Result:\n",
        "[read_file to 'x' because: of 'y'] Result:\n",
        "[read_file in code mode: 'x'] Result:\n",
    ],
)
def test_the_ways_in_which_a_result_begins(marker: str) -> None:
    (*_, result) = structure_turns(assistant(READ), user(f"{marker}text"))
    assert (result.role, result.text, result.name) == ("tool", "text", "read_file")


def test_multiline_command_is_inside_the_marker() -> None:
    command = (
        "<execute_command>\n<command>\ncat <<X\n[1] ok\nX\n</command>\n"
        "<requires_approval>false</requires_approval>\n</execute_command>"
    )
    found = structure_turns(assistant(command), user("[execute_command for 'cat <<X\n[1] ok\nX'] Result:\n[1] ok"))
    assert summarize_messages(found)[-1] == ("tool", "[1] ok", "execute_command")
    assert calls(found) == [("execute_command", {"command": "cat <<X\n[1] ok\nX", "requires_approval": False})]


def test_a_marker_in_a_part_of_its_own() -> None:
    """In older versions, the next part is the result, and later parts are not."""
    found = structure_turns(assistant(READ), user("[read_file for 'a.py'] Result:", "1 | x", "<details>d"))
    assert summarize_messages(found)[1:] == [("tool", "1 | x", "read_file"), ("user", "<details>d")]


def test_a_result_in_a_message_that_is_one_text() -> None:
    (*_, result) = structure_turns(assistant(READ), user("[read_file for 'a.py'] Result:\n1 | x\n\n<details>d"))
    assert result.text == "1 | x\n\n<details>d"


def test_empty_result_is_empty_and_missing_one_is_marked() -> None:
    empty = structure_turns(assistant(READ), user("[read_file for 'a.py'] Result:", ""))
    assert summarize_messages(empty)[1:] == [("tool", "", "read_file")]
    missing = structure_turns(assistant(READ), user("Never mind."), assistant(READ))
    assert summarize_messages(missing)[1:] == [
        ("tool", NO_RESULT_TEXT, "read_file"),
        ("user", "Never mind."),
        ("assistant", "", 'read_file{"path":"a.py"}'),
        ("tool", NO_RESULT_TEXT, "read_file"),
    ]


def test_the_users_refusal_is_the_result() -> None:
    denied = "[read_file for 'a.py'] Result:\nThe user denied this operation."
    found = structure_turns(assistant(READ), user(denied, "<feedback>Not that one.</feedback>"))
    assert summarize_messages(found)[1:] == [
        ("tool", "The user denied this operation.", "read_file"),
        ("user", "<feedback>Not that one.</feedback>"),
    ]


def test_an_error_turn_stays_a_user_turn() -> None:
    error = f"[ERROR] No tool was used. Write it like this:\n\n{LIST}\n"
    messages = [assistant("I wonder."), user(error, "<details>d")]
    assert all(one is other for one, other in zip(structure_turns(*messages), messages, strict=True))


def test_content_of_results_is_never_parsed() -> None:
    """A tool's output can contain anything, including calls and markers."""
    found = structure_turns(
        assistant(READ), user(f"[read_file for 'a.py'] Result:\n{LIST}\n[list_files for '.'] Result:\nno")
    )
    assert calls(found) == [("read_file", {"path": "a.py"})]
    assert found[-1].text == f"{LIST}\n[list_files for '.'] Result:\nno"


def test_pictures_follow_in_the_users_message() -> None:
    """Results cannot contain pictures in the API."""
    found = structure_turns(assistant(READ), user("[read_file for 'a.png'] Result:", "A picture.", IMAGE, "<details>d"))
    assert summarize_messages(found)[1:] == [("tool", "A picture.", "read_file"), ("user", "<details>d")]
    assert found[-1].content == (IMAGE, "<details>d")
    alone = structure_turns(assistant(READ), user("[read_file for 'a.png'] Result:", IMAGE, "<details>d"))
    assert summarize_messages(alone)[1:] == [("tool", "", "read_file"), ("user", "<details>d")]
    assert alone[-1].content == (IMAGE, "<details>d")


def test_two_calls_of_one_turn() -> None:
    both = assistant(f"{READ}\n\n{LIST}")
    found = structure_turns(both, user("[list_files for '.'] Result:\nl", "[read_file for 'a.py'] Result:\nr"))
    assert summarize_messages(found)[1:] == [("tool", "l", "list_files"), ("tool", "r", "read_file")]
    first = structure_turns(
        both, user("[read_file for 'a.py'] Result:\nr", "[list_files] was not used: one tool a message.")
    )
    assert summarize_messages(first)[1:] == [
        ("tool", "r", "read_file"),
        ("tool", NO_RESULT_TEXT, "list_files"),
        ("user", "[list_files] was not used: one tool a message."),
    ]


def test_the_same_call_twice_in_one_turn() -> None:
    found = structure_turns(assistant(f"{READ}\n{READ}"), user(*["[read_file for 'a.py'] Result:\n" + x for x in "ab"]))
    assert [message.text for message in found[1:]] == ["a", "b"]


def test_results_in_messages_of_their_own() -> None:
    found = structure_turns(
        assistant(f"{READ}\n{LIST}"),
        user("[read_file for 'a.py'] Result:\nr", "first"),
        user("[list_files for '.'] Result:\nl", "second"),
    )
    assert summarize_messages(found)[1:] == [
        ("tool", "r", "read_file"),
        ("tool", "l", "list_files"),
        ("user", "first"),
        ("user", "second"),
    ]


def test_text_around_a_call_is_kept() -> None:
    found = structure_turns(assistant(f"One\n\n{READ}\n\ntwo."), user("[read_file for 'a.py'] Result:\nr"))
    assert found[0].text.split() == ["One", "two."]


def test_parts_of_an_assistants_turn_are_read_as_one() -> None:
    found = structure_turns(assistant("I will.\n\n<read_file>\n<path>a.", "py</path>\n</read_file>", IMAGE))
    assert calls(found) == [("read_file", {"path": "a.py"})]
    assert found[0].content == ("I will.", IMAGE)


@pytest.mark.parametrize(
    "text",
    [
        "<read_file>\n<path>a.py",
        "<read_file>\n</read_file>",
        "<unknown>\n<path>a</path>\n</unknown>",
        "<div><p>x</p></div>",
        f"`{READ}` is how",
        f"```xml\n{READ}\n```",
    ],
)
def test_other_text_stays_text(text: str) -> None:
    messages = [assistant(text), user("[read_file for 'a.py'] Result:\nr")]
    assert all(one is other for one, other in zip(structure_turns(*messages), messages, strict=True))


def test_a_turn_that_is_structured_already_keeps_its_calls_and_results() -> None:
    """The turn is older than the proxy, or its client uses both formats."""
    own = assistant("", calls=(ToolCall("read_file", '{"path":"a"}', "call_own"),))
    result = Message("tool", ("none",), call_id="call_own", name="read_file")
    messages = [own, result, user("[read_file for 'a'] Result:\nr")]
    assert all(one is other for one, other in zip(structure_turns(*messages), messages, strict=True))
    both = structure_turns(assistant(READ, calls=own.calls), result, user("[read_file for 'a.py'] Result:\nr"))
    assert calls(both) == [("read_file", {"path": "a"}), ("read_file", {"path": "a.py"})]
    assert [message.text for message in both if message.role == "tool"] == ["none", "r"]


# Ids


def test_ids_stay_the_same_while_the_conversation_grows() -> None:
    turns = [
        message
        for text in (READ, LIST, READ, f"{READ}\n{READ}")
        for message in (assistant(text), user("[read_file for 'a.py'] Result:\nr"))
    ]
    whole = structure_turns(*turns)
    for count in range(0, len(turns) + 1, 2):
        part = structure_turns(*turns[:count])
        assert part == whole[: len(part)]


# Special bodies


BODIES: list[tuple[Mapping[str, Tool], str, dict[str, Any], str]] = [
    (
        TOOLS,
        "replace_in_file",
        {
            "path": "a.py",
            "diff": "------- SEARCH\na\n=======\nb\n+++++++ REPLACE\n\n"
            "------- SEARCH\n</diff>\n=======\n+++++++ REPLACE",
        },
        "<replace_in_file>\n<path>a.py</path>\n<diff>\n------- SEARCH\na\n=======\nb\n+++++++ REPLACE\n\n"
        "------- SEARCH\n</diff>\n=======\n+++++++ REPLACE\n</diff>\n</replace_in_file>",
    ),
    (
        TOOLS,
        "write_to_file",
        {
            "path": "a.html",
            "content": "<p>x</p>\n</content> and <path>b</path>\n&lt;\n",
            "task_progress": "- [x] a\n- [ ] b",
        },
        "<write_to_file>\n<path>a.html</path>\n<content>\n<p>x</p>\n</content> and <path>b</path>\n&lt;\n\n</content>\n"
        "<task_progress>\n- [x] a\n- [ ] b\n</task_progress>\n</write_to_file>",
    ),
    (
        TOOLS,
        "use_mcp_tool",
        {"server_name": "w", "tool_name": "f", "arguments": {"city": "München", "days": 5, "deep": [{"a": None}]}},
        '<use_mcp_tool>\n<server_name>w</server_name>\n<tool_name>f</tool_name>\n<arguments>{"city": "München", '
        '"days": 5, "deep": [{"a": null}]}</arguments>\n</use_mcp_tool>',
    ),
    (
        ROO,
        "read_file",
        {"args": "<file>\n  <path>a.py</path>\n</file>\n<file>\n  <path>b.py</path>\n</file>"},
        "<read_file>\n<args>\n<file>\n  <path>a.py</path>\n</file>\n<file>\n  <path>b.py</path>\n</file>\n</args>\n"
        "</read_file>",
    ),
    (
        ROO,
        "update_todo_list",
        {"todos": "[x] a\n[-] b\n[ ] c"},
        "<update_todo_list>\n<todos>\n[x] a\n[-] b\n[ ] c\n</todos>\n</update_todo_list>",
    ),
    (TOOLS, "list_files", {"path": ".", "recursive": True}, f"{LIST[:-13]}<recursive>true</recursive>\n</list_files>"),
    (TOOLS, "show_help", {}, "<show_help>\n</show_help>"),
]


@pytest.mark.parametrize(("tools", "name", "arguments", "text"), BODIES, ids=[body[1] for body in BODIES])
def test_special_bodies_survive_both_ways(
    tools: Mapping[str, Tool], name: str, arguments: dict[str, Any], text: str
) -> None:
    assert write_for_client(ToolCall(name, json.dumps(arguments)), CLINE, tools) == text
    assert calls(structure_turns(assistant(text), tools=tools)) == [(name, arguments)]


# Calls as the client parses them


def test_call_that_the_client_cannot_read_is_not_rendered() -> None:
    """Models that must state every argument write null for a missing one, and these clients ignore unknown tags."""
    call = ToolCall("read_file", '{"path":"a.py","start_line":null,"why":"to see"}')
    assert write_for_client(call, CLINE, TOOLS) == READ


def test_a_call_of_an_unknown_tool_is_written_as_it_is() -> None:
    assert write_for_client(ToolCall("new", '{"x":"y"}'), CLINE, TOOLS) == "<new>\n<x>y</x>\n</new>"


@pytest.mark.parametrize(
    ("raw", "as_written"),
    [
        (READ, True),
        (f"\n\n{READ}", True),
        ("<read_file><path>a.py</path></read_file>", True),
        ("<Read_File>\n<path>a.py</path>\n</Read_File>", False),
        ("<functions.read_file>\n<path>a.py</path>\n</functions.read_file>", False),
        ('<read_file>\n{"path": "a.py"}\n</read_file>', False),
    ],
)
def test_client_reads_calls_from_the_received_characters(raw: str, as_written: bool) -> None:
    event = Call(raw, ToolCall("read_file", '{"path":"a.py"}'), "cline")
    assert is_readable(event, CLINE) is as_written


def test_a_call_that_needed_repair_or_is_of_another_dialect_is_not_readable() -> None:
    call = ToolCall("read_file", '{"path":"a.py"}')
    assert not is_readable(Call(READ, call, "cline", ("missing-closer",)), CLINE)
    assert not is_readable(Call(READ, call, "hermes"), CLINE)


# Samples in the prompt


def test_samples_are_written_in_another_way() -> None:
    prompt = f"For example:\n\n{READ}\n\nThen `<read_file>` and <thinking> and:\n{LIST}\nend."
    found = rewrite_samples(prompt, CLINE, TOOLS, lambda call: f"({call.name})")
    assert found == "For example:\n\n(read_file)\n\nThen `<read_file>` and <thinking> and:\n\n(list_files)\nend."
    assert rewrite_samples("nothing < here", CLINE, TOOLS, lambda call: "") == "nothing < here"


# Promotion and the way back


PIECES = st.sampled_from(
    [
        "</content>",
        "</path>",
        "<path>x</path>",
        "</read_file>",
        "<read_file>",
        "```",
        "`",
        "\n",
        "\r\n",
        "  ",
        "=======",
        "&lt;",
        "é😀",
    ]
)
STRINGS = st.lists(st.one_of(st.text(max_size=8), PIECES), max_size=6).map("".join)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
VALUES = {
    "string": STRINGS,
    "boolean": st.booleans(),
    "integer": st.integers(),
    "object": st.dictionaries(st.text(max_size=5), JSONS, max_size=3),
    "array": st.lists(JSONS, max_size=3),
}


def arguments_of(tool: Tool) -> st.SearchStrategy[dict[str, Any]]:
    """Draw arguments for a tool, in any order."""
    properties, required = tool.parameters["properties"], tool.parameters["required"]
    some = {key: VALUES[entry["type"]] for key, entry in properties.items()}
    given_ = st.fixed_dictionaries(
        {key: some[key] for key in required}, optional={key: some[key] for key in some if key not in required}
    )
    return given_.flatmap(lambda found: st.permutations(list(found.items())).map(dict))


CALLS = st.sampled_from(list(TOOLS.values())).flatmap(lambda tool: st.tuples(st.just(tool.name), arguments_of(tool)))


def undecidable(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return True if a value contains its own end and its continuation, which a raw format cannot express.

    A value that begins with the end of its call and the next call cannot be expressed either, because the parameter
    could be empty.
    """
    texts = [(key, value if isinstance(value, str) else json.dumps(value)) for key, value in arguments.items()]
    return any(
        re.search(rf"</{key}>\s*(?:</(?:{name}|{key})>|<[^/>]+>|\Z)|\A\s*</{name}>\s*<(?:{'|'.join(TOOLS)})>", text)
        for key, text in texts
    )


@given(
    st.lists(
        st.tuples(st.text("abc .<\n", max_size=20), st.lists(CALLS, min_size=1, max_size=3), st.booleans()), max_size=4
    )
)
def test_promotion_and_the_way_back_preserve_names_arguments_and_order(
    turns: list[tuple[str, list[tuple[str, dict[str, Any]]], bool]],
) -> None:
    """Native calls become the client's text, which it sends back, and which becomes native calls again."""
    assume(not any(undecidable(*call) for _, made, _ in turns for call in made))
    messages: list[Message] = []
    for text, made, answered in turns:
        native = [ToolCall(name, json.dumps(arguments)) for name, arguments in made]
        xml = "\n\n".join(write_for_client(call, CLINE, TOOLS) for call in native)
        messages.append(assistant(f"{text}\n\n{xml}"))
        if answered:
            messages.append(user(*(f"[{name} for 'x'] Result:\n{text}" for name, _ in made), "more"))
    found = structure_turns(*messages)
    assert calls(found) == [call for _, made, _ in turns for call in made]
    shown = convert_to_text(found, CLINE, TOOLS)
    again = structure_turns(*(message for message in shown if message.role == "assistant"))
    assert calls(again) == calls(found)


@given(CALLS, st.sampled_from(["hermes", "invoke", "qwen3-coder", "bare-json"]))
def test_calls_of_the_client_survive_in_another_dialect(call: tuple[str, dict[str, Any]], dialect: str) -> None:
    """This holds for a model that gets the conversation in another dialect."""
    assume(not undecidable(*call))
    native = ToolCall(call[0], json.dumps(call[1]))
    (found, _) = structure_turns(assistant(write_for_client(native, CLINE, TOOLS)))
    text = write_calls(found.calls, DIALECTS[dialect], TOOLS)
    assert material.calls(material.read([text], [DIALECTS[dialect]], TOOLS)) == [call]
