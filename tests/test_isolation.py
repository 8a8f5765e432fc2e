"""Conversations that share a memory get nothing from each other.

Conversations that differ in one part go through one process and one memory in turns. The plan with its reasons, the
request and the reply of each must equal those of a conversation that is alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.apis import chat
from tests.exchanges import API, PROFILES, feed_stream
from vtc.exchange import Session
from vtc.profiles import Facts, Match, Memory, Planner, Settings


class Talk(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a conversation."""

    text_client: bool = False
    planner: str = "hermes"
    agent: str = "Some/1"
    model: str = "lab"
    tool: str = "read"
    parameter: str = "path"
    described: str = "Reads it."
    explained: str = "Which file."
    default: Any = None
    twin: str = ""
    """The description of another tool of the same name."""
    choice: str = "auto"
    system: str = "Be kind."
    turn: str = "I look."
    argument: str = "a.py"
    result: str = "1"
    reply: str = "b.py"


OTHERS: dict[str, tuple[Any, ...]] = {
    "planner": ("qwen3-coder", "cline", "native", "other profiles"),
    "agent": ("Some/2", "Cline/3"),
    "model": ("lab-2", "qwen3"),
    "tool": ("write", "Read", "rea"),
    "parameter": ("paths", "file"),
    "described": ("Writes it.", "", "Reads it.Which file."),
    "explained": ("Which line.", "", "1-based line number"),
    "default": (float("nan"), float("inf"), 0, 0.0, False, "None", []),
    "twin": ("A first.", "A second."),
    "choice": ("required",),
    "system": ("Be short.", "Be kind.I look."),
    "turn": ("I see.", "", "I look.\n\n", "I look at </path>."),
    "argument": ("b.py", "", "</path>", "</parameter>", "1", "a.py\n"),
    "result": ("2", "", "a.py"),
    "reply": ("c.py", "</path>"),
}
"""Other values for each part; some differ only in the boundary between one part and the next."""
PLANNERS = ("hermes", *OTHERS["planner"])
EXAMPLES = settings().max_examples
TALKS = st.builds(
    Talk,
    text_client=st.booleans(),
    **{part: st.sampled_from((getattr(Talk(), part), *others)) for part, others in OTHERS.items()},
)


@cache
def planner(name: str) -> Planner:
    if name == "native":
        return Planner(PROFILES, Settings(tools="native"))
    if name != "other profiles":
        return Planner(PROFILES, Settings(tools="prompt", dialect=name))
    # The profiles differ, but their names are the same.
    hermes = replace(PROFILES.dialects["hermes"], prompt="Other words: {{ tools | length }}", result="Got {result}")
    qwen = replace(PROFILES.models["qwen3"], match=Match(model="lab*"), lenient=False)
    changed = {"dialects": {**PROFILES.dialects, "hermes": hermes}, "models": {**PROFILES.models, "qwen3": qwen}}
    return Planner(dataclasses.replace(PROFILES, **changed), Settings(tools="prompt", dialect="hermes"))


def request(talk: Talk) -> bytes:
    schema = {"type": "string", "description": talk.explained, "default": talk.default}
    described = [talk.twin, talk.described] if talk.twin else [talk.described]
    if talk.text_client:
        documents = "\n".join(
            f"## {talk.tool}\nDescription: {text}\nParameters:\n- {talk.parameter}: (required) {talk.explained}\n"
            f"Usage:\n<{talk.tool}>\n<{talk.parameter}>{talk.default}</{talk.parameter}>\n</{talk.tool}>\n"
            for text in described
        )
        call = f"<{talk.tool}>\n<{talk.parameter}>{talk.argument}</{talk.parameter}>\n</{talk.tool}>"
        messages = [
            {"role": "system", "content": f"{talk.system}\n\n# Tools\n\n{documents}"},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": f"{talk.turn}\n{call}"},
            {"role": "user", "content": f"[{talk.tool} for '{talk.argument}'] Result:\n\n{talk.result}"},
        ]
        return chat.encode_json(chat.request(model=talk.model, messages=messages, tools=None, stream=True))
    tools = [chat.tool(talk.tool, **{talk.parameter: schema}) for _ in described]
    for tool, text in zip(tools, described, strict=True):
        tool["function"]["description"] = text
    function = {"name": talk.tool, "arguments": json.dumps({talk.parameter: talk.argument})}
    messages = [
        {"role": "system", "content": talk.system},
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": talk.turn,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": talk.result},
    ]
    fields = {"model": talk.model, "messages": messages, "tools": tools, "tool_choice": talk.choice}
    return chat.encode_json(chat.request(stream=True, **fields))


