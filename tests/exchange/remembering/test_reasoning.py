"""A model's reasoning before its calls, restored if the client lost it: for every pair of APIs."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat, messages, pairs
from tests.apis.conversations import (
    BY_NAME,
    decode_reply,
    find_reasoning,
    get_history_key,
    make_answer_entries,
    make_question,
)
from tests.apis.pairs import PAIRS
from tests.apis.shapes import THINKING
from tests.exchange.remembering.talks import Talk, one_id
from tests.exchanges import AGENT, feed_stream
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, Settings, builtin_directory, load_profiles
from vtc.wire import Framing

PAIR = pytest.mark.parametrize(("client", "server"), PAIRS, ids=lambda name: name)
SAME = pytest.mark.parametrize("api", [*BY_NAME])
CALLS: pairs.Calls = [("read", {"filePath": "/a"})]


@PAIR
def test_reasoning_is_restored_in_each_turn_with_calls_in_the_same_place(client: str, server: str) -> None:
    talk = Talk(client, server)
    bodies = [talk.ask(*make_question(client, "Read it"))]
    for turn, thought in enumerate(["First.\n", "Then é."]):
        talk.reply(one_id(server, pairs.make_stream(server, ["I look."], CALLS, reasoning=thought), turn + 1))
        bodies.append(talk.ask())
    talk.reply(pairs.make_stream(server, ["Done."], reasoning="Over."))
    bodies.append(talk.ask(*make_question(client, "And now?")))
    last = ["Over."] if server == "anthropic-messages" else []  # which is signed, and returns even without a call
    expected: list[list[str]] = [[], ["First.\n"], ["First.\n", "Then é."], ["First.\n", "Then é.", *last]]
    assert [find_reasoning(server, one) for one in bodies] == expected
    assert f"reasoning of {2 + len(last)} past turns restored" in talk.exchange.report.request
    for before, after in pairwise(bodies):
        kept = before[get_history_key(server)][:-1]
        assert after[get_history_key(server)][: len(kept)] == kept
    pairs.check_request(server, bodies[-1])


@PAIR
def test_long_reasoning_is_restored_completely(client: str, server: str) -> None:
    """It arrives between text without reasoning, which is not scanned again."""
    talk = Talk(client, server)
    talk.ask(*make_question(client, "Read it"))
    thought = "".join(f"Step {number}: é. " for number in range(5000))
    talk.reply(pairs.make_stream(server, [f"Part {number}. " for number in range(1500)], CALLS, reasoning=thought))
    assert find_reasoning(server, talk.ask()) == [thought]


@pytest.mark.parametrize("client", [*BY_NAME])
@pytest.mark.parametrize("several", [False, True])
def test_reasoning_entries_are_restored_unchanged(client: str, several: bool) -> None:
    """They have one seal, as those of OpenRouter, or several."""
    talk = Talk(client, "openai-chat")
    talk.ask(*make_question(client, "Read it"))
    entry = {"type": "reasoning.text", "text": "Hm.", "signature": "sig", "index": 0}
    other = {"type": "reasoning.encrypted", "data": "x", "index": 1}
    reply = pairs.make_stream("openai-chat", ["I look."], CALLS)
    head, _, rest = reply.partition(b"\n\n")
    told_ = chat.chunk({"reasoning_details": [entry]}) + chat.chunk({"reasoning_details": [other]}) * several
    talk.reply(head + b"\n\n" + told_ + rest)
    past = talk.ask()["messages"][1]
    assert past["reasoning_details"] == [entry, other][: 1 + several]
    assert not past.keys() & {"reasoning", "reasoning_content"}


@SAME
def test_reasoning_sent_by_the_client_is_unchanged(api: str) -> None:
    talk = Talk(api)
    talk.ask(*make_question(api, "Read it"))
    talk.reply(pairs.make_stream(api, [], CALLS, reasoning="Hm."))
    at = next(
        place for place, one in enumerate(talk.entries) if one.get("role") in ("assistant", "model") or "name" in one
    )
    match api:
        case "openai-chat":
            talk.entries[at]["reasoning_content"] = "Mine."
        case "anthropic-messages":
            talk.entries[at]["content"].insert(0, {"type": "redacted_thinking", "data": "x"})
        case "openai-responses":
            talk.entries.insert(at, {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "x"})
        case "gemini-generate":
            talk.entries[at]["parts"].insert(0, {"text": "Mine.", "thought": True})
        case _:
            talk.entries[at]["thinking"] = "Mine."
    talk.ask()
    assert talk.sent == talk.received


@SAME
def test_a_request_to_which_nothing_is_given_back_keeps_its_bytes(api: str) -> None:
    """The reply had no reasoning or no call, was another one, or was seen by another VTC."""
    unsealed = {} if api == "anthropic-messages" else {"reasoning": "Hm."}
    for body in (pairs.make_stream(api, [], CALLS), pairs.make_stream(api, ["Hello"], **unsealed)):
        talk = Talk(api)
        talk.ask(*make_question(api, "Read it"))
        talk.reply(body)
        talk.ask(*make_question(api, "Go on"))
        assert talk.sent == talk.received
    talk = Talk(api)
    talk.ask(*make_question(api, "Read it"))
    talk.reply(pairs.make_stream(api, [], CALLS, reasoning="Hm."))
    talk.memory = Memory()
    talk.ask()
    assert talk.sent == talk.received


@pytest.mark.parametrize(
    "differs", ["authorization", "x-litellm-api-key", "cookie", "upstream", "model", "conversation", "arguments"]
)
def test_thoughts_are_given_back_to_their_own_conversation_alone(differs: str) -> None:
    """The ids of its calls are the same as in every conversation."""

    def begin_talk(**facts: Any) -> Talk:
        headers = {"authorization": "Bearer sk-mine"} if differs in ("upstream", "model") else {differs: "session=mine"}
        return Talk("openai-chat", memory=memory, facts=Facts(**{"host": "one", "headers": headers, **facts}))

    memory = Memory()
    talk, other = begin_talk(), begin_talk()
    match differs:
        case "authorization" | "x-litellm-api-key" | "cookie":
            other = begin_talk(headers={differs: "session=other"})
        case "upstream":
            other = begin_talk(host="another")
        case "model":
            other.model = "another-model"
    talk.ask(*make_question("openai-chat", "Read it"))
    talk.reply(pairs.make_stream("openai-chat", [], CALLS, reasoning="Mine."))
    other.ask(*make_question("openai-chat", "Read this" if differs == "conversation" else "Read it"))
    calls = [("read", {"filePath": "/b"})] if differs == "arguments" else CALLS
    other.reply(pairs.make_stream("openai-chat", [], calls))
    assert find_reasoning("openai-chat", other.ask()) == []
    assert find_reasoning("openai-chat", talk.ask()) == ["Mine."]


def test_changing_cookie_of_a_load_balancer_keeps_the_reasoning() -> None:
    talk = Talk("openai-chat", facts=Facts(headers={"cookie": "session=mine"}))
    talk.ask(*make_question("openai-chat", "Read it"))
    talk.reply(pairs.make_stream("openai-chat", [], CALLS, reasoning="Mine."))
    for cookies in ("session=mine; __cf_bm=1", "__cf_bm=2; session=mine; AWSALB=3"):
        talk.facts = Facts(headers={"cookie": cookies})
        assert find_reasoning("openai-chat", talk.ask()) == ["Mine."]


def test_of_two_thoughts_that_led_to_the_same_call_none_is_given_back() -> None:
    """Each of them could be the wrong one."""
    memory = Memory()
    for _ in range(3):
        one, other = Talk("openai-chat", memory=memory), Talk("openai-chat", memory=memory)
        for talk, thought in ((one, "Hm."), (other, "Well.")):
            talk.ask(*make_question("openai-chat", "Read it"))
            talk.reply(pairs.make_stream("openai-chat", [], CALLS, reasoning=thought))
        assert [find_reasoning("openai-chat", talk.ask()) for talk in (one, other)] == [[], []]


def test_reminders_that_move_and_a_system_prompt_that_changes_are_no_other_conversation() -> None:
    talk = Talk("anthropic-messages", "openai-chat")
    note = messages.text("<system-reminder>\nThe date is today.\n</system-reminder>")
    ask = messages.user([note, messages.text("Read it")])
    talk.ask(ask, system="cch=1; Be brief.")
    talk.reply(pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm."))
    talk.entries[0] = messages.user([messages.text("Read it")])
    talk.entries[-1]["content"].append(note)
    assert find_reasoning("openai-chat", talk.ask(system="cch=2; Be brief.")) == ["Hm."]


def test_arguments_that_a_client_writes_its_own_way_are_the_same_call() -> None:
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"))
    talk.reply(pairs.make_stream("openai-chat", [], [("read", {"filePath": "/é", "limit": 3})], reasoning="Hm."))
    talk.entries[1]["tool_calls"][0]["function"]["arguments"] = '{"limit":3,"filePath":"/é"}'
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."]


@pytest.mark.parametrize(
    ("model", "host", "recalls"),
    [
        ("deepseek-v3.2", "one", True),
        ("deepseek-v3.2", "api.deepseek.com", True),
        ("qwen3-coder", "one", False),
        ("new-one", "one", True),
        ("new-one", "api.openai.com", False),
    ],
)
def test_only_models_that_want_it_and_those_that_are_not_known_get_it(model: str, host: str, recalls: bool) -> None:
    """Unknown models of hosted APIs are excluded, because their reasoning may be a summary."""
    talk = Talk("openai-chat", facts=Facts(host=host))
    talk.model = model
    talk.ask(*make_question("openai-chat", "Read it"))
    talk.reply(pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm."))
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."] * recalls


@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages"])
def test_field_is_the_one_that_the_server_used(client: str) -> None:
    """Newer releases of vLLM expect it in that field only."""
    talk = Talk(client, "openai-chat")
    talk.ask(*make_question(client, "Read it"))
    told_so = pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm.").replace(b"reasoning_content", b"reasoning")
    talk.reply(told_so)
    body = talk.ask()
    assert [one["reasoning"] for one in body["messages"] if "reasoning" in one] == ["Hm."]
    assert find_reasoning("openai-chat", body) == []


def test_reasoning_in_text_is_restored_in_the_apis_field() -> None:
    """This includes calls that a model wrote as text."""
    talk = Talk("openai-chat")
    talk.model = "qwen3.5-27b"
    talk.ask(*make_question("openai-chat", "Read it"))
    call = "<tool_call>\n<function=read>\n<parameter=filePath>\n/a\n</parameter>\n</function>\n</tool_call>"
    talk.reply(b"".join(chat.make_stream("Hm.", "</think>", "\n\n", call)))
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."]


def test_a_whole_reply_is_kept_as_a_stream_is() -> None:
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"), stream=False)
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]}
    out = talk.exchange.whole.rewrite(chat.encode_json(chat.completion(None, "tool_calls", message=message)))
    talk.entries += make_answer_entries("openai-chat", decode_reply("openai-chat", out), "found")
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."]


def test_thoughts_with_their_signature_go_back_as_a_block_of_messages() -> None:
    talk = Talk("anthropic-messages")
    talk.ask(*make_question("anthropic-messages", "Read it"), thinking={"type": "adaptive"})
    talk.reply(pairs.make_stream("anthropic-messages", [], CALLS, reasoning="Hm."))
    body = talk.ask(thinking={"type": "adaptive"})
    assert body["messages"][1]["content"][0] == messages.thinking("Hm.", "sig")


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_reasoning_of_any_cut_and_length_is_heard(cut: int) -> None:
    """Most of it takes the fast path, and is forwarded unread."""
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"))
    pieces = [f"thought {number}" for number in range(900)]
    frames = [chat.ROLE, *(chat.chunk({"reasoning_content": piece}) for piece in pieces)]
    body = b"".join([*frames, *pairs.make_stream("openai-chat", [], CALLS).partition(chat.ROLE)[2:]])
    stream = talk.exchange.stream()
    out = feed_stream(stream, *(body[at : at + cut * 50] for at in range(0, len(body), cut * 50)))
    talk.entries += make_answer_entries("openai-chat", decode_reply("openai-chat", out), "found")
    assert find_reasoning("openai-chat", talk.ask()) == ["".join(pieces)]


def test_reasoning_is_stored_before_the_last_byte_of_the_reply() -> None:
    """A client continues as soon as the message has ended, although the connection can stay open."""
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"))
    body = pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm.")
    out = b"".join(talk.exchange.stream().feed(body.partition(b"data: [DONE]")[0]))
    talk.entries += make_answer_entries("openai-chat", decode_reply("openai-chat", out), "found")
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."]


def test_a_reply_that_broke_off_is_not_kept() -> None:
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"))
    body = pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm.")
    framing: Framing = talk.exchange.server.framing
    frames = [frame.raw for frame in framing.make_reader().feed(body)][:-3]
    stream = talk.exchange.stream()
    out = b"".join([*(piece for frame in frames for piece in stream.feed(frame)), *stream.break_off("reset")])
    talk.entries += make_answer_entries("openai-chat", decode_reply("openai-chat", out), "found")
    assert find_reasoning("openai-chat", talk.ask()) == []


WRITTEN = {
    "hermes": '<tool_call>\n{"arguments": {"filePath":"/a"},  "name": "read"}\n</tool_call>',
    "invoke": '<function_calls><invoke name="read"><parameter name="filePath">/a</parameter></invoke></function_calls>',
    "qwen3-coder": "<tool_call><function=read><parameter=filePath>/a</parameter></function></tool_call>",
}


@pytest.mark.parametrize("dialect", WRITTEN)
@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages", "openai-responses"])
def test_calls_stand_in_the_prompt_as_the_model_wrote_them(client: str, dialect: str) -> None:
    """The server has cached exactly these characters: keys in the model's order, with its white space."""
    text = f"I look.\n\n{WRITTEN[dialect]}"
    for memory in (Memory(), None):
        talk = Talk(client, "openai-chat", memory, tools="prompt", dialect=dialect)
        talk.forgets = memory is None
        bodies = [talk.ask(*make_question(client, "Read it"))]
        for _ in range(2):
            talk.reply(b"".join(chat.make_stream(text[:9], text[9:])))
            bodies.append(talk.ask())
        contents = [one["content"] for one in bodies[-1]["messages"] if one["role"] == "assistant"]
        assert (contents == [text, text]) is (memory is not None)
        assert all("filePath" in one for one in contents)
        for before, after in pairwise(bodies):
            kept = before["messages"][:-1]
            assert after["messages"][: len(kept)] == kept


