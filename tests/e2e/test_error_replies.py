"""Errors that contain a reply that the server could not parse: the client gets the reply if the profile allows it."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import Start
from tests.e2e.upstream import JSON, Reply

CALL = '<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}}\n</tool_call>'
READ = [("read", {"filePath": "/a"})]


def groq(text: Any) -> Reply:
    error = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": text}
    return Reply([chat.encode_json({"error": error})], JSON, status=400, framing="length")


def llama(text: str, at: int = 0) -> Reply:
    error = {"code": 500, "message": f"Failed to parse input at pos {at}: {text}", "type": "server_error"}
    return Reply([chat.encode_json({"error": error})], JSON, status=500, framing="length")


def read_reply(api: str, body: bytes, *, stream: bool) -> tuple[str, list[tuple[str, Any]]]:
    read: dict[str, Any] = {
        "openai-chat": chat.read,
        "anthropic-messages": messages.read,
        "openai-responses": responses.read,
        "gemini-generate": gemini.read,
        "ollama-chat": lambda body: ollama.read(body, stream=stream),
    }
    found = read[api](body)
    return found.content, found.calls


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", SHAPES)
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("server", ["hosted", "llama.cpp"])
async def test_client_gets_the_reply_that_an_error_holds(
    server: str, known: bool, api: str, stream: bool, start: Start
) -> None:
    """This holds for a server whose profile names the error format, and for a server without a profile."""
    reply = groq(f"I look.\n{CALL}") if server == "hosted" else llama(CALL, 31)
    lab = await start(reply, vtc_server=server if known else "")
    answer = await lab.post(make_request_body(api, stream=stream), path=SHAPES[api].build_path(stream=stream))
    assert answer.status == 200
    assert answer.headers["content-type"] == (SHAPES[api].media_type if stream else "application/json")
    assert read_reply(api, answer.body, stream=stream) == ("I look." if server == "hosted" else "", READ)
    flow = await lab.flow()
    assert f"errors read (the server answered {reply.status}" in flow.comment
    assert flow.comment.startswith("vtc: lab-model: read")
    assert flow.metadata["vtc"]["errors"] == []


async def test_client_gets_the_call_of_an_unknown_tool_that_an_error_holds(start: Start) -> None:
    """The agent answers that there is no such tool and continues; the error would end its run."""
    lab = await start(groq(CALL.replace("read", "Grep")), vtc_server="hosted")
    answer = await lab.post(chat.request(stream=True))
    assert (answer.status, answer.message.calls) == (200, [("Grep", {"filePath": "/a"})])


HOLDING_NO_CALL = [
    ("hosted", groq("")),
    ("hosted", groq(None)),
    ("hosted", groq("I cannot do that.")),
    ("hosted", groq(CALL[:40])),
    ("hosted", groq(CALL.replace("read", "no.tool"))),
    ("hosted", Reply([b'["x"]'], JSON, status=400, framing="length")),
    ("hosted", Reply([b"<h1>"], JSON, status=400, framing="length")),
    ("hosted", Reply([], JSON, status=400, framing="length")),
    ("llama.cpp", llama("</tool_call>", 12)),
    ("llama.cpp", llama(f"of a value, and {CALL}", 800)),
    ("llama.cpp", llama(f"{CALL} in a value</parameter></function>", 800)),
]
OF_ANOTHER_SERVER = [("vllm", llama(CALL)), ("hosted", llama(CALL)), ("llama.cpp", groq(CALL))]


@pytest.mark.parametrize(
    ("server", "reply"), [*OF_ANOTHER_SERVER, *HOLDING_NO_CALL, *(("", reply) for _, reply in HOLDING_NO_CALL)]
)
async def test_any_other_error_keeps_its_bytes(server: str, reply: Reply, start: Start) -> None:
    lab = await start(reply, vtc_server=server)
    answer = await lab.post(chat.request(stream=True))
    assert (answer.status, answer.body) == (reply.status, b"".join(reply.pieces))  # type: ignore[arg-type]
    flow = await lab.flow()
    assert f"the server answered {reply.status}" in flow.comment
    assert flow.metadata["vtc"]["calls"] == []


async def test_text_client_gets_the_call_in_its_dialect(start: Start) -> None:
    tools = "# Tools\n\n## read\nDescription: Reads.\nParameters:\n- filePath: (required) x\n"
    usage = "Usage:\n<read>\n<filePath>x</filePath>\n</read>\n"
    prompt = {"role": "system", "content": tools + usage}
    lab = await start(groq(CALL), vtc_server="hosted")
    body = chat.request(stream=True, messages=[prompt, {"role": "user", "content": "go"}])
    del body["tools"]
    answer = await lab.post(body, headers={"user-agent": "Cline/3.82.0"})
    assert answer.message.content.strip() == "<read>\n<filePath>/a</filePath>\n</read>"


async def test_policies_hold_for_the_reply_of_an_error(start: Start, tmp_path: Any) -> None:
    (tmp_path / "mine.yaml").write_text(
        "kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [read]}\n", encoding="utf-8"
    )
    lab = await start(groq(CALL), vtc_server="hosted", vtc_profiles=[str(tmp_path)])
    answer = await lab.post(chat.request())
    assert (answer.status, answer.message.calls) == (200, [])
    assert "denied_tools refused read" in (await lab.flow()).comment


async def test_an_error_that_is_compressed_is_read_and_answered_plainly(start: Start) -> None:
    plain = groq(CALL)
    body = gzip.compress(b"".join(plain.pieces))  # type: ignore[arg-type]
    headers = {**JSON, "content-encoding": "gzip"}
    lab = await start(Reply([body], headers, status=400, framing="length"), vtc_server="hosted")
    answer = await lab.post(chat.request())
    assert "content-encoding" not in answer.headers
    assert answer.message.calls == READ


async def test_observing_changes_nothing(start: Start) -> None:
    reply = groq(CALL)
    lab = await start(reply, vtc_server="hosted", vtc_mode="observe")
    answer = await lab.post(chat.request())
    assert (answer.status, answer.body) == (400, b"".join(reply.pieces))  # type: ignore[arg-type]
    assert json.loads(answer.body)["error"]["failed_generation"] == CALL
    assert "read" in (await lab.flow()).comment
