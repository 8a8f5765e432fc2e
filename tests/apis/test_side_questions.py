"""Side questions of clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apis import chat, messages
from vtc.apis import BadRequest
from vtc.apis.side_questions import SideQuestion, answer_locally, convert_token_count, find_side_question
from vtc.events import ListedModel
from vtc.exchange.model_list import find_model, list_model_names, read_models

CLAUDE = {"user-agent": "claude-cli/2.1", "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "found"),
    [
        ("HEAD", "/", CLAUDE, SideQuestion("alive", "anthropic-messages")),
        ("GET", "/v1/models", CLAUDE, SideQuestion("models", "anthropic-messages")),
        ("GET", "/v1/models?limit=9", {}, SideQuestion("models", "openai-chat")),
        ("GET", "/v1/models?client_version=0.144.0", {}, SideQuestion("models", "openai-responses")),
        ("GET", "/api/tags", {}, SideQuestion("models", "ollama-chat")),
        ("GET", "/x/api/version", {}, SideQuestion("version", "ollama-chat")),
        ("POST", "/api/show", {}, SideQuestion("model", "ollama-chat")),
        ("POST", "/V1/messages//count_tokens?beta=true", {}, SideQuestion("count", "anthropic-messages")),
        ("POST", "/v1/messages", CLAUDE, None),
        ("GET", "/v1/models/Qwen/Qwen3-8B", {}, SideQuestion("model", "openai-chat", "Qwen/Qwen3-8B")),
        ("GET", "/v1/models/M%3A8b?x=1", CLAUDE, SideQuestion("model", "anthropic-messages", "M:8b")),
        ("GET", "/v1beta/models/M", {}, SideQuestion("model", "gemini-generate", "M")),
        ("GET", "/v1beta/models", {}, SideQuestion("models", "gemini-generate")),
        ("GET", "/v1/models/M?key=k", {}, SideQuestion("model", "gemini-generate", "M")),
        ("DELETE", "/v1/models/m", {}, None),
        ("DELETE", "/api/tags", {}, None),
    ],
)
def test_a_question_and_whose_it_is(
    method: str, path: str, headers: dict[str, str], found: SideQuestion | None
) -> None:
    assert find_side_question(method, path, headers) == found


def test_a_count_is_of_text_tools_and_images_and_not_of_base64() -> None:
    def count(**fields: object) -> int:
        made = answer_locally(SideQuestion("count", "anthropic-messages"), chat.encode_json(messages.request(**fields)))
        return int(json.loads(made or b"{}")["input_tokens"])

    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 100_000}}
    assert 0 < count(tools=None) < count() < count(content=[image]) < 3000


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b'{"count": 7, "tokens": [1]}', 7),
        (b'{"tokens": [1, 2]}', 2),
        *((body, None) for body in (b"", b"[]", b"{}", b'{"tokens": 5}', b'{"count": "7"}', b'{"count": 0}')),
    ],
)
def test_a_count_of_the_server_is_read(body: bytes, count: int | None) -> None:
    found = convert_token_count(SideQuestion("count", "anthropic-messages"), body)
    assert found == (None if count is None else b'{"input_tokens":%d}' % count)


def test_a_body_that_is_no_request_is_not_counted() -> None:
    with pytest.raises(BadRequest):
        answer_locally(SideQuestion("count", "anthropic-messages"), b"{}")


# Information of servers about their models


ENTRIES: dict[str, tuple[Any, ListedModel]] = {
    "vLLM": (
        {"data": [{"id": "m", "created": 7, "owned_by": "vllm", "max_model_len": 4096}]},
        ListedModel(name="m", created=7, window=4096),
    ),
    "llama.cpp": (
        {
            "models": [{"name": "m", "model": "m", "modified_at": "", "capabilities": ["completion", "multimodal"]}],
            "data": [{"id": "m", "created": 7, "meta": {"n_ctx_train": 131072, "n_params": 1}}],
        },
        ListedModel(name="m", created=7, window=131072, abilities={"vision": True}),
    ),
    "LM Studio, v0": (
        {
            "data": [
                {
                    "id": "m",
                    "type": "vlm",
                    "max_context_length": 131072,
                    "loaded_context_length": 8192,
                    "capabilities": ["tool_use"],
                }
            ]
        },
        ListedModel(name="m", window=8192, abilities={"tools": True, "vision": True}),
    ),
    "LM Studio, v1": (
        {
            "models": [
                {
                    "type": "llm",
                    "key": "m",
                    "display_name": "M",
                    "max_context_length": 131072,
                    "capabilities": {
                        "vision": False,
                        "trained_for_tool_use": True,
                        "reasoning": {"allowed_options": ["off", "on"], "default": "on"},
                    },
                }
            ]
        },
        ListedModel(name="m", window=131072, abilities={"tools": True, "thinking": True, "vision": False}),
    ),
    "OpenRouter": (
        {
            "data": [
                {
                    "id": "m",
                    "context_length": 200000,
                    "top_provider": {"context_length": 100000, "max_completion_tokens": 8192},
                    "architecture": {"input_modalities": ["text"]},
                    "supported_parameters": ["tools", "temperature"],
                }
            ]
        },
        ListedModel(name="m", window=100000, max_reply_tokens=8192, abilities={"tools": True}),
    ),
    "Mistral": (
        {
            "data": [
                {"id": "m", "max_context_length": 32768, "capabilities": {"function_calling": True, "vision": False}}
            ]
        },
        ListedModel(name="m", window=32768, abilities={"tools": True, "vision": False}),
    ),
    "Groq": (
        {"data": [{"id": "m", "created": 7, "context_window": 131072, "max_completion_tokens": 32768}]},
        ListedModel(name="m", created=7, window=131072, max_reply_tokens=32768),
    ),
    "Together": ([{"id": "m", "type": "chat", "context_length": 8192}], ListedModel(name="m", window=8192)),
    "Gemini": (
        {"models": [{"name": "models/m", "inputTokenLimit": 1048576, "outputTokenLimit": 65536, "thinking": True}]},
        ListedModel(name="m", window=1048576, max_reply_tokens=65536, abilities={"thinking": True}),
    ),
    "odd values": (
        {"data": [{"id": "m", "created": "soon", "context_length": "8k", "capabilities": None, "type": 5}, 7, {}]},
        ListedModel(name="m"),
    ),
}


@pytest.mark.parametrize("server", ENTRIES)
def test_server_lists_capabilities_of_a_model(server: str) -> None:
    body, model = ENTRIES[server]
    assert read_models(json.dumps(body).encode()) == [model]
    assert find_model(json.dumps(body).encode(), "models/M") == model


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"data": 5}', b'{"models": null}', b'"m"'])
def test_what_is_no_list_is_none(body: bytes) -> None:
    assert read_models(body) is None
    assert list_model_names(body) == []


@pytest.mark.parametrize("body", [b"[]", b'{"data": []}', b'{"data": [5, {}]}'])
def test_a_list_may_be_empty(body: bytes) -> None:
    assert read_models(body) == []


def test_tag_of_ollama_models_is_optional() -> None:
    assert find_model(b'{"models": [{"name": "m:latest"}]}', "m") == ListedModel(name="m:latest")
