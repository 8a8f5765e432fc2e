"""Qwen Code, a native client of chat completions derived from Gemini CLI: declares `tools`, reads `tool_calls`.

Observed with 0.24.4: it streams, with `include_usage`, and sends only one request a turn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import GEMINI, MODEL, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import HostedModel, SigningModel
from tests.agents.processes import npm_install, run_agent
from tests.apis import gemini

pytestmark = pytest.mark.agents

QwenCode = Callable[..., CompletedProcess[str]]


@pytest.fixture
def qwen_code(project: Project) -> QwenCode:
    """Return a function that runs Qwen Code with the server at a URL."""
    commands = npm_install("@qwen-code/qwen-code", "0.24.4")

    def run(url: str, *flags: str) -> CompletedProcess[str]:
        variables = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-x", "OPENAI_MODEL": MODEL}
        command = [str(commands / "qwen"), "--yolo", "--auth-type", "openai", *flags, "--prompt", PROMPT]
        return run_agent(command, project.directory, project.home, variables)

    return run


def reading(project: Project) -> Call:
    return Call("read_file", "file_path", str(project.file))


def test_with_vtc_it_works_on_a_hosted_api_that_knows_not_all_fields(
    qwen_code: QwenCode, project: Project, network: Network
) -> None:
    """The API rejects them one at a time; Qwen Code does not notice."""
    hosted = HostedModel("native", reading(project))
    done = qwen_code(network.vtc(network.model(hosted)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert hosted.refused > 0
    assert len(hosted.requests) - hosted.refused == 2


def test_gemini_that_signs_calls_without_thoughts_works_with_vtc(
    qwen_code: QwenCode, project: Project, network: Network
) -> None:
    """Chat completions have no field for a signature; tokens that each event counts are counted once."""
    signing = SigningModel("native", reading(project), api=GEMINI)
    url = network.vtc(network.model(signing), "vtc_upstream_api=gemini-generate")
    done = qwen_code(url, "--output-format", "json")
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert len(signing.requests) == 3
    usage = json.loads(done.stdout)[-1]["usage"]
    assert usage["input_tokens"] == 3 * gemini.USAGE["promptTokenCount"]
