"""Policies and content rules have the same result at every cut, in every field that a client shows, for every pair.

A refusal is a separate field in chat completions and Responses, and text in the other APIs.
"""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.apis import chat, pairs, responses
from tests.apis.named_events import Json
from tests.apis.pairs import PAIRS
from tests.apis.shapes import make_request_body
from tests.attacks.clients import cline
from tests.attacks.lab import CLINE, PROMPT
from tests.attacks.test_model import EXECUTE, HERMES
from tests.exchanges import PROFILES, agent, feed_stream
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

REFUSES = ("openai-chat", "openai-responses")
"""The APIs with a separate field for a refusal."""
FIELDS = [
    (client, server, field)
    for client, server in PAIRS
    for field in ("text", "refusal")
    if field == "text" or server in REFUSES
]
EACH = pytest.mark.parametrize(("client", "server", "field"), FIELDS, ids=lambda name: name)
PROMPTED: dict[str, Json] = {
    "openai-chat": {"messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]},
    "anthropic-messages": {"system": PROMPT},
    "openai-responses": {"instructions": PROMPT},
    "ollama-chat": {"messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]},
    "gemini-generate": {"systemInstruction": {"parts": [{"text": PROMPT}]}},
}


def open_policy_session(
    client: str, server: str, guards: Json, *, stream: bool, text: bool = False, **fields: Any
) -> Session:
    """Open a session under a policy, of Cline (`text`) or of a client that declares tools."""
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(guards, Guards))
    planner = Planner(dataclasses.replace(PROFILES, policies={"mine": policy}), Settings(upstream_api=(server,)))
    (api,) = [one for one in APIS if one.name == client]
    facts = agent(client, stream=stream)
    if text:
        facts = dataclasses.replace(facts, user_agent=CLINE.user_agent)
    fields |= {**PROMPTED[client], "tools": None} if text else {}
    exchange = Session.open(api, make_request_body(client, stream=stream, **fields), facts, planner, "seed")
    exchange.encode_request()
    return exchange


def reply(server: str, field: str, *pieces: str, stream: bool) -> bytes:
    """Return a reply with a text in the field."""
    if stream:
        body = pairs.make_stream(server, pieces)
    else:
        body = pairs.make_whole_reply(server, "".join(pieces))
    return _refusing(body) if field == "refusal" else body


def _refusing(body: bytes) -> bytes:
    """Move the text of a reply into the refusal."""
    out = []
    for line in body.split(b"\n"):
        head, data = (b"data: ", line[6:]) if line.startswith(b"data: ") else (b"", line)
        if line.startswith(b"event:"):
            line = line.replace(b"output_text", b"refusal")
        elif data.startswith(b"{"):
            line = head + json.dumps(_as_refusal(json.loads(data))).encode()
        out.append(line)
    return b"\n".join(out)


def _as_refusal(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_as_refusal, value)]
    if not isinstance(value, dict):
        return value
    value = {key: _as_refusal(one) for key, one in value.items()}
    kind = value.get("type")
    if kind == "output_text":
        return {"type": "refusal", "refusal": value["text"]}
    if isinstance(kind, str) and kind.startswith("response.output_text."):
        value["type"] = kind.replace("output_text", "refusal")
        value = {"refusal" if key == "text" else key: one for key, one in value.items() if key != "logprobs"}
    elif kind is None and value.get("content") and isinstance(value["content"], str):
        value = {**value, "content": None, "refusal": value["content"]}
    return value


def read_shown(client: str, body: bytes, *, stream: bool) -> tuple[str, str]:
    """Return the text and the refusal that a client shows."""
    found = pairs.read(client, body, stream=stream)
    if client == "openai-chat":
        parts = chat.deltas(body) if stream else [json.loads(body)["choices"][0]["message"]]
        return found.text, "".join(part.get("refusal") or "" for part in parts)
    if client == "openai-responses":
        items = pairs._READERS[client](body).items
        parts = [part for item in items for part in item.get("content") or ()]
        return found.text, "".join(part.get("refusal", "") for part in parts)
    return found.text, ""


def read_every_cut(
    client: str, server: str, field: str, text: str, guards: Json, *, as_text: bool = False
) -> tuple[str, str]:
    """Return the text and the refusal that a client shows of a reply, after checking that they are equal at every
    cut.
    """
    found = []
    for cuts in (None, (), (3, 9), (20, 21, 22, 23), tuple(range(1, len(text)))):
        stream = cuts is not None
        exchange = open_policy_session(client, server, guards, stream=stream, text=as_text)
        places = [0, *(cuts or ()), len(text)]
        pieces = [text[start:end] for start, end in pairwise(places)]
        body = reply(server, field, *pieces, stream=stream)
        out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        assert exchange.report.failures == []
        assert not guards.get("content") or b"SECRET" not in out
        found.append(read_shown(client, out, stream=stream))
    assert found == [found[0]] * len(found)
    return found[0]


def fields(client: str, server: str, field: str, text: str) -> tuple[str, str]:
    """Return the expected display of a text in a field."""
    return ("", text) if field == "refusal" and client in REFUSES else (text, "")


@EACH
def test_a_content_rule_sees_it(client: str, server: str, field: str) -> None:
    text = "I will say SECRET99 to you, and SECRET1."
    rule = {"content": [{"pattern": r"SECRET\d+", "replacement": "***"}]}
    expected = fields(client, server, field, "I will say *** to you, and ***.")
    assert read_every_cut(client, server, field, text, rule) == expected
    assert read_every_cut(client, server, field, text, {}) == fields(client, server, field, text)


