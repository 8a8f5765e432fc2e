"""Codex, a native client of OpenAI Responses: declares `tools`, reads `function_call`, prints a text tool call.

Observed with 0.171.0: one second a run, one request a turn to `/v1/responses` and no other. It has no tool for reading
files: it runs a command. A turn that ends in a text tool call ends the run, with exit code 0. The npm package has the
program itself as an optional dependency, and no install script.

The tools of an MCP server are a namespace, `mcp__files` with `read_note` in it, and so must be the calls: the flat name
is an "unsupported call". `apply_patch` is a custom tool, which receives the patch as it is; only models that Codex
knows have it, so the test provides a catalog of models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.agents.apis import CHAT, MESSAGES, MODEL, OLLAMA, RESPONSES, Api, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import HostedModel, ScriptedModel
from tests.agents.processes import npm_install, run_agent
from tests.agents.steps import MARKUP
from tests.agents.steps import model as steps
from tests.apis import pairs
from tests.apis.responses import check_request

pytestmark = pytest.mark.agents

MCP_SERVER = Path(__file__).with_name("mcp_server.py")

DIALECTS = ["hermes", "qwen3-coder", "invoke"]
VERSION = "0.171.0"

# Plugins would be fetched from the internet at every start.
CONFIG = """
model = "{model}"
model_provider = "{provider}"
approval_policy = "never"
check_for_update_on_startup = false
web_search = "disabled"

[features]
plugins = false

[analytics]
enabled = false

[history]
persistence = "none"

[model_providers.lab]
name = "lab"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "LAB_KEY"
# A reply that it cannot read should fail the test at once.
request_max_retries = 0
stream_max_retries = 0
"""

MCP = f"""
[mcp_servers.files]
command = "{sys.executable}"
args = ["{MCP_SERVER}"]
"""

CATALOG = {
    "slug": MODEL,
    "display_name": MODEL,
    "description": None,
    "supported_reasoning_levels": [],
    "shell_type": "unified_exec",
    "visibility": "list",
    "supported_in_api": True,
    "priority": 1,
    "upgrade": None,
    "base_instructions": "You are a coding agent.",
    "supports_reasoning_summaries": False,
    "support_verbosity": False,
    "default_verbosity": None,
    "apply_patch_tool_type": "freeform",
    "truncation_policy": {"mode": "bytes", "limit": 10000},
    "supports_parallel_tool_calls": False,
    "context_window": 128000,
    "experimental_supported_tools": [],
}
"""The entry of a model in Codex's catalog; only the tool for patches matters here."""

NO_VARIABLES: Mapping[str, str] = {}
Codex = Callable[..., CompletedProcess[str]]


@pytest.fixture
def codex(project: Project) -> Codex:
    """Return a function that runs Codex; `settings` are before the rest of its configuration, `tables` after it."""
    commands = npm_install("@openai/codex", VERSION)

    def run(
        url: str,
        settings: str = "",
        tables: str = "",
        provider: str = "lab",
        variables: Mapping[str, str] = NO_VARIABLES,
    ) -> CompletedProcess[str]:
        folder = project.home / ".codex"
        folder.mkdir()
        config = CONFIG.format(model=MODEL, url=url, provider=provider)
        (folder / "config.toml").write_text(settings + config + tables)
        # Its sandbox is unavailable in most containers, and outside of a repository it refuses to start.
        flags = ["--sandbox", "danger-full-access", "--skip-git-repo-check", "--ephemeral"]
        command = [str(commands / "codex"), "exec", *flags, PROMPT]
        return run_agent(command, project.directory, project.home, {"LAB_KEY": "sk-x", **variables})

    return run


@pytest.fixture
def catalog(project: Project) -> str:
    """Return the setting by which Codex knows the model and gives it `apply_patch`."""
    file = project.home / "models.json"
    file.write_text(json.dumps({"models": [CATALOG]}))
    return f'model_catalog_json = "{file}"\n'


OTHERS = {"openai-chat": CHAT, "anthropic-messages": MESSAGES, "ollama-chat": OLLAMA}
"""Servers that do not speak Responses."""


