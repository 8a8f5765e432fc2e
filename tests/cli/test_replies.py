"""Test the replies that users pass to `vtc parse` and `vtc new-dialect`: flows, cases, and replies of an API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.apis import chat, pairs
from tests.apis.shapes import SHAPES
from tests.proxy.captures import CALL, save_flows
from vtc.cli import main
from vtc.reporting import Case, serialize_case

UNREAD = "I look.\n<<CALL read>>\n<<filePath>>/a<</filePath>>\n<<END>>\n"
CASE = Case(
    name="mine 5f0c1ab2",
    text=UNREAD,
    dialects=("hermes",),
    tools={"read": {"properties": {"filePath": {"type": "string"}}, "required": ["filePath"]}},
)


def run(*arguments: object, data: bytes = b"") -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=data)


def run_parse(*arguments: object, data: bytes = b"") -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("parse", "--json", *arguments, data=data).stdout.splitlines()]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(chat.TOOLS))
    return path


@pytest.mark.parametrize("form", ["streamed", "whole", "over lines", "a list"])
@pytest.mark.parametrize("api", SHAPES)
def test_a_reply_as_an_api_sends_it(api: str, form: str, tools: Path) -> None:
    """The input is the output of curl, also through jq; it contains text, reasoning and native tool calls."""
    whole = pairs.make_whole_reply(api, f"I look.\n{CALL}")
    data = {
        "streamed": pairs.make_stream(api, ["I look.\n", CALL], reasoning="Hm."),
        "whole": b"\n" + whole + b"\n",
        "over lines": json.dumps(json.loads(whole), indent=2).encode(),
        "a list": b"[" + whole + b"]",
    }[form]
    if form == "a list" and api != "gemini-generate":
        pytest.skip("only Gemini streams a list")
    (reply,) = run_parse("--tools", tools, data=data)
    assert reply["reply"] == f"a reply of {api}"
    assert reply["content"] == "I look."
    assert [(call["name"], call["arguments"]) for call in reply["calls"]] == [("read", {"filePath": "/a"})]
    assert reply["reasoning_content"] == ("Hm." if form == "streamed" else "")
    assert (
        f"a reply of {api}\nmessage\nI look.\ncall read (hermes)\n" in run("parse", "--tools", tools, data=whole).output
    )


@pytest.mark.parametrize("api", SHAPES)
def test_native_tool_calls_are_calls(api: str) -> None:
    (reply,) = run_parse(data=pairs.make_whole_reply(api, "I look.", pairs.READ))
    assert reply["calls"] == [{"name": "read", "arguments": {"filePath": "/a"}, "dialect": "tool_calls", "repairs": []}]
    assert '  filePath: "/a"' in run("parse", data=pairs.make_whole_reply(api, "I look.", pairs.READ)).output


@pytest.mark.parametrize(
    "text",
    ['{"name": "read", "arguments": {"filePath": "/a"}}', "data: hello\n\n", "[]", '- name: x\n  path: "/a"', "{}"],
)
def test_text_that_resembles_another_format_is_text(text: str) -> None:
    (reply,) = run_parse("--dialect", "hermes", data=text.encode())
    assert "reply" not in reply
    assert (reply["content"], reply["calls"]) == (text, [])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", SHAPES)
def test_a_flow_is_parsed_with_the_settings_of_its_request(api: str, stream: bool, tmp_path: Path) -> None:
    path = save_flows(tmp_path, CALL.replace("/a", "5"), UNREAD, api=api, stream=stream)
    read, unread = run_parse(path)
    assert [(call["arguments"], call["dialect"]) for call in read["calls"]] == [({"filePath": "5"}, "hermes")]
    assert read["reply"].startswith("flow ")
    assert (unread["content"], bool(unread["unread"])) == (UNREAD, True)


def test_options_override_the_settings_of_the_flow(tmp_path: Path) -> None:
    path = save_flows(tmp_path, CALL)
    assert run_parse("--dialect", "tag", path)[0]["calls"] == []
    assert [call["dialect"] for call in run_parse(path)[0]["calls"]] == ["hermes"]


def test_an_id_chooses_a_flow_or_a_case(tmp_path: Path) -> None:
    flows = save_flows(tmp_path, "Hello", "Hello again")
    ids = [reply["reply"].split()[1].strip(",") for reply in run_parse(flows)]
    for given in (ids[1], ids[1][:5], f"{ids[1]}-9d3e-4a11"):
        assert [reply["content"] for reply in run_parse("--flow", given, flows)] == ["Hello again"]
    result = run("parse", "--flow", "fffffffff", flows)
    assert result.exit_code == 1
    assert f"no flow fffffffff; available ids: {ids[0]}, {ids[1]}" in result.output.replace("\n", " ")
    (tmp_path / "cases.yaml").write_text(
        serialize_case(CASE) + serialize_case(Case(name="x 00000000", text="no", tools={}))
    )
    assert [reply["content"] for reply in run_parse("--flow", "5f0c1ab2", tmp_path / "cases.yaml")] == [UNREAD]


def test_an_invalid_list_of_cases_is_reported(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text("- name: [")
    assert "not a list of cases: line 1" in run("parse", tmp_path / "cases.yaml").output


@pytest.mark.parametrize("form", ["flows", "cases", "reply"])
def test_a_dialect_is_drafted_from_every_format(form: str, tmp_path: Path, tools: Path) -> None:
    """Flows and cases contain their tools; the only reply with an unread call is chosen."""
    path = tmp_path / "given"
    match form:
        case "flows":
            path = save_flows(tmp_path, "Hello", CALL, UNREAD)
        case "cases":
            path.write_text(
                f"# mine\n{serialize_case(Case(name='x 1', text='Hello', tools={}))}\n{serialize_case(CASE)}"
            )
        case "reply":
            path.write_bytes(pairs.make_stream("anthropic-messages", [UNREAD]))
    result = run("new-dialect", path, *(["--tools", tools] if form == "reply" else []))
    assert result.exit_code == 0, result.output
    assert 'call: "<<CALL {name}>>\\n{params}\\n<<END>>"' in result.stdout
    assert 'vtc: the draft reads read {"filePath":"/a"}' in result.stderr


def test_an_ambiguous_choice_of_replies_is_an_error(tmp_path: Path) -> None:
    path = save_flows(tmp_path, UNREAD, UNREAD)
    ids = [reply["reply"].split()[1].strip(",") for reply in run_parse(path)]
    result = run("new-dialect", path)
    assert result.exit_code == 1
    assert f"2 replies are possible; choose one with --flow: {ids[0]} (read>> …), {ids[1]} (read>> …)" in result.output
    assert run("new-dialect", path, "--flow", ids[0]).exit_code == 0


def test_without_tools_there_is_nothing_to_draft(tmp_path: Path) -> None:
    (tmp_path / "reply").write_text(UNREAD)
    result = run("new-dialect", tmp_path / "reply")
    assert (result.exit_code, "--tools: give the offered tools" in result.output) == (2, True)


def test_a_flow_without_a_reply_is_skipped_with_a_warning(tmp_path: Path) -> None:
    path = save_flows(tmp_path, "", body={"error": "no"})
    save_flows(tmp_path, "Hello")
    result = run("parse", path)
    assert " is skipped: " in result.stderr
    assert "Hello" in result.stdout
