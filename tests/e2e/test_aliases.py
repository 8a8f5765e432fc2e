"""The profile of a model behind an alias: by the server's list, its description of the model, and a client's list."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

ALIAS = "my-alias"
TEXT = '<function name="read"><param name="filePath">/a</param></function>'
"""A call in the dialect of MiniCPM5, which no unknown model is read in."""
DISCOVERED = {"vtc_discover": "on", "connection_strategy": "lazy"}
PLAIN = {"/v1/models": {"data": [{"id": ALIAS}]}}
HUB = "/data/huggingface/hub/models--openbmb--MiniCPM5-1B/snapshots/0a1b2c"
ANSWERS: dict[str, dict[str, Any]] = {
    "vllm": {"/v1/models": {"data": [{"id": ALIAS, "owned_by": "vllm", "root": "openbmb/MiniCPM5-1B"}]}},
    "vllm-cache": {"/v1/models": {"data": [{"id": ALIAS, "owned_by": "vllm", "root": HUB}]}},
    "vllm-adapter": {
        "/v1/models": {
            "data": [
                {"id": "base", "owned_by": "vllm", "root": "/models/MiniCPM5-1B", "parent": None},
                {"id": ALIAS, "owned_by": "vllm", "root": "/adapters/sql", "parent": "base"},
            ]
        }
    },
    "llama.cpp": {
        "/v1/models": {"data": [{"id": ALIAS, "owned_by": "llamacpp"}]},
        "/props": {"model_path": "/home/qwen3/models/MiniCPM5-1B-Q4_K_M.gguf", "model_alias": ALIAS},
    },
    "sglang": {
        "/v1/models": {"data": [{"id": ALIAS, "owned_by": "sglang", "root": ALIAS}]},
        "/model_info": {"model_path": "openbmb/MiniCPM5-1B"},
    },
    "sglang-old": {
        "/v1/models": {"data": [{"id": ALIAS, "owned_by": "sglang", "root": ALIAS}]},
        "/get_model_info": {"model_path": "openbmb/MiniCPM5-1B"},
    },
    "ollama": {
        **PLAIN,
        "/api/chat": {},
        "/api/show": {"details": {"parent_model": ""}, "model_info": {"general.basename": "MiniCPM5"}},
    },
}


def serving(answers: dict[str, Any]) -> Any:
    """Return a chat server that answers these paths."""

    def script(seen: Seen) -> Reply:
        if seen.path in answers:
            return Reply([json.dumps(answers[seen.path]).encode()], JSON, framing="length")
        if seen.path != "/v1/chat/completions":
            return Reply([b'{"detail": "Not Found"}'], JSON, 404, framing="length")
        if seen.body == b"{}":
            return Reply([b'{"error": "no messages"}'], JSON, 400, framing="length")
        return Reply([json.dumps(chat.completion(TEXT)).encode()], JSON, framing="length")

    return script


async def ask(lab: Lab, **fields: Any) -> tuple[str, list[str], dict[str, Any]]:
    """Send a request for the alias; return the profile, the names of the calls, and the report."""
    answer = await lab.post(chat.request(model=ALIAS, **fields))
    assert answer.status == 200, answer.body
    report = (await lab.next_client_flow()).metadata["vtc"]
    calls = json.loads(answer.body)["choices"][0]["message"].get("tool_calls") or []
    return report["model"], [call["function"]["name"] for call in calls], report


@pytest.mark.every
@pytest.mark.parametrize("server", ANSWERS)
async def test_server_states_the_model_behind_an_alias(
    server: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    lab = await start(serving(ANSWERS[server]), **DISCOVERED)
    for _ in range(2):
        model, calls, report = await ask(lab)
        assert (model, calls) == ("minicpm", ["read"])
    assert any("MiniCPM5" in line and f"behind {ALIAS!r}" in line for line in report["why"])
    lines = [line for line in caplog.messages if line.startswith(f"vtc: model {ALIAS} at 127.0.0.1:")]
    assert len(lines) == 1
    assert "of profile minicpm (built-in)" in lines[0]
    assert lines[0].endswith("; its malformed calls are repaired")


async def test_list_that_a_client_requests_states_the_model(start: Start) -> None:
    lab = await start(serving(ANSWERS["vllm"]))
    agent = {"user-agent": "agent/1", "authorization": "Bearer of-one-client"}
    lab.client.headers.update(agent)
    assert (await ask(lab))[:2] == ("unknown", [])
    await lab.client.get("/v1/models")
    assert (await ask(lab))[:2] == ("minicpm", ["read"])
    lab.client.headers["authorization"] = "Bearer of-another-client"
    assert (await ask(lab))[:2] == ("unknown", [])


async def test_without_a_memory_nothing_is_learned(start: Start) -> None:
    lab = await start(serving(ANSWERS["vllm"]), vtc_cache="off")
    await lab.client.get("/v1/models")
    assert (await ask(lab))[:2] == ("unknown", [])


async def test_description_that_a_client_requests_states_the_model(start: Start) -> None:
    lab = await start(serving(ANSWERS["ollama"]))
    await lab.client.post("/api/show", json={"model": ALIAS})
    assert (await ask(lab))[:2] == ("minicpm", ["read"])


async def test_profile_of_the_user_for_the_alias_has_priority(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f'{{kind: model, name: mine, match: {{model: "{ALIAS}"}}}}')
    lab = await start(serving(ANSWERS["vllm"]), vtc_profiles=[str(tmp_path)], **DISCOVERED)
    assert (await ask(lab))[0] == "mine"


@pytest.mark.parametrize("root", ["Lab/Unknown-7B", "", 5, None, ["x"], "/", "models--", "x" * 100_000])
async def test_real_name_without_a_profile_changes_nothing(root: Any, start: Start) -> None:
    listed = {"/v1/models": {"data": [{"id": ALIAS, "owned_by": "vllm", "root": root}]}}
    lab = await start(serving(listed), **DISCOVERED)
    assert (await ask(lab))[:2] == ("unknown", [])
