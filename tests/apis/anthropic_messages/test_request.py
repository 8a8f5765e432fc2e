"""Anthropic Messages: requests parsed to messages and tools, and rendered again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from tests.apis import messages
from tests.apis.messages import assistant, call, check_request, result, text, thinking, user
from tests.apis.named_events import Json
from vtc.apis import Changes, RequestError
from vtc.apis.anthropic_messages import API, Request
from vtc.events import Message, Opaque, Tool, ToolCall
from vtc.json_text import encode_json

IMAGE = {"type": "image", "source": {"type": "base64", "data": "x"}}
CACHE = {"cache_control": {"type": "ephemeral"}}
BILLING = text("x-anthropic-billing-header: cc_version=2; cch=12345;")
READ = ToolCall("read", '{"x": 1}', "toolu_1")
CALLING = assistant(thinking("Hm.", "sig"), text("Look."), call("read", x=1))
ANSWERED = user([result("r"), text("Go on.")])


def request(*entries: Json, **fields: Any) -> Request:
    return Request(encode_request(*entries, **fields))


def encode_request(*entries: Json, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": list(entries), **fields}, indent=1).encode()


def canonical(*entries: Json, **fields: Any) -> list[tuple[Any, ...]]:
    """Return the messages without their sources."""
    return [(one.role, one.content, one.calls, one.call_id, one.name) for one in request(*entries, **fields).messages]


def rewritten(one: Request, changed: list[Message], **how: Any) -> Any:
    """Render the request with other messages; fail if Anthropic's server would reject it."""
    body = json.loads(encode_json(API.writer.apply_changes(one, Changes(messages=changed, **how))))
    check_request(body)
    return body


def test_results_have_the_names_of_their_calls_and_thoughts_are_the_reasoning() -> None:
    _, calling, answer, _ = request(user("a"), CALLING, ANSWERED).messages
    assert (calling.reasoning, answer.name) == ("Hm.", "read")
    assert request(CALLING).call_ids == {"toolu_1"}


@pytest.mark.parametrize(
    ("system", "content"),
    [
        ("Be brief.", ("Be brief.",)),
        ([BILLING, text("Be brief.")], (Opaque(BILLING), "Be brief.")),
        ([text("a"), {**text("b"), **CACHE}], ("a", "b")),
    ],
)
def test_system_prompt_is_the_first_message(system: Any, content: Any) -> None:
    assert canonical(user("hi"), system=system)[0] == ("system", content, (), None, None)


@pytest.mark.parametrize("system", ["", None, []])
def test_no_system_prompt_is_no_message(system: Any) -> None:
    assert [one[0] for one in canonical(user("hi"), system=system)] == ["user"]


def test_tools_are_those_with_a_schema() -> None:
    dated = {"type": "bash_20250124", "name": "bash"}
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    toolset = {"type": "mcp_toolset", "mcp_server_name": "x"}
    one = request(tools=[messages.READ, dated, search, toolset, {**messages.LIST, "type": "custom", **CACHE}])
    assert [tool.name for tool in one.offer.tools] == ["read", "list_files"]
    assert one.offer.tools[0] == Tool("read", "Does read.", messages.READ["input_schema"])
    assert one.offer.declared == ["read", "bash", "web_search", "list_files"]


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        (None, "auto", True),
        ({"type": "auto"}, "auto", True),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "read"}, "read", True),
    ],
)
def test_tool_choice(choice: Any, expected: str, parallel: bool) -> None:
    one = request(tool_choice=choice)
    assert (one.offer.choice, one.offer.parallel) == (expected, parallel)


def test_the_other_fields() -> None:
    one = request(stream=True, thinking={"type": "enabled", "budget_tokens": 1024})
    assert (one.model, one.stream, one.form, one.fields["max_tokens"]) == ("m", True, True, 9)
    one = request(thinking={"type": "disabled"})
    assert (one.stream, one.form) == (False, False)
    one.forget()
    assert (one.form, one.messages, one.fields) == (False, [], {})


