"""Clients that lose the model's reasoning, and servers that reject such a conversation, through a real mitmproxy."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, gemini, messages, pairs, responses
from tests.apis.conversations import (
    ASKED,
    BY_NAME,
    decode_reply,
    get_history_key,
    make_answer_entries,
    make_full_entries,
    make_question,
)
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import Answer, Lab, Start
from tests.e2e.upstream import JSON, Reply, Seen
from vtc.apis import convert_to_stream

CALLS: pairs.Calls = [("read", {"filePath": "/a"})]
REFUSED = {
    "error": {
        "message": "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_request_error",
    }
}


def deepseek(seen: Seen) -> Reply:
    """Reject like DeepSeek's API; otherwise send reasoning and two calls, twice, and then the answer."""
    turns = [one for one in seen.json["messages"] if one["role"] == "assistant" and one.get("tool_calls")]
    if [one.get("reasoning_content") for one in turns] != [f"Thought {turn}." for turn, _ in enumerate(turns)]:
        return Reply([chat.encode_json(REFUSED)], JSON, 400, framing="length")
    if len(turns) == 2:
        return Reply([b"".join(chat.make_stream("It says ", "hello."))])
    body = pairs.make_stream("openai-chat", [], CALLS, reasoning=f"Thought {len(turns)}.")
    return Reply([body.replace(b"call_0", b"call_%d" % len(turns))])


type Restart = Callable[[], Awaitable[Lab]]


async def talk(
    client: str,
    lab: Lab,
    model: str = "deepseek-v4-flash",
    restart: Restart | None = None,
    *,
    brings: bool = False,
    stream: bool = True,
) -> list[Answer]:
    """Talk as a client that drops reasoning, or sends back all if `brings`, up to the reply without a call.

    After the first turn the conversation continues through the proxy that `restart` starts.
    """
    entries, answers = make_question(client, "Read it"), []
    for turn in range(4):
        more: dict[str, Any] = ASKED[client] if brings else {}
        body: dict[str, Any] = {get_history_key(client): entries, "stream": stream, "model": model, **more}
        path = SHAPES[client].build_path(stream=stream, model=body["model"])
        lab = await restart() if restart and turn == 1 else lab
        answer = await lab.post(SHAPES[client].request(**body), path=path)
        answers.append(answer)
        if answer.status != 200 or not (reply := decode_reply(client, answer.body)).calls:
            break
        lost = make_answer_entries(client, reply, "found")
        entries = [*entries, *(make_full_entries(client, answer.body, "found", stream=stream) if brings else lost)]
    return answers


@pytest.mark.parametrize("client", [*SHAPES])
async def test_a_server_that_wants_its_reasoning_back_gets_it(client: str, start: Start) -> None:
    lab = await start(deepseek, vtc_upstream_api="openai-chat")
    answers = await talk(client, lab)
    assert [one.status for one in answers] == [200, 200, 200]
    assert decode_reply(client, answers[-1].body).text == "It says hello."
    reports = [await lab.report() for _ in answers]
    assert "reasoning of 2 past turns restored" in reports[-1]["request"]


@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages"])
async def test_without_anything_kept_the_same_server_refuses(client: str, start: Start) -> None:
    """Control: without VTC's stored reasoning the requests of this file fail."""
    lab = await start(deepseek, vtc_upstream_api="openai-chat", vtc_cache="off")
    answers = await talk(client, lab)
    assert [one.status for one in answers] == [200, 400]
    assert b"must be passed back" in answers[-1].body


# Servers that sign, and reject a missing, moved or foreign signature, as the real ones do.


def refusal(message: str) -> Reply:
    error = {"code": 400, "message": message, "status": "INVALID_ARGUMENT", "type": "invalid_request_error"}
    return Reply([chat.encode_json({"error": error})], JSON, 400, framing="length")


STAND_IN = "skip_thought_signature_validator"
MISSING = "Function call is missing a thought_signature in functionCall parts."


def google(seen: Seen) -> Reply:
    """Sign a text and the first of two calls without showing reasoning, as Gemini 3 does."""
    past = [entry["parts"] for entry in seen.json["contents"] if entry["role"] == "model"]
    for turn, parts in enumerate(past):
        calls = [part.get("thoughtSignature") for part in parts if "functionCall" in part]
        signatures = [part.get("thoughtSignature") for part in parts]
        if calls != [STAND_IN, None] and signatures != [f"QQ{turn}=", f"Qg{turn}=", None]:
            return refusal(MISSING)
    if len(past) == 2:
        return make_reply(seen, gemini.reply(gemini.text("It says hello.")), "gemini-generate")
    signatures = [f"QQ{len(past)}=", f"Qg{len(past)}="]
    parts: list[Any] = [gemini.text("I look."), gemini.call("read", filePath="/a"), gemini.call("read", filePath="/b")]
    parts[:2] = [{**part, "thoughtSignature": own} for part, own in zip(parts, signatures, strict=False)]
    return make_reply(seen, gemini.reply(*parts), "gemini-generate")


