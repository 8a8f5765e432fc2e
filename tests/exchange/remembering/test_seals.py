"""Sealed reasoning returns to its server in the next turn, for all clients and models.

A server that signs rejects a conversation without seals (Gemini 3), or has forgotten its reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from google import genai
from google.genai import types

from tests.apis import chat, gemini, messages, responses
from tests.apis.conversations import ASKED, BY_NAME, decode_reply, make_answer_entries, make_full_entries, make_question
from tests.apis.named_events import Json
from tests.e2e.upstream import JSON, SSE, Reply, serving
from tests.exchange.remembering.sealed_replies import FORMS, READ, SEAL, Form
from tests.exchange.remembering.talks import Talk
from tests.exchanges import feed_stream
from vtc.events import Message, ToolCall
from vtc.profiles import Facts, Memory, Profiles, builtin_directory, load_profiles

CLIENT = pytest.mark.parametrize("client", [*BY_NAME])
FORM = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
STREAM = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def begin_talk(client: str, form: Form, *, stream: bool, model: str = "") -> tuple[Talk, Message]:
    """Let a client ask, and the server call; return the reply to the client."""
    facts = Facts(user_agent="OpenAI/Python 3", host=form.host, port=443)
    talk = Talk(client, form.server, facts=facts)
    talk.model = model or form.model
    talk.ask(*make_question(client, "Read it"), stream=stream)
    body = form.streamed if stream else chat.encode_json(form.whole)
    out = feed_stream(talk.exchange.stream(), body) if stream else talk.exchange.whole.rewrite(body)
    return talk, decode_reply(client, out)


@CLIENT
@FORM
@STREAM
def test_seal_returns_through_a_client_that_loses_it(client: str, form: Form, stream: bool) -> None:
    """It is at its server's place, and once, in each later request, with or without readable reasoning."""
    talk, reply = begin_talk(client, form, stream=stream)
    talk.entries += make_answer_entries(client, reply, "found")
    for body in (talk.ask(), talk.ask(*make_question(client, "And now?"))):
        assert form.back(body) == [form.expected]
        assert json.dumps(body).count(SEAL) == 1
    assert "reasoning of 1 past turn restored" in talk.exchange.report.request


@FORM
@pytest.mark.parametrize("model", ["qwen3-coder", "deepseek-v3.2", "made-up-model"])
def test_the_profile_of_a_model_does_not_matter(form: Form, model: str) -> None:
    talk, reply = begin_talk("openai-chat", form, stream=True, model=model)
    talk.entries += make_answer_entries("openai-chat", reply, "found")
    assert form.back(talk.ask()) == [form.expected]


def with_copy(client: str, entries: list[Any], text: str) -> list[Any]:
    """Return the entries of an answer with the client's copy of the reasoning, which is only the text."""
    first = entries[0]
    match client:
        case "openai-chat":
            return [{**first, "reasoning_content": text}, *entries[1:]]
        case "anthropic-messages":
            return [messages.assistant(messages.thinking(text), *first["content"]), *entries[1:]]
        case "openai-responses":
            return [responses.open_reasoning(text), *entries]
        case "gemini-generate":
            return [gemini.model(gemini.make_thought(text), *first["parts"]), *entries[1:]]
    return [{**first, "thinking": text}, *entries[1:]]


@CLIENT
@FORM
def test_a_seal_wins_over_the_clients_own_copy_of_the_reasoning(client: str, form: Form) -> None:
    """The copy contains only the text; agents that send `reasoning_content` back had the worst results."""
    talk, reply = begin_talk(client, form, stream=True)
    talk.entries += with_copy(client, make_answer_entries(client, reply, "found"), "Mine.")
    body = talk.ask()
    assert form.back(body) == [form.expected]
    assert json.dumps(body).count(SEAL) == 1
    if form.server in ("anthropic-messages", "openai-responses"):  # which accept only reasoning with their seal
        assert "Mine." not in json.dumps(body)


CARRIES = pytest.mark.parametrize("client", [*ASKED])