@pytest.mark.parametrize(
    "body",
    [
        *(
            b"",
            b"[]",
            b"{}",
            b"{",
            b"5",
            b'{"messages": {}}',
            b'{"messages": [5]}',
            b'{"messages": [{"role": "user"}]}',
        ),
        b'{"messages": [{"content": "x", "role": "user"}], "tools": [5]}',
        b'{"messages": [{"content": 5, "role": "user"}]}',
        b'{"messages": [{"content": ["x"], "role": "user"}]}',
        b'{"messages": [], "tool_choice": "auto"}',
    ],
)
def test_malformed_request_is_rejected(body: bytes) -> None:
    with pytest.raises(RequestError):
        Request(body)


def test_unchanged_parts_keep_their_bytes() -> None:
    body = encode_request(
        user("a"), CALLING, ANSWERED, system=[BILLING, text("s")], tools=[messages.READ], metadata={"x": 1}
    )
    one = Request(body)
    out = encode_json(API.writer.apply_changes(one, Changes(messages=[*one.messages])))
    assert json.loads(out) == json.loads(body)
    for entry in json.loads(body)["messages"]:
        assert json.dumps(entry, indent=1).replace("\n", "\n  ").encode() in out


def test_system_text_is_added_to_the_system_prompt() -> None:
    for system, expected in (
        ("Be brief.", "Be brief.\n\nTools"),
        ([BILLING], [BILLING, text("\n\nTools")]),
        ([BILLING, {**text("Be brief."), **CACHE}], [BILLING, {**text("Be brief.\n\nTools"), **CACHE}]),
    ):
        one = request(user("a"), system=system)
        first, *rest = one.messages
        changed = replace(first, content=(*first.content, "\n\n", "Tools"))
        assert rewritten(one, [changed, *rest])["system"] == expected
    one = request(user("a"))
    assert rewritten(one, [Message("system", ("Tools",)), *one.messages])["system"] == "Tools"
    one = request(user("a"), system="Tools")
    assert "system" not in rewritten(one, one.messages[1:])


def test_system_message_among_the_others_stays_there() -> None:
    one = request({"role": "system", "content": "late"}, user("a"))
    first, second = one.messages
    body = rewritten(one, [replace(first, content=("later",)), second])
    assert (body["messages"][0], "system" in body) == ({"role": "system", "content": [text("later")]}, False)


def test_calls_and_results_as_text() -> None:
    """Results and calls become text for a model without tools; blocks of unknown types stay in place."""
    one = request(
        user("a"),
        {**CALLING, "content": [*CALLING["content"], {**call("read", "toolu_2"), **CACHE}]},
        user([result("r"), {**result([text("s"), IMAGE], "toolu_2"), **CACHE}, text("Go on."), text("!")]),
        tools=[messages.READ],
        tool_choice={"type": "auto"},
    )
    asked, calling, first, second, rest = one.messages
    changed = [
        asked,
        replace(calling, content=(*calling.content, "\n\n", "<calls>"), calls=()),
        replace(first, role="user", content=("<r>",)),
        replace(second, role="user", content=("<", *second.content, ">")),
        rest,
    ]
    body = rewritten(one, changed, tools=())
    assert "tools" not in body
    assert "tool_choice" not in body
    assert body["messages"][1:] == [
        assistant(thinking("Hm.", "sig"), {**text("Look.\n\n<calls>"), **CACHE}),
        user([text("<r>\n\n<s"), IMAGE, {**text(">\n\nGo on."), **CACHE}, text("!")]),
    ]


def test_tool_message_without_its_call_is_text() -> None:
    """The dialect requires tool results in a separate message, which this API does not have."""
    one = request(user("a"), CALLING, ANSWERED)
    asked, calling, answer, rest = one.messages
    changed = [asked, replace(calling, content=("<call>",), calls=()), replace(answer, content=("<r>",)), rest]
    assert rewritten(one, changed)["messages"][1:] == [assistant(text("<call>")), user([text("<r>\n\nGo on.")])]


