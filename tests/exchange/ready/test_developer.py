"""The role `developer`, by model and server: which need another role, and which get the original bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.apis import chat, responses
from tests.exchange.ready.steps import BY_NAME
from tests.exchanges import AGENT, API, planner
from vtc.exchange import Session

MODELS = (
    *("qwen2.5:7b", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3.5-9B", "qwq:32b"),
    *("zai-org/GLM-4.6", "zai-org/GLM-4.7", "granite3.3:8b", "granite4:micro", "deepseek-ai/DeepSeek-V3.1"),
    *("deepseek-r1:671b", "command-a:111b", "phi4:14b", "gemma3:27b", "mistral-small:24b", "exaone-4.0-32b"),
    "nvidia/nemotron-nano-9b-v2",
)
SAID = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Go."}]


def roles(model: str, *, host: str = "127.0.0.1") -> list[str]:
    """Return the roles that a server without a profile gets."""
    body = chat.encode_json(chat.request(messages=SAID, model=model))
    exchange = Session.open(API, body, replace(AGENT, host=host), planner(), "seed")
    went = exchange.request()
    told = [one["role"] for one in json.loads(went)["messages"]]
    assert (went == body) == (told == ["developer", "user"])
    return told


@pytest.mark.parametrize("model", MODELS)
def test_a_model_whose_template_does_not_know_it_is_told_by_the_system(model: str) -> None:
    assert roles(model) == ["system", "user"]
    body = chat.encode_json(
        responses.request(input=[responses.make_input_message("developer", "x"), *SAID[1:]], model=model)
    )
    exchange = Session.open(BY_NAME["openai-responses"], body, AGENT, planner(), "seed")
    first = json.loads(exchange.request())["input"][0]
    assert (first["role"], first["content"]) == ("system", [{"type": "input_text", "text": "x"}])


@pytest.mark.parametrize("model", ["gpt-5", "gpt-oss:20b", "gemma4:31b", "a-model", *MODELS])
def test_hosted_servers_and_models_that_know_it_get_the_bytes_that_came(model: str) -> None:
    if model not in MODELS:
        assert roles(model) == ["developer", "user"]
    assert roles(model, host="api.openai.com") == ["developer", "user"]
