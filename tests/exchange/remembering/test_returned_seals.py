"""Signed and encrypted reasoning passes through a client of another API and returns to its server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, messages, ollama, responses
from tests.apis.conversations import decode_reply, make_answer_entries, make_question
from tests.exchange.crossings import BY_NAME, STREAM
from tests.exchange.remembering.talks import Talk
from tests.exchanges import AGENT, feed_stream, planner
from vtc.exchange import Session

M, R = "anthropic-messages", "openai-responses"
READ = '{"filePath": "/a"}'
TEXTS = st.text(min_size=1, max_size=30)


def open_pair(client: str, server: str, host: str = "upstream", **fields: Any) -> Session:
    if client == M:
        body = messages.request(thinking={"type": "adaptive"}, **fields)
    else:
        body = responses.request(include=["reasoning.encrypted_content"], **fields)
    facts = replace(AGENT, host=host)
    return Session.open(BY_NAME[client], chat.encode_json(body), facts, planner(upstream_api=(server,)), "seed")


def asking(client: str) -> dict[str, Any]:
    """Return the field with the first message of a conversation, because seals return only within it."""
    return {"messages": [messages.user("x")]} if client == M else {"input": [responses.make_input_message("user", "x")]}


def next_turn(client: str, server: str, reply: bytes, *, stream: bool, host: str = "upstream") -> Any:
    """Send a client the reply and its call's result to the server; return the server's next request."""
    first = open_pair(client, server, stream=stream, **asking(client))
    out = feed_stream(first.stream(), reply) if stream else first.whole.rewrite(reply)
    if client == M:
        found = messages.read(out)
        history = [
            messages.user("x"),
            messages.assistant(*found.blocks),
            messages.user([messages.result("A", "toolu_1")]),
        ]
        fields: dict[str, Any] = {"messages": history}
    else:
        items = [as_codex_sends(item) for item in responses.read(out).items]
        fields = {"input": [responses.make_input_message("user", "x"), *items, responses.output("A", "toolu_1")]}
    return json.loads(open_pair(client, server, host, **fields).encode_request())


def as_codex_sends(item: dict[str, Any]) -> dict[str, Any]:
    """Remove ids, and the text of reasoning."""
    gone = ("id", "content") if item["type"] == "reasoning" else ("id",)
    return {key: one for key, one in item.items() if key not in gone}


def of_messages(*thoughts: dict[str, Any], stream: bool) -> bytes:
    blocks = [*thoughts, messages.call("read", "toolu_1", filePath="/a")]
    if not stream:
        return chat.encode_json(messages.message(*blocks, stop_reason="tool_use"))
    frames = [
        messages.thinking_block(at, one["thinking"], signature=one["signature"])
        if one["type"] == "thinking"
        else [messages.make_block_start(at, one), messages.make_block_stop(at)]
        for at, one in enumerate(thoughts)
    ]
    call = messages.call_block(len(thoughts), "read", READ, id="toolu_1")
    return b"".join(messages.make_stream(*frames, call, stop_reason="tool_use"))


THOUGHTS = st.lists(
    st.builds(messages.thinking, TEXTS, TEXTS)
    | st.builds(lambda data: {"type": "redacted_thinking", "data": data}, TEXTS),
    min_size=1,
    max_size=3,
)


@given(THOUGHTS, st.booleans())
def test_blocks_of_a_messages_server_return_through_codex(thoughts: list[dict[str, Any]], stream: bool) -> None:
    """This includes the text, which Codex does not send back, because the signature covers it."""
    body = next_turn(R, M, of_messages(*thoughts, stream=stream), stream=stream)
    assert [block for block in body["messages"][1]["content"] if block["type"] != "tool_use"] == thoughts
    messages.check_request(body)


def of_responses(text: str, encrypted: str, *, stream: bool) -> bytes:
    item = {**(responses.reasoning(text) if text else {"type": "reasoning", "id": "rs_1", "summary": []})}
    item["encrypted_content"] = encrypted
    call = responses.call("read", "fc_1", "toolu_1", filePath="/a")
    if not stream:
        return chat.encode_json(responses.response(item, call))
    events = (
        responses.reasoning_events(text)
        if text
        else [
            {"type": "response.output_item.added", "item": {**item, "encrypted_content": ""}},
            {"type": "response.output_item.done", "item": item},
        ]
    )
    events[-1] = {**events[-1], "item": item}
    return b"".join(responses.make_stream(events, responses.call_events("read", READ, id="fc_1", call_id="toolu_1")))


@given(st.just("") | TEXTS, TEXTS, st.booleans())
def test_encrypted_content_returns_through_claude_code(text: str, encrypted: str, stream: bool) -> None:
    body = next_turn(M, R, of_responses(text, encrypted, stream=stream), stream=stream)
    assert body["input"][1] == {"type": "reasoning", "summary": [], "encrypted_content": encrypted}
    assert body["input"][2]["type"] == "function_call"
    responses.check_request(body)


@STREAM
def test_data_of_another_server_does_not_return(stream: bool) -> None:
    """Unsigned reasoning is not sent either, because Anthropic and OpenAI reject a request with either."""
    signed = of_messages(messages.thinking("Hm.", "sig"), stream=stream)
    body = next_turn(R, M, signed, stream=stream, host="elsewhere")
    assert "thinking" not in json.dumps(body["messages"])
    body = next_turn(M, R, of_responses("Hm.", "enc", stream=stream), stream=stream, host="elsewhere")
    assert "reasoning" not in json.dumps(body["input"])
    own = open_pair(
        R,
        M,
        input=[
            {**responses.reasoning("Hm."), "encrypted_content": "theirs"},
            responses.make_input_message("user", "x"),
        ],
    )
    assert "Hm." not in own.encode_request().decode()
    assert "theirs" not in own.encode_request().decode()


@pytest.mark.parametrize("server", ["openai-chat", "ollama-chat"])
def test_open_model_servers_get_only_the_text(server: str) -> None:
    history = [
        messages.user("x"),
        messages.assistant(messages.thinking("Hm.", "sig"), messages.text("A")),
        messages.user("y"),
    ]
    body = open_pair(M, server, messages=history).encode_request().decode()
    assert "Hm." in body
    assert "sig" not in body


# Clients whose API has no place for it: VTC stores reasoning that only its server can read.


@pytest.mark.parametrize("client", [*BY_NAME])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("server", "sealed"),
    [
        (R, {"type": "reasoning", "summary": [], "encrypted_content": "theirs"}),
        (M, {"type": "redacted_thinking", "data": "theirs"}),
        (M, {"type": "thinking", "thinking": "", "signature": "theirs"}),
    ],
    ids=["encrypted", "redacted", "signed"],
)
def test_sealed_reasoning_without_text_returns_through_a_client_that_loses_it(
    client: str, server: str, sealed: dict[str, Any], stream: bool
) -> None:
    made = of_responses("", "theirs", stream=stream) if server == R else of_messages(sealed, stream=stream)
    talk = Talk(client, server)
    talk.ask(*make_question(client, "Read it"), stream=stream)
    out = feed_stream(talk.exchange.stream(), made) if stream else talk.exchange.whole.rewrite(made)
    talk.entries = [*talk.entries, *make_answer_entries(client, decode_reply(client, out), "found")]
    sent = [talk.ask(), talk.ask(*make_question(client, "And now?"))]
    for one in sent:
        entries = one["input"] if server == R else one["messages"][1]["content"]
        place = next(at for at, entry in enumerate(entries) if entry["type"] == sealed["type"])
        assert {key: entry for key, entry in entries[place].items() if key != "id"} == sealed
        assert entries[place + 1]["type"] == ("function_call" if server == R else "tool_use")
        assert json.dumps(one).count("theirs") == 1


# OpenRouter: entries of a chat server, of which some are signed or encrypted

ABOUT = {"format": "anthropic-claude-v1"}
ENTRIES = st.lists(
    st.builds(lambda text, sig: {"type": "reasoning.text", "text": text, "signature": sig}, TEXTS, TEXTS)
    | st.builds(lambda text: {"type": "reasoning.text", "text": text, "signature": None}, TEXTS)
    | st.builds(lambda text: {"type": "reasoning.summary", "summary": text}, TEXTS)
    | st.builds(lambda data: {"type": "reasoning.encrypted", "data": data, "id": "rs_1"}, TEXTS),
    max_size=3,
).map(lambda found: [{**one, **ABOUT, "index": at} for at, one in enumerate(found)])
LAST = {"type": "reasoning.encrypted", "data": "enc", "id": "rs_2", **ABOUT, "index": 9}


def text_of(entries: list[dict[str, Any]]) -> str:
    return "".join(one.get("text") or one.get("summary") or one.get("thinking") or "" for one in entries)


def in_pieces(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an entry as it streams: its text in pieces, then its signature."""
    key = next((key for key in ("text", "summary") if key in entry), "")
    if not key:
        return [entry]
    rest = {name: one for name, one in entry.items() if name not in (key, "signature")}
    pieces: list[dict[str, Any]] = [{**rest, key: one} for one in entry[key]]
    return [*pieces, {**rest, "signature": entry["signature"]}] if entry.get("signature") else pieces


