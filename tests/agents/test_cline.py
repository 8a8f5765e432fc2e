"""Cline, a client that writes and reads calls as XML in text, with no `tools` in its requests.

Observed with the Cline CLI 2.18.0: about five seconds a run, no side requests. It parses its own tags; other formats
are answered "You did not use a tool", and the third time ends the task with exit code 1. It also executes unrequested
`tool_calls`, so those are no test of VTC here: the call is sent back as an assistant message with `tool_calls`, a
`tool` message "result missing", and the result as user text. From Ollama's `/api/chat` it reads text only, and sends no
other request to the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

from tests.agents.apis import CHAT, MODEL, OLLAMA, Api, Call
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import ScriptedModel
from tests.agents.processes import npm_install, run_agent
from tests.apis.ollama import check_request

pytestmark = pytest.mark.agents

Cline = Callable[..., CompletedProcess[str]]


@pytest.fixture
def cline(project: Project) -> Cline:
    """Return a function that runs Cline with the server at a URL, which speaks chat completions or Ollama's own API."""
    commands = npm_install("cline", "2.18.0")

    def run(url: str, provider: str = "openai") -> CompletedProcess[str]:
        # The state that `cline auth` writes, without telemetry: at the end it would wait ten seconds for that server.
        state = {
            "telemetrySetting": "disabled",
            "welcomeViewCompleted": True,
            "openAiBaseUrl": f"{url}/v1",
            "ollamaBaseUrl": url,
            **{f"{mode}ModeApiProvider": provider for mode in ("act", "plan")},
            **{f"{mode}ModeOpenAiModelId": MODEL for mode in ("act", "plan")},
            **{f"{mode}ModeOllamaModelId": MODEL for mode in ("act", "plan")},
        }
        data = project.home / ".cline" / "data"
        data.mkdir(parents=True)
        (data / "globalState.json").write_text(json.dumps(state))
        (data / "secrets.json").write_text(json.dumps({"openAiApiKey": "sk-x"}))
        command = [str(commands / "cline"), "--yolo", "--cwd", str(project.directory), PROMPT]
        return run_agent(command, project.directory, project.home, {"CLINE_NO_AUTO_UPDATE": "1"})

    return run


def model(dialect: str, project: Project, *, strict: bool = False, api: Api = CHAT) -> ScriptedModel:
    read = Call("read_file", "path", project.file.name)
    return ScriptedModel(dialect, read, finish=("attempt_completion", "result"), strict=strict, api=api)


@pytest.mark.parametrize("dialect", ["tag", "native"])
def test_without_vtc_it_reads_its_own_xml_and_tool_calls(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    done = cline(network.model(model(dialect, project)))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


@pytest.mark.parametrize("dialect", ["hermes", "invoke"])
def test_without_vtc_it_does_not_understand_another_dialect(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    done = cline(network.model(model(dialect, project)))
    assert (done.returncode, project.word in done.stdout + done.stderr) == (1, False), done


@pytest.mark.parametrize("dialect", ["hermes", "native"])
def test_without_vtc_a_model_that_knows_only_its_own_form_fails(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    done = cline(network.model(model(dialect, project, strict=True)))
    assert (done.returncode, project.word in done.stdout + done.stderr) == (1, False), done


@pytest.mark.parametrize("dialect", ["tag", "hermes", "invoke", "qwen3-coder"])
def test_with_vtc_every_dialect_becomes_its_own_xml(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    done = cline(network.vtc(network.model(model(dialect, project))))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


@pytest.mark.parametrize("dialect", ["hermes", "invoke"])
def test_with_vtc_prompt_and_history_are_translated_too(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    upstream = network.model(model(dialect, project, strict=True))
    done = cline(network.vtc(upstream, "vtc_tools=prompt", f"vtc_dialect={dialect}"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done


def test_with_vtc_a_model_that_knows_only_native_tools_works(cline: Cline, project: Project, network: Network) -> None:
    native = model("native", project, strict=True)
    done = cline(network.vtc(network.model(native), "vtc_tools=native"))
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    last = native.requests[-1]
    assert [tool["function"]["name"] for tool in last["tools"]][:2] == ["execute_command", "read_file"]
    assert "<read_file>" not in json.dumps(last["messages"])


def test_without_vtc_it_reads_its_own_xml_from_ollama(cline: Cline, project: Project, network: Network) -> None:
    own = model("tag", project, api=OLLAMA)
    done = cline(network.model(own), "ollama")
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert own.strays == []


@pytest.mark.parametrize("dialect", ["hermes", "invoke"])
def test_without_vtc_it_does_not_understand_another_dialect_from_ollama(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    done = cline(network.model(model(dialect, project, api=OLLAMA)), "ollama")
    assert (done.returncode, project.word in done.stdout + done.stderr) == (1, False), done


@pytest.mark.parametrize("dialect", ["tag", "hermes", "invoke", "qwen3-coder"])
def test_with_vtc_every_dialect_from_ollama_becomes_its_own_xml(
    dialect: str, cline: Cline, project: Project, network: Network
) -> None:
    text = model(dialect, project, api=OLLAMA)
    done = cline(network.vtc(network.model(text)), "ollama")
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    for request in text.requests:
        check_request(request)
