"""Each agent of the table, started by `vtc launch` in a new home: the settings of its profile are sufficient.

The server knows one API. Its model reads the file by a tool of the agent, so the agent prints the word only if it sent
its requests to VTC, executed the call and sent its result back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.apis import CHAT, MODEL, OLLAMA, Api
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import ScriptedModel
from tests.agents.processes import run_agent
from tests.agents.table import AGENTS, QUIET, build_path, call

pytestmark = [pytest.mark.agents, pytest.mark.every]


@pytest.mark.parametrize("api", [CHAT, OLLAMA], ids=["chat", "ollama"])
@pytest.mark.parametrize("name", AGENTS)
def test_it_works_in_a_fresh_home(name: str, api: Api, project: Project, network: Network) -> None:
    agent, read = AGENTS[name], call(name, project.file)
    model = ScriptedModel("hermes" if isinstance(read.value, str) else "native", read, api=api)
    url = network.model(model)
    own = {path: path.read_bytes() for path in settings(project.home)}
    command = [sys.executable, "-P", "-m", "vtc", "launch", name, url, "--"]
    command += [word.replace("{prompt}", PROMPT) for word in agent.headless]
    done = run_agent(command, project.directory, project.home, {**QUIET, "PATH": build_path(name)})
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert {request["model"] for request in model.requests} == {MODEL}
    assert {path: path.read_bytes() for path in own} == own


OWN = (
    ".claude/settings.json",
    ".gemini/settings.json",
    ".qwen/settings.json",
    ".vibe/config.toml",
    ".pi/agent/models.json",
)
"""Files in which agents store a user's settings."""


def settings(home: Path) -> list[Path]:
    """Write a user's settings."""
    files = [home / name for name in OWN]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Qwen Code adds its version to settings that have none.
        file.write_text("x = 1\n" if file.suffix == ".toml" else '{\n  "$version": 4\n}\n')
    return files
