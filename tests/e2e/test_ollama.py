"""Ollama's chat API through a real proxy, parsed by ollama-python and as the strictest clients parse it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ollama as sdk
import pytest

from tests.apis import chat, ollama, pairs
from tests.apis.shapes import SHAPES, make_request_body
from tests.e2e.conftest import Answer, Lab, Start, by_turn
from tests.e2e.text_clients import AGENT, CLINE, LIST, write_profiles
from tests.e2e.upstream import JSON, Reply, Seen

PATH = "/api/chat"
STREAM = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
CALLED = [("read", {"filePath": "/a"})]


def replying(text: str, *, stream: bool, **fields: Any) -> Reply:
    """Return a text reply, streamed character by character."""
    if stream:
        thinking = [ollama.make_thinking_lines(fields.pop("thinking"))[0]] if "thinking" in fields else []
        lines = ollama.make_stream(
            *thinking, *ollama.make_text_lines(*text), done_reason=fields.get("done_reason", "stop")
        )
        return Reply(lines, ollama.NDJSON)
    return Reply([chat.encode_json(ollama.message(text, **fields))], JSON, framing="length")


async def ask(lab: Lab, *, stream: bool, headers: Any = None, **fields: Any) -> tuple[Answer, ollama.Read]:
    body = ollama.request(stream=None if stream else False, **fields)
    answer = await lab.post(body, path=PATH, headers=headers)
    return answer, ollama.read(answer.body, stream=stream)


@STREAM
@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_call_in_text_is_lifted(dialect: str, stream: bool, start: Start) -> None:
    call = chat.DIALECTS[dialect]("read", {"filePath": "/a"})
    text = call if dialect == "bare-json" else f"Let me look.\n\n{call}"
    lab = await start(replying(text, stream=stream), vtc_dialect=dialect)
    client = sdk.AsyncClient(lab.proxy.url, trust_env=False)
    calls: list[tuple[str, Any]] = []
    if stream:
        async for line in await client.chat(model=chat.MODEL, messages=[], tools=ollama.TOOLS, stream=True):
            calls += [(one.function.name, one.function.arguments) for one in line.message.tool_calls or ()]
    else:
        reply = await client.chat(model=chat.MODEL, messages=[], tools=ollama.TOOLS)
        calls += [(one.function.name, one.function.arguments) for one in reply.message.tool_calls or ()]
    await client.close()
    assert calls == CALLED
    _, found = await ask(lab, stream=stream)
    assert (found.calls, found.done_reason) == (CALLED, "stop")


@STREAM
async def test_reply_without_calls_keeps_its_bytes(stream: bool, start: Start) -> None:
    reply = replying("Hello <b>there</b>, `you`.", stream=stream, thinking="Hm")
    lab = await start(reply)
    answer, _ = await ask(lab, stream=stream)
    assert answer.body == b"".join(reply.pieces)


@STREAM
async def test_model_without_tools_gets_them_in_the_prompt(stream: bool, start: Start) -> None:
    lab = await start(
        replying(chat.DIALECTS["hermes"]("read", {"filePath": "/a"}), stream=stream),
        vtc_tools="prompt",
        vtc_dialect="hermes",
    )
    turns = [ollama.user("Go"), ollama.assistant("", ollama.call("read", filePath="/b")), ollama.result("b")]
    _, found = await ask(lab, stream=stream, messages=turns)
    assert found.calls == CALLED
    sent = lab.upstream.seen[0].json
    assert "tools" not in sent
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    assert "<tool_call>" in sent["messages"][2]["content"]


@STREAM
async def test_text_client_gets_calls_as_its_text(stream: bool, start: Start) -> None:
    """Cline over Ollama sends no tools and reads `content` only."""
    call = chat.DIALECTS["hermes"]("list_files", {"path": "."})
    lab = await start(replying(f"Look:\n{call}", stream=stream))
    turns = [{"role": "system", "content": CLINE}, ollama.user("<task>\nLook.\n</task>")]
    _, found = await ask(lab, stream=stream, headers=AGENT, messages=turns, tools=None)
    assert (found.content, found.calls) == (f"Look:\n\n{LIST}", [])


@STREAM
async def test_promoted_text_client_gets_native_calls_as_its_text(stream: bool, start: Start) -> None:
    made = ollama.call("list_files", path=".")
    lines = ollama.make_stream(ollama.piece("", made))
    whole = Reply([chat.encode_json(ollama.message("", made))], JSON, framing="length")
    lab = await start(Reply(lines, ollama.NDJSON) if stream else whole, vtc_tools="native")
    turns = [{"role": "system", "content": CLINE}, ollama.user("<task>\nLook.\n</task>")]
    _, found = await ask(lab, stream=stream, headers=AGENT, messages=turns, tools=None)
    assert (found.content, found.calls) == (LIST, [])
    assert "list_files" in [tool["function"]["name"] for tool in lab.upstream.seen[0].json["tools"]]


@STREAM
async def test_denied_call_is_reported_to_the_model(stream: bool, start: Start, tmp_path: Path) -> None:
    mine = {"match": {"model": chat.MODEL}, "guards": {"denied_tools": ["read"], "on_denied": "steer"}}
    lab = await start(
        replying(chat.DIALECTS["hermes"]("read", {"filePath": "/a"}), stream=stream),
        vtc_profiles=write_profiles(tmp_path, model=mine),
    )
    _, found = await ask(lab, stream=stream)
    assert found.calls == []
    assert "may not be used" in found.content


@STREAM
async def test_native_call_denied_by_policy_is_not_sent(stream: bool, start: Start, tmp_path: Path) -> None:
    mine = {"match": {"model": chat.MODEL}, "guards": {"denied_tools": ["read"]}}
    made = ollama.call("read", filePath="/a")
    whole = Reply([chat.encode_json(ollama.message("", made))], JSON, framing="length")
    streamed = Reply(ollama.make_stream(ollama.piece("", made)), ollama.NDJSON)
    lab = await start(streamed if stream else whole, vtc_profiles=write_profiles(tmp_path, model=mine))
    _, found = await ask(lab, stream=stream)
    assert found.calls == []


async def test_upstream_is_asked_without_streaming(start: Start, tmp_path: Path) -> None:
    mine = {"match": {"model": chat.MODEL}, "upstream_stream": "never"}
    text = chat.DIALECTS["hermes"]("read", {"filePath": "/a"})
    lab = await start(replying(text, stream=False, thinking="Hm"), vtc_profiles=write_profiles(tmp_path, model=mine))
    answer, found = await ask(lab, stream=True)
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert (found.reasoning, found.calls) == ("Hm", CALLED)
    assert lab.upstream.seen[0].json["stream"] is False


@STREAM
async def test_agent_in_a_loop_is_stopped(stream: bool, start: Start, tmp_path: Path) -> None:
    mine = {"match": {"model": chat.MODEL}, "guards": {"loop": {"repeated_calls": 2}}}
    lab = await start(replying("never", stream=stream), vtc_profiles=write_profiles(tmp_path, model=mine))
    turn = [ollama.assistant("", ollama.call("read", filePath="/a")), ollama.result("no")]
    _, found = await ask(lab, stream=stream, messages=[ollama.user("Go"), *turn * 4])
    assert found.content.startswith("Stopped: ")
    assert lab.upstream.seen == []


@STREAM
async def test_thinking_in_the_text_is_parted(stream: bool, start: Start) -> None:
    lab = await start(replying("<think>\nHm.\n</think>\n\nHi.", stream=stream), vtc_model="qwen3")
    _, found = await ask(lab, stream=stream)
    assert (found.reasoning.strip(), found.content) == ("Hm.", "Hi.")


@STREAM
async def test_model_is_asked_again_about_a_call_that_cannot_be_read(
    stream: bool, start: Start, tmp_path: Path
) -> None:
    mine = {"match": {"model": chat.MODEL}, "retry": {"max": 1, "on": ["malformed"]}}
    bad, good = (
        '<tool_call>{"name": "sh.rm", "arguments": {}}</tool_call>',
        chat.DIALECTS["hermes"]("read", {"filePath": "/a"}),
    )
    lab = await start(
        by_turn(replying(bad, stream=False), replying(good, stream=False)),
        vtc_profiles=write_profiles(tmp_path, model=mine),
    )
    _, found = await ask(lab, stream=stream)
    assert found.calls == CALLED
    assert "corrected" in lab.upstream.seen[1].json["messages"][-1]["content"]


async def test_error_in_a_stream_passes(start: Start) -> None:
    lab = await start(Reply([*ollama.make_text_lines("a"), ollama.error()], ollama.NDJSON))
    answer = await lab.post(ollama.request(), path=PATH)
    assert answer.body == b"".join([*ollama.make_text_lines("a"), ollama.error()])


async def test_request_to_a_path_close_by_passes_untouched(start: Start) -> None:
    lab = await start(Reply([b'{"embedding": []}'], JSON, framing="length"))
    answer = await lab.post({"model": chat.MODEL, "prompt": "x"}, path="/api/generate")
    assert answer.body == b'{"embedding": []}'


async def test_client_hears_something_while_a_call_is_held_back(start: Start) -> None:
    """The client gets a copy of the last line, because clients parse every line as JSON."""
    text = "Hi.\n" + chat.DIALECTS["hermes"]("read", {"filePath": "/a" * 40})
    lab = await start(Reply(ollama.make_stream(*ollama.make_text_lines(*text)), ollama.NDJSON), vtc_keep_alive=15)
    lab.proxy.addon.clock = iter(range(0, 10_000, 5)).__next__
    answer, found = await ask(lab, stream=True)
    empty = [
        line for line in answer.body.splitlines() if json.loads(line)["message"] == {"role": "assistant", "content": ""}
    ]
    assert len(empty) > 1
    assert found.calls == [("read", {"filePath": "/a" * 40})]


async def test_separators_of_lines_in_text_and_in_calls_reach_the_sdk(start: Start) -> None:
    """ollama-python splits a stream at these characters. The server escapes them, and so does VTC."""
    odd = "a\u2028b\u2029c\x85d"
    call = chat.DIALECTS["hermes"]("read", {"filePath": odd})
    lines = ollama.make_stream(*ollama.make_text_lines(f"{odd}: ", call[:30], call[30:]))
    names = {ord(one): f"\\u{ord(one):04x}" for one in "\u2028\u2029\x85"}
    escaped = [line.decode().translate(names).encode() for line in lines]
    lab = await start(Reply(escaped, ollama.NDJSON))
    client = sdk.AsyncClient(lab.proxy.url, trust_env=False)
    text, calls = "", []
    async for line in await client.chat(model=chat.MODEL, messages=[], tools=ollama.TOOLS, stream=True):
        text += line.message.content or ""
        calls += [one.function.arguments for one in line.message.tool_calls or ()]
    await client.close()
    assert (text.strip(), calls) == (f"{odd}:", [{"filePath": odd}])


def of_two_apis(seen: Seen) -> Reply:
    """Act as Ollama, which lists its models, and speaks its own API and chat completions."""
    if seen.method == "GET":
        models = {"object": "list", "data": [{"id": chat.MODEL, "object": "model", "owned_by": "library"}]}
        return Reply([chat.encode_json(models)], JSON, framing="length")
    spoken = {SHAPES[name].path: name for name in ("openai-chat", "ollama-chat")}
    if not (server := spoken.get(seen.path)):
        return Reply([b"404 page not found"], status=404, framing="length")
    if seen.body == b"{}":  # VTC's probe for the API
        return Reply([b'{"error": "model is required"}'], JSON, status=400, framing="length")
    if seen.json.get("stream", server == "ollama-chat"):
        return Reply([pairs.make_stream(server, ["I look."], pairs.READ)], {"content-type": SHAPES[server].media_type})
    return Reply([pairs.make_whole_reply(server, "I look.", pairs.READ)], JSON, framing="length")


@STREAM
@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("context", [65536, None])
async def test_known_context_is_sent_to_the_server_for_each_client(
    context: int | None, client: str, stream: bool, start: Start, tmp_path: Path
) -> None:
    """This uses Ollama's API, even if no option names it; without a known context a client keeps chat completions."""
    ready: dict[str, Any] = {"ready": {"context": context}} if context else {}
    mine = write_profiles(tmp_path, server={"match": {"host": "127.0.0.1"}, **ready})
    lab = await start(of_two_apis, vtc_profiles=mine, vtc_discover="on", connection_strategy="lazy")
    for _ in range(2):
        answer = await lab.post(make_request_body(client, stream=stream), path=SHAPES[client].build_path(stream=stream))
        assert answer.status == 200
        assert pairs.read(client, answer.body, stream=stream) == pairs.make_content("I look.", pairs.READ)
    *_, first, last = lab.upstream.seen
    for seen in (first, last):
        options = (seen.json.get("options", {}).get("num_ctx"), seen.json.get("truncate"))
        assert options == ((context, False) if context else (None, None))
        assert context is None or seen.path == PATH
        assert client != "openai-chat" or seen.path == SHAPES["ollama-chat" if context else client].path