def begin_carrying_talk(client: str, form: Form, *, stream: bool) -> Talk:
    """Let a client ask, and the server call; continue as a client that sends back everything it received."""
    facts = Facts(user_agent="OpenAI/Python 3", host=form.host, port=443)
    talk = Talk(client, form.server, facts=facts)
    talk.model = form.model
    talk.ask(*make_question(client, "Read it"), stream=stream, **ASKED[client])
    body = form.streamed if stream else chat.encode_json(form.whole)
    out = feed_stream(talk.exchange.stream(), body) if stream else talk.exchange.whole.rewrite(body)
    entries = make_full_entries(client, out, "found", stream=stream)
    talk.entries += entries
    return talk


@CARRIES
@FORM
@STREAM
def test_seal_that_the_client_returns_is_sent_once(client: str, form: Form, stream: bool) -> None:
    """It is unchanged for a server of the client's API, and converted as VTC sent it to the client for others."""
    talk = begin_carrying_talk(client, form, stream=stream)
    sent = talk.ask(**ASKED[client])
    assert json.dumps(sent).count(SEAL) == 1
    assert "restored" not in str(talk.exchange.report.request)


FOREIGN = "1 seal of past reasoning left out: VTC sent the client no such seal in this conversation"


@CARRIES
@FORM
@pytest.mark.parametrize(
    "differs", ["", "credential", "upstream", "model", "conversation", "API", "own API", "secret", "a letter"], ids=str
)
def test_a_seal_that_a_client_brings_goes_to_whom_it_is_from_alone(client: str, form: Form, differs: str) -> None:
    """It is signed, so this holds even after its exchange is forgotten."""
    talk = begin_carrying_talk(client, form, stream=True)
    if client == form.server:  # whose bytes pass unchanged
        return
    facts, entries = talk.facts, talk.entries
    match differs:
        case "credential":
            facts = replace(facts, headers={"authorization": "Bearer sk-other"})
        case "upstream":
            facts = replace(facts, host="other.test")
        case "conversation":
            entries = make_question(client, "Read this") + entries[1:]
        case "a letter":
            text = json.dumps(entries)
            place = text.index("dnRjM") + 36  # base64 of `vtc2.`, and a position after its signature
            entries = json.loads(f"{text[:place]}{'A' if text[place] != 'A' else 'B'}{text[place + 1 :]}")
    others = {"own API": client, "API": next(name for name in BY_NAME if name not in (client, form.server))}
    server = others.get(differs, form.server)
    other = Talk(client, server, Memory(), facts)
    other.model = "another-model" if differs == "model" else form.model
    other.secret = b"of another" if differs == "secret" else talk.secret
    other.ask(*entries, **ASKED[client])
    assert other.sent.count(SEAL.encode()) == (not differs)
    assert b"dnRjM" not in other.sent
    assert b"found" in other.sent
    assert (FOREIGN in other.exchange.report.request) is bool(differs)


def test_no_seal_is_reported_as_omitted_if_the_client_marks_unsigned_calls() -> None:
    """Gemini CLI sends this value with each call that has no signature, whichever server made it."""
    talk = Talk("gemini-generate", "anthropic-messages")
    call = {**gemini.call("read"), "thoughtSignature": "skip_thought_signature_validator"}
    talk.ask(
        *make_question("gemini-generate", "Read it"), gemini.model(call), gemini.user(gemini.result("found", "read"))
    )
    assert not any("left out" in line for line in talk.exchange.report.request)
    assert b"skip_thought" not in talk.sent