def test_changed_message_keeps_unknown_fields() -> None:
    one = request(
        user([IMAGE, {**text("a"), **CACHE}]),
        assistant(thinking("b", "sig"), {**text("c"), **CACHE}, call("read", x=1)),
        user([result("r")]),
    )
    asked, calling, answer = one.messages
    changed = [
        replace(asked, content=(*asked.content, "\n\n", "(note)")),
        replace(calling, content=(calling.content[0], "d")),
        replace(answer, content=(*answer.content, "\n\n", "(note)")),
    ]
    assert rewritten(one, changed)["messages"] == [
        user([IMAGE, {**text("a\n\n(note)"), **CACHE}]),
        assistant(thinking("b", "sig"), {**text("d"), **CACHE}, call("read", x=1)),
        user([result("r\n\n(note)")]),
    ]


def test_no_blank_text_and_no_empty_message_is_written() -> None:
    one = request(user("a"), assistant(text("b")), user("c"))
    asked, reply, last = one.messages
    assert len(rewritten(one, [asked, replace(reply, content=(" ", "\n")), last])["messages"]) == 2
    body = rewritten(one, [asked, replace(reply, content=("", "x")), last])
    assert body["messages"][1] == assistant(text("x"))


def test_calls_and_results_of_a_client_of_text_are_promoted() -> None:
    """Multiple results are merged into one message, before its text."""
    one = request(user("a"), assistant(text("<read>")), user([text("[read] Result"), text("r"), text("Go on.")]))
    asked, reply, answer = one.messages
    calls = (ToolCall("read", '{"x": 1}', "c1"), ToolCall("list_files", "{}", "c2"))
    changed = [
        asked,
        replace(reply, content=(), calls=calls),
        Message("tool", ("r",), call_id="c1", name="read"),
        Message("tool", ("(no result)",), call_id="c2", name="list_files"),
        replace(answer, content=("Go on.",)),
    ]
    tool = Tool("read", "Reads.", {"properties": {"x": {"type": "integer"}}})
    body = rewritten(one, changed, tools=[tool])
    assert body["messages"][1:] == [
        assistant(call("read", "c1", x=1), call("list_files", "c2")),
        user([result("r", "c1"), result("(no result)", "c2"), text("Go on.")]),
    ]
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert body["tools"] == [{"name": "read", "description": "Reads.", "input_schema": schema}]


def test_results_are_moved_before_earlier_text() -> None:
    one = request(CALLING, user([text("Here:"), {**result("r"), **CACHE}]))
    calling, before, answer = one.messages
    body = json.loads(
        encode_json(API.writer.apply_changes(one, Changes(messages=[calling, before, replace(answer, content=("s",))])))
    )
    assert body["messages"][1] == user([{**result("s"), **CACHE}, text("Here:")])


def test_turns_that_are_added_have_messages_of_their_own() -> None:
    one = request(user("a"))
    body = rewritten(one, [*one.messages, Message("assistant", ("b",)), Message("user", ("c",))])
    assert body["messages"] == [user("a"), assistant(text("b")), user([text("c")])]


def test_tools_are_withheld() -> None:
    dated = {"type": "bash_20250124", "name": "bash"}
    fields = {"tools": [messages.READ, dated], "tool_choice": {"type": "tool", "name": "bash"}}
    body = json.loads(encode_json(API.writer.apply_changes(request(user("a"), **fields), Changes(withheld={"bash"}))))
    assert (body["tools"], "tool_choice" in body) == ([messages.READ], False)
    one = request(user("a"), **{**fields, "tool_choice": {"type": "any"}})
    body = json.loads(encode_json(API.writer.apply_changes(one, Changes(withheld={"bash", "read"}))))
    assert not {"tools", "tool_choice"} & set(body)


def test_fields_are_set_and_dropped() -> None:
    one = request(user("a"), metadata={"user_id": "x", "y": 1}, top_k=5)
    changes = Changes(drop=("metadata.user_id", "top_k"), set={"stream": False})
    body = json.loads(encode_json(API.writer.apply_changes(one, changes)))
    assert (body["metadata"], body["stream"], "top_k" in body) == ({"y": 1}, False, False)


def test_half_a_character_is_kept() -> None:
    body = b'{"messages": [{"role": "user", "content": "\\ud83d"}], "system": "s"}'
    one = Request(body, unrepaired=True)
    first, second = one.messages
    changes = Changes(messages=[replace(first, content=("t",)), second])
    assert json.loads(encode_json(API.writer.apply_changes(one, changes))) == {
        **json.loads(body),
        "system": "t",
    }
