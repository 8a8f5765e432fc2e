"""Conversions of the canonical events."""

from __future__ import annotations

from vtc.events import Message, Opaque, Tool, ToolCall, UnreadCall


def test_a_tool_and_a_call_have_the_form_of_the_api() -> None:
    assert Tool("f", "Does it.", {"type": "object"}).as_openai() == {
        "type": "function",
        "function": {"name": "f", "description": "Does it.", "parameters": {"type": "object"}},
    }
    assert ToolCall("f", '{"a": 1}', "call_1").as_openai() == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"a": 1}'},
    }


def test_text_of_a_message_omits_other_parts() -> None:
    assert Message("user", ("a", Opaque({"type": "image_url"}), "b")).text == "ab"
    assert Message("assistant").text == ""


def test_refusal_is_not_part_of_a_text() -> None:
    assert UnreadCall("no reason", "hermes").raw == ""