@pytest.mark.parametrize("what", ["messages", "responses", "chat of Google"])
@STREAM
async def test_seal_returns_through_googles_client(what: str, stream: bool) -> None:
    """The client decodes a signature, and fails if it is not base64."""
    form = FORMS[what]
    talk = Talk("gemini-generate", form.server, facts=Facts(user_agent="google-genai", host=form.host, port=443))
    talk.model = form.model
    asked = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    talk.ask(*make_question("gemini-generate", "Read it"), stream=stream, **asked)
    body = form.streamed if stream else chat.encode_json(form.whole)
    out = feed_stream(talk.exchange.stream(), body) if stream else talk.exchange.whole.rewrite(body)
    replies = [Reply([out], SSE if stream else JSON), Reply([chat.encode_json(gemini.reply(gemini.text("So.")))], JSON)]
    async with serving(lambda _: replies.pop(0)) as upstream:
        options: Any = {"base_url": upstream.url, "async_client_args": {"trust_env": False, "verify": False}}
        async with genai.Client(api_key="sk-none", http_options=options).aio as sdk:
            history: list[Any] = [gemini.user("Read it")]
            if stream:
                found = await sdk.models.generate_content_stream(model=form.model, contents=history)
                events = [one async for one in found]
            else:
                events = [await sdk.models.generate_content(model=form.model, contents=history)]
            parts = [part for one in events for part in one.candidates[0].content.parts or ()]  # type: ignore[index,union-attr]
            kept = [part for part in parts if part.text != "" or part.thought_signature]
            call = next(part.function_call for part in kept if part.function_call)
            history += [types.Content(role="model", parts=kept), gemini.user(gemini.result("found", "read", call.id))]
            await sdk.models.generate_content(model=form.model, contents=history)
        talk.entries = upstream.seen[-1].json["contents"]
    sent = talk.ask(**asked)
    assert json.dumps(sent).count(SEAL) == 1
    assert "restored" not in str(talk.exchange.report.request)


@CLIENT
@FORM
@pytest.mark.parametrize("differs", ["credential", "upstream", "model", "conversation"])
def test_a_seal_goes_to_no_other_conversation(client: str, form: Form, differs: str) -> None:
    talk, reply = begin_talk(client, form, stream=True)
    kept: Memory = talk.memory
    entries = [*talk.entries, *make_answer_entries(client, reply, "found")]
    facts = Facts(user_agent="OpenAI/Python 3", host="other.test" if differs == "upstream" else form.host, port=443)
    if differs == "credential":
        facts.headers["authorization"] = "Bearer sk-other"
    other = Talk(client, form.server, kept, facts)
    other.model = "another-model" if differs == "model" else form.model
    other.ask(*(make_question(client, "Read this") + entries[1:] if differs == "conversation" else entries))
    assert SEAL.encode() not in other.sent


def test_seals_in_equal_frames_all_return() -> None:
    talk = Talk("gemini-generate", facts=Facts(user_agent="OpenAI/Python 3", host="generativelanguage.googleapis.com"))
    talk.ask(*make_question("gemini-generate", "Read it"))
    texts = [
        {**gemini.text(text), "thoughtSignature": seal} for text, seal in (("One.", "U0VBTA=="), ("Two.", "U0VBTB=="))
    ]
    frames = [gemini.frame(gemini.event(part)) for part in (*texts, gemini.call("read", **READ))]
    out = feed_stream(talk.exchange.stream(), *gemini.make_stream(*frames))
    talk.entries += make_answer_entries("gemini-generate", decode_reply("gemini-generate", out), "found")
    assert talk.ask()["contents"][1]["parts"][:2] == texts


# Several seals of one reply, each in its place


class Placed(NamedTuple):
    """A reply with seals inside text and between calls, and their places in the next request."""

    server: str
    host: str
    whole: Json
    streamed: bytes
    back: Callable[[Json], list[Json]]
    expected: list[Json]


CALLED = [("toolu_1", {"filePath": "/a"}), ("toolu_2", {"filePath": "/b"})]


