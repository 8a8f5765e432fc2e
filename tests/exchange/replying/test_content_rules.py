"""Content rules apply to all text that a client shows, also to the text and the messages that replace a denied call."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from tests.apis import chat, pairs
from tests.apis.pairs import PAIRS
from tests.apis.shapes import make_request_body
from tests.attacks.lab import CLINE, PROMPT
from tests.dialects.material import DIALECTS
from tests.exchange.crossings import BY_NAME
from tests.exchanges import PROFILES, agent, declare_tools, feed_stream
from vtc.dialects.writing import write_calls
from vtc.events import Tool, ToolCall
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

SECRET = re.compile(r"SECRET\w+")
CONTENT = [{"pattern": SECRET.pattern, "replacement": "xxx"}]
DENIED = {"denied_tools": ["rm"], "on_denied": "text"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "count": {"type": "integer"}}}
TOOLS = {name: Tool(name, "", SCHEMA) for name in ("rm", "read")}
CALL = ToolCall("rm", '{"path": "a SECRETpath"}')


def planner(guards: dict[str, Any], **settings: Any) -> Planner:
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(guards, Guards))
    return Planner(dataclasses.replace(PROFILES, policies={"mine": policy}), Settings(**settings))


def open_planned(client: str, planner: Planner, *, stream: bool) -> Session:
    tools = declare_tools(client, dict.fromkeys(TOOLS, SCHEMA))
    facts = agent(client, stream=stream)
    exchange = Session.open(
        BY_NAME[client], make_request_body(client, stream=stream, tools=tools), facts, planner, "seed"
    )
    exchange.encode_request()
    return exchange


def read_shown(planner: Planner, text: str) -> chat.Read:
    """Return the reply as the client shows it, identical for any cut and for a whole reply."""
    exchange = open_planned("openai-chat", planner, stream=False)
    found = chat.read(exchange.whole.rewrite(chat.encode_json(chat.completion(text))))
    assert exchange.report.failures == []
    middle = text.index("SECRET") + 3 if "SECRET" in text else len(text) // 2
    for cuts in ((), (middle,), (middle - 4, middle + 5), tuple(range(1, len(text)))):
        pieces = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
        exchange = open_planned("openai-chat", planner, stream=True)
        streamed = chat.read(feed_stream(exchange.stream(), *chat.make_stream(*pieces)))
        assert exchange.report.failures == []
        assert (streamed.content, streamed.calls) == (found.content, found.calls)
    return found


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rules_apply_to_the_text_of_a_denied_call(dialect: str) -> None:
    written = write_calls([CALL], DIALECTS[dialect], TOOLS)
    assert "SECRETpath" in written
    for text in (written, f"I go.\n\n{written}\n\nSECRETdone."):
        kept = read_shown(planner(DENIED, dialect=dialect), text)
        found = read_shown(planner({**DENIED, "content": CONTENT}, dialect=dialect), text)
        assert kept.calls == found.calls == []
        assert "SECRETpath" in kept.content
        assert found.content == SECRET.sub("xxx", kept.content)


def test_a_match_may_span_a_denied_call_and_the_text_around_it() -> None:
    written = write_calls([CALL], DIALECTS["hermes"], TOOLS)
    rules = [{"pattern": r"(?s)FROM.*TO", "replacement": "-", "most": 400}]
    found = read_shown(planner({**DENIED, "content": rules}, dialect="hermes"), f"I go FROM\n{written}\nTO it.")
    assert found.content == "I go - it."


@pytest.mark.halved
@pytest.mark.every
@pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
@pytest.mark.parametrize("manner", ["text", "steer", "drop"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_rules_apply_to_a_denied_native_call(client: str, server: str, manner: str, stream: bool) -> None:
    guards = {"arguments": {"misfit": manner}, **DENIED, "on_denied": manner}
    calls = [("rm", {"path": "a SECRETpath"}), ("read", {"count": "SECRETcount"}), ("read", {"path": "b"})]
    body = pairs.make_stream(server, ["So."], calls) if stream else pairs.make_whole_reply(server, "So.", calls)

    def read_client(guards: dict[str, Any]) -> pairs.ReplyContent:
        exchange = open_planned(client, planner(guards, upstream_api=(server,)), stream=stream)
        out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
        assert exchange.report.failures == []
        return pairs.read(client, out, stream=stream)

    kept, found = read_client(guards), read_client({**guards, "content": CONTENT})
    assert found.text == SECRET.sub("xxx", kept.text)
    assert found.calls == kept.calls
    assert ("SECRET" in kept.text) == (manner != "drop")
    dropped = read_client({**guards, "content": [{"pattern": SECRET.pattern}]})
    assert dropped.text == SECRET.sub("", kept.text)


def answering(name: str, *, stream: bool) -> bytes:
    """Return a reply with a native call whose arguments are no JSON."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": '"SECRETpath" "a'}}
    if not stream:
        message = {"role": "assistant", "content": "So.", "tool_calls": [call]}
        return chat.encode_json(chat.completion(None, "tool_calls", message=message))
    frames = [
        chat.ROLE,
        *chat.make_text_chunks("So."),
        chat.chunk({"tool_calls": [call]}),
        chat.chunk({}, "tool_calls"),
    ]
    return b"".join([*frames, chat.DONE])


@pytest.mark.every
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ["", "read"])
@pytest.mark.parametrize("client", pairs.NAMES)
def test_rules_apply_to_a_call_that_is_sent_as_text(client: str, name: str, stream: bool) -> None:
    exchange = open_planned(client, planner({"content": CONTENT}, upstream_api=("openai-chat",)), stream=stream)
    body = answering(name, stream=stream)
    out = feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body)
    assert exchange.report.failures == []
    if name and client == "openai-chat":  # sent as the call that it is
        assert b"SECRETpath" in out
        return
    assert b"SECRET" not in out
    assert b"xxx" in out or b"in the middle of a tool call" in out


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ["", "read_file"])
def test_rules_apply_to_an_unreadable_call_for_a_text_client(name: str, stream: bool) -> None:
    asking = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}]
    request = chat.encode_json(chat.request(messages=asking, tools=None, stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], request, CLINE, planner({"content": CONTENT}), "seed")
    body = answering(name, stream=stream)
    found = chat.read(feed_stream(exchange.stream(), body) if stream else exchange.whole.rewrite(body))
    assert exchange.report.failures == []
    assert "SECRET" not in found.content
    assert "xxx" in found.content


def test_message_without_remaining_text_is_removed() -> None:
    guards = {**DENIED, "on_denied": "steer", "denied_message": "SECRETword", "content": [{"pattern": SECRET.pattern}]}
    written = write_calls([CALL], DIALECTS["hermes"], TOOLS)
    found = read_shown(planner(guards, dialect="hermes"), f"So.\n\n{written}")
    assert (found.content, found.calls) == ("So.", [])


def test_a_call_that_passes_keeps_its_arguments() -> None:
    written = write_calls([ToolCall("read", '{"path": "SECRETpath"}')], DIALECTS["hermes"], TOOLS)
    found = read_shown(planner({**DENIED, "content": CONTENT}, dialect="hermes"), f"It is SECRETword.\n\n{written}")
    assert (found.content, found.calls) == ("It is xxx.", [("read", {"path": "SECRETpath"})])