def make_reply(seen: Seen, whole: Any, api: str) -> Reply:
    """Return a whole reply, or the equivalent stream, as the request asks."""
    streams = seen.json.get("stream") or "stream" in seen.path
    body = chat.encode_json(whole)
    return Reply([convert_to_stream(BY_NAME[api], body)]) if streams else Reply([body], JSON, framing="length")


def anthropic(seen: Seen) -> Reply:
    """Send and sign reasoning before, between and after texts and calls."""
    past = [entry["content"] for entry in seen.json["messages"] if entry["role"] == "assistant"]

    def blocks(turn: int) -> list[Any]:
        calls = [messages.call("read", f"toolu_{turn}{place}", filePath="/a") for place in "AB"]
        thoughts = [messages.thinking(f"Thought {place}{turn}.", f"sig{place}{turn}") for place in "AB"]
        redacted = {"type": "redacted_thinking", "data": f"data{turn}"}
        return [thoughts[0], messages.text("I look."), redacted, calls[0], thoughts[1], calls[1]]

    for turn, content in enumerate(past):
        known = [(block["type"], block.get("signature") or block.get("data")) for block in content]
        if known != [(block["type"], block.get("signature") or block.get("data")) for block in blocks(turn)]:
            return refusal(
                "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
            )
    whole = messages.message(*blocks(len(past)), stop_reason="tool_use")
    return make_reply(
        seen, messages.message(messages.text("It says hello.")) if len(past) == 2 else whole, "anthropic-messages"
    )


def openai(seen: Seen) -> Reply:
    """Encrypt the reasoning before each item."""
    own = [item for item in seen.json["input"] if item["type"] in ("reasoning", "function_call")]
    turns = sum(item["type"] == "function_call" for item in own) // 2
    expected = [sealed for turn in range(turns) for sealed in (f"A{turn}", f"B{turn}", None, f"C{turn}", None)]
    if [item.get("encrypted_content") for item in own] != expected:
        return refusal("The encrypted content could not be verified.")
    if turns == 2:
        return make_reply(seen, responses.response(responses.message("It says hello.")), "openai-responses")
    seals = [
        {"type": "reasoning", "id": f"rs_{place}{turns}", "summary": [], "encrypted_content": f"{place}{turns}"}
        for place in "ABC"
    ]
    calls = [responses.call("read", f"fc_{turns}{place}", f"call_{turns}{place}", filePath="/a") for place in "AB"]
    reply_text = responses.message("I look.", f"msg_{turns}")
    whole = responses.response(seals[0], reply_text, seals[1], calls[0], seals[2], calls[1])
    return make_reply(seen, whole, "openai-responses")


def copilot(seen: Seen) -> Reply:
    """Seal reasoning in pieces, next to the text and the second of two calls, as GitHub Copilot does for Gemini 3."""
    past = [entry for entry in seen.json["messages"] if entry["role"] == "assistant"]
    for turn, entry in enumerate(past):
        if (entry.get("reasoning_text"), entry.get("reasoning_opaque")) != (f"Thought {turn}.", f"A{turn}B{turn}"):
            return refusal("invalid request body")
    turn = len(past)
    if turn == 2:
        return make_reply(seen, chat.completion("It says hello."), "openai-chat")
    calls = [chat.native(at, id=f"call_{turn}{at}", name="read", arguments='{"filePath": "/a"}') for at in range(2)]
    if not seen.json.get("stream"):
        fields = {"reasoning_text": f"Thought {turn}.", "reasoning_opaque": f"A{turn}B{turn}"}
        message = {"role": "assistant", "content": "I look.", **fields, "tool_calls": calls}
        return make_reply(seen, chat.completion("I look.", "tool_calls", message=message), "openai-chat")
    deltas: list[Any] = [
        {"content": "", "reasoning_text": f"Thought {turn}."},
        {"content": "I look.", "reasoning_opaque": f"A{turn}"},
        {"tool_calls": calls[:1]},
        {"tool_calls": calls[1:], "reasoning_opaque": f"B{turn}"},
    ]
    return Reply([b"".join([chat.ROLE, *map(chat.chunk, deltas), chat.chunk({}, "tool_calls"), chat.DONE])])


