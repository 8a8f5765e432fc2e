"""Tools from system prompts, and the rest of the prompt without them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.material import CASES
from vtc.dialects.text_client import Documentation, find_documented_tools
from vtc.events import Tool

CLINE = (CASES / "prompts" / "cline.md").read_text("utf-8")
ROO = (CASES / "prompts" / "roo.md").read_text("utf-8")


def tool_of(prompt: str, name: str) -> Tool:
    (found,) = [tool for tool in find_documented_tools(prompt).tools if tool.name == name]
    return found


def types(tool: Tool) -> dict[str, str]:
    return {key: entry["type"] for key, entry in tool.parameters["properties"].items()}


def get_description(tool: Tool, parameter: str) -> Any:
    return tool.parameters["properties"][parameter]["description"]


def one(text: str) -> Tool:
    """Return the tool of a prompt with a single one, `t`."""
    return tool_of(text, "t")


SHORT = "# Tools\n\n## t\nDescription: Does it.\nParameters:\n- p: (required) The p\nUsage:\n<t>\n<p>p here</p>\n</t>\n"


# Names, parameters, types


def test_every_documented_tool_is_found_in_order() -> None:
    assert [tool.name for tool in find_documented_tools(CLINE).tools] == [
        "execute_command",
        "read_file",
        "write_to_file",
        "replace_in_file",
        "list_files",
        "use_mcp_tool",
        "ask_followup_question",
        "attempt_completion",
        "show_help",
    ]
    assert [tool.name for tool in find_documented_tools(ROO).tools] == [
        "read_file",
        "apply_diff",
        "insert_content",
        "search_and_replace",
        "ask_followup_question",
        "switch_mode",
        "update_todo_list",
    ]


def test_parameters_are_required_or_optional_as_in_the_prompt() -> None:
    assert {tool.name: list(tool.parameters["required"]) for tool in find_documented_tools(CLINE).tools} == {
        "execute_command": ["command", "requires_approval"],
        "read_file": ["path"],
        "write_to_file": ["path", "content"],
        "replace_in_file": ["path", "diff"],
        "list_files": ["path"],
        "use_mcp_tool": ["server_name", "tool_name", "arguments"],
        "ask_followup_question": ["question"],
        "attempt_completion": ["result"],
        "show_help": [],
    }
    assert list(tool_of(ROO, "search_and_replace").parameters["required"]) == ["path", "search", "replace"]


def test_types_are_named_in_words_or_string() -> None:
    found = {tool.name: types(tool) for tool in find_documented_tools(CLINE).tools}
    assert found["read_file"] == {
        "path": "string",
        "start_line": "integer",
        "end_line": "integer",
        "task_progress": "string",
    }
    assert found["list_files"]["recursive"] == "boolean"
    assert found["use_mcp_tool"]["arguments"] == "object"
    assert found["ask_followup_question"]["options"] == "array"
    command = found["execute_command"]
    assert (command["requires_approval"], command["timeout"]) == ("boolean", "integer")
    roo = {tool.name: types(tool) for tool in find_documented_tools(ROO).tools}
    assert (roo["insert_content"]["line"], roo["search_and_replace"]["start_line"]) == ("integer", "integer")
    assert roo["search_and_replace"]["use_regex"] == "boolean"


@pytest.mark.parametrize(
    ("words", "type_"),
    [
        ("A boolean that says so", "boolean"),
        ("Whether to do so", "boolean"),
        ("True or false", "boolean"),
        ("Set to true to do so", "boolean"),
        ('Set to "true" to do so', "boolean"),
        ("Integer, the seconds", "integer"),
        ("An integer", "integer"),
        ("The number of lines", "integer"),
        ("Number of lines", "integer"),
        ("Ending line number", "integer"),
        ("A number", "number"),
        ("Float between 0 and 1", "number"),
        ("A JSON object with all of it", "object"),
        ("JSON array of names", "array"),
        ("An array of names", "array"),
        ("A list of names, each in its tag", "string"),
        ("The line numbers as text", "string"),
        ("Internal name", "string"),
        ("A numbered list", "string"),
        ("Booleanish", "string"),
        ("", "string"),
    ],
)
def test_words_that_name_a_type(words: str, type_: str) -> None:
    assert types(one(SHORT.replace("The p", words))) == {"p": type_}


def test_a_parameter_that_only_a_sample_shows_is_one_too() -> None:
    """Some parameters are described for all tools at once, or occur only in a sample."""
    command = tool_of(CLINE, "execute_command")
    assert list(types(command)) == ["command", "requires_approval", "timeout", "task_progress"]
    assert types(tool_of(ROO, "update_todo_list")) == {"todos": "string"}


def test_no_parameters_are_none() -> None:
    tool = tool_of(CLINE, "show_help")
    assert tool.parameters == {"type": "object", "properties": {}, "required": []}
    assert tool.description == "Load the help pages."


def test_elements_inside_a_value_are_shown_to_the_model() -> None:
    args = tool_of(ROO, "read_file")
    assert list(types(args)) == ["args"]
    assert "- path: (required) The file" in get_description(args, "args")
    assert "<file>\n    <path>path/to/file</path>" in get_description(args, "args")
    assert "<suggest>First answer</suggest>" in get_description(tool_of(ROO, "ask_followup_question"), "follow_up")


# The bounds of a text


def test_a_description_may_have_lists_and_code_blocks() -> None:
    tool = tool_of(CLINE, "read_file")
    assert tool.description.startswith("Read a file and return its text with numbered lines.\nPDF files")
    assert "- pictures: they come with the message\n" in tool.description
    assert tool.description.endswith("<read_file>\n```")


def test_a_parameter_may_have_lists_and_code_blocks() -> None:
    tool = tool_of(CLINE, "replace_in_file")
    assert list(types(tool)) == ["path", "diff", "task_progress"]
    diff = get_description(tool, "diff")
    assert diff.startswith("One or more blocks in just this form:\n  ```\n  ------- SEARCH\n")
    assert "     * comments.\n  2. Only the first" in diff
    assert "- other: (required)" in diff


def test_text_between_parameters_and_sample_is_kept() -> None:
    diff = get_description(tool_of(ROO, "apply_diff"), "diff")
    assert diff.startswith("The blocks with the changes.\n\nDiff format:\n```\n<<<<<<< SEARCH\n:start_line: (required)")
    assert diff.endswith(">>>>>>> REPLACE\n```")


def test_the_line_that_announces_a_sample_belongs_to_nothing() -> None:
    assert get_description(tool_of(ROO, "insert_content"), "content") == "The lines"
    assert (
        get_description(tool_of(ROO, "insert_content"), "line")
        == "Line number to insert before\n      0 adds them at the end"
    )
    assert get_description(tool_of(ROO, "search_and_replace"), "use_regex") == 'Set to "true" if the text is a pattern'
    assert tool_of(ROO, "update_todo_list").description.endswith("- [x] done")
    assert get_description(tool_of(CLINE, "list_files"), "path") == "The directory, relative to /home/me/project"


@pytest.mark.parametrize("usage", ["Usage:\n", "Usage:\n```xml\n", "Example: so it is done\n\n", "**Usage:**\n", "\n"])
def test_a_sample_may_be_announced_in_any_way(usage: str) -> None:
    end = "```\n" if "`" in usage else ""
    tool = one(SHORT.replace("Usage:\n", usage) + end)
    assert (tool.description, types(tool), get_description(tool, "p")) == ("Does it.", {"p": "string"}, "The p")
    assert find_documented_tools(f"Before.\n\n{SHORT.replace('Usage:\n', usage)}{end}").rest == "Before."


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_either_newline_will_do(newline: str) -> None:
    tool = one(SHORT.replace("\n", newline))
    assert (tool.description, types(tool), list(tool.parameters["required"])) == ("Does it.", {"p": "string"}, ["p"])


def test_headings_in_a_sample_are_content() -> None:
    tool = tool_of(CLINE, "write_to_file")
    assert list(types(tool)) == ["path", "content", "task_progress"]
    assert "Heading of the file" not in find_documented_tools(CLINE).rest


def test_a_code_block_that_is_never_closed_hides_nothing() -> None:
    assert one(f"Say:\n```\nno end\n\n{SHORT}").name == "t"


def test_an_element_around_all_of_it_hides_nothing() -> None:
    assert one(f"<instructions>\n{SHORT}</instructions>\n").name == "t"


# Text that is no tool


@pytest.mark.parametrize(
    "text",
    [
        "",
        "You are an assistant.",
        "## Purpose\nDescription: Prose.\nParameters: None\n",
        "## Purpose\nDescription: Prose.\nUsage:\n<another>\n</another>\n",
        "## t\nNo description.\nParameters:\n- p: (required) x\nUsage:\n<t>\n<p>x</p>\n</t>\n",
        "## t\nUsage:\n<t>\n<p>x</p>\n</t>\nDescription: Too late.\n",
        "## two words\nDescription: Prose.\nUsage:\n<two words>\n</two words>\n",
        "##t\nDescription: No heading.\nUsage:\n<t>\n</t>\n",
        "## t\nDescription: It says <t></t> in a line.\n",
        "## t\nDescription: The sample is of the next one.\n\n## u\n<t>\n</t>\n",
        "## t\nDescription: The sample is behind a rule.\n\n====\n\n<t>\n</t>\n",
        "```\n## t\nDescription: In a code block.\nUsage:\n<t>\n<p>x</p>\n</t>\n```\n",
    ],
)
def test_prose_is_no_tool(text: str) -> None:
    assert find_documented_tools(text) == Documentation((), text)


def test_a_list_in_prose_is_no_parameter() -> None:
    tool = one(SHORT.replace("The p", "The p\n\nMind these:\n- first: this\n- second: that"))
    assert list(types(tool)) == ["p"]


def test_a_tool_that_is_documented_twice_is_offered_once() -> None:
    tools = find_documented_tools(SHORT + SHORT.replace("Does it.", "Does it again.")).tools
    assert [tool.description for tool in tools] == ["Does it."]


# Text that stays


def test_tools_and_the_rules_of_their_format_are_taken_out() -> None:
    rest = find_documented_tools(CLINE).rest
    for gone in ("# Tool Use Formatting", "<tool_name>", "## execute_command", "# Tool Use Examples", "## Example 1"):
        assert gone not in rest
    assert "using the XML format" not in rest
    assert "<read_file>" not in rest
    assert "using the XML format" not in find_documented_tools(ROO).rest


def test_everything_else_stays_as_it_is() -> None:
    rest = find_documented_tools(CLINE).rest
    assert rest.startswith(CLINE[: CLINE.index("# Tool Use Formatting")])
    assert "1. Think about what you know and what you need.\n3. Wait for the result before the next step.\n" in rest
    assert rest.endswith(CLINE[CLINE.index("====\n\nKEEPING TRACK") :])
    assert "\n\n\n- (Two empty lines" in rest
    assert find_documented_tools(ROO).rest.endswith("2. Wait for the result.\n\n====\n\nRULES\n\n- Answer in French.\n")


def test_sections_of_the_users_own_stay() -> None:
    """A user's section is retained even if its title equals a client's."""
    rest = find_documented_tools(CLINE).rest
    assert "# Tools\n\nUse make and ruff here, no other tools.\n" in rest
    assert "as XML to `out/reports`" in rest


def test_text_behind_the_last_sample_stays() -> None:
    assert find_documented_tools(f"{SHORT}\nAnswer in French.\n").rest == "Answer in French.\n"
    text = f"Be kind.\n\n{SHORT}\n## Language\nFrench.\n"
    assert find_documented_tools(text).rest == "Be kind.\n\n## Language\nFrench.\n"


def test_a_part_with_nothing_but_format_rules_has_no_rest() -> None:
    """Clients can split their prompt into several messages or parts."""
    text = "# Tool Use Formatting\n\nWrite:\n\n<tool_name>\n...\n</tool_name>\n"
    assert find_documented_tools(text) == Documentation((), "")
    assert find_documented_tools("1. Make tool calls in XML tags.").rest == ""


def test_a_profile_may_name_its_own_sections() -> None:
    text = f"# How To Call\n\n<tool_name>\n</tool_name>\n\n# Then\n\nx\n\n{SHORT}"
    assert find_documented_tools(text, ("how to *", "tools")).rest == "# Then\n\nx"


# Any text


@given(st.lists(st.sampled_from([*SHORT.splitlines(keepends=True), "====\n", "```\n", "text\n", "\n", "# Tools\n"])))
def test_any_text_is_parsed_and_the_rest_is_unchanged(lines: list[str]) -> None:
    """The rest consists of the prompt's own lines in their order."""
    text = "".join(lines)
    found = find_documented_tools(text)
    remaining = iter(line for line in text.split("\n") if line)
    assert all(line in remaining for line in found.rest.split("\n") if line)
    assert {tool.name for tool in found.tools} <= {"t"}


def test_a_prompt_of_many_elements_and_headings_is_read_in_one_go() -> None:
    """Elements are never closed and headings nest: a quadratic search would not return from this."""
    lines = "".join(f"## t{i}\n<t{i}>\n# u{i}\n" for i in range(20_000))
    assert find_documented_tools(lines).tools == ()
