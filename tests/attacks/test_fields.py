"""No forbidden call is sent in parts of a frame that VTC ignores: under a respelled, repeated or misplaced key.

Each frame of a reply with a harmless call, with text or with an error is modified: every pair of a key and a value from
a reply with the forbidden call, down to that call, is inserted next to the existing ones, first and last.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from tests.apis import chat, gemini, messages, ollama, pairs, responses
from tests.apis.shapes import SHAPES
from tests.exchanges import PROFILES, agent
from vtc.apis import find_api
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

type Json = dict[str, Any]
type Path = tuple[str | int, ...]

SECRET = "rm -rf /"
"""The text that identifies the forbidden call."""
_TOOL: dict[str, Callable[..., Json]] = {
    "openai-chat": chat.tool,
    "anthropic-messages": messages.tool,
    "openai-responses": responses.tool,
    "ollama-chat": ollama.tool,
}
POLICIES: dict[str, Json] = {
    "denied": {"denied_tools": ["danger"], "on_denied": "drop"},
    "allowed": {"allowed_tools": ["read"], "on_denied": "drop"},
    "rule": {
        "reactors": [
            {
                "name": "no-rm",
                "when": {"tools": "*", "arguments": {"command": "rm -rf"}},
                "then": {"refuse": "No.", "refuse_as": "drop"},
            }
        ]
    },
}
FORBIDDEN = {"denied": "danger", "allowed": "danger", "rule": "read"}


@cache
def planner(policy: str) -> Planner:
    mine = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(POLICIES[policy], Guards))
    return Planner(dataclasses.replace(PROFILES, policies={"mine": mine}), Settings())


def open_policy_session(name: str, policy: str, *, stream: bool, body: bytes = b"") -> Session:
    api = find_api(name)
    assert api is not None
    tools: Any = [_TOOL[name]("read", command="string")] if name in _TOOL else None
    tools = tools or [{"functionDeclarations": [gemini.tool("read", command="string")]}]
    body = body or chat.encode_json(SHAPES[name].request(stream=stream, tools=tools))
    return Session.open(api, body, agent(name, stream=stream), planner(policy), "seed")


# Replies as values


def frames(name: str, body: bytes) -> list[Any]:
    """Parse the frames of a stream; a frame that is no JSON stays text."""
    parts = body.split(b"\n" if name == "ollama-chat" else b"\n\n")
    data = [part[part.find(b"data: ") + 6 if b"data: " in part else 0 :].decode() for part in parts if part.strip()]
    return [json.loads(one) if one.startswith("{") else one for one in data]


def stream_of(name: str, data: Iterable[str]) -> bytes:
    """Serialize a stream of JSON texts."""
    end = "\n" if name == "ollama-chat" else "\n\n"
    lead = "" if name == "ollama-chat" else "data: "
    out = []
    for one in data:
        kind = f"event: {json.loads(one)['type']}\n" if name in ("anthropic-messages", "openai-responses") else ""
        out.append(f"{kind}{lead}{one}{end}")
    return "".join(out).encode()


OTHERS: dict[str, Sequence[Json]] = {
    "openai-chat": ({"error": {"message": "busy", "type": "x"}},),
    "anthropic-messages": (
        messages.error(),
        {"type": "ping"},
    ),
    "openai-responses": (
        responses.error(),
        {"type": "response.failed", "response": responses.response(status="failed")},
        {"type": "keepalive", "sequence_number": 3},
    ),
    "ollama-chat": ({"error": "busy"},),
    "gemini-generate": ({"error": {"code": 500, "message": "busy", "status": "INTERNAL"}},),
}
"""Events that are neither text nor calls."""


def reply(name: str, kind: str, tool: str, *, whole: bool) -> list[Any]:
    """Make a reply with text, with a harmless call, or with the forbidden call of a tool."""
    calls: pairs.Calls = [(tool, {"command": SECRET if kind == "forbidden" else "ls"})] if kind != "text" else []
    if whole:
        return [json.loads(pairs.make_whole_reply(name, "" if calls else "Hello", calls))]
    return frames(name, pairs.make_stream(name, [] if calls else ["Hello", " you"], calls))


# Inserted pairs

HOLDS_NOTHING = ("usage", "usageMetadata", "error", "metadata", "instructions", "text", "tools")
"""Objects in which no client searches for a call."""
ARGUMENTS = ("args", "arguments", "input")
"""Objects that are checked as arguments."""


MARK = "mark"


def objects(value: Any, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield the objects of a value, including itself, with their paths."""
    if isinstance(value, dict):
        yield path, value
        for key, one in value.items():
            if key not in (*HOLDS_NOTHING, *ARGUMENTS):
                yield from objects(one, (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from objects(one, (*path, place))


def contains_forbidden_call(value: Any, tool: str) -> bool:
    """Return True if a value contains the forbidden call, or a part of one."""
    text = value if isinstance(value, str) else json.dumps(value)
    return tool == value or '"danger"' in text if tool == "danger" else SECRET in text


def insert_pair(value: Any, path: Path, pair: str) -> Iterator[str]:
    """Serialize JSON with a pair in the object at a path: first, last, and instead of one with the same key."""
    if path:
        inner = value[path[0]]
        marked = json.dumps(
            {**value, path[0]: MARK} if isinstance(value, dict) else [*value[: path[0]], MARK, *value[path[0] + 1 :]]
        )
        yield from (marked.replace(json.dumps(MARK), one) for one in insert_pair(inner, path[1:], pair))
        return
    members = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in value.items()]
    key = pair.partition(":")[0]
    rest = [one for one in members if one.partition(":")[0] != key]
    yield from ("{" + ", ".join(some) + "}" for some in ([pair, *members], [*members, pair]))
    if len(rest) < len(members):
        yield "{" + ", ".join([*rest, pair]) + "}"


def respell_key(key: str) -> str:
    """Respell a key so that some client treats it as the same."""
    return key[0].upper() + key[1:]


def spell_pair(key: str, value: Any) -> Iterator[str]:
    """Serialize a pair: unchanged, respelled, in the spelling that Google's servers also accept, and with another
    type.
    """
    for name in (key, respell_key(key), re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key)):
        yield f"{json.dumps(name)}: {json.dumps(value)}"
    if isinstance(value, dict):
        yield f"{json.dumps(key)}: {json.dumps([value])}"


