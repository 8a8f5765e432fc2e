"""Explanations of server errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vtc.reporting import hints

AUTO = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
PROMPT = "let VTC write them into the prompt with `--tools prompt`"


@pytest.mark.parametrize(
    ("status", "body", "remedy", "meaning"),
    [
        (400, {"object": "error", "message": AUTO, "code": 400}, AUTO, PROMPT),  # vLLM before 0.10
        (400, {"error": {"message": AUTO, "type": "BadRequestError"}}, AUTO, PROMPT),
        (400, {"error": "registry.ollama.ai/library/gemma:2b does not support tools"}, "gemma:2b", PROMPT),
        (500, {"error": {"code": 500, "message": "tools param requires --jinja flag"}}, "--jinja", PROMPT),
        (404, {"error": {"message": "The model `x` does not exist."}}, "The model `x`", "GET /v1/models lists"),
        (404, {"error": "model 'x' not found"}, "model 'x'", "GET /v1/models lists"),
        (401, {"error": {"message": "Invalid API key"}}, "Invalid API key", "does not accept the client's API key"),
        (404, {"detail": "Not Found"}, "Not Found", "does it speak this API"),
        (422, {"detail": [{"msg": "field required"}]}, "field required", ""),
        (400, {"message": "This model's maximum context length is 4096"}, "4096", "longer than the model's context"),
        (429, {"error": {}}, "", "accepts no more requests"),
        (400, "<h1>400 Bad Request</h1>The plain HTTP request was sent to HTTPS port", "", "the server speaks https"),
        (400, "Client sent an HTTP request to an HTTPS server.", "", "the server speaks https"),
    ],
)
def test_known_error_has_a_remedy(status: int, body: Any, remedy: str, meaning: str) -> None:
    found = hints.explain_error(status, json.dumps(body).encode())
    assert found.startswith(f"the server answered {status}")
    assert remedy in found
    assert meaning in found.partition(" - ")[2]


def test_error_in_a_stream_is_described_like_a_status() -> None:
    prefix = "the server broke off with an error: "
    deep = {"type": "response.failed", "response": {"error": {"message": "CUDA out of memory"}}}
    assert hints.explain_error(None, json.dumps(deep).encode()) == f"{prefix}CUDA out of memory"
    assert hints.explain_error(None, b'{"error": "unknown model x"}').startswith(
        f"{prefix}unknown model x - the server has no"
    )
    assert hints.explain_error(None, b'{"error": {"message": "busy"}}') == f"{prefix}busy"


def test_web_page_is_described_by_its_text() -> None:
    page = b"<html><head><title>502</title></head><body><h1>Bad\n Gateway</h1></body></html>"
    assert hints.explain_error(502, page) == "the server answered 502: Bad Gateway"
    assert hints.explain_body(page) == ["the server answered with a web page: is this the model server?"]


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[]", b"null", b"5", b"<", b'{"error": null}'])
def test_any_body_gives_one_line(body: bytes) -> None:
    found = hints.explain_error(503, body)
    assert found.startswith("the server answered 503")
    assert "\n" not in found


def test_a_long_message_is_cut() -> None:
    found = hints.explain_error(500, json.dumps({"error": "x" * 5000}).encode())
    assert len(found) < hints.MAX_MESSAGE_CHARS + 60
