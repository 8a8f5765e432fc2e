"""What clients ask besides replies."""

from __future__ import annotations

import json

import pytest

from tests.apis import chat, messages
from vtc.apis import BadRequest
from vtc.apis.beside import Aside, answer, asked, counted, listed, names_of

CLAUDE = {"user-agent": "claude-cli/2.1", "anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "found"),
    [
        ("HEAD", "/", CLAUDE, Aside("alive", "anthropic-messages")),
        ("GET", "/v1/models", CLAUDE, Aside("models", "anthropic-messages")),
        ("GET", "/v1/models?limit=9", {}, Aside("models", "openai-chat")),
        ("GET", "/v1/models?client_version=0.144.0", {}, Aside("models", "openai-responses")),
        ("GET", "/api/tags", {}, Aside("models", "ollama-chat")),
        ("GET", "/x/api/version", {}, Aside("version", "ollama-chat")),
        ("POST", "/api/show", {}, Aside("show", "ollama-chat")),
        ("POST", "/V1/messages//count_tokens?beta=true", {}, Aside("count", "anthropic-messages")),
        ("POST", "/v1/messages", CLAUDE, None),
        ("GET", "/v1/models/m", {}, None),
        ("DELETE", "/api/tags", {}, None),
    ],
)
def test_a_question_and_whose_it_is(method: str, path: str, headers: dict[str, str], found: Aside | None) -> None:
    assert asked(method, path, headers) == found


def test_a_count_is_of_text_tools_and_images_and_not_of_base64() -> None:
    def count(**fields: object) -> int:
        made = answer(Aside("count", "anthropic-messages"), chat.encoded(messages.request(**fields)))
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
    found = counted(Aside("count", "anthropic-messages"), body)
    assert found == (None if count is None else b'{"input_tokens":%d}' % count)


def test_a_body_that_is_no_request_is_not_counted() -> None:
    with pytest.raises(BadRequest):
        answer(Aside("count", "anthropic-messages"), b"{}")


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic-messages", "ollama-chat"])
def test_a_list_is_read_in_the_form_in_which_it_is_written(client: str) -> None:
    assert names_of(listed(client, ["a", "b", "a"])) == ["a", "b"]
    assert names_of(listed(client, [])) == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"data": 5}', b'{"data": [5, {}]}', b'{"models": null}'])
def test_what_is_no_list_has_no_names(body: bytes) -> None:
    assert names_of(body) == []