def of_chat(entries: list[dict[str, Any]], *, named: bool, stream: bool) -> bytes:
    """Return a reply with these entries, and with the same text in a separate field if it is `named`."""
    if not stream:
        call = {"id": "toolu_1", "type": "function", "function": {"name": "read", "arguments": READ}}
        own = {"reasoning": text_of(entries)} if named else {}
        message = {**own, "reasoning_details": entries, "tool_calls": [call]}
        return chat.encode_json(chat.completion(None, "tool_calls", message=message))
    pieces = [piece for entry in entries for piece in in_pieces(entry)]
    frames = [
        chat.chunk({"content": "", "reasoning_details": [one], **({"reasoning": text_of([one])} if named else {})})
        for one in pieces
    ]
    called = chat.chunk({"tool_calls": [chat.native(0, id="toolu_1", name="read", arguments=READ)]})
    return b"".join([chat.ROLE, *frames, called, chat.chunk({}, "tool_calls"), chat.DONE])


def drop_nulls(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one for key, one in entry.items() if one is not None} for entry in entries]


@given(ENTRIES, st.booleans(), st.booleans(), st.sampled_from([M, R]))
def test_entries_of_a_chat_server_become_reasoning_once_and_return(
    entries: list[dict[str, Any]], named: bool, stream: bool, client: str
) -> None:
    """All entries return unchanged, even through Codex, which sends back no text."""
    entries = [*entries, LAST]
    reply = of_chat(entries, named=named, stream=stream)
    exchange = open_pair(client, "openai-chat", stream=stream)
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    found = messages.read(out) if client == M else responses.read(out)
    assert found.reasoning == text_of(entries)
    body = next_turn(client, "openai-chat", reply, stream=stream)
    (past,) = [one for one in body["messages"] if one["role"] == "assistant"]
    assert drop_nulls(past["reasoning_details"]) == drop_nulls(entries)
    assert not past.keys() & {"reasoning", "reasoning_content"}
    elsewhere = next_turn(client, "openai-chat", reply, stream=stream, host="elsewhere")
    assert "reasoning_details" not in json.dumps(elsewhere["messages"])


