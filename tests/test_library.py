"""The library, as a program uses it: `import vtc`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtc
from tests.known import CORE_REQUIREMENTS

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}}
FORMS: dict[str, Any] = {
    "chat completions": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
    "Responses": [{"type": "function", "name": "read", "parameters": SCHEMA}],
    "Messages": [{"name": "read", "input_schema": SCHEMA}],
    "Gemini": [{"functionDeclarations": [{"name": "read", "parameters": SCHEMA}]}],
    "bare": [{"name": "read", "parameters": SCHEMA}],
    "a request": {"model": "any", "tools": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]},
}
TOOLS = FORMS["chat completions"]
CALLS = [{"name": "read", "arguments": {"path": "a <b>\n", "limit": 2}}, {"name": "read", "arguments": {"path": ""}}]
DIALECTS = ["hermes", "qwen3-coder", "gemma4", "kimi-k2", "glm-4.5", "harmony", "deepseek-v3.1"]


def list_calls(calls: Any) -> list[dict[str, Any]]:
    return [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]


@pytest.mark.parametrize("tools", FORMS.values(), ids=FORMS)
def test_a_reply_is_parsed_with_tools_in_the_form_of_any_api(tools: Any) -> None:
    text = f"<think>Hm.</think>I look.\n{vtc.render_calls(CALLS, 'hermes')}"
    reply = vtc.parse(text, tools, model="Qwen/Qwen3-8B")
    assert (reply.text, reply.reasoning, reply.unread_calls) == ("I look.", "Hm.", ())
    assert list_calls(reply.calls) == CALLS
    assert len({call.id for call in reply.calls}) == 2


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_reader_returns_the_events_of_a_whole_reply(dialect: str, size: int) -> None:
    text = f"I look.\n{vtc.render_calls(CALLS, dialect, TOOLS)}"
    reader = vtc.Reader(TOOLS, dialect=dialect)
    events = [event for at in range(0, len(text), size) for event in reader.feed(text[at : at + size])]
    events += reader.finish()
    whole = vtc.parse(text, TOOLS, dialect=dialect)
    assert list_calls(event for event in events if isinstance(event, vtc.Call)) == CALLS == list_calls(whole.calls)
    assert "".join(event.raw for event in events if isinstance(event, vtc.Text)).rstrip() == "I look." == whole.text


@given(st.dictionaries(st.sampled_from(["path", "text"]), st.text(), min_size=1), st.sampled_from(DIALECTS))
def test_calls_that_are_rendered_are_parsed(arguments: dict[str, str], dialect: str) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
    tools = [{"name": "write", "input_schema": schema}]
    calls = [{"name": "write", "arguments": arguments}]
    assert list_calls(vtc.parse(vtc.render_calls(calls, dialect, tools), tools, dialect=dialect).calls) == calls


def test_ids_of_two_replies_differ() -> None:
    text = vtc.render_calls(CALLS, "hermes")
    first, second = vtc.parse(text, TOOLS), vtc.parse(text, TOOLS)
    assert not {call.id for call in first.calls} & {call.id for call in second.calls}


def test_a_call_of_another_tool_stays_text_with_the_reason() -> None:
    text = "<bash>\n<command>ls</command>\n</bash>"
    assert vtc.parse(text, TOOLS).text == text
    damaged = '<tool_call>\n{"name": "read", "arguments": {"path": "a"'
    reply = vtc.parse(damaged, TOOLS, complete=False)
    assert (reply.text, reply.calls) == (damaged, ())
    assert [unread["reason"] for unread in reply.unread_calls] == ["the reply was cut off inside it"]


def test_a_prompt_declares_the_tools_and_shows_a_call() -> None:
    prompt = vtc.render_prompt(TOOLS, "hermes")
    assert '"name": "read"' in prompt
    assert "<tool_call>" in prompt


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: vtc.parse("", TOOLS, dialect="hermse"), "there is no dialect 'hermse' (did you mean 'hermes'?)"),
        (lambda: vtc.render_prompt(TOOLS, "x"), "there is no dialect 'x'"),
        (lambda: vtc.parse("", [{"type": "web_search"}]), "no entry is a function"),
        (lambda: vtc.parse("", {"model": "any"}), "the object has no key `tools`"),
        (lambda: vtc.Reader([1]), "it is not a list of objects"),  # type: ignore[list-item]
        (lambda: vtc.render_calls([{"arguments": {}}], "hermes"), "call 1 of 1 has no function name"),
    ],
    ids=lambda value: "" if callable(value) else value,
)
def test_errors_name_the_mistake(run: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        run()


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'pars'"):
        vtc.pars  # noqa: B018


def test_the_programs_of_the_guide_run() -> None:
    page = (Path(__file__).parents[1] / "docs" / "library.md").read_text("utf-8")
    exec(compile("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), "library.md", "exec"), {})


LIMITED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in {allowed!r} and root not in sys.stdlib_module_names and not root.startswith("_"):
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, {root!r})
import vtc
tools = [{{"name": "read", "input_schema": {{"type": "object"}}}}]
text = vtc.render_calls([{{"name": "read", "arguments": {{"path": "a"}}}}], "hermes", tools)
reader = vtc.Reader(tools, model="Qwen/Qwen3-8B")
assert [type(event) for event in (*reader.feed(text), *reader.finish())] == [vtc.Call]
assert vtc.parse(text, tools).calls[0].name == "read"
assert "read" in vtc.render_prompt(tools, "hermes")
session = vtc.Session(b'{{"messages": [], "model": "m"}}', server_api="ollama-chat", policy={{"guards": {{}}}})
session.status(500)
assert session.request and session.feed(b"failed") + session.finish()
"""


def test_the_library_needs_four_packages_only() -> None:
    root = str(Path(vtc.__file__).parents[1])
    code = LIMITED.format(allowed={*CORE_REQUIREMENTS, "vtc", "typing_extensions", "cython_runtime"}, root=root)
    subprocess.run([sys.executable, "-I", "-c", code], check=True)
