"""Side questions of clients."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.apis import chat, messages
from tests.dialects.material import CASES, plain
from vtc.apis import RequestError
from vtc.apis.side_questions import SideQuestion, answer_locally, convert_token_count, find_side_question
from vtc.events import ListedModel
from vtc.exchange.model_list import find_model, list_model_names, read_models

MODEL_LISTS = plain((CASES / "apis" / "model_lists.yaml").read_text("utf-8"))
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
    with pytest.raises(RequestError):
        answer_locally(SideQuestion("count", "anthropic-messages"), b"{}")


# Information of servers about their models


@pytest.mark.every
@pytest.mark.parametrize(
    "case", plain((CASES / "apis" / "model_lists.yaml").read_text("utf-8")), ids=lambda case: case["server"]
)
def test_server_lists_capabilities_of_a_model(case: dict[str, Any]) -> None:
    body, model = json.dumps(case["body"]).encode(), msgspec.convert(case["model"], ListedModel)
    assert read_models(body) == [model]
    assert find_model(body, "models/M") == model


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"data": 5}', b'{"models": null}', b'"m"'])
def test_other_body_is_no_list(body: bytes) -> None:
    assert read_models(body) is None
    assert list_model_names(body) == []


@pytest.mark.parametrize("body", [b"[]", b'{"data": []}', b'{"data": [5, {}]}'])
def test_a_list_may_be_empty(body: bytes) -> None:
    assert read_models(body) == []


def test_tag_of_ollama_models_is_optional() -> None:
    assert find_model(b'{"models": [{"name": "m:latest"}]}', "m") == ListedModel(name="m:latest")
