"""Calls of models without a profile, read in dialects derived from the chat templates that their servers state."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apis import chat
from tests.cli.templates.made_templates import BARE, HERMES, NUMBERED, NUMBERED_CALL, PLAIN, make_template
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

MODEL = "house-7b"
JSON_CALL = "{{ (message.tool_calls | first).function | tojson }}"
DISCOVERED = {"vtc_discover": "on", "connection_strategy": "lazy"}


def serving(template: str, *, name: str = MODEL, text: str = NUMBERED_CALL, **props: Any) -> Any:
    """Return a chat server that states its chat template."""
    answers = {"/v1/models": {"data": [{"id": name}]}, "/props": {"chat_template": template, **props}}

    def script(seen: Seen) -> Reply:
        if seen.path in answers:
            return Reply([chat.encode_json(answers[seen.path])], JSON, framing="length")
        if seen.path != "/v1/chat/completions":
            return Reply([b'{"detail": "Not Found"}'], JSON, 404, framing="length")
        if seen.json.get("stream"):
            return Reply([*chat.make_text_chunks(*text), chat.chunk({}, "stop"), b"data: [DONE]\n\n"])
        if seen.body == b"{}":
            return Reply([b'{"error": "no messages"}'], JSON, 400, framing="length")
        return Reply([chat.encode_json(chat.completion(text))], JSON, framing="length")

    return script


async def ask(lab: Lab, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """Send a request; return the read message, and the report."""
    answer = await lab.post(chat.request(**{"model": MODEL, **fields}))
    assert answer.status == 200, answer.body
    return answer.message, (await lab.next_client_flow()).metadata["vtc"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", [MODEL, "any-name", "claude-sonnet-5"])
async def test_calls_of_an_unknown_model_are_read_in_the_dialect_of_its_template(
    model: str, stream: bool, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """A server with a single model uses it for any name."""
    caplog.set_level("INFO", "vtc")
    lab = await start(serving(NUMBERED), **DISCOVERED)
    message, report = await ask(lab, model=model, stream=stream)
    assert message.calls == [("read", {"filePath": "/a"})]
    assert not message.content
    assert [call["dialect"] for call in report["calls"]] == ["derived-house-7b"]
    assert "calls are read as derived-house-7b" in "; ".join(report["why"])
    (line,) = (line for line in caplog.messages if "has no profile" in line)
    assert line == (
        "vtc: house-7b has no profile; derived-house-7b, derived from its chat template, reads 12 of 12 of its replies "
        "exactly"
    )


@pytest.mark.rest
@pytest.mark.parametrize(
    ("template", "line"),
    [
        (HERMES, "the calls of its chat template are in a known dialect"),
        (BARE, "the calls of its chat template are in a known dialect"),
        (make_template(f"### call {JSON_CALL}"), "its opener is neither"),
        (make_template(f"<details>{JSON_CALL}</details>"), "its opener is neither"),
        (make_template(f"<CODE>{JSON_CALL}</CODE>"), "its opener is neither"),
        (make_template(f"[call: {JSON_CALL}]"), "its opener is neither"),
        (make_template(f"<a>{JSON_CALL}</a>"), "its opener is neither"),
        (PLAIN, "no dialect was derived from its chat template: the template writes no call in a form that is known"),
        ("{{ 'x' * 1000000000000 }}", "the template writes no call in a form that is known"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "the template writes no call in a form that is known"),
        ("x" * (1 << 19), "it is too long to be inspected"),
    ],
)
async def test_other_templates_change_nothing(
    template: str, line: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vtc")
    lab = await start(serving(template), **DISCOVERED)
    message, report = await ask(lab)
    assert (message.content, message.calls) == (NUMBERED_CALL, [])
    assert not any("derived" in why for why in report["why"])
    assert any(line in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["Qwen3-8B", MODEL, "House-7B"])
async def test_a_model_with_a_profile_keeps_it(name: str, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """The name of the model behind an alias counts, too."""
    caplog.set_level("INFO", "vtc")
    lab = await start(serving(NUMBERED, name=name, model_path="/models/Qwen3-8B-Q4_K_M.gguf"), **DISCOVERED)
    message, report = await ask(lab, model=name)
    assert (message.calls, report["model"]) == ([], "qwen3")
    assert "has no profile" not in caplog.text


async def test_the_go_template_of_ollama_is_read(start: Start) -> None:
    call = '<|run|>0:read<|with|>{"filePath": "/a"}<|end|>'
    template = (
        "{{ range $i, $c := .ToolCalls }}<|run|>{{ $i }}:{{ $c.Function.Name }}<|with|>"
        "{{ $c.Function.Arguments }}<|end|>{{ end }}"
    )

    def script(seen: Seen) -> Reply:
        bodies = {
            "/v1/models": {"data": [{"id": MODEL}]},
            "/api/show": {"template": template},
            "/api/chat": {"model": MODEL, "message": {"role": "assistant", "content": call}, "done": True},
        }
        found = seen.path in bodies
        return Reply([chat.encode_json(bodies.get(seen.path, {}))], JSON, 200 if found else 404, framing="length")

    lab = await start(script, **DISCOVERED)
    message, report = await ask(lab)
    assert message.calls == [("read", {"filePath": "/a"})]
    assert [found["dialect"] for found in report["calls"]] == ["derived-house-7b"]