def placed_in_messages() -> Placed:
    (id_, first), (other_id, second) = CALLED
    blocks = [
        *(messages.thinking("Hm.", "QQ=="), messages.text("One. ")),
        *({"type": "redacted_thinking", "data": "Qg=="}, messages.text("Two.")),
        *(messages.thinking("So.", "Qw=="), messages.call("read", id_, **first)),
        *(messages.thinking("And.", "RA=="), messages.call("read", other_id, **second)),
    ]

    def frames(at: int, block: Json) -> list[bytes]:
        match block["type"]:
            case "thinking":
                return messages.thinking_block(at, block["thinking"], signature=block["signature"])
            case "text":
                return messages.text_block(at, *block["text"])
            case "tool_use":
                return messages.call_block(at, "read", *json.dumps(block["input"]), id=block["id"])
        return [messages.make_block_start(at, block), messages.make_block_stop(at)]

    streamed = messages.make_stream(*(frames(at, block) for at, block in enumerate(blocks)), stop_reason="tool_use")
    return Placed(
        *("anthropic-messages", "api.anthropic.com", messages.message(*blocks, stop_reason="tool_use")),
        b"".join(streamed),
        lambda body: body["messages"][1]["content"],
        blocks,
    )


def placed_in_responses() -> Placed:
    def make_seal(seal: str) -> Json:
        return {"type": "reasoning", "id": f"rs_{seal[:2]}", "summary": [], "encrypted_content": seal}

    def events(item: Json) -> list[Json]:
        match item["type"]:
            case "reasoning":
                return [{"type": f"response.output_item.{what}", "item": item} for what in ("added", "done")]
            case "message":
                return responses.text_events(*item["content"][0]["text"], id=item["id"])
        return responses.call_events("read", *item["arguments"], id=item["id"], call_id=item["call_id"])

    (id_, first), (other_id, second) = CALLED
    items = [
        *(make_seal("QQ=="), responses.message("One. "), make_seal("Qg=="), responses.message("Two.", "msg_2")),
        *(make_seal("Qw=="), responses.call("read", "fc_1", id_, **first)),
        *(make_seal("RA=="), responses.call("read", "fc_2", other_id, **second)),
    ]

    def keep_essence(item: Json) -> Json:
        match item["type"]:
            case "reasoning":
                return {**make_seal(item["encrypted_content"]), "id": None}
            case "message":
                return {"said": item["content"][0]["text"]}
        return {"call": item["call_id"]}

    return Placed(
        *("openai-responses", "api.openai.com", responses.response(*items)),
        b"".join(responses.make_stream(*map(events, items))),
        lambda body: [keep_essence(item) for item in body["input"][1:] if item["type"] != "function_call_output"],
        [*map(keep_essence, items)],
    )


def placed_in_gemini() -> Placed:
    (id_, first), (other_id, second) = CALLED
    parts = [
        {**gemini.text("One. "), "thoughtSignature": "QQ=="},
        {**gemini.text("Two."), "thoughtSignature": "Qg=="},
        {**gemini.text(""), "thoughtSignature": "Qw=="},
        {**gemini.call("read", id_, **first), "thoughtSignature": "RA=="},
        {**gemini.call("read", other_id, **second), "thoughtSignature": "RQ=="},
    ]
    return Placed(
        *("gemini-generate", "generativelanguage.googleapis.com", gemini.reply(*parts)),
        b"".join(gemini.make_stream(*(gemini.frame(gemini.event(part)) for part in parts))),
        lambda body: body["contents"][1]["parts"],
        parts,
    )


@cache
def denying() -> Profiles:
    """Return the built-in profiles, and a policy that denies calls."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "mine.yaml").write_text("kind: policy\nname: mine\nmatch: {}\nguards: {denied_tools: [rm]}\n")
        return load_profiles([builtin_directory(), Path(folder)])


PLACED = {made.server: made for made in (placed_in_messages(), placed_in_responses(), placed_in_gemini())}


@CLIENT
@pytest.mark.parametrize("server", PLACED)
@STREAM
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
def test_each_of_several_seals_returns_in_its_place(client: str, server: str, stream: bool, strict: bool) -> None:
    """This includes calls that are sent at the end, in VTC's own frames."""
    form = PLACED[server]
    facts = Facts(user_agent="OpenAI/Python 3", host=form.host, port=443)
    talk = Talk(client, server, facts=facts)
    talk.profiles = denying() if strict else None
    talk.ask(*make_question(client, "Read it"), stream=stream)
    body = form.streamed if stream else chat.encode_json(form.whole)
    out = feed_stream(talk.exchange.stream(), body) if stream else talk.exchange.whole.rewrite(body)
    reply = decode_reply(client, out)
    assert reply.text.split() == ["One.", "Two."]
    talk.entries += make_answer_entries(client, reply, "found")
    for sent in (talk.ask(), talk.ask(*make_question(client, "And now?"))):
        back = form.back(sent)[: len(form.expected)]
        assert [numberless(one) for one in back] == [numberless(one) for one in form.expected]


