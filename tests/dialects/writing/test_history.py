"""A conversation for a model without native tools."""

from __future__ import annotations

import pytest

from tests.dialects.material import AGENT, DIALECTS, calls, content, read
from vtc.dialects.writing import append_tools, convert_to_text
from vtc.events import Message, Opaque, ToolCall

READ = ToolCall("read_file", '{"path": "a"}', "c1")
RUN = ToolCall("bash", '{"command": "ls"}', "c2")
TAG = DIALECTS["tag"]
IMAGE = Opaque({"type": "image_url", "image_url": {"url": "data:,"}})


def test_a_conversation_as_text() -> None:
    before = [
        Message("system", ("Be brief.",)),
        Message("user", ("Look.",)),
        Message("assistant", ("I look.",), (READ, RUN)),
        Message("tool", ("one\n",), call_id="c1", name="read_file"),
        Message("tool", (), call_id="c2", name="bash"),
        Message("assistant", ("Done.",)),
    ]
    after = convert_to_text(before, TAG, AGENT)
    assert [(message.role, message.text) for message in after] == [
        ("system", "Be brief."),
        ("user", "Look."),
        (
            "assistant",
            "I look.\n\n<read_file>\n<path>a</path>\n</read_file>\n<bash>\n<command>ls</command>\n</bash>",
        ),
        ("user", "Tool Result from read_file:\none\n"),
        ("user", "Tool Result from bash:\n(no output)"),
        ("assistant", "Done."),
    ]
    assert not any(message.calls for message in after)
    for index in (0, 1, 5):
        assert after[index] is before[index]


@pytest.mark.parametrize("dialect", [name for name, one in DIALECTS.items() if one.section_anchor != "message"])
def test_history_shown_to_the_model_is_read_as_its_own_calls(dialect: str) -> None:
    description = DIALECTS[dialect]
    (message,) = convert_to_text([Message("assistant", ("I look.",), (READ, RUN))], description, AGENT)
    events = read([message.text], [description])
    assert calls(events) == [("read_file", {"path": "a"}), ("bash", {"command": "ls"})]
    assert content(events) == "I look."


def test_calls_without_text_stand_alone() -> None:
    (message,) = convert_to_text([Message("assistant", (), (RUN,))], TAG, AGENT)
    assert message.text == "<bash>\n<command>ls</command>\n</bash>"


def test_a_result_with_a_picture_keeps_it_in_its_place() -> None:
    (message,) = convert_to_text(
        [Message("tool", ("seen: ", IMAGE, "end"), call_id="c1", name="bash")], DIALECTS["hermes"], {}
    )
    assert message.content == ("<tool_response>\n", "seen: ", IMAGE, "end", "\n</tool_response>")
    assert message.role == "user"


def test_a_result_of_nobody_knows_what() -> None:
    (message,) = convert_to_text([Message("tool", ("x",))], TAG, AGENT)
    assert message.text == "Tool Result from tool:\nx"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_result_is_never_altered(dialect: str) -> None:
    result = "{result} {name} {{ x }} </tool_response> <stdout>\n\0"
    (message,) = convert_to_text([Message("tool", (result,), name="bash")], DIALECTS[dialect], AGENT)
    assert result in message.text
    assert message.role == DIALECTS[dialect].result_role


def test_tools_are_added_to_the_system_message_or_get_one() -> None:
    tools = list(AGENT.values())
    user = Message("user", ("Hi.",))
    alone, unchanged = append_tools([user], TAG, tools, "auto")
    assert (alone.role, unchanged) == ("system", user)
    assert all(f"## {name}" in alone.text for name in AGENT)
    added, _ = append_tools([Message("system", ("Be brief.",), source={"role": "system"}), user], TAG, tools, "auto")
    assert added.text == f"Be brief.\n\n{alone.text}"
    assert added.source == {"role": "system"}
    empty, _ = append_tools([Message("system"), user], TAG, tools, "auto")
    assert empty.text == alone.text
    (nobody,) = append_tools([], TAG, tools, "auto")
    assert nobody == alone


def test_tool_choice_is_in_the_prompt() -> None:
    tools = list(AGENT.values())

    def prompt_text(choice: str) -> str:
        return append_tools([], TAG, tools, choice)[0].text

    assert "You must use at least one function in this reply." in prompt_text("required")
    assert "You must use the function bash in this reply." in prompt_text("bash")
    assert "You must use" not in prompt_text("auto")
