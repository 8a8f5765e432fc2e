"""Test `vtc parse`: its output for people and as JSON, and its errors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat, responses
from tests.apis.shapes import SHAPES, make_request_body
from vtc.cli import main

CALL = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(chat.TOOLS))
    return path


def run(tools: Path, *arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["parse", "--tools", str(tools), *arguments], input=text)


def decode_lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.output.splitlines()]


def test_for_a_person(tools: Path) -> None:
    result = run(tools, "--dialect", "hermes", text=f"I look: [b]x[/b]\n{CALL[: -len('</tool_call>')]}")
    assert result.exit_code == 0
    assert result.output.splitlines() == [
        "message",
        "I look: [b]x[/b]",
        "call read (hermes)",
        '  filePath: "/a"',
        "  repaired: missing-closer",
    ]


def test_a_long_reply_is_printed_unchanged_and_quickly(tools: Path) -> None:
    """Wrapping the lines for a terminal would take a minute, and quadratic time in general."""
    text = ("words and more words, " * 20 + "\n") * 10_000
    started = time.process_time()
    result = run(tools, "--dialect", "hermes", text=text)
    assert time.process_time() - started < 5
    assert result.output == f"message\n{text}\n"


@pytest.mark.parametrize("api", SHAPES)
def test_tools_are_taken_from_a_request_of_every_api(api: str, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(make_request_body(api))
    (found,) = decode_lines(run(path, "--json", text=chat.DIALECTS["tag"]("read", {"filePath": "5"})))
    assert [call["arguments"] for call in found["calls"]] == [{"filePath": "5"}]


def test_a_call_of_an_unknown_tool_is_reported(tools: Path) -> None:
    result = run(tools, "--dialect", "hermes", text=CALL.replace("read", "Grep"))
    assert result.exit_code == 0
    assert "call Grep (hermes)" in result.output
    assert "unknown-tool" in result.output


def test_a_refusal_is_reported_and_is_an_exit_code(tools: Path) -> None:
    result = run(tools, "--dialect", "hermes", text=CALL.replace("read", "sh.rm"))
    assert result.exit_code == 1
    assert "left as text: no tool 'sh.rm' is offered; offered: read" in result.output


def test_as_json(tools: Path) -> None:
    result = run(tools, "--json", "--dialect", "hermes", text=f'I look.\n{CALL}\n<tool_call>{{"a": 1}}</tool_call>')
    assert result.exit_code == 1
    (found,) = decode_lines(result)
    assert found["content"] == 'I look.\n<tool_call>{"a": 1}</tool_call>'
    assert found["reasoning_content"] == ""
    assert found["calls"] == [{"name": "read", "arguments": {"filePath": "/a"}, "dialect": "hermes", "repairs": []}]
    assert [refusal["dialect"] for refusal in found["refusals"]] == ["hermes"]


def test_a_file_of_lines(tools: Path, tmp_path: Path) -> None:
    cut = CALL[: -len("}\n</tool_call>")]
    replies = [{"text": CALL}, {"content": cut, "finish_reason": "length"}, {"content": cut, "finish_reason": None}]
    path = tmp_path / "replies.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    result = run(tools, "--lines", "--json", "--dialect", "hermes", str(path))
    assert [len(found["calls"]) for found in decode_lines(result)] == [1, 0, 1]


def test_strict_and_cut_off(tools: Path) -> None:
    cut = CALL[: -len("</tool_call>")]
    for arguments, calls in (((), 1), (("--strict",), 0), (("--finish-reason", "length"), 0)):
        (found,) = decode_lines(run(tools, "--json", "--dialect", "hermes", *arguments, text=cut))
        assert len(found["calls"]) == calls


def test_the_dialects_and_reasoning_of_a_model(tools: Path) -> None:
    (found,) = decode_lines(run(tools, "--json", "--model", "Qwen/Qwen3-8B", text=f"<think>Well.</think>{CALL}"))
    assert (found["reasoning_content"], found["content"], len(found["calls"])) == ("Well.", "", 1)
    (found,) = decode_lines(run(tools, "--json", text=f"<think>Well.</think>{CALL}"))
    assert (found["reasoning_content"], found["content"], len(found["calls"])) == ("Well.", "", 1)
    (found,) = decode_lines(run(tools, "--json", text="<think> is a tag."))
    assert (found["reasoning_content"], found["content"]) == ("", "<think> is a tag.")


def test_tools_as_in_a_request_or_as_functions(tmp_path: Path) -> None:
    for value in ({"tools": chat.TOOLS}, [tool["function"] for tool in chat.TOOLS]):
        path = tmp_path / "tools.json"
        path.write_text(json.dumps(value))
        assert run(path, "--dialect", "hermes", text=CALL).exit_code == 0


@pytest.mark.parametrize("value", ["", "5", "[5]", "[{}]", '{"tools": {"a": 1}}'])
def test_an_invalid_tools_file(value: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(value)
    result = run(path, text=CALL)
    assert result.exit_code == 2
    assert "not a list of tools as in a request" in result.output.replace("\n", " ").replace("  ", " ")


def test_a_tools_file_without_its_key_or_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text('{"functions": []}')
    result = run(path, text=CALL)
    assert (result.exit_code, "has no key `tools`" in result.output) == (2, True)
    path.write_text("[]", "utf-16")
    assert "tools.json: not UTF-8; save the file as UTF-8" in run(path, text=CALL).output


def test_a_mistyped_finish_reason(tools: Path) -> None:
    assert run(tools, "--finish-reason", "lenght", text=CALL).exit_code == 2


@pytest.mark.parametrize("line", ["x", "[]", '{"reply": "x"}'])
def test_a_line_that_is_not_a_reply(line: str, tools: Path) -> None:
    result = run(tools, "--lines", text='{"text": "a"}\n' + line)
    assert result.exit_code == 2
    assert "line 2" in result.output


def test_a_possible_call_that_no_dialect_reads_is_reported(tools: Path) -> None:
    text = "I look. @@read(filePath=/a)@@"
    result = run(tools, text=text)
    assert (result.exit_code, result.output) == (0, f"message\n{text}\na possible call was not read: {text}\n")
    assert [found["unread"] for found in decode_lines(run(tools, "--json", text=text))] == [text]
    assert "possible call" not in run(tools, text=CALL).output


def test_a_dialect_that_does_not_exist(tools: Path) -> None:
    result = run(tools, "--dialect", "hermez", text=CALL)
    assert result.exit_code == 2
    assert "no dialect 'hermez'" in result.output
    assert "did you mean 'hermes'?" in result.output


@pytest.mark.parametrize(
    ("api", "hosted"),
    [
        ("openai-chat", {"type": "web_search"}),
        ("anthropic-messages", {"type": "bash_20250124", "name": "bash"}),
        ("openai-responses", {"type": "image_generation"}),
    ],
)
def test_tools_that_are_not_functions_are_not_offered(api: str, hosted: chat.Json, tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    path.write_bytes(make_request_body(api, tools=[*SHAPES[api].request()["tools"], hosted]))
    for name, calls in (("read", 1), ("bash", 0), ("image_generation", 0)):
        written = chat.DIALECTS["hermes"](name, {"filePath": "/a"})
        (found,) = decode_lines(run(path, "--json", text=written))
        offered = [call for call in found["calls"] if "unknown-tool" not in call["repairs"]]
        assert len(offered) == calls
        assert found["calls"] == offered or f'"name": "{name}"' not in json.dumps(hosted)


def test_tools_of_a_request_for_a_response_may_be_in_a_namespace(tmp_path: Path) -> None:
    path = tmp_path / "request.json"
    tools = [responses.namespace("fs", responses.READ), responses.custom("patch")]
    path.write_text(json.dumps(responses.request(tools=tools)))
    written = chat.DIALECTS["hermes"]("fs__readFile", {}) + chat.DIALECTS["hermes"]("fs__read", {"filePath": "/a"})
    (found,) = decode_lines(run(path, "--json", text=written))
    assert [(call["name"], call["repairs"]) for call in found["calls"]] == [
        ("fs__readFile", ["unknown-tool"]),
        ("fs.read", []),
    ]


def test_the_proof_of_each_call_is_shown(tools: Path) -> None:
    text = '<tool_call>{"name": "bash", "arguments": {"command": "ls"}, "more": 5}</tool_call>'
    proved = run(tools, "--dialect", "hermes", "--proof", text=text.replace(', "more": 5', ""))
    at = text.index("ls")
    assert f"  proved: command at {at}-{at + 2}, verbatim\n" in proved.output
    failed = run(tools, "--dialect", "hermes", "--proof", text=text)
    assert (
        f"  not proved: the word at character {text.index('more')} is neither in a value nor markup\n" in failed.output
    )
    (found,) = decode_lines(run(tools, "--dialect", "hermes", "--proof", "--json", text=text))
    assert found["calls"][0]["proof"]["holds"] is False
    assert "proof" not in decode_lines(run(tools, "--dialect", "hermes", "--json", text=text))[0]["calls"][0]


def test_a_trace_shows_each_step_of_the_reader(tools: Path) -> None:
    text = f"I look.\n{CALL}"
    result = run(tools, "--dialect", "hermes", "--trace", text=text)
    lines = [line.split(maxsplit=5) for line in result.output.splitlines()]
    assert lines[0] == ["state", "token", "action", "verdict", "next", "text"]
    assert lines[2][:5] == ["text", "call_opener", "begin_in_text", "json", "json"]
    assert lines[4][:4] == ["tail", "call_closer", "InCall.end_call", "after"]
    assert result.output.endswith(run(tools, "--dialect", "hermes", text=text).output)


def test_a_trace_contains_all_of_a_long_reply(tools: Path) -> None:
    """The reply is parsed in chunks; text that causes no step has lines in the trace, too."""
    text = f"{CALL}\nSo `x` is.\n```\n{'words ' * 40_000}\n```\n" * 2
    (found,) = decode_lines(run(tools, "--dialect", "hermes", "--trace", "--json", text=text))
    assert "".join(step["text"] for step in found["trace"] if "passed_over" not in step) == text


def test_a_trace_shows_text_that_is_pushed_back(tools: Path) -> None:
    """The dialect requires that a call is the whole reply; this one is not."""
    call = '{"name": "read", "parameters": {"filePath": "/a"}}'
    (found,) = decode_lines(run(tools, "--dialect", "llama3", "--trace", "--json", text=f"{call} it is."))
    assert [step["again"] for step in found["trace"] if step.get("again")] == [len(call)]


@pytest.mark.parametrize(
    "quote",
    [
        "```\n{call}\n```\nthen wait.",
        "<pre>\n{call}\n</pre>\nso",
        "So:\n> {call}\n\nDone.",
        "In `{call}` it is.",
        "~~~\n{call}",
    ],
)
def test_a_trace_names_a_call_that_was_skipped_in_code(tools: Path, quote: str) -> None:
    text = quote.format(call=CALL.replace("\n", " ") if "> " in quote else CALL)
    (found,) = decode_lines(run(tools, "--dialect", "hermes", "--trace", "--json", text=f"Do:\n{text}"))
    (passed,) = [step for step in found["trace"] if "passed_over" in step]
    assert passed["passed_over"] == "hermes"
    assert passed["text"].startswith("<tool_call>")
    shown = run(tools, "--dialect", "hermes", "--trace", text=f"Do:\n{text}").output
    assert '  skipped in code, a call of hermes: "<tool_call>' in shown
