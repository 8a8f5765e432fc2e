"""Gemini CLI, a native client of Gemini's API: declares `functionDeclarations`, prints a text tool call.

Observed with 0.61.0: it knows only Google's server and the one in `GOOGLE_GEMINI_BASE_URL`, so every other server needs
the bridge. Each turn is one request to `…:streamGenerateContent`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import MODEL, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import HostedModel, ScriptedModel
from tests.agents.processes import npm_install, run_agent

pytestmark = pytest.mark.agents

GUIDE = Path(__file__).parents[2] / "docs" / "bridge.md"
DIALECTS = ["native", "hermes", "qwen3-coder"]
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
}

GeminiCli = Callable[[str], CompletedProcess[str]]


@pytest.fixture
def gemini_cli(project: Project) -> GeminiCli:
    """Return a function that runs Gemini CLI with the server at a URL."""
    commands = npm_install("@google/gemini-cli", "0.61.0")

    def run(url: str) -> CompletedProcess[str]:
        folder = project.home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        guide = dict(re.findall(r"^export (G\w+)=(\S+)$", GUIDE.read_text("utf-8"), re.M))  # exactly as in the guide
        variables = {**guide, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
        command = [str(commands / "gemini"), "--model", MODEL, "--approval-mode", "yolo", "--prompt", PROMPT]
        return run_agent(command, project.directory, project.home, variables)

    return run


def model(dialect: str, project: Project, *, strict: bool = False) -> ScriptedModel:
    return ScriptedModel(dialect, Call("read_file", "file_path", str(project.file)), strict=strict)


def test_without_vtc_a_chat_server_is_of_no_use(gemini_cli: GeminiCli, project: Project, network: Network) -> None:
    one = model("native", project)
    done = gemini_cli(network.model(one))
    assert project.word not in done.stdout, done
    assert one.requests == []
    assert any(":streamGenerateContent" in stray for stray in one.strays), one.strays


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_vtc_it_works_on_a_server_with_chat_completions_only(
    dialect: str, gemini_cli: GeminiCli, project: Project, network: Network
) -> None:
    one = model(dialect, project)
    done = gemini_cli(network.vtc(network.model(one), "vtc_upstream_api=openai-chat", "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert "<tool_call>" not in done.stdout, done


def test_with_vtc_it_works_on_a_model_that_knows_no_tools(
    gemini_cli: GeminiCli, project: Project, network: Network
) -> None:
    upstream = network.model(model("hermes", project, strict=True))
    settings = "vtc_upstream_api=openai-chat", "vtc_tools=prompt", "vtc_dialect=hermes"
    done = gemini_cli(network.vtc(upstream, *settings))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_with_vtc_it_works_on_a_hosted_api_that_knows_not_all_fields(
    gemini_cli: GeminiCli, project: Project, network: Network
) -> None:
    """The API rejects them one at a time; Gemini CLI does not notice."""
    hosted = HostedModel("native", Call("read_file", "file_path", str(project.file)))
    done = gemini_cli(network.vtc(network.model(hosted), "vtc_upstream_api=openai-chat"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert hosted.refused > 0
    assert (len(hosted.requests) - hosted.refused, hosted.strays) == (2, [])
