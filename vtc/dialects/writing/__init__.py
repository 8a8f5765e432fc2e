"""Renders calls, results and histories as text, and checks that the text reads back."""

from vtc.dialects.writing.calls import write_calls, write_result
from vtc.dialects.writing.history import (
    append_tools,
    convert_to_text,
    make_sample_arguments,
    render_example,
    render_tool_list,
    render_usage,
)
from vtc.dialects.writing.read_back import find_flaws

__all__ = [
    "append_tools",
    "convert_to_text",
    "find_flaws",
    "make_sample_arguments",
    "render_example",
    "render_tool_list",
    "render_usage",
    "write_calls",
    "write_result",
]