def numberless(part: Json) -> Json:
    """Return a part without the ids of calls, which some APIs replace."""
    if "functionCall" in part:
        return {**part, "functionCall": {**part["functionCall"], "id": None}}
    return {**part, **{key: None for key in ("id", "call") if key in part}}


# Unsigned calls

STAND_IN = "skip_thought_signature_validator"
GOOGLE_HOST = "generativelanguage.googleapis.com"
MISSING = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work."


def make_unsigned_turns(client: str) -> list[Any]:
    """Return a conversation with calls of another model: two at once, then one."""
    entries = make_question(client, "Read them")
    for calls in (("/a", "/b"), ("/c",)):
        made = [ToolCall("read", json.dumps({"filePath": path}), f"call_{path[1:]}") for path in calls]
        entries += make_answer_entries(client, Message("assistant", ("I look.",), tuple(made)), "found")
    return entries


def signatures(server: str, body: Json) -> list[Any]:
    """Return the signatures of past calls, in order."""
    if server == "gemini-generate":
        parts = [part for entry in body["contents"] for part in entry["parts"] if "functionCall" in part]
        return [part.get("thoughtSignature") for part in parts]
    calls = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    return [(call.get("extra_content") or {}).get("google", {}).get("thought_signature") for call in calls]


@CLIENT
@pytest.mark.parametrize("server", ["gemini-generate", "openai-chat"])
@pytest.mark.parametrize("model", ["gemini-3-pro-preview", "gemini-2.5-pro"])
def test_unsigned_calls_are_marked_if_google_requires_it(client: str, server: str, model: str) -> None:
    """The first call of each step is marked, in each turn."""
    talk = Talk(client, server, facts=Facts(user_agent="OpenAI/Python 3", host=GOOGLE_HOST, port=443))
    talk.model = model
    sent = talk.ask(*make_unsigned_turns(client))
    assert signatures(server, sent) == ([STAND_IN, None, STAND_IN] if "3" in model else [None] * 3)
    form = "contents" if server == "gemini-generate" else "messages"
    kept = sent[form][:-1]
    assert talk.ask(*make_question(client, "And?"))[form][: len(kept)] == kept


@CLIENT
@pytest.mark.parametrize("server", ["gemini-generate", "openai-chat"])
def test_rejection_teaches_to_mark_unsigned_calls(client: str, server: str) -> None:
    talk = Talk(client, server, facts=Facts(user_agent="OpenAI/Python 3", host="gateway.test", port=443))
    assert set(signatures(server, talk.ask(*make_unsigned_turns(client)))) == {None}
    error = chat.encode_json({"error": {"code": 400, "message": MISSING, "status": "INVALID_ARGUMENT"}})
    again = talk.exchange.encode_after_rejection(error, 400)
    assert again is not None
    assert signatures(server, json.loads(again)) == [STAND_IN, None, STAND_IN]
    talk.exchange.confirm_quirks()
    assert talk.exchange.encode_after_rejection(error, 400) is None
    assert signatures(server, talk.ask(*make_question(client, "And?"))) == [STAND_IN, None, STAND_IN]


OF_GEMINI = {"role": "model", "parts": [{**gemini.call("read"), "thoughtSignature": "THEIRS"}]}
OF_CHAT: Json = {
    "role": "assistant",
    "content": None,
    "reasoning_details": [{"type": "reasoning.text", "text": "Hm.", "signature": "THEIRS", "index": 0}],
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "read", "arguments": "{}"},
            "extra_content": {"google": {"thought_signature": "THEIRS"}},
        }
    ],
}