def pairs_of(forbidden: Sequence[Any], tool: str) -> list[str]:
    """Return the pairs from the frames of a forbidden call down to that call, as JSON in two spellings.

    Besides each pair alone this includes the whole object that contains the call, respelled.
    """
    found: dict[str, None] = {}
    for frame in forbidden:
        for _, one in objects(frame):
            named = {key: value for key, value in one.items() if contains_forbidden_call(value, tool)}
            for key, value in named.items():
                found |= dict.fromkeys(spell_pair(key, value))
            if any(isinstance(value, str) for value in named.values()):
                found[json.dumps({respell_key(key): value for key, value in one.items()})[1:-1]] = None
    return [*found]


def attacks(name: str, tool: str, *, whole: bool) -> Iterator[list[str]]:
    """Make replies, as the JSON of their frames, with each pair of the forbidden call next to each pair of another."""
    forbidden = pairs_of(reply(name, "forbidden", tool, whole=whole), tool)
    bases = [reply(name, kind, "read", whole=whole) for kind in ("text", "harmless")]
    bases += [] if whole else [[*bases[0][:-2], event, *bases[0][-2:]] for event in OTHERS[name]]
    for number, base in enumerate(bases):
        lines = [json.dumps(one) for one in base if isinstance(one, dict)]
        for place, frame in enumerate(base):
            if not isinstance(frame, dict) or (number > 1 and place != len(base) - 3):
                continue
            for path, _ in objects(frame):
                for pair in forbidden:
                    if pair.startswith('"delta": "') and frame.get("type") == "response.output_text.delta":
                        continue  # it is text
                    yield from ([*lines[:place], odd, *lines[place + 1 :]] for odd in insert_pair(frame, path, pair))


WAYS = pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])


@pytest.mark.rest
@pytest.mark.every
@WAYS
@pytest.mark.parametrize("policy", ["denied", "rule"])
@pytest.mark.parametrize("name", SHAPES)
def test_no_pair_of_a_forbidden_call_is_sent_next_to_another(
    name: str, policy: str, whole: bool, some: Callable[..., Iterator[Any]]
) -> None:
    tool = FORBIDDEN[policy]
    count = 0
    for attack in some(attacks(name, tool, whole=whole), 4 if whole else 48):
        count += 1
        exchange = open_policy_session(name, policy, stream=not whole)
        if whole:
            out = exchange.whole.rewrite(attack[0].encode())
        else:
            stream = exchange.stream()
            out = b"".join([*stream.feed(stream_of(name, attack)), *stream.finish()])
        assert exchange.report.failures == []
        assert not contains_forbidden_call(out.decode(), tool), attack
    assert count


