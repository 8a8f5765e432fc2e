"""Codex, a native client of OpenAI Responses: declares `tools`, reads `function_call`, shows a call in text.

Seen with 0.169.0: one second a run, one request a turn to `/v1/responses` and nothing else. It has no tool for
reading files: it runs a command. A turn that ends in a text call is the end of the run, with exit code 0. The npm
package has the program itself as an optional dependency, and no install script.
"""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import RESPONSES, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import MODEL, ScriptedModel
from tests.agents.processes import npm_install, run_agent
from tests.apis.responses import check_request

pytestmark = pytest.mark.agents

DIALECTS = ["hermes", "qwen3-coder", "invoke"]

CONFIG = """
model = "{model}"
model_provider = "lab"
approval_policy = "never"
check_for_update_on_startup = false
web_search = "disabled"

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

Codex = Callable[[str], CompletedProcess[str]]


@pytest.fixture
def codex(project: Project) -> Codex:
    """Run Codex against the server at a URL."""
    commands = npm_install("@openai/codex", "0.169.0")

    def run(url: str) -> CompletedProcess[str]:
        folder = project.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(CONFIG.format(model=MODEL, url=url))
        # Its sandbox cannot be had in most containers, and outside a repository it refuses to start.
        flags = ["--sandbox", "danger-full-access", "--skip-git-repo-check", "--ephemeral"]
        command = [str(commands / "codex"), "exec", *flags, PROMPT]
        return run_agent(command, project.directory, project.home, {"LAB_KEY": "sk-x"})

    return run


def model(dialect: str, project: Project, *, strict: bool = False) -> ScriptedModel:
    return ScriptedModel(dialect, Call("exec_command", "cmd", f"cat {project.file}"), strict=strict, api=RESPONSES)


def test_without_vtc_a_native_call_is_carried_out(codex: Codex, project: Project, network: Network) -> None:
    """Without this the tests below would prove nothing: Codex can do the task here."""
    native = model("native", project)
    done = codex(network.model(native))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert (len(native.requests), native.strays) == (2, [])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_without_vtc_a_text_call_ends_as_text(dialect: str, codex: Codex, project: Project, network: Network) -> None:
    text = model(dialect, project)
    done = codex(network.model(text))
    assert str(project.file) in done.stdout, done  # the call, leaked to the user
    assert project.word not in done.stdout + done.stderr, done
    assert (len(text.requests), text.heard(project.word)) == (1, False)


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
    """The request goes on untouched, the server takes `tools`, its model writes text."""
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
    """D7, the whole cycle: ask, call, result, answer; the server refuses `tools` and `function_call_output`."""
    text = model(dialect, project, strict=True)
    done = codex(network.vtc(network.model(text), "vtc_tools=prompt", f"vtc_dialect={dialect}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert str(project.file) not in done.stdout, done
    for request in text.requests:
        check_request(request)