SIGNING = {
    "gemini-generate": google,
    "anthropic-messages": anthropic,
    "openai-responses": openai,
    "openai-chat": copilot,
}
SERVER = pytest.mark.parametrize("server", SIGNING)
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@SERVER
@STREAM
@pytest.mark.parametrize(("client", "brings"), [*((client, False) for client in SHAPES), ("openai-chat", True)])
async def test_a_server_that_wants_its_seals_back_gets_them(
    client: str, brings: bool, server: str, stream: bool, start: Start
) -> None:
    """Each seal returns to its place, although the client loses it or has no place for it."""
    lab = await start(SIGNING[server], vtc_upstream_api=server)
    answers = await talk(client, lab, "gemini-3-pro", stream=stream, brings=brings)
    assert [one.status for one in answers] == [200, 200, 200]
    assert decode_reply(client, answers[-1].body).text == "It says hello."
    assert len(lab.upstream.seen) == 3


@STREAM
async def test_model_that_is_moved_to_responses_gets_its_seals_back(stream: bool, start: Start) -> None:
    """The client of chat completions names no effort."""

    def script(seen: Seen) -> Reply:
        if seen.path.endswith("/chat/completions"):
            return refusal('model "gpt-5.6" is not accessible via the /chat/completions endpoint')
        assert seen.json["include"] == ["reasoning.encrypted_content"]
        return openai(seen)

    lab = await start(script)
    answers = await talk("openai-chat", lab, "gpt-5.6", stream=stream)
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert decode_reply("openai-chat", answers[-1].body).text == "It says hello."
    assert len(lab.upstream.seen) == 4


@SERVER
@pytest.mark.parametrize("client", [*ASKED])
async def test_reasoning_sent_by_a_client_is_known_after_a_restart(client: str, server: str, start: Start) -> None:
    if client == "openai-chat" and server not in (client, "gemini-generate"):
        pytest.skip("all that was before its first call stands there, and not in its place")
    lab = await start(SIGNING[server], vtc_upstream_api=server)
    later: list[Lab] = []
    answers = await talk(client, lab, "gemini-3-pro", make_restart(start, lab, server, later), brings=True)
    assert [one.status for one in answers] == [200, 200, 200]
    reports = [await later[0].report() for _ in answers[1:]]
    assert "left out" not in str(reports)


def make_restart(start: Start, lab: Lab, server: str, later: list[Lab], **settings: Any) -> Restart:
    """Return a function that starts another proxy for the same server."""

    async def restart() -> Lab:
        mode = [f"reverse:{lab.upstream.url}"]
        later.append(await start(SIGNING[server], vtc_upstream_api=server, mode=mode, **settings))
        return later[0]

    return restart


@pytest.mark.parametrize("from_file", [True, False], ids=["file", "environment"])
@pytest.mark.parametrize("client", [client for client in ASKED if client != "openai-chat"])
async def test_workers_that_share_a_secret_accept_each_others_reasoning(
    client: str, from_file: bool, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has another CA. The second worker has a newer secret, too, which signs from then on."""
    settings: list[dict[str, str]] = [{}, {}]
    if from_file:
        for number, secrets in enumerate(["shared-" * 3, "newer--" * 3 + "\n" + "shared-" * 3]):
            (tmp_path / f"secret-{number}").write_text(secrets + "\n")
            settings[number] = {"vtc_secret_file": str(tmp_path / f"secret-{number}")}
    else:
        monkeypatch.setenv("VTC_SECRET", "shared-" * 3)
    lab = await start(google, vtc_upstream_api="gemini-generate", **settings[0])
    later: list[Lab] = []
    restart = make_restart(start, lab, "gemini-generate", later, confdir=tmp_path / "other", **settings[1])
    answers = await talk(client, lab, "gemini-3-pro", restart, brings=True)
    assert [one.status for one in answers] == [200, 200, 200]
    assert ["QQ0=" in json.dumps(one.json) for one in lab.upstream.seen] == [False, True, True]
    assert "left out" not in str([await later[0].report() for _ in answers[1:]])


@pytest.mark.parametrize("client", [client for client in ASKED if client != "gemini-generate"])
async def test_reasoning_of_another_proxy_is_not_forwarded(client: str, start: Start, tmp_path: Path) -> None:
    """The other proxy has another CA, so its seals are not accepted; the calls are marked as unsigned if required."""
    lab = await start(google, vtc_upstream_api="gemini-generate")
    later: list[Lab] = []
    restart = make_restart(start, lab, "gemini-generate", later, confdir=tmp_path)
    answers = await talk(client, lab, "gemini-3-pro", restart, brings=True)
    assert [one.status for one in answers] == [200, 200, 200]
    sent = [json.dumps(one.json) for one in lab.upstream.seen]
    assert ["QQ0=" in body for body in sent] == [False] * 4
    assert [body.count(STAND_IN) for body in sent] == [0, 0, 1, 1]
    flows = [await later[0].flow() for _ in sent[1:]]  # one of them is the retry
    assert "of past reasoning left out" in str([flow.metadata.get("vtc") for flow in flows])
