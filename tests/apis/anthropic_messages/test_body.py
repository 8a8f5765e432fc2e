"""Whole replies of Anthropic Messages: decoded and encoded as equivalent streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import messages
from tests.apis.messages import call, message, read, text, thinking
from tests.apis.named_events import Json
from tests.apis.rewriting import rewrite_reply as through
from tests.apis.toy import Toy
from vtc.apis.anthropic_messages import API

SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}


def relay_reply(body: bytes, *, structured: bool = True, guarded: bool = False, **codec: Any) -> bytes:
    return through(API, body, lambda: Toy(structured, guarded), codec.get("thinks"), codec.get("drop", ()))


def rewritten(*content: Json, stop_reason: str | None = "end_turn", **how: Any) -> messages.Read:
    return read(relay_reply(json.dumps(message(*content, stop_reason=stop_reason)).encode(), **how))


@pytest.mark.parametrize(
    "body",
    [
        message(text("Hello")),
        message(text("a ["), thinking("b"), text("[ x] é"), SEARCH),
        message(thinking("b", "sig"), text("a"), call("read", x=1), stop_reason="tool_use"),
        message(text("a"), stop_reason="max_tokens"),
        message(text("a"), stop_reason=None),
        message(),
        message({"type": "text"}, {"type": "odd"}),
        messages.error(),
        {},
        [],
        "x",
        {"content": None},
    ],
)
@pytest.mark.parametrize("guarded", [False, True])
def test_reply_of_which_nothing_changes_keeps_its_bytes(body: Any, guarded: bool) -> None:
    raw = json.dumps(body, indent=3).encode()
    assert relay_reply(raw, guarded=guarded) == raw


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (["a[x]"], ["a", {"x": {}}]),
        (["[x][y]"], [{"x": {}}, {"y": {}}]),
        (["[x]a", "b"], [{"x": {}}, "a", "b"]),
        (["~", "a~b"], ["ab"]),
        (["a", "[x]", "b[y]c"], ["a", {"x": {}}, "b", {"y": {}}, "c"]),
        (["{a}"], ["<a>"]),
    ],
)
def test_text_that_changes(content: list[str], expected: list[Any]) -> None:
    found = rewritten(*map(text, content))
    assert [one.get("text", {one.get("name"): one.get("input")}) for one in found.blocks] == expected
    called = any(isinstance(one, dict) for one in expected)
    assert (found.stop_reason, found.usage) == ("tool_use" if called else "end_turn", messages.USAGE)


def test_other_blocks_stay_as_they_are_and_in_place() -> None:
    cited = {**text("c"), "citations": [{"x": 1}]}
    found = rewritten(thinking("b", "sig"), text("a[x]"), SEARCH, cited, text("d[y]"))
    calls = [call(name, made) for name, made in (("x", "id1"), ("y", "id2"))]
    assert found.blocks == [thinking("b", "sig"), text("a"), calls[0], SEARCH, cited, text("d"), calls[1]]


def test_stop_reason_of_a_reply_that_was_cut_off_stays() -> None:
    assert rewritten(text("a[x]"), stop_reason="max_tokens").stop_reason == "max_tokens"
    assert rewritten(text("a[x]"), stop_reason="refusal").stop_reason == "refusal"
    assert rewritten(text("a[x]"), stop_reason=None).stop_reason == "tool_use"


def test_thoughts_parted_from_the_text_have_a_block_if_thinking_was_asked_for() -> None:
    assert rewritten(text("(b)(c)a"), thinks=True).blocks == [thinking("(b)(c)"), text("a")]
    assert rewritten(text("(b)a")).blocks == [text("a")]


def test_thinking_and_fields_are_dropped() -> None:
    body = json.dumps(message(thinking("b"), text("a[x]"), z=1)).encode()
    out = relay_reply(body, drop=frozenset({"reasoning_content", "z", "type"}))
    assert read(out).kinds == ["text", "tool_use"]
    assert b'"z"' not in out
    dropped = json.loads(relay_reply(body, drop=frozenset({"thinking", "content"}))), json.loads(body)
    assert [one["type"] for one in dropped[0]["content"]] == ["text", "tool_use"]


def test_own_calls_switch_the_reading_off() -> None:
    found = rewritten(text("a"), call("y"), text("[x]"), stop_reason="tool_use")
    assert found.blocks == [text("a"), call("y"), text("[x]")]


def test_own_calls_are_in_the_text_for_a_client_of_text() -> None:
    content = [text("a"), call("x", p=1), call("y", "toolu_2")]
    found = rewritten(*content, stop_reason="tool_use", structured=False)
    assert found == messages.Read([text('a[x {"p": 1} toolu_1][y {} toolu_2]')], "end_turn")
    assert rewritten(call("y"), stop_reason="tool_use", structured=False).blocks == [text("[y {} toolu_1]")]


def test_native_call_is_encoded_again_if_policy_changes_it() -> None:
    odd = {**call("old", p=1), "caller": {"type": "direct"}}
    found = rewritten(text("a"), odd, call("bad", "toolu_2"), stop_reason="tool_use", guarded=True)
    assert found.blocks == [text("a"), {**odd, "name": "new"}, text("[bad {} toolu_2]")]
    assert rewritten(text("a"), call("bad"), stop_reason="tool_use", guarded=True).stop_reason == "end_turn"
