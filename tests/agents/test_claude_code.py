"""Claude Code, a native client of Anthropic Messages: declares `tools`, reads `tool_use`, prints a text tool call.

Observed with 2.1.330: one second a run, one request a turn to `/v1/messages?beta=true` and no other: no probe, no
title, no token count. A turn that ends in a text tool call ends the run, with exit code 0. When a stream breaks off, it
retries without `stream`. The npm package has the program itself as an optional dependency; its install script only
links it into place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import CHAT, MESSAGES, MODEL, OLLAMA, RESPONSES, Api, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import HostedModel, OlderClaude, ScriptedModel
from tests.agents.processes import npm_install, run_agent
from tests.apis import pairs
from tests.apis.messages import check_request
from tests.known import MAX_REQUESTS

pytestmark = pytest.mark.agents

DIALECTS = ["hermes", "qwen3-coder", "invoke"]

ClaudeCode = Callable[..., CompletedProcess[str]]

GUIDE = Path(__file__).parents[2] / "docs" / "bridge.md"


@pytest.fixture
def claude_code(project: Project) -> ClaudeCode:
    """Return a function that runs Claude Code with the server at a URL."""
    package = "@anthropic-ai/claude-code"
    commands = npm_install(package, "2.1.330", postinstall=f"{package}/install.cjs")

    def run(url: str, settings: Mapping[str, str] | None = None) -> CompletedProcess[str]:
        models = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
        variables = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_AUTH_TOKEN": "sk-x",
            **{f"ANTHROPIC_{name}": MODEL for name in models},
            "CLAUDE_CODE_SUBAGENT_MODEL": MODEL,
            # Telemetry, error reports, updates and feature flags; in most versions the first disables the others.
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            # A reply that it cannot parse should fail the test at once.
            "CLAUDE_CODE_MAX_RETRIES": "0",
        }
        command = [str(commands / "claude"), "-p", PROMPT]
        return run_agent(command, project.directory, project.home, variables if settings is None else settings)

    return run


OTHERS = {"openai-chat": CHAT, "openai-responses": RESPONSES, "ollama-chat": OLLAMA}
"""Servers that do not speak Anthropic Messages."""


def model(dialect: str, project: Project, api: Api = MESSAGES, **how: bool) -> ScriptedModel:
    return ScriptedModel(dialect, Call("Read", "file_path", str(project.file)), api=api, **how)


def test_without_vtc_a_native_call_is_carried_out(claude_code: ClaudeCode, project: Project, network: Network) -> None:
    """Control: Claude Code can complete the task here."""
    native = model("native", project)
    done = claude_code(network.model(native))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (len(native.requests), native.strays) == (2, [])
    for request in native.requests:
        check_request(request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_vtc_a_text_call_ends_as_text(
    dialect: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    text = model(dialect, project)
    done = claude_code(network.model(text))
    assert str(project.file) in done.stdout, done  # the call, shown to the user
    assert project.word not in done.stdout + done.stderr, done
    assert (len(text.requests), text.has_received(project.word)) == (1, False)


def test_without_vtc_a_strict_model_is_of_no_use(claude_code: ClaudeCode, project: Project, network: Network) -> None:
    done = claude_code(network.model(model("hermes", project, strict=True)))
    assert "this model knows no tools" in done.stdout + done.stderr, done
    assert project.word not in done.stdout + done.stderr, done


def test_without_vtc_a_native_call_in_a_whole_reply_is_carried_out(
    claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    native = model("native", project, breaks=True)
    done = claude_code(network.model(native))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert [request.get("stream", False) for request in native.requests] == [True, False, True, False]


def test_with_vtc_a_native_call_is_carried_out(claude_code: ClaudeCode, project: Project, network: Network) -> None:
    native = model("native", project)
    done = claude_code(network.vtc(network.model(native)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_text_call_is_carried_out(
    dialect: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """The request is forwarded unchanged, the server accepts `tools`, its model writes text."""
    text = model(dialect, project)
    done = claude_code(network.vtc(network.model(text), "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done
    assert len(text.requests) == 2
    for request in text.requests:
        check_request(request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_model_that_knows_no_tools_learns_them_from_its_prompt(
    dialect: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """The cycle consists of request, call, result and answer; the server rejects `tools` and `tool_result`."""
    text = model(dialect, project, strict=True)
    done = claude_code(network.vtc(network.model(text), "vtc_tools=prompt", f"vtc_dialect={dialect}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done
    for request in text.requests:
        check_request(request)


def test_with_vtc_a_text_call_in_a_whole_reply_is_carried_out(
    claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """The whole reply is requested after the stream broke off, and its calls must be read, too."""
    text = model("hermes", project, breaks=True)
    done = claude_code(network.vtc(network.model(text), "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    for request in text.requests:
        check_request(request)


# With a server of another API


@pytest.mark.parametrize("api", OTHERS)
def test_without_vtc_a_server_of_another_api_is_of_no_use(
    api: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    other = model("native", project, OTHERS[api])
    done = claude_code(network.model(other))
    assert project.word not in done.stdout + done.stderr, done
    assert other.requests == []


@pytest.mark.parametrize("dialect", ["native", *DIALECTS])
@pytest.mark.parametrize("api", OTHERS)
def test_with_vtc_a_call_is_carried_out_on_a_server_of_another_api(
    api: str, dialect: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    other = model(dialect, project, OTHERS[api])
    done = claude_code(network.vtc(network.model(other), f"vtc_upstream_api={api}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert len(other.requests) == 2
    for request in other.requests:
        pairs.check_request(api, request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_model_that_knows_no_tools_is_of_use_on_a_chat_server(
    dialect: str, claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    text = model(dialect, project, CHAT, strict=True)
    settings = ("vtc_upstream_api=openai-chat", "vtc_tools=prompt", f"vtc_dialect={dialect}")
    done = claude_code(network.vtc(network.model(text), *settings))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_the_variables_of_the_guide_are_enough_on_a_chat_server(
    claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """They are used exactly as in the guide, except for the address and the name of the model."""
    found = dict(re.findall(r"^export (\w+)=(\S+)$", GUIDE.read_text("utf-8"), re.M))
    native = model("native", project, CHAT)
    url = network.vtc(network.model(native), "vtc_upstream_api=openai-chat")
    settings = {key: value.replace("my-model", MODEL) for key, value in found.items()} | {"ANTHROPIC_BASE_URL": url}
    assert found["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8088"
    done = claude_code(url, settings)
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_names_of_models_are_mapped_to_the_servers(claude_code: ClaudeCode, project: Project, network: Network) -> None:
    """Claude Code requests its own models, and its replies name those."""
    native = model("native", project, CHAT)
    settings = ("vtc_upstream_api=openai-chat", f"vtc_models=claude-*={MODEL}")
    url = network.vtc(network.model(native), *settings)
    done = claude_code(url, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_AUTH_TOKEN": "any"})
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert {request["model"] for request in native.requests} == {MODEL}


def test_with_vtc_it_works_on_a_hosted_api_that_knows_not_all_fields(
    claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """The API rejects them one at a time; Claude Code does not notice."""
    hosted = HostedModel("native", Call("Read", "file_path", str(project.file)))
    done = claude_code(network.vtc(network.model(hosted), "vtc_upstream_api=openai-chat"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert hosted.refused > 0
    assert (len(hosted.requests) - hosted.refused, hosted.strays) == (2, [])


def test_with_vtc_a_claude_that_does_not_know_its_flags_does_the_task(
    claude_code: ClaudeCode, project: Project, network: Network
) -> None:
    """The server rejects flags in a header, then fields, one at a time; Claude Code does not notice.

    This version would remove them by itself, after errors; older ones end with the first.
    """
    older = OlderClaude("native", Call("Read", "file_path", str(project.file)), api=MESSAGES)
    done = claude_code(network.vtc(network.model(older)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (len(older.requests) - older.refused, older.strays) == (2, [])
    assert older.refused < MAX_REQUESTS
    assert {*older.flags[-1]} < {*older.flags[0]}
    assert "claude-code-20250219" in older.flags[-1]