@STREAM
@pytest.mark.parametrize("named", [True, False])
def test_unsealed_entries_return_as_text(stream: bool, named: bool) -> None:
    entries = [{"type": "reasoning.text", "text": "Hm. ", "index": 0}, {"type": "reasoning.summary", "summary": "So."}]
    body = next_turn(M, "openai-chat", of_chat(entries, named=named, stream=stream), stream=stream)
    (past,) = [one for one in body["messages"] if one["role"] == "assistant"]
    assert past["reasoning_content"] == "Hm. So."
    assert "reasoning_details" not in past


@STREAM
def test_entries_reach_clients_of_ollama_as_thinking(stream: bool) -> None:
    entries = [{"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}, LAST]
    fields = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    body = chat.encode_json(ollama.request(**fields))
    exchange = Session.open(BY_NAME["ollama-chat"], body, AGENT, planner(upstream_api=("openai-chat",)), "seed")
    reply = of_chat(entries, named=False, stream=stream)
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert ollama.read(out, stream=stream).reasoning == "Hm."


def test_past_entries_of_a_client_are_reasoning_for_a_server_of_another_api() -> None:
    details = [{"type": "reasoning.summary", "summary": "Hm.", "index": 0}]
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "A", "reasoning_details": details},
        {"role": "user", "content": "y"},
    ]
    body = chat.encode_json(chat.request(messages=history))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(upstream_api=("ollama-chat",)), "seed")
    assert json.loads(exchange.encode_request())["messages"][1]["thinking"] == "Hm."


