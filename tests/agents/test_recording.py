"""Requests of each agent of the table in its own API after two calls, as stored in `tests/cases/agents`.

The recordings contain no content. Tests of requests use them instead of agents
(`tests/exchange/asking/test_hosted_servers.py`).
`VTC_RENEW_AGENTS=1` records them again. VTC is between agent and model, knows neither, and changes nothing.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import pytest

from tests.agents.apis import CHAT, GEMINI, MESSAGES, RESPONSES, Call, Reply
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.model_server import ScriptedModel
from tests.agents.processes import run_agent
from tests.agents.recordings import FOLDER, Json, load_recordings, mask_request, serialize_request
from tests.agents.steps import model as steps
from tests.agents.table import AGENTS, QUIET, build_path, call

pytestmark = [pytest.mark.agents, pytest.mark.every]

APIS = {"openai-chat": CHAT, "openai-responses": RESPONSES, "anthropic-messages": MESSAGES, "gemini-generate": GEMINI}
WHOLE = {"grok-cli", "openhands"}
"""Agents that do not stream."""
RENEWED = bool(os.environ.get("VTC_RENEW_AGENTS"))


class SeekingModel(ScriptedModel):
    """A model that tries to read a missing file, and then the existing one."""

    def reply(self, request: Json) -> Reply:
        heard = self.api.hear(request)
        if self._is_offered(heard) and heard.results is None:
            value = self.read.value.replace("hello.txt", "no-such-file")
            return self._call("I will look.\n\n", replace(self.read, value=value))
        return super().reply(request)


def model_of(api: str, read: Call, *, streams: bool) -> ScriptedModel:
    """Return a model that calls twice; in streams of chat completions at once, and after some reasoning."""
    if api != "openai-chat" or not streams:
        return SeekingModel("native", read, api=APIS[api])
    missing = read.arguments.replace("hello.txt", "no-such-file")
    return steps([(read.name, json.loads(written)) for written in (read.arguments, missing)])


@pytest.mark.parametrize("name", AGENTS)
def test_agent_still_sends_the_recorded_request(name: str, project: Project, network: Network) -> None:
    agent = AGENTS[name]
    assert agent.tried
    model = model_of(agent.api, call(name, project.file), streams=name not in WHOLE)
    command = [sys.executable, "-P", "-m", "vtc", "launch", name, network.model(model), "--api", agent.api, "--"]
    command += [word.replace("{prompt}", PROMPT) for word in agent.headless]
    done = run_agent(command, project.directory, project.home, {**QUIET, "PATH": build_path(name)})
    assert project.word in done.stdout, done
    # Some finally request a title of the whole conversation, without tools.
    offering = (request for request in reversed(model.requests) if request.get("tools"))
    body = next(request for request in offering if project.word in json.dumps(request))
    if RENEWED:
        FOLDER.mkdir(exist_ok=True)
        title = f"{agent.title} {agent.tried.version}"
        (FOLDER / f"{name}.yaml").write_text(serialize_request(title, agent.api, body), "utf-8")
    assert load_recordings()[name] == {"api": agent.api, "body": mask_request(body)}
