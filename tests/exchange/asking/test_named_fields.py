"""Fields that a rejection names, and the next request to the server; content is never removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from tests.apis import chat
from tests.apis.shapes import SHAPES, make_request_body
from tests.dialects import material
from tests.exchanges import agent, planner
from tests.known import MAX_REQUESTS
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.profiles import Memory, Planner, Settings, builtin_directory, load_profiles

type Json = dict[str, Any]

BY_NAME = {api.name: api for api in APIS}
CASES = material.plain((Path(__file__).parents[2] / "cases/rejections/named_fields.yaml").read_text("utf-8"))


def open_pair(
    client: str,
    server: str,
    fields: Json,
    memory: Memory | None = None,
    *,
    stream: bool = False,
    headers: Mapping[str, str] = {},
) -> Session:
    body = make_request_body(client, **({} if client == "gemini-generate" else {"stream": stream}), **fields)
    way = {"upstream_api": (server,)} if client != server else {}
    facts = replace(agent(client, stream=stream), headers=headers)
    return Session.open(BY_NAME[client], body, facts, planner(**way), "seed", memory)


def opened_for(case: Json, memory: Memory | None = None) -> Session:
    server, stream, headers = case["server"], case.get("stream", False), case.get("headers", {})
    return open_pair(case.get("client", server), server, case["fields"], memory, stream=stream, headers=headers)


def error_of(error: Any) -> bytes:
    return json.dumps({"error": {"message": error}} if isinstance(error, str) else error).encode()


def at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else (value or {}).get(key)
    return value


@pytest.mark.every
@pytest.mark.parametrize("case", CASES, ids=[f"{case['source']}: {str(case['error'])[:40]}" for case in CASES])
def test_named_field_is_corrected(case: Json) -> None:
    memory = Memory()
    exchange = opened_for(case, memory)
    exchange.encode_request()
    assert exchange.sent_request.headers == {}
    again = exchange.encode_after_rejection(error_of(case["error"]), case.get("status", 400))
    if case["sent"] is None:
        assert again is None
        return
    assert again is not None
    sent = json.loads(again)
    assert {path: at(sent, path) for path in case["sent"]} == case["sent"]
    assert exchange.sent_request.headers == case.get("changed", {})
    exchange.confirm_quirks()
    later = opened_for(case, memory)
    if case.get("once"):
        assert later.encode_request() != again
        return
    assert "applied at once from now on" in exchange.report.notes[-1]
    assert (later.encode_request(), later.sent_request) == (again, exchange.sent_request)
    assert (later.encode_after_rejection(error_of(case["error"]), case.get("status", 400)), later.sent_request) != (
        again,
        exchange.sent_request,
    )


OTHERS = [
    "Rate limit reached for m in organization org-x on tokens per min (TPM): Limit 30000, Used 25000, Requested 9000.",
    "The model `m` does not exist or you do not have access to it.",
    "User location is not supported for the API use.",
    "Your organization must be verified to stream this model. Please go to settings.",
    "Streaming is not supported for this model.",
    "Invalid value: 'tool'. Supported values are: 'system', 'assistant', 'user', 'function'.",
    "Invalid parameter: messages with role 'tool' must be a response to a preceding message.",
    "Invalid 'messages[0].content': expected a string, got null.",
    "messages.0.content.0.text: text content blocks must contain non-whitespace text",
    "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
    "Missing required parameter: 'messages[0].tool_call_id'.",
]


@pytest.mark.parametrize("words", OTHERS)
def test_errors_that_refuse_no_field_correct_nothing(words: str) -> None:
    fields: Json = {"max_tokens": 5, "user": "me", "stop": ["a"], "tool_choice": "required", "n": 1}
    exchange = open_pair("openai-chat", "openai-chat", {**fields, "response_format": {"type": "json_object"}})
    exchange.encode_request()
    exchange.encode_after_rejection(error_of(words), 400)
    assert not [line for line in exchange.report.request if line.endswith("as the server requires it")]


def test_quirk_changes_no_byte_of_a_request_without_its_field() -> None:
    memory = Memory()
    for case in CASES:
        is_of_chat = case["server"] == case.get("client", case["server"]) == "openai-chat"
        if case["sent"] and is_of_chat and not case.get("adds"):
            exchange = open_pair("openai-chat", "openai-chat", case["fields"], memory)
            exchange.encode_request()
            exchange.encode_after_rejection(error_of(case["error"]), case.get("status", 400))
            exchange.confirm_quirks()
    fields: Json = {"messages": [{"role": "user", "content": "x"}], "top_p": 0.5}
    assert open_pair("openai-chat", "openai-chat", fields, memory).encode_request() == make_request_body(
        "openai-chat", stream=False, **fields
    )


def test_other_fields_keep_their_bytes() -> None:
    body = b'{"model": "m", "seed":1,  "messages": [ {"role":"user",  "content":"\\u00e9"}, {"role": "user", "x": 1}]}'
    api = BY_NAME["openai-chat"]
    exchange = Session.open(api, body, agent("openai-chat"), planner(), "seed")
    exchange.encode_request()
    assert exchange.encode_after_rejection(error_of("messages.1.x: Extra inputs are not permitted"), 400) == (
        b'{"model":"m","seed":1,"messages":[{"role":"user",  "content":"\\u00e9"},{"role":"user"}]}'
    )


def test_fields_that_a_policy_sets_or_removes_are_unchanged(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "kind: policy\nname: own\nmatch: {host: ['*']}\n"
        "request: {set: {seed: 1}, drop: [max_completion_tokens, reasoning_effort]}\n"
    )
    held = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    body = make_request_body("openai-chat", max_tokens=5)
    exchange = Session.open(BY_NAME["openai-chat"], body, agent("openai-chat"), held, "seed")
    assert json.loads(exchange.encode_request())["seed"] == 1
    assert exchange.encode_after_rejection(error_of("Unsupported parameter: 'seed'"), 400) is None
    renamed = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    assert b"max_completion_tokens" not in (exchange.encode_after_rejection(error_of(renamed), 400) or b"")
    beside_tools = "Function tools with reasoning_effort are not supported for m in /v1/chat/completions."
    assert exchange.encode_after_rejection(error_of(beside_tools), 400) is None


def test_quirk_does_not_apply_to_other_content_at_its_path() -> None:
    """Empty tools and a choice of `auto` may be removed; other values may not."""
    memory = Memory()
    first = open_pair("openai-responses", "openai-responses", {"tools": [], "tool_choice": "auto"}, memory)
    first.encode_request()
    for words in ("`tools` must not be an empty array.", "'tool_choice' is only allowed when 'tools' are specified."):
        assert first.encode_after_rejection(error_of(words), 400)
    first.confirm_quirks()
    fields: Json = {"tool_choice": "required"}
    assert open_pair("openai-responses", "openai-responses", fields, memory).encode_request() == make_request_body(
        "openai-responses", stream=False, **fields
    )


def test_quirks_of_two_rejections_are_both_kept() -> None:
    memory, fields = Memory(), {"seed": 1, "max_tokens": 5, "top_k": 1}
    exchange = open_pair("openai-chat", "openai-chat", fields, memory)
    exchange.encode_request()
    assert exchange.encode_after_rejection(error_of("Unsupported parameter: 'seed'"), 400)
    assert exchange.encode_after_rejection(
        error_of("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."), 400
    )
    exchange.confirm_quirks()
    later = open_pair("openai-chat", "openai-chat", fields, memory)
    sent = json.loads(later.encode_request())
    assert ("seed" in sent, "max_tokens" in sent, sent["max_completion_tokens"], sent["top_k"]) == (False, False, 5, 1)
    assert "changed since the server rejected a request: seed left out, max_tokens sent as max_completion_tokens" in (
        later.plan.why
    )


@pytest.mark.parametrize("client", ["openai-chat", "anthropic-messages"])
def test_a_profile_may_want_no_corrections(client: str, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "kind: server\nname: own\nmatch: {host: ['*']}\nready: {corrections: false}\nrequest: {rename: {seed: noise}}\n"
    )
    way = {"upstream_api": ("openai-chat",)} if client != "openai-chat" else {}
    plain = Planner(load_profiles([builtin_directory(), tmp_path]), Settings(server="own", **way))
    body = make_request_body(client, stream=False, temperature=0.5, **({"seed": 1} if client == "openai-chat" else {}))
    exchange = Session.open(BY_NAME[client], body, agent(client, stream=False), plain, "seed")
    assert (b"noise" in exchange.encode_request()) is (client == "openai-chat")
    assert any("ready.corrections: false" in line for line in exchange.plan.why)
    assert exchange.encode_after_rejection(error_of("Unsupported parameter: 'temperature'"), 400) is None
    assert exchange.encode_after_rejection(
        error_of("Conversation roles must alternate user/assistant"), 400
    )  # which teaches a step


@pytest.mark.parametrize(
    ("server", "flags", "changed"),
    [
        ("anthropic-messages", "anthropic-beta.b-2", {"anthropic-beta": "a-1,c-3"}),
        ("anthropic-messages", "anthropic-beta.b-2, anthropic-beta.a-1, anthropic-beta.c-3", {"anthropic-beta": None}),
        ("anthropic-messages", "anthropic-beta", {"anthropic-beta": None}),
        ("anthropic-messages", "anthropic-beta.d-4, openai-beta", {}),
        ("openai-chat", "anthropic-beta", {}),  # to whose servers none is sent
    ],
)
def test_profile_lists_flags_that_a_server_rejects(server: str, flags: str, changed: Json, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        "kind: server\nname: own\nmatch: {host: ['*']}\nready: {corrections: false}\n"
        f"request: {{drop_flags: [{flags}]}}\n"
    )
    own = Planner(load_profiles([builtin_directory(), tmp_path]), Settings(server="own", upstream_api=(server,)))
    facts = replace(agent("anthropic-messages"), headers={"anthropic-beta": "a-1, b-2,c-3", "x-api-key": "b-2"})
    body = make_request_body("anthropic-messages", stream=False)
    exchange = Session.open(BY_NAME["anthropic-messages"], body, facts, own, "seed")
    assert (exchange.encode_request() == body) is (server == "anthropic-messages")
    assert exchange.sent_request.headers == changed
    assert bool([line for line in exchange.report.request if line.startswith("header ")]) is bool(changed)


REFUSED_WORDS = sorted(
    {json.dumps(case["error"]) for case in CASES if isinstance(case["error"], str)}
    | {
        json.dumps(words)
        for words in ("roles must alternate", "NoneType", "max_tokens: 5 > 3", "`tools` is not supported")
    }
)


@over(
    case=st.sampled_from(APIS).flatmap(
        lambda api: st.sampled_from([one for one in CASES if one["server"] == api.name])
    ),
    refusals=st.lists(st.sampled_from(REFUSED_WORDS), min_size=1, max_size=3),
    stream=st.booleans(),
)
def test_repeated_rejections_end(case: Json, refusals: list[str], stream: bool) -> None:
    """A retry has another body each time, and alternating rejections end, too."""
    exchange = opened_for({**case, "stream": stream})
    sent = exchange.encode_request(), exchange.sent_request
    for words in (refusals * MAX_REQUESTS)[: MAX_REQUESTS - 1]:
        again = exchange.encode_after_rejection(error_of(json.loads(words)), 400)
        if again is None:
            break
        assert (again, exchange.sent_request) != sent
        sent = again, exchange.sent_request


def renaming(name: str, to: str) -> bytes:
    return error_of(f"Unsupported parameter: '{name}' is not supported. Use '{to}' instead.")


THERE, BACK = renaming("max_tokens", "max_completion_tokens"), renaming("max_completion_tokens", "max_tokens")


@pytest.mark.parametrize(
    ("refusals", "sent"),
    [
        ((THERE, BACK, THERE, BACK), ["max_completion_tokens", "max_tokens"] * 2),
        ((error_of("text content blocks must be non-empty; all messages must have non-empty content"),), [""]),
        ((error_of("text content blocks must be non-empty; 'NoneType' object is not iterable"),), [""]),
    ],
)
def test_refusals_that_contradict_each_other_end(refusals: tuple[bytes, ...], sent: list[str]) -> None:
    exchange = open_pair("openai-chat", "openai-chat", {"max_tokens": 5})
    exchange.encode_request()
    names = ["max_tokens", "max_completion_tokens"]
    bodies = [json.loads(exchange.encode_after_rejection(error, 400) or b"{}") for error in refusals]
    assert ["".join(name for name in names if name in body) for body in bodies] == sent


def test_quirk_that_is_learned_again_is_last() -> None:
    """One of the servers behind a name requires one field, and one the other."""
    memory, fields = Memory(), {"max_tokens": 5}
    for error, name in [(THERE, "max_completion_tokens"), (BACK, "max_tokens"), (THERE, "max_completion_tokens")]:
        exchange = open_pair("openai-chat", "openai-chat", fields, memory)
        exchange.encode_request()
        assert json.loads(exchange.encode_after_rejection(error, 400) or b"{}")[name] == 5
        exchange.confirm_quirks()
        assert json.loads(open_pair("openai-chat", "openai-chat", fields, memory).encode_request())[name] == 5


class Sent(msgspec.Struct):
    messages: list[msgspec.Raw]


@pytest.mark.parametrize(
    ("words", "entry"),
    [
        ("messages.1.reasoning_content: Extra inputs are not permitted", {"reasoning_content": "I think."}),
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", {}),
        ("messages.0.name2: Extra inputs are not permitted", {"name2": 1}),
    ],
)
def test_corrected_request_is_a_prefix_of_the_next(words: str, entry: Json) -> None:
    memory = Memory()
    turns: list[Json] = [{"role": "user", "content": "x\u00e9", **({"name2": 2} if "name2" in entry else {})}]
    sent: list[list[Any]] = []
    for turn in range(4):
        exchange = open_pair("openai-chat", "openai-chat", {"messages": turns, "seed": 1}, memory)
        body = exchange.encode_request()
        if turn == 1:
            body = exchange.encode_after_rejection(error_of(words), 400) or b""
            exchange.confirm_quirks()
        if turn:
            sent.append(msgspec.json.decode(body, type=Sent).messages)
        turns = [*turns, {"role": "assistant", "content": "a", **entry}, {"role": "user", "content": str(turn)}]
    assert all([*map(bytes, later[: len(earlier)])] == [*map(bytes, earlier)] for earlier, later in pairwise(sent))


# Content is never removed, whichever field a server names


NAMES = ["x", "seed", "cache_control", "reasoning_content", "caption", "metadata", "strict", "thoughtSignature"]
VALUE = st.sampled_from([1, None, True, "auto", "two words", [], {}, {"text": "said"}, {"type": "text", "text": "a b"}])
SPELLINGS = [
    "Unsupported parameter: '{}'",
    "{}: Extra inputs are not permitted",
    "Unknown parameter: '{}'. Use 'y' instead.",
    "'{}' is not supported with this model",
    "Invalid '{}': integer above maximum value. Expected a value <= 0",
    "[] is too short - '{}'",
    "`{}` and `model` cannot both be specified",
    "`model` and `{}` cannot both be specified",
    "'{}' must be one of 'a', 'any', 'low'",
]


def paths_of(value: Any, above: tuple[str, ...] = ()) -> list[str]:
    inside = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    below = [path for key, part in inside for path in paths_of(part, (*above, str(key)))]
    return [".".join(above), *below] if above else below


def scattered_fields(draw: st.DrawFn, value: Any, depth: int = 0) -> Any:
    """Put fields that no API has into the objects of a body."""
    if isinstance(value, list):
        return [scattered_fields(draw, part, depth) for part in value]
    if not isinstance(value, dict) or depth > 5:
        return value
    more = draw(st.dictionaries(st.sampled_from(NAMES), VALUE, max_size=1)) if draw(st.booleans()) else {}
    return {**more, **{key: scattered_fields(draw, part, depth + 1) for key, part in value.items()}}


def read_content(name: str, body: bytes) -> Any:
    """Return the content of a body: texts, calls and results, tools, and demands."""
    request = BY_NAME[name].request(body, SHAPES[name].build_path())
    messages = [
        (
            message.role,
            [part if isinstance(part, str) else request.interpret_part(part.part) for part in message.content],
            [(call.name, call.arguments) for call in message.calls],
            message.call_id,
        )
        for message in request.messages
    ]
    tools = [(tool.name, tool.description, tool.parameters) for tool in request.offer.tools]
    return messages, tools, request.offer.choice, request.model, request.stream, request.generation.answer


@st.composite
def rejected_requests(draw: st.DrawFn, name: str) -> tuple[bytes, list[bytes]]:
    """Generate a request of an API, and rejections that name anything in it."""
    fields = json.loads(make_request_body(name, **SHAPES[name].history))
    fields = {key: value if key == "model" else scattered_fields(draw, value) for key, value in fields.items()}
    paths = draw(st.lists(st.sampled_from(paths_of(fields)), min_size=1, max_size=4))
    errors = [error_of(draw(st.sampled_from(SPELLINGS)).format(path)) for path in paths]
    return chat.encode_json(fields), errors


@pytest.mark.parametrize("name", SHAPES)
@over(data=st.data())
def test_no_content_is_ever_removed(name: str, data: st.DataObject) -> None:
    body, errors = data.draw(rejected_requests(name))
    before = read_content(name, body)
    exchange = Session.open(BY_NAME[name], body, agent(name), planner(), "seed")
    exchange.encode_request()
    for error in errors:
        again = exchange.encode_after_rejection(error, 400)
        if again is None or not all(line.endswith("as the server requires it") for line in exchange.report.request):
            return  # a step of another kind
        assert read_content(name, again) == before