@EACH
def test_no_client_executes_a_denied_call_in_it(client: str, server: str, field: str) -> None:
    guards = {"denied_tools": ["execute_command"]}
    for text in (EXECUTE, HERMES.format("execute_command", '{"command": "ls"}'), f"<execute_command>\n{EXECUTE}"):
        shown = read_every_cut(client, server, field, f"So I do: {text}", guards, as_text=True)
        assert cline("".join(shown)) == []
        assert "So I do:" in "".join(shown)


@pytest.mark.parametrize("client", pairs.NAMES)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_text_and_a_refusal_after_it_stay_apart(client: str, stream: bool) -> None:
    """This includes models that mostly think first, because a server that knows refusals also separates reasoning."""
    rule = {"content": [{"pattern": r"SECRET\d+", "replacement": "***"}]}
    message = {"role": "assistant", "content": "Well, SECRET1. ", "refusal": "No SECRET2."}
    for guards, text, refusal in ((rule, "Well, ***. ", "No ***."), ({}, "Well, SECRET1. ", "No SECRET2.")):
        exchange = open_policy_session(client, "openai-chat", guards, stream=stream, model="qwen3-32b")
        if stream:
            pieces = [{"content": "Well, SEC"}, {"content": "RET1. "}, {"refusal": "No SE"}, {"refusal": "CRET2."}]
            out = feed_stream(exchange.stream(), chat.ROLE, *map(chat.chunk, pieces), chat.chunk({}, "stop"), chat.DONE)
        else:
            out = exchange.whole.rewrite(chat.encode_json(chat.completion(None, message=message)))
        expected = (text, refusal) if client in REFUSES else (text + refusal, "")
        assert read_shown(client, out, stream=stream) == expected
        if client == "anthropic-messages":
            assert b'"stop_reason":"refusal"' in out


NAMES = ("mcp__fs.delete", "mcp__fs__delete", "delete")
"""The names of Codex's tool `delete` in the namespace `mcp__fs`."""


@pytest.mark.parametrize("server", pairs.NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_a_tool_in_a_namespace_is_denied_by_any_of_its_names(server: str, name: str) -> None:
    """It is neither offered nor called, whichever of its names the server or the text uses."""
    tools = [responses.namespace("mcp__fs", responses.tool("delete", filePath="string")), responses.READ]
    no = {"name": "no", "then": {"refuse": "No."}}
    for guards, offered in (
        ({"denied_tools": [name]}, False),
        ({"allowed_tools": ["read"]}, False),
        ({"reactors": [{**no, "when": {"tools": name, "arguments": {"filePath": "a"}}}]}, True),
    ):
        for called in NAMES:
            for stream in (True, False):
                exchange = open_policy_session("openai-responses", server, guards, stream=stream, tools=tools)
                assert (b"delete" in exchange.encode_request()) == offered
                for body in (
                    pairs.make_stream(server, ["Hi"], [(called, {"filePath": "a"})]),
                    pairs.make_stream(server, ["Hi", HERMES.format(called, '{"filePath": "a"}')]),
                ):
                    exchange = open_policy_session("openai-responses", server, guards, stream=stream, tools=tools)
                    out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
                    assert not [item for item in responses.read(out).items if item["type"] == "function_call"]
                    assert exchange.report.failures == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tool_in_a_namespace_is_allowed_by_any_of_its_names(name: str) -> None:
    """The short name counts only if no other tool has it."""
    fs = responses.namespace("mcp__fs", responses.tool("delete", filePath="string"))
    git = responses.namespace("mcp__git", responses.tool("delete", filePath="string"))
    for tools in ([fs, responses.READ], [fs, git]):
        exchange = open_policy_session(
            "openai-responses", "openai-chat", {"allowed_tools": [name]}, stream=True, tools=tools
        )
        is_allowed = name != "delete" or git not in tools
        assert (b"mcp__fs__delete" in exchange.encode_request()) == is_allowed
        body = pairs.make_stream("openai-chat", [], [("mcp__fs__delete", {"filePath": "a"})])
        found = responses.read(feed_stream(exchange.stream(), body))
        assert found.namespaces == (["mcp__fs"] if is_allowed else [])


REPEATED = "I say SECRET1."
RULE: Json = {"content": [{"pattern": r"SECRET\d+", "replacement": "***"}]}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_text_repeated_next_to_messages_equals_the_text_that_the_client_receives(stream: bool) -> None:
    """Some servers of Responses repeat it in `output_text`."""
    frames = responses.all_events(responses.text_events("I say SEC", "RET1."))
    frames[-1]["response"]["output_text"] = REPEATED
    body = b"".join(responses.number_events(frames)) if stream else chat.encode_json(frames[-1]["response"])
    for guards in ({}, RULE):
        exchange = open_policy_session("openai-responses", "openai-responses", guards, stream=stream)
        out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        if guards:
            assert b"SECRET" not in out
            assert out.replace(b" ", b"").count(b'"output_text":"Isay***."') == 1
        else:
            assert out == body


@pytest.mark.parametrize("client", pairs.NAMES)
def test_a_refusal_in_a_part_of_the_content_is_one(client: str) -> None:
    content = [{"type": "text", "text": "Well. "}, {"type": "refusal", "refusal": REPEATED}]
    body = chat.encode_json(chat.completion(None, message={"role": "assistant", "content": content}))
    for guards, expected in (({}, REPEATED), (RULE, "I say ***.")):
        out = open_policy_session(client, "openai-chat", guards, stream=False).whole.rewrite(body)
        assert expected.encode() in out
        assert guards == {} or b"SECRET" not in out
