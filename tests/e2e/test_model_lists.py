"""Clients' requests for lists of models and for one model by name, if the server speaks another API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx
import ollama as ollama_sdk
import pytest
from google import genai

from tests.apis import chat
from tests.e2e.conftest import PATIENCE, Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

NAME = "Lab/Model-8B"
TIME = 1_780_000_000
DATE = "2026-05-28T20:26:40Z"
"""The same time in the format of RFC 3339."""

SERVERS: Mapping[str, Mapping[str, Any]] = {
    "openai-chat": {
        "/v1/models": {
            "object": "list",
            "data": [
                {"id": "other", "object": "model", "created": 5, "owned_by": "vllm"},
                {
                    "id": NAME,
                    "object": "model",
                    "created": TIME,
                    "owned_by": "vllm",
                    "max_model_len": 32768,
                    "supported_parameters": ["tools", "reasoning"],
                    "architecture": {"input_modalities": ["text", "image"]},
                },
            ],
        }
    },
    "anthropic-messages": {
        "/v1/models": {
            "data": [
                {"type": "model", "id": "other", "display_name": "Other", "created_at": DATE},
                {
                    "type": "model",
                    "id": NAME,
                    "display_name": "Lab",
                    "created_at": DATE,
                    "max_input_tokens": 32768,
                    "max_tokens": 8192,
                    "capabilities": {"thinking": {"supported": True}, "image_input": {"supported": True}},
                },
            ],
            "has_more": False,
        }
    },
    "gemini-generate": {
        "/v1beta/models": {
            "models": [
                {"name": "models/other", "displayName": "Other"},
                {"name": f"models/{NAME}", "inputTokenLimit": 32768, "outputTokenLimit": 8192, "thinking": True},
            ]
        }
    },
    "ollama-chat": {
        "/api/tags": {
            "models": [
                {"name": "other:latest", "model": "other:latest", "modified_at": DATE, "size": 1, "digest": "a"},
                {"name": NAME, "model": NAME, "modified_at": DATE, "size": 1, "digest": "b"},
            ]
        },
        "/api/show": {
            "modified_at": DATE,
            "capabilities": ["completion", "tools", "thinking", "vision"],
            "model_info": {"general.architecture": "llama", "llama.context_length": 32768},
        },
    },
}
"""For each API of a server, its responses by path."""
HEADERS = {
    "anthropic-messages": {"anthropic-version": "2023-06-01", "x-api-key": "of-the-client"},
    "gemini-generate": {"x-goog-api-key": "of-the-client"},
}
LISTS = {"gemini-generate": "/v1beta/models", "ollama-chat": "/api/tags"}


def serving(server: str) -> Any:
    def script(seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        answer = SERVERS[server].get(path)
        if path == "/api/show" and seen.json != {"model": NAME}:
            answer = None
        if answer is None:
            return Reply([b'{"error": "model not found"}'], JSON, 404, framing="length")
        return Reply([json.dumps(answer).encode()], JSON, framing="length")

    return script


async def list_models(lab: Lab, client: str) -> httpx.Response:
    return await lab.client.get(LISTS.get(client, "/v1/models"), headers=HEADERS.get(client))


async def show_model(lab: Lab, client: str, name: str) -> httpx.Response:
    if client == "ollama-chat":
        return await lab.client.post("/api/show", json={"model": name})
    return await lab.client.get(f"{LISTS.get(client, '/v1/models')}/{name}", headers=HEADERS.get(client))


def window_of(client: str, model: Mapping[str, Any]) -> int:
    keys = {"openai-chat": "context_length", "anthropic-messages": "max_input_tokens"}
    if client == "ollama-chat":
        info = model["model_info"]
        return int(info[f"{info['general.architecture']}.context_length"])
    return int(model[keys.get(client, "inputTokenLimit")])


PAIRS = [(client, server) for client in SERVERS for server in SERVERS if client != server]


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_client_of_any_api_gets_the_models_of_any_server(client: str, server: str, start: Start) -> None:
    """Names are the same as in requests; the response for one model includes its window, if the server states it."""
    lab = await start(serving(server), vtc_upstream_api=server)
    body = (await list_models(lab, client)).json()
    entries = body["data"] if "data" in body else body["models"]
    key = "name" if client in LISTS else "id"
    of_gemini = client == "gemini-generate"
    names = ["other:latest" if server == "ollama-chat" else "other", NAME]
    assert [entry[key].removeprefix("models/" * of_gemini) for entry in entries] == names
    times = [
        str(entry[name]) for entry in entries for name in ("created", "created_at", "modified_at") if name in entry
    ]
    assert not any(time in ("0", "") or time.startswith("1970-01-01T00:00:00") for time in times)
    assert bool(times) == (not of_gemini)
    one = (await show_model(lab, client, NAME)).json()
    assert window_of(client, one) == 32768
    if client == "ollama-chat":
        able = {"tools", "thinking", "vision"} - ({"vision"} if server == "gemini-generate" else set())
        assert {*one["capabilities"]} == {"completion", *able}
    if client == "gemini-generate":
        assert one["thinking"] is True


@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_a_model_that_the_server_has_not_is_an_error_of_the_clients_api(
    client: str, server: str, start: Start
) -> None:
    lab = await start(serving(server), vtc_upstream_api=server)
    answer = await show_model(lab, client, "Nobodys/Model")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert "has no model Nobodys/Model" in (error if client == "ollama-chat" else error["message"])
    expected = {"anthropic-messages": ("type", "not_found_error"), "gemini-generate": ("status", "NOT_FOUND")}
    if client in expected:
        assert error[expected[client][0]] == expected[client][1]


@pytest.mark.parametrize(("status", "body"), [(404, b"no"), (401, b'{"error": {"message": "no key"}}'), (200, b"<p>")])
async def test_missing_list_is_reported_in_the_form_of_the_clients_api(status: int, body: bytes, start: Start) -> None:
    lab = await start(Reply([body], JSON, status, framing="length"), vtc_upstream_api="openai-chat")
    answer = await list_models(lab, "anthropic-messages")
    assert answer.status_code == (502 if status == 200 else status)
    assert answer.json()["type"] == "error"
    assert f"answers {status} to GET /v1/models" in answer.json()["error"]["message"]


async def test_alias_is_listed_with_the_capabilities_of_its_model(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat", vtc_models=[f"claude-lab={NAME}"])
    names = [(model["id"], model.get("max_input_tokens")) for model in (await list_models(lab, HEADED)).json()["data"]]
    assert names == [("claude-lab", 32768), ("other", None), (NAME, 32768)]
    assert (await show_model(lab, HEADED, "claude-lab")).json()["max_input_tokens"] == 32768


HEADED = "anthropic-messages"


@pytest.mark.parametrize("client", ["anthropic-messages", "gemini-generate"])
async def test_key_is_sent_in_the_servers_place(client: str, start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    await list_models(lab, client)
    headers = lab.upstream.seen[0].headers
    assert headers["authorization"] == "Bearer of-the-client"
    assert not headers.keys() & {"x-api-key", "x-goog-api-key", "anthropic-version"}


@pytest.mark.parametrize("name", ["models/lab-model", "lab-model"])
async def test_a_model_of_gemini_is_asked_for_in_both_forms_of_its_name(name: str, start: Start) -> None:
    lab = await start(Reply([b"{}"], JSON, framing="length"), vtc_upstream_api="gemini-generate")
    await lab.post(chat.request(model=name))
    assert lab.upstream.seen[0].path == "/v1beta/models/lab-model:generateContent"


async def test_official_clients_read_it(start: Start) -> None:
    lab = await start(serving("ollama-chat"), vtc_upstream_api="ollama-chat")
    key: Any = {"base_url": lab.proxy.url, "api_key": "sk-none", "max_retries": 0}
    async with anthropic.AsyncAnthropic(
        http_client=anthropic.DefaultAsyncHttpxClient(trust_env=False, verify=False), **key
    ) as sdk:
        assert (await sdk.models.retrieve(NAME)).max_input_tokens == 32768
        with pytest.raises(anthropic.NotFoundError):
            await sdk.models.retrieve("nobodys")
    async with lab.sdk() as sdk:
        assert (await sdk.models.retrieve(NAME)).id == NAME
    options: Any = {
        "base_url": lab.proxy.url,
        "async_client_args": {"trust_env": False, "verify": False},
        "timeout": PATIENCE * 1000,
    }
    async with genai.Client(api_key="none", http_options=options).aio as google:
        assert (await google.models.get(model=NAME)).input_token_limit == 32768


async def test_ollamas_client_reads_it(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    client = ollama_sdk.AsyncClient(lab.proxy.url, trust_env=False, verify=False)
    try:
        found = await client.show(NAME)
    finally:
        await client.close()
    assert found.capabilities is not None
    assert {"tools", "thinking", "vision"} <= {*found.capabilities}
    assert (found.modelinfo or {})["vtc.context_length"] == 32768