_CLICK = {"type": "computer_call", "id": "s", "call_id": "c", "actions": [{"type": "click"}], "status": "completed"}
_SHELL = {"type": "shell_call", "id": "s", "call_id": "c", "action": {"commands": ["ls"]}, "status": "completed"}
OWN_KINDS: list[tuple[str, str, Json]] = [
    ("anthropic-messages", "content_block", {"type": "server_tool_use", "id": "s", "input": {}}),
    *(("openai-responses", "item", item) for item in ({"type": "web_search_call", "id": "s"}, _CLICK, _SHELL)),
]
"""Calls that a server executes itself, and calls of tools with a special type."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("name", "key", "item"), OWN_KINDS, ids=lambda one: one["type"] if isinstance(one, dict) else one
)
def test_no_call_in_other_letters_is_sent_in_an_item_of_another_kind(
    name: str, key: str, item: Json, policy: str
) -> None:
    tool = FORBIDDEN[policy]
    base, forbidden = (
        reply(name, "text", tool, whole=False),
        pairs_of(reply(name, "forbidden", tool, whole=False), tool),
    )
    begun, ended = ("response.output_item.added", "response.output_item.done")
    events: list[Json] = [{"type": begun, "output_index": 1, key: item}, {"type": ended, "output_index": 1, key: item}]
    if name == "anthropic-messages":
        events = [{"type": "content_block_start", "index": 1, key: item}, {"type": "content_block_stop", "index": 1}]
    for place, event in enumerate(events):
        for pair in (one for one in forbidden if '"Type": ' in one and key in event):
            for odd in insert_pair(event, (key,), pair):
                lines = [*map(json.dumps, [*base[:-2], *events[:place]]), odd, *map(json.dumps, events[place + 1 :])]
                stream = open_policy_session(name, policy, stream=True).stream()
                out = b"".join([*stream.feed(stream_of(name, [*lines, *map(json.dumps, base[-2:])])), *stream.finish()])
                assert not contains_forbidden_call(out.decode(), tool), lines
    if name == "openai-responses":
        for pair in (one for one in forbidden if '"Type": ' in one):
            for odd in insert_pair(item, (), pair):
                whole = json.dumps(responses.response()).replace('"output": []', f'"output": [{odd}]')
                assert not contains_forbidden_call(
                    open_policy_session(name, policy, stream=False).whole.rewrite(whole.encode()).decode(), tool
                ), odd


def _chat(**entry: Any) -> dict[bool, bytes]:
    entry = {"index": 0, "id": "c0", **entry}
    message = {"tool_calls": [entry]}
    streamed = [chat.ROLE, chat.chunk(message), chat.chunk({}, "tool_calls"), chat.DONE]
    return {False: b"".join(streamed), True: chat.encode_json(chat.completion(None, "tool_calls", message=message))}


def _responses(item: Json, events: Sequence[Json]) -> dict[bool, bytes]:
    return {False: b"".join(responses.make_stream([*events])), True: chat.encode_json(responses.response(item))}


def _ollama(**entry: Any) -> dict[bool, bytes]:
    lines = ollama.make_stream(ollama.piece("", entry))
    return {False: b"".join(lines), True: chat.encode_json(ollama.message("", entry))}


_ARGUMENTS = {"command": SECRET}
_CUSTOM = responses.custom_call("read", SECRET)
_APPROVAL = {
    "type": "mcp_approval_request", "id": "a", "name": "read", "server_label": "s", "arguments": json.dumps(_ARGUMENTS)
}  # fmt: skip
CUSTOM: dict[str, tuple[str, dict[bool, bytes]]] = {
    "chat": ("openai-chat", _chat(type="custom", custom={"name": "read", "input": SECRET})),
    "chat, a prefix": ("openai-chat", _chat(type="custom", custom={"name": "functions.read", "input": SECRET})),
    "chat, JSON": ("openai-chat", _chat(type="custom", custom={"name": "read", "input": json.dumps(_ARGUMENTS)})),
    "chat, as a function": ("openai-chat", _chat(type="custom", function={"name": "read", "arguments": SECRET})),
    "chat, as both": (
        "openai-chat",
        _chat(type="custom", function={"name": "read", "arguments": SECRET}, custom={"name": "x", "input": "ls"}),
    ),
    "responses": (
        "openai-responses",
        _responses(_CUSTOM, responses.custom_call_events("read", SECRET[:3], SECRET[3:])),
    ),
    "ollama": ("ollama-chat", _ollama(type="custom", function={"name": "read", "arguments": SECRET})),
    "a request for approval": (
        "openai-responses",
        _responses(
            _APPROVAL,
            [
                {"type": "response.output_item.added", "item": _APPROVAL},
                {"type": "response.output_item.done", "item": _APPROVAL},
            ],
        ),
    ),
}
"""Calls of a function in the form of a custom tool's, and other requests to the client, streamed and whole."""


@WAYS
@pytest.mark.parametrize("what", CUSTOM)
def test_no_rule_on_arguments_is_passed_by_a_call_in_another_form(what: str, whole: bool) -> None:
    name, bodies = CUSTOM[what]
    exchange = open_policy_session(name, "rule", stream=not whole)
    if whole:
        out = exchange.whole.rewrite(bodies[True])
    else:
        stream = exchange.stream()
        out = b"".join([*stream.feed(bodies[False]), *stream.finish()])
    assert SECRET not in out.decode()
    assert exchange.report.failures == []


@pytest.mark.parametrize("name", SHAPES)
def test_request_with_a_duplicate_key_is_encoded_again_under_a_policy(name: str) -> None:
    """Otherwise a denied tool could be hidden from VTC, or the server could see another request."""
    plain = chat.encode_json(SHAPES[name].request(stream=True))
    body = b'{"tools": [{"name": "danger", "function": {"name": "danger"}}], %b' % plain[1:]
    api = find_api(name)
    assert api is not None
    for policy in ("denied", "rule"):
        sent = open_policy_session(name, policy, stream=True, body=body).encode_request()
        assert json.loads(sent) == json.loads(plain)
        assert b"danger" not in sent
        assert open_policy_session(name, policy, stream=True, body=plain).encode_request() == plain
    free = Session.open(api, body, agent(name, stream=True), Planner(PROFILES, Settings()), "seed")
    assert free.encode_request() == body
