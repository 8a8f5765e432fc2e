"""Check policies: for any bytes of a server, no client's own parser finds a call that the policy forbids.

The first byte of an input chooses the policy and the client. The second chooses the size of the chunks, a stream or a
whole reply, and compression.
"""

from __future__ import annotations

import dataclasses
import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.shapes import SHAPES
from tests.attacks.clients import cline, find_calls, find_chat_calls, join_texts
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Facts, Match, Planner, PolicyProfile, Settings, builtin_directory, load_profiles

PROMPT = (Path(__file__).parents[1] / "tests" / "cases" / "prompts" / "cline.md").read_text("utf-8")
TEXT_CLIENT = Facts(user_agent="Cline/3.82.0", host="127.0.0.1", path="/v1/chat/completions")
NATIVE_CLIENT = Facts(user_agent="Some/1", host="127.0.0.1", path="/v1/chat/completions")
FORBIDDEN_TOOLS = {"bash", "execute_command", "browser_action"}
POLICIES: tuple[dict[str, Any], ...] = (
    {"denied_tools": ["bash", "execute_command", "browser*"]},
    {"denied_tools": ["bash", "execute_command", "browser*"], "on_denied": "drop", "content": [{"pattern": "@+"}]},
    {"allowed_tools": ["read", "read_file"], "on_denied": "steer", "content": [{"pattern": "@", "replacement": "<"}]},
    {
        "denied_tools": ["bash", "execute_command", "browser_action"],
        "arguments": {"coerce": False, "misfit": "steer"},
        "reactors": [{"name": "r", "when": {"tools": "cat"}, "then": {"rename_tool": "read"}}],
    },
)
CHUNK_SIZES = (1, 3, 16, 64, 500, 1 << 20)
BASH_TOOL = chat.tool("bash", command="string")


@cache
def load_planner(choice: int) -> Planner:
    profiles = load_profiles([builtin_directory()])
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(POLICIES[choice], Guards))
    return Planner(dataclasses.replace(profiles, policies={"mine": policy}), Settings())


def open_session(choice: int, client: int) -> Session:
    """Open an exchange of a client: 0 is Cline, the others are clients of each API with native tool calls."""
    if client == 0:
        turns = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]
        body, api, facts = chat.request(messages=turns, tools=None, stream=True), APIS[0], TEXT_CLIENT
    else:
        api = APIS[(client - 1) % len(APIS)]
        facts = dataclasses.replace(NATIVE_CLIENT, path=SHAPES[api.name].build_path(stream=True))
        body = {
            "openai-chat": lambda: chat.request(stream=True, tools=[BASH_TOOL, chat.READ]),
            "anthropic-messages": lambda: messages.request(stream=True),
            "openai-responses": lambda: responses.request(stream=True),
            "ollama-chat": lambda: ollama.request(stream=True),
            "gemini-generate": lambda: gemini.request(stream=True),
        }[api.name]()
    return Session.open(api, chat.encode_json(body), facts, load_planner(choice), "seed")


def fuzz_policies(data: bytes) -> None:
    """Check any bytes as the reply to a client under a policy."""
    if len(data) < 2:
        return
    choice, client, how, body = data[0] % len(POLICIES), data[0] // 16, data[1], data[2:]
    exchange = open_session(choice, client)
    if how & 8:
        out = exchange.whole.rewrite(body)
    else:
        coding, size = "gzip" if how & 16 else "", CHUNK_SIZES[(how & 7) % len(CHUNK_SIZES)]
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        stream = exchange.stream(coding)
        pieces = [gzip.compress(piece) for piece in pieces] if coding else pieces
        out = b"".join([sent for piece in pieces for sent in stream.feed(piece)] + stream.finish())
    if exchange.report.failures:
        # A whole body without any object passes through, for example an error page.
        assert how & 8, exchange.report.failures
        assert b"{" not in body, exchange.report.failures
        assert out == body
    if exchange.media_type != "text/event-stream":  # its clients parse lines of JSON instead of events
        out = b"\n".join(line for line in out.split(b"\n") if line.lstrip()[:1] in (b"{", b"["))
    found = (
        find_chat_calls(out)
        | find_calls(out)
        | ({name for name, _ in cline(join_texts(out))} if client == 0 else set())
    )
    assert not found & FORBIDDEN_TOOLS, found
