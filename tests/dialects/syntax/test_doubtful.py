"""Markup that may be no part of the message: closing tags, wrappers, ends of turns, markers."""

from __future__ import annotations

import pytest

from tests.dialects.material import DIALECTS, calls, content, raw, read
from vtc.events import UnreadCall


@pytest.mark.parametrize(
    ("dialect", "text", "expected"),
    [
        ("mistral", "Done.[TOOL_CALLS]", "Done."),
        ("kimi-k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>Done.", "Done."),
        ("mistral", "The marker is [TOOL_CALLS]", "The marker is [TOOL_CALLS]"),
        ("mistral", "[TOOL_CALLS] begins a call.", "[TOOL_CALLS] begins a call."),
        ("mistral", "Done. [TOOL_CALLS]", "Done. "),
        ("mistral", "Which marker? [TOOL_CALLS]", "Which marker? [TOOL_CALLS]"),
        ("mistral", "Done. [TOOL_CALLS] begins a call.", "Done. [TOOL_CALLS] begins a call."),
        (
            "kimi-k2",
            'Said "<|tool_calls_section_begin|><|tool_calls_section_end|>" to it.',
            'Said "<|tool_calls_section_begin|><|tool_calls_section_end|>" to it.',
        ),
        ("kimi-k2", 'He said "Done."<|tool_calls_section_begin|>', 'He said "Done."'),
        ("kimi-k2", "Done. <|tool_calls_section_begin|>\n<|tool_calls_section_end|>", "Done. "),
        ("kimi-k2", "It ends with <|tool_calls_section_end|>", "It ends with <|tool_calls_section_end|>"),
        ("kimi-k2", "<|tool_calls_section_end|> ends it.", "<|tool_calls_section_end|> ends it."),
    ],
)
def test_marker_without_a_call_is_removed_and_reported_unless_the_text_mentions_it(
    dialect: str, text: str, expected: str
) -> None:
    for chunks in ([text], text):
        events = read(chunks, [DIALECTS[dialect]])
        assert (calls(events), content(events), raw(events)) == ([], expected, text)
        reasons = [event.reason for event in events if isinstance(event, UnreadCall)]
        assert reasons == (["no call follows it"] if expected != text else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[TOOL_CALL]<tool_call|> Done.", "[TOOL_CALL]<tool_call|> Done."),
        ("[TOOL_CALL]<|tool_calls_section_end|> Done.", "[TOOL_CALL]<|tool_calls_section_end|> Done."),
        ("<|tool_calls_section_begin|><tool_call|> Done.", "<|tool_calls_section_begin|><tool_call|> Done."),
        ("<|tool_calls_section_begin|>[TOOL_CALL]<|tool_calls_section_end|> Done.", " Done."),
    ],
)
def test_marker_is_removed_only_before_the_closing_tag_of_its_own_dialect(text: str, expected: str) -> None:
    for chunks in (*([text[:cut], text[cut:]] for cut in range(len(text))), text):
        events = read(chunks, [DIALECTS[name] for name in ("json-in-tags", "gemma4", "kimi-k2")])
        assert (calls(events), content(events), raw(events)) == ([], expected, text)


@pytest.mark.parametrize("text", ["Done.<|tool_call_end|>", "Done. <|tool_call_end|><|tool_calls_section_end|>\n"])
def test_special_token_that_closes_nothing_is_removed_even_on_a_separate_line(text: str) -> None:
    for chunks in ([text], text):
        events = read(chunks, [DIALECTS["kimi-k2"]])
        assert (content(events).strip(), raw(events)) == ("Done.", text)
        assert [event.reason for event in events if isinstance(event, UnreadCall)] == ["it closes nothing"]


@pytest.mark.parametrize(
    ("after", "expected"), [("<tool_call>", ""), ("<tool_call>\n", ""), ("<tool_call> begins one.", None)]
)
def test_tag_after_a_call_that_opens_nothing_is_removed_at_the_end(after: str, expected: str | None) -> None:
    call = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n"
    for chunks in ([call + after], call + after):
        events = read(chunks, [DIALECTS["qwen3-coder"]])
        assert (calls(events), raw(events)) == ([("bash", {"command": "ls"})], call + after)
        assert content(events) == (after if expected is None else expected)


def test_tag_that_opens_nothing_stays_if_it_is_the_only_text() -> None:
    assert content(read(["<tool_call>"], [DIALECTS["qwen3-coder"]])) == "<tool_call>"