type Outcome = tuple[object, ...]


def outcome(talk: Talk, memory: Memory | None, key: str | None = None) -> Outcome:
    """Return all results of an exchange; with a client's `key`, this includes the comparison with the last prompt."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    facts = Facts(user_agent=talk.agent, path="/v1/chat/completions", headers=headers)
    one = Session.open(API, request(talk), facts, planner(talk.planner), "seed", memory)
    sent = one.encode_request()
    calls = [chat.DIALECTS[name](talk.tool, {talk.parameter: talk.reply}) for name in ("hermes", "tag")]
    reply = feed_stream(one.stream(), *chat.make_stream("I will.\n", *calls))
    report = one.report.as_dict()
    if key is None:  # It quotes the last prompt of the same client; see below.
        del report["prefix"]
    return repr(one.plan), sent, reply, report


def check(talks: Iterable[Talk]) -> None:
    """Run conversations with one memory and shared patterns, and compare each with a run without a memory."""
    shared = Memory()
    for talk in talks:
        assert outcome(talk, shared) == outcome(talk, None)


BOTH = pytest.mark.parametrize("text_client", [False, True], ids=["native client", "text client"])


@pytest.mark.rest
@BOTH
@pytest.mark.one_in(8)
@pytest.mark.parametrize("by", ["hermes", "qwen3-coder", "native"])
@pytest.mark.parametrize("part", OTHERS)
def test_conversations_that_differ_in_one_part_get_nothing_of_each_other(part: str, by: str, text_client: bool) -> None:
    one = Talk(text_client=text_client, planner=by, agent="Cline/3" if text_client else "Some/1")
    others = [replace(one, **{part: other}) for other in OTHERS[part]]
    check(talk for other in others for talk in (one, other, one, other))


@settings(max_examples=max(1, EXAMPLES // 2))
@given(st.lists(TALKS, min_size=2, max_size=4))
def test_conversations_of_the_same_parts_in_any_mixture_get_nothing_of_each_other(talks: list[Talk]) -> None:
    check([*talks, *talks])


@given(st.lists(st.tuples(st.text("ab", max_size=3), st.text("ab", max_size=3), st.text("ab", max_size=3)), max_size=4))
def test_boundary_between_two_parts_is_part_of_a_digest(parts: list[tuple[str, str, str]]) -> None:
    check(Talk(described=one, explained=two, turn=three, system=two + three) for one, two, three in parts)


@BOTH
def test_a_conversation_that_differs_in_a_part_has_that_part_alone(text_client: bool) -> None:
    """Search for the words themselves, in case `check` fails to notice a difference."""
    shared = Memory()
    for word in ("alpha", "omega", "alpha"):
        parts = {part: f"{word}{part}" for part in ("tool", "parameter", "described", "explained", "turn", "argument")}
        talk = Talk(text_client=text_client, system=word, twin=f"{word}twin", result=word, reply=word, **parts)
        for by in PLANNERS:
            found = repr(outcome(replace(talk, planner=by), shared))
            assert word in found
            assert {"alpha": "omega", "omega": "alpha"}[word] not in found


@BOTH
@pytest.mark.parametrize("part", OTHERS)
def test_client_gets_no_text_of_another_clients_prompts(part: str, text_client: bool) -> None:
    shared = Memory()
    one = Talk(text_client=text_client)
    for number, talk in enumerate([one, *(replace(one, **{part: other}) for other in OTHERS[part]), one]):
        key = f"sk-of-{number}"
        assert outcome(talk, shared, key) == outcome(talk, None, key)