def model(dialect: str, project: Project, api: Api = RESPONSES, *, strict: bool = False) -> ScriptedModel:
    return ScriptedModel(dialect, Call("exec_command", "cmd", f"cat {project.file}"), strict=strict, api=api)


def mcp_model(dialect: str, project: Project, **name: str) -> ScriptedModel:
    """Return a model that reads the file by the tool of an MCP server, with the given form of its name."""
    return ScriptedModel(dialect, Call("read_note", "path", str(project.file), **name), api=RESPONSES)


def patching_model(dialect: str, project: Project, api: Api = RESPONSES) -> ScriptedModel:
    """Return a model that adds a file whose name is the word, which only the patch tool's result contains."""
    patch = f"*** Begin Patch\n*** Add File: {project.word}\n+Done.\n*** End Patch\n"
    return ScriptedModel(dialect, Call("apply_patch", "input", patch, custom=True), api=api)


def test_without_vtc_a_native_call_is_carried_out(codex: Codex, project: Project, network: Network) -> None:
    """Control: Codex can complete the task here."""
    native = model("native", project)
    done = codex(network.model(native))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (len(native.requests), native.strays) == (2, [])
    for request in native.requests:
        check_request(request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_vtc_a_text_call_ends_as_text(dialect: str, codex: Codex, project: Project, network: Network) -> None:
    text = model(dialect, project)
    done = codex(network.model(text))
    assert str(project.file) in done.stdout, done  # the call, shown to the user
    assert project.word not in done.stdout + done.stderr, done
    assert (len(text.requests), text.has_received(project.word)) == (1, False)


def test_without_vtc_a_strict_model_is_of_no_use(codex: Codex, project: Project, network: Network) -> None:
    done = codex(network.model(model("hermes", project, strict=True)))
    assert "this model knows no tools" in done.stdout + done.stderr, done
    assert project.word not in done.stdout + done.stderr, done


def test_with_vtc_a_native_call_is_carried_out(codex: Codex, project: Project, network: Network) -> None:
    native = model("native", project)
    done = codex(network.vtc(network.model(native)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_text_call_is_carried_out(dialect: str, codex: Codex, project: Project, network: Network) -> None:
    """The request is forwarded unchanged, the server accepts `tools`, its model writes text."""
    text = model(dialect, project)
    done = codex(network.vtc(network.model(text), "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done
    assert len(text.requests) == 2
    for request in text.requests:
        check_request(request)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_model_that_knows_no_tools_learns_them_from_its_prompt(
    dialect: str, codex: Codex, project: Project, network: Network
) -> None:
    """The cycle consists of request, call, result and answer; the server rejects `tools` and `function_call_output`."""
    text = model(dialect, project, strict=True)
    done = codex(network.vtc(network.model(text), "vtc_tools=prompt", f"vtc_dialect={dialect}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done
    for request in text.requests:
        check_request(request)


@pytest.mark.parametrize("api", [RESPONSES, CHAT, OLLAMA], ids=["same", "openai-chat", "ollama-chat"])
def test_with_vtc_a_server_that_refuses_tools_is_asked_at_once_without(
    api: Api, codex: Codex, project: Project, network: Network
) -> None:
    """The server's rejection, not an option, moves the tools into the prompt."""
    text = model("hermes", project, api, strict=True)
    name = {id(other): name for name, other in OTHERS.items()}.get(id(api), "same")
    done = codex(network.vtc(network.model(text), f"vtc_upstream_api={name}", "vtc_dialect=hermes"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert "knows no tools" not in done.stdout + done.stderr, done
    assert len(text.requests) == 3  # one was rejected


class FullModel(ScriptedModel):
    """A model with a full window, whose error only one agent recognizes."""

    def refusal(self, request: dict[str, Any]) -> str | None:
        return "Your request exceeded model token limit: 262144 (requested: 263162)"


def test_full_window_is_reported_in_codexs_form_with_vtc(codex: Codex, project: Project, network: Network) -> None:
    full = FullModel("native", Call("exec_command", "cmd", "true"), api=CHAT)
    done = codex(network.vtc(network.model(full), "vtc_upstream_api=openai-chat"))
    assert "Codex ran out of room in the model's context window" in done.stderr, done
    assert len(full.requests) == 1


def test_without_vtc_a_native_call_of_an_mcp_tool_is_carried_out(
    codex: Codex, project: Project, network: Network
) -> None:
    native = mcp_model("native", project, namespace="mcp__files")
    done = codex(network.model(native), tables=MCP)
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_without_vtc_a_flat_name_of_an_mcp_tool_is_refused(codex: Codex, project: Project, network: Network) -> None:
    flat = mcp_model("native", project, flat="mcp__files__read_note")
    done = codex(network.model(flat), tables=MCP)
    assert "unsupported call: mcp__files__read_note" in done.stderr, done
    assert not flat.has_received(project.word)


@pytest.mark.parametrize("dialect", ["native", "hermes", "qwen3-coder"])
@pytest.mark.parametrize("name", ["mcp__files__read_note", "mcp__files.read_note"])
def test_with_vtc_a_flat_name_of_an_mcp_tool_is_parted(
    name: str, dialect: str, codex: Codex, project: Project, network: Network
) -> None:
    """The server knows no namespaces, so neither native calls nor text tool calls have one."""
    flat = mcp_model(dialect, project, flat=name)
    done = codex(network.vtc(network.model(flat), "vtc_tools=native"), tables=MCP)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    for request in flat.requests:
        check_request(request)


def test_without_vtc_a_native_call_of_a_custom_tool_is_carried_out(
    codex: Codex, project: Project, network: Network, catalog: str
) -> None:
    done = codex(network.model(patching_model("native", project)), settings=catalog)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (project.directory / project.word).exists()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_text_call_of_a_custom_tool_is_carried_out(
    dialect: str, codex: Codex, project: Project, network: Network, catalog: str
) -> None:
    """In text it has one argument, `input`; Codex gets the bare patch."""
    text = patching_model(dialect, project)
    done = codex(network.vtc(network.model(text), "vtc_tools=native"), settings=catalog)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (project.directory / project.word).exists()
    for request in text.requests:
        check_request(request)


# WebSocket

WEBSOCKETS = "supports_websockets = true\n"
"""A line of the provider's table, which is the last one."""
ASKED = "GET /v1/responses"


def test_without_vtc_it_asks_for_a_websocket_first(codex: Codex, project: Project, network: Network) -> None:
    """Control for the tests below; this server has no WebSocket."""
    native = model("native", project)
    done = codex(network.model(native), tables=WEBSOCKETS)
    assert ASKED in native.strays, done


@pytest.mark.parametrize("way", ["base url", "https proxy"])
@pytest.mark.parametrize("dialect", ["native", "hermes"])
def test_with_vtc_calls_arrive_on_a_connection_meant_for_a_websocket(
    dialect: str, way: str, codex: Codex, project: Project, network: Network
) -> None:
    """VTC declines it at once, and the server gets no request for one."""
    scripted = model(dialect, project)
    done = run_over(way, codex, network, scripted, "vtc_tools=native")
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (len(scripted.requests), ASKED in scripted.strays) == (2, False)


@pytest.mark.parametrize("way", ["base url", "https proxy"])
@pytest.mark.parametrize("dialect", ["native", "hermes"])
def test_with_vtc_policies_apply_to_a_connection_meant_for_a_websocket(
    dialect: str, way: str, codex: Codex, project: Project, network: Network
) -> None:
    """The tool is offered, and one use of it is forbidden."""
    policy = project.home / "policy.yaml"
    rule = {"when": {"tools": "exec_command", "arguments": {"cmd": "touch"}}, "then": {"refuse": "Touch nothing."}}
    guards = {"reactors": [{"name": "no-touching", **rule}]}
    policy.write_text(json.dumps({"kind": "policy", "name": "mine", "match": {}, "guards": guards}))
    touching = ScriptedModel(dialect, Call("exec_command", "cmd", "touch forbidden"), api=RESPONSES)
    done = run_over(way, codex, network, touching, "vtc_tools=native", f"vtc_profiles={policy}")
    assert "Touch nothing." in done.stdout, done
    assert not (project.directory / "forbidden").exists(), done
    assert ASKED not in touching.strays


def run_over(way: str, codex: Codex, network: Network, model: ScriptedModel, *settings: str) -> CompletedProcess[str]:
    """Run Codex with a provider that supports WebSockets: its base URL is VTC's, or VTC is a proxy in front of
    OpenAI.
    """
    url = network.model(model)
    if way == "base url":
        return codex(network.vtc(url, *settings), tables=WEBSOCKETS)
    variables = network.https_proxy("api.openai.com", url, *settings)
    return codex(url, provider="openai", variables={**variables, "CODEX_API_KEY": "sk-x", "OPENAI_API_KEY": "sk-x"})


# With a server of another API


@pytest.mark.parametrize("api", OTHERS)
def test_without_vtc_a_server_of_another_api_is_of_no_use(
    api: str, codex: Codex, project: Project, network: Network
) -> None:
    other = model("native", project, OTHERS[api])
    done = codex(network.model(other))
    assert project.word not in done.stdout + done.stderr, done
    assert other.requests == []


@pytest.mark.parametrize("dialect", ["native", *DIALECTS])
@pytest.mark.parametrize("api", OTHERS)
def test_with_vtc_a_call_is_carried_out_on_a_server_of_another_api(
    api: str, dialect: str, codex: Codex, project: Project, network: Network
) -> None:
    other = model(dialect, project, OTHERS[api])
    done = codex(network.vtc(network.model(other), f"vtc_upstream_api={api}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert len(other.requests) == 2
    for request in other.requests:
        pairs.check_request(api, request)


@pytest.mark.parametrize("dialect", ["native", *DIALECTS])
def test_with_vtc_a_patch_is_made_on_a_chat_server(
    dialect: str, codex: Codex, project: Project, network: Network, catalog: str
) -> None:
    """On that server a custom tool is a function with one text."""
    other = patching_model(dialect, project, CHAT)
    done = codex(network.vtc(network.model(other), "vtc_upstream_api=openai-chat"), settings=catalog)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (project.directory / project.word).exists()


@pytest.mark.parametrize("dialect", ["native", *DIALECTS])
def test_with_vtc_a_tool_of_an_mcp_server_is_called_on_a_chat_server(
    dialect: str, codex: Codex, project: Project, network: Network
) -> None:
    """A chat server knows no namespaces, so the tool has a flat name there, and its namespace again in Codex."""
    other = ScriptedModel(dialect, Call("mcp__files__read_note", "path", str(project.file)), api=CHAT)
    done = codex(network.vtc(network.model(other), "vtc_upstream_api=openai-chat"), tables=MCP)
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_with_vtc_a_thinking_model_makes_several_calls_on_a_chat_server(
    codex: Codex, project: Project, network: Network, catalog: str
) -> None:
    """In turn, a file is read, another is missing, and a page full of markup is added and read again."""
    lines = "".join(f"+{line}\n" for line in MARKUP.splitlines())
    scripted = steps(
        [("exec_command", {"cmd": f"cat {project.file}"})],
        [("exec_command", {"cmd": "cat no-such-file"})],
        [("apply_patch", {"input": f"*** Begin Patch\n*** Add File: page.html\n{lines}*** End Patch\n"})],
        [("exec_command", {"cmd": "cat page.html"})],
    )
    done = codex(network.vtc(network.model(scripted), "vtc_upstream_api=openai-chat"), settings=catalog)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (project.directory / "page.html").read_text("utf-8") == MARKUP
    assert len(scripted.requests) == 5
    results = [entry["content"] for entry in scripted.requests[-1]["messages"] if entry["role"] == "tool"]
    assert project.word in results[0]
    assert "No such file" in results[1]
    assert MARKUP in results[3]
    for before, after in pairwise(request["messages"] for request in scripted.requests):
        assert after[: len(before)] == before, "the beginning of the prompt is another"


def test_with_vtc_it_works_on_a_hosted_api_that_knows_not_all_fields(
    codex: Codex, project: Project, network: Network
) -> None:
    """The API rejects them one at a time; Codex does not notice."""
    hosted = HostedModel("native", Call("exec_command", "cmd", f"cat {project.file}"))
    url = network.vtc(network.model(hosted), "vtc_upstream_api=openai-chat")
    done = codex(url, settings='model_reasoning_effort = "high"\n')
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert hosted.refused > 0
    assert (len(hosted.requests) - hosted.refused, hosted.strays) == (2, [])
