"""Messages about an unreachable model server; `tests/e2e/test_reported_problems.py` tests the responses."""

from __future__ import annotations

import pytest
from mitmproxy.test import tflow

from vtc.proxy.serving import side_questions


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/v1/chat/completions", "openai-chat"),
        ("POST", "/v1/messages", "anthropic-messages"),
        ("GET", "/v1/models", "openai-chat"),
        ("GET", "/api/tags", "ollama-chat"),
        ("GET", "/", None),
    ],
)
def test_the_api_in_whose_form_a_client_reads_errors(method: str, path: str, name: str | None) -> None:
    flow = tflow.tflow()
    flow.request.method, flow.request.path = method, path
    api = side_questions.find_error_api(flow)
    assert (api and api.name) == name


@pytest.mark.parametrize(
    ("why", "message"),
    [
        ("Connection refused", "is it running?"),
        ("Certificate verify failed: self-signed certificate", "ssl_insecure=true"),
        ("Connection killed: Request destination unknown.", "no model server was named"),
    ],
)
def test_remedy_is_reported(why: str, message: str) -> None:
    assert message in side_questions.explain_unreachable(tflow.tflow(), why)
