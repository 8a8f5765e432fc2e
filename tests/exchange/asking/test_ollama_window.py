"""An Ollama that silently drops messages beyond its window: VTC sets the window, and notices truncation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.apis import chat, gemini, ollama, pairs
from tests.apis.shapes import make_request_body
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchanges import agent, feed_stream
from vtc.exchange import Session
from vtc.profiles import Planner, Settings, builtin_directory, load_profiles

type Json = dict[str, Any]

WINDOW = 4096
"""The server's window in tokens, unless a request sets another."""
PER_TOKEN = 4


class Shown(NamedTuple):
    """The model's view of a request: the messages and the tokens, or the rejection."""

    messages: list[Json]
    tokens: int
    error: str = ""


def show_model(body: Json, *, own: bool) -> Shown:
    """Serve a request: only Ollama's API sets the window. System messages are kept, and the last ones that fit."""
    window = body.get("options", {}).get("num_ctx", WINDOW) if own else WINDOW
    messages = body["messages"]
    for begin in range(len(messages)):
        kept = [one for at, one in enumerate(messages) if at >= begin or one["role"] == "system"]
        tokens = _tokens(kept) + _tokens(body.get("tools") or [])
        if begin and own and body.get("truncate") is False:
            return Shown([], 0, "the input length exceeds the context length")
        if tokens <= window:
            break
    return Shown(kept, min(tokens, window))  # the kept part of a message that is too long fills the window


def _tokens(of: list[Json]) -> int:
    return len(json.dumps(of)) // PER_TOKEN


def reply(server: str, tokens: int, *, stream: bool) -> bytes:
    """Return a reply with this number of prompt tokens."""
    if server == "ollama-chat":
        return ollama_reply(stream=stream).replace(b'"prompt_eval_count":3', b'"prompt_eval_count":%d' % tokens)
    usage = {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}
    if not stream:
        return chat.encode_json({**chat.completion("Hi"), "usage": usage})
    last = chat.frame({**pairs.USAGE, "id": "x", "usage": usage})
    return b"".join([chat.ROLE, *chat.make_text_chunks("Hi"), chat.chunk({}, "stop"), last, chat.DONE])


def ollama_reply(*, stream: bool) -> bytes:
    written = pairs.make_stream("ollama-chat", ["Hi"]) if stream else pairs.make_whole_reply("ollama-chat", "Hi")
    return written.replace(b'"prompt_eval_count": ', b'"prompt_eval_count":')


def open_conversation(
    client: str, server: str, folder: Path, context: int | None, words: int, *, stream: bool
) -> Session:
    """Open a conversation of three turns of this many words, with a profile that sets the window."""
    ready = f"ready: {{context: {context}}}\n" if context else ""
    (folder / "mine.yaml").write_text(f"kind: server\nname: mine\nmatch: {{}}\n{ready}")
    turns = [
        {"role": role, "content": f"<{at}> {'word ' * words}"} for at, role in enumerate(["user", "assistant"] * 3)
    ]
    messages = [{"role": "system", "content": "<rules>"}, *turns[:-1]]
    fields: Json = {"messages": messages}
    if client == "openai-responses":
        fields = {"instructions": "<rules>", "input": turns[:-1]}
    if client == "gemini-generate":
        roles = {"assistant": gemini.model}
        made = [roles.get(one["role"], gemini.user)(gemini.text(one["content"])) for one in turns[:-1]]
        fields = {"systemInstruction": {"parts": [gemini.text("<rules>")]}, "contents": made}
    planner = Planner(load_profiles([builtin_directory(), folder]), Settings(server="mine", upstream_api=(server,)))
    return Session.open(
        BY_NAME[client],
        make_request_body(client, **fields, stream=stream),
        agent(client, stream=stream),
        planner,
        "seed",
    )


def serve_request(exchange: Session, server: str, *, stream: bool) -> tuple[str, str]:
    """Send the request; return the model's view, and VTC's report."""
    found = show_model(json.loads(exchange.encode_request()), own=server == "ollama-chat")
    assert not found.error
    body = reply(server, found.tokens, stream=stream)
    if stream:
        feed_stream(exchange.stream(), body)
    else:
        exchange.whole.rewrite(body)
    return json.dumps(found.messages), ", ".join([*exchange.report.request, *exchange.report.notes])


STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
SERVERS = pytest.mark.parametrize("server", ["ollama-chat", "openai-chat"])


@STREAM
@SERVERS
def test_silent_truncation_of_a_prompt_is_reported(server: str, stream: bool, tmp_path: Path) -> None:
    exchange = open_conversation("openai-chat", server, tmp_path, None, 12_000, stream=stream)
    messages, reports = serve_request(exchange, server, stream=stream)
    assert "<rules>" in messages
    assert "<0>" not in messages
    assert "the server cut the prompt: it read 4096 tokens of 300 KB" in reports


@STREAM
@SERVERS
def test_one_that_fits_is_not(server: str, stream: bool, tmp_path: Path) -> None:
    messages, reports = serve_request(
        open_conversation("openai-chat", server, tmp_path, None, 500, stream=stream), server, stream=stream
    )
    assert "<0>" in messages
    assert "cut" not in reports


@STREAM
@SERVERS
def test_omitted_messages_are_noticed_if_few_remain(server: str, stream: bool, tmp_path: Path) -> None:
    """The token count then equals no window."""
    exchange = open_conversation("openai-chat", server, tmp_path, None, 2_800, stream=stream)
    messages, reports = serve_request(exchange, server, stream=stream)
    assert "<4>" in messages
    assert "<3>" not in messages
    assert "the server cut the prompt" in reports


@STREAM
@pytest.mark.parametrize("client", pairs.NAMES)
def test_window_of_the_profile_prevents_omissions(client: str, stream: bool, tmp_path: Path) -> None:
    exchange = open_conversation(client, "ollama-chat", tmp_path, 131_072, 12_000, stream=stream)
    messages, reports = serve_request(exchange, "ollama-chat", stream=stream)
    assert all(f"<{part}>" in messages for part in ("rules", 0, 1, 2, 3, 4))
    assert "num_ctx 131072 set" in reports
    assert "cut" not in reports


@pytest.mark.parametrize("client", pairs.NAMES)
def test_prompt_beyond_the_window_of_the_profile_is_an_error_that_the_client_knows(client: str, tmp_path: Path) -> None:
    exchange = open_conversation(client, "ollama-chat", tmp_path, 8192, 12_000, stream=False)
    error = show_model(json.loads(exchange.encode_request()), own=True).error
    reply = exchange.whole.translate_error(chat.encode_json({"error": error}), 400)
    assert reply
    assert reply.status == 400
    error = json.loads(reply.body)["error"]
    beginning = re.split(r"\d", pairs.TOO_LONG[client])[0]
    assert (error if client == "ollama-chat" else error["message"]).startswith(beginning)


def test_the_server_of_these_tests_cuts_as_ollama_does() -> None:
    messages = [{"role": "system", "content": "s"}, *(ollama.user(f"{at}" * 9_000) for at in range(3))]
    assert show_model({"messages": messages}, own=True) == Shown(
        [messages[0], messages[3]], _tokens([messages[0], messages[3]])
    )
    assert show_model({"messages": messages, "options": {"num_ctx": 8192}}, own=True).messages == messages
    assert show_model({"messages": messages, "options": {"num_ctx": 8192}}, own=False).messages == [
        messages[0],
        messages[3],
    ]
    assert show_model({"messages": messages, "truncate": False}, own=True).error
