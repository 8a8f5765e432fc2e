"""Calls, results and histories -> text, and the proof that the text reads back."""

from vtc.dialects.writing.calls import write_calls, write_result
from vtc.dialects.writing.history import example, make_sample_arguments, to_text, tool_list, usage, with_tools
from vtc.dialects.writing.read_back import flaws

__all__ = [
    "example",
    "flaws",
    "make_sample_arguments",
    "to_text",
    "tool_list",
    "usage",
    "with_tools",
    "write_calls",
    "write_result",
]
