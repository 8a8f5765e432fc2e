"""A longer run with a server of chat completions: calls in parallel, one that fails, a file full of markup.

The model sends reasoning, calls two tools at once, writes a file that contains every marker of a call, reads it again
and states the secret word. Claude Code does all of that through the bridge, with native calls.
"""

from __future__ import annotations

import pytest

from tests.agents.apis import MODEL
from tests.agents.conftest import PROMPT, Network, Project
from tests.agents.processes import npm_install, run_agent
from tests.agents.steps import MARKUP, model

pytestmark = pytest.mark.agents


def test_claude_code_makes_several_calls_on_a_chat_server(project: Project, network: Network) -> None:
    package = "@anthropic-ai/claude-code"
    commands = npm_install(package, "2.1.330", postinstall=f"{package}/install.cjs")
    page = project.directory / "page.html"
    scripted = model(
        [("Read", {"file_path": str(project.file)}), ("Read", {"file_path": str(project.directory / "no such file")})],
        [("Write", {"file_path": str(page), "content": MARKUP})],
        [("Read", {"file_path": str(page)})],
        [("Edit", {"file_path": str(page), "old_string": "</tool_call>\n", "new_string": "</tool_call>!\n"})],
    )
    url = network.vtc(network.model(scripted), "vtc_upstream_api=openai-chat", f"vtc_models=claude-*={MODEL}")
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "sk-x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
    }
    command = [str(commands / "claude"), "-p", PROMPT, "--permission-mode", "acceptEdits"]
    done = run_agent(command, project.directory, project.home, variables)
    assert (done.returncode, project.word in done.stdout) == (0, True), done
    assert page.read_text("utf-8") == MARKUP.replace("</tool_call>\n", "</tool_call>!\n", 1)
    assert len(scripted.requests) == 5
    results = [entry for entry in scripted.requests[1]["messages"] if entry["role"] == "tool"]
    assert [entry["tool_call_id"] for entry in results] == ["call_0_0", "call_0_1"]
    assert project.word in results[0]["content"]
    assert "error" in results[1]["content"].casefold()
    kept = scripted.requests[1]["messages"][:-2]
    assert scripted.requests[2]["messages"][: len(kept)] == kept, "the beginning of the prompt is another"
