"""Test dialects as the `response_template` of a tokenizer, in both directions, and with Transformers itself."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import vtc
from tests.dialects.material import DIALECTS
from vtc.cli import main
from vtc.cli.templates import CASES, TOOLS
from vtc.deriving import UnknownFormError, build_response_template, draft_response_template, serialize_call
from vtc.dialects import Reader, compile_grammar
from vtc.events import Call

TRANSFORMERS = "transformers==5.24.0"
DECLARED = [tool.as_openai() for tool in TOOLS]
THOUGHT = "Shall I?\n<b>Yes</b>"
REASONING = f"<think>\n{THOUGHT}\n</think>\n\n"


@cache
def build(name: str) -> dict[str, Any] | None:
    """Build the response template of a dialect; None if the format cannot express it."""
    try:
        return build_response_template(DIALECTS[name], "<think>", "</think>")
    except UnknownFormError:
        return None


EXPRESSED = [name for name in DIALECTS if build(name)]


def write_replies(dialect: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield replies with calls in a dialect, each with its calls and its text."""
    for reply in CASES.values():
        functions = [{"name": call.name, "arguments": json.dumps(call.arguments)} for call in reply.calls]
        entries = [{"id": call.id, "function": one} for call, one in zip(reply.calls, functions, strict=True)]
        written = vtc.render_calls(entries, dialect, DECLARED)
        calls = [serialize_call(call.name, call.arguments) for call in reply.calls]
        yield "\n".join(filter(None, (reply.text, written))), calls, reply.text


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["profiles", "dialect", *map(str, arguments), "--as", "response_template"])


def test_most_dialects_have_a_response_template_and_others_a_reason() -> None:
    lines = run().output.splitlines()
    names = {
        name: reason for reason, _, found in (line.rpartition(": ") for line in lines) for name in found.split(", ")
    }
    assert names.keys() == DIALECTS.keys()
    assert [name for name, reason in names.items() if reason == "- has a response_template"] == EXPRESSED
    assert len(EXPRESSED) == 53
    for name, reason in names.items():
        result = run(name)
        if name in EXPRESSED:
            assert json.loads(result.output) == build(name)
        else:
            assert result.exit_code == 1
            assert result.output == f"Error: dialect {name} has no response_template: {reason.removeprefix('- ')}\n"


def test_reasoning_has_the_tags_of_the_named_model() -> None:
    template = json.loads(run("mistral", "--model", "mistral-small-2603").output)
    assert template["fields"]["reasoning_content"] == {"open": "[THINK]", "close": "[/THINK]", "content": "text"}


def test_an_unknown_dialect_is_reported() -> None:
    result = run("hermez")
    assert result.exit_code == 2
    assert "there is no dialect 'hermez' (did you mean 'hermes'?)" in result.output


@pytest.mark.parametrize("name", EXPRESSED)
def test_both_directions_agree(name: str) -> None:
    draft = draft_response_template(build(name) or {}, "new")
    reader = compile_grammar((draft.description,))
    for text, calls, _ in write_replies(name):
        events = Reader(reader, {tool.name: tool for tool in TOOLS}).read_whole(text)
        found = [event for event in events if isinstance(event, Call)]
        assert [serialize_call(call.name, json.loads(call.arguments)) for call in found] == calls, text


PARSE = """
import json, sys
from transformers.utils.chat_parsing import ResponseParser
tools, replies = json.load(sys.stdin)
results = []
for template, prompt, chunks in replies:
    parser = ResponseParser(template, prefix=prompt, tools=tools)
    for chunk in chunks:
        parser.feed(chunk)
    results.append(parser.finalize()[0])
json.dump(results, sys.stdout)
"""


@pytest.mark.templates
def test_transformers_parses_what_vtc_parses() -> None:
    replies: list[tuple[Any, str, list[str]]] = []
    expected: list[tuple[list[str], str, str]] = []
    for name in EXPRESSED:
        for text, calls, before in write_replies(name):
            parsed = vtc.parse(REASONING + text, DECLARED, dialect=name)
            assert [serialize_call(call.call.name, json.loads(call.call.arguments)) for call in parsed.calls] == calls
            assert (parsed.text.strip(), parsed.reasoning.strip()) == (before, THOUGHT)
            for prompt, reply, thought in (
                ("user: Go.\n<think>ok</think>", text, ""),
                ("user: Go.", REASONING + text, THOUGHT),
                ("user: Go.<think>\n", REASONING.removeprefix("<think>\n") + text, THOUGHT),
            ):
                for chunks in ([reply], [reply + "<|im_end|>\n"], [*reply, "<", "|im_", "end|>"]):
                    replies.append((build(name), prompt, chunks))
                    expected.append((calls, before, thought))
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, TRANSFORMERS]
        subprocess.run(install, check=True)
        parse = [sys.executable, "-c", PARSE]
        data = json.dumps([DECLARED, replies])
        output = subprocess.run(
            parse, input=data, env={"PYTHONPATH": folder}, capture_output=True, text=True, check=True
        )
    for message, (calls, before, thought) in zip(json.loads(output.stdout), expected, strict=True):
        functions = [call["function"] for call in message.get("tool_calls", ())]
        assert [serialize_call(one["name"], one["arguments"]) for one in functions] == calls
        assert (message.get("content", ""), message.get("reasoning_content", "")) == (before, thought)
    print(f"{TRANSFORMERS}: {len(replies)} replies of {len(EXPRESSED)} dialects are equal")  # noqa: T201
