"""Requested models that the server lacks are replaced by one of its models, for every pair of APIs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.apis import chat, pairs
from tests.apis.pairs import PAIRS, READ
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen

OWN, FOREIGN = "my-hermes-3", "claude-opus-4-8"
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
REFUSALS = {
    "openai-chat": {"error": {"message": "The model `%s` does not exist.", "type": "NotFoundError", "code": 404}},
    "openai-responses": {"error": {"message": "The model '%s' does not exist", "code": "model_not_found"}},
    "anthropic-messages": {"type": "error", "error": {"type": "not_found_error", "message": "model: %s"}},
    "ollama-chat": {"error": "model '%s' not found"},
    "gemini-generate": {
        "error": {"code": 404, "message": "models/%s is not found for API version v1beta", "status": "NOT_FOUND"}
    },
}
"""Rejections of an unknown model by servers of each API."""
DISCOVERED = {"vtc_discover": "on", "connection_strategy": "lazy"}


def serving(server: str, models: Sequence[str], text: str = "I look.", *, lists: bool = True) -> Any:
    """Return a server of one API that has these models."""
    shape = SHAPES[server]

    def script(seen: Seen) -> Reply:
        if seen.method == "GET":
            body = {"data": [{"id": model, "object": "model"} for model in models]}
            is_list = lists and seen.path == "/v1/models"
            return Reply([json.dumps(body if is_list else {}).encode()], JSON, 200 if is_list else 404, "length")
        match = re.search(r"/models/([^:]+):(\w+)", seen.path)
        if not (match if server == "gemini-generate" else seen.path == shape.path):
            return Reply([b'{"detail": "Not Found"}'], JSON, 404, framing="length")
        if seen.body == b"{}":
            return Reply([b'{"error": "no messages"}'], JSON, 400, framing="length")
        model = match[1] if match else seen.json["model"]
        if model not in models:
            refusal = json.dumps(REFUSALS[server]).replace("%s", model)
            return Reply([refusal.encode()], JSON, 404, framing="length")
        calls = READ if text == "I look." else ()
        if "streamG" in seen.path or (not match and seen.json.get("stream", server == "ollama-chat")):
            return Reply([pairs.make_stream(server, [text[:4], text[4:]], calls)], {"content-type": shape.media_type})
        return Reply([pairs.make_whole_reply(server, text, calls)], JSON, framing="length")

    return script


async def ask(lab: Lab, client: str, model: str, *, stream: bool) -> tuple[pairs.ReplyContent, set[str]]:
    """Request a model as a client; return the parsed reply, and the models that the reply names."""
    shape = SHAPES[client]
    body = make_request_body(client, stream=stream, **({} if client == "gemini-generate" else {"model": model}))
    answer = await lab.post(body, path=shape.build_path(stream=stream, model=model))
    assert answer.status == 200, answer.body
    names = re.findall(rb'"(?:model|modelVersion)":\s*"([^"]*)"', answer.body)
    return pairs.read(client, answer.body, stream=stream), {name.decode() for name in names}


def models_asked(lab: Lab) -> list[str]:
    """Return the models that the server was asked for."""
    named = [re.search(r"/models/([^:/]+):", seen.path) for seen in lab.upstream.seen]
    return [
        (match[1] if match else seen.json.get("model", ""))
        for seen, match in zip(lab.upstream.seen, named, strict=True)
        if seen.method == "POST" and seen.body != b"{}" and seen.path != "/api/show"
    ]


@STREAM
@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_one_model_replaces_each_that_the_server_does_not_list(
    client: str, server: str, stream: bool, start: Start
) -> None:
    """The reply contains the requested name, and the log line both names."""
    lab = await start(serving(server, [OWN, "other"]), vtc_models=[OWN], **DISCOVERED)
    reply, names = await ask(lab, client, FOREIGN, stream=stream)
    assert (reply.calls, names) == ((("read", '{"filePath": "/a"}'),), {FOREIGN})
    report = (await lab.next_client_flow()).metadata["vtc"]
    assert (report["asked"], report["server_model"], report["model"]) == (FOREIGN, OWN, "hermes")
    assert report["settings"]["models"] == [f"{FOREIGN}={OWN}"]
    await ask(lab, client, "other", stream=stream)
    report = (await lab.next_client_flow()).metadata["vtc"]
    assert (report["server_model"], report["settings"]["models"]) == ("", [])
    assert models_asked(lab) == [OWN, "other"]


@STREAM
@pytest.mark.parametrize(("client", "server"), PAIRS)
async def test_only_model_of_a_server_replaces_a_rejected_one_from_then_on(
    client: str, server: str, stream: bool, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    lab = await start(serving(server, [OWN]), **DISCOVERED)
    for turn in range(2):
        reply, names = await ask(lab, client, FOREIGN, stream=stream)
        assert (reply.calls, names) == ((("read", '{"filePath": "/a"}'),), {FOREIGN})
        report = (await lab.next_client_flow()).metadata["vtc"]
        assert (report["outcome"], report["server_model"], report["model"]) == ("rewritten", OWN, "hermes")
        assert report["settings"]["models"] == [f"{FOREIGN}={OWN}"]
        assert models_asked(lab) == [FOREIGN, OWN, OWN][: 2 + turn]
    assert caplog.text.count(f"the server has no model {FOREIGN}: retried with {OWN}, its only one") == 1


@pytest.mark.parametrize("models", [["one", "two"], []], ids=["two", "none"])
async def test_rejection_lists_how_to_name_a_model_if_a_server_has_more_or_none(
    models: list[str], start: Start
) -> None:
    lab = await start(serving("openai-chat", models), **DISCOVERED)
    answer = await lab.post(chat.request(model=FOREIGN))
    assert answer.status == 404
    (error,) = (await lab.next_client_flow()).metadata["vtc"]["errors"]
    assert "`vtc run URL --model NAME`" in error
    assert '`--set "vtc_models=claude-*=NAME"`' in error


@pytest.mark.parametrize("status", [404, 400])
async def test_named_model_replaces_all_without_a_list(status: int, start: Start) -> None:
    lab = await start(serving("openai-chat", [OWN], lists=False), vtc_models=[OWN], **DISCOVERED)
    assert await ask(lab, "openai-chat", FOREIGN, stream=False)
    assert await ask(lab, "openai-chat", OWN, stream=False)
    assert models_asked(lab) == [OWN, OWN]


async def test_glob_precedes_the_model_for_all_and_the_last_glob_wins(start: Start) -> None:
    models = ["my-other", f"{FOREIGN}=big", OWN]
    lab = await start(serving("openai-chat", ["big", OWN]), vtc_models=models, **DISCOVERED)
    for name in (FOREIGN, "gpt-4o", OWN):
        await ask(lab, "openai-chat", name, stream=False)
    assert models_asked(lab) == ["big", OWN, OWN]


async def test_without_memory_a_name_is_refused_each_time(start: Start) -> None:
    lab = await start(serving("openai-chat", [OWN]), vtc_cache="off", **DISCOVERED)
    for _ in range(2):
        await ask(lab, "anthropic-messages", FOREIGN, stream=False)
    assert models_asked(lab) == [FOREIGN, OWN] * 2


async def test_other_fields_of_a_reply_under_another_name_stay(start: Start) -> None:
    """The argument of a call that has the same name and value is unchanged, too."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps({"model": OWN})}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = chat.completion(None, "tool_calls", message=message) | {"model": OWN, "odd": {"model": OWN, "n": 1}}
    lab = await start(Reply([chat.encode_json(body)], JSON, framing="length"), vtc_models=[f"{FOREIGN}={OWN}"])
    answer = await lab.post(chat.request(model=FOREIGN))
    assert json.loads(answer.body) == body | {"model": FOREIGN}
