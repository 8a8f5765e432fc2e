"""Reasoning in a reply, from the request, learned facts, the server's profile and the model's, in this order."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.known import AGREEING
from vtc.apis import APIS
from vtc.json_text import encode_json
from vtc.profiles import Facts, Match, Memory, ModelProfile, ServerProfile, Thinking
from vtc.profiles.reasoning_plan import COMMON_TAGS, plan_reasoning
from vtc.profiles.schema import ReasoningTags

SERVER = ServerProfile(name="server", match=Match())
PARTS = ServerProfile(name="parts", match=Match(), parts_reasoning=True)


def read_thinking_field(body: dict[str, Any]) -> bool | None:
    """Return the request's setting for reasoning."""
    return APIS[0].request(encode_json(body)).generation.thinks


def decide_thinking(
    prefilled: bool | Literal["asked"],
    body: dict[str, Any] | None = None,
    server: ServerProfile = SERVER,
    memory: Memory | None = None,
    host: str = "one",
) -> Thinking:
    model = ModelProfile(name="mine", match=Match(), reasoning=ReasoningTags(prefilled=prefilled))
    return plan_reasoning(model, server, Facts(host=host, model="m"), memory, asked=read_thinking_field(body or {}))


ON, OFF = {"thinking": True}, {"thinking": False}


@pytest.mark.parametrize(
    ("prefilled", "body", "server", "may", "begins"),
    [
        (True, {}, SERVER, True, True),
        (True, ON, SERVER, True, True),
        (True, OFF, SERVER, False, False),
        (True, {}, PARTS, True, False),
        ("asked", {}, SERVER, False, False),
        ("asked", ON, SERVER, True, True),
        (False, ON, SERVER, False, False),
    ],
)
def test_reply_begins_inside_reasoning_if_profiles_and_request_require_it(
    prefilled: bool | Literal["asked"], body: dict[str, Any], server: ServerProfile, may: bool, begins: bool
) -> None:
    found = decide_thinking(prefilled, body, server)
    assert (found.may_begin_inside, found.begins_inside) == (may, begins)


@pytest.mark.parametrize("prefilled", [None, False, "asked"])
@pytest.mark.parametrize(
    ("body", "server", "shows"),
    [
        ({}, SERVER, True),
        ({"think": False}, SERVER, False),
        ({}, PARTS, False),
    ],
)
def test_a_whole_reply_shows_whether_it_began_inside_unless_nobody_thinks_in_it(
    prefilled: bool | Literal["asked"] | None, body: dict[str, Any], server: ServerProfile, shows: bool
) -> None:
    """This holds for any model and without a profile. The shown beginning is used for later streams."""
    memory = Memory()
    model = None
    if prefilled is not None:
        model = ModelProfile(name="mine", match=Match(), reasoning=ReasoningTags(prefilled=prefilled))
    found = plan_reasoning(model, server, Facts(), memory, asked=read_thinking_field(body))
    assert found.begins(whole=True) == ("either" if shows else "text")
    assert found.begins(whole=False) == "text"
    if found.learned:
        note_replies(found, inside=True)
        found = plan_reasoning(model, server, Facts(), memory, asked=read_thinking_field(body))
        assert found.begins(whole=False) == "reasoning"
        assert found.begins(whole=True) == "either"
    silent = ModelProfile(name="mine", match=Match())
    assert plan_reasoning(silent, server, Facts(body=body), memory, text_client=False) == Thinking(
        COMMON_TAGS, "keep", never=True
    )


def note_replies(found: Thinking, *, inside: bool, replies: int = AGREEING) -> None:
    """Record the beginnings that some replies show."""
    assert found.learned is not None
    for _ in range(replies):
        found.learned.note(inside=inside)


def test_observation_of_a_server_applies_to_the_same_host_model_and_switch() -> None:
    memory = Memory()
    first = decide_thinking(True, memory=memory)
    assert first.begins_inside
    note_replies(first, inside=False)
    assert not decide_thinking(True, memory=memory).begins_inside
    assert decide_thinking(True, ON, memory=memory).begins_inside
    assert decide_thinking(True, memory=memory, host="two").begins_inside
    assert decide_thinking(True).begins_inside
    note_replies(decide_thinking(True, server=PARTS, memory=memory, host="two"), inside=True)
    assert decide_thinking(True, server=PARTS, memory=memory, host="two").begins_inside


def test_observation_of_a_server_counts_after_several_equal_replies() -> None:
    memory = Memory()
    found = decide_thinking(False, memory=memory)
    note_replies(found, inside=True, replies=AGREEING - 1)
    assert not decide_thinking(False, memory=memory).begins_inside
    note_replies(found, inside=False, replies=1)
    note_replies(found, inside=True, replies=AGREEING - 1)
    assert not decide_thinking(False, memory=memory).begins_inside  # the contradicting reply removed the recorded ones
    note_replies(found, inside=True, replies=5)
    assert decide_thinking(False, memory=memory).begins_inside
    note_replies(found, inside=False, replies=1)
    assert not decide_thinking(False, memory=memory).begins_inside


@pytest.mark.parametrize(
    "other",
    [
        {"headers": {"authorization": "Bearer two"}},
        {"headers": {"x-api-key": "two"}},
        {"user_agent": "two"},
        {"port": 2},
    ],
    ids=str,
)
def test_observation_of_one_client_does_not_apply_to_others(other: dict[str, Any]) -> None:
    memory = Memory()
    mine = {"headers": {"authorization": "Bearer one"}, "user_agent": "one", "port": 1}

    def find_thinking(**facts: Any) -> Thinking:
        return plan_reasoning(None, SERVER, Facts(host="h", model="m", body={}, **facts), memory, text_client=False)

    note_replies(find_thinking(**mine), inside=True)
    assert find_thinking(**mine).begins_inside
    assert not find_thinking(**{**mine, **other}).begins_inside


def test_a_model_without_a_profile_may_open_reasoning_and_a_text_client_keeps_the_tags_it_prompts_for() -> None:
    facts = Facts(host="one", model="m")
    unknown = plan_reasoning(None, SERVER, facts, None, text_client=False)
    assert (unknown.tags, unknown.to, unknown.begins_inside) == (COMMON_TAGS, "opened", False)
    assert plan_reasoning(None, SERVER, facts, None, text_client=True) == Thinking((), "keep")
    model = ModelProfile(name="mine", match=Match(), reasoning=ReasoningTags(open="<a>", close="</a>"))
    assert plan_reasoning(model, SERVER, facts, None, text_client=False).tags == (("<a>", "</a>"), *COMMON_TAGS)
    assert plan_reasoning(model, SERVER, facts, None, text_client=True).tags == (("<a>", "</a>"),)