@given(ENTRIES, st.booleans(), st.booleans())
def test_entries_keep_their_bytes_for_a_chat_client(entries: list[dict[str, Any]], named: bool, stream: bool) -> None:
    body = chat.encode_json(chat.request(stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed")
    reply = of_chat(entries, named=named, stream=stream)
    assert (feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)) == reply


def of_litellm(blocks: list[dict[str, Any]], *, stream: bool, repeats: bool) -> bytes:
    """Return a reply of LiteLLM with Claude's blocks, in which the piece with the signature `repeats` the text."""
    call = chat.native(0, id="toolu_1", name="read", arguments=READ)
    if not stream:
        fields = {"reasoning_content": text_of(blocks), "thinking_blocks": blocks}
        return chat.encode_json(chat.completion(None, "tool_calls", message={**fields, "tool_calls": [call]}))
    frames = []
    for block in blocks:
        if block["type"] == "thinking":
            pieces = [{**block, "thinking": letter, "signature": ""} for letter in block["thinking"]]
            frames += [chat.chunk({"reasoning_content": one["thinking"], "thinking_blocks": [one]}) for one in pieces]
            block = {**block, "thinking": block["thinking"] if repeats else ""}
        frames.append(chat.chunk({"thinking_blocks": [block]}))
    ends = [chat.chunk({"tool_calls": [call]}), chat.chunk({}, "tool_calls"), chat.DONE]
    return b"".join([chat.ROLE, *frames, *ends])


@given(THOUGHTS, st.booleans(), st.booleans())
@pytest.mark.parametrize("client", [M, R])
def test_blocks_of_litellm_return_completely(
    client: str, blocks: list[dict[str, Any]], stream: bool, repeats: bool
) -> None:
    reply = of_litellm(blocks, stream=stream, repeats=repeats)
    exchange = open_pair(client, "openai-chat", stream=stream)
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert (messages.read(out) if client == M else responses.read(out)).reasoning == text_of(blocks)
    body = next_turn(client, "openai-chat", reply, stream=stream)
    (past,) = [one for one in body["messages"] if one["role"] == "assistant"]
    assert past["thinking_blocks"] == blocks
    assert not past.keys() & {"reasoning", "reasoning_content", "reasoning_details"}
    passed = Session.open(
        BY_NAME["openai-chat"], chat.encode_json(chat.request(stream=stream)), AGENT, planner(), "seed"
    )
    assert (feed_stream(passed.stream(), reply) if stream else passed.whole.rewrite(reply)) == reply


def of_copilot(texts: list[str], seals: list[str], *, stream: bool) -> bytes:
    """Return a reply of GitHub Copilot, with seals in pieces next to other fields (agents join them)."""
    call = chat.native(0, id="toolu_1", name="read", arguments=READ)
    if not stream:
        fields = {"reasoning_text": "".join(texts), "reasoning_opaque": "".join(seals)}
        return chat.encode_json(chat.completion(None, "tool_calls", message={**fields, "tool_calls": [call]}))
    places: list[dict[str, Any]] = [{"content": ""}, {"tool_calls": [call]}, {}]
    sealed = [{**place, "reasoning_opaque": seal} for place, seal in zip(places, seals, strict=False)]
    *deltas, end = [*sealed, *places[len(seals) :]]
    thoughts = [chat.chunk({"content": "", "reasoning_text": text}) for text in texts]
    return b"".join([chat.ROLE, *thoughts, *map(chat.chunk, deltas), chat.chunk(end, "tool_calls"), chat.DONE])


COPILOT = given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, min_size=1, max_size=3), st.booleans())