@pytest.mark.parametrize(
    "text", ['<tool_call>\n{"name": "read", "arguments": {"filePath": "/a"}\n</tool_call>', "changed"]
)
def test_changed_call_or_text_is_rendered_again(text: str) -> None:
    talk = Talk("openai-chat", tools="prompt", dialect="hermes")
    talk.ask(*make_question("openai-chat", "Read it"))
    talk.reply(b"".join(chat.make_stream(WRITTEN["hermes"] if text == "changed" else text)))
    if text == "changed":
        talk.entries[1]["content"] = "Something of mine."
    (content,) = [one["content"] for one in talk.ask()["messages"] if one["role"] == "assistant"]
    assert '{"name": "read", "arguments": {"filePath": "/a"}}' in content


NAMES = ("reasoning_content", "reasoning")


@pytest.mark.parametrize("name", [*NAMES, "both"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("wanted", [NAMES, NAMES[:1], ()], ids=["both", "one", "server's"])
def test_client_gets_reasoning_in_the_fields_of_its_profile(
    wanted: tuple[str, ...], stream: bool, name: str, tmp_path: Path
) -> None:
    """Clients read either field; servers send either or both."""
    thoughts = f"response: {{thoughts: [{', '.join(wanted)}]}}\n"
    (tmp_path / "mine.yaml").write_text(f"kind: policy\nname: mine\nmatch: {{}}\n{thoughts}")
    plans = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    body = chat.encode_json(chat.request(stream=stream))
    exchange = Session.open(BY_NAME["openai-chat"], body, AGENT, plans, "seed")
    exchange.encode_request()
    fields = dict.fromkeys(NAMES if name == "both" else (name,), "Hm.")
    if stream:
        frames = [
            chat.ROLE,
            *(chat.chunk(fields) for _ in range(9)),
            *chat.make_text_chunks("Hello", "."),
            chat.chunk({}, "stop"),
        ]
        out = chat.deltas(feed_stream(exchange.stream(), *frames, chat.DONE))[1:10]
    else:
        message = {"role": "assistant", "content": "Hello", **fields}
        whole = exchange.whole.rewrite(chat.encode_json(chat.completion("Hello", message=message)))
        out = [json.loads(whole)["choices"][0]["message"]]
    expected = dict.fromkeys(wanted or fields, "Hm.")
    assert [{key: one[key] for key in NAMES if one.get(key)} for one in out] == [expected] * len(out)
    assert len(out) == (9 if stream else 1)


@pytest.mark.parametrize("client", ["anthropic-messages", "openai-responses"])
def test_reasoning_in_two_fields_is_sent_once(client: str) -> None:
    talk = Talk(client, "openai-chat")
    thinks = THINKING.get(client, {})
    talk.ask(*make_question(client, "Read it"), stream=False, **thinks)
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, **dict.fromkeys(NAMES, "Hm."), "tool_calls": [call]}
    out = talk.exchange.whole.rewrite(chat.encode_json(chat.completion(None, "tool_calls", message=message)))
    assert out.count(b"Hm.") == 1


def test_repaired_native_call_is_not_text_of_the_model() -> None:
    """It is sent as a whole, and corresponds to no text of the reply."""
    talk = Talk("openai-chat")
    talk.ask(*make_question("openai-chat", "Read it"))
    body = pairs.make_stream("openai-chat", [], CALLS, reasoning="Hm.").replace(b'"id":"call_0"', b'"id":""')
    talk.reply(body)
    assert not talk.exchange.report.failures
    assert find_reasoning("openai-chat", talk.ask()) == ["Hm."]
