"""Test `vtc new-dialect --template`: the dialect that it derives reads calls that it was not derived from."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.templates import made_templates
from tests.cli.templates.made_templates import FORMS, HERMES, PLAIN
from tests.e2e.upstream import JSON, Reply, Seen, serving
from vtc.cli import main


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def derive(source: str, folder: Path) -> tuple[str, Result]:
    """Derive a dialect, check it alone and with the template; return its file and the result of the second check."""
    (template := folder / "chat.jinja").write_text(source)
    derived = run("new-dialect", "--template", template, "--name", "new")
    assert derived.exit_code == 0, derived.output
    (profiles := folder / "profiles").mkdir()
    (profiles / "new.yaml").write_text(derived.stdout, "utf-8")
    checked = run("check", profiles)
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output
    return derived.stdout, run("check", profiles, "--template", template, "--dialect", "new")


@pytest.mark.parametrize("form", FORMS)
def test_a_derived_dialect_reads_all_calls_of_its_template(form: str, tmp_path: Path) -> None:
    file, checked = derive(FORMS[form], tmp_path)
    assert checked.exit_code == 0, f"{file}\n{checked.output}"
    assert checked.output.endswith("13 exact\n")
    assert "# unsure: the template has its own" in file
    assert "# unsure: the template writes one call" not in file


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("ONE_CALL", ["# unsure: the template writes one call in a reply", 'call: "<|call|>{json}"']),
        ("BARE", ['section_anchor: "message"', 'names: "declared"']),
        ("PROMPTED", ['prompted: ">>>"', 'names: "declared"']),
        (
            "THINKING",
            [
                'call: "<call>{name} {args}</call>"',
                'result: "<output>{result}</output>"',
                '# In the profile of the model: reasoning: {"open": "<think>", "close": "</think>", "prefilled": true}',
            ],
        ),
    ],
)
def test_facts_of_a_template_are_derived(name: str, lines: list[str], tmp_path: Path) -> None:
    file, checked = derive(getattr(made_templates, name), tmp_path)
    assert "exact" in checked.output
    assert "different" not in checked.output
    assert not [line for line in lines if line not in file], file


def test_a_template_in_a_known_dialect_is_reported(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja")
    assert "this reply is read already, as hermes" in result.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (PLAIN, "the template writes no call in a form that is known"),
        ("{% for", "the template writes no call in a form that is known"),
        ("{{ 'x' * 1000000000000 }}", "the template writes no call in a form that is known"),
        ("x" * (1 << 19), "it is too long to be inspected"),
        (
            HERMES.replace("<tool_call>", "<tool_call>{{ '{' * 9999 }}"),
            "the template writes no call in a form that is known",
        ),
    ],
)
def test_a_template_without_calls_is_reported(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(source)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja")
    assert result.exit_code == 1
    assert message in result.output


def test_a_template_takes_the_place_of_a_reply(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text(HERMES)
    result = run("new-dialect", "--template", tmp_path / "chat.jinja", tmp_path / "chat.jinja")
    assert result.exit_code == 2
    assert "--template needs no reply and no tools" in result.output


CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
RESPONSE_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "JSON": ({"open_pattern": r"\s*<tool_call>", "close": "</tool_call>", "content": "json"}, made_templates.HERMES),
    "other keys": (
        {
            "open": ["[CALLS]"],
            "close": "[/CALLS]",
            "content": "json",
            "transform": {"function": {"name": "{content.tool}", "arguments": "{content.input}"}},
            "transform_each": True,
        },
        made_templates.LIST,
    ),
    "tags": (
        {
            "open_pattern": r"<run=(?P<name>[^>\n]+)>",
            "close_pattern": r"\s*</run>",
            "content": "xml-inline",
            "content_args": {"tag_pattern": r"<arg=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</arg>"},
            "transform": CALL,
        },
        made_templates.PYTHON_TAGS,
    ),
    "marked strings": (
        {
            "open_pattern": r"<\|run>call:(?P<name>\w+)",
            "close": "<run|>",
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [["<|s|>", "<|s|>"]]},
            "transform": CALL,
        },
        made_templates.MARKED_STRINGS,
    ),
    "keywords": (
        {"open": "<|start|>", "close": "<|stop|>", "content": "python-call-list"},
        made_templates.KEYWORDS,
    ),
}
"""Fields of calls in response templates, each with a chat template that writes such calls."""


@pytest.mark.parametrize("form", RESPONSE_FIELDS)
def test_a_response_template_becomes_a_dialect(form: str, tmp_path: Path) -> None:
    field, source = RESPONSE_FIELDS[form]
    thoughts = {"open": "<think>", "close": "</think>", "content": "text"}
    spec = {"start_anchor": "x", "fields": {"reasoning_content": thoughts, "tool_calls": field}}
    (file := tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"response_template": spec, "chat_template": ""})
    )
    (tmp_path / "chat.jinja").write_text(source)
    derived = run("new-dialect", "--template", file, "--name", "new")
    assert derived.exit_code == 0, derived.output
    assert 'reasoning: {open: "<think>", close: "</think>"}' in derived.stdout
    (profiles := tmp_path / "profiles").mkdir()
    (profiles / "new.yaml").write_text(derived.stdout, "utf-8")
    checked = run("check", profiles, "--template", tmp_path / "chat.jinja", "--dialect", "new")
    assert checked.exit_code == 0, f"{derived.stdout}\n{checked.output}"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({}, "it has no field `tool_calls`"),
        ({"open": "<c>", "content": "kv-lines"}, "no dialect can express the content 'kv-lines'"),
        ({"open_pattern": "<c(a|b)>", "content": "json"}, "no pattern can express '<c(a|b)>' from '(a|b)>' on"),
        ({"open_pattern": "x" * 2000, "content": "json"}, "an expression is too long"),
        ({"open": "<c>", "content": "xml-inline", "content_args": {"tag_pattern": "<a>"}}, "no dialect can express it"),
        ({"open_pattern": "<(?P<other>a)>", "content": "json"}, "no dialect can express it"),
    ],
)
def test_a_response_template_beyond_patterns_is_reported(field: dict[str, Any], message: str, tmp_path: Path) -> None:
    (file := tmp_path / "response.yaml").write_text(json.dumps({"fields": {"tool_calls": field}}))
    result = run("new-dialect", "--template", file)
    assert result.exit_code == 1
    assert message in result.output


async def test_the_template_of_a_server_is_asked_for(tmp_path: Path) -> None:
    listed = {"/v1/models": {"data": [{"id": "house"}]}, "/props": {"chat_template": made_templates.NUMBERED}}

    def script(seen: Seen) -> Reply:
        found = seen.path in listed
        return Reply([json.dumps(listed.get(seen.path)).encode()], JSON, 200 if found else 404, framing="length")

    async with serving(script) as server:
        derived = await asyncio.to_thread(run, "new-dialect", "--from", server.url, "--name", "new")
        listed["/props"] = {}
        missing = await asyncio.to_thread(run, "new-dialect", "--from", server.url)
        both = await asyncio.to_thread(run, "new-dialect", "--from", server.url, "--template", "-")
    (tmp_path / "chat.jinja").write_text(made_templates.NUMBERED)
    assert derived.stdout == run("new-dialect", "--template", tmp_path / "chat.jinja", "--name", "new").stdout
    assert missing.exit_code == 1
    assert f"{server.url} states no chat template (/props, /api/show)" in missing.output
    assert both.exit_code == 2


def test_a_template_on_standard_input_and_an_answer_for_programs() -> None:
    result = CliRunner().invoke(main, ["new-dialect", "--template", "-", "--json"], input=HERMES)
    answer = json.loads(result.stdout)
    assert (answer["dialect"]["kind"], answer["dialect"]["name"]) == ("dialect", "my-dialect")
    assert answer["read_already"] == answer["exact"] == answer["samples"] == 12


GO_CALLS = {
    "a condition": '{{ if .ToolCalls }}<calls>\n{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": '
    "{{ .Function.Arguments }}}\n{{ end }}</calls>{{ end }}",
    "a branch": "{{ if .Content }}{{ .Content }}{{ else if .ToolCalls }}[RUN][\n{{- range .ToolCalls -}}\n"
    '{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}},\n{{- end }}][/RUN]\n{{- end }}',
    "variables": "{{- range $i, $call := .ToolCalls }}<|run|>{{ $i }}:{{ $call.Function.Name }}<|with|>"
    "{{ json $call.Function.Arguments }}<|end|>{{ end }}",
}
"""The part of Ollama's templates that writes calls."""


@pytest.mark.parametrize("form", GO_CALLS)
def test_a_go_template_shows_its_calls(form: str, tmp_path: Path) -> None:
    source = f"{{{{- range .Messages }}}}<|{{{{ .Role }}}}|>{GO_CALLS[form]}<|end of turn|>{{{{ end }}}}"
    (tmp_path / "Modelfile").write_text(source)
    result = run("new-dialect", "--template", tmp_path / "Modelfile", "--json")
    answer = json.loads(result.stdout)
    assert answer["exact"] == answer["samples"] >= 11


def test_a_go_template_without_calls_or_with_unknown_actions_has_no_dialect(tmp_path: Path) -> None:
    for source in (
        "{{ .Prompt }}",
        '{{ range .ToolCalls }}{{ printf "%s" .Function.Name }}{{ end }}',
        "{{ range .ToolCalls }}",
    ):
        (tmp_path / "Modelfile").write_text(source)
        assert run("new-dialect", "--template", tmp_path / "Modelfile").exit_code == 1