@COPILOT
@pytest.mark.parametrize("client", [M, R])
def test_seals_of_copilot_return_completely(client: str, texts: list[str], seals: list[str], stream: bool) -> None:
    """It is in one field, with its text, because the models reject a conversation without it."""
    reply = of_copilot(texts, seals, stream=stream)
    exchange = open_pair(client, "openai-chat", stream=stream)
    out = feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)
    assert (messages.read(out) if client == M else responses.read(out)).reasoning == "".join(texts)
    body = next_turn(client, "openai-chat", reply, stream=stream)
    (past,) = [one for one in body["messages"] if one["role"] == "assistant"]
    assert past["reasoning_opaque"] == "".join(seals)
    assert past.get("reasoning_text", "") == "".join(texts)
    assert not past.keys() & {"reasoning", "reasoning_content", "reasoning_details"}
    elsewhere = next_turn(client, "openai-chat", reply, stream=stream, host="elsewhere")
    assert "reasoning_opaque" not in json.dumps(elsewhere["messages"])


@COPILOT
def test_seals_of_copilot_pass_a_client_of_chat_completions(texts: list[str], seals: list[str], stream: bool) -> None:
    body = chat.encode_json(chat.request(stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, planner(), "seed")
    reply = of_copilot(texts, seals, stream=stream)
    assert (feed_stream(exchange.stream(), reply) if stream else exchange.whole.rewrite(reply)) == reply


@STREAM
@pytest.mark.parametrize("client", [M, R])
@pytest.mark.parametrize("thought", ["", "Hm."])
@pytest.mark.parametrize("id_", ["toolu_1", ""])
def test_googles_signature_of_a_call_returns_with_it(client: str, stream: bool, thought: str, id_: str) -> None:
    """Without it the next turn is rejected."""
    extra = {"extra_content": {"google": {"thought_signature": "SIG"}}}
    call = {"id": id_, "type": "function", "function": {"name": "read", "arguments": READ}, **extra}
    message = {"tool_calls": [call], **({"reasoning_content": thought} if thought else {})}
    reply = chat.encode_json(chat.completion(None, "tool_calls", message=message))
    if stream:
        thoughts = [chat.chunk({"reasoning_content": thought})] if thought else []
        frames = [*thoughts, chat.chunk({"tool_calls": [{**call, "index": 0}]}), chat.chunk({}, "tool_calls")]
        reply = b"".join([chat.ROLE, *frames, chat.DONE])
    body = next_turn(client, "openai-chat", reply, stream=stream)
    (past,) = [one for one in body["messages"] if one["role"] == "assistant"]
    assert [{**one, "id": id_} for one in past["tool_calls"]] == [call]
    assert "reasoning_details" not in past
    elsewhere = next_turn(client, "openai-chat", reply, stream=stream, host="elsewhere")
    assert "SIG" not in json.dumps(elsewhere)