def of_claude(**signature: str) -> list[Any]:
    thought = {"type": "thinking", "thinking": "Hm. THEIRS", **signature}
    return [
        messages.assistant(thought, messages.call("read", filePath="/a")),
        messages.user([messages.result("found")]),
    ]


OF_RESPONSES: list[Any] = [
    {**responses.reasoning("Hm."), "encrypted_content": "THEIRS"},
    responses.call("read", filePath="/a"),
    {"type": "function_call_output", "call_id": "call_1", "output": "found"},
]
BROUGHT: dict[str, tuple[str, list[Any], str]] = {
    "Claude": (
        "anthropic-messages",
        of_claude(signature="THEIRS"),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "OpenAI": ("openai-responses", OF_RESPONSES, "The encrypted content gAAA...ehIc could not be verified."),
    "Google, by chat completions": (
        "openai-chat",
        [OF_CHAT, {"role": "tool", "tool_call_id": "c1", "content": "found"}],
        "Unable to submit request because Thought signature is not valid",
    ),
    "Google": ("gemini-generate", [OF_GEMINI, gemini.user(gemini.result("found"))], "Corrupted thought signature."),
}
"""A turn that another server or none signed, as clients send it, and the server's rejection of it."""


@pytest.mark.parametrize("case", BROUGHT)
def test_rejected_signatures_are_removed_from_this_conversation(case: str) -> None:
    api, turn, words = BROUGHT[case]
    error = chat.encode_json({"error": {"code": 400, "message": words}})
    talk = Talk(api, facts=Facts(user_agent="OpenAI/Python 3", host="gateway.test", port=443))
    for _ in range(2):  # it is not stored, because other seals of the server are valid
        first = talk.ask(*make_question(api, "Read it"), *turn) if not talk.entries else talk.ask()
        assert "THEIRS" in json.dumps(first)
        again = talk.exchange.encode_after_rejection(error, 400)
        assert again is not None
        assert b"THEIRS" not in again
        assert (b"Hm." in again, b"found" in again, b'"read"' in again) == (False, True, True)
        if case.startswith("Google"):
            assert signatures(api, json.loads(again)) == [STAND_IN]
        assert "without signatures that the server rejects" in str(talk.exchange.report.request)
        assert talk.exchange.encode_after_rejection(error, 400) is None
        talk.exchange.confirm_quirks()


@pytest.mark.parametrize("signature", [{}, {"signature": ""}], ids=["none", "empty"])
@pytest.mark.parametrize("host", ["gateway.test", "api.anthropic.com"])
def test_unsigned_reasoning_is_removed_from_all_conversations_with_a_signing_server(
    signature: dict[str, str], host: str
) -> None:
    """The conversation continues with Claude after reasoning of another model: learned from a rejection, or by the
    host.
    """
    api, facts = "anthropic-messages", Facts(user_agent="OpenAI/Python 3", host=host, port=443)
    words = "Invalid `signature` in `thinking` block" if signature else "thinking.signature: Field required"
    talk = Talk(api, facts=facts)
    turn = [*make_question(api, "Read it"), *of_claude(**signature)]
    if host == "gateway.test":
        assert "Hm." in json.dumps(talk.ask(*turn))
        again = talk.exchange.encode_after_rejection(
            chat.encode_json({"error": {"message": f"messages.1.content.0: {words}"}}), 400
        )
        assert (b"Hm." in (again or b"Hm."), b"found" in (again or b"")) == (False, True)
        talk.exchange.confirm_quirks()
    other = Talk(api, memory=talk.memory, facts=facts)
    sent = json.dumps(other.ask(*turn, *of_claude(signature="GOOD")))
    assert (sent.count("Hm."), sent.count("GOOD"), sent.count("found")) == (1, 1, 2)


UNVERIFIED = {
    "anthropic-messages": "messages.1.content.0: Invalid `signature` in `thinking` block",
    "openai-responses": "The encrypted content U0VBTA... could not be verified. Reason: it could not be parsed.",
    "gemini-generate": "Corrupted thought signature.",
    "openai-chat": "Unable to submit request because Thought signature is not valid.",
}


@CLIENT
@FORM
def test_restored_seal_that_is_rejected_is_removed(client: str, form: Form) -> None:
    """For example, a gateway with several accounts uses another one in the next turn, and the client cannot prevent
    it.
    """
    talk, reply = begin_talk(client, form, stream=False)
    talk.entries += make_answer_entries(client, reply, "found")
    first = json.dumps(talk.ask())
    assert SEAL in first
    error = chat.encode_json({"error": {"message": UNVERIFIED[form.server]}})
    again = (talk.exchange.encode_after_rejection(error, 400) or b"").decode()
    assert [word in again for word in ("I look.", "found", '"read"', SEAL)] == ["I look." in first, True, True, False]
    assert talk.exchange.encode_after_rejection(error, 400) is None
    talk.exchange.confirm_quirks()
    assert SEAL in json.dumps(talk.ask())


def test_turn_without_its_reasoning_is_sent_with_thinking_off_and_the_next_with_thinking() -> None:
    """The calls can be those of another model; the quirk is not stored, because other conversations have reasoning."""
    unthought = [messages.assistant(messages.call("read", filePath="/a")), messages.user([messages.result("found")])]
    words = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."
    talk, thinking = Talk("anthropic-messages"), {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for turn in (
        make_question("anthropic-messages", "Read it") + unthought,
        make_question("anthropic-messages", "Go on"),
    ):
        assert "thinking" in talk.ask(*turn, **thinking)
        again = talk.exchange.encode_after_rejection(chat.encode_json({"error": {"message": words}}), 400)
        assert again is not None
        assert "thinking" not in json.loads(again)
        assert "thinking left out" in str(talk.exchange.report.request)
        talk.exchange.confirm_quirks()


def test_text_equal_to_signed_text_is_kept() -> None:
    thought = messages.assistant({"type": "thinking", "thinking": "Hm.", "signature": "THEIRS"})
    talk = Talk("anthropic-messages")
    talk.ask(*make_question("anthropic-messages", "Read it"), thought, messages.user("Go on"))
    error = chat.encode_json({"error": {"message": "messages.1.content.0: Invalid `signature` in `thinking` block"}})
    assert talk.exchange.encode_after_rejection(error, 400) is None


@CLIENT
def test_calls_that_their_server_signed_keep_that(client: str) -> None:
    form = FORMS["gemini"]
    talk, reply = begin_talk(client, form, stream=True, model="gemini-3-pro")
    talk.entries += make_answer_entries(client, reply, "found")
    talk.entries = [*talk.entries, *make_unsigned_turns(client)[1:]]
    assert signatures(form.server, talk.ask()) == [SEAL, STAND_IN, None, STAND_IN]


@pytest.mark.parametrize("server", PLACED)
@STREAM
def test_a_client_of_chat_completions_brings_several_seals_on_its_calls(server: str, stream: bool) -> None:
    """Google's API has them there; seals before the first call precede the text if their place is unknown."""
    form = PLACED[server]
    talk = Talk("openai-chat", server, facts=Facts(user_agent="OpenAI/Python 3", host=form.host, port=443))
    talk.ask(*make_question("openai-chat", "Read it"), stream=stream)
    body = form.streamed if stream else chat.encode_json(form.whole)
    out = feed_stream(talk.exchange.stream(), body) if stream else talk.exchange.whole.rewrite(body)
    talk.entries += make_full_entries("openai-chat", out, "found", stream=stream)
    exact = form.back(talk.ask())
    talk.memory = Memory()  # as after a restart
    sent = json.dumps(talk.ask())
    assert "left out" not in str(talk.exchange.report.request)
    seals = ["QQ==", "Qg==", "Qw==", "RA=="]
    assert [sent.count(seal) for seal in seals] == [1] * 4
    back = form.back(json.loads(sent))[: len(form.expected)]
    assert numberless(exact[-1]) == numberless(back[-1])
    if server != "gemini-generate":  # of which a text can have one
        assert [json.dumps(part).count(seal) for part, seal in zip(back, seals, strict=False)][:3] == [1] * 3
