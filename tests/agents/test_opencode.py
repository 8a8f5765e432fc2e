"""OpenCode, a native client: declares `tools`, reads `tool_calls`, prints a text tool call to its user.

Observed with 1.18.33: about five seconds a run, one side request for a title, then one request a turn. After a text
tool call it ends with exit code 0, too, so only the word shows success.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import GEMINI, MODEL, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import DIALECTS, HostedModel, ScriptedModel, SigningModel
from tests.agents.processes import npm_install, run_agent
from tests.apis import gemini

pytestmark = pytest.mark.agents

OpenCode = Callable[..., CompletedProcess[str]]


@pytest.fixture
def opencode(project: Project) -> OpenCode:
    """Return a function that runs OpenCode with the server at a URL."""
    commands = npm_install("opencode-ai", "1.18.33", postinstall="opencode-ai/postinstall.mjs")

    def run(url: str, *flags: str) -> CompletedProcess[str]:
        config = {
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "model": f"lab/{MODEL}",
            "small_model": f"lab/{MODEL}",
            "permission": {"*": "allow"},
            "provider": {
                "lab": {
                    "npm": "@ai-sdk/openai-compatible",
                    "options": {"baseURL": f"{url}/v1", "apiKey": "sk-x"},
                    "models": {MODEL: {"tool_call": True, "limit": {"context": 128000, "output": 8192}}},
                }
            },
        }
        variables = {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        command = [str(commands / "opencode"), "run", "--auto", *flags, PROMPT]
        return run_agent(command, project.directory, project.home, variables)

    return run


def model(dialect: str, project: Project, *, strict: bool = False) -> ScriptedModel:
    return ScriptedModel(dialect, Call("read", "filePath", str(project.file)), strict=strict)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_vtc_a_text_call_ends_as_text(
    dialect: str, opencode: OpenCode, project: Project, network: Network
) -> None:
    done = opencode(network.model(model(dialect, project)))
    assert str(project.file) in done.stdout, done  # the call, shown to the user
    assert project.word not in done.stdout + done.stderr, done


def test_without_vtc_a_strict_model_is_of_no_use(opencode: OpenCode, project: Project, network: Network) -> None:
    done = opencode(network.model(model("tag", project, strict=True)))
    assert "this model knows no tools" in done.stdout + done.stderr, done
    assert project.word not in done.stdout + done.stderr, done


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_text_call_is_carried_out(
    dialect: str, opencode: OpenCode, project: Project, network: Network
) -> None:
    """The request is forwarded unchanged, the server accepts `tools`, its model writes text."""
    upstream = network.model(model(dialect, project))
    done = opencode(network.vtc(upstream, "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_a_model_that_knows_no_tools_learns_them_from_its_prompt(
    dialect: str, opencode: OpenCode, project: Project, network: Network
) -> None:
    """The cycle consists of request, call, result and answer; the server rejects `tools` and `role: tool`."""
    upstream = network.model(model(dialect, project, strict=True))
    done = opencode(network.vtc(upstream, "vtc_tools=prompt", f"vtc_dialect={dialect}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done


def test_with_vtc_it_works_on_a_hosted_api_that_knows_not_all_fields(
    opencode: OpenCode, project: Project, network: Network
) -> None:
    """The API rejects them one at a time; OpenCode does not notice."""
    hosted = HostedModel("native", Call("read", "filePath", str(project.file)))
    done = opencode(network.vtc(network.model(hosted)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert hosted.refused > 0
    assert (len(hosted.requests) - hosted.refused, hosted.strays) == (3, [])


def test_gemini_that_signs_calls_without_thoughts_works_with_vtc(
    opencode: OpenCode, project: Project, network: Network
) -> None:
    """Chat completions have no field for a signature; tokens that each event counts are counted once."""
    signing = SigningModel("native", Call("read", "filePath", str(project.file)), api=GEMINI)
    done = opencode(network.vtc(network.model(signing), "vtc_upstream_api=gemini-generate"), "--format", "json")
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    turns = [request for request in signing.requests if "tools" in request]
    assert len(turns) == 3
    steps = [
        event["part"]["tokens"] for event in map(json.loads, done.stdout.splitlines()) if "tokens" in event["part"]
    ]
    assert [step["input"] for step in steps] == [gemini.USAGE["promptTokenCount"]] * 3
    assert [step["reasoning"] for step in steps] == [7] * 3
